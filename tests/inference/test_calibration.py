"""Calibrated sets cover whatever the likelihood: quantiles of the null, correction, storage."""

import copy
import json
import warnings
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from likelihoods import FastToy, Sharpened, toy_groups
from scipy import stats

import keepscore as ks
from keepscore.errors import DomainError, DtypeError, FormatError, SimulationError, UnknownNameError
from keepscore.inference import Calibration
from keepscore.inference.null_distribution import NullFit, monomials

FALSE_ALARM = 1e-6


class Lopsided(Sharpened):
    """Wrong in a way that depends on theta: too sharp for small sd, too flat for large."""

    def given(self, xs):
        like = self.model.given(xs)

        # l(theta) + a cubic term: shifts the maximum and distorts the null differently everywhere.
        def tilt(theta):
            return 12 * theta[:, 0] + 8 * theta[:, 1]

        return replace(
            like,
            pairs=lambda t, g: 2 * like.pairs(t, g) + tilt(t),
            pairs_gradient=lambda t, g: (
                2 * like.pairs(t, g) + tilt(t),
                2 * like.pairs_gradient(t, g)[1] + np.array([12.0, 8.0]),
            ),
            surface=lambda t: 2 * like.surface(t) + tilt(t),
        )


@pytest.fixture(scope="module")
def sharp():
    """Calibration of a likelihood twice too sharp, for groups of 5."""
    return ks.calibrate(Sharpened(FastToy(), 2.0), FastToy(), group_size=5, n=3000, seed=3)


def fresh_coverage(source, calibration, g=3000, level=0.95, seed=99):
    _, theta, x = toy_groups(g, n=calibration.group_size, seed=seed, region="base")
    like = source.given(x)
    wilks = ks.confidence_set(like, level).covers(theta).mean()
    calibrated = ks.confidence_set(like, level, calibration=calibration).covers(theta).mean()
    return wilks, calibrated


def allowed(calibration, g=3000, level=0.95):
    """Standard error of coverage: of the fresh groups, and of the held-out ones that set it."""
    return np.sqrt(level * (1 - level) * (1 / g + 1 / len(calibration.held_out)))


@pytest.mark.parametrize("kind", [Sharpened, Lopsided])
def test_wilks_under_covers_and_calibrated_sets_cover(kind, sharp):
    source = kind(FastToy(), 2.0)
    calibration = (
        sharp
        if kind is Sharpened
        else ks.calibrate(source, FastToy(), group_size=5, n=3000, intervals=False)
    )
    wilks, calibrated = fresh_coverage(source, calibration)
    se = allowed(calibration)
    assert wilks < 0.95 - 5 * se
    assert abs(calibrated - 0.95) < 2 * se


def test_every_level_and_p_values_agree(sharp):
    source = Sharpened(FastToy(), 2.0)
    _, theta, x = toy_groups(2000, n=5, seed=98, region="base")
    like = source.given(x)
    result = ks.lrt(like, theta, calibration=sharp)
    for level in (0.5, 0.8, 0.99):
        covered = ks.confidence_set(like, level, calibration=sharp).covers(theta)
        np.testing.assert_array_equal(covered, result.calibrated_p_value > 1 - level)
        assert abs(covered.mean() - level) < 4 * allowed(sharp, 2000, level)
    assert stats.kstest(result.calibrated_p_value, "uniform").pvalue > FALSE_ALARM
    assert stats.kstest(result.p_value, "uniform").pvalue < FALSE_ALARM


def test_the_null_of_an_exact_likelihood_is_near_chi_square():
    # Groups of 50: Lambda is close to chi-square away from the edges of the box.
    calibration = ks.calibrate(FastToy(), FastToy(), group_size=50, n=3000, seed=5, intervals=False)
    inner = FastToy().space.grid(5, "test")
    for level in (0.5, 0.9, 0.95):
        ratio = calibration.critical(inner, level) / stats.chi2.ppf(level, 2)
        assert np.abs(ratio - 1).max() < 0.25, level
    assert "held-out" in str(calibration)


def test_calibrated_intervals_are_profiles_that_cover(sharp):
    """2,000 groups, twice too sharp a likelihood. Bounds at 4 standard errors (false alarms below
    1e-4; a coverage off by .03 is seen); Wilks' intervals are the control that must fail."""
    source = Sharpened(FastToy(), 2.0)
    _, theta, x = toy_groups(2000, n=5, seed=97, region="test")
    like = source.given(x)
    se = allowed(sharp, 2000)
    calibrated = ks.confidence_set(like, calibration=sharp).intervals
    wilks = ks.confidence_set(like).intervals
    assert (calibrated.kind, calibrated.method) == ("profile", "calibrated")

    def coverage(found):
        inside = (found.working[..., 0] <= theta) & (theta <= found.working[..., 1])
        return inside.mean(axis=0)

    assert (np.abs(coverage(calibrated) - 0.95) < 4 * se).all()
    assert (coverage(wilks) < 0.95 - 4 * se).all()
    # They agree with the calibrated test of that parameter alone.
    for k, name in enumerate(("mean", "sd")):
        test = ks.lrt(like, theta[:, [k]], parameters=[name], calibration=sharp)
        inside = (calibrated.working[:, k, 0] <= theta[:, k]) & (
            theta[:, k] <= calibrated.working[:, k, 1]
        )
        assert (inside == (test.calibrated_p_value > 0.05)).mean() > 0.998
    # A calibration without profiles projects the joint set, and says so.
    joint = ks.confidence_set(like[:5], calibration=replace(sharp, profiles={}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        projected = joint.intervals
    assert projected.kind == "projection"
    assert (np.ptp(projected.working, axis=2) > np.ptp(calibrated.working[:5], axis=2)).all()


def test_damaged_profiles_are_refused(sharp):
    content = sharp.to_dict()
    mean = content["profiles"]["mean"]
    for wrong in (
        {"mean": {**mean, "profiles": {"sd": mean}}},
        {"sd": mean},
        {"mean": {**mean, "group_size": 7}},
        {"mean": 3},
        [mean],
    ):
        with pytest.raises(FormatError):
            Calibration.from_dict({**content, "profiles": wrong})
    old = {key: value for key, value in content.items() if key != "profiles"}
    assert Calibration.from_dict(old).profiles == {}


def test_stored_as_plain_data(sharp):
    text = json.dumps(sharp.to_dict(), allow_nan=False)
    back = Calibration.from_dict(json.loads(text))
    theta = sharp.space.grid(7)
    np.testing.assert_array_equal(back.critical(theta, 0.9), sharp.critical(theta, 0.9))
    statistic = np.linspace(0, 60, len(theta))
    np.testing.assert_array_equal(back.p_value(statistic, theta), sharp.p_value(statistic, theta))
    assert back.check == sharp.check
    assert back.profiles.keys() == sharp.profiles.keys() == {"mean", "sd"}
    np.testing.assert_array_equal(
        back.profiles["sd"].critical(theta, 0.9), sharp.profiles["sd"].critical(theta, 0.9)
    )


def test_one_saved_with_the_likelihood_is_used_where_it_applies(sharp):
    source = Sharpened(FastToy(), 2.0)
    _, theta, x = toy_groups(4, n=5, seed=7, region="test")
    like = replace(source.given(x), calibration=sharp.to_dict())
    assert ks.confidence_set(like, method="calibrated").calibration.group_size == 5
    assert ks.lrt(like, theta).calibrated_p_value is not None
    # Its profiles serve tests of one parameter; without them there is nothing to use.
    assert ks.lrt(like, theta[:, :1], parameters=["mean"]).calibrated_p_value is not None
    bare = replace(like, calibration=replace(sharp, profiles={}).to_dict())
    assert ks.lrt(bare, theta[:, :1], parameters=["mean"]).calibrated_p_value is None
    _, _, other = toy_groups(4, n=6, seed=7)
    wrong_size = replace(source.given(other), calibration=sharp.to_dict())
    assert ks.lrt(wrong_size, theta).calibrated_p_value is None
    with pytest.raises(DomainError, match="groups of 5, not 6"):
        ks.confidence_set(wrong_size, method="calibrated")
    with pytest.raises(DomainError, match="the base box, not the train box"):
        ks.lrt(like, theta, calibration=sharp, region="train")


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "something"},
        {"version": 99},
        {"levels": [0.5]},
        {"levels": "lots"},
        {"coefficients": [[float("nan")]]},
        {"held_out": []},
        {"held_out": [0.5, 0.1]},
        {"held_out": [-1.0, 0.5]},
        {"parameters": ["who"]},
        {"region": "nowhere"},
        {"space": {}},
        {"group_size": "x"},
    ],
)
def test_damaged_calibrations_are_refused(sharp, damage):
    content = copy.deepcopy(sharp.to_dict()) | damage
    with pytest.raises(FormatError):
        Calibration.from_dict(content)


def test_quantiles_rise_and_survival_inverts():
    space = FastToy().space
    powers = monomials(2, 1)
    # Polynomials that cross inside the box.
    coefficients = np.array([[0.0, 2.0, 0.0], [0.5, -2.0, 0.0], [1.0, 0.0, 0.5]])
    fit = NullFit(space, "base", np.array([0.5, 0.9, 0.95]), powers, coefficients)
    theta = space.uniform(200, np.random.default_rng(0))
    assert (np.diff(fit.quantiles(theta), axis=1) > 0).all()
    for survival in (0.9, 0.3, 0.07, 1e-4):
        statistic = fit.inverse(survival, theta)
        np.testing.assert_allclose(fit.survival(statistic, theta), survival, rtol=1e-6)
    assert (fit.survival(np.full(200, 1e9), theta) > 0).all()
    assert fit.survival(np.zeros(200), theta) == pytest.approx(1.0)


def test_projection_intervals_hold_the_joint_set(sharp):
    _, _, x = toy_groups(3, n=5, seed=8, theta=[0.0, -0.1])
    cs = ks.confidence_set(
        Sharpened(FastToy(), 2.0).given(x), calibration=replace(sharp, profiles={})
    )
    with pytest.warns(ks.KeepscoreWarning) if _cut(cs) else nullcontext():
        intervals = cs.intervals
    assert intervals.kind == "projection"
    grid = FastToy().space.grid(400)
    for i in range(3):
        inside = grid[cs.contains(grid)[i]]
        np.testing.assert_allclose(intervals.working[i, :, 0], inside.min(0), atol=6e-3)
        np.testing.assert_allclose(intervals.working[i, :, 1], inside.max(0), atol=6e-3)


def _cut(cs):
    mask = cs.mask(60)
    return mask[:, [0, -1]].any() or mask[:, :, [0, -1]].any()


def test_from_a_data_set():
    toy, rng = FastToy(), np.random.default_rng(4)
    theta = np.repeat(toy.space.uniform(400, rng), 3, axis=0)
    data = SimpleNamespace(theta=theta, x=toy.simulate(theta, rng))
    calibration = ks.calibrate(toy, data, group_size=3)
    assert len(calibration.held_out) == 200
    with pytest.raises(DomainError, match="consecutive"):
        ks.calibrate(toy, data, group_size=4)
    few = SimpleNamespace(theta=theta[:30], x=data.x[:30])
    with pytest.raises(DomainError, match="at least 100"):
        ks.calibrate(toy, few, group_size=3)
    with pytest.raises(DtypeError, match="simulate"):
        ks.calibrate(toy, object())


def test_profile_calibration():
    source = Sharpened(FastToy(), 2.0)
    calibration = ks.calibrate(source, FastToy(), group_size=5, n=2000, parameters=["mean"])
    _, theta, x = toy_groups(1000, n=5, seed=97, region="test")
    like = source.given(x)
    result = ks.lrt(like, theta[:, :1], parameters=["mean"], calibration=calibration)
    assert stats.kstest(result.p_value, "uniform").pvalue < FALSE_ALARM
    assert abs((result.calibrated_p_value > 0.05).mean() - 0.95) < 4 * allowed(calibration, 1000)
    with pytest.raises(DomainError, match="mean, not mean, sd"):
        ks.lrt(like, theta, calibration=calibration)


def test_local_coverage(sharp):
    result = ks.local_coverage(
        Sharpened(FastToy(), 2.0), FastToy(), calibration=sharp, group_size=5, groups=50, seed=1
    )
    assert result.theta.shape == (100, 2)
    assert result.coverage("calibrated").shape == (100,)
    wilks, _ = result.overall("wilks")
    calibrated, se = result.overall("calibrated")
    assert wilks < 0.85
    # The test region is not where the guarantee is averaged (the base box is), hence the slack.
    assert abs(calibrated - 0.95) < 0.02 + 2 * se
    assert result.evenness("wilks") < FALSE_ALARM < result.evenness("calibrated")
    assert (result.standard_error("calibrated") > 0).all()
    assert "lowest" in str(result)
    with pytest.raises(UnknownNameError):
        result.coverage("bayes")
    with pytest.raises(DomainError, match="groups of 5"):
        ks.local_coverage(FastToy(), FastToy(), calibration=sharp, group_size=10)
    with pytest.raises(DomainError, match="base box"):
        ks.local_coverage(FastToy(), FastToy(), theta=[[3.0, 0.0]])


def test_same_seed_same_calibration():
    one, two = (ks.calibrate(FastToy(), FastToy(), n=200, seed=9) for _ in range(2))
    other = ks.calibrate(FastToy(), FastToy(), n=200, seed=10)
    np.testing.assert_array_equal(one.held_out, two.held_out)
    assert not np.array_equal(one.held_out, other.held_out)


def test_bad_input(sharp):
    toy = FastToy()
    with pytest.raises(DomainError):
        ks.calibrate(toy, toy, n=10)
    with pytest.raises(DomainError):
        ks.calibrate(toy, toy, level=1.2)
    with pytest.raises(DomainError, match="larger n"):
        sharp.critical(toy.space.grid(2), 0.99999)
    short = SimpleNamespace(simulate=lambda theta, rng: toy.simulate(theta[1:], rng))
    with pytest.raises(SimulationError):
        ks.calibrate(toy, short, n=100)
