"""From a folder to a `Dataset`, cheaply: sizes are checked, arrays stay on disk until asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepscore.data import store
from keepscore.data.dataset import Array, Dataset
from keepscore.data.plan import Plan
from keepscore.data.sharded import ShardedArray
from keepscore.errors import FormatError, MissingError, StorageError
from keepscore.files import as_path, open_regular
from keepscore.models.graphs import people_in
from keepscore.models.trend import trend_from
from keepscore.npy import OpenArray, as_npy

Stamp = tuple[int, ...]


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
    """Open a complete data set on disk.

    Sizes are checked here. The bytes of each file are compared with their checksum when they are
    first read, and all of them by `ks.verify`.

    Args:
        path: The folder that `ks.simulate(..., path=...)` filled.

    Returns:
        The data set. Its rows stay on disk until they are asked for.

    Raises:
        MissingError: The data set is not complete.
        FormatError: A file is foreign or damaged.
        StorageError: There is no such folder.

    Example:
        >>> import tempfile
        >>> import keepscore as ks
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = ks.simulate(ks.models.GaussianField(shape=(4, 4)), 50, path=folder)
        ...     opened = ks.open_dataset(folder)
        ...     print(opened, bool((opened.theta[:] == made.theta[:]).all()))
        Dataset(gaussian-field, n=50, x_shape=(4, 4), d=3, score_kind='exact') True
    """
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
                raise FormatError(f"{file} {problem}. {_remedy(folder)}")
    rows = [record.rows for record in records]
    arrays: dict[str, Array] = {
        name: ShardedArray(_ShardFiles(folder, name, records, shape, dtype), rows, shape, dtype)
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
    folder = as_path(path)
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
        contacts=plan.contact_weights() if people_in(plan.structure, plan.x_shape) else None,
        missing=plan.missing is True,
        trend=None if plan.trend is None else trend_from(plan.trend),
    )


@dataclass(frozen=True)
class _ShardFiles:
    """The files of one array. Each is compared with its recorded checksum the first time that it
    is read, and again when it has been written to since."""

    folder: Path
    name: str
    records: Sequence[store.ShardRecord]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    # By shard: the stamp of the file when it was checked, and where its data begin.
    checked: dict[int, tuple[Stamp, int]] = field(default_factory=dict)

    def whole(self, k: int, anew: bool = False) -> NDArray[Any]:
        """All rows of shard k; with `anew`, compared with the checksum in any case."""
        with self._open(k) as (array, stamp):
            if not anew and self._is_checked(k, stamp):
                return array.read()
            rows = array.read(self.records[k].files[self.name][1])
            self.checked[k] = stamp, array.start
            return rows

    def some(self, k: int, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Rows of shard k, in ascending order."""
        with self._open(k) as (array, stamp):
            if not self._is_checked(k, stamp):
                if array.sha256() != self.records[k].files[self.name][1]:
                    raise FormatError(f"{array.path} does not match its checksum.")
                self.checked[k] = stamp, array.start
            return array.rows(rows)

    def stamp(self, k: int) -> Stamp:
        """What changes when the file is written to."""
        path = store.array_file(self.folder, k, self.name)
        try:
            return _stamp(os.stat(path))
        except OSError as error:
            raise StorageError(f"Cannot read {path}: {error.strerror}.") from error

    @contextmanager
    def _open(self, k: int) -> Iterator[tuple[OpenArray, Stamp]]:
        """The file of shard k, which must hold exactly the array that is expected there."""
        path = store.array_file(self.folder, k, self.name)
        expected = (self.records[k].rows, *self.shape)
        try:
            with open_regular(path) as file:
                stamp = _stamp(os.fstat(file.fileno()))
                if self._is_checked(k, stamp):  # its header is known
                    start = self.checked[k][1]
                    array = OpenArray(path, file, expected, self.dtype, False, start)
                else:
                    array = as_npy(file, path)
                if array.shape != expected or array.dtype != self.dtype or array.fortran:
                    raise FormatError(
                        f"{path} must hold {self.dtype} of shape {expected}; "
                        f"got {array.dtype} of shape {array.shape}."
                    )
                yield array, stamp
        except FormatError as error:
            raise FormatError(f"{error} {_remedy(self.folder)}") from None

    def _is_checked(self, k: int, stamp: Stamp) -> bool:
        return k in self.checked and self.checked[k][0] == stamp


def _stamp(found: os.stat_result) -> Stamp:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _remedy(folder: Path) -> str:
    return f"keepscore.repair({str(folder)!r}) mends it."


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
