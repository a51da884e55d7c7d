"""Surrogates on disk: what is saved can be loaded, and nothing that a file says is believed."""

import copy
import json
import os
import resource
import threading
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import GaussianToy
from training_helpers import toy_data, weights_equal

import keepscore as ks
from keepscore import networks
from keepscore import surrogate as module
from keepscore.errors import (
    BusyError,
    DomainError,
    FormatError,
    KeepscoreError,
    KeepscoreWarning,
    MissingError,
    StorageError,
)
from keepscore.files import json_bytes, read_sealed, write_sealed
from keepscore.locks import only_writer
from keepscore.networks.catalogue import MOST_LAYERS
from keepscore.networks.graph import SIZES as GRAPH_SIZES
from keepscore.surrogate import FORMAT, NAME, VERSION

SPACE = GaussianToy(4).space
EPOCH = {
    "event": "epoch", "epoch": 1, "train_bce": 0.7, "validation_bce": 0.69, "seconds": 1.0,
    "ms_per_step": 2.0, "best_epoch": 1,
}  # fmt: skip
END = {"event": "end", "epochs": 1, "best_epoch": 1, "best_validation_bce": 0.69, "seconds": 1.0}


def small(x_shape=(4,), d=2, seed=0, **widths):
    rng = np.random.default_rng(seed)
    return networks.MLP(x_shape, d, rng, **{"embedding": (3,), "hidden": (3,), **widths})


def made(network=None, x_shape=(4,), **parts):
    network = small(x_shape) if network is None else network
    return ks.Surrogate(network, SPACE, x_shape, **parts)


def scaled(seed=0):
    return networks.standardise(small(seed=seed), toy_data(50).x, *SPACE.box("train"))


def full():
    return made(
        scaled(),
        provenance={"training": {"config": {"seed": 1}}, "data": {"model": {"name": "toy"}}},
        history=({"event": "start", "settings": {}, "weights": 40}, EPOCH, END),
        calibration={"level": 0.95},
    )


def reseal(folder, change):
    """Edit the description and adjust its checksum, as an attacker would."""
    content = read_sealed(folder / NAME, FORMAT, VERSION)
    change(content)
    write_sealed(folder / NAME, FORMAT, VERSION, content)


@pytest.fixture
def little_memory():
    """No more than half a GiB beyond what there is: a bomb is a MemoryError, not a slow machine."""
    jax.block_until_ready(jnp.zeros(3) + 1)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + (1 << 29)
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


# --- what is saved can be loaded -----------------------------------------------------------------


def ensemble(members):
    network = small(embedding=(1,), hidden=(1,))
    return made(
        jax.tree.map(
            lambda w: w + jnp.arange(members, dtype=w.dtype).reshape(-1, *(1,) * w.ndim), network
        ),
        members=members,
    )


@pytest.mark.parametrize(
    "surrogate",
    [
        pytest.param(lambda: made(small(()), ()), id="x is one number"),
        pytest.param(lambda: made(small((70_000,)), (70_000,)), id="a long axis"),
        pytest.param(lambda: made(small((1,) * 20), (1,) * 20), id="many axes"),
        pytest.param(lambda: ensemble(5000), id="many members"),
        pytest.param(lambda: made(small(embedding=())), id="no embedding"),
        pytest.param(lambda: made(small(embedding=(1,) * 70)), id="many layers"),
        pytest.param(lambda: made(small(hidden=(70_000,))), id="a wide layer"),
        pytest.param(
            lambda: made(
                networks.standardise(small(()), np.ones(5), *SPACE.box("train")), ()
            ),
            id="one scale",
        ),
        pytest.param(full, id="with all parts"),
    ],
)  # fmt: skip
def test_whatever_is_saved_is_loaded(tmp_path, surrogate):
    one = surrogate()
    one.save(tmp_path)
    again = ks.load(tmp_path)
    assert weights_equal(one, again)
    assert (again.x_shape, again.members, again.space) == (one.x_shape, one.members, one.space)
    assert again.history == one.history
    assert again.provenance == one.provenance


def test_a_number_as_x_goes_all_the_way(tmp_path):
    """x_shape = (): trained, saved, loaded, and asked."""
    data = toy_data(100)
    single = ks.Dataset(data.theta, np.ascontiguousarray(data.x[:, 0]), data.score, SPACE, "exact")
    config = ks.TrainConfig(batch_size=32, min_epochs=1, max_epochs=1)
    trained = ks.train(single, None, "1k", ks.BCE(), config, tmp_path)
    np.testing.assert_array_equal(
        ks.load(tmp_path).log_ratio(single.theta, single.x),
        trained.log_ratio(single.theta, single.x),
    )


@pytest.mark.parametrize(
    "parts",
    [
        {"provenance": {"when": float("nan")}},
        {"provenance": {"rows": np.arange(3)}},
        {"provenance": {"seed": 10**30}},
        {"provenance": {1: 2, "a": 3}},
        {"provenance": {"training": 3}},
        {"provenance": [1]},
        {"history": (1,)},
        {"history": ({"epoch": 1},)},
        {"history": ({**EPOCH, "epoch": 2},)},
        {"calibration": [1]},
        {"members": 2},
        {"members": np.int64(1)},
        {"x_shape": (5,)},
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, parts):
    made().save(tmp_path)
    before = sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir())
    network = small()
    broken = ks.Surrogate(network, SPACE, **{"x_shape": (4,), **parts})
    for refuse in (broken.require_savable, lambda: broken.save(tmp_path)):
        with pytest.raises(DomainError, match="could not be loaded again"):
            refuse()
    assert sorted((p.name, p.read_bytes()) for p in tmp_path.iterdir()) == before


def test_a_network_of_too_many_layers_is_refused_when_saved(tmp_path):
    with pytest.raises(DomainError, match="at most 1024 layers"):
        made(small(embedding=(1,) * (MOST_LAYERS + 1))).save(tmp_path)
    assert not (tmp_path / NAME).exists()


# --- nothing that a file says is believed --------------------------------------------------------


def flipped(folder, count, seed):
    path = folder / NAME
    whole = path.read_bytes()
    rng = np.random.default_rng(seed)
    for position in rng.integers(0, len(whole), count):
        broken = bytearray(whole)
        broken[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        with pytest.raises(FormatError):
            ks.load(folder)
    path.write_bytes(whole)
    ks.load(folder)


@pytest.mark.parametrize("count", [300, pytest.param(1500, marks=pytest.mark.slow)])
def test_every_flipped_bit_of_the_description_is_found(tmp_path, count):
    full().save(tmp_path)
    flipped(tmp_path, count, seed=count)


def test_a_flipped_bit_of_the_weights_is_found(tmp_path):
    full().save(tmp_path)
    path = next(tmp_path.glob("weights-*"))
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        broken = bytearray(whole)
        broken[position] ^= 1 << position % 8
        path.write_bytes(broken)
        with pytest.raises(FormatError):
            ks.load(tmp_path)


def test_a_surrogate_of_version_1_is_refused_in_plain_words(tmp_path):
    full().save(tmp_path)
    content = read_sealed(tmp_path / NAME, FORMAT, VERSION)
    (tmp_path / NAME).write_bytes(json_bytes({**content, "format": FORMAT, "version": 1}))
    with pytest.raises(FormatError, match="format version 1; this keepscore reads version 2"):
        ks.load(tmp_path)


GRAPH = {"family": "graph", "widths": dict(GRAPH_SIZES["10k"].items())}
GRAPH["widths"]["natural"] = [56, 56]
FIELD = {"modes": 4, "natural": [48, 48], "nodes": 256}
BOMBS = {
    "graph": {**GRAPH, "x_shape": [13, 65_536]},
    "graph, more": {**GRAPH, "x_shape": [13, 2**40]},
    "scale": {"x_shape": [65_536, 65_536], "scaled": [65_536, 65_536]},
    "scale, more": {"x_shape": [2**40, 2**40], "scaled": [2**40, 2**40]},
    "field": {"family": "spectral", "widths": FIELD, "x_shape": [60_000, 60_000]},
    "tailed field": {"family": "tailed", "widths": FIELD, "x_shape": [2**47, 2]},
    "nodes": {"family": "spectral", "widths": {**FIELD, "nodes": 2**40}, "x_shape": [5, 5]},
    "modes": {"family": "spectral", "widths": {**FIELD, "modes": 2**20}, "x_shape": [500, 500]},
    "quadratic": {
        "family": "quadratic", "x_shape": [65_000, 65_000],
        "widths": {"bands": 6, "embedding": [4], "statistics": 2, "natural": [2], "nodes": 4},
    },
    "layers": {"widths": {"embedding": [60_000] * 60, "hidden": [60_000]}},
    "many layers": {"widths": {"embedding": [1] * 10**6, "hidden": [3]}},
    "one wide layer": {"widths": {"embedding": [2**47], "hidden": [3]}},
    "image": {
        "family": "image", "x_shape": [2**40, 2**40], "widths": {"channels": [4], "hidden": [3]}
    },
    "sequence": {
        "family": "sequence", "x_shape": [2**40, 2**40],
        "widths": {"embedding": [4], "channels": [4], "hidden": [3]},
    },
    "markov": {
        "family": "markov", "x_shape": [2**40, 2**40],
        "widths": {"transition": [4], "start": [4], "statistics": 3, "natural": [3], "nodes": 2},
    },
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_sizes_are_compared_with_the_file_before_anything_is_allocated(
    tmp_path, bomb, little_memory
):
    full().save(tmp_path)
    reseal(tmp_path, lambda c: c["network"].update(BOMBS[bomb]))
    with pytest.raises(FormatError):
        ks.load(tmp_path)


@pytest.mark.parametrize("members", [2, 4097, 10**9, 2**62])
def test_a_number_of_members_is_compared_with_the_file(tmp_path, members, little_memory):
    full().save(tmp_path)
    reseal(tmp_path, lambda c: c.update(members=members))
    with pytest.raises(FormatError):
        ks.load(tmp_path)


def test_a_large_file_of_nothing_is_not_read(tmp_path, little_memory):
    full().save(tmp_path)
    with next(tmp_path.glob("weights-*")).open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="bytes"):
        ks.load(tmp_path)


def test_shapes_of_a_network_take_no_memory_and_are_those_of_the_real_one():
    weights = np.ones((8, 8))
    for family, one in networks.FAMILIES.items():
        sizes = networks.FAMILIES[family.removesuffix("-entries")].sizes
        widths = {k: list(v) if isinstance(v, tuple) else v for k, v in
                  next(iter(sizes.values())).items()}  # fmt: skip
        if family.endswith("-entries"):
            widths["entries"] = [3, 600]
        own = {
            "sequence": (13, 8), "markov": (13, 8), "graph": (13, 8), "events": (20,),
            "graphs": (21, 8), "timed-graph": (13, 9), "timed": (13, 9), "sites": (25, 3),
        }  # fmt: skip
        shape = own.get(family, (25, 25))
        rng = np.random.default_rng(0)
        extra = {"weights": weights} if family in ("graph", "timed-graph") else {}
        real = one.build(shape, 2, rng, **widths, **extra)
        hollow = networks.rebuild(networks.describe(real, shape, 2))
        assert jax.tree.map(lambda a: (a.shape, a.dtype), eqx.filter(real, eqx.is_array)) == (
            jax.tree.map(lambda a: (a.shape, np.dtype(a.dtype)), hollow)
        )
        assert isinstance(hollow, one.build)
        if family == "graph":
            assert hollow.exposure.strides == (0, 0)


HOSTILE = [
    None, True, 0, -1, 1.5, 2**63 - 1, "", "a", "../a", "a\0b", [], [1], [[]], {}, {"a": 1},
    [None], [True], {"": []}, 1e308, "x" * 300, [2**62] * 3,
]  # fmt: skip


def places(content, at=()):
    """Every node of a JSON value, as the way to it."""
    yield at
    items = content.items() if isinstance(content, dict) else enumerate(content)
    if isinstance(content, (dict, list)):
        for key, value in items:
            if isinstance(value, (dict, list)):
                yield from places(value, (*at, key))
            else:
                yield (*at, key)


def mutated(content, rng):
    """A copy with one node replaced, removed or doubled."""
    changed = copy.deepcopy(content)
    every = [place for place in places(changed) if place]
    place = every[rng.integers(len(every))]
    holder = changed
    for key in place[:-1]:
        holder = holder[key]
    kind = rng.integers(4)
    if kind == 0:
        del holder[place[-1]]
    elif kind == 1 and isinstance(holder, dict):
        holder["surprise"] = copy.deepcopy(holder[place[-1]])
    else:
        holder[place[-1]] = copy.deepcopy(HOSTILE[rng.integers(len(HOSTILE))])
    return changed


@pytest.mark.parametrize("count", [200, pytest.param(3000, marks=pytest.mark.slow)])
def test_mutated_descriptions_load_or_are_refused_by_type(tmp_path, count, little_memory):
    """With the checksum adjusted. A change that is no damage (a name) may load."""
    full().save(tmp_path)
    content = read_sealed(tmp_path / NAME, FORMAT, VERSION)
    rng = np.random.default_rng(count)
    refused = 0
    for _ in range(count):
        write_sealed(tmp_path / NAME, FORMAT, VERSION, mutated(content, rng))
        try:
            repr(ks.load(tmp_path))
        except (FormatError, StorageError):
            refused += 1
    assert refused > count / 2


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["network"].update(family=[]),
        lambda c: c["network"].update(family={}),
        lambda c: c["network"].update(widths=[3]),
        lambda c: c["network"].update(widths={"embedding": "abc", "hidden": [3]}),
        lambda c: c["network"].update(widths={"embedding": [True], "hidden": [3]}),
        lambda c: c["network"].update(widths={"embedding": [[3]], "hidden": [3]}),
        lambda c: c["network"].update(widths={"rng": 3}),
        lambda c: c["network"].update(x_shape="4"),
        lambda c: c["network"].update(x_shape=[0]),
        lambda c: c["network"].update(x_shape=[1] * 100),
        lambda c: c["network"].update(d=True),
        lambda c: c["network"].update(scaled="4"),
        lambda c: c["network"].update(scaled=[4, 4]),
        lambda c: c.update(provenance=[]),
        lambda c: c.update(provenance={"data": 3}),
        lambda c: c.update(provenance={"training": []}),
        lambda c: c.update(calibration=3),
        lambda c: c.update(history={}),
        lambda c: c.update(history=[{"event": []}]),
        lambda c: c["history"][1].update(epoch=2**62),
        lambda c: c["history"][1].update(train_bce="0.7"),
        lambda c: c["history"][1].update(seconds=None),
        lambda c: c["history"][1].update(alpha_by_parameter=3),
        lambda c: c["history"][1].update(members=[]),
        lambda c: c["history"][2].update(epochs=2**62),
        lambda c: c["history"][2].pop("best_validation_bce"),
        lambda c: c["weights"].update(file=3),
        lambda c: c["weights"].update(sha256=[]),
        lambda c: c["weights"].update(file="a\0b"),
        lambda c: c["weights"].update(file=".."),
        lambda c: c["weights"].update(file=""),
        lambda c: c["space"].update(parameters={}),
        lambda c: c["space"]["parameters"][0].update(lower="0"),
        lambda c: c["space"]["parameters"][0].update(lower=5, upper=1),
        lambda c: c["space"].update(fixed={"a": "b"}),
        lambda c: c["space"].update(fixed=[1]),
    ],
)
def test_hostile_descriptions_are_refused_by_type(tmp_path, change):
    full().save(tmp_path)
    reseal(tmp_path, change)
    with pytest.raises((FormatError, StorageError)):
        ks.load(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"members": 1', b'"members": ' + b"9" * 400), (b'"members": 1', b'"members": 1e999'),
     (b'"members": 1', b'"members": NaN'), (b'"members": 1', b'"members": ' + b"[" * 9000)],
)  # fmt: skip
def test_numbers_and_nesting_that_are_not_ours(tmp_path, old, new):
    full().save(tmp_path)
    text = (tmp_path / NAME).read_bytes()
    assert old in text
    (tmp_path / NAME).write_bytes(text.replace(old, new))
    with pytest.raises(FormatError):
        ks.load(tmp_path)


@pytest.mark.parametrize("depth", [200, 400, 900])
def test_deep_nesting_is_refused_by_type_or_kept(tmp_path, depth):
    deep = []
    for _ in range(depth):
        deep = [deep]
    one = made(provenance={"deep": deep})
    try:
        one.save(tmp_path)
    except DomainError:
        return
    assert ks.load(tmp_path).provenance == {"deep": deep}


@pytest.mark.parametrize("which", ["surrogate.json", "weights"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "gone", "empty"])
def test_only_regular_files_are_opened(tmp_path, which, kind):
    full().save(tmp_path)
    path = tmp_path / NAME if which == NAME else next(tmp_path.glob("weights-*"))
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "empty":
        path.touch()
    with pytest.raises((FormatError, StorageError)):
        ks.load(tmp_path)


@pytest.mark.parametrize("path", [None, "", 3, b"folder", "a\0b", [], "x" * 5000])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(KeepscoreError):
        ks.load(path)
    with pytest.raises(KeepscoreError):
        made().save(path)


# --- two at once ---------------------------------------------------------------------------------


def test_another_writer_is_waited_for_and_then_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    made().save(tmp_path)
    with only_writer(tmp_path, "surrogate"), pytest.raises(BusyError, match="surrogate"):
        made(scaled(1)).save(tmp_path)
    assert weights_equal(ks.load(tmp_path), made())
    monkeypatch.setattr(module, "PATIENCE", 20.0)
    held, done = threading.Event(), threading.Event()

    def hold():
        with only_writer(tmp_path, "surrogate"):
            held.set()
            done.wait(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    made(scaled(1)).save(tmp_path)
    thread.join()
    assert weights_equal(ks.load(tmp_path), made(scaled(1)))


def test_saves_at_once_leave_one_of_them_and_readers_find_one(tmp_path):
    many = [made(scaled(seed)) for seed in range(3)]
    many[0].save(tmp_path)
    problems = []

    def save(one):
        try:
            for _ in range(8):
                one.save(tmp_path)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=save, args=(one,)) for one in many]
    for thread in threads:
        thread.start()
    loads = 0
    while any(thread.is_alive() for thread in threads):
        found = ks.load(tmp_path)
        assert any(weights_equal(found, one) for one in many)
        loads += 1
    for thread in threads:
        thread.join()
    assert not problems
    assert loads > 3
    assert any(weights_equal(ks.load(tmp_path), one) for one in many)
    assert len(list(tmp_path.glob("weights-*"))) == 1


def test_a_reader_between_two_saves_gets_the_new_one(tmp_path, monkeypatch):
    """Exactly between reading the description and the weights, another process saves."""
    made(scaled(0)).save(tmp_path)
    size, saves = module.stored_bytes, []

    def meanwhile(path):
        if not saves:
            saves.append(1)
            made(scaled(1)).save(tmp_path)
        return size(path)

    monkeypatch.setattr(module, "stored_bytes", meanwhile)
    assert weights_equal(ks.load(tmp_path), made(scaled(1)))
    next(tmp_path.glob("weights-*")).unlink()
    with pytest.raises(StorageError, match="No such file"):
        ks.load(tmp_path)


# --- observations that no network can answer -----------------------------------------------------


def test_observations_absurdly_far_away_are_said_or_refused():
    one = made(scaled())
    x, theta = toy_data(6).x, toy_data(6).theta
    calls = (one.given, lambda x: one.log_ratio(theta, x), lambda x: one.score(theta, x))
    for ask in calls:
        ask(x)
        ask(100 * x)
        for value, kind in ((1e20, np.float64), (-1e20, np.float32), (2**60, np.int64)):
            far = x.astype(kind)
            far[2, 1] = value
            with pytest.warns(KeepscoreWarning, match=r"1 value.* 1e\+06 standard deviations"):
                ask(far)
        far = x.copy()
        far[0, 0] = 1e39
        with pytest.raises(DomainError, match="float32"):
            ask(far)


def test_features_that_overflow_are_refused():
    field = networks.resolve("spectral-5k", (5, 5), 2, None, jax.random.key(0))
    one = made(field, (5, 5))
    x = np.full((3, 5, 5), 1e20)
    with pytest.raises(DomainError, match="not finite"):
        one.given(x)
    with pytest.raises(DomainError, match="not finite"):
        one.log_ratio(np.zeros((3, 2)), x)
    assert np.isfinite(one.given(np.ones((3, 5, 5)))(np.zeros(2)))


def test_a_users_network_is_still_asked_for(tmp_path):
    class Own(eqx.Module):
        w: jax.Array

        def features(self, x):
            return x @ self.w

        def head(self, features, theta):
            return features.sum(axis=1) + theta.sum(axis=1)

    one = made(Own(jnp.ones((4, 2))))
    one.save(tmp_path)
    with pytest.raises(MissingError, match="Own"):
        ks.load(tmp_path)
    assert weights_equal(ks.load(tmp_path, Own(jnp.zeros((4, 2)))), one)
    with pytest.raises(KeepscoreError):
        ks.load(tmp_path, Own(jnp.zeros((4, 3))))
    assert json.loads((tmp_path / NAME).read_text())["network"]["family"] == "user"
