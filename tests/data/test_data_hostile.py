"""Data sets under attack and in bad places: forged files, pipes, full folders, few descriptors.

Whatever a folder holds, reading it ends soon, in a data set or in a typed error, and asks for no
more memory than the folder has bytes.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import random
import resource
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from data_helpers import files
from toys import GaussianToy

import keepscore as ks
from keepscore.data import finish, simulate_share, status, store
from keepscore.data import sharded as sharded_file
from keepscore.data.plan import MOST_SHARDS, make_plan
from keepscore.errors import (
    DomainError,
    DtypeError,
    FormatError,
    KeepscoreError,
    KeepscoreWarning,
    MismatchError,
    SimulationError,
    StorageError,
    TooLargeError,
    UnknownNameError,
)
from keepscore.files import read_sealed, sealed_bytes, write_sealed
from keepscore.models.base import Symmetry, build
from keepscore.space import Space

HELPERS = Path(__file__).parents[1] / "helpers"


class Symmetric(GaussianToy):
    name = "symmetric-toy"
    symmetries = (Symmetry("reverse", np.arange(4)[::-1].copy(), (0, 1)),)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pristine") / "set"
    ks.simulate(Symmetric(), 400, seed=2, path=folder, jobs=1)
    return folder


@pytest.fixture
def folder(pristine, tmp_path):
    shutil.copytree(pristine, tmp_path / "set")
    return tmp_path / "set"


def script(code, *arguments, **settings):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    path = os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, **settings
    )


def flip(file, position=-1, bit=128):
    content = bytearray(file.read_bytes())
    content[position] ^= bit
    file.write_bytes(content)


# --- fingerprints and checksums -------------------------------------------------------------------


def test_a_fingerprint_is_of_the_content_wherever_it_lies(pristine, tmp_path):
    data = ks.open_dataset(pristine)
    memory = ks.simulate(Symmetric(), 400, seed=2, jobs=1)
    assert data.fingerprint() == memory.fingerprint() == data.in_memory().fingerprint()
    assert len(data.fingerprint()) == 64
    for n in (1, 64, 65, 128, 399):
        assert data.take(n).fingerprint() == memory.take(n).fingerprint() != data.fingerprint()
    shutil.copytree(pristine, tmp_path / "copy")
    assert ks.open_dataset(tmp_path / "copy").fingerprint() == data.fingerprint()


def test_anything_that_training_uses_changes_the_fingerprint(pristine):
    data = ks.open_dataset(pristine).in_memory()

    def moved(array):
        other = array.copy()
        other[-1, -1] = np.nextafter(other[-1, -1], 9.0)
        return other

    wider = ks.Space([ks.Parameter("mean", -1, 1.5, "identity"), data.space.parameters[1]])
    changes = [
        {"theta": moved(data.theta)},
        {"x": moved(data.x)},
        {"x": data.x.astype(np.float32)},
        {"x": data.x.reshape(400, 2, 2)},
        {"score": moved(data.score)},
        {"score": data.score * 100},
        {"score": None, "score_kind": None},
        {"score_kind": "joint"},
        {"structure": "markov"},
        {"symmetries": ()},
        {"symmetries": (Symmetry("reverse", np.arange(4), (0, 1)),)},
        {"space": wider},
        {"theta": data.theta[::-1].copy(), "x": data.x[::-1].copy()},
    ]
    found = {dataclasses.replace(data, **change).fingerprint() for change in changes}
    assert len(found | {data.fingerprint()}) == len(changes) + 1
    assert dataclasses.replace(data, provenance={}).fingerprint() == data.fingerprint()
    assert dataclasses.replace(data, x=np.asfortranarray(data.x)).fingerprint() == (
        data.fingerprint()
    )


@pytest.mark.parametrize("name", ["theta", "x", "score"])
def test_a_flipped_bit_is_found_when_its_file_is_read(folder, name):
    flip(folder / f"shard-00003.{name}.npy")
    data = ks.open_dataset(folder)
    before = data.rows([0, 5, 399])  # other shards
    assert np.isfinite(before[1]).all()
    array = getattr(data, name)
    reads = [
        data.fingerprint,
        lambda: data.rows([200]),
        lambda: array[200],
        lambda: array[190:210],
        lambda: np.asarray(array),
        lambda: list(data.blocks(50)),
        data.in_memory,
    ]
    for read in reads:
        with pytest.raises(FormatError, match=rf"shard-00003\.{name}\.npy.*keepscore\.repair"):
            read()
    ks.repair(folder, Symmetric())
    assert len(data.rows([200])[1]) == 1
    data.fingerprint()


def test_rows_read_one_by_one_are_checked_too(folder, monkeypatch):
    """An array larger than the cache is read row by row; each file is hashed once all the same."""
    monkeypatch.setattr(sharded_file._cache, "most", 1000)
    whole = ks.open_dataset(folder).in_memory()
    flip(folder / "shard-00003.x.npy", bit=1)
    data = ks.open_dataset(folder)
    index = np.array([3, 70, 1, 130, 399, 3, 64, 65, 66])
    for a, b in zip(data.rows(index), whole.rows(index), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(FormatError, match="shard-00003"):
        data.rows([192])  # another row of the damaged shard


def test_a_fingerprint_is_computed_once_and_again_when_files_change(folder, monkeypatch):
    data = ks.open_dataset(folder)
    first = data.fingerprint()
    computed = []
    monkeypatch.setattr(
        importlib.import_module("keepscore.data.dataset"),
        "fingerprint_of",
        lambda *a: computed.append(1) or "other",
    )
    assert data.fingerprint() == first
    assert not computed
    file = folder / "shard-00001.x.npy"
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(StorageError, match=r"shard-00001\.x"):
        data.fingerprint()
    file.write_bytes(content)
    assert data.fingerprint() == "other"


def test_simulating_over_a_damaged_shard_gives_the_recorded_bytes_or_an_error(pristine, folder):
    class Changed(Symmetric):
        def simulate(self, theta, rng):
            return super().simulate(theta, rng) + 1e-9

    flip(folder / "shard-00003.x.npy")
    damaged = (folder / "shard-00003.x.npy").read_bytes()
    for lost in ((), ("shard-00003.json",)):  # then the manifest still knows
        for name in lost:
            (folder / name).write_bytes(b"")
        with (
            pytest.warns(KeepscoreWarning, match="Damaged"),
            pytest.raises(MismatchError, match="other bytes than were recorded"),
        ):
            ks.simulate(Changed(), 400, seed=2, path=folder, jobs=1)
        assert (folder / "shard-00003.x.npy").read_bytes() == damaged
    with pytest.warns(KeepscoreWarning, match="Damaged"):
        ks.simulate(Symmetric(), 400, seed=2, path=folder, jobs=1)
    assert files(folder) == files(pristine)


def test_a_file_cut_short_while_it_is_used_does_not_kill_the_process(folder):
    code = """
import sys, numpy as np, keepscore as ks
from keepscore.data import sharded
sharded._cache.most = 1000  # so that rows are read from the file again
data = ks.open_dataset(sys.argv[1])
data.rows([0, 100, 399]); data.fingerprint()
for k in range(7):
    with open(f"{sys.argv[1]}/shard-{k:05d}.x.npy", "r+b") as file:
        file.truncate(200)
for read in (lambda: data.rows([100]), lambda: np.asarray(data.x), data.fingerprint):
    try:
        read()
    except ks.errors.FormatError as error:
        print("typed")
"""
    done = script(code, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["typed"] * 3


# --- few file descriptors -------------------------------------------------------------------------


def test_sixty_four_open_files_are_enough_for_any_number_of_shards(tmp_path):
    code = """
import os, resource, sys, numpy as np, keepscore as ks
from toys import GaussianToy
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
data = ks.simulate(GaussianToy(), 4096, path=sys.argv[1], jobs=1)
sets = [ks.open_dataset(sys.argv[1]) for _ in range(5)]
before = len(os.listdir("/proc/self/fd"))
for one in sets:
    one.rows(np.random.default_rng(0).permutation(4096))
    one.fingerprint()
    np.asarray(one.x)
assert ks.verify(sys.argv[1]).ok
print(len(list(data.blocks(100))), len(os.listdir("/proc/self/fd")) - before)
"""
    done = script(code, tmp_path / "set")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["41", "0"]
    assert len(list((tmp_path / "set").glob("*.x.npy"))) == 64


def test_the_cache_holds_no_more_than_it_may(folder, monkeypatch):
    cache = sharded_file._Cache(5000)
    monkeypatch.setattr(sharded_file, "_cache", cache)
    data, x = ks.open_dataset(folder).take(100), ks.open_dataset(folder).take(100).in_memory().x
    for row in (0, 99, 3, 70, 0):
        np.testing.assert_array_equal(data.x[row], x[row])
        data.theta[row], data.score[row]
        assert cache.size == sum(a.nbytes for a in cache._held.values()) <= 5000
    assert cache._held
    handed = data.x[0:3]
    handed[:] = 9.0  # what is handed out is a copy
    np.testing.assert_array_equal(data.x[0:3], x[0:3])


# --- sizes that are claimed or asked for ----------------------------------------------------------


@pytest.mark.parametrize("n", [10**10, 10**15, 10**18, 10**30])
def test_far_too_many_rows_fail_at_once(tmp_path, n):
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((StorageError, DomainError)):
        ks.simulate(GaussianToy(), n, path=tmp_path / "set", jobs=1)
    with pytest.raises((StorageError, DomainError)):
        simulate_share(GaussianToy(), n, 0, tmp_path / "set", (2, 3), jobs=1)
    with pytest.raises((TooLargeError, DomainError), match=r"Give a path|at most"):
        ks.simulate(GaussianToy(), n, jobs=1)
    assert time.perf_counter() - start < 5.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
    assert not (tmp_path / "set").exists() or not list((tmp_path / "set").iterdir())


def test_ten_thousand_million_rows_are_a_matter_of_disk_space(tmp_path):
    with pytest.raises(StorageError, match=r"free; the \d+ shard"):
        ks.simulate(GaussianToy(200), 10**10, path=tmp_path / "set", jobs=1)


def test_more_shards_than_a_manifest_can_list_are_refused(tmp_path, monkeypatch):
    plenty = shutil.disk_usage(tmp_path)._replace(free=2**62)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: plenty)
    with pytest.raises(DomainError, match="at most"):
        ks.simulate(GaussianToy(), 10**10, path=tmp_path, jobs=1)
    plan = make_plan(GaussianToy(), 8192 * MOST_SHARDS, 0, "train", True, "raise")
    assert plan.shards == MOST_SHARDS
    files = dict.fromkeys(plan.arrays(), (2**40, "a" * 64))
    record = store.ShardRecord(MOST_SHARDS - 1, 8192, (), files).to_dict(plan)
    assert len(sealed_bytes(tmp_path, "f", 1, {"a": [record] * 100})) / 100 * MOST_SHARDS < 64 << 20


def reseal(path, kind, change):
    """Change a sealed file and seal it again, as an attacker would."""
    content = read_sealed(path, store.FORMATS[kind], store.VERSION)
    change(content)
    write_sealed(path, store.FORMATS[kind], store.VERSION, content)


def typed(call, *arguments):
    """Call; it must come back soon, with a result or a typed error. What it raised."""
    start = time.perf_counter()
    try:
        call(*arguments)
        error = None
    except KeepscoreError as raised:
        error = raised
    assert time.perf_counter() - start < 10
    return error


def try_everything(folder):
    """Every reader of a data set; how many raised a typed error."""

    def opened():
        data = ks.open_dataset(folder)
        data.rows([0])
        np.asarray(data.x)
        data.fingerprint()
        repr(data)

    calls = [opened, lambda: ks.verify(folder), lambda: status(folder), lambda: finish(folder)]
    return sum(typed(call) is not None for call in calls)


@pytest.mark.parametrize("keep_manifest", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"n": 10**18},
        {"n": 10**18, "shard_rows": 1},
        {"n": 10**18, "shard_rows": 10**18},
        {"n": 2**63},
        {"shard_rows": 2**62},
        {"x_shape": [2**40, 2**40]},
        {"x_shape": [2**31, 2]},
        {"x_shape": [10**6]},
        {"x_shape": [0]},
        {"x_shape": []},
        {"x_shape": [True]},
        {"x_shape": [4.0]},
        {"x_shape": "4"},
        {"x_shape": {}},
        {"x_dtype": None},
        {"x_dtype": "f8,f8"},
        {"x_dtype": ["f8"]},
        {"x_dtype": "O"},
        {"x_dtype": "<f8 "},
        {"x_dtype": "float64"},
        {"x_dtype": "<U100000000"},
        {"seed": -1},
        {"seed": []},
        {"purpose": []},
        {"purpose": "\x1b[31m"},
        {"on_invalid": None},
        {"on_invalid": {}},
        {"structure": []},
        {"structure": "\x1b[31mred"},
        {"score_kind": []},
        {"model": []},
        {"model": None},
        {"model": {"name": [], "settings": {}, "space": {}}},
        {"symmetries": [[]]},
        {"symmetries": [{"name": "s", "x_index": [0] * 10**4, "theta_index": [0], "sign": 1}]},
        {"symmetries": [{"name": "s", "x_index": [2**62], "theta_index": [0, 1], "sign": 1}]},
        {"symmetries": [{"name": [], "x_index": [0, 1, 2, 3], "theta_index": [0, 1], "sign": 1}]},
        {"symmetries": [{"name": "s", "x_index": [[0]], "theta_index": [0, 1], "sign": 1}]},
        {
            "symmetries": [
                {"name": "s", "x_index": list(range(10)), "theta_index": [0, 1], "sign": 1}
            ]
        },
        {"symmetries": 7},
    ],
    ids=lambda change: str(change)[:60],
)
def test_forged_plans_end_in_typed_errors(folder, change, keep_manifest):
    with pytest.raises(FormatError):
        store.Plan.from_dict({**store.read_plan(folder)[0].to_dict(), **change})
    reseal(folder / "plan.json", "plan", lambda c: c["plan"].update(change))
    if keep_manifest:
        reseal(folder / "manifest.json", "manifest", lambda c: c["plan"].update(change))
    else:
        (folder / "manifest.json").unlink()
    assert try_everything(folder) >= 2


SPACES = [
    None,
    [],
    {},
    {"parameters": None},
    {"parameters": []},
    {"parameters": [[]]},
    {"parameters": [{"name": "a"}]},
    {"parameters": [{"name": [], "lower": 0, "upper": 1}]},
    {"parameters": [{"name": "a", "lower": "0", "upper": 1}]},
    {"parameters": [{"name": "a", "lower": None, "upper": 1}]},
    {"parameters": [{"name": "a", "lower": [], "upper": 1}]},
    {"parameters": [{"name": "a", "lower": 1, "upper": 0}]},
    {"parameters": [{"name": "a", "lower": 0, "upper": 10**400}]},
    {"parameters": [{"name": "a", "lower": 0, "upper": 1, "transform": []}]},
    {"parameters": [{"name": "a", "lower": 0, "upper": 1, "transform": "sqrt"}]},
    {"parameters": [{"name": "a", "lower": 0, "upper": 1, "colour": "red"}]},
    {"parameters": [{"name": "a", "lower": 0, "upper": 1}], "fixed": []},
    {"parameters": [{"name": "a", "lower": 0, "upper": 1}], "fixed": {"b": "x"}},
    {"parameters": [{"name": "a", "lower": 0, "upper": 1}], "fixed": {"b": []}},
    {"parameters": [{"name": "a", "lower": 0, "upper": 1}], "fixed": 7},
    {"parameters": {"a": 1}},
]


@pytest.mark.parametrize("content", SPACES, ids=lambda c: str(c)[:60])
def test_forged_spaces_and_models_are_format_errors(content):
    with pytest.raises(FormatError):
        Space.from_dict(content)
    plan = make_plan(GaussianToy(), 100, 0, "train", True, "raise").to_dict()
    with pytest.raises(FormatError):
        store.Plan.from_dict({**plan, "model": {**plan["model"], "space": content}})


@pytest.mark.parametrize(
    ("description", "error"),
    [
        ({"name": [], "settings": {}}, UnknownNameError),
        ({"name": {}, "settings": {}}, UnknownNameError),
        ({"name": "sis", "settings": []}, FormatError),
        ({"name": "sis", "settings": {"colour": 1}}, FormatError),
        ({"name": "sis", "settings": {"times": "x"}}, KeepscoreError),
        ({"name": "sis", "settings": {"times": [[]]}}, KeepscoreError),
        ({"name": "sis", "settings": {"positions": {}}}, KeepscoreError),
        ({"name": "gaussian-field", "settings": {"shape": "ab"}}, KeepscoreError),
        ([], FormatError),
        (None, FormatError),
    ],
)
def test_forged_models_are_typed_errors(description, error):
    with pytest.raises(error):
        build(description)


@pytest.mark.parametrize("key", ["environment", "shards", "rows", "dropped", "plan"])
@pytest.mark.parametrize("value", [None, [], {}, "x", 10**18, {"python": []}, {"a": "\x1b"}])
def test_forged_manifests_end_in_typed_errors(folder, key, value):
    reseal(folder / "manifest.json", "manifest", lambda c: c.update({key: value}))
    try_everything(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", 10**18),
        ("rows", -1),
        ("rows", "64"),
        ("rows", None),
        ("shard", 10**18),
        ("dropped", [0] * 64),
        ("dropped", [10**18]),
        ("dropped", None),
        ("dropped", 5),
        ("files", None),
        ("files", []),
        ("files", {"x": 3}),
        ("files", {"x": {"bytes": 10**18, "sha256": "a"}}),
        ("seed", None),
    ],
)
def test_forged_records_end_in_typed_errors(folder, key, value):
    def forge(record):
        record[key] = value

    reseal(folder / "shard-00001.json", "shard", forge)
    reseal(folder / "manifest.json", "manifest", lambda c: forge(c["shards"][1]))
    assert try_everything(folder) >= 1


def test_sizes_in_records_must_fit_the_rows(folder):
    """Consistent lies about the size of a file, with a sparse file of that size in its place."""

    def forge(record):
        record["files"]["x"]["bytes"] = 2**33

    with (folder / "shard-00001.x.npy").open("r+b") as file:
        file.truncate(2**33)
    reseal(folder / "shard-00001.json", "shard", forge)
    reseal(folder / "manifest.json", "manifest", lambda c: forge(c["shards"][1]))
    with pytest.raises(FormatError, match="does not fit its rows"):
        ks.open_dataset(folder)


def mutated(value, rng, deep=0):
    """Plain data with one entry somewhere changed into something unexpected."""
    strange = [None, [], {}, "", "\x1b[2J", True, -1, 0, 2**62, 1.5, 1e308, [[]], {"a": {}}, "NaN"]
    if isinstance(value, dict) and value and (deep == 0 or rng.random() < 0.8):
        key = rng.choice(sorted(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated(value[key], rng, deep + 1)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], mutated(value[place], rng, deep + 1), *value[place + 1 :]]
    return rng.choice(strange)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("plan.json", "plan"), ("manifest.json", "manifest"), ("shard-00001.json", "shard")],
)
def test_three_hundred_mutations_of_each_file_end_in_typed_errors(folder, name, kind):
    """Sealed again each time: the checksum does not help, only the checks do."""
    rng = random.Random(5)
    content = read_sealed(folder / name, store.FORMATS[kind], store.VERSION)
    whole = (folder / name).read_bytes()
    raised = 0
    for _ in range(300):
        write_sealed(folder / name, store.FORMATS[kind], store.VERSION, mutated(content, rng))
        if kind == "manifest":
            raised += typed(store.read_manifest, folder) is not None
            raised += typed(lambda: repr(ks.open_dataset(folder))) is not None
        elif kind == "plan":
            raised += typed(store.read_plan_of, folder / name) is not None
        else:
            raised += typed(finish, folder) is not None
            typed(status, folder)
        typed(ks.verify, folder) if rng.random() < 0.2 else None
        (folder / name).write_bytes(whole)
    assert raised > 150


# --- pipes, folders and devices in place of files -------------------------------------------------


@pytest.mark.parametrize(
    "name", ["plan.json", "manifest.json", "shard-00001.json", "shard-00001.x.npy"]
)
@pytest.mark.parametrize("what", ["pipe", "folder", "link to a pipe", "dangling link", "device"])
def test_what_is_not_a_regular_file_is_named_and_nothing_hangs(pristine, folder, name, what):
    path = folder / name
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "link to a pipe":
        os.mkfifo(folder / "pipe")
        path.symlink_to(folder / "pipe")
    elif what == "dangling link":
        path.symlink_to(folder / "nothing")
    else:
        path.symlink_to("/dev/zero")
    if (name, what) == ("manifest.json", "dangling link"):
        assert not ks.verify(folder).complete  # as if there were none
    else:
        assert name in {d.file for d in ks.verify(folder).damaged}
    try_everything(folder)
    if name == "shard-00001.x.npy":
        with pytest.raises(FormatError, match=r"shard-00001\.x\.npy"):
            ks.open_dataset(folder)
    if what in ("pipe", "device") and name != "manifest.json":
        ks.repair(folder, Symmetric())
        assert stat.S_ISREG(path.lstat().st_mode)
        assert path.read_bytes() == (pristine / name).read_bytes()


# --- what users get wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"model": None}, DtypeError),
        ({"model": "sis"}, DtypeError),
        ({"model": GaussianToy}, KeepscoreError),
        ({"n": None}, DtypeError),
        ({"n": "100"}, DtypeError),
        ({"n": [100]}, DtypeError),
        ({"n": True}, DtypeError),
        ({"seed": None}, DtypeError),
        ({"seed": 1.0}, DtypeError),
        ({"seed": "0"}, DtypeError),
        ({"seed": [1, 2]}, DtypeError),
        ({"seed": 10**400}, DomainError),
        ({"purpose": None}, UnknownNameError),
        ({"purpose": ["train"]}, UnknownNameError),
        ({"on_invalid": None}, UnknownNameError),
        ({"on_invalid": []}, UnknownNameError),
        ({"scores": "no"}, DtypeError),
        ({"scores": None}, DtypeError),
        ({"jobs": "2"}, DomainError),
        ({"jobs": 1.5}, DomainError),
        ({"path": ""}, DomainError),
        ({"path": 3}, DomainError),
        ({"path": "a\0b"}, DomainError),
        ({"path": b"bytes"}, DomainError),
        ({"cluster": 5}, DtypeError),
    ],
)
def test_wrong_arguments_are_typed(change, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = {"model": GaussianToy(), "n": 100, "jobs": 1, **change}
    with pytest.raises(error):
        ks.simulate(**arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("call", [ks.open_dataset, ks.verify, ks.repair, status, finish])
@pytest.mark.parametrize("path", ["", None, 3, b"x", "a\0b", ["a"]])
def test_what_is_no_path_is_refused_everywhere(call, path, pristine, monkeypatch):
    monkeypatch.chdir(pristine)  # "" must not mean this folder
    with pytest.raises(DomainError):
        call(path)


@pytest.mark.parametrize("share", [None, 3, "1/2", (1,), (1, 2, 3), (0, 2), (3, 2), (1.0, 2)])
def test_what_is_no_share_is_refused(share, tmp_path):
    with pytest.raises((DtypeError, DomainError)):
        simulate_share(GaussianToy(), 100, 0, tmp_path / "set", share, jobs=1)


class Leaving(GaussianToy):
    name = "leaving-toy"

    def simulate(self, theta, rng):
        sys.exit(0)


@pytest.mark.parametrize("jobs", [None, 1, 2])
def test_a_simulator_that_exits_has_failed(tmp_path, jobs):
    with pytest.raises(SimulationError, match="SystemExit"):
        ks.simulate(Leaving(), 200, path=tmp_path, jobs=jobs)
    assert not status(tmp_path).complete


def test_names_that_move_the_cursor_are_refused():
    model = GaussianToy()
    model.name = "toy\x1b[2J"
    with pytest.raises(DomainError, match="control characters"):
        ks.simulate(model, 100, jobs=1)
    with pytest.raises(DomainError, match="control characters"):
        Symmetry("s\x07", np.arange(4), (0, 1))
    with pytest.raises(DomainError):
        ks.Parameter("a\x1b[31m", 0.0, 1.0)
    with pytest.raises(DomainError):
        ks.Space([ks.Parameter("a", 0.0, 1.0)], {"b\n": 1.0})


@pytest.mark.parametrize(
    ("x_index", "theta_index"),
    [
        ([0, 0], (0,)),
        ([0.5, 1], (0,)),
        ("ab", (0,)),
        ([[0], [0, 1]], (0,)),
        ([0], None),
        (None, ()),
    ],
)
def test_symmetries_of_anything_but_permutations_are_refused(x_index, theta_index):
    with pytest.raises(KeepscoreError):
        Symmetry("s", x_index, theta_index)


def test_a_lost_cluster_is_a_typed_error(tmp_path, monkeypatch):
    from concurrent.futures import CancelledError

    from keepscore.data import workers

    class Client:
        def submit(self):
            raise AssertionError

    for error in (OSError("closed"), CancelledError("gone"), TimeoutError("late")):

        def lost(task, shards, cluster, error=error):
            yield 0, task(0)
            raise error

        monkeypatch.setattr(workers, "on_cluster", lost)
        with pytest.raises(SimulationError, match="cluster was lost"):
            ks.simulate(GaussianToy(), 200, path=tmp_path / "set", cluster=Client())
    assert status(tmp_path / "set").missing == (1, 2, 3)


# --- read-only places and other writers -----------------------------------------------------------


def test_a_complete_set_is_used_without_writing_a_byte(folder, monkeypatch):
    def refuse(*arguments, **settings):
        raise AssertionError("something was written")

    before = {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    monkeypatch.setattr(store, "write_sealed", refuse)
    monkeypatch.setattr(store, "write_atomically", refuse)
    assert len(ks.simulate(Symmetric(), 400, seed=2, path=folder, jobs=1)) == 400
    assert len(finish(folder)) == 400
    assert {p.name: p.stat().st_mtime_ns for p in folder.iterdir()} == before


def test_a_manifest_that_says_something_else_is_rewritten(pristine, folder):
    flip(folder / "manifest.json")
    finish(folder)
    assert (folder / "manifest.json").read_bytes() == (pristine / "manifest.json").read_bytes()


def test_writers_that_cannot_see_each_other_leave_each_other_alone(tmp_path):
    """Containers on one machine: each in a PID namespace of its own, one folder."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    try:
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
            pytest.skip("PID namespaces need rights that are missing here")
    except FileNotFoundError:
        pytest.skip("there is no unshare command")
    target = [sys.executable, str(HELPERS / "data_kill_target.py")]
    path = os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")])
    arguments = [str(v) for v in (tmp_path / "set", 0, 1, 0.02, 2100, 4)]
    processes = [
        subprocess.Popen(
            [*unshare, *target, *arguments],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    while any(process.poll() is None for process in processes):
        if (tmp_path / "set").exists():
            ks.files.remove_leftovers(tmp_path / "set")  # a third one, which sees neither
        time.sleep(0.001)
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
    assert ks.verify(tmp_path / "set").complete
    assert not list((tmp_path / "set").glob(".tmp-*"))


# --- tables and archives beside data sets ---------------------------------------------------------


def bomb(path, shape=(10**12,), claimed=None):
    """An archive of a few bytes whose array claims very many."""
    import io
    import zipfile

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header.getvalue() + bytes(claimed or 0))


def test_archives_are_checked_before_they_are_unpacked(tmp_path):
    import zipfile

    from keepscore.npy import read_npz

    path = tmp_path / "a.npz"
    text, array = np.array("told"), np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.savez_compressed(path, text=text, array=array, empty=np.zeros((0, 3)), none=np.array(""))
    found = read_npz(path)
    assert str(found["text"]) == "told"
    np.testing.assert_array_equal(found["array"], array)
    assert found["empty"].shape == (0, 3)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):  # bit flips and cuts anywhere
        broken = bytearray(whole)
        broken[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(broken[: rng.integers(len(whole))] if rng.random() < 0.2 else broken)
        typed(read_npz, path)
    bomb(path)
    with pytest.raises(FormatError, match="claims"):
        read_npz(path)
    bomb(path, (10**6,), 8_000_000)
    assert read_npz(path)["a"].shape == (1_000_000,)
    with pytest.raises(FormatError, match="more than 1000000 bytes"):
        read_npz(path, most=1_000_000)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.npy", b"")
    with pytest.raises(FormatError, match="not an archive of arrays"):
        read_npz(path)
    np.savez(path, a=np.array([{}], dtype=object))
    with pytest.raises(FormatError, match="real numbers"):
        read_npz(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FormatError, match="regular"):
        read_npz(path)


def test_results_kept_on_disk_come_back_or_are_refused(tmp_path):
    from keepscore.evaluation.exact_cache import cached

    path, made = tmp_path / "exact.npz", {"a": np.arange(3.0), "b": np.ones((2, 2), bool)}
    assert cached(path, {"n": 1}, lambda: made) is made

    def refuse():
        raise AssertionError("computed again")

    for name, array in cached(path, {"n": 1}, refuse).items():
        np.testing.assert_array_equal(array, made[name])
    with pytest.raises(MismatchError, match="n: 1 there, 2 here"):
        cached(path, {"n": 2}, refuse)
    for strange in (b"", b"PK\x03\x04", b"\x93NUMPY"):
        path.write_bytes(strange)
        with pytest.raises(FormatError, match="delete it"):
            cached(path, {"n": 1}, refuse)
    for text in ("[" * 100_000, "[1]", "3", "null"):
        np.savez(path, identity=np.array(text))
        with pytest.raises(MismatchError, match=r"something else|other settings"):
            cached(path, {"n": 1}, refuse)
    np.savez(path, identity=np.array(json.dumps({"n": 1})), a=np.array("text"))
    with pytest.raises(FormatError, match="numbers"):
        cached(path, {"n": 1}, refuse)
    np.savez(path, identity=np.arange(3))
    with pytest.raises(FormatError, match="does not say"):
        cached(path, {"n": 1}, refuse)


def test_observations_are_read_from_sound_files_only(tmp_path):
    from keepscore.cli.settings import read_observations

    np.savez(tmp_path / "a.npz", a=np.zeros(3))
    (tmp_path / "archive.npy").write_bytes((tmp_path / "a.npz").read_bytes())
    np.save(tmp_path / "text.npy", np.array(["a"]))
    np.save(tmp_path / "complex.npy", np.zeros(3, complex))
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "words.csv").write_text("a,b\nc,d\n")
    for kind in ("npy", "csv"):
        os.mkfifo(tmp_path / f"pipe.{kind}")
        (tmp_path / f"folder.{kind}").mkdir()
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(2**40)
    for file in tmp_path.iterdir():
        with pytest.raises(FormatError):
            read_observations(file, (3,))
    with pytest.raises(StorageError, match="No such file"):
        read_observations(tmp_path / "absent.npy", (3,))
    (tmp_path / "plain.csv").write_text("a,b,c\n1,2,nan\n4,5,6\n")
    np.testing.assert_array_equal(
        read_observations(tmp_path / "plain.csv", (3,)), [[1, 2, np.nan], [4, 5, 6]]
    )
    (tmp_path / "marked.csv").write_text("\ufeff1,2,3\n")
    np.testing.assert_array_equal(read_observations(tmp_path / "marked.csv", (3,)), [[1, 2, 3]])
    np.save(tmp_path / "plain.npy", np.arange(6.0).reshape(2, 3))
    found = read_observations(tmp_path / "plain.npy", (3,))
    found[0, 0] = 7.0  # an array of the caller's own
