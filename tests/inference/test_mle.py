"""Maximum likelihood against closed forms, grids and scipy; hard surfaces; flags; bad input."""

from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy, from_function, in_float32, toy_groups
from scipy import optimize

import keepscore as ks
from keepscore.errors import (
    ConvergenceError,
    DomainError,
    DtypeError,
    KeepscoreWarning,
    NonFiniteError,
    ShapeError,
    UnknownNameError,
)
from keepscore.inference.bfgs import _direction


def closed_form(x):
    flat = x.reshape(len(x), -1)
    return np.stack([flat.mean(1), np.log(flat.std(1))], axis=1)


def inside(toy, theta, margin=0.01):
    low, high = toy.space.box("base")
    return ((theta > low + margin) & (theta < high - margin)).all(axis=1)


@pytest.mark.parametrize("rounding", [False, True], ids=["float64", "float32"])
def test_closed_form_estimates_and_standard_errors(rounding):
    toy, _, x = toy_groups(200, seed=1)
    like = FastToy().given(x)
    result = ks.mle(in_float32(like) if rounding else like)
    truth = closed_form(x)
    ok = inside(toy, truth)
    assert ok.sum() > 150
    tolerance = 2e-4 if rounding else 1e-5  # of a standard error of about 0.1
    np.testing.assert_allclose(result.estimate[ok], truth[ok], atol=tolerance)
    assert result.converged.all()
    assert result.regular.all()
    assert not result.on_boundary[ok].any()
    # Observed information at the maximum: diag(N / sd^2, 2 N) with N = 40 numbers a group.
    sd = np.exp(truth[ok, 1])
    expected = np.stack([sd / np.sqrt(40), np.full(len(sd), 1 / np.sqrt(80))], axis=1)
    np.testing.assert_allclose(result.standard_errors[ok], expected, rtol=2e-3)
    np.testing.assert_allclose(result.raw[ok, 1], sd, rtol=1e-3)
    delta = expected * np.stack([np.ones_like(sd), sd], axis=1)
    np.testing.assert_allclose(result.raw_standard_errors[ok], delta, rtol=2e-3)


def test_few_evaluations():
    _, _, x = toy_groups(200, seed=1)
    result = ks.mle(FastToy().given(x))
    # Four of them are the information; the grid's quadratic makes the rest few.
    assert result.evaluations / 200 < 12


def test_no_worse_than_a_fine_grid_and_agrees_with_scipy():
    toy, _, x = toy_groups(12, n=3, seed=2, region="train")
    like = toy.given(x)
    result = ks.mle(like)
    grid = toy.space.grid(200)
    surface = like(grid)
    assert (result.log_likelihood >= surface.max(axis=1) - 1e-9).all()
    step = (toy.space.upper - toy.space.lower) / 199
    best = grid[surface.argmax(axis=1)]
    assert (np.abs(result.estimate - best) <= 0.51 * step + 2e-3).all()
    low, high = toy.space.box()
    for i in range(4):
        one = like.select(i)
        found = optimize.minimize(
            lambda t, one=one: -one(t),
            [0.0, 0.0],
            jac=lambda t, one=one: -one.gradient(t),
            bounds=list(zip(low, high, strict=True)),
            method="L-BFGS-B",
            options={"ftol": 1e-14, "gtol": 1e-9},
        )
        np.testing.assert_allclose(result.estimate[i], found.x, atol=1e-4)


def test_one_group_is_squeezed_and_prints():
    toy, _, x = toy_groups(3, seed=3, theta=[0.1, 0.0])
    many, one = ks.mle(toy.given(x)), ks.mle(toy.given(x[1]))
    assert one.estimate.shape == (2,)
    assert one.information.shape == (2, 2)
    assert isinstance(one.log_likelihood, float)
    np.testing.assert_allclose(one.estimate, many.estimate[1], atol=1e-6)
    assert "mean" in str(one)
    assert "3 groups" in str(many)


def test_boundary_is_exact_and_flagged():
    toy, _, x = toy_groups(1, seed=4, theta=[0.0, 0.0])
    result = ks.mle(toy.given(x[0] + 5.0))  # the mean wants to be 5, the box ends at 1
    assert result.estimate[0] == 1.0
    assert result.on_boundary.tolist()[0]
    assert np.isnan(result.standard_errors[0])
    assert result.converged
    # The spread given the mean at its bound would be large: the other bound, too.
    assert result.estimate[1] == pytest.approx(0.7)


def test_constrained_optimum_on_a_slanted_ridge():
    # l = -(a^2 + b^2 - 2 r a b)/2 around (1.5, 0), strongly coupled: with p0 held at its bound 1,
    # the best p1 is not that of the free maximum but r (1 - 1.5).
    r = 0.95
    matrix = np.array([[1, -r], [-r, 1]]) * 50
    centre = np.array([1.5, 0.0])

    def value(theta, group):
        return -0.5 * np.einsum("mi,ij,mj->m", theta - centre, matrix, theta - centre)

    result = ks.mle(from_function(value, lambda t, g: -(t - centre) @ matrix))
    np.testing.assert_allclose(result.estimate, [1.0, r * (1.0 - 1.5)], atol=1e-5)


def test_finds_the_higher_of_two_peaks_and_follows_a_banana():
    peaks = np.array([[-0.62, -0.55], [0.57, 0.61]])
    height = np.array([0.0, 3.0])

    def parts(theta):
        offset = theta[:, None, :] - peaks
        return offset, height - 0.5 * (offset**2).sum(2) / 0.08**2

    def two_peaks(theta, group):
        return np.logaddexp.reduce(parts(theta)[1], axis=1)

    def slope(theta, group):
        offset, logs = parts(theta)
        weight = np.exp(logs - np.logaddexp.reduce(logs, axis=1)[:, None])
        return -(weight[:, :, None] * offset).sum(1) / 0.08**2

    result = ks.mle(from_function(two_peaks, slope))
    np.testing.assert_allclose(result.estimate, peaks[1], atol=1e-5)

    def banana(theta, group):
        a, b = theta.T
        return -((0.55 - a) ** 2) - 100 * (b - a**2) ** 2

    def banana_slope(theta, group):
        a, b = theta.T
        return np.stack([2 * (0.55 - a) + 400 * a * (b - a**2), -200 * (b - a**2)], axis=1)

    result = ks.mle(from_function(banana, banana_slope))
    np.testing.assert_allclose(result.estimate, [0.55, 0.55**2], atol=1e-4)
    assert result.evaluations < 150  # without learning the curvature, 280


def test_never_below_a_point_already_seen():
    # A needle on a grid point, on the slope of a hill: the neighbours' quadratic leads away.
    needle = np.array([0.2005, 0.1995])

    def parts(theta):
        hill = 40 * theta[:, 0] - 20 * (theta[:, 0] ** 2 + theta[:, 1] ** 2)
        return hill, 30 - 0.5 * ((theta - needle) ** 2).sum(1) / 0.002**2

    def gradient(theta, group):
        hill, tip = parts(theta)
        share = np.exp(tip - np.logaddexp(hill, tip))[:, None]
        slope = np.array([40.0, 0.0]) - 40 * theta
        return (1 - share) * slope - share * (theta - needle) / 0.002**2

    like = from_function(lambda t, g: np.logaddexp(*parts(t)), gradient)
    np.testing.assert_allclose(ks.mle(like, starts=1).estimate, needle, atol=1e-4)


def test_directions_stay_in_the_box_and_climb():
    rng = np.random.default_rng(6)
    p, d = 500, 3
    root = rng.standard_normal((p, d, d))
    curvature = root @ np.swapaxes(root, 1, 2) + 0.05 * np.eye(d)
    low, high = np.full((p, d), -1.0), np.full((p, d), 1.0)
    u = rng.choice([-1.0, -0.3, 0.4, 1.0], size=(p, d))
    gradient = rng.standard_normal((p, d))
    step, gain = _direction(u, gradient, curvature, low, high)
    assert not ((u == low) & (step < 0)).any()
    assert not ((u == high) & (step > 0)).any()
    blocked = ((u == low) & (gradient <= 0)) | ((u == high) & (gradient >= 0))
    assert (step[blocked] == 0).all()
    rise = (step * gradient).sum(axis=1)
    assert (rise >= 0).all()
    # No way up only where the gradient points out of the box in every coordinate.
    assert ((rise > 0) | blocked.all(axis=1)).all()
    assert (gain >= 0).all()


def test_a_peak_far_narrower_than_the_grid():
    centre = np.array([0.1234, -0.4321])
    like = from_function(
        lambda t, g: -0.5e8 * ((t - centre) ** 2).sum(1), lambda t, g: -1e8 * (t - centre)
    )
    result = ks.mle(like)
    np.testing.assert_allclose(result.estimate, centre, atol=1e-7)
    np.testing.assert_allclose(result.standard_errors, 1e-4, rtol=1e-2)


def test_three_parameters_and_one():
    for d in (1, 3):
        centre = np.linspace(-0.3, 0.4, d)
        like = from_function(
            lambda t, g, c=centre: -5 * np.cosh(t - c).sum(1),
            lambda t, g, c=centre: -5 * np.sinh(t - c),
            d=d,
        )
        np.testing.assert_allclose(ks.mle(like).estimate, centre, atol=1e-5)


def test_flat_direction_gives_nan_not_a_crash():
    like = from_function(
        lambda t, g: -50 * t[:, 0] ** 2,
        lambda t, g: np.stack([-100 * t[:, 0], np.zeros(len(t))], axis=1),
    )
    result = ks.mle(like)
    assert not result.regular
    assert np.isnan(result.standard_errors).all()
    assert "not positive definite" in str(result)


def test_impossible_regions_are_avoided_and_impossible_data_refused():
    def value(theta, group):
        return np.where(theta[:, 0] > 0, -((theta[:, 0] - 0.3) ** 2) - theta[:, 1] ** 2, -np.inf)

    like = from_function(value, lambda t, g: -2 * (t - [0.3, 0.0]))
    np.testing.assert_allclose(ks.mle(like).estimate, [0.3, 0.0], atol=1e-4)
    nowhere = from_function(lambda t, g: np.full(len(t), np.nan), lambda t, g: 0 * t)
    with pytest.raises(ConvergenceError, match="not finite anywhere"):
        ks.mle(nowhere)


def test_a_lying_gradient_is_reported():
    like = from_function(lambda t, g: -5 * (t**2).sum(1), lambda t, g: 10 * t + 3)
    with pytest.warns(KeepscoreWarning, match="did not converge"):
        result = ks.mle(like)
    assert not result.converged


def test_region_widens_the_box():
    toy, _, x = toy_groups(1, seed=4, theta=[0.0, 0.0])
    wide = ks.mle(toy.given(x[0] + 5.0), region="train")
    assert wide.estimate[0] == pytest.approx(1.1)
    with pytest.raises(UnknownNameError):
        ks.mle(toy.given(x[0]), region="nowhere")


def test_select_groups():
    toy, _, x = toy_groups(9, seed=5)
    like = toy.given(x)
    theta = toy.space.grid(3)
    np.testing.assert_array_equal(like.select(4)(theta), like(theta)[4])
    np.testing.assert_array_equal(like.select([2, 7])(theta), like(theta)[[2, 7]])
    np.testing.assert_array_equal(like.select(slice(1, 9))(theta), like(theta)[1:])
    assert like.select(-1).single
    np.testing.assert_allclose(
        like.select([2, 7]).gradient(theta[0]), like.gradient(theta[0])[[2, 7]]
    )
    for bad in (9, -10, [3, 30], []):
        with pytest.raises(DomainError):
            like.select(bad)
    with pytest.raises(ShapeError):
        like.select([[1, 2]])


@pytest.mark.parametrize(
    ("xs", "error"),
    [
        (np.zeros((10, 3)), ShapeError),
        (np.zeros((0, 4)), DomainError),
        (np.full((10, 4), np.nan), NonFiniteError),
    ],
)
def test_bad_observations(xs, error):
    toy, _, _ = toy_groups(1)
    with pytest.raises(error):
        toy.given(xs)


def test_bad_arguments():
    toy, _, x = toy_groups(1)
    with pytest.raises(DtypeError, match="given"):
        ks.mle(toy)
    with pytest.raises(DomainError):
        ks.mle(toy.given(x[0]), starts=0)


def with_noise(like, sigma, decimals=9, slope=0.0):
    """Values with a noise that changes with theta's decimals, as cancelling float32 terms give
    them, and gradients with `slope` times that noise."""

    def noise(theta):
        wild = np.sin(np.round(theta, decimals) @ [12.9898e5, 78.233e5]) * 43758.5453
        return sigma * np.sqrt(12) * (wild % 1 - 0.5)

    def value(theta, group):
        return like.pairs(theta, group) + noise(theta)

    def both(theta, group):
        gradient = like.pairs_gradient(theta, group)[1]
        return value(theta, group), gradient + slope * noise(theta)[:, None]

    def surface(theta):
        return np.stack([value(theta, np.full(len(theta), i)) for i in range(like.group_count)])

    return replace(like, pairs=value, pairs_gradient=both, surface=surface)


def small_values(groups=200):
    """Bent peaks of height about one, as log-ratios have, somewhere in the box: (g, 2)."""
    centre = np.random.default_rng(3).uniform(-0.8, 0.8, (groups, 2))

    def parts(theta, group):
        a, b = (theta - centre[group]).T
        return a + b**2, b, 2 * b

    def value(theta, group):
        a, b, _ = parts(theta, group)
        return 1.0 - 30 * a**2 - 20 * b**2 - 60 * b**3 / (1 + b**2)

    def gradient(theta, group):
        a, b, slope = parts(theta, group)
        cubic = 60 * (3 * b**2 + b**4) / (1 + b**2) ** 2
        return np.stack([-60 * a, -60 * a * slope - 40 * b - cubic], axis=1)

    return from_function(value, gradient, groups=groups), centre


def test_noise_of_cancelling_float32_terms_does_not_stop_a_search():
    """Values are noisy at 1e-4, far above the rounding of l itself, and gradients are not; before
    the noise was measured, one in eight such searches ended unconverged."""
    like, _ = small_values()
    result, truth = ks.mle(with_noise(like, 1e-4, decimals=4)), ks.mle(like)
    assert result.converged.all()
    np.testing.assert_allclose(result.estimate, truth.estimate, atol=3e-3)  # a s.e. is 0.13
    assert (np.isfinite(result.standard_errors) == ~result.on_boundary).all()


def test_a_likelihood_too_noisy_to_know_its_maximum_is_not_called_converged():
    like, _ = small_values(50)
    with pytest.warns(KeepscoreWarning, match="did not converge"):
        result = ks.mle(with_noise(like, 0.05, slope=10.0))
    lost = ~result.converged
    assert lost.sum() > 8
    assert np.isnan(result.standard_errors[lost]).all()
