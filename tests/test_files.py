"""Files are whole or absent, and broken ones are named."""

import os

import pytest

from keepscore.errors import FormatError, StorageError
from keepscore.files import make_folder, read_json, sha256, write_atomically, write_json


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
