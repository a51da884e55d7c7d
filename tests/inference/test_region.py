"""The region of a confidence set: found from values alone, whatever the set's shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from likelihoods import from_function
from scipy import stats

import keepscore as ks
from keepscore.inference.maximise import maximum_of
from keepscore.inference.placement import cloud_of
from keepscore.inference.region import Ellipsoid, along_axes, around, walk
from keepscore.numerics.space_filling import fill_ball

REACH = 1.25


def tailed(d=2):
    """A parameter that the data hardly know: below -0.2 its log-likelihood hardly falls, and the
    ridge bends on the way."""

    def value(theta, group):
        last = theta[:, -1]
        known = np.where(last > -0.2, -30 * (last + 0.2) ** 2, -1.5 * (last + 0.2) ** 2)
        bend = theta[:, :-1] - 0.15 * last[:, None] ** 2
        return known - 40 * (bend**2).sum(axis=1)

    def gradient(theta, group):
        h, out = 1e-6, np.empty(theta.shape)
        for k in range(d):
            step = h * np.eye(d)[k]
            out[:, k] = (value(theta + step, group) - value(theta - step, group)) / (2 * h)
        return out

    return from_function(value, gradient, d=d)


def found_region(like, steps):
    d, everyone = like.space.d, np.zeros(1, dtype=np.int64)
    cut = float(stats.chi2.ppf(0.99, d))
    low, high = like.space.box()
    top, radius = maximum_of(like), REACH * np.sqrt(cut)
    region = along_axes(like.pairs, top, everyone, cut, low, high)
    cloud = cloud_of(*region, radius, fill_ball(192, d), low, high)

    def values(theta):
        return like.pairs(theta[0], np.zeros(theta.shape[1], dtype=np.int64))[None]

    rng = np.random.default_rng(0)
    particles, inside = walk(values, cloud, top.value, cut, (low, high), rng, steps)
    assert inside.all()
    assert (2 * (top.value - values(particles)[0]) <= cut + 1e-9).all()
    return around(region, particles, inside, cut, radius), radius, top


@pytest.mark.parametrize("d", [2, 3])
def test_the_region_holds_a_set_with_a_bent_tail(d):
    """Of points spread over the box, all that lie in the set lie in the region, whose volume is
    not that of the box."""
    like = tailed(d)
    region, radius, top = found_region(like, steps=5)
    low, high = like.space.box()
    theta = np.random.default_rng(1).uniform(low, high, (40_000, d))
    lambdas = 2 * (top.value[0] - like.pairs(theta, np.zeros(len(theta), dtype=np.int64)))
    inside = lambdas <= stats.chi2.ppf(0.95, d)
    held = region.norm(theta[None])[0] <= radius
    assert inside.sum() > 200
    assert held[inside].mean() > 0.97
    assert held.mean() < 0.6
    # The curvature on the steep side knows nothing of the tail.
    steep = np.diag([80.0] * (d - 1) + [60.0])
    local = Ellipsoid(top.theta, np.linalg.cholesky(steep)[None])
    assert (local.norm(theta[None])[0] <= radius)[inside].mean() < 0.9


def test_a_quadratic_has_the_ellipsoid_of_its_curvature():
    a = np.linalg.inv(np.array([[0.02, 0.01], [0.01, 0.02]]))
    like = from_function(
        lambda t, g: -0.5 * np.einsum("mi,ij,mj->m", t, a, t), lambda t, g: -t @ a, d=2
    )
    region, _, _ = found_region(like, steps=3)
    np.testing.assert_allclose(region.centre, 0.0, atol=0.08)
    shape = region.factor[0] @ region.factor[0].T
    ratio = np.linalg.eigvals(np.linalg.solve(a, shape)).real
    assert 0.5 < ratio.min() <= ratio.max() < 1.5


def test_where_nothing_is_inside_the_region_stays():
    now = Ellipsoid(np.zeros((1, 2)), np.eye(2)[None])
    theta = np.random.default_rng(0).normal(size=(1, 50, 2))
    kept = around(now, theta, np.zeros((1, 50), dtype=bool), 9.0, 4.0)
    np.testing.assert_array_equal(kept.centre, now.centre)
    np.testing.assert_array_equal(kept.factor, now.factor)
    moved, inside = walk(
        lambda t: np.full(t.shape[:2], -1e3), theta, np.zeros(1), 9.0,
        (np.full(2, -9.0), np.full(2, 9.0)), np.random.default_rng(0), 2,
    )  # fmt: skip
    assert not inside.any()
    assert moved.shape == theta.shape


@pytest.mark.filterwarnings("ignore")
def test_refining_serves_a_set_with_a_tail():
    """A surrogate that is wrong along the tail: tests there come out as the exact ones."""
    exact = tailed(2)

    def wrong(theta):
        return 0.8 * np.sin(2 * theta[:, 1]) + 0.3 * theta[:, 0]

    surrogate = replace(
        exact, kind="surrogate",
        pairs=lambda t, g: exact.pairs(t, g) + wrong(t),
        pairs_gradient=lambda t, g: (
            exact.pairs(t, g) + wrong(t),
            exact.pairs_gradient(t, g)[1]
            + np.stack([np.full(len(t), 0.3), 1.6 * np.cos(2 * t[:, 1])], axis=1),
        ),
        surface=lambda t: exact.surface(t) + wrong(t),
    )  # fmt: skip
    refined = ks.refine(surrogate, exact, evaluations=30)
    assert refined.refinement.reached.all()
    for null in ([0.12, -0.9], [0.04, -0.5], [0.0, 0.1]):
        ours, truth = ks.lrt(refined, null).statistic, ks.lrt(exact, null).statistic
        assert ours == pytest.approx(truth, abs=0.05)
        assert abs(ks.lrt(surrogate, null).statistic - truth) > 0.05


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_a_tail_widens_the_region_along_the_tail_alone(d):
    """A ball of points and a few far out along one axis. The smallest ellipsoid around both is
    known: all its points touch or lie inside, and across the tail it stays about as wide."""
    rng = np.random.default_rng(3)
    ball = rng.standard_normal((1, 400, d))
    ball /= np.linalg.norm(ball, axis=2, keepdims=True)
    tail = np.zeros((1, 5, d))
    tail[0, :, 0] = 6.0
    cut, radius = 9.0, 4.0
    now = Ellipsoid(np.zeros((1, d)), 3 * np.eye(d)[None])
    theta = np.concatenate([ball, tail], axis=1)
    region = around(now, theta, np.ones((1, 405), dtype=bool), cut, radius)
    assert (region.norm(theta) <= radius).all()
    half = np.sqrt(cut) / np.linalg.norm(region.factor[0], axis=0)
    along, across = half.max(), np.sort(half)[:-1]
    # Around a ball of radius 1 and a point at 6, the best half axis along is at least 3.5.
    assert 3.3 < along < 7.0
    assert (across < 2.2).all()
    # The control: a covariance, widened alike in all directions until it holds the tail.
    mean = theta[0].mean(axis=0)
    whiten = np.linalg.inv(np.linalg.cholesky(np.atleast_2d(np.cov(theta[0].T)) * (d + 2) / cut))
    farthest = np.linalg.norm((theta[0] - mean) @ whiten.T, axis=1).max()
    if d > 1:
        wide = np.sqrt(np.linalg.eigvalsh(np.atleast_2d(np.cov(theta[0].T)) * (d + 2)))
        assert (wide * max(1.0, 1.15 * farthest / radius))[0] > 1.3 * across.min()
