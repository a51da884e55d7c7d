"""Where exact values are asked for: clouds in sets, and places that groups share."""

from __future__ import annotations

import numpy as np
import pytest
from likelihoods import FastToy, bent, toy_groups

import keepscore as ks
from keepscore.inference.placement import (
    cloud_of,
    lattice_steps,
    least_sure,
    on_lattice,
    spread,
)
from keepscore.numerics.space_filling import fill_ball


@pytest.mark.parametrize("d", [1, 2, 6])
def test_a_cloud_fills_the_ellipsoid_and_stays_in_the_box(d):
    rng = np.random.default_rng(d)
    factor = np.linalg.cholesky(np.eye(d) * 30 + 5 + np.diag(rng.uniform(0, 9, d)))[None]
    centre = rng.uniform(-0.3, 0.3, (1, d))
    unit, radius = fill_ball(200, d), 3.0
    cloud = cloud_of(centre, factor, radius, unit, np.full(d, -9.0), np.full(d, 9.0))
    s = np.einsum("gji,gmj->gmi", factor, cloud - centre[:, None])
    np.testing.assert_allclose(s[0], radius * unit, atol=1e-9)
    cut = cloud_of(centre, factor, radius, unit, np.full(d, -0.1), np.full(d, 0.1))
    assert (np.abs(cut) <= 0.1).all()


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_a_lattice_has_about_three_points_in_a_set_per_place(d):
    curvature = np.eye(d)[None] * np.array([4.0, 5.0, 400.0])[:, None, None]
    steps = lattice_steps(curvature, 4.0, 20)
    np.testing.assert_array_equal(steps[0], steps[1])  # sets of about one size share a lattice
    assert (steps[2] < 0.2 * steps[0]).all()  # a small set has a finer one
    doublings = np.log2(steps[0] / steps[2])
    np.testing.assert_allclose(doublings, np.round(doublings))  # ... which holds the coarse one
    ball = fill_ball(20_000, d) * 4.0 / np.sqrt(4.0)
    edge = np.full(d, 50.0)
    points = np.unique(on_lattice(ball[None], steps[:1], -edge, edge)[0], axis=0)
    near = (points**2).sum(axis=1) <= 4.0
    assert 25 <= near.sum() <= 150


def test_first_places_are_the_middle_and_far_apart():
    cloud = 3.0 * fill_ball(200, 2)[None]
    chosen = spread(cloud, cloud, np.ones(200), 3.0, 6)[0]
    size = np.linalg.norm(cloud[0], axis=1)
    assert size[chosen[0]] == size.min()
    assert (size[chosen] <= 0.8 * 3.0).all()
    gaps = np.linalg.norm(cloud[0, chosen][:, None] - cloud[0, chosen], axis=2)
    assert gaps[np.triu_indices(6, 1)].min() > 1.5


def test_next_places_are_the_least_sure_and_never_one_twice():
    cloud = 3.0 * fill_ball(200, 2)[None]
    score = np.exp(-((cloud - [2.0, 0.0]) ** 2).sum(axis=2))
    chosen = least_sure(cloud, cloud, score, np.array([1.0]), 5)[0]
    assert score[0, chosen[0]] == score.max()
    assert len(set(chosen.tolist())) == 5


def test_groups_choose_what_others_chose():
    """Two groups, nearly the same scores: the second takes what the first took."""
    cloud = np.tile(3.0 * fill_ball(60, 2), (2, 1, 1))
    rng = np.random.default_rng(0)
    score = 1 + 0.2 * rng.random((2, 60))
    together = least_sure(cloud, cloud, score, np.full(2, 0.5), 4)
    alone = least_sure(cloud[1:], cloud[1:], score[1:], np.full(1, 0.5), 4)[0]
    assert set(together[0]) == set(together[1])
    assert set(together[0]) != set(alone)


def test_groups_share_theta_and_one_group_alone_does_not_need_to():
    _, _, x = toy_groups(24, seed=1)
    exact = FastToy().given(x)
    refined = ks.refine(bent(exact), exact, evaluations=16, tolerance=1e-3)
    points = np.concatenate(refined.refinement.points)
    assert len(np.unique(points, axis=0)) < 0.6 * len(points)
    one = ks.refine(bent(exact[0]), exact[0], evaluations=16, tolerance=1e-3)
    top = ks.mle(bent(exact[0])).estimate
    assert np.abs(one.refinement.points[0][0] - top).max() < 0.1  # the middle of its set
