"""Simulation-based calibration: uniform for the exact likelihood, not for wrong ones."""

import numpy as np
import pytest
from likelihoods import FastToy, Sharpened

import keepscore as ks
from keepscore.errors import DomainError, UnknownNameError
from keepscore.inference.sbc import _uniformity

FALSE_ALARM = 1e-6


# 300 data sets, ten bins: at 1e-6 the test sees a likelihood twice too sharp (shown below).
def test_exact_likelihood_gives_uniform_ranks():
    result = ks.sbc(FastToy(), FastToy(), n=300, group_size=5, seed=1)
    assert result.ranks.shape == (300, 2)
    assert result.ranks.min() >= 0
    assert result.ranks.max() <= 99
    assert result.uniform(FALSE_ALARM)
    assert abs(result.ranks.mean() / 99 - 0.5) < 5 / np.sqrt(12 * 600)
    assert "mean rank" in str(result)


@pytest.mark.parametrize("factor", [2.5, 0.3])
def test_too_sharp_and_too_flat_likelihoods_are_found_out(factor):
    result = ks.sbc(Sharpened(FastToy(), factor), FastToy(), n=300, group_size=5, seed=1)
    assert not result.uniform(FALSE_ALARM)


def test_narrow_posteriors_are_resolved():
    # Groups of 200 x 4 numbers: posterior sds of 0.03, as wide as a grid cell.
    result = ks.sbc(FastToy(), FastToy(), n=200, group_size=200, seed=2)
    assert result.uniform(FALSE_ALARM)


def test_uniformity_is_calibrated():
    rng = np.random.default_rng(0)
    p = np.array([_uniformity(rng.integers(0, 100, (300, 2)), 99) for _ in range(300)]).ravel()
    # 600 p-values: the share below 0.05 has a standard error of 0.009.
    assert abs((p < 0.05).mean() - 0.05) < 5 * 0.009
    # A number of ranks not divisible by the bins is no bias.
    p = np.array([_uniformity(rng.integers(0, 26, (300, 2)), 25) for _ in range(300)]).ravel()
    assert abs((p < 0.05).mean() - 0.05) < 5 * 0.009


@pytest.mark.slow
def test_nuts_agrees_with_the_grid():
    result = ks.sbc(FastToy(), FastToy(), n=50, group_size=5, method="nuts", seed=1)
    assert result.uniform(FALSE_ALARM)


def test_bad_input():
    toy = FastToy()
    with pytest.raises(UnknownNameError):
        ks.sbc(toy, toy, method="gibbs")
    for bad in ({"n": 3}, {"draws": 1}, {"group_size": 0}):
        with pytest.raises(DomainError):
            ks.sbc(toy, toy, **bad)
