"""Files are whole or absent, and broken ones are named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keepscore import locks
from keepscore.errors import BusyError, DomainError, FormatError, StorageError
from keepscore.files import (
    _machine,
    json_bytes,
    make_folder,
    read_json,
    read_regular,
    read_sealed,
    remove_leftovers,
    sha256,
    write_atomically,
    write_json,
    write_sealed,
)
from keepscore.locks import only_writer
from keepscore.npy import map_npy, read_npy


def test_round_trip(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"b": [1, 2.5, "ü"]})
    assert read_json(path) == {"b": [1, 2.5, "ü"]}
    assert os.listdir(tmp_path) == ["a.json"]
    assert sha256(path) == sha256(path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"old": True})

    def half(file):
        file.write(b"half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_atomically(path, half)
    assert read_json(path) == {"old": True}
    assert os.listdir(tmp_path) == ["a.json"]


def test_files_are_as_readable_as_any_other(tmp_path):
    write_json(tmp_path / "a.json", {})
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_nan_is_not_json(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a":' * 5000])
def test_broken_json_is_refused_by_name(tmp_path, content):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"broken\.json"):
        read_json(path)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(StorageError, match="No such file"):
        read_json(tmp_path / "absent.json")
    with pytest.raises(StorageError, match="Cannot write"):
        write_json(tmp_path / "absent" / "a.json", {})
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Cannot create the folder"):
        make_folder(tmp_path / "file" / "sub")


@pytest.mark.parametrize("path", ["", None, 3, "a\0b"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(DomainError):
        make_folder(path)


@pytest.mark.parametrize(
    "content", ['{"n": NaN}', '{"n": -Infinity}', '{"n": ' + "9" * 400 + "}", '{"n": 1e999}']
)
def test_numbers_that_are_not_ours_are_refused(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text(content)
    if "e" in content:  # a float too large is infinite, which a sealed file cannot hold
        with pytest.raises(FormatError):
            read_sealed(path, "format", 1)
    else:
        with pytest.raises(FormatError, match="not valid JSON"):
            read_json(path)


@pytest.mark.parametrize("read", [read_json, sha256, read_npy, map_npy])
def test_a_pipe_is_refused_and_does_not_hang(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(FormatError, match="not a regular file"):
            read(type(tmp_path)(path))
    with pytest.raises((FormatError, StorageError)):
        read(tmp_path)


def test_a_file_larger_than_expected_is_not_read(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: nothing lies on the disk
    with pytest.raises(FormatError, match="at most 100"):
        read_regular(path, 100)
    with pytest.raises(FormatError, match="at most"):
        read_json(path)


def test_every_flipped_bit_of_a_sealed_file_is_found(tmp_path):
    path = tmp_path / "a.json"
    write_sealed(path, "kind", 2, {"space": [0.5, -1.25], "name": "ü", "checked": True})
    whole = path.read_bytes()
    assert read_sealed(path, "kind", 2)["space"] == [0.5, -1.25]
    for position in range(len(whole)):
        for bit in range(8):
            broken = bytearray(whole)
            broken[position] ^= 1 << bit
            path.write_bytes(broken)
            with pytest.raises(FormatError):
                read_sealed(path, "kind", 2)
    path.write_bytes(json_bytes({**json.loads(whole), "checksum": "0" * 64}))
    with pytest.raises(FormatError, match="checksum"):
        read_sealed(path, "kind", 2)
    path.write_bytes(whole)
    with pytest.raises(FormatError, match="version 2; this keepscore reads version 3"):
        read_sealed(path, "kind", 3)
    with pytest.raises(FormatError, match="not a other"):
        read_sealed(path, "other", 2)


def test_one_writer_at_a_time_and_its_lock_dies_with_it(tmp_path):
    holder = (
        "import sys, time, pathlib; from keepscore.locks import only_writer\n"
        "with only_writer(pathlib.Path(sys.argv[1]), 'training'):\n"
        "    print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(BusyError, match="in use"), only_writer(tmp_path, "training"):
        pass
    with only_writer(tmp_path, "surrogate"):  # another kind of writer
        pass
    process.kill()
    process.communicate()
    first, second = only_writer(tmp_path, "training"), only_writer(tmp_path, "training")
    with first, pytest.raises(BusyError), second:
        pass
    with only_writer(tmp_path, "training"):
        pass


def test_a_temporary_file_is_a_leftover_only_when_its_writer_is_dead(tmp_path):
    seen = []

    def write(file):
        file.write(b"half")
        # Another container on this machine, which cannot see our process, tidies up now.
        seen.append(remove_leftovers(tmp_path))
        file.write(b"whole")

    (tmp_path / f".tmp-{_machine()}-dead").write_bytes(b"half")
    (tmp_path / ".tmp-elsewhere-unknown").write_bytes(b"half")
    write_atomically(tmp_path / "a", write)
    assert seen == [1]  # the dead one
    assert (tmp_path / "a").read_bytes() == b"halfwhole"
    assert sorted(os.listdir(tmp_path)) == [".tmp-elsewhere-unknown", "a"]


@pytest.mark.parametrize("read", [read_npy, map_npy])
@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.eye(3)[:2]), np.zeros((0, 4)), np.int8(3)],
    ids=["C", "Fortran", "empty", "scalar"],
)
def test_arrays_come_back(tmp_path, read, array):
    np.save(tmp_path / "a.npy", array)
    found = read(tmp_path / "a.npy")
    assert found.dtype == np.asarray(array).dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("read", [read_npy, map_npy])
@pytest.mark.parametrize("shape", ["(10**15, 3)", "(2, 2)", "(-1,)", "(2.0,)", "(1000000000000,)"])
def test_a_header_that_claims_other_sizes_is_refused(tmp_path, read, shape):
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    whole = (tmp_path / "a.npy").read_bytes()
    padding = " " * (len(shape) - len("(2, 3)"))
    broken = whole.replace(b"(2, 3), }" + b" " * len(padding), shape.encode() + b", }")
    assert broken != whole
    (tmp_path / "a.npy").write_bytes(broken)
    with pytest.raises(FormatError, match=r"a\.npy"):
        read(tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes(whole[:-1])
    with pytest.raises(FormatError, match="holds 47"):
        read(tmp_path / "a.npy")


@pytest.mark.parametrize("array", [np.array([{}]), np.array(["a"]), np.zeros(2, complex)])
def test_arrays_of_anything_but_real_numbers_are_refused(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(FormatError, match="real numbers"):
        read_npy(tmp_path / "a.npy")


def test_a_leftover_is_deleted_only_under_its_lock(tmp_path, monkeypatch):
    """A writer that gets the lock after us must find the file gone: deleting it later, when the
    lock is free again, would take a live file away from that writer."""
    file = tmp_path / "one"
    file.write_bytes(b"")
    held = []

    def unlink(self, missing_ok=False):
        other = os.open(self, os.O_RDONLY)
        held.append(locks.lock_file(other, wait=False))
        os.close(other)
        os.unlink(self)

    monkeypatch.setattr(Path, "unlink", unlink)
    assert locks.remove_unless_locked(file)
    assert held == [False]
    assert not file.exists()


def test_a_locked_file_stays(tmp_path):
    file = tmp_path / "one"
    file.write_bytes(b"")
    handle = os.open(file, os.O_RDWR)
    locks.lock_file(handle)
    assert locks.remove_unless_locked(file) is False
    assert file.exists()
    os.close(handle)
    assert locks.remove_unless_locked(file)
