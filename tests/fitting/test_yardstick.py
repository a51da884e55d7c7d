"""The yardstick against what it must say of a likelihood that is known to be right or wrong."""

import importlib

import numpy as np
import pytest

import keepscore as ks
from keepscore.errors import InvariantError
from keepscore.evaluation.estimate import Estimate
from keepscore.fitting.yardstick import (
    Extent,
    Measured,
    extent_within,
    inferred,
    measured,
    share,
    yardstick,
)

MODULE = importlib.import_module("keepscore.fitting.yardstick")  # the name is a function's too
SPACE = ks.Space([ks.Parameter("mean", -2, 2, "identity")])


def simulate(theta, rng):
    return theta + rng.standard_normal((len(theta), 2))


def log_prob(theta, x):
    return -0.5 * ((x - theta) ** 2).sum(axis=1)


def score(theta, x):
    return (x - theta).sum(axis=1, keepdims=True)


def normal(factor=1.0, likelihood=True):
    """x is two normal draws around the mean; `factor` multiplies the log-likelihood."""
    if not likelihood:
        return ks.models.from_functions(SPACE, (2,), simulate=simulate)
    return ks.models.from_functions(
        SPACE,
        (2,),
        simulate=simulate,
        log_prob=lambda theta, x: factor * log_prob(theta, x),
        score=lambda theta, x: factor * score(theta, x),
    )


@pytest.fixture(scope="module")
def by():
    return yardstick(normal(), 5, Extent(100, True, 0.0))


def test_the_exact_likelihood_is_perfect(by):
    found = measured(normal(), by)
    assert found.lrt_error.value == 0
    assert found.coverage == found.coverage_exact
    assert found.inefficiency == (1.0,)
    assert found.informed[0] > 0.8


def test_a_likelihood_that_is_too_sharp_is_measured_as_such(by):
    """Lambda is four times too large: E (3 Lambda)^2 = 27, and sets of half the width."""
    found = measured(normal(4.0), by)
    statistic = by.exact.statistic
    assert found.lrt_error.value == pytest.approx((9 * statistic**2).mean(), rel=1e-4)
    assert found.coverage.value < 0.8
    assert found.inefficiency[0] == pytest.approx(1.0, abs=1e-3)


def test_statistics_are_those_of_the_formula(by):
    """Lambda(theta) = 2 n (mean of x - theta)^2 with n = 10 numbers, inside the box."""
    found = inferred(normal(), by.xs, by.theta)
    centre = by.xs.mean(axis=(1, 2))
    inside = np.abs(centre) < 2
    expected = 10 * (centre - by.theta[:, 0]) ** 2
    np.testing.assert_allclose(found.statistic[inside], expected[inside], atol=1e-5)


def test_without_a_likelihood_nothing_is_claimed_of_it():
    extent = extent_within(normal(likelihood=False), 5, 2.0)
    assert not extent.exact
    by = yardstick(normal(likelihood=False), 5, extent)
    assert by.exact is None
    found = measured(normal(), by)
    assert found.lrt_error is None
    assert found.inefficiency is None
    assert 0.9 < found.coverage.value <= 1
    assert "coverage" in found.line()


def test_a_likelihood_that_costs_too_much_is_not_asked():
    assert not extent_within(normal(), 5, 1e-6).exact
    assert extent_within(normal(), 5, 100.0).exact


@pytest.mark.parametrize("each", [False, True])
def test_what_a_group_costs_is_timed_on_many_where_that_is_cheap(monkeypatch, each):
    """Searches over many groups go together: .02 s for 2 groups is not .01 s for each of 400."""
    asked = []

    def slow(source, xs, theta):
        asked.append(len(xs))
        now[0] += 0.02 * (len(xs) if each else 1)

    now = [0.0]
    monkeypatch.setattr(MODULE, "inferred", slow)
    monkeypatch.setattr(MODULE.time, "perf_counter", lambda: now[0])
    found = extent_within(normal(), 5, 2.0)
    assert asked == ([2, 2] if each else [2, 2, 16, 16])  # .02 s each: 32 more would take .64 s
    assert found.groups == (100 if each else 400)


def test_results_are_kept(tmp_path, monkeypatch):
    path, extent = tmp_path / "yardstick.npz", Extent(30, True, 0.0)
    first = yardstick(normal(), 5, extent, path=path)
    monkeypatch.setattr(MODULE, "inferred", None)  # is not asked again
    again = yardstick(normal(), 5, extent, path=path)
    np.testing.assert_array_equal(first.exact.statistic, again.exact.statistic)


def test_numbers_that_cannot_be_are_not_printed():
    good = {"groups": 9, "size": 5, "lrt_error": None, "coverage": Estimate(0.9, 0.1)}
    good |= {"coverage_exact": None, "inefficiency": None, "informed": (0.5,)}
    Measured(**good)
    for bad in (
        {"coverage": Estimate(1.2, 0.1)},
        {"lrt_error": Estimate(-1.0, 0.1)},
        {"inefficiency": (float("nan"),)},
        {"informed": (1.5,)},
    ):
        with pytest.raises(InvariantError):
            Measured(**{**good, **bad})


@pytest.mark.parametrize("likelihood", [True, False])
def test_plain_data_and_back(likelihood):
    by = yardstick(normal(likelihood=likelihood), 5, Extent(30, likelihood, 0.0))
    found = measured(normal(), by)
    assert Measured.from_dict(found.to_dict()) == found


def test_the_error_of_a_share_is_never_zero():
    assert share(np.ones(100, bool)).se > 0
    assert share(np.arange(100) < 95).value == 0.95
