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
