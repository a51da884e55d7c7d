"""Exact values and gradients of many groups: in parallel, kept on disk, nothing asked for twice.

Exact evaluations are what inference with a refined likelihood costs. `ExactWork` is asked for
rows (theta, group) and gives values and gradients; what it knows already, from this run or from the
folder of an earlier one, is not computed again.

    work(theta (m, d), group (m,))  ->  value (m,), gradient (m, d)

Rows are sorted by theta before they are cut into tasks, so that groups which ask for the same theta
are answered together: a model that factorises once per theta (fields) then does it once for all of
them, and no task begins in the middle of a theta. Each worker, a process of this machine or one of
an existing Dask cluster, gets the likelihood once and computes on one thread.

On disk a folder holds identity.json (the space, the groups, and exact values that tell one data set
from another) and part-*.npz of plain arrays, each about PART_SECONDS of work: killed at any time,
what was written is whole and is used by the next run.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from keepscore.checks import Floats, require_count, require_flag
from keepscore.cluster import Cluster, dask_client
from keepscore.errors import (
    FormatError,
    KeepscoreError,
    MismatchError,
    MissingError,
    ShapeError,
    SimulationError,
)
from keepscore.files import make_folder, read_sealed, write_atomically, write_sealed
from keepscore.likelihood import Integers, Likelihood
from keepscore.npy import read_npz
from keepscore.processes import in_worker, one_thread, packed, start_pool, unpacked

if TYPE_CHECKING:
    from distributed import Client
    from joblib.externals.loky import ProcessPoolExecutor

FORMAT, VERSION = "keepscore exact evaluations", 1
IDENTITY = "identity.json"
PROBED = 3  # groups whose exact value at the centre of the box identifies the data
TASKS_PER_WORKER = 4
ROWS_PER_TASK = 4  # fewer are not worth a worker
PART_SECONDS = 20.0  # of work that is kept at a time
MOST_GROWTH = 8.0  # of a part's number of rows over the one before


class Evaluated(NamedTuple):
    """Rows that were computed: theta (n, d), group (n,), value (n,), gradient (n, d)."""

    theta: Floats
    group: Integers
    value: Floats
    gradient: Floats

    def rows(self, index: list[int]) -> Evaluated:
        """Some of the rows."""
        return Evaluated(
            self.theta[index], self.group[index], self.value[index], self.gradient[index]
        )


class ExactWork:
    """Exact evaluations of one likelihood; see the top of this file. Use it in a `with`.

    with_gradient turns False where the model has no score; gradients are zeros from then on.
    """

    def __init__(
        self,
        exact: Likelihood,
        jobs: int = 1,
        path: str | os.PathLike[str] | None = None,
        progress: bool = False,
        total: int | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.exact, self.with_gradient = exact, True
        self.jobs = require_count(jobs, "jobs")
        self._rows: dict[tuple[int, bytes], int] = {}
        self._part_rows = 0  # as many as take PART_SECONDS, once that is known
        self._parts: list[Evaluated] = []
        self._known: Evaluated | None = None
        self._workers: ProcessPoolExecutor | None = None
        self._open = ExitStack()
        self._client = None if cluster is None else self._open.enter_context(dask_client(cluster))
        self._there: Any = None  # the likelihood, on the workers of the cluster
        self._folder = None if path is None else make_folder(path)
        if self._folder is not None:
            self._resume(self._folder)
        self._bar = _bar(require_flag(progress, "progress"), total)

    def __enter__(self) -> ExactWork:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
        if self._workers is not None:
            self._workers.shutdown(wait=True, kill_workers=error is not None)
        self._there = None
        self._open.close()
        if isinstance(error, KeepscoreError):
            error.computed = self.computed()

    def __call__(self, theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        """Values (m,) and gradients (m, d) at rows theta (m, d) of the groups (m,)."""
        theta = np.ascontiguousarray(theta, dtype=np.float64)
        keys = [(int(g), t.tobytes()) for t, g in zip(theta, group, strict=True)]
        new = np.array([i for i, key in enumerate(keys) if key not in self._rows], dtype=np.int64)
        if len(new):
            together = np.column_stack([group[new].astype(np.float64), theta[new]])
            _, first = np.unique(together, axis=0, return_index=True)
            new = new[np.sort(first)]
            self._compute_and_keep(theta[new], np.asarray(group[new], np.int64))
        self._bar.update(len(keys) - len(new))
        known, rows = self.computed(), [self._rows[key] for key in keys]
        return known.value[rows], known.gradient[rows]

    def computed(self) -> Evaluated:
        """All rows known so far."""
        if self._known is None:
            d = self.exact.space.d
            none = Evaluated(
                np.zeros((0, d)), np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, d))
            )
            columns = zip(*(self._parts or [none]), strict=True)
            self._known = Evaluated(*(np.concatenate(column) for column in columns))
        return self._known

    # --- computing ---

    def _compute_and_keep(self, theta: Floats, group: Integers) -> None:
        """Rows in parts that take about PART_SECONDS each and are kept one after the other: what is
        lost when a run is killed, or its likelihood fails, is one part."""
        order = np.lexsort((group, *theta.T))
        begins = np.append(_begins(theta[order]), len(order))  # of the next theta
        workers = self._worker_count()
        self._part_rows = self._part_rows or ROWS_PER_TASK * TASKS_PER_WORKER * workers
        fewest, start = ROWS_PER_TASK * workers if workers > 1 else 1, 0
        while start < len(order):
            end = min(start + self._part_rows, len(order))
            stop = int(begins[np.searchsorted(begins, end)])
            rows = order[start:stop]
            began = time.perf_counter()
            value, gradient = self._compute(theta[rows], group[rows])
            self._keep(Evaluated(theta[rows], group[rows], value, gradient))
            self._bar.update(len(rows))
            faster = PART_SECONDS / max(time.perf_counter() - began, 1e-6)
            self._part_rows = max(fewest, int((stop - start) * min(faster, MOST_GROWTH)))
            start = stop

    def _worker_count(self) -> int:
        if self._client is None:
            return self.jobs
        return max(1, sum(self._client.nthreads().values()))

    def _compute(self, theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        if self.with_gradient:
            try:
                return self._in_tasks(theta, group, True)
            except MissingError:  # a model without a score: values alone
                self.with_gradient = False
        return self._in_tasks(theta, group, False)

    def _in_tasks(self, theta: Floats, group: Integers, gradient: bool) -> tuple[Floats, Floats]:
        order = np.lexsort((group, *theta.T))
        count = min(self._worker_count() * TASKS_PER_WORKER, len(theta) // ROWS_PER_TASK)
        value, slope = np.empty(len(theta)), np.zeros(theta.shape)
        if self._client is None and (self.jobs == 1 or count < 2):
            with one_thread():
                value[order], slope[order] = _evaluate(
                    self.exact, theta[order], group[order], gradient
                )
            return value, slope
        tasks = _between_thetas(theta, order, max(1, count))
        answers = self._answers if self._client is None else self._from_cluster
        for part, found in answers(tasks, theta, group, gradient):
            value[part], slope[part] = found
        return value, slope

    def _answers(
        self, tasks: list[Integers], theta: Floats, group: Integers, gradient: bool
    ) -> Iterator[tuple[Integers, tuple[Floats, Floats]]]:
        if self._workers is None:
            self._workers = start_pool(packed(self.exact, "The exact likelihood"), self.jobs)
        futures: dict[Future[Any], Integers] = {
            self._workers.submit(_task, theta[part], group[part], gradient): part for part in tasks
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            self._workers = None
            raise SimulationError(
                f"A worker process died during exact evaluations: {error}. Out of memory, or a "
                "crash in native code? Use fewer jobs; with path= what was computed is kept."
            ) from error
        finally:
            for future in futures:
                future.cancel()

    def _from_cluster(
        self, tasks: list[Integers], theta: Floats, group: Integers, gradient: bool
    ) -> Iterator[tuple[Integers, tuple[Floats, Floats]]]:
        from distributed import as_completed as as_they_come

        client: Client = cast("Client", self._client)
        ours: dict[object, tuple[Any, Integers]] = {}
        try:
            if self._there is None:
                data = packed(self.exact, "The exact likelihood")
                self._there = client.scatter(_Packed(data), broadcast=True, hash=False)
            for part in tasks:
                future = client.submit(
                    _on_cluster, self._there, theta[part], group[part], gradient, pure=False
                )
                ours[future.key] = future, part
            waiting = [future for future, _ in ours.values()]
            for future in as_they_come(waiting, loop=client.loop):
                yield ours[future.key][1], future.result()
        except KeepscoreError:
            raise
        except Exception as error:  # of the cluster: killed workers, closed connections, time-outs
            raise SimulationError(
                f"The Dask cluster did not finish its exact evaluations: {type(error).__name__}: "
                f"{error}. With path= what was computed is kept, and the same call goes on."
            ) from error
        finally:
            with suppress(Exception):
                client.cancel([future for future, _ in ours.values()])

    # --- keeping ---

    def _keep(self, part: Evaluated) -> None:
        self._remember(part)
        if self._folder is None:
            return
        buffer = io.BytesIO()
        flag = np.array(self.with_gradient)
        np.savez(buffer, with_gradient=flag, **part._asdict())
        name = f"part-{len(list(self._folder.glob('part-*.npz'))):06d}-{os.getpid()}.npz"
        write_atomically(self._folder / name, lambda file: file.write(buffer.getbuffer()))

    def _remember(self, part: Evaluated) -> None:
        begin = len(self._rows)
        for i, (theta, group) in enumerate(zip(part.theta, part.group, strict=True)):
            self._rows[int(group), theta.tobytes()] = begin + i
        self._parts.append(part)
        self._known = None

    def _resume(self, folder: Path) -> None:
        wanted = self._identity()
        if (folder / IDENTITY).exists():
            stored = read_sealed(folder / IDENTITY, FORMAT, VERSION)
            _require_same(stored, wanted, folder)
        else:
            write_sealed(folder / IDENTITY, FORMAT, VERSION, wanted)
        for file in sorted(folder.glob("part-*.npz")):
            part, with_gradient = _read(file, self.exact)
            # What was not finite is asked for again: the model may have been mended.
            sound = np.isfinite(part.value) & np.isfinite(part.gradient).all(axis=1)
            fresh = [
                i
                for i, (t, g) in enumerate(zip(part.theta, part.group, strict=True))
                if sound[i] and (int(g), t.tobytes()) not in self._rows
            ]
            self.with_gradient &= with_gradient
            self._remember(part.rows(fresh))

    def _identity(self) -> dict[str, Any]:
        exact = self.exact
        groups = np.unique(np.linspace(0, exact.group_count - 1, PROBED).astype(np.int64))
        centre = np.tile(np.mean(exact.space.box("base"), axis=0), (len(groups), 1))
        value = np.asarray(exact.pairs(centre, groups), dtype=np.float64)
        return {
            "space": exact.space.to_dict(),
            "groups": exact.group_count,
            "group_size": exact.group_size,
            "values": [float(v) if np.isfinite(v) else None for v in value],
        }


def _require_same(stored: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    for key in ("space", "groups", "group_size"):
        if stored.get(key) != wanted[key]:
            raise MismatchError(
                f"{folder} holds exact evaluations of another {key.replace('_', ' ')}: "
                f"{stored.get(key)!r:.200} there, {wanted[key]!r:.200} here. Use another folder."
            )
    there, here = stored.get("values"), wanted["values"]
    same = isinstance(there, list) and len(there) == len(here)
    for a, b in zip(there, here, strict=True) if same and there is not None else ():
        if a is None or b is None:
            same &= a is b
        else:
            same &= type(a) in (int, float) and abs(a - b) <= 1e-9 * (1 + abs(b))
    if not same:
        raise MismatchError(
            f"{folder} holds exact evaluations of other data or of another model (values at the "
            f"centre of the box: {there!r:.200} there, {here!r:.200} here). Use another folder."
        )


def _read(file: Path, exact: Likelihood) -> tuple[Evaluated, bool]:
    arrays, d = read_npz(file), exact.space.d
    try:
        part = Evaluated(*(np.ascontiguousarray(arrays[name]) for name in Evaluated._fields))
        flag = arrays["with_gradient"]
    except KeyError as error:
        raise FormatError(f"{file} is damaged or foreign: no {error}; delete it.") from None
    n = len(part.value) if part.value.ndim == 1 else -1
    shapes = ((n, d), (n,), (n,), (n, d))
    sound = (
        all(array.shape == shape for array, shape in zip(part, shapes, strict=True))
        and all(array.dtype == np.float64 for array in (part.theta, part.value, part.gradient))
        and part.group.dtype == np.int64
        and (flag.shape, flag.dtype) == ((), np.bool_)
        and bool(((part.group >= 0) & (part.group < exact.group_count)).all())
    )
    if not sound:
        raise FormatError(f"{file} is damaged: its arrays do not fit together; delete it.")
    return part, bool(flag)


def _evaluate(
    exact: Likelihood, theta: Floats, group: Integers, gradient: bool
) -> tuple[Floats, Floats]:
    if gradient:
        value, slope = exact.pairs_gradient(theta, group)
    else:
        value, slope = exact.pairs(theta, group), np.zeros(theta.shape)
    value, slope = np.asarray(value, np.float64), np.asarray(slope, np.float64)
    if value.shape != theta.shape[:1] or slope.shape != theta.shape:
        raise ShapeError(
            f"The exact likelihood must give one value and one gradient per row, {theta.shape[:1]} "
            f"and {theta.shape}; it gave {value.shape} and {slope.shape}."
        )
    return value, slope


# --- workers -------------------------------------------------------------------------------------


def _task(theta: Floats, group: Integers, gradient: bool) -> tuple[Floats, Floats]:
    return _evaluate(cast(Likelihood, in_worker()), theta, group, gradient)


class _Packed:
    """A likelihood on its way to a worker of a cluster, unpacked there with the first task."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.like: Likelihood | None = None

    def __getstate__(self) -> bytes:
        return self.data

    def __setstate__(self, data: bytes) -> None:
        self.data, self.like = data, None

    def likelihood(self) -> Likelihood:
        if self.like is None:
            self.like = cast(Likelihood, unpacked(self.data))
        return self.like


def _on_cluster(
    there: _Packed, theta: Floats, group: Integers, gradient: bool
) -> tuple[Floats, Floats]:
    with one_thread():
        return _evaluate(there.likelihood(), theta, group, gradient)


def _begins(ordered: Floats) -> Integers:
    """Where the next theta begins in rows (m, d) that are sorted by theta; not the first one."""
    return np.flatnonzero(np.any(ordered[1:] != ordered[:-1], axis=1)) + 1


def _between_thetas(theta: Floats, order: Integers, count: int) -> list[Integers]:
    """Rows in this order as about `count` tasks; all rows of one theta are in one task."""
    begins = _begins(theta[order])
    ideal = np.linspace(0, len(order), count + 1)[1:-1]
    places = np.searchsorted(begins, ideal)
    cuts = np.unique(begins[places[places < len(begins)]])
    return [part for part in np.split(order, cuts) if len(part)]


def _bar(shown: bool, total: int | None) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, desc="exact evaluations", unit="", disable=not shown, leave=False)
