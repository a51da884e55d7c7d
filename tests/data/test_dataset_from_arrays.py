"""`ks.dataset`: rows that a user already has."""

from dataclasses import replace

import numpy as np
import pytest
from training_helpers import SHORT, Tiny, toy_data, weights_equal

import keepscore as ks
from keepscore.errors import DomainError, DtypeError, NonFiniteError, ShapeError, UnknownNameError


@pytest.mark.parametrize("as_", [np.asarray, np.float32, lambda a: np.asarray(a).tolist()])
def test_arrays_train_as_simulated_ones_do(as_):
    theirs = toy_data()
    theta, x, score = (np.float32(a).astype(np.float64) for a in theirs.rows(np.arange(400)))
    ours = ks.dataset(as_(theta), as_(x), as_(score), space=theirs.space)
    assert (ours.score_kind, ours.x_shape, len(ours)) == ("exact", (4,), 400)
    same = replace(theirs, theta=theta, x=x, score=score)
    trained = (ks.train(data, None, Tiny, ks.ASA(update_every=4), SHORT) for data in (ours, same))
    assert weights_equal(*trained)


@pytest.mark.parametrize("d", [1, 2, 6])
def test_whole_numbers_lists_and_no_score(d):
    space = ks.Space([ks.Parameter(f"p{k}", -2, 2, "identity") for k in range(d)])
    made = ks.dataset([[1] * d, [-1] * d], [[3], [4]], space=space, name="counts")
    assert made.theta.dtype == np.float64
    assert made.x.dtype.kind == "i"
    assert made.score is None
    assert made.score_kind is None
    assert "counts" in repr(made)
    joint = ks.dataset([[0] * d], [[3]], [[1] * d], space=space, score_kind="joint")
    assert joint.score_kind == "joint"


def test_what_does_not_fit_is_named():
    space = ks.Space([ks.Parameter("a", 1, 2, "log")])
    with pytest.raises(DomainError, match=r"1 of 2 theta .* row 1, \[3\.0\].*to_working"):
        ks.dataset([[1.5], [3.0]], [[0.0], [0.0]], space=space)
    with pytest.raises(ShapeError):
        ks.dataset([1.5, 1.6], [[0.0], [0.0]], space=space)
    with pytest.raises(ShapeError, match="as many rows"):
        ks.dataset([[1.5]], [[0.0], [0.0]], space=space)
    with pytest.raises(NonFiniteError, match="x must be finite"):
        ks.dataset([[1.5]], [[np.nan]], space=space)
    with pytest.raises(DtypeError):
        ks.dataset([[1.5]], [["text"]], space=space)
    with pytest.raises(DtypeError, match="space"):
        ks.dataset([[1.5]], [[0.0]], space={"a": (1, 2)})
    with pytest.raises(UnknownNameError, match="exact"):
        ks.dataset([[1.5]], [[0.0]], [[0.0]], space=space, score_kind="exakt")


PLANE = 7 + np.add.outer(2 * np.arange(4.0), -np.arange(5.0))


@pytest.fixture(scope="module")
def fields():
    """A model with a linear trend, and simulations of it, which have none left."""
    model = ks.models.GaussianField(shape=(4, 5), trend="linear")
    return model, ks.simulate(model, 40, seed=3, jobs=1)


@pytest.mark.parametrize("as_", [np.float64, np.float32])
def test_a_trend_is_taken_off_and_declared(fields, as_):
    """Rows with the mean in them become those that the model of the same trend simulates."""
    model, theirs = fields
    x = as_(np.asarray(theirs.x) + PLANE)
    ours = ks.dataset(theirs.theta, x, theirs.score, space=model.space, trend="linear")
    assert ours.trend == model.trend
    assert ours.x.dtype == as_
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-5)
    without = ks.dataset(theirs.theta, x, theirs.score, space=model.space)
    assert without.trend is None
    assert np.abs(np.asarray(without.x) - np.asarray(theirs.x)).max() > 1  # a control
    for same in (model.trend, np.moveaxis(np.indices((4, 5)), 0, -1)):
        other = ks.dataset(theirs.theta, x, space=model.space, trend=same)
        np.testing.assert_array_equal(ours.x, other.x)


def test_holes_whole_numbers_and_bad_trends_of_arrays(fields):
    model, theirs = fields
    counts = np.rint(10 * np.asarray(theirs.x) + PLANE).astype(np.int32)
    made = ks.dataset(theirs.theta, counts, space=model.space, trend="linear")
    assert made.x.dtype == np.float64
    np.testing.assert_allclose((np.asarray(made.x) * PLANE).sum(axis=(1, 2)), 0, atol=1e-9)
    x = np.asarray(theirs.x) + PLANE
    x[:, 0, 1] = np.nan
    made = ks.dataset(theirs.theta, x, space=model.space, missing=True, trend="constant")
    np.testing.assert_array_equal(np.isnan(made.x), np.isnan(x))
    np.testing.assert_allclose(np.nanmean(made.x, axis=(1, 2)), 0, atol=1e-12)
    x[3, 1, 1] = np.inf  # an error, not a hole
    with pytest.raises(NonFiniteError):
        ks.dataset(theirs.theta, x, space=model.space, missing=True, trend="constant")
    for wrong, error in (("lineal", UnknownNameError), (np.ones((5, 4)), ShapeError)):
        with pytest.raises(error, match="trend"):
            ks.dataset(theirs.theta, theirs.x, space=model.space, trend=wrong)
