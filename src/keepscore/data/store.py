"""A data set on disk: a folder of `.npy` shards and JSON records, with checksums of both.

    plan.json              what the set is to be; written first, by exactly one writer
    shard-00007.theta.npy  the arrays of shard 7 (theta, x and, if kept, score)
    shard-00007.json       the record of shard 7: rows, checksums; written last, so that its
                           presence means the shard is whole
    manifest.json          the plan and all records; its presence means the set is complete

Every file is written under a temporary name, flushed to disk and renamed, so a crash at any moment
leaves a folder that the same call can go on with. Several writers may fill one folder at once: the
bytes of a shard depend on the plan alone, so even two that write the same shard agree.

Reading runs nothing: arrays are read without pickle and must have the size, shape and dtype that
the records state; file names come from shard numbers, never from a file. Every JSON file carries a
checksum of its own content and is accepted only if its bytes are exactly what we would write.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from keepscore.data.design import seed_key
from keepscore.data.plan import Plan
from keepscore.data.provenance import environment
from keepscore.data.shard import Shard
from keepscore.differences import differences
from keepscore.errors import (
    FormatError,
    KeepscoreError,
    KeepscoreWarning,
    MismatchError,
    StorageError,
)
from keepscore.files import (
    LARGEST_JSON,
    read_regular,
    read_sealed,
    sealed_bytes,
    sha256,
    write_atomically,
    write_sealed,
)
from keepscore.npy import LARGEST_HEADER

PLAN, MANIFEST = "plan.json", "manifest.json"
VERSION = 1
FORMATS = {"plan": "keepscore-plan", "shard": "keepscore-shard", "manifest": "keepscore-dataset"}

CODE = "model.settings.code."  # where the plan of a model of functions tells their code

Environment = Mapping[str, str | None]


@dataclass(frozen=True)
class ShardRecord:
    """What is known of a shard that was written: rows kept, rows dropped, size and checksum by
    array."""

    index: int
    rows: int
    dropped: tuple[int, ...]
    files: Mapping[str, tuple[int, str]]

    def to_dict(self, plan: Plan) -> dict[str, Any]:
        arrays = plan.arrays()
        return {
            "shard": self.index,
            "rows": self.rows,
            "dropped": list(self.dropped),
            "seed": plan.seed,
            "seed_key": list(seed_key(plan.purpose, "x", self.index)),
            "files": {
                name: {"bytes": size, "sha256": digest, "dtype": arrays[name][1].str}
                for name, (size, digest) in self.files.items()
            },
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], plan: Plan, index: int) -> ShardRecord:
        """The record of shard `index` of this plan, or an error: what a file says is checked."""
        try:
            files = {
                name: (int(content["files"][name]["bytes"]), str(content["files"][name]["sha256"]))
                for name in plan.arrays()
            }
            dropped = tuple(int(row) for row in content["dropped"])
            record = cls(int(content["shard"]), int(content["rows"]), dropped, files)
            same = record.to_dict(plan) == content and record.index == index
        except Exception as error:  # a forged record can fail in any way
            raise FormatError(f"The record of shard {index} is broken: {error}.") from None
        if not same:
            raise FormatError(f"The record of shard {index} is not one of this data set.")
        rows = plan.rows(index)
        inside = all(row in rows for row in dropped) and len(set(dropped)) == len(dropped)
        if record.rows < 0 or record.rows + len(dropped) != len(rows) or not inside:
            raise FormatError(f"The rows of shard {index} do not add up.")
        for name, (shape, dtype) in plan.arrays().items():
            header = files[name][0] - record.rows * math.prod(shape) * dtype.itemsize
            if not 0 < header <= LARGEST_HEADER:
                raise FormatError(f"The size of {name} in shard {index} does not fit its rows.")
        return record


# --- names ---------------------------------------------------------------------------------------


def array_file(folder: Path, index: int, name: str) -> Path:
    return folder / f"shard-{index:05d}.{name}.npy"


def record_file(folder: Path, index: int) -> Path:
    return folder / f"shard-{index:05d}.json"


# --- the plan ------------------------------------------------------------------------------------


def claim(folder: Path, plan: Plan) -> Environment:
    """Make the folder this plan's, or make sure it is; the environment it was begun in."""
    if not (folder / PLAN).exists():
        if (folder / MANIFEST).exists():
            there, origin = read_plan_of(folder / MANIFEST)  # foreign or broken: an error
        else:
            _refuse_other_shards(folder, plan)
            there, origin = plan, environment()
        with suppress(FileExistsError):  # another writer was faster; its plan is compared below
            write_plan(folder, there, origin, exclusive=True)
    there, origin = read_plan(folder, plan)
    found = list(differences(there.to_dict(), plan.to_dict()))
    if found:
        more = f"; and {len(found) - 6} more" if len(found) > 6 else ""
        raise MismatchError(
            f"{folder} holds another data set. It differs in {'; '.join(found[:6])}{more}. "
            f"{code_words(found, origin)}Use another folder, or delete this one."
        )
    here = environment()
    changed = [k for k in ("keepscore", "numpy") if origin.get(k) != here[k]]
    if changed:
        was = ", ".join(f"{k} {origin.get(k)} (here {here[k]})" for k in changed)
        warnings.warn(
            f"{folder} was begun with {was}: new shards may differ from what that version makes.",
            KeepscoreWarning,
            stacklevel=4,
        )
    return origin


def code_words(found: list[str], origin: Environment) -> str:
    """A sentence on differences in the code of functions, if there are any."""
    functions = {text.split(".")[3].split(":")[0] for text in found if text.startswith(CODE)}
    if not functions:
        return ""
    was, now = origin.get("python"), environment()["python"]
    if _minor(was) != _minor(now):
        return (
            f"It was begun with Python {was}; this is {now}, whose bytecode differs: whether the "
            "functions are the same cannot be told. "
        )
    return (
        f"The code of {', '.join(sorted(functions))}, or a value that it uses, has changed since: "
        "old and new rows would not be of one distribution. "
    )


def _minor(version: object) -> list[str]:
    return str(version).split(".")[:2]


def write_plan(folder: Path, plan: Plan, origin: Environment, exclusive: bool = False) -> None:
    content = {"plan": plan.to_dict(), "environment": dict(origin)}
    write_sealed(folder / PLAN, FORMATS["plan"], VERSION, content, exclusive)


def read_plan_of(path: Path) -> tuple[Plan, Environment]:
    """The plan in plan.json or manifest.json."""
    kind = "plan" if path.name == PLAN else "manifest"
    content = read_sealed(path, FORMATS[kind], VERSION)
    made_by = content.get("environment")
    if not isinstance(made_by, dict) or not all(
        value is None or (isinstance(value, str) and value.isprintable())
        for value in made_by.values()
    ):
        raise FormatError(f"{path} does not say what made it.")
    return Plan.from_dict(content.get("plan", {})), made_by


def read_plan(folder: Path, expected: Plan | None = None) -> tuple[Plan, Environment]:
    """The plan of a folder, from either of its two copies.

    When both are lost but `expected` is what every shard was written for, it is put back.
    """
    problems = []
    for name in (PLAN, MANIFEST):
        if (folder / name).exists():
            try:
                return read_plan_of(folder / name)
            except FormatError as error:
                problems.append(str(error))
    if not problems:
        raise StorageError(f"{folder} is not a data set: it has no {PLAN}.")
    if expected is not None and _refuse_other_shards(folder, expected) > 0:
        warnings.warn(f"{problems[0]} Rewritten.", KeepscoreWarning, stacklevel=5)
        write_plan(folder, expected, environment())
        return expected, environment()
    raise FormatError(" ".join(problems))


def _refuse_other_shards(folder: Path, plan: Plan) -> int:
    """How many shards were written for this plan; an error if one was written for another."""
    ours, digest = 0, plan.digest()
    for file in folder.glob("shard-*.json"):
        try:
            theirs = read_sealed(file, FORMATS["shard"], VERSION).get("plan")
        except FormatError:
            continue
        if theirs != digest:
            raise MismatchError(f"{folder} holds shards of another data set ({file.name}).")
        ours += 1
    return ours


# --- shards --------------------------------------------------------------------------------------


class _Tally:
    """Passes bytes on (or nowhere) and keeps their count and checksum."""

    def __init__(self, file: BinaryIO | None = None) -> None:
        self.file, self.size, self.hash = file, 0, hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        self.hash.update(data)
        self.size += len(data)
        return self.file.write(data) if self.file else len(data)


def _save(array: NDArray[Any], tally: _Tally) -> tuple[int, str]:
    np.lib.format.write_array(tally, array, allow_pickle=False)
    return tally.size, tally.hash.hexdigest()


def record_of(shard: Shard) -> ShardRecord:
    """The record a shard would get, without writing it."""
    files = {name: _save(array, _Tally()) for name, array in shard.arrays.items()}
    return ShardRecord(shard.index, len(shard), shard.dropped, files)


def write_shard(
    folder: Path, plan: Plan, shard: Shard, expected: ShardRecord | None = None
) -> ShardRecord:
    """Write the arrays of a shard and then its record.

    With `expected`, the record of what was there before, other bytes are an error: rows made by
    different code or versions must not be mixed unnoticed.
    """
    if expected is not None and record_of(shard) != expected:
        made = read_plan(folder)[1]
        raise MismatchError(
            f"Shard {shard.index} of {folder} came out with other bytes than were recorded. The "
            f"data were made with {dict(made)}; repair them there, or simulate into another folder."
        )
    files: dict[str, tuple[int, str]] = {}
    for name, array in shard.arrays.items():

        def save(file: BinaryIO, name: str = name, array: NDArray[Any] = array) -> None:
            files[name] = _save(array, _Tally(file))

        write_atomically(array_file(folder, shard.index, name), save)
    record = ShardRecord(shard.index, len(shard), shard.dropped, files)
    write_record(folder, plan, record)
    return record


def write_record(folder: Path, plan: Plan, record: ShardRecord) -> None:
    content = {"plan": plan.digest(), **record.to_dict(plan)}
    write_sealed(record_file(folder, record.index), FORMATS["shard"], VERSION, content)


def read_record(folder: Path, plan: Plan, index: int, digest: str) -> ShardRecord:
    """The record of a shard; `digest` is the plan's."""
    path = record_file(folder, index)
    content = read_sealed(path, FORMATS["shard"], VERSION)
    if content.pop("plan", None) != digest:
        raise FormatError(f"{path} belongs to another data set.")
    return ShardRecord.from_dict(content, plan, index)


def array_problem(folder: Path, record: ShardRecord, name: str, full: bool) -> str | None:
    """What is wrong with a file of a shard: its size or, with `full`, its checksum."""
    path = array_file(folder, record.index, name)
    size, digest = record.files[name]
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return "is not a regular file"
        if found.st_size != size:
            return f"has {found.st_size} bytes instead of {size}"
        if full and sha256(path) != digest:
            return "does not match its checksum"
    except KeepscoreError as error:
        return f"cannot be read ({error})"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None


# --- the manifest --------------------------------------------------------------------------------


def write_manifest(
    folder: Path, plan: Plan, origin: Environment, records: Mapping[int, ShardRecord]
) -> None:
    """Declare the set complete. Whoever does it writes the same bytes; where they lie there
    already, nothing is written, so a complete set on a read-only disk can be used."""
    content = {
        "plan": plan.to_dict(),
        "environment": dict(origin),
        "rows": sum(r.rows for r in records.values()),
        "dropped": sum(len(r.dropped) for r in records.values()),
        "shards": [records[k].to_dict(plan) for k in range(plan.shards)],
    }
    path = folder / MANIFEST
    text = sealed_bytes(path, FORMATS["manifest"], VERSION, content)
    if path.exists():
        with suppress(KeepscoreError):
            if read_regular(path, LARGEST_JSON) == text:
                return
    write_sealed(path, FORMATS["manifest"], VERSION, content)


def read_manifest(folder: Path) -> tuple[Plan, Environment, list[ShardRecord]]:
    """Plan, environment and records of a complete set."""
    path = folder / MANIFEST
    content = read_sealed(path, FORMATS["manifest"], VERSION)
    plan, origin = read_plan_of(path)
    shards = content.get("shards")
    if not isinstance(shards, list) or len(shards) != plan.shards:
        raise FormatError(f"{path} does not list its {plan.shards} shards.")
    records = [ShardRecord.from_dict(entry, plan, k) for k, entry in enumerate(shards)]
    return plan, origin, records
