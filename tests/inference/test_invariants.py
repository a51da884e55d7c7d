"""Results check themselves: a broken law is a typed error that names the function, not a number.

Each law has a negative control: the same result with one number broken, as a fault of ours would
break it. Sound results pass everywhere else in these tests.
"""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy, from_function, toy_groups

import keepscore as ks
from keepscore.errors import (
    ConvergenceError,
    DomainError,
    InvariantError,
    KeepscoreWarning,
    SimulationError,
)
from keepscore.evaluation.estimate import Estimate
from keepscore.inference import confidence, invariants, profile, profile_curve
from keepscore.inference.coverage import LocalCoverage
from keepscore.inference.sbc import SBC
from keepscore.space import Space

# Modules that bear the name of their function.
maximise, posterior = (
    importlib.import_module(f"keepscore.inference.{name}") for name in ("maximise", "posterior")
)


@pytest.fixture(scope="module")
def toy():
    return FastToy()


@pytest.fixture(scope="module")
def many():
    return FastToy().given(toy_groups(4, seed=1, theta=[0.1, 0.0])[2])


@pytest.fixture(scope="module")
def one():
    return FastToy().given(toy_groups(1, seed=1, theta=[0.1, 0.0])[2][0])


def broken(result, name, index=None, **changes):
    """The same result made again with one number changed; index: where, in an array."""
    for key, value in changes.items():
        old = getattr(result, key)
        if index is not None:
            new = np.array(old)
            new[index] = value
            changes[key] = new
    with pytest.raises(InvariantError, match=f"^{name}.*fault of keepscore, not of your data.*rep"):
        replace(result, **changes)


def test_the_error_is_typed_and_names_what_it_saw():
    with pytest.raises(
        InvariantError, match=r"mle: a law in 1 of 2 places, the first \(1,\); got 7"
    ):
        invariants.require(np.array([True, False]), "mle", "a law", [3, 7])
    assert issubclass(InvariantError, ks.KeepscoreError)
    assert issubclass(InvariantError, RuntimeError)
    invariants.require(True, "mle", "a law")


@pytest.mark.parametrize("grouped", [False, True])
def test_estimates(many, one, grouped):
    found, at = (ks.mle(many), (2, 0)) if grouped else (ks.mle(one), (0,))
    broken(found, "mle", at, estimate=1.5)  # outside the box
    broken(found, "mle", at, estimate=np.nan)
    broken(found, "mle", estimate=found.estimate.astype(np.float32))
    broken(found, "mle", at, standard_errors=np.nan)  # and no reason for it
    broken(found, "mle", at, standard_errors=-1.0)
    broken(found, "mle", at, raw_standard_errors=np.inf)
    broken(found, "mle", at[:-1] or None, log_likelihood=-np.inf)
    broken(found, "mle", at, on_boundary=True)  # a number where the reason says there is none


@pytest.mark.parametrize("grouped", [False, True])
def test_tests(many, one, grouped):
    found, at = (ks.lrt(many, [0, 0]), 1) if grouped else (ks.lrt(one, [0, 0]), None)
    for bad in (-0.5, np.nan):
        broken(found, "lrt", at, statistic=bad)
    for bad in (-0.1, 1.5, np.nan):
        broken(found, "lrt", at, p_value=bad)
    with pytest.raises(InvariantError, match="lrt: a calibrated p-value"):
        replace(found, calibrated_p_value=2.0)


def test_a_negative_statistic_is_not_clipped_away(many, monkeypatch):
    """The maximum of a broken search lies below the null: no statistic of zero comes out."""
    found = ks.mle(many).maximum
    broken_search = replace(many)
    broken_search.remember(replace(found, value=found.value - 1.0))
    monkeypatch.setattr(maximise, "climb_again", lambda like, found, *_: found)
    with pytest.raises(InvariantError, match="lrt: a likelihood-ratio statistic"):
        ks.lrt(broken_search, found.theta)


def test_a_broken_calibration_gives_no_critical_value_and_no_set(toy, many):
    made = ks.calibrate(toy, toy, group_size=10, n=200)
    theta = np.zeros((2, 2))
    assert (made.critical(theta, 0.9) > 0).all()
    lost = replace(made.fit, coefficients=np.full_like(made.fit.coefficients, np.nan))
    with pytest.raises(InvariantError, match=r"Calibration\.critical: a critical value"):
        replace(made, fit=lost).critical(theta, 0.9)
    with pytest.raises(InvariantError, match=r"Calibration\.critical"):
        ks.confidence_set(many, 0.9, calibration=replace(made, fit=lost))


def test_shares_of_a_calibration(toy, monkeypatch):
    from keepscore.inference import calibration

    real = calibration._check
    monkeypatch.setattr(calibration, "_check", lambda *a: {**real(*a), "wilks": 1.2})
    with pytest.raises(InvariantError, match=r"calibrate: coverage \(wilks\)"):
        ks.calibrate(toy, toy, group_size=10, n=200)


@pytest.mark.parametrize("grouped", [False, True])
def test_intervals(many, one, grouped, monkeypatch):
    like = many if grouped else one
    found = ks.confidence_set(like).intervals
    lead = (1,) if grouped else ()
    broken(found, r"confidence_set\.intervals", (*lead, 0, 1), working=-5.0)  # upper below lower
    broken(found, r"confidence_set\.intervals", (*lead, 1, 0), raw=np.nan)
    broken(found, r"confidence_set\.intervals", working=found.working.astype(np.float32))
    real = profile.profile_intervals

    def shifted(*arguments):  # in order, but not around the estimate
        ends = real(*arguments)
        return replace(ends, value=ends.value + 3 * np.ptp(ends.value, axis=-1, keepdims=True))

    monkeypatch.setattr(confidence, "profile_intervals", shifted)
    with pytest.raises(InvariantError, match="must hold its estimate"):
        _ = ks.confidence_set(like).intervals


def test_a_set_holds_its_maximum_and_has_a_volume(many, monkeypatch):
    monkeypatch.setattr(confidence.ConfidenceSet, "critical", lambda self, t: np.full(len(t), -1.0))
    with pytest.raises(InvariantError, match="confidence_set: a set must hold its maximum"):
        ks.confidence_set(many)
    monkeypatch.undo()
    chosen = ks.confidence_set(many)
    field = chosen._field
    moved = replace(field, at=lambda theta, group: field.at(theta, group) + 50.0)
    chosen.__dict__["_field"] = moved
    with pytest.raises(InvariantError, match="a set must hold its maximum"):
        _ = chosen.volume
    chosen.__dict__["_field"] = field
    real = confidence.measure
    monkeypatch.setattr(
        confidence, "measure", lambda *a: replace(real(*a), volume=-real(*a).volume)
    )
    with pytest.raises(InvariantError, match=r"confidence_set\.volume: a volume"):
        _ = chosen.volume


def test_coverage_and_ranks(toy):
    found = ks.local_coverage(toy, toy, theta=[[0, 0]], groups=4)
    broken(found, "local_coverage", (0, 1), statistics=-1.0)
    for hits in (np.full((1, 4), 0.5), np.ones((1, 3), bool), np.ones((0, 4), bool)):
        with pytest.raises(InvariantError, match="local_coverage: coverage"):
            LocalCoverage(found.space, 0.95, found.theta, found.statistics, {"wilks": hits})
    assert "1 points, 4 groups each" in str(found)
    ranks = SBC(toy.space, np.array([[0, 9]]), 9, np.array([0.5, 1.0]))
    broken(ranks, "sbc", (0, 0), ranks=10)
    broken(ranks, "sbc", (0,), p_values=1.1)


def test_the_tests_of_a_surrogate(toy):
    test = ks.etest(toy, toy, (2, 2), groups=3, size=4)
    for name in ("statistic", "volume"):
        broken(test.surrogate, "etest", (0, 0), **{name: -1.0})
    with pytest.raises(InvariantError, match="etest: coverage"):
        replace(test.surrogate, covered=test.surrogate.covered.astype(float))
    outside = test.exact.estimate.copy()
    outside[0, 0, 0] = 2.0
    broken(test, "etest", exact=replace(test.exact, estimate=outside))
    broken(test, "etest", coverage=Estimate(1.2, 0.1))
    broken(test, "etest", volume=Estimate(0.2, -0.1))
    broken(test, "etest", null_distance=-0.2)


def test_the_loss_of_a_surrogate():
    one = Estimate(0.5, 0.1)
    from keepscore.evaluation import LTest

    sound = LTest(("a",), 10, 5, 2, one, (one,), (1.0,), one, one, one, Estimate(-0.1, 0.1), 0.0)
    broken(sound, "ltest", bce=Estimate(-0.5, 0.1))
    broken(sound, "ltest", score_mse=(Estimate(-1.0, 0.1),))
    broken(sound, "ltest", rmse_far=Estimate(0.5, -0.1))


def test_a_posterior_stays_in_its_box(one, monkeypatch):
    monkeypatch.setattr(posterior, "sample", lambda *a: (np.full((4, 9, 2), np.nan), {}))
    with pytest.raises(InvariantError, match="posterior: an estimate must lie inside"):
        ks.posterior(one, draws=9, warmup=20)


def test_an_equivalence_is_positive_and_ordered():
    found = ks.equivalence({100: [1.0, 1.1], 1000: [0.5, 0.52]}, 100, [0.7, 0.71])
    broken(found, "equivalence", factor=-1.0)
    broken(found, "equivalence", interval=(3.0, 2.0))


# A search that missed -----------------------------------------------------------------------


def two_peaks():
    """A broad peak, and a higher needle beside it that a coarse grid does not see."""
    needle = np.array([0.53, -0.37])

    def parts(theta):
        broad = -0.5 * ((theta + 0.5) ** 2).sum(1) / 0.3**2
        return broad, 6 - 0.5 * ((theta - needle) ** 2).sum(1) / 0.02**2

    def gradient(theta, group):
        broad, tip = parts(theta)
        share = np.exp(tip - np.logaddexp(broad, tip))[:, None]
        return -(1 - share) * (theta + 0.5) / 0.3**2 - share * (theta - needle) / 0.02**2

    return from_function(lambda t, g: np.logaddexp(*parts(t)), gradient), needle


def test_a_profile_above_its_maximum_moves_the_maximum():
    like, needle = two_peaks()
    full = ks.mle(like, grid=101)
    np.testing.assert_allclose(full.estimate, needle, atol=1e-3)
    begin = np.array([[-0.5, -0.5]])
    value = like.pairs(begin, np.array([0]))
    low = maximise.climb_again(like, full.maximum, np.array([0]), begin, value)
    assert low.value[0] < full.log_likelihood - 5  # the lower peak, converged
    misled = replace(like)
    misled.remember(low)
    # Along either parameter the profile of the lower peak passes the needle.
    values = np.array([needle[0], -0.5])
    np.testing.assert_allclose(
        profile_curve(misled, "p0", values), profile_curve(like, "p0", values), atol=1e-3
    )
    np.testing.assert_allclose(misled.known_maximum().theta[0], needle, atol=1e-3)
    np.testing.assert_allclose(ks.mle(misled).estimate, needle, atol=1e-3)


def test_a_missed_maximum_is_said_and_the_interval_moves(monkeypatch):
    """The search gives a point that is no maximum: profiling meets better ones."""
    like = from_function(lambda t, g: -50 * (t**2).sum(1), lambda t, g: -100 * t)
    truth = ks.mle(like).maximum
    theta = np.array([[0.3, 0.3]])
    wrong = replace(truth, theta=theta, value=like.pairs(theta, np.array([0])))
    misled = replace(like)
    misled.remember(wrong)
    chosen = ks.confidence_set(misled)
    with pytest.warns(KeepscoreWarning, match="higher likelihood than the search had, in 1 of 1"):
        ends = chosen.intervals.working
    np.testing.assert_allclose(ends, ks.confidence_set(like).intervals.working, atol=1e-5)


# Standard errors ----------------------------------------------------------------------------


def test_a_search_that_did_not_converge_gives_no_standard_errors(many, one, monkeypatch):
    def unconverged(which):
        real = maximise.maximise

        def search(*arguments):
            found = real(*arguments)
            converged = found.converged.copy()
            converged[which] = False
            return replace(found, converged=converged)

        return search

    sound = ks.mle(many)
    assert (sound.reasons == "").all()
    monkeypatch.setattr(maximise, "maximise", unconverged([1, 3]))
    with pytest.warns(KeepscoreWarning, match=r"2 of 4 .*standard errors are NaN"):
        found = ks.mle(replace(many))
    lost = np.array([False, True, False, True])
    for errors in (found.standard_errors, found.raw_standard_errors):
        assert (np.isnan(errors).all(axis=1) == lost).all()
        assert np.isfinite(errors[~lost]).all()
    assert (found.reasons == np.where(lost[:, None], "the search did not converge", "")).all()
    assert "without a standard error in 2" in str(found)
    assert "not converged: 2" in str(found)
    monkeypatch.undo()
    monkeypatch.setattr(maximise, "maximise", unconverged([0]))
    with pytest.warns(KeepscoreWarning, match="1 of 1"):
        text = str(ks.mle(replace(one)))
    assert text.count("no s.e.: the search did not converge") == 2
    assert "nan" in text


def test_every_missing_standard_error_has_its_reason(toy):
    x = toy_groups(1, seed=4, theta=[0.0, 0.0])[2]
    edge = ks.mle(toy.given(x[0] + 5.0))
    assert edge.reasons.tolist() == ["on the boundary"] * 2
    assert "on the boundary" in str(edge)
    saddle = from_function(lambda t, g: -(t[:, 0] ** 2), lambda t, g: -2 * t * [1, 0])
    flat = ks.mle(saddle)  # nothing known about p1
    assert not flat.regular
    assert set(flat.reasons) <= {"the information is not positive definite", "on the boundary"}
    assert "no s.e.: the information is not positive definite" in str(flat)


def test_the_space_may_hold_integers_and_an_interval_still_does_not():
    """The bracket moves in float64 even if a box came as integers, as it once did."""

    class Whole(Space):
        def box(self, region="base"):
            return tuple(np.array(b, dtype=np.int64) for b in super().box(region))

    like = from_function(lambda t, g: -8 * ((t - 0.25) ** 2).sum(1), lambda t, g: -16 * (t - 0.25))
    whole = replace(like, space=Whole(like.space.parameters))
    found = ks.mle(like).maximum
    ends = profile.profile_intervals(whole, found, [0, 1], 3.84).value
    np.testing.assert_allclose(ends, profile.profile_intervals(like, found, [0, 1], 3.84).value)


# Likelihoods that are broken themselves are no fault of ours, and are told apart ------------------


def without_gradient(groups=1):
    """Finite values, and a gradient of NaN, as a wrong score gives it."""
    return from_function(
        lambda t, g: -50 * ((t - 0.07) ** 2).sum(1),
        lambda t, g: np.full_like(t, np.nan),
        groups=groups,
    )


@pytest.mark.parametrize("groups", [1, 3])
def test_a_likelihood_without_a_gradient_is_not_blamed_on_keepscore(groups):
    like = without_gradient(groups)
    with pytest.warns(KeepscoreWarning, match="did not converge"):
        found = ks.mle(like)
    assert not np.any(found.converged)
    assert np.isnan(found.standard_errors).all()
    assert np.abs(found.estimate - 0.07).max() < 0.2  # the best point of the grid
    with pytest.warns(KeepscoreWarning, match="did not converge"):
        test = ks.lrt(like, [0.07, 0.07])  # better than the grid's best: the search is told
    assert np.all(test.statistic == 0)
    with pytest.warns(KeepscoreWarning, match="did not converge"):
        chosen = ks.confidence_set(like)
    with pytest.raises(ConvergenceError, match="No interval for p0 of group 0"):
        _ = chosen.intervals


def test_an_interval_may_end_at_its_estimate_where_data_are_impossible():
    """x_max of a uniform law: the likelihood jumps to zero below the estimate."""

    def value(theta, group):
        return np.where(theta[:, 0] < 0.2, -np.inf, -10 * theta[:, 0])

    like = from_function(value, lambda t, g: np.full_like(t, -10.0), d=1)
    with pytest.warns(KeepscoreWarning):
        found = ks.mle(like, grid=41)
    with pytest.warns(KeepscoreWarning):
        chosen = ks.confidence_set(like)
    low, high = chosen.intervals.working[0]
    assert 0.199 < low <= found.estimate[0] < high
    assert high == pytest.approx(found.estimate[0] + 3.8415 / 20, abs=1e-3)


def test_impossible_simulations_are_refused(toy):
    class Wrong(FastToy):
        def given(self, xs):
            like = super().given(xs)
            cut = lambda t, v: np.where(t[:, 0] > 0.9, -np.inf, v)  # noqa: E731
            return replace(
                like,
                pairs=lambda t, g: cut(t, like.pairs(t, g)),
                surface=lambda t: cut(t, like.surface(t)),
            )

    with pytest.raises(SimulationError, match="simulator and likelihood do not agree"):
        ks.calibrate(Wrong(), toy, n=200)
    with pytest.raises(DomainError, match="finite on the whole box"):
        ks.sbc(Wrong(), toy, n=50, draws=9)


def test_bounds_of_a_logarithm_have_an_exponential():
    with pytest.raises(DomainError, match="are logarithms"):
        ks.Parameter("rate", 1, 1000, "log")
    ks.Parameter("rate", 1, 1000, "identity")


@pytest.mark.parametrize("region", [[], {}, np.zeros((2, 2)), None, "bas", 3])
def test_a_region_that_is_none_is_said(region):
    like = FastToy().given(toy_groups(1)[2][0])
    for ask in (ks.mle, ks.confidence_set):
        with pytest.raises(ks.errors.UnknownNameError, match="region"):
            ask(like, region=region)
