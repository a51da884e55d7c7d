"""Confidence sets on the toy: coverage, membership, volume and intervals against closed forms."""

import numpy as np
import pytest
from likelihoods import FastToy, Sharpened, from_function, in_float32, toy_groups
from scipy import optimize, stats

import keepscore as ks
from keepscore.errors import (
    DomainError,
    KeepscoreWarning,
    MissingError,
    ShapeError,
    UnknownNameError,
)

pytestmark = pytest.mark.filterwarnings("ignore::keepscore.errors.KeepscoreWarning")
FALSE_ALARM = 1e-6


def quadratic(precision, centre=None, width=1.0):
    precision = np.asarray(precision, dtype=float)
    d = len(precision)
    centre = np.zeros(d) if centre is None else np.asarray(centre)

    def value(theta, group):
        return -0.5 * np.einsum("mi,ij,mj->m", theta - centre, precision, theta - centre)

    return from_function(value, lambda t, g: -(t - centre) @ precision, d=d, width=width)


def coverage_p_value(source, g=3000, n=50):
    _, theta, x = toy_groups(g, n=n, seed=21, region="test")
    covered = ks.confidence_set(source.given(x)).covers(theta)
    return stats.binomtest(int(covered.sum()), g, 0.95).pvalue, covered.mean()


def test_coverage_is_nominal():
    # 3000 groups: a false alarm of 1e-6 sits at 4.9 standard errors of 0.004: off by 0.02 is seen.
    p, rate = coverage_p_value(FastToy())
    assert p > FALSE_ALARM, rate


def test_coverage_of_a_sharpened_likelihood_is_not():
    p, rate = coverage_p_value(Sharpened(FastToy(), 2.0))
    assert p < FALSE_ALARM
    assert rate < 0.85


def test_membership_is_the_test():
    toy, _, x = toy_groups(6, seed=22, theta=[0.1, 0.0])
    like = toy.given(x)
    grid = toy.space.grid(9)
    cs = ks.confidence_set(like, level=0.9)
    verdict = cs.contains(grid)
    assert verdict.shape == (6, 81)
    for j in range(0, 81, 7):
        np.testing.assert_array_equal(verdict[:, j], ks.lrt(like, grid[j]).p_value >= 0.1)
    np.testing.assert_array_equal(cs.mask(9).reshape(6, -1), verdict)
    np.testing.assert_array_equal(cs.contains(grid[40]), verdict[:, 40])
    np.testing.assert_array_equal(cs.covers(np.tile(grid[40], (6, 1))), verdict[:, 40])
    assert not cs.contains([5.0, 0.0]).any()  # outside the box
    one = ks.confidence_set(like.select(2), level=0.9)
    assert one.contains(grid[40]) in (True, False)
    assert one.mask((5, 4)).shape == (5, 4)
    assert "90%" in str(one)


@pytest.mark.parametrize(
    ("precision", "centre"),
    [
        (np.diag([60.0, 90.0]), [0.0, 0.0]),
        ([[300.0, -200.0], [-200.0, 300.0]], [0.123, -0.077]),
        (np.diag([40.0, 60.0, 80.0]), [0.01, -0.02, 0.03]),
        (np.diag([900.0, 4000.0, 1500.0]), [0.31, -0.22, 0.03]),
        (np.diag([1e7, 3e7]), [0.3333, -0.1]),
        ([[80.0]], [0.2]),
    ],
)
def test_volume_of_an_ellipsoid(precision, centre):
    like = quadratic(precision, centre)
    cs = ks.confidence_set(like, 0.95)
    d = len(centre)
    ball = {1: 2.0, 2: np.pi, 3: 4 * np.pi / 3}[d]
    expected = ball * stats.chi2.ppf(0.95, d) ** (d / 2) / np.sqrt(np.linalg.det(precision))
    assert cs.volume == pytest.approx(expected, rel=4e-3)
    assert cs.volume_error < 0.02
    assert not cs.touches_boundary


def test_volume_of_a_non_quadratic_set_by_brute_force():
    _, _, x = toy_groups(5, n=2, seed=23, theta=[0.0, -0.2])
    for like in (FastToy().given(x), in_float32(FastToy().given(x))):
        cs = ks.confidence_set(like)
        fine = cs.mask(700).reshape(5, 700, 700)
        area = 2.0 * 1.4
        # Trapezoidal weights: the grid includes the bounds.
        weight = np.ones(700)
        weight[[0, -1]] = 0.5
        counted = np.einsum("gij,i,j->g", fine, weight, weight) / 699**2 * area
        np.testing.assert_allclose(cs.volume, counted, rtol=4e-3)


def test_a_set_cut_by_the_box():
    # A circle centred on the edge: half of it is left.
    cs = ks.confidence_set(quadratic(np.diag([60.0, 60.0]), [1.0, 0.0]))
    with pytest.warns(KeepscoreWarning, match="touch the boundary"):
        volume = cs.volume
    assert volume == pytest.approx(np.pi * stats.chi2.ppf(0.95, 2) / 60 / 2, rel=5e-3)
    assert cs.touches_boundary
    assert cs.intervals.at_boundary.tolist() == [[False, True], [False, False]]
    assert cs.intervals.working[0, 1] == 1.0
    flat = ks.confidence_set(quadratic(np.diag([1e-6, 1e-6])))
    assert flat.volume == pytest.approx(4.0, rel=1e-6)
    np.testing.assert_allclose(flat.intervals.working, [[-1, 1], [-1, 1]])


def test_profile_intervals_in_closed_form():
    toy, _, x = toy_groups(30, seed=24, theta=[0.1, 0.0])
    result = ks.confidence_set(toy.given(x), level=0.9).intervals
    flat = x.reshape(30, -1)
    mean, var, count = flat.mean(1), flat.var(1), flat.shape[1]
    c = stats.chi2.ppf(0.9, 1)
    # Mean: N log(1 + (m - mean)^2 / var) = c.
    half = np.sqrt(var * np.expm1(c / count))
    np.testing.assert_allclose(result.working[:, 0, 0], mean - half, atol=2e-5)
    np.testing.assert_allclose(result.working[:, 0, 1], mean + half, atol=2e-5)
    # Log sd: with u = s - log(sd_hat),  N (2 u + e^{-2u} - 1) = c.
    ends = [
        optimize.brentq(lambda u: count * (2 * u + np.exp(-2 * u) - 1) - c, *bracket)
        for bracket in ((-2.0, 0.0), (0.0, 2.0))
    ]
    expected = 0.5 * np.log(var)[:, None] + ends
    np.testing.assert_allclose(result.working[:, 1], expected, atol=2e-5)
    np.testing.assert_allclose(result.raw[:, 1], np.exp(expected), rtol=3e-5)
    assert result.kind == "profile"
    assert "mean" in str(ks.confidence_set(toy.given(x[0])).intervals)
    assert "30 groups" in str(result)


def test_correlated_profile_intervals():
    # The profile of a Gaussian is its marginal: half-width sqrt(c (P^-1)_kk).
    precision = np.array([[300.0, -250.0, 30.0], [-250.0, 400.0, 10.0], [30.0, 10.0, 200.0]])
    centre = np.array([0.1, 0.0, -0.1])
    cs = ks.confidence_set(quadratic(precision, centre))
    half = np.sqrt(stats.chi2.ppf(0.95, 1) * np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose(cs.intervals.working[:, 0], centre - half, atol=1e-5)
    np.testing.assert_allclose(cs.intervals.working[:, 1], centre + half, atol=1e-5)


def test_sets_for_some_parameters_profile_the_others():
    precision = np.array([[300.0, -250.0, 30.0], [-250.0, 400.0, 10.0], [30.0, 10.0, 200.0]])
    like = quadratic(precision)
    inverse = np.linalg.inv(precision)
    line = ks.confidence_set(like, parameters=["p1"])
    half = np.sqrt(stats.chi2.ppf(0.95, 1) * inverse[1, 1])
    assert line.volume == pytest.approx(2 * half, rel=1e-3)
    assert line.contains([0.99 * half])
    assert not line.contains([1.01 * half])
    plane = ks.confidence_set(like, parameters=["p0", "p2"], grid=16)
    block = inverse[np.ix_([0, 2], [0, 2])]
    expected = np.pi * stats.chi2.ppf(0.95, 2) * np.sqrt(np.linalg.det(block))
    assert plane.volume == pytest.approx(expected, rel=5e-3)


def test_bad_input():
    toy, _, x = toy_groups(2, seed=25)
    like = toy.given(x)
    for level in (0.0, 1.0, 95):
        with pytest.raises(DomainError, match="between 0 and 1"):
            ks.confidence_set(like, level=level)
    with pytest.raises(UnknownNameError):
        ks.confidence_set(like, method="wilkes")
    with pytest.raises(MissingError, match="calibrate"):
        ks.confidence_set(like, method="calibrated")
    with pytest.raises(UnknownNameError):
        ks.confidence_set(like, parameters=["lambda"])
    with pytest.raises(DomainError):
        ks.confidence_set(like, grid=2)
    cs = ks.confidence_set(like)
    for bad in ([0.0], np.zeros((2, 3)), np.zeros((2, 2, 2))):
        with pytest.raises(ShapeError):
            cs.contains(bad)
    with pytest.raises(ShapeError):
        cs.covers([[0.0, 0.0]])
    with pytest.raises(ShapeError):
        cs.mask((3, 3, 3))
