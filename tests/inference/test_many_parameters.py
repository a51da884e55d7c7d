"""Four parameters and more: searches, sets and calibrations without grids."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from likelihoods import from_function
from many_parameters import SLCP, Linear
from scipy import stats
from scipy.special import gamma

import keepscore as ks
from keepscore.errors import DomainError, KeepscoreWarning
from keepscore.inference.bfgs import Climb, climb, solve_free
from keepscore.numerics.space_filling import fill_ball, fill_cube


def peak(d, groups=1, scale=0.1, seed=0, quartic=0.0):
    """Correlated Gaussian peaks of standard deviation `scale`, well inside the box."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, d)) / np.sqrt(d) + np.eye(d)
    covariance = root @ root.T
    covariance *= scale**2 / np.diagonal(covariance).max()
    precision = np.linalg.inv(covariance)
    centre = rng.uniform(-0.2, 0.2, (groups, d))

    def value(theta, group):
        u = theta - centre[group]
        return -0.5 * np.einsum("mi,ij,mj->m", u, precision, u) - quartic * (u**4).sum(axis=1)

    def gradient(theta, group):
        u = theta - centre[group]
        return -u @ precision - 4 * quartic * u**3

    return from_function(value, gradient, d=d, groups=groups), centre, covariance


@pytest.mark.parametrize("d", [1, 2, 5, 10])
def test_space_filling_points_are_even(d):
    cube, ball = fill_cube(512, d, 3), fill_ball(512, d, 3)
    assert cube.shape == ball.shape == (512, d)
    np.testing.assert_array_equal(cube, fill_cube(512, d, 3))
    assert np.abs(cube.mean(axis=0) - 0.5).max() < 0.01  # of independent draws, .013 is usual
    assert (np.abs(np.sort(cube, axis=0).T - (np.arange(512) + 0.5) / 512) < 0.01).all()
    radius = np.linalg.norm(ball, axis=1)
    assert radius.max() <= 1
    assert stats.kstest(radius**d, "uniform").pvalue > 0.1
    assert np.abs(ball.mean(axis=0)).max() < 0.03


def test_singular_matrices_are_solved_as_well_as_can_be():
    matrices = np.array([np.diag([2.0, 0.0]), np.diag([2.0, 4.0])])
    free = np.ones((2, 2), dtype=bool)
    found = solve_free(matrices, np.array([[2.0, 0.0], [2.0, 4.0]]), free)
    np.testing.assert_allclose(found, [[1, 0], [1, 1]])


def test_slcp_is_maximised_in_spite_of_its_singular_centre_and_its_modes():
    """Every search ends, converged, at least as high as the truth and as a search from the truth.

    A grid of three points per side has a singular place in 135 of its 243 points; climbs that began
    around them died of a singular matrix."""
    model, rng = SLCP(), np.random.default_rng(1)
    theta = rng.uniform(-2.5, 2.5, (40, 5))
    like = model.given(model.simulate(theta, rng)[:, None])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ks.mle(like)
    low, high = like.space.box()
    shape = (np.broadcast_to(low, theta.shape), np.broadcast_to(high, theta.shape))
    near = climb(
        like, Climb(theta, np.arange(40), *shape, high - low, np.tile(np.eye(5) * 50, (40, 1, 1)))
    )
    assert found.converged.mean() >= 0.95
    assert (found.log_likelihood >= like.paired(theta)).all()
    # One in forty may be a lower mode.
    assert (found.log_likelihood < near.value - 1e-2).sum() <= 1


@pytest.mark.parametrize("d", [5, 6, 10])
def test_searches_find_the_peak_and_its_errors_without_a_grid(d):
    asked = []
    like, centre, covariance = peak(d, groups=3)
    whole = replace(like, surface=lambda t: asked.append(len(t)) or like.surface(t))
    found = ks.mle(whole)
    np.testing.assert_allclose(found.estimate, centre, atol=1e-4)
    np.testing.assert_allclose(
        found.standard_errors, np.tile(np.sqrt(np.diagonal(covariance)), (3, 1)), rtol=1e-3
    )
    assert found.converged.all()
    assert sum(asked) <= 64 * d
    assert found.evaluations / 3 < 60 * d


@pytest.mark.parametrize(("d", "parameters"), [(4, None), (6, None), (10, None), (6, 4)])
def test_the_volume_of_an_ellipsoid_by_sampling(d, parameters):
    """Within 5 of its own standard errors of the closed form; the error is small and true."""
    like, _, covariance = peak(d, groups=3, scale=0.08)
    names = None if parameters is None else list(like.space.names[:parameters])
    p = parameters or d
    chosen = ks.confidence_set(like, 0.9, parameters=names, draws=4096 if p == d else 512)
    radius = stats.chi2.ppf(0.9, p) ** (p / 2)
    block = covariance[:p, :p]
    ball = np.pi ** (p / 2) / gamma(p / 2 + 1)
    expected = ball * radius * np.sqrt(np.linalg.det(block))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some reach the box
        volume, error = chosen.volume, chosen.volume_error
        cut = chosen.touches_boundary
    assert (error < 0.1).all()
    whole = ~cut
    assert whole.any()
    assert (np.abs(volume / expected - 1)[whole] < 5 * error[whole]).all()
    # The control: the volume at another level is told apart.
    other = ball * stats.chi2.ppf(0.8, p) ** (p / 2) * np.sqrt(np.linalg.det(block))
    assert (np.abs(volume / other - 1)[whole] > 5 * error[whole]).all()


def test_a_set_cut_off_by_the_box_and_flat_in_some_directions():
    """l depends on three of six parameters: the set is a ball of the three times the box."""
    like = from_function(
        lambda t, g: -200 * (t[:, :3] ** 2).sum(1),
        lambda t, g: np.concatenate([-400 * t[:, :3], 0 * t[:, 3:]], axis=1),
        d=6,
    )
    chosen = ks.confidence_set(like, draws=20_000)
    with pytest.warns(KeepscoreWarning, match="touch the boundary"):
        volume = chosen.volume
    expected = 4 / 3 * np.pi * (stats.chi2.ppf(0.95, 6) / 400) ** 1.5 * 8
    assert abs(volume / expected - 1) < 5 * chosen.volume_error
    assert chosen.volume_error < 0.15
    np.testing.assert_array_equal(chosen._extent.touches[0].all(axis=1), [False] * 3 + [True] * 3)


def test_membership_and_profile_intervals_at_six():
    like, centre, covariance = peak(6, quartic=40.0)
    chosen = ks.confidence_set(like)
    ends = chosen.intervals
    assert ends.kind == "profile"
    assert not ends.at_boundary.any()
    # The quartic pulls them in a little from estimate +- 1.96 standard errors.
    half = np.ptp(ends.working, axis=1) / 2
    sd = np.sqrt(np.diagonal(covariance))
    assert (half < 1.96 * sd).all()
    assert (half > 1.5 * sd).all()
    assert chosen.contains(centre[0])
    assert not chosen.contains(np.full(6, 0.99))
    with pytest.raises(DomainError, match="draws="):
        ks.confidence_set(like, grid=8)


def test_calibrated_intervals_at_six_are_profiles_that_cover():
    """A likelihood twice too sharp, d = 6: calibrated profile intervals cover and stay inside the
    box; Wilks' do not cover. 1,000 data sets; bounds at 4 standard errors."""
    wrong, model = Linear(factor=2.0), Linear()
    calibration = ks.calibrate(wrong, model, group_size=1, n=1200, seed=1)
    assert set(calibration.profiles) == set(model.space.names)
    rng = np.random.default_rng(7)
    theta = model.space.uniform(1000, rng, "test")
    like = wrong.given(model.simulate(theta, rng)[:, None])
    se = np.sqrt(0.95 * 0.05 * (1 / 1000 + 1 / 600))
    calibrated = ks.confidence_set(like, calibration=calibration).intervals
    wilks = ks.confidence_set(like).intervals

    def coverage(ends):
        return ((ends[..., 0] <= theta) & (theta <= ends[..., 1])).mean(axis=0)

    assert calibrated.kind == "profile"
    assert calibrated.at_boundary.mean() < 0.05
    assert (np.abs(coverage(calibrated.working) - 0.95) < 4 * se).all()
    assert (coverage(wilks.working) < 0.95 - 4 * se).all()
    one = ks.confidence_set(like[0], calibration=calibration)
    assert one.contains(one.maximum.theta[0])
    # Without profiles the joint set is projected, and that is said.
    projected = ks.confidence_set(like[0], calibration=replace(calibration, profiles={})).intervals
    assert projected.kind == "projection"
    assert (np.ptp(projected.working, axis=1) > np.ptp(calibrated.working[0], axis=1)).all()


def test_local_coverage_at_six_scatters_its_points():
    model = Linear()
    found = ks.local_coverage(model, model, groups=10, group_size=1)
    assert found.theta.shape == (100, 6)
    rate, error = found.overall()
    assert abs(rate - 0.95) < 4 * error
