"""Nothing of the user's is cast behind their back, and nothing of ours is changed by their code."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from toys import GaussianToy

import keepscore as ks
from keepscore.checks import as_declared
from keepscore.data import Dataset
from keepscore.data.plan import make_plan
from keepscore.errors import (
    DomainError,
    DtypeError,
    KeepscoreError,
    MissingError,
    NonFiniteError,
    ShapeError,
    SimulationError,
    UnknownNameError,
)

TOY = GaussianToy(3)


def model(simulate=TOY.simulate, **settings):
    return ks.models.from_functions(TOY.space, (3,), simulate=simulate, **settings)


def constant(value, dtype=None):
    """A simulator that returns this value in the second row, zeros elsewhere."""

    def simulate(theta, rng):
        x = np.zeros((len(theta), 3), np.asarray(value).dtype if dtype is None else dtype)
        x[1, 2] = value
        return x

    return simulate


WIDE = np.iinfo(np.int64)
CHANGED = [  # value, dtype of the array returned, declared dtype
    (300, np.int64, np.uint8),
    (-1, np.int64, np.uint8),
    (-1, np.int8, np.uint64),
    (2**63, np.uint64, np.int64),
    (0.5, np.float64, np.uint8),
    (256.0, np.float32, np.uint8),
    (np.nan, np.float64, np.int32),
    (np.inf, np.float64, np.int32),
    (2.0**63, np.float64, np.int64),
    (2.0**64, np.float64, np.uint64),
    (-0.5, np.float64, np.uint64),
    (2, np.int64, bool),
    (0.5, np.float64, bool),
    (np.nan, np.float64, bool),
    (1e300, np.float64, np.float32),
    (70000.0, np.float64, np.float16),
    (2**53 + 1, np.int64, np.float64),
    (WIDE.max, np.int64, np.float64),
    (2**24 + 1, np.int32, np.float32),
    (70000, np.int32, np.float16),
    (1 + 2j, complex, np.float64),
    (1 + 0j, complex, np.float64),
    ("7", "U4", np.float64),
    (b"7", "S4", np.float64),
    (7, object, np.float64),
    (np.datetime64(7, "D"), "M8[D]", np.float64),
]
KEPT = [
    (255, np.int64, np.uint8),
    (255.0, np.float64, np.uint8),
    (-(2**31), np.int64, np.int32),
    (-(2.0**63), np.float64, np.int64),
    (2**64 - 1, np.uint64, np.uint64),
    (1, np.int64, bool),
    (True, bool, np.uint8),
    (True, bool, np.float32),
    (2**53, np.int64, np.float64),
    (WIDE.min, np.int64, np.float64),
    (np.nan, np.float64, np.float32),
    (-np.inf, np.float64, np.float16),
    (0.1, np.float32, np.float64),
]


@pytest.mark.parametrize(("value", "returned", "declared"), CHANGED)
def test_a_cast_that_changes_a_value_is_refused(value, returned, declared):
    faulty = model(constant(value, returned), x_dtype=declared)
    with pytest.raises(DtypeError, match="simulate of 'custom'") as caught:
        faulty.simulate(np.zeros((4, 2)), np.random.default_rng(0))
    said = str(caught.value)
    assert str(np.dtype(returned)) in said
    if np.dtype(returned).kind in "biuf":
        assert "(1, 2)" in said
        assert str(np.asarray(value, returned)) in said
        assert str(np.dtype(declared)) in said
    with pytest.raises(SimulationError):
        ks.simulate(faulty, 100, jobs=1)


@pytest.mark.parametrize(("value", "returned", "declared"), KEPT)
def test_a_cast_that_keeps_every_value_is_fine(value, returned, declared):
    x = model(constant(value, returned), x_dtype=declared).simulate(
        np.zeros((4, 2)), np.random.default_rng(0)
    )
    assert x.dtype == declared
    np.testing.assert_array_equal(x[1, 2], np.asarray(value, returned).astype(declared))


def test_rounding_to_a_shorter_float_is_fine():
    x = model(constant(0.1), x_dtype=np.float32).simulate(np.zeros((4, 2)), None)
    assert x[1, 2] == np.float32(0.1)


def test_models_of_ones_own_class_meet_the_same_check():
    class Bytes(GaussianToy):
        x_dtype = np.dtype(np.uint8)

        def simulate_with_score(self, theta, rng):
            return np.full((len(theta), 4), 300), np.zeros((len(theta), 2))

    with pytest.raises(SimulationError, match=r"int64 .*uint8 cannot hold.*first 300"):
        ks.simulate(Bytes(), 100, jobs=1)


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (lambda t, x: np.zeros(len(t), complex), DtypeError),
        (lambda t, x: np.array(["0"] * len(t)), DtypeError),
        (lambda t, x: np.array([None] * len(t)), DtypeError),
        (lambda t, x: np.zeros((len(t), 1)), ShapeError),
        (lambda t, x: 0.0, ShapeError),
        (lambda t, x: None, DtypeError),
        (lambda t, x: [[0.0], [0.0, 1.0]], ShapeError),
        (lambda t, x: np.ma.masked_array(np.zeros(len(t)), [True] * len(t)), DtypeError),
        (lambda t, x: {}, DtypeError),
    ],
)
def test_log_prob_and_score_of_the_wrong_kind_are_refused(returned, error):
    theta, x = np.zeros((4, 2)), np.zeros((4, 3))
    with pytest.raises(error, match="log_prob of 'custom'"):
        model(log_prob=returned, score=TOY.score).log_prob(theta, x)
    if error is DtypeError:
        with pytest.raises(error, match="score of 'custom'"):
            model(log_prob=TOY.log_prob, score=returned).score(theta, x)
    with pytest.raises(KeepscoreError):  # by central differences, at once
        model(log_prob=returned)


def test_joint_scores_come_as_a_pair():
    theta, rng = np.zeros((4, 2)), np.random.default_rng(0)
    for wrong in (lambda t, rng: np.zeros((len(t), 3)), lambda t, rng: (1, 2, 3)):
        with pytest.raises(ShapeError, match=r"\(x, joint score\)"):
            model(simulate_with_joint_score=wrong).simulate_with_score(theta, rng)

    def imaginary(t, rng):
        return np.zeros((len(t), 3)), np.zeros((len(t), 2), complex)

    with pytest.raises(DtypeError, match="joint_score"):
        model(simulate_with_joint_score=imaginary).simulate_with_score(theta, rng)


BUILT_IN = {
    "SIS": lambda: ks.models.SIS(times=(0, 1, 2)),
    "GaussianField": lambda: ks.models.GaussianField(shape=(3, 3)),
    "StudentTField": lambda: ks.models.StudentTField(shape=(3, 3)),
    "functions": lambda: model(log_prob=TOY.log_prob, score=TOY.score),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_users_give_is_the_same_in_any_form_or_refused(name):
    built = BUILT_IN[name]()
    rng = np.random.default_rng(0)
    theta = np.round(built.space.uniform(4, rng))
    x = np.round(built.simulate(theta, rng))
    expected, slope = built.log_prob(theta, x), built.score(theta, x)
    like = built.given(x.copy())(theta)
    forms = [np.float32, np.int64, list, np.asfortranarray, lambda v: _read_only(v)]
    for form in forms:
        other = [
            v.astype(form)
            if isinstance(form, type) and form is not list
            else v.tolist()
            if form is list
            else form(v)
            for v in (theta, x)
        ]
        np.testing.assert_array_equal(built.log_prob(*other), expected)
        np.testing.assert_array_equal(built.score(*other), slope)
        np.testing.assert_array_equal(built.given(other[1])(other[0]), like)
    for wrong in (
        theta.astype(complex),
        theta.astype(str),
        theta.astype(object),
        [[0.0], [0.0, 1.0]],
        np.ma.masked_array(theta, theta == theta),
    ):
        for call in (lambda w: built.log_prob(w, x), lambda w: built.score(w, x)):
            with pytest.raises(KeepscoreError):
                call(wrong)
        with pytest.raises(KeepscoreError):
            built.simulate(wrong, rng)
    for wrong in (x.astype(complex), x.astype(str), x.astype(object), [[1], [2, 3]]):
        for call in (lambda w: built.log_prob(theta, w), lambda w: built.score(theta, w)):
            with pytest.raises(KeepscoreError):
                call(wrong)
    for wrong in (x.astype(complex), x.astype(str), x.astype(object)):
        with pytest.raises(KeepscoreError):
            built.given(wrong)


def _read_only(values):
    values = values.copy()
    values.flags.writeable = False
    return values


# --- code that works in place ---------------------------------------------------------------------


def in_place_simulate(theta, rng):
    x = theta[:, :1] + rng.standard_normal((len(theta), 3))
    np.exp(theta, out=theta)
    return x


def in_place_log_prob(theta, x):
    x -= theta[:, :1]
    theta += 7.0
    return -0.5 * np.square(x).sum(axis=1)


def in_place_score(theta, x):
    x -= theta[:, :1]
    score = np.stack([x.sum(axis=1), np.zeros(len(x))], axis=1)
    x[:] = -99.0
    theta[:] = 99.0
    return score


def in_place_joint(theta, rng):
    x = in_place_simulate(theta, rng)
    theta[:] = 0.0
    return x, np.zeros((len(x), 2))


@pytest.mark.parametrize("kind", ["score", "differences", "joint", "none"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_code_that_works_in_place_cannot_reach_stored_data(tmp_path, kind, on_disk):
    parts = {
        "score": {"log_prob": in_place_log_prob, "score": in_place_score},
        "differences": {"log_prob": in_place_log_prob},
        "joint": {"simulate_with_joint_score": in_place_joint},
        "none": {},
    }[kind]
    if kind == "differences":
        with pytest.warns(ks.errors.KeepscoreWarning):
            rude = model(in_place_simulate, **parts)
    else:
        rude = model(in_place_simulate, **parts)
    polite = model(lambda theta, rng: in_place_simulate(theta.copy(), rng))
    data = ks.simulate(rude, 100, path=tmp_path if on_disk else None, jobs=1)
    expected = ks.simulate(polite, 100, jobs=1)
    plan = make_plan(rude, 100, 0, "train", True, "raise")
    np.testing.assert_array_equal(data.theta, np.concatenate([plan.thetas(0), plan.thetas(1)]))
    np.testing.assert_array_equal(data.x, expected.x)
    if kind in ("score", "differences"):
        right = (expected.x - expected.theta[:, :1]).sum(axis=1)
        np.testing.assert_allclose(np.asarray(data.score)[:, 0], right, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(np.asarray(data.score)[:, 1], 0.0, atol=1e-7)


def test_arguments_of_the_caller_stay_as_they_are():
    rude = model(in_place_simulate, log_prob=in_place_log_prob, score=in_place_score)
    rng = np.random.default_rng(0)
    theta, x = np.full((4, 2), 0.5), np.ones((4, 3))
    rude.simulate(theta, rng)
    first = rude.log_prob(theta, x), rude.score(theta, x)
    rude.score_error(theta, x)
    like = rude.given(x)
    values = like(theta), like.gradient(theta)
    assert (theta == 0.5).all()
    assert (x == 1.0).all()
    for a, b in zip(first, (rude.log_prob(theta, x), rude.score(theta, x)), strict=True):
        np.testing.assert_array_equal(a, b)
    x[:] = 50.0  # the caller goes on with its own array
    np.testing.assert_array_equal(like(theta), values[0])
    np.testing.assert_array_equal(like.gradient(theta), values[1])


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_likelihood_keeps_the_data_it_was_given(name):
    built = BUILT_IN[name]()
    rng = np.random.default_rng(1)
    theta = built.space.uniform(3, rng)
    xs = built.simulate(theta, rng)
    like = built.given(xs)
    before = like(theta)
    xs[:] = 1 - xs
    np.testing.assert_array_equal(like(theta), before)


def test_a_simulator_that_reuses_its_buffer_is_stored_right():
    buffer = np.zeros((64, 3))

    def simulate(theta, rng):
        buffer[: len(theta)] = rng.standard_normal((len(theta), 3))
        return buffer[: len(theta)]

    made = model(simulate)
    first = made.simulate(np.zeros((4, 2)), np.random.default_rng(0))
    kept = first.copy()
    made.simulate(np.zeros((4, 2)), np.random.default_rng(1))
    np.testing.assert_array_equal(first, kept)


# --- data sets of one's own arrays ----------------------------------------------------------------


def arrays(n=5):
    rng = np.random.default_rng(0)
    return {"theta": rng.random((n, 2)), "x": rng.random((n, 3)), "score": rng.random((n, 2))}


def dataset(**changes):
    fields = {**arrays(), "space": TOY.space, "score_kind": "exact", **changes}
    return Dataset(**fields)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"theta": np.zeros((5, 2), complex)}, DtypeError),
        ({"theta": [["a", "b"]] * 5}, DtypeError),
        ({"theta": [[1.0], [2.0, 3.0]]}, ShapeError),
        ({"theta": None}, DtypeError),
        ({"theta": 3.0}, ShapeError),
        ({"theta": np.full((5, 2), np.nan)}, NonFiniteError),
        ({"x": np.zeros((5, 3), complex)}, DtypeError),
        ({"x": None}, DtypeError),
        ({"x": np.full((5, 3), np.inf)}, NonFiniteError),
        ({"x": np.ma.masked_array(np.zeros((5, 3)), np.eye(5, 3) == 1)}, DtypeError),
        ({"score": np.full((5, 2), np.nan)}, NonFiniteError),
        ({"score": np.zeros((5, 2), object)}, DtypeError),
        ({"score_kind": "excat"}, UnknownNameError),
        ({"score_kind": None}, MissingError),
        ({"space": None}, DtypeError),
        ({"provenance": []}, DtypeError),
    ],
)
def test_data_sets_of_wrong_arrays_are_refused(changes, error):
    with pytest.raises(error):
        dataset(**changes)


def test_data_sets_take_whole_numbers_float32_and_lists():
    plain = dataset(theta=np.ones((5, 2)), score=np.ones((5, 2)))
    for form in (lambda v: v.astype(int), lambda v: v.astype(np.float32), lambda v: v.tolist()):
        other = dataset(theta=form(np.ones((5, 2))), score=form(np.ones((5, 2))))
        assert other.theta.dtype == other.score.dtype == np.float64
        assert other.fingerprint() == plain.fingerprint()


def test_data_sets_do_not_change_with_the_arrays_they_were_made_of():
    given = arrays()
    data = dataset(**given)
    before, kept = data.fingerprint(), {k: v.copy() for k, v in given.items()}
    view = given["x"][:]
    view.flags.writeable = False
    through = dataset(x=view)
    for array in given.values():
        array[:] = 7.0
    assert (through.x != 7.0).all()
    for name, values in kept.items():
        np.testing.assert_array_equal(getattr(data, name), values)
    assert data.fingerprint() == before
    with pytest.raises(ValueError, match="read-only"):
        data.x[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        ks.simulate(TOY, 100, jobs=1).theta[0] = 1.0


def test_what_is_fixed_already_is_not_copied():
    data = ks.simulate(TOY, 100, jobs=1)
    assert dataclasses.replace(data).x is data.x
    assert data.take(10).x.base is data.x
    assert np.shares_memory(data.in_memory().x, data.x)


def test_a_file_mapped_by_the_caller_stays_one(tmp_path):
    np.save(tmp_path / "x.npy", arrays()["x"])
    data = dataset(x=np.load(tmp_path / "x.npy", mmap_mode="r+"))
    assert isinstance(data.x, np.memmap)
    before = data.fingerprint()
    assert before == dataset().fingerprint()
    data.x[0, 0] = 3.0
    assert data.fingerprint() != before


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": "red\x1b[31m"}, DomainError),
        ({"name": "two\nlines"}, DomainError),
        ({"name": ""}, DomainError),
        ({"name": None}, DomainError),
        ({"x_shape": 3}, ShapeError),
        ({"x_shape": (2.5,)}, DtypeError),
        ({"x_shape": (-1,)}, DomainError),
        ({"x_shape": None}, ShapeError),
        ({"x_dtype": "colour"}, DtypeError),
        ({"x_dtype": complex}, DtypeError),
        ({"x_dtype": object}, DtypeError),
        ({"simulate": None}, DtypeError),
        ({"log_prob": 3}, DtypeError),
        ({"space": None}, DtypeError),
        ({"declares": "markov"}, DtypeError),
        ({"declares": ["markow"]}, UnknownNameError),
        ({"declares": [3]}, UnknownNameError),
        ({"declares": ["markov", "gaussian-field"]}, DtypeError),
    ],
)
def test_wrong_parts_of_a_model_are_typed_errors(changes, error):
    parts = {"space": TOY.space, "x_shape": (3,), "simulate": TOY.simulate, **changes}
    with pytest.raises(error):
        ks.models.from_functions(**parts)


def test_as_declared_gives_a_copy():
    array = np.zeros((2, 2))
    assert not np.shares_memory(as_declared(array, (2, 2), array.dtype, "f"), array)
