"""From a folder to a `Dataset`, cheaply: sizes are checked, arrays stay on disk until asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepscore.data import store
from keepscore.data.dataset import Array, Dataset
from keepscore.data.plan import Plan
from keepscore.data.sharded import ShardedArray
from keepscore.errors import FormatError, MissingError, StorageError


@dataclass(frozen=True)
class Status:
    """How far a data set on disk has come."""

    path: Path
    shards: int
    missing: tuple[int, ...]

    @property
    def complete(self) -> bool:
        return not self.missing

    def __str__(self) -> str:
        done = self.shards - len(self.missing)
        text = f"{done} of {self.shards} shards complete in {self.path}"
        return text if self.complete else f"{text}; missing: {_spans(self.missing)}"


def open_dataset(path: str | os.PathLike[str]) -> Dataset:
    """A complete data set on disk, memory-mapped. `verify` checks every byte; this checks sizes."""
    folder = existing(path)
    if not (folder / store.MANIFEST).exists():
        state = status(folder)
        if state.missing:
            raise MissingError(f"{state}. The `simulate` call that began it goes on from there.")
        raise MissingError(f"{state}, but never finished: call `finish` or `simulate` once more.")
    plan, origin, records = store.read_manifest(folder)
    for record in records:
        for name in record.files:
            problem = store.array_problem(folder, record, name, full=False)
            if problem:
                file = store.array_file(folder, record.index, name)
                raise FormatError(f"{file} {problem}. keepscore.repair({str(path)!r}) mends it.")
    rows = [record.rows for record in records]
    arrays: dict[str, Array] = {
        name: ShardedArray(_Load(folder, name, tuple(rows), shape, dtype), rows, shape, dtype)
        for name, (shape, dtype) in plan.arrays().items()
    }
    dropped = [row for record in records for row in record.dropped]
    return as_dataset(plan, origin, arrays, dropped)


def status(path: str | os.PathLike[str]) -> Status:
    """Which shards of a folder are written, by their records; a glance, not a verification."""
    folder = existing(path)
    plan, _ = store.read_plan(folder)
    return Status(folder, plan.shards, missing_shards(folder, plan))


def finish(path: str | os.PathLike[str]) -> Dataset:
    """Check that no shard is missing, write the manifest, and open the set.

    The last step after shares written by several jobs (`simulate_share`); harmless at any time.
    """
    folder = existing(path)
    plan, origin = store.read_plan(folder)
    missing = missing_shards(folder, plan)
    if missing:
        raise MissingError(
            f"{Status(folder, plan.shards, missing)}. The same `simulate` call, or the shares that "
            "did not finish, complete it."
        )
    digest = plan.digest()
    records = {k: store.read_record(folder, plan, k, digest) for k in range(plan.shards)}
    if not any(record.rows for record in records.values()):
        raise MissingError(f"Every simulation in {folder} was invalid and dropped; no row is left.")
    store.write_manifest(folder, plan, origin, records)
    return open_dataset(folder)


def existing(path: str | os.PathLike[str]) -> Path:
    """The folder of a data set; one that is not there is an error."""
    folder = Path(path)
    if not folder.is_dir():
        raise StorageError(f"No such folder: {folder}.")
    return folder.resolve()


def missing_shards(folder: Path, plan: Plan) -> tuple[int, ...]:
    present = {entry.name for entry in os.scandir(folder)}
    return tuple(k for k in range(plan.shards) if store.record_file(folder, k).name not in present)


def as_dataset(
    plan: Plan, origin: Mapping[str, Any], arrays: Mapping[str, Array], dropped: Iterable[int]
) -> Dataset:
    """The record of a set with this plan, whether its arrays are in memory or on disk."""
    rows = list(dropped)
    provenance = {
        "model": plan.model,
        "n": plan.n,
        "seed": plan.seed,
        "purpose": plan.purpose,
        "on_invalid": plan.on_invalid,
        "dropped": {"count": len(rows), "rows": rows},
        **origin,
    }
    return Dataset(
        theta=arrays["theta"],
        x=arrays["x"],
        score=arrays.get("score"),
        space=plan.space,
        score_kind=plan.score_kind,
        structure=plan.structure,
        symmetries=plan.symmetry_records(),
        provenance=provenance,
    )


@dataclass(frozen=True)
class _Load:
    """Maps the file of one shard; refuses anything but the array that is expected there."""

    folder: Path
    name: str
    rows: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __call__(self, index: int) -> NDArray[Any]:
        path = store.array_file(self.folder, index, self.name)
        try:
            # Without pickle, an object array is refused before anything in it could run.
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # a damaged header can fail in any way
            raise FormatError(f"{path} cannot be read as an array: {error}") from None
        expected = (self.rows[index], *self.shape)
        if array.shape != expected or array.dtype != self.dtype:
            raise FormatError(
                f"{path} must hold {self.dtype} of shape {expected}; "
                f"got {array.dtype} of shape {array.shape}."
            )
        return np.asarray(array)


def _spans(numbers: Sequence[int], most: int = 8) -> str:
    """0-3, 7, 9-10: runs of whole numbers, the first few of them."""
    runs: list[list[int]] = []
    for k in numbers:
        if runs and k == runs[-1][1] + 1:
            runs[-1][1] = k
        else:
            runs.append([k, k])
    text = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs[:most])
    return text + (", ..." if len(runs) > most else "")
