"""Damage of every kind is found, undone, and never run; a full or read-only disk is named."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_helpers import files
from data_models import SlowToy
from toys import GaussianToy

import keepscore as ks
from keepscore.data import store
from keepscore.data.plan import make_plan
from keepscore.data.store import ShardRecord
from keepscore.errors import (
    FormatError,
    KeepscoreWarning,
    MismatchError,
    MissingError,
    ShapeError,
    StorageError,
)
from keepscore.files import read_sealed, write_sealed
from keepscore.models import SIS
from keepscore.models.base import Symmetry


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pristine") / "set"
    ks.simulate(GaussianToy(), 400, seed=2, path=folder, jobs=1)
    return folder


@pytest.fixture
def folder(pristine, tmp_path):
    shutil.copytree(pristine, tmp_path / "set")
    return tmp_path / "set"


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def damage(file, rng):
    """A bit flip, a truncation, a file of zeros of the same size, or an empty file."""
    content = bytearray(file.read_bytes())
    kind = rng.choice(["flip", "flip", "truncate", "zero", "empty"])
    if kind == "flip":
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
    elif kind == "truncate":
        content = content[: rng.integers(len(content))]
    else:
        content = bytearray(len(content) if kind == "zero" else 0)
    file.write_bytes(content)


@pytest.mark.slow
def test_two_hundred_damages_are_found_and_repaired(pristine, folder):
    rng = np.random.default_rng(0)
    whole, names = contents(pristine), sorted(contents(pristine))
    assert ks.verify(folder).ok
    damages = 0
    while damages < 200:
        chosen = set(rng.choice(names, size=rng.integers(1, 6), replace=False).tolist())
        if {"plan.json", "manifest.json"} <= chosen:
            chosen.remove("plan.json")  # one of the two copies must survive; see below
        for name in chosen:
            damage(folder / name, rng)
        damages += len(chosen)
        found = ks.verify(folder)
        # An array is checked against its record: with every copy of that gone, the record is named.
        named = {d.file for d in found.damaged}
        for name in chosen - named:
            record = name.split(".")[0] + ".json"
            assert {record, "manifest.json"} <= named
        assert named <= chosen
        assert not found.ok
        ks.repair(folder, model=GaussianToy())
        assert contents(folder) == whole


def test_one_flipped_bit_anywhere_in_the_json_is_found(pristine, folder):
    """Every byte of a plan and a record, one bit each; blanks and line ends included."""
    rng = np.random.default_rng(1)
    for name, kind in (("plan.json", "plan"), ("shard-00001.json", "shard")):
        whole = (pristine / name).read_bytes()
        for position in range(len(whole)):
            broken = bytearray(whole)
            broken[position] ^= 1 << rng.integers(8)
            (folder / name).write_bytes(broken)
            with pytest.raises(FormatError):
                read_sealed(folder / name, store.FORMATS[kind], store.VERSION)
        # Other bytes that mean the same JSON are damage too.
        for broken in (whole[:-1], whole.replace(b"\n", b"\t", 1), whole + b" "):
            (folder / name).write_bytes(broken)
            with pytest.raises(FormatError):
                read_sealed(folder / name, store.FORMATS[kind], store.VERSION)


def test_deleted_files_of_a_complete_set_are_damage(pristine, folder):
    for name in ("shard-00001.x.npy", "shard-00002.json", "plan.json"):
        (folder / name).unlink()
    assert len(ks.verify(folder).damaged) == 3
    ks.repair(folder, model=GaussianToy())
    assert contents(folder) == contents(pristine)


def test_an_incomplete_set_is_not_damaged(folder):
    for name in ("manifest.json", "shard-00002.json"):
        (folder / name).unlink()
    found = ks.verify(folder)
    assert found.ok
    assert not found.complete
    assert found.done == 6
    (folder / "shard-00003.x.npy").unlink()  # its record is there: this one is
    assert [d.file for d in ks.verify(folder).damaged] == ["shard-00003.x.npy"]


def test_opening_notices_sizes_and_tells_the_remedy(folder):
    file = folder / "shard-00001.x.npy"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FormatError, match="repair"):
        ks.open_dataset(folder)


def test_simulate_accepts_no_damaged_shard(pristine, folder):
    file = folder / "shard-00001.x.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.warns(KeepscoreWarning, match=r"shard-00001\.x\.npy does not match"):
        ks.simulate(GaussianToy(), 400, seed=2, path=folder, jobs=1)
    assert files(folder) == files(pristine)


def test_losing_both_copies_of_the_plan(pristine, folder):
    for name in ("plan.json", "manifest.json"):
        (folder / name).write_bytes(b"")
    assert len(ks.verify(folder).damaged) == 2
    with pytest.raises(FormatError, match="original `simulate` call"):
        ks.repair(folder, model=GaussianToy())
    with pytest.raises(MismatchError, match="another data set"):
        ks.simulate(GaussianToy(), 400, seed=3, path=folder, jobs=1)
    with pytest.warns(KeepscoreWarning, match="Rewritten"):
        ks.simulate(GaussianToy(), 400, seed=2, path=folder, jobs=1)
    assert files(folder) == files(pristine)


def test_shards_without_any_plan_are_not_taken_over(folder):
    for name in ("plan.json", "manifest.json"):
        (folder / name).unlink()
    with pytest.raises(MismatchError, match="another data set"):
        ks.simulate(GaussianToy(), 400, seed=3, path=folder, jobs=1)
    with pytest.raises(StorageError, match="not a data set"):
        ks.verify(folder)


def test_a_foreign_manifest_is_left_alone(tmp_path):
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    with pytest.raises(FormatError, match="foreign"):
        ks.simulate(GaussianToy(), 100, path=tmp_path, jobs=1)
    assert (tmp_path / "manifest.json").read_text() == '{"name": "a web page"}'


def test_repair_needs_the_same_model(folder):
    (folder / "shard-00001.x.npy").write_bytes(b"")
    with pytest.raises(MissingError, match="not a built-in model"):
        ks.repair(folder)
    with pytest.raises(MismatchError, match=r"settings\.m: 4 there, 5 here"):
        ks.repair(folder, model=GaussianToy(5))

    class Changed(GaussianToy):
        def simulate(self, theta, rng):
            return super().simulate(theta, rng) + 1e-9

    with pytest.raises(MismatchError, match="other bytes than were recorded"):
        ks.repair(folder, model=Changed())
    assert (folder / "shard-00001.x.npy").read_bytes() == b""


def test_a_set_of_a_built_in_model_is_repaired_by_name(tmp_path):
    from keepscore.models import SIS

    ks.simulate(SIS(), 70, path=tmp_path / "set", jobs=1)
    whole = contents(tmp_path / "set")
    (tmp_path / "set" / "shard-00001.score.npy").write_bytes(b"")
    assert not ks.repair(tmp_path / "set").ok  # what had been found
    assert contents(tmp_path / "set") == whole
    assert ks.open_dataset(tmp_path / "set").structure == "markov"


def test_a_newer_format_is_named(folder):
    content = json.loads((folder / "manifest.json").read_bytes())
    content["version"] = 2
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match="version 2"):
        ks.open_dataset(folder)


def test_symmetries_and_structure_travel_with_the_data(tmp_path):
    model = GaussianToy()
    model.symmetries = (Symmetry("reverse", np.arange(4)[::-1].copy(), (0, 1)),)
    model.structure = "markov"
    data = ks.simulate(model, 100, path=tmp_path, jobs=1)
    assert data.structure == "markov"
    assert data.symmetries[0].name == "reverse"
    assert data.symmetries[0].x_index.tolist() == [3, 2, 1, 0]


class Malicious:
    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


class OwnEpidemic:
    """A user's own model of people on a graph: SIS under another name, not in the registry."""

    name = "own-epidemic"

    def __init__(self, weights):
        self._inner = SIS(weights=weights, times=range(4))

    def settings(self):
        return {}

    def __getattr__(self, name):
        return getattr(self.__dict__["_inner"], name)


@pytest.mark.parametrize("own", [False, True])
def test_the_graph_travels_with_the_data(tmp_path, own):
    weights = np.array([[0, 1, 0.25], [1, 0, 0], [0, 2, 0]])
    model = OwnEpidemic(weights) if own else SIS(weights=weights, times=range(4))
    in_memory = ks.simulate(model, 70, jobs=1)
    on_disk = ks.simulate(model, 70, path=tmp_path / "set", jobs=1)
    for data in (in_memory, on_disk, on_disk.take(5), ks.open_dataset(tmp_path / "set")):
        np.testing.assert_array_equal(data.contacts, weights)
        assert not data.contacts.flags.writeable
    content = json.loads((tmp_path / "set" / "plan.json").read_text())
    assert ("contacts" in content["plan"]) == own  # the built-in one tells it in its settings
    assert ks.simulate(GaussianToy(4), 70, jobs=1).contacts is None
    with pytest.raises(ShapeError, match="contacts of 2 people"):
        replace(in_memory, contacts=np.eye(2))


@pytest.mark.parametrize("how", ["object array", "bare pickle"])
def test_code_in_an_array_file_never_runs(folder, tmp_path, how):
    """The attacker has written matching sizes and checksums everywhere; still refused."""
    mark, file = tmp_path / "ran", folder / "shard-00000.x.npy"
    if how == "object array":
        rows = np.empty((64, 4), dtype=object)
        rows[:] = Malicious(mark)
        np.save(file, rows, allow_pickle=True)
    else:
        file.write_bytes(pickle.dumps(Malicious(mark)))
    plan, origin, records = store.read_manifest(folder)
    first = records[0]
    content = file.read_bytes()
    file.write_bytes(content.ljust(first.files["x"][0], b"\0"))  # of the size that its rows need
    forged = {**first.files, "x": (file.stat().st_size, store.sha256(file))}
    records[0] = ShardRecord(0, first.rows, (), forged)
    store.write_record(folder, plan, records[0])
    store.write_manifest(folder, plan, origin, dict(enumerate(records)))
    assert ks.verify(folder).ok  # nothing ran, and all checksums agree
    data = ks.open_dataset(folder)
    for read in (lambda: data.x[0], lambda: data.rows([1]), lambda: np.asarray(data.x)):
        with pytest.raises(FormatError, match=r"cannot be read|real numbers"):
            read()
    assert not mark.exists()


def test_arrays_of_another_shape_or_dtype_are_refused(folder):
    file = folder / "shard-00000.x.npy"
    for wrong in (np.zeros((64, 4), np.int64), np.zeros((128, 2)), np.zeros((4, 64))):
        np.save(file, wrong)
        data = ks.open_dataset(folder)
        with pytest.raises(FormatError, match="must hold float64"):
            data.rows([0])


def test_paths_inside_files_are_not_believed(folder):
    content = read_sealed(folder / "manifest.json", store.FORMATS["manifest"], store.VERSION)
    content["shards"][0]["files"]["../../secret"] = content["shards"][0]["files"]["x"]
    write_sealed(folder / "manifest.json", store.FORMATS["manifest"], store.VERSION, content)
    with pytest.raises(FormatError, match="shard 0"):
        ks.open_dataset(folder)


def test_what_is_not_a_data_set_is_named(tmp_path):
    for call in (ks.open_dataset, ks.verify, ks.repair):
        with pytest.raises(StorageError, match="nowhere"):
            call(tmp_path / "nowhere")
        with pytest.raises(StorageError, match="not a data set"):
            call(tmp_path)


def test_another_version_is_said(folder, monkeypatch):
    here = {**store.environment(), "numpy": "9.9.9"}
    monkeypatch.setattr(store, "environment", lambda: here)
    with pytest.warns(KeepscoreWarning, match=r"numpy .* \(here 9\.9\.9\)"):
        ks.simulate(GaussianToy(), 400, seed=2, path=folder, jobs=1)


class Crash(BaseException):
    """The machine stops here; nothing may catch this to tidy up."""


@pytest.mark.parametrize("when", ["before the rename", "after the rename"])
def test_a_crash_at_any_write_leaves_a_sound_folder(tmp_path, monkeypatch, when):
    """Every file of a set in turn is the last one written: never damage, and the same end."""
    rename, unlink = os.replace, Path.unlink
    ks.simulate(GaussianToy(), 140, path=tmp_path / "plain", jobs=1)
    for steps in range(1, 16):
        folder, count = tmp_path / f"set-{steps}", iter(range(1, 1000))

        def crashing(source, target, steps=steps, count=count):
            last = next(count) == steps
            if last and when == "before the rename":
                raise Crash
            rename(source, target)
            if last:
                raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", crashing)
            patch.setattr(Path, "unlink", lambda *a, **k: None)  # the dead do not tidy up
            try:
                ks.simulate(GaussianToy(), 140, path=folder, jobs=1)
                finished = True
            except Crash:
                finished = False
        found = ks.verify(folder)
        assert found.ok, str(found)
        assert found.complete == (folder / "manifest.json").exists()
        for left in folder.glob(".tmp-*"):
            unlink(left)
        ks.simulate(GaussianToy(), 140, path=folder, jobs=1)
        assert files(folder) == files(tmp_path / "plain")
        if finished:
            return
    pytest.fail("3 shards of 4 files and a manifest take 13 renames")


# --- real disks ----------------------------------------------------------------------------------


@contextmanager
def small_disk(path, size):
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command, so no small disk to fill")
    if done.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_is_named_and_what_was_complete_stays(tmp_path, monkeypatch, jobs):
    plenty = shutil.disk_usage(tmp_path)._replace(free=2**60)
    model = SlowToy(0.0, m=40)
    with small_disk(tmp_path / "disk", "600k") as disk:
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda path: plenty)  # others fill it meanwhile
            with pytest.raises(StorageError, match=r"disk/set/shard-\d+.*No space left"):
                ks.simulate(model, 2000, path=disk / "set", jobs=jobs)
        found = ks.verify(disk / "set")
        assert found.ok
        assert not list((disk / "set").glob(".tmp-*"))
        assert 0 < found.done < found.shards
        with pytest.raises(StorageError, match="free; the"):
            ks.simulate(model, 2000, path=disk / "set", jobs=1)
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        data = ks.simulate(model, 2000, path=disk / "set", jobs=1)
        assert np.array_equal(data.x, ks.simulate(model, 2000, jobs=1).x)


def test_a_read_only_disk_is_named_and_still_readable(tmp_path):
    with small_disk(tmp_path / "disk", "8m") as disk:
        ks.simulate(GaussianToy(), 200, path=disk / "half", jobs=1)
        (disk / "half" / "manifest.json").unlink()
        (disk / "half" / "shard-00001.json").unlink()
        ks.simulate(GaussianToy(), 200, path=disk / "whole", jobs=1)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for name in ("half", "new"):
            with pytest.raises(StorageError, match=f"disk/{name}.*Read-only"):
                ks.simulate(GaussianToy(), 200, path=disk / name, jobs=1)
        assert ks.verify(disk / "half").ok
        assert len(ks.open_dataset(disk / "whole")) == 200


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
def test_a_folder_without_permission_is_named(tmp_path):
    (tmp_path / "set").mkdir(mode=0o555)
    with pytest.raises(StorageError, match="set"):
        ks.simulate(GaussianToy(), 200, path=tmp_path / "set", jobs=1)


def test_a_plan_from_a_file_is_checked():
    plan = make_plan(GaussianToy(), 100, 0, "train", True, "raise").to_dict()
    wrong = [
        {"n": 0},
        {"n": "100"},
        {"shard_rows": -1},
        {"x_dtype": "O"},
        {"x_shape": [-4]},
        {"purpose": "other"},
        {"score_kind": "maybe"},
        {"model": {}},
        {"symmetries": [{"name": "s"}]},
    ]
    for change in wrong:
        with pytest.raises(FormatError):
            store.Plan.from_dict({**plan, **change})
    for content in (None, [], {}):
        with pytest.raises(FormatError):
            store.Plan.from_dict(content)


def test_repair_puts_back_a_manifest_that_is_gone(tmp_path):
    """All shards are there and sound: nothing is damaged, and the set is whole again."""
    before = ks.simulate(GaussianToy(), 140, path=tmp_path, jobs=1)
    content = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").unlink()
    assert not ks.verify(tmp_path).complete
    found = ks.repair(tmp_path, model=GaussianToy())
    assert found.ok
    assert not found.complete
    assert ks.verify(tmp_path).complete
    assert (tmp_path / "manifest.json").read_bytes() == content
    assert np.array_equal(ks.open_dataset(tmp_path).x, before.x)
