"""Cuts that a wrong surrogate would make: held back before, and found and undone after."""

from types import SimpleNamespace

import numpy as np
import pytest
from test_focus import likelihood, ring

import keepscore as ks
from keepscore.fitting import focus as focus_module
from keepscore.fitting.focus import focus
from keepscore.fitting.truncation import (
    MOST_DROP,
    Region,
    faces_cut,
    needed_drop,
    reopened,
    shrunken,
    usual_drop,
)
from keepscore.likelihood import Likelihood
from keepscore.models.base import Symmetry


def normals(d, dtype=np.float64):
    """x ~ N(theta, .1^2), each entry by itself."""
    space = ks.Space([ks.Parameter(f"t{k}", -1, 1, "identity", train_margin=0.0) for k in range(d)])

    def simulate(theta, rng):
        return (theta + 0.1 * rng.standard_normal(theta.shape)).astype(dtype)

    def log_prob(theta, x):
        return -0.5 * (((x - theta) / 0.1) ** 2).sum(axis=1)

    return ks.models.from_functions(
        space, (d,), simulate=simulate, log_prob=log_prob,
        score=lambda theta, x: (x - theta) / 0.1**2, x_dtype=dtype, name="normals",
    )  # fmt: skip


def knows(model, change):
    """A surrogate whose likelihood is the exact one of changed data."""
    return SimpleNamespace(given=lambda xs: model.given(change(np.asarray(xs))))


@pytest.mark.parametrize("d", [1, 2, 6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_right_surrogate_needs_no_larger_drop(d, dtype):
    """100 rows at a level of 1e-4: one seed in a hundred would need more, and this one does not.
    Controls: an error of two standard errors is covered by c; one of ten (50 in l, but for noise
    and the sides of the box) is not, and ten observations may err ten times as much."""
    model = normals(d, dtype)
    data, usual = ks.simulate(model, 300, seed=5, jobs=1), usual_drop(d)
    held = np.arange(0, 300, 3)

    def needed(error, observations=1):
        surrogate = knows(model, lambda x: x + np.array(error * np.eye(d)[0], x.dtype))
        return needed_drop(surrogate, data, held, observations, usual)

    assert needed(0.0) == needed(0.2) == usual
    assert 40 < needed(1.0) < 90
    assert needed(1.0, 10) - usual == pytest.approx(10 * (needed(1.0) - usual))


def test_what_is_called_impossible_cuts_nothing():
    model = normals(1)
    data = ks.simulate(model, 50, seed=5, jobs=1)

    def given(xs):
        exact = model.given(xs)

        def pairs(theta, group):
            near = np.abs(theta[:, 0] - np.asarray(xs)[group, 0, 0]) < 0.1
            return np.where(near, 0.0, -np.inf)

        return Likelihood(
            exact.space, exact.group_count, 1, pairs,
            lambda theta, group: (pairs(theta, group), np.zeros_like(theta)),
            lambda theta: np.stack([pairs(theta, np.full(len(theta), g)) for g in range(len(xs))]),
        )  # fmt: skip

    assert needed_drop(SimpleNamespace(given=given), data, np.arange(50), 1, 12.0) == MOST_DROP


def bell(centre, sd=0.1):
    return lambda theta, _: -0.5 * (((theta - np.asarray(centre)) / sd) ** 2).sum(axis=1)


def box(model, lower, upper):
    return shrunken(model, model.space, np.array([lower, upper], dtype=float))


@pytest.mark.parametrize("d", [1, 2, 6])
def test_a_cut_through_the_likelihood_is_found(d):
    """The maximum lies beyond the lower side of the first parameter; all other sides are far."""
    model = normals(d)
    cut = box(model, [0.0] + [-0.9] * (d - 1), [0.9] * d)
    faces = faces_cut(model, likelihood(bell([-0.3] + [0.0] * (d - 1)), cut))
    assert faces[0].tolist() == [True, False]
    assert not faces[1:].any()
    # Controls: the maximum well inside, and a side that is the model's own.
    assert not faces_cut(model, likelihood(bell([0.5] + [0.0] * (d - 1)), cut)).any()
    assert not faces_cut(model, likelihood(bell([-1.0] * d), model.space)).any()


def test_a_cut_is_undone_no_further_than_needed():
    model = normals(2)
    boxes = [model.space, box(model, [-0.7, -0.7], [0.7, 0.7]), box(model, [0, 0], [0.4, 0.4])]
    faces = np.array([[True, False], [False, False]])
    once = reopened(model, boxes, faces)
    assert once.lower.tolist() == [boxes[1].lower[0], boxes[2].lower[1]]
    np.testing.assert_array_equal(once.upper, boxes[2].upper)
    twice = reopened(model, [*boxes, once], faces)
    assert twice.lower.tolist() == [-1.0, boxes[2].lower[1]]


def test_images_of_a_side_are_opened_with_it():
    model = ring(declares=(Symmetry("mirrored", np.arange(5), (0, 1), 1, (-1, 1)),))
    boxes = [model.space, box(model, [-0.5, 0.1], [0.5, 0.9])]
    wider = reopened(model, boxes, np.array([[True, False], [False, False]]))
    assert wider.lower[0] == -1.0
    assert wider.upper[0] == 1.0
    np.testing.assert_array_equal(wider.lower[1:], boxes[1].lower[1:])


def test_a_posterior_that_was_cut_away_is_found_again(monkeypatch, tmp_path):
    """The first round points to the wrong half of the box. The result has the right one: the
    estimate is within .2 of the data's mean (its standard error is .03; the network's own error
    is what counts)."""
    model = normals(1)
    xs = model.simulate(np.full((10, 1), -0.6), np.random.default_rng(0))
    wrong = np.linspace(0.2, 0.9, 1000)[:, None]
    real = focus_module.find_region
    monkeypatch.setattr(
        focus_module,
        "find_region",
        lambda like, c, count, *more: (
            Region(wrong[:count], 0.1, c) if like.space == model.space
            else real(like, c, count, *more)
        ),
    )  # fmt: skip
    config = ks.TrainConfig(batch_size=32, min_epochs=30, max_epochs=30)
    settings = {"n": 800, "rounds": 2, "network": "residual-5k", "config": config, "jobs": 1}
    found = focus(model, xs, path=tmp_path / "cut", **settings)
    rounds = found.provenance["focus"]["rounds"]
    assert [r["reopened"] for r in rounds] == [0, 1]
    assert found.space.lower[0] == -1.0
    assert abs(ks.mle(found.given(xs)).estimate[0] - xs.mean()) < 0.2
    again = focus(model, xs, path=tmp_path / "cut", **settings)
    theta = found.space.draw(5, np.random.default_rng(0))
    np.testing.assert_array_equal(again.given(xs)(theta), found.given(xs)(theta))


def test_a_drop_that_is_named_is_kept(monkeypatch):
    """And without one it is what held-out rows need."""
    model = normals(1)
    xs = model.simulate(np.full((1, 1), 0.5), np.random.default_rng(0))
    monkeypatch.setattr(focus_module, "needed_drop", lambda *given: 40.0)
    config = ks.TrainConfig(max_epochs=2, guard=False)
    settings = {"n": 256, "rounds": 2, "network": "residual-5k", "config": config, "jobs": 1}
    for drop, expected in ((7.0, 7.0), (None, 40.0)):
        record = focus(model, xs, drop=drop, **settings).provenance["focus"]["rounds"]
        assert record[1]["drop"] == expected
