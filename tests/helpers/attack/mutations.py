"""Ways to damage a file: as disks do (bits, blocks, lengths) and as an attacker does (values that
parse and lie, sizes that are not there, things in place of files that are no files)."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np

from keepscore.files import json_bytes

DEEP: Any = None
for _ in range(200):
    DEEP = [DEEP]

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**53, 2**63, -(2**63), 10**18, 10**25, 10**400,
    0.5, -0.0, 1e308, -1e308, 5e-324, "", "x", "../../etc/passwd", "/dev/zero", "a\0b",
    "\x1b[31mred", "nan", "x" * 10_000, "\ud800", [], {}, [[]], [1, [2]], [None], ["a"],
    [0] * 10_000, {"a": 1}, {"": None}, DEEP,
)  # fmt: skip


def damage(rng: np.random.Generator, folder: Path, files: list[str]) -> tuple[str, bool]:
    """Damage one of `files` in `folder`; what was done, and whether checksums were made to fit."""
    file = folder / files[rng.integers(len(files))]
    kinds: list[Any] = [_bytes, _bytes, _not_a_file]
    if file.suffix == ".json":
        kinds += [_values] * 5
    if file.suffix == ".npy":
        kinds += [_array_header] * 2
    if file.suffix == ".safetensors":
        kinds += [_tensor_header] * 3
    what, fitted = kinds[rng.integers(len(kinds))](rng, file)
    return f"{file.name}: {what}", fitted


def flip_one_bit(rng: np.random.Generator, folder: Path, files: list[str]) -> tuple[str, bool]:
    """Flip one bit of one of `files`; the checksum is not made to fit."""
    file = folder / files[rng.integers(len(files))]
    data = bytearray(file.read_bytes())
    at, bit = int(rng.integers(len(data))), int(rng.integers(8))
    data[at] ^= 1 << bit
    file.write_bytes(data)
    return f"{file.name}: bit {bit} of byte {at}", False


def hostile_value(rng: np.random.Generator) -> Any:
    return copy.deepcopy(HOSTILE[rng.integers(len(HOSTILE))])


def change_values(rng: np.random.Generator, content: Any) -> str:
    """Change one to three places of plain data in place."""
    done = []
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(content))
        if not places:
            break
        inner, key = places[rng.integers(len(places))]
        kind = rng.integers(4)
        if kind == 0 and isinstance(inner, dict):
            inner.pop(key)
            done.append(f"drop {key!r}")
        elif kind == 1 and isinstance(inner, dict):
            inner[f"{key}_"] = inner.pop(key)
            done.append(f"rename {key!r}")
        else:
            inner[key] = hostile_value(rng)
            done.append(f"{key!r} = {str(inner[key])[:30]!r}")
    return "; ".join(done)


def _places(content: Any):
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in list(items)[:200]:
        yield content, key
        yield from _places(value)


def _bytes(rng: np.random.Generator, file: Path) -> tuple[str, bool]:
    data = bytearray(file.read_bytes())
    n = max(1, len(data))
    at, length = int(rng.integers(n)), int(rng.integers(1, 64))
    kind = ["flip", "flips", "cut", "grow", "zero", "remove", "repeat", "empty", "noise"][
        rng.integers(9)
    ]
    if not data:
        kind = "noise"
    if kind == "flip":
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == "flips":
        for _ in range(16):
            data[int(rng.integers(n))] ^= 1 << int(rng.integers(8))
    elif kind == "cut":
        del data[at:]
    elif kind == "grow":
        data += rng.bytes(length)
    elif kind == "zero":
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif kind == "remove":
        del data[at : at + length]
    elif kind == "repeat":
        data[at:at] = data[at : at + length]
    elif kind == "empty":
        data.clear()
    else:
        data = bytearray(rng.bytes(n))
    file.write_bytes(data)
    return f"{kind} at {at}", False


def _not_a_file(rng: np.random.Generator, file: Path) -> tuple[str, bool]:
    kind = ["absent", "pipe", "folder", "loop", "zeros", "sparse"][rng.integers(6)]
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "zeros":
        file.symlink_to("/dev/zero")
    elif kind == "sparse":
        with file.open("wb") as handle:
            handle.truncate(1 << 38)
    return kind, False


def _values(rng: np.random.Generator, file: Path) -> tuple[str, bool]:
    content = json.loads(file.read_bytes())
    what = change_values(rng, content)
    fitted = bool(rng.random() < 0.8)
    _write_json(file, content, fitted)
    return what + (" (checksum made to fit)" if fitted else ""), fitted


def _write_json(file: Path, content: Any, fitted: bool) -> None:
    """Write content; with `fitted`, as its owner would seal it."""
    if fitted and isinstance(content, dict) and "checksum" in content:
        content = {k: v for k, v in content.items() if k != "checksum"}
        with contextlib.suppress(ValueError):
            content["checksum"] = hashlib.sha256(json_bytes(content)).hexdigest()
    try:
        file.write_bytes(json_bytes(content))
    except ValueError:
        file.write_text(json.dumps(content, default=str), errors="surrogatepass")


def _array_header(rng: np.random.Generator, file: Path) -> tuple[str, bool]:
    shapes = [
        "()",
        "(0,)",
        "(-1,)",
        "(10**15,)",
        "(99999999999999, 9)",
        "(2, 2)",
        "None",
        "(True,)",
    ]
    kinds = ["'<f8'", "'|O'", "'<U9'", "'<c16'", "'|V8'", "[('a', '<f8')]", "'<f4'", "3", "'<m8'"]
    shape, kind = shapes[rng.integers(len(shapes))], kinds[rng.integers(len(kinds))]
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    data = file.read_bytes()
    file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data[128:])
    return f"header {kind} {shape}", False


def _tensor_header(rng: np.random.Generator, file: Path) -> tuple[str, bool]:
    """Another header of a safetensors file; its checksum beside it is made to fit."""
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    what = change_values(rng, header)
    try:
        text = json.dumps(header).encode()
    except (ValueError, UnicodeEncodeError):
        text = b"{}"
    claimed = len(text) if rng.random() < 0.8 else int(rng.integers(2**62))
    file.write_bytes(struct.pack("<Q", claimed) + text + data[8 + size :])
    for beside in file.parent.glob("*.json"):
        content = json.loads(beside.read_bytes())
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        for holder in (content, content.get("weights")):
            if isinstance(holder, dict) and "sha256" in holder:
                holder["sha256"] = digest
                _write_json(beside, content, True)
    return f"header: {what}", True


def restore(pristine: Path, folder: Path) -> None:
    """Make `folder` what `pristine` is."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pristine, folder)
