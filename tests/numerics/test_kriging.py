"""Kriging with gradients: exact where it must be, and honest about its error elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from keepscore.numerics import kriging
from keepscore.numerics.kriging import (
    Kriging,
    Setting,
    _covariance,
    _densities,
    _solve,
    all_powers,
    powers_up_to,
)


def smooth(u, seed=0):
    """A sum of a few waves of about the length of the region: (..., d) -> (...), gradient."""
    rng = np.random.default_rng(seed)
    d = u.shape[-1]
    value, gradient = np.zeros(u.shape[:-1]), np.zeros(u.shape)
    for _ in range(4):
        wave, phase, height = rng.normal(0, 0.5, d), rng.uniform(0, 6), rng.normal()
        angle = u @ wave + phase
        value = value + height * np.sin(angle)
        gradient = gradient + height * np.cos(angle)[..., None] * wave
    return value, gradient


def in_ball(rng, *shape, radius=3.0):
    d = shape[-1]
    u = rng.standard_normal(shape)
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    return radius * u * rng.random((*shape[:-1], 1)) ** (1 / d)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("slopes", [True, False])
def test_polynomials_are_reproduced(d, slopes):
    rng = np.random.default_rng(d)
    powers = all_powers(d)[: 1 + d + d * (d + 1) // 2]  # quadratics
    beta = rng.standard_normal(len(powers))
    n = 12 + (len(powers) if slopes else 2 * len(powers))
    points, there = rng.uniform(-2, 2, (3, n, d)), rng.uniform(-2, 2, (3, 50, d))
    value, slope = kriging.monomials(points, powers)
    made, sd = kriging.fit(
        points, value @ beta, np.swapaxes(slope, 2, 3) @ beta if slopes else None, there
    )
    found, along = made.at(there.reshape(-1, d), np.repeat(np.arange(3), 50))
    truth, true_slope = kriging.monomials(there.reshape(-1, d), powers)
    np.testing.assert_allclose(found, truth @ beta, atol=2e-5)
    np.testing.assert_allclose(along, np.swapaxes(true_slope, 1, 2) @ beta, atol=2e-4)
    assert sd.max() < 1e-3


def test_covariances_of_gradients_are_derivatives_of_the_kernel():
    rng, h = np.random.default_rng(0), 1e-5
    u, v = rng.standard_normal((1, 3, 2)), rng.standard_normal((1, 4, 2))
    whole = _covariance(u, v, 1.7, 3)
    for j, step in enumerate(np.eye(2) * h):
        by_v = (_covariance(u, v + step, 1.7, 1) - _covariance(u, v - step, 1.7, 1)) / (2 * h)
        np.testing.assert_allclose(whole[:, :, 0, :, 1 + j], by_v[:, :, 0, :, 0], atol=1e-9)
        by_u = (_covariance(u + step, v, 1.7, 3) - _covariance(u - step, v, 1.7, 3)) / (2 * h)
        np.testing.assert_allclose(whole[:, :, 1 + j], by_u[:, :, 0], atol=1e-9)


@pytest.mark.parametrize("slopes", [True, False])
def test_the_gradient_is_that_of_the_value(slopes):
    rng, h = np.random.default_rng(1), 1e-5
    points = in_ball(rng, 2, 15, 3)
    value, slope = smooth(points)
    made, _ = kriging.fit(points, value, slope if slopes else None, points)
    u, group = in_ball(rng, 8, 3), np.arange(8) % 2
    value, gradient = made.at(u, group)
    np.testing.assert_array_equal(made.value(u, group), value)
    for j, step in enumerate(np.eye(3) * h):
        rise = made.at(u + step, group)[0] - made.at(u - step, group)[0]
        np.testing.assert_allclose(rise / (2 * h), gradient[:, j], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_leaving_out_by_formula_is_leaving_out(degree):
    """The formula for e_i against a fit without point i. All degrees share their factors."""
    rng, setting = np.random.default_rng(2), Setting(degree, 2.0, 1e-6)
    points = in_ball(rng, 1, 9, 2)
    value, slope = smooth(points)
    y = np.concatenate([value[..., None], slope], axis=2)
    settings = [Setting(k, length, 1e-6) for k in (3, 1, 2) for length in (2.0, 5.0)]
    density = _densities(points, y, settings)[settings.index(setting)]
    squares, log_det = 0.0, 0.0
    for i in range(9):
        rest = np.delete(np.arange(9), i)
        out = _solve(points[:, rest], y[:, rest], setting, points[:, [i]])
        weights, beta, length, scale, sd = out
        without = Kriging(points[:, rest], weights, beta, all_powers(2), length, scale)
        predicted, along = without.at(points[0, [i]], np.zeros(1, dtype=int))
        e = y[0, i] - np.concatenate([predicted, along[0]])
        spread = _spread_of(points[:, rest], points[0, i], setting)
        squares += e @ np.linalg.solve(spread, e)
        log_det += np.linalg.slogdet(spread)[1]
        noise = setting.noise  # of the observation left out, which a prediction does not have
        assert sd[0, 0] / scale[0] == pytest.approx(np.sqrt(spread[0, 0] - noise), rel=1e-3)
    expected = -0.5 * log_det - 0.5 * 27 * np.log(squares / 27)
    assert density[0] == pytest.approx(expected, rel=1e-6)


def _spread_of(points, u, setting):
    """Covariance, over s^2, of value and gradient at u given those at points: by the book."""
    size, d = points.shape[1] * 3, 2
    noise = np.diag(np.tile([1.0, *[setting.length**-2.0] * d], points.shape[1])) * setting.noise
    k = _covariance(points, points, setting.length, 3).reshape(size, size) + noise
    there = _covariance(u[None, None], points, setting.length, 3).reshape(3, size)
    own = _covariance(u[None, None], u[None, None], setting.length, 3).reshape(3, 3)
    own = own + np.diag([1.0, *[setting.length**-2.0] * d]) * setting.noise
    powers = powers_up_to(d, setting.degree)

    def basis(at):
        value, slope = kriging.monomials(at, powers)
        return np.concatenate([value[:, None], np.swapaxes(slope, 1, 2)], 1).reshape(
            -1, len(powers)
        )

    p, q = basis(points[0]), basis(u[None])
    inverse = np.linalg.inv(k)
    rest = q - there @ inverse @ p
    return own - there @ inverse @ there.T + rest @ np.linalg.inv(p.T @ inverse @ p) @ rest.T


@pytest.mark.parametrize(("slopes", "n"), [(True, 12), (True, 24), (False, 36)])
def test_the_error_is_as_large_as_it_says(slopes, n):
    """60 functions, z = error / standard deviation at one point each. For normal z the median of
    |z| is 0.67 +- 0.08: outside the bounds with probability below 1e-6, and a standard deviation
    three times too small or too large is found with a probability above 0.99."""
    rng = np.random.default_rng(3)
    z = []
    for seed in range(60):
        points, there = in_ball(rng, 1, n, 2), in_ball(rng, 1, 1, 2, radius=2.5)
        value, slope = smooth(points, seed)
        made, sd = kriging.fit(points, value, slope if slopes else None, there)
        z.append(
            (made.at(there[0], np.zeros(1, int))[0][0] - smooth(there, seed)[0][0, 0]) / sd[0, 0]
        )
    assert 0.3 < np.median(np.abs(z)) / 0.67 < 2.0
    assert np.mean(np.abs(z) > 5) < 0.1


def test_a_kink_is_not_called_smooth():
    """Negative control: |u_1| has an error of about 0.05, and says so."""
    rng = np.random.default_rng(4)
    points, there = in_ball(rng, 8, 30, 2), in_ball(rng, 8, 200, 2)
    slope = np.stack([np.sign(points[..., 0]), np.zeros(points.shape[:2])], axis=2)
    made, sd = kriging.fit(points, np.abs(points[..., 0]), slope, there)
    found = made.at(there.reshape(-1, 2), np.repeat(np.arange(8), 200))[0].reshape(8, 200)
    error = np.sqrt(((found - np.abs(there[..., 0])) ** 2).mean(axis=1))
    said = np.sqrt((sd**2).mean(axis=1))
    assert (error < 3 * said).all()
    assert said.min() > 0.005


def test_many_groups_are_fitted_as_one_alone():
    """Beyond 48 groups settings are chosen on some; errors stay small in all."""
    rng = np.random.default_rng(5)
    points, there = in_ball(rng, 100, 15, 2), in_ball(rng, 100, 20, 2)
    value, slope = smooth(points)
    made, _ = kriging.fit(points, value, slope, there)
    found = made.at(there.reshape(-1, 2), np.repeat(np.arange(100), 20))[0].reshape(100, 20)
    assert np.sqrt(((found - smooth(there)[0]) ** 2).mean()) < 0.01
