"""Draws of an approximate posterior become exact ones, or it is said that they did not."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from likelihoods import FastToy, bent, from_function, toy_groups
from scipy import stats

import keepscore as ks
from keepscore.errors import KeepscoreWarning, MismatchError, NonFiniteError
from keepscore.inference.draws import pareto_smoothed
from keepscore.inference.exact_work import ExactWork
from keepscore.inference.reweight import LARGEST_K, weigh

posterior = import_module("keepscore.inference.posterior")


def normal(mean, sd, d=1):
    """log N(mean, sd^2) in each of d parameters, on a box that does not matter."""

    def value(theta, group):
        return -0.5 * (((theta - mean) / sd) ** 2).sum(axis=1) - d * np.log(sd)

    return from_function(value, lambda t, g: -(t - mean) / sd**2, d=d, width=20.0)


def draws_of(mean, sd, n=1000, d=1, seed=0):
    return mean + sd * np.random.default_rng(seed).standard_normal((4, n, d))


@pytest.mark.parametrize("d", [1, 2, 6])
def test_weighted_draws_are_those_of_the_exact_posterior(d):
    """Draws of N(0, 1.2), exact N(.2, 1): means within 5 standard errors (false alarms below
    1e-5 each); the draws as they came are the control that must fail."""
    exact, like, theta = normal(0.2, 1.0, d), normal(0.0, 1.2, d), draws_of(0.0, 1.2, 2000, d)
    weighted = weigh(like, ExactWork(exact), theta, 8000)
    assert weighted.k_hat < LARGEST_K
    assert np.isclose(weighted.weight.sum(), 1)
    se = 1 / np.sqrt(weighted.effective)
    index = weighted.resampled(np.random.default_rng(1))
    found = weighted.theta.reshape(-1, d)[index]
    assert (np.abs(found.mean(axis=0) - 0.2) < 5 * se).all()
    assert (np.abs(found.std(axis=0) - 1) < 5 * se).all()
    plain = theta.reshape(-1, d)
    assert (np.abs(plain.mean(axis=0) - 0.2) > 5 * se).all()


def test_equal_likelihoods_have_equal_weights():
    like = normal(0.0, 1.0)
    shifted = replace(like, pairs=lambda t, g: like.pairs(t, g) + 7.0)  # a constant is nothing
    weighted = weigh(shifted, ExactWork(like), draws_of(0, 1), 400)
    assert weighted.k_hat == 0
    np.testing.assert_allclose(weighted.weight, 1 / 400)
    assert weighted.effective == pytest.approx(400)
    np.testing.assert_array_equal(weighted.resampled(np.random.default_rng(0)), np.arange(400))


def test_bad_weights_are_seen_and_a_chain_is_right_in_the_limit():
    """Draws too narrow for the exact posterior: k-hat says so; a chain still finds its spread."""
    exact, like, theta = normal(0.0, 1.0), normal(0.0, 0.45), draws_of(0.0, 0.45, 20_000)
    weighted = weigh(like, ExactWork(exact), theta, 80_000)
    assert weighted.k_hat > LARGEST_K
    index, moved = weighted.chained(np.random.default_rng(0))
    assert 0.1 < moved < 0.9
    spread = weighted.theta.ravel()[index].std()
    assert spread > 0.65  # of .45 as drawn, towards 1
    # Where weights are bounded the chain agrees with them.
    fine = weigh(normal(0.0, 1.3), ExactWork(normal(0.3, 1.0)), draws_of(0, 1.3, 20_000), 80_000)
    index, moved = fine.chained(np.random.default_rng(0))
    found = fine.theta.ravel()[index]
    assert moved > 0.5
    assert abs(found.mean() - 0.3) < 0.03
    assert abs(found.std() - 1.0) < 0.03


def test_smoothing_agrees_with_its_definition():
    """k-hat of weights that are themselves Pareto: theirs, to the error of a fit to the tail."""
    for k in (0.2, 0.9):
        tail = stats.genpareto.rvs(k, size=20_000, random_state=1)
        weights, k_hat = pareto_smoothed(np.log(tail))
        assert abs(k_hat - k) < 0.15
        assert np.isclose(np.exp(weights).sum(), 1)


# --- ks.posterior(exact=...), with a sampler that draws from a grid -------------------------------


def grid_sampler(like, prior, found, group, seed, settings, starts=None):
    """Independent draws from the posterior on a fine grid: what NUTS gives, without compiling."""
    rng = np.random.default_rng(seed)
    low, high = like.space.box()
    grid = like.space.grid(200)
    logs = like.surface_in_blocks(grid)[0]
    mass = np.exp(logs - logs.max())
    chosen = rng.choice(len(grid), size=(len(group), settings.draws), p=mass / mass.sum())
    jitter = (rng.random((*chosen.shape, like.space.d)) - 0.5) * (high - low) / 199
    theta = np.clip(grid[chosen] + jitter, low, high)
    zeros = np.zeros(chosen.shape)
    return theta, {"diverging": zeros.astype(bool), "tree_depth": zeros.astype(int), "lp": zeros}


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.setattr(posterior, "sample", grid_sampler)
    return FastToy().given(toy_groups(1, seed=3, theta=[0.1, 0.0])[2][0])


def moments(result):
    values = np.stack([np.asarray(result.posterior[n]).ravel() for n in ("mean", "log sd")])
    return values.mean(axis=1), values.std(axis=1)


def test_a_mild_surrogate_is_reweighted(exact):
    truth, _ = moments(ks.posterior(exact, draws=4000))
    surrogate = bent(exact, 0.7)
    biased, sd = moments(ks.posterior(surrogate, draws=4000))
    result = ks.posterior(surrogate, draws=2000, exact=exact, exact_draws=4000)
    found, _ = moments(result)
    assert np.abs(biased - truth).max() > 0.1 * sd.max()
    assert np.abs(found - truth).max() < 0.06 * sd.max()
    attrs = result.posterior.attrs
    assert attrs["pareto_k"] < LARGEST_K
    assert attrs["exact_evaluations"] == 4000
    assert "exact by importance weights: k-hat" in attrs["basis"]
    assert result.posterior["mean"].shape == (4, 1000)
    values = np.asarray(result.log_likelihood["group"])
    theta = np.stack([np.asarray(result.posterior[n]) for n in ("mean", "log sd")], axis=-1)
    np.testing.assert_allclose(values[2, :5], exact(theta[2, :5]))


def test_a_poor_surrogate_is_refined_and_that_is_said(exact):
    truth, sd = moments(ks.posterior(exact, draws=4000))

    def wrong(theta):  # pulls far to one side
        return 25 * theta[:, 0] + 10 * theta[:, 1]

    surrogate = replace(
        exact,
        kind="surrogate",
        pairs=lambda t, g: exact.pairs(t, g) + wrong(t),
        pairs_gradient=lambda t, g: (
            exact.pairs(t, g) + wrong(t),
            exact.pairs_gradient(t, g)[1] + np.array([25.0, 10.0]),
        ),
        surface=lambda t: exact.surface(t) + wrong(t),
    )
    with pytest.warns(KeepscoreWarning, match=r"k-hat .* refined: error"):
        result = ks.posterior(surrogate, draws=1000, exact=exact, exact_draws=1000)
    attrs = result.posterior.attrs
    assert attrs["first_pareto_k"] > LARGEST_K >= attrs["pareto_k"]
    assert "refined" in attrs["basis"]
    found, _ = moments(result)
    assert np.abs(found - truth).max() < 0.2 * sd.max()


def test_where_nothing_helps_it_is_said(exact):
    """An exact likelihood that no smooth correction explains: delayed acceptance, loudly."""

    def rough(theta):
        return 6 * np.sign(np.sin(60 * theta[:, 0])) * np.sign(np.cos(70 * theta[:, 1]))

    other = replace(
        exact,
        pairs=lambda t, g: exact.pairs(t, g) + 8 * rough(t) * np.abs(t[:, 0] - 0.1) * 20,
        pairs_gradient=lambda t, g: (
            exact.pairs(t, g) + 8 * rough(t) * np.abs(t[:, 0] - 0.1) * 20,
            exact.pairs_gradient(t, g)[1],
        ),
    )
    surrogate = replace(exact, kind="surrogate")
    with (
        pytest.warns(KeepscoreWarning, match="DO NOT TRUST"),
        pytest.warns(KeepscoreWarning, match=r"proposals of a chain.*same model"),
    ):
        result = ks.posterior(surrogate, draws=500, exact=other, exact_draws=400)
    assert result.posterior.attrs["pareto_k"] > LARGEST_K
    assert "delayed acceptance" in result.posterior.attrs["basis"]


def test_bad_input(exact, tmp_path):
    surrogate = bent(exact)
    with pytest.raises(MismatchError):
        ks.posterior(surrogate, exact=FastToy().given(toy_groups(2, seed=3)[2]))
    broken = replace(exact, pairs_gradient=lambda t, g: (np.full(len(t), np.nan), 0 * t))
    with pytest.raises(NonFiniteError, match="posterior draw") as caught:
        ks.posterior(surrogate, exact=broken, exact_draws=40)
    assert len(caught.value.computed.value) == 40
    with pytest.warns(KeepscoreWarning, match="effective sample size"):
        result = ks.posterior(surrogate, exact=exact, exact_draws=100, path=tmp_path)
    assert result.posterior.attrs["smallest_ess"] <= 100
    assert list(tmp_path.glob("part-*.npz"))


def test_chains_begin_at_every_maximum_that_counts(monkeypatch):
    """Two equal peaks: chains take turns, R-hat sees it, and the warning tells why."""
    peaks = np.array([[-0.6, -0.5], [0.6, 0.5]])

    def logs(theta, high):
        return np.array([0.0, high]) - 0.5 * ((theta[:, None] - peaks) ** 2).sum(2) / 0.05**2

    def made(high):
        def gradient(theta, group):
            each = logs(theta, high)
            weight = np.exp(each - np.logaddexp.reduce(each, axis=1)[:, None])
            return -(weight[..., None] * (theta[:, None] - peaks)).sum(1) / 0.05**2

        return from_function(lambda t, g: np.logaddexp.reduce(logs(t, high), axis=1), gradient)

    begun = []

    def stuck(like, prior, found, group, seed, settings, starts=None):
        begun.append(found.theta[group] if starts is None else starts.theta)
        rng = np.random.default_rng(0)
        theta = begun[-1][:, None] + 0.05 * rng.standard_normal((4, settings.draws, 2))
        zeros = np.zeros(theta.shape[:2])
        return theta, {"diverging": zeros.astype(bool), "tree_depth": zeros.astype(int)}

    monkeypatch.setattr(posterior, "sample", stuck)
    with pytest.warns(KeepscoreWarning, match=r"R-hat.*2 separate maxima"):
        result = ks.posterior(made(0.5), method="nuts")
    np.testing.assert_allclose(begun[0], peaks[[1, 0, 1, 0]], atol=1e-3)
    assert result.posterior.attrs["maxima"] == 2
    # A second peak that holds no posterior gets no chain.
    result = ks.posterior(made(30.0))
    np.testing.assert_allclose(begun[1], peaks[[1] * 4], atol=1e-3)
    assert result.posterior.attrs["maxima"] == 1
