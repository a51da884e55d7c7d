"""Surrogates: cached features give the same numbers, and folders are safe to load."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from toys import GaussianToy
from training_helpers import SHORT, Tiny, toy_data, weights_equal

import keepscore as ks
from keepscore import networks
from keepscore.errors import (
    DomainError,
    DtypeError,
    FormatError,
    MissingError,
    NonFiniteError,
    ShapeError,
    StorageError,
)
from keepscore.files import read_sealed, sha256, write_sealed
from keepscore.losses import BCE
from keepscore.networks import evaluator
from keepscore.networks.safetensors_io import to_tensors
from keepscore.surrogate import FORMAT, VERSION

MODEL = GaussianToy(4)


def make(seed=0, members=1, network="1k"):
    """Untrained networks are as good as any other for these questions."""
    key = jax.random.key(seed)
    many = [
        networks.resolve(network, (4,), 2, None, jax.random.key(seed + m)) for m in range(members)
    ]
    if members == 1:
        many = [networks.standardise(many[0], toy_data().x, *MODEL.space.box("train"))]
        return ks.Surrogate(many[0], MODEL.space, (4,), provenance={"key": str(key)})
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *many)
    return ks.Surrogate(stacked, MODEL.space, (4,), members)


@pytest.fixture(scope="module", params=[1, 2])
def surrogate(request):
    return make(members=request.param)


def pairs(n, seed=0):
    rng = np.random.default_rng(seed)
    theta = MODEL.space.uniform(n, rng)
    return theta, MODEL.simulate(theta, rng)


def test_given_equals_sums_of_log_ratios(surrogate):
    x = pairs(15)[1]
    xs = x.reshape(3, 5, 4)
    like = surrogate.given(xs)
    assert (like.kind, like.group_count, like.group_size, like.single) == ("surrogate", 3, 5, False)
    grid = pairs(7, seed=1)[0]
    expected = np.array(
        [[surrogate.log_ratio(np.tile(t, (5, 1)), group).sum() for t in grid] for group in xs]
    )
    np.testing.assert_allclose(like(grid), expected, atol=1e-5)
    np.testing.assert_allclose(like.paired(grid[:3]), np.diag(expected[:, :3]), atol=1e-5)
    one = surrogate.given(xs[0])
    assert one.single
    assert one(grid[0]) == pytest.approx(expected[0, 0], abs=1e-5)


def test_gradients_are_those_of_the_values(surrogate):
    theta, x = pairs(6)
    step = 1e-2
    differences = np.stack(
        [
            (surrogate.log_ratio(theta + step * e, x) - surrogate.log_ratio(theta - step * e, x))
            / (2 * step)
            for e in np.eye(2)
        ],
        axis=1,
    )
    score = surrogate.score(theta, x)
    np.testing.assert_allclose(score, differences, atol=2e-3)
    assert np.abs(score).max() > 0.01
    like = surrogate.given(x.reshape(2, 3, 4))
    value, gradient = like.pairs_gradient(theta[:2], np.array([1, 0]))
    expected = [
        surrogate.score(np.tile(theta[i], (3, 1)), x[3 * (1 - i) :][:3]).sum(0) for i in (0, 1)
    ]
    np.testing.assert_allclose(gradient, expected, atol=1e-5)
    np.testing.assert_allclose(value, like.pairs(theta[:2], np.array([1, 0])), atol=1e-5)


def test_pieces_and_padding_do_not_show(surrogate, monkeypatch):
    theta, x = pairs(23)
    whole = surrogate.log_ratio(theta, x), surrogate.score(theta, x)
    surface = surrogate.given(x)(theta), surrogate.given(x[:20].reshape(4, 5, 4))(theta)
    monkeypatch.setattr(evaluator, "HEAD_ROWS", 8)
    monkeypatch.setattr(evaluator, "X_ROWS", 4)
    np.testing.assert_allclose(surrogate.log_ratio(theta, x), whole[0], atol=1e-5)
    np.testing.assert_allclose(surrogate.score(theta, x), whole[1], atol=1e-5)
    np.testing.assert_allclose(surrogate.given(x)(theta), surface[0], atol=1e-4)
    again = surrogate.given(x[:20].reshape(4, 5, 4))(theta)
    np.testing.assert_allclose(again, surface[1], atol=1e-4)


def test_empty_batches_give_empty_arrays(surrogate):
    assert surrogate.log_ratio(np.empty((0, 2)), np.empty((0, 4))).shape == (0,)
    assert surrogate.score(np.empty((0, 2)), np.empty((0, 4))).shape == (0, 2)


def test_observations_are_embedded_once(monkeypatch):
    embed, calls = evaluator._features, []

    def counted(*arguments):
        calls.append(arguments)
        return embed(*arguments)

    monkeypatch.setattr(evaluator, "_features", counted)
    like = make().given(pairs(10)[1])
    assert len(calls) == 1
    like(pairs(300)[0])
    like.gradient(pairs(3)[0])
    assert len(calls) == 1


def test_samplers_can_trace_it(surrogate):
    theta, x = pairs(6)
    like = surrogate.given(x.reshape(2, 3, 4))
    value, gradient = jax.jit(jax.value_and_grad(lambda t: like.traceable(t, 1)))(
        jnp.asarray(theta[0], jnp.float32)
    )
    assert float(value) == pytest.approx(like(theta[0])[1], abs=1e-4)
    np.testing.assert_allclose(gradient, like.gradient(theta[0])[1], atol=1e-4)
    over_groups = jax.jit(jax.vmap(like.traceable, in_axes=(None, 0)))
    both = over_groups(jnp.asarray(theta[0], jnp.float32), jnp.arange(2))
    np.testing.assert_allclose(both, like(theta[0]), atol=1e-4)


def test_bad_input_is_named():
    surrogate, (theta, x) = make(), pairs(4)
    with pytest.raises(ShapeError, match="row by row"):
        surrogate.log_ratio(theta[:3], x)
    with pytest.raises(ShapeError):
        surrogate.log_ratio(theta[:, :1], x)
    with pytest.raises(ShapeError):
        surrogate.given(x[:, :3])
    with pytest.raises(DomainError, match="at least one observation"):
        surrogate.given(x[:0])
    with pytest.raises(NonFiniteError):
        surrogate.given(np.full((2, 4), np.nan))
    with pytest.raises(MissingError, match="members=5"):
        surrogate.spread(theta, x)


# --- On disk --------------------------------------------------------------------------------------


class Stored:
    """Something that knows itself as plain data."""

    def __init__(self, content):
        self.content = content

    def to_dict(self):
        return dict(self.content)


def test_a_saved_surrogate_comes_back(surrogate, tmp_path):
    calibrated = surrogate.with_calibration(Stored({"levels": [0.9, 0.95]}))
    with pytest.raises(DtypeError, match="what ks"):
        surrogate.with_calibration({"levels": [0.9, 0.95]})
    assert calibrated.with_calibration(None).calibration is None
    assert surrogate.calibration is None
    calibrated.save(tmp_path / "s")
    again = ks.load(tmp_path / "s")
    assert weights_equal(again, surrogate)
    assert again.space == surrogate.space
    assert again.members == surrogate.members
    assert again.calibration == {"levels": [0.9, 0.95]}
    assert again.provenance == surrogate.provenance
    assert again.given(pairs(3)[1]).calibration == {"levels": [0.9, 0.95]}
    np.testing.assert_array_equal(again.log_ratio(*pairs(9)), surrogate.log_ratio(*pairs(9)))
    assert "Surrogate(MLP" in repr(again)


def test_it_loads_in_a_fresh_process(tmp_path):
    surrogate, (theta, x) = make(), pairs(5)
    surrogate.save(tmp_path)
    code = (
        "import sys, json, keepscore as ks; theta, x = json.loads(sys.argv[2]);"
        "print(json.dumps(ks.load(sys.argv[1]).log_ratio(theta, x).tolist()))"
    )
    arguments = [sys.executable, "-c", code, tmp_path, json.dumps([theta.tolist(), x.tolist()])]
    environment = dict(os.environ)
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    np.testing.assert_allclose(json.loads(done.stdout), surrogate.log_ratio(theta, x), atol=1e-6)


def test_saving_over_another_replaces_it(tmp_path):
    make(0).save(tmp_path)
    make(1).save(tmp_path)
    assert len(list(tmp_path.glob("weights-*.safetensors"))) == 1
    assert weights_equal(ks.load(tmp_path), make(1))


def test_a_crash_while_saving_leaves_the_old_one(tmp_path, monkeypatch):
    make(0).save(tmp_path)

    def crash(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("keepscore.surrogate.write_sealed", crash)
    with pytest.raises(KeyboardInterrupt):
        make(1).save(tmp_path)
    assert weights_equal(ks.load(tmp_path), make(0))


def test_a_users_network_needs_its_module_to_load(tmp_path):
    data = toy_data(100)
    trained = ks.train(data, None, Tiny, BCE(), SHORT)
    trained.save(tmp_path)
    with pytest.raises(MissingError, match=r"training_helpers\.Tiny"):
        ks.load(tmp_path)
    again = ks.load(tmp_path, network=Tiny(jax.random.key(9)))
    np.testing.assert_array_equal(
        again.log_ratio(data.theta, data.x), trained.log_ratio(data.theta, data.x)
    )
    with pytest.raises((FormatError, ShapeError)):
        ks.load(tmp_path, network=Tiny(jax.random.key(9), width=9))


def rewrite(folder: Path, change):
    """Edit the description and adjust its checksum: the checks behind it must hold too."""
    path = folder / "surrogate.json"
    content = read_sealed(path, FORMAT, VERSION)
    change(content)
    write_sealed(path, FORMAT, VERSION, content)


def replace_weights(folder: Path, raw: bytes):
    """Foreign weights whose checksum was adjusted: the checks behind it must hold too."""
    path = next(folder.glob("weights-*.safetensors"))
    path.write_bytes(raw)
    rewrite(folder, lambda c: c["weights"].update(sha256=sha256(path)))


def test_foreign_folders_are_refused(tmp_path):
    with pytest.raises(StorageError, match="No such folder"):
        ks.load(tmp_path / "nowhere")
    with pytest.raises(FormatError, match="holds no surrogate"):
        ks.load(tmp_path)
    (tmp_path / "surrogate.json").write_text("[1, 2")
    with pytest.raises(FormatError, match="not valid JSON"):
        ks.load(tmp_path)
    (tmp_path / "surrogate.json").write_text('{"format": "pickle"}')
    with pytest.raises(FormatError, match="not a keepscore surrogate"):
        ks.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.pop("space"),
        lambda c: c.update(space={"parameters": [{"name": 3}]}),
        lambda c: c.update(members=0),
        lambda c: c.update(members=10**9),
        lambda c: c.update(members=2),
        lambda c: c.update(members="1"),
        lambda c: c.update(weights="weights.safetensors"),
        lambda c: c["weights"].update(file="../weights.safetensors"),
        lambda c: c["weights"].update(file="/etc/passwd"),
        lambda c: c["weights"].update(sha256="0" * 64),
        lambda c: c["network"].update(family="user-code"),
        lambda c: c["network"].update(d=3),
        lambda c: c["network"].update(widths={"embedding": [60000] * 60, "hidden": [60000]}),
        lambda c: c["network"].pop("widths"),
        lambda c: c.update(network=[1]),
        lambda c: c.update(history=[1]),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, change):
    make().save(tmp_path)
    ks.load(tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(FormatError):
        ks.load(tmp_path)


def damaged_weights(kind, surrogate):
    good = safetensors.numpy.save(to_tensors(surrogate.network))
    tensors = to_tensors(surrogate.network)
    first = min(tensors)
    if kind == "cut":
        return good[:-10]
    if kind == "empty":
        return b""
    if kind == "pickle":
        return b"\x80\x04cos\nsystem\n(S'true'\ntR."
    if kind == "huge header":
        return struct.pack("<Q", 1 << 62) + good[8:]
    if kind == "header beyond file":
        return struct.pack("<Q", len(good)) + good[8:]
    if kind == "nonsense header":
        return struct.pack("<Q", 16) + b"{" * 16
    if kind == "overlapping":
        header = {
            name: {"dtype": "F32", "shape": [1 << 30], "data_offsets": [0, 1 << 32]}
            for name in tensors
        }
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text
    if kind == "missing":
        tensors.pop(first)
    elif kind == "extra":
        tensors["more"] = np.zeros(1, np.float32)
    elif kind == "shape":
        tensors[first] = tensors[first].ravel()[:-1]
    elif kind == "dtype":
        tensors[first] = tensors[first].astype(np.float64)
    elif kind == "too large":
        tensors[first] = np.zeros(10**6, np.float32)
    return safetensors.numpy.save(tensors)


@pytest.mark.parametrize(
    "kind",
    [
        "cut", "empty", "pickle", "huge header", "header beyond file", "nonsense header",
        "overlapping", "missing", "extra", "shape", "dtype", "too large",
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused(tmp_path, kind):
    surrogate = make()
    surrogate.save(tmp_path)
    replace_weights(tmp_path, damaged_weights(kind, surrogate))
    with pytest.raises(FormatError):
        ks.load(tmp_path)


def test_large_surfaces_are_interpolated_to_a_thousandth(surrogate):
    x = pairs(12)[1].reshape(3, 4, 4)
    like, plain = surrogate.given(x), surrogate.given(x, interpolate=False)
    grid = MODEL.space.grid(40)
    expected = plain(grid)
    error = np.abs(like(grid) - expected).max(axis=1)
    assert (error <= 1e-3).all()
    # It did interpolate: head evaluations at the nodes only, so other roundings than the head's.
    assert not np.array_equal(like(grid), expected)
    shuffled = np.random.default_rng(0).permutation(len(grid))
    np.testing.assert_allclose(like(grid[shuffled]), like(grid)[:, shuffled], atol=1e-9)


def test_surfaces_that_cannot_be_interpolated_are_evaluated(monkeypatch):
    """Groups are judged one by one; those not resolved go through the head."""
    surrogate = make()
    like = surrogate.given(pairs(20)[1].reshape(5, 4, 4))
    plain = surrogate.given(pairs(20)[1].reshape(5, 4, 4), interpolate=False)
    grid = MODEL.space.grid(40)

    def pretended(evaluate, points, tolerance, side):
        values = evaluate(points)
        resolved = np.zeros(len(values), bool)
        if len(values) == 5:
            values[1], resolved[1] = 7.0, True
        return values, resolved

    monkeypatch.setattr("keepscore.surrogate.chebyshev.interpolate", pretended)
    values = like(grid)
    assert (values[1] == 7.0).all()
    rest = [0, 2, 3, 4]
    np.testing.assert_allclose(values[rest], plain(grid)[rest], atol=1e-5)


@pytest.mark.parametrize("name", ["markov-5k", "quadratic-10k"])
@pytest.mark.parametrize(("members", "n"), [(1, 7), (2, 8)])
def test_features_of_a_group_add_up_where_the_head_is_linear(name, members, n):
    """The likelihood of a group is the sum of its observations' log-ratios, by whichever way: 3 x 7
    rows are padded and summed in NumPy, 3 x 8 stay on the device."""
    rng = np.random.default_rng(0)
    space, shape = MODEL.space, (6, 5)
    keys = jax.random.split(jax.random.key(3), members)
    built = [networks.resolve(name, shape, space.d, None, key) for key in keys]
    network = built[0] if members == 1 else jax.tree.map(lambda *a: jnp.stack(a), *built)
    surrogate = ks.Surrogate(network, space, shape, members)
    x = rng.normal(size=(3, n, *shape))
    theta = space.uniform(3, rng)
    like = surrogate.given(x)
    each = surrogate.log_ratio(np.repeat(theta, n, axis=0), x.reshape(3 * n, *shape)).reshape(3, n)
    np.testing.assert_allclose(like.paired(theta), each.sum(axis=1), rtol=1e-4, atol=1e-3)
    slopes = surrogate.score(np.repeat(theta, n, axis=0), x.reshape(3 * n, *shape))
    _, gradient = like.pairs_gradient(theta, np.arange(3))
    summed = slopes.reshape(3, n, -1).sum(axis=1)
    np.testing.assert_allclose(gradient, summed, rtol=1e-4, atol=1e-3)
    # One head a group: the features of n observations are one row.
    assert surrogate._evaluator.group_features(x).shape[1:3] == (3, 1)


def test_a_head_that_is_not_linear_sees_every_observation():
    surrogate = make()
    assert surrogate._evaluator.group_features(pairs(12)[1].reshape(3, 4, 4)).shape[1:3] == (3, 4)


def test_networks_built_alike_share_their_programs():
    one, two = make(0), make(1)
    assert one._evaluator.structure is two._evaluator.structure
    assert one._evaluator.structure is not make(members=2)._evaluator.structure
    theta, x = pairs(5)
    assert not np.allclose(one.log_ratio(theta, x), two.log_ratio(theta, x))
