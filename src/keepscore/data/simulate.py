"""`simulate`: a data set of n rows from a model, in memory or on disk, on all cores or a cluster.

The same call gives the same bytes, on any number of workers and after any interruption; into
a folder that is partly filled it goes on where it was.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keepscore.cluster import Cluster
from keepscore.data import store, workers
from keepscore.data.dataset import Dataset
from keepscore.data.plan import Plan, make_plan, require_possible, share_of
from keepscore.data.provenance import available_memory, environment
from keepscore.data.reading import Status, as_dataset, finish, missing_shards
from keepscore.data.shard import Shard, make_shard
from keepscore.data.verification import check_shards, not_written, recorded
from keepscore.errors import (
    KeepscoreError,
    KeepscoreWarning,
    MissingError,
    SimulationError,
    StorageError,
    TooLargeError,
)
from keepscore.files import make_folder, remove_leftovers
from keepscore.models.base import Model
from keepscore.processes import cores, one_thread

# What workers cost before their first shard: a process that imports the model, and often JAX, and
# compiles it anew. With k of them, T seconds of work here take T / k there, and this.
START_SECONDS = 5.0
PILOT_ROWS, PILOT_SECONDS, LONG_SECONDS = 64, 1.0, 20.0


def simulate(
    model: Model,
    n: int,
    seed: int = 0,
    path: str | os.PathLike[str] | None = None,
    *,
    purpose: str = "train",
    scores: bool = True,
    jobs: int | None = None,
    cluster: Cluster | None = None,
    on_invalid: str = "raise",
    theta: ArrayLike | None = None,
) -> Dataset:
    """Simulate n rows (theta, x, score).

    The same call gives the same bytes, on one core or many. Into a folder that is partly filled it
    goes on where it was.

    Args:
        model: What to simulate; see `keepscore.models.base.Model`.
        n: Number of rows.
        seed: Root seed, 0 or more. Sets of different purposes never share a random stream.
        path: Folder to write to, and to resume from. Without it everything stays in memory.
        purpose: "train" and "validation" are stratified on the train box; "test" is independent
            draws on the base box. Uniform, or from the prior where the space has one.
        scores: Whether to keep the model's scores, if it has any.
        jobs: Number of processes; all cores by default, one (this) for short runs.
        cluster: Address of a Dask scheduler, or a `distributed.Client`, to use instead of `jobs`.
            With `path`, its workers must see the same file system.
        on_invalid: "raise" stops at NaN or infinity; "drop" leaves such rows out and records them.
        theta: Working parameters (n, d) inside the train box to simulate at, instead of a design;
            at most a million numbers. What is learned from such a set is relative to the evidence
            under their distribution.

    Returns:
        The data set, in memory, or on disk where `path` is given.

    Raises:
        SimulationError: The simulator failed, or gave NaN or infinity; worker processes died.
        MismatchError: `path` holds a data set of another model, seed or size.
        StorageError, TooLargeError: Disk or memory would not hold the rows.

    Example:
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(4, 4))
        >>> data = ks.simulate(model, 100, seed=1)
        >>> len(data), data.x_shape, data.score_kind
        (100, (4, 4), 'exact')
        >>> bool((ks.simulate(model, 100, seed=1).x == data.x).all())
        True
    """
    plan = make_plan(model, n, seed, purpose, scores, on_invalid, theta)
    if path is None:
        _require_memory(plan)
        require_possible(plan)
        return _in_memory(model, plan, jobs, cluster)
    folder = make_folder(path).resolve()
    fill(folder, model, plan, range(plan.shards), jobs, cluster)
    return finish(folder)


def simulate_share(
    model: Model,
    n: int,
    seed: int,
    path: str | os.PathLike[str],
    share: tuple[int, int],
    *,
    purpose: str = "train",
    scores: bool = True,
    jobs: int | None = None,
    on_invalid: str = "raise",
) -> Status:
    """Write share i of k (i = 1, ..., k) of the set that `simulate` with the same arguments makes.

    For job arrays that fill one folder together. The share that finds everything complete also
    writes the manifest; `finish(path)` does so, or says what is missing.
    """
    plan = make_plan(model, n, seed, purpose, scores, on_invalid)
    folder = make_folder(path).resolve()
    fill(folder, model, plan, share_of(plan.shards, share), jobs, None)
    state = Status(folder, plan.shards, missing_shards(folder, plan))
    if state.complete:
        finish(folder)
    return state


@dataclass(frozen=True)
class _Job:
    """Makes one shard where it is called: writes it, or hands it back when there is no folder."""

    model: Model
    plan: Plan
    folder: Path | None
    # What is on record of shards that are damaged: they must come out as they were.
    expected: Mapping[int, store.ShardRecord] = field(default_factory=dict)

    def __call__(self, index: int) -> Shard | store.ShardRecord:
        shard = make_shard(self.model, self.plan, index)
        if self.folder is None:
            return shard
        return store.write_shard(self.folder, self.plan, shard, self.expected.get(index))


def fill(
    folder: Path,
    model: Model,
    plan: Plan,
    shards: Sequence[int],
    jobs: int | None,
    cluster: Cluster,
) -> None:
    """Write those of the given shards that are not yet there, or not sound."""
    _require_space(folder, plan, len(shards) - _written(folder))  # at least these, at a glance
    require_possible(plan)
    store.claim(folder, plan)
    remove_leftovers(folder)
    todo, damaged = _unsound(folder, plan, shards)
    _require_space(folder, plan, len(todo))
    expected = recorded(folder, plan, damaged)
    done = sum(len(plan.rows(k)) for k in shards) - sum(len(plan.rows(k)) for k in todo)
    try:
        results = _results(_Job(model, plan, folder, expected), todo, jobs, cluster)
        with _progress(plan, shards, done) as advance, closing(results):
            for index, _ in results:
                advance(len(plan.rows(index)))
    except KeyboardInterrupt:
        state = Status(folder, plan.shards, missing_shards(folder, plan))
        print(f"\nStopped: {state}. The same call goes on from there.", file=sys.stderr)
        raise
    finally:
        remove_leftovers(folder)
    absent = [k for k in todo if not store.record_file(folder, k).exists()]
    if absent:
        raise MissingError(
            f"The workers finished, but {len(absent)} shard(s) did not appear in {folder}. Workers "
            "of a cluster must see the same file system under the same path."
        )


def _in_memory(model: Model, plan: Plan, jobs: int | None, cluster: Cluster) -> Dataset:
    arrays = {
        name: np.empty((plan.n, *shape), dtype) for name, (shape, dtype) in plan.arrays().items()
    }
    dropped: list[int] = []
    results = _results(_Job(model, plan, None), range(plan.shards), jobs, cluster)
    with _progress(plan, range(plan.shards), 0) as advance, closing(results):
        for index, shard in results:
            rows = plan.rows(index)
            for name, values in shard.arrays.items():
                arrays[name][rows.start : rows.start + len(values)] = values
            if shard.dropped:  # what is kept stands first in its place; the gap closes below
                dropped += shard.dropped
            advance(len(rows))
    if dropped:
        arrays = _closed(plan, arrays, dropped)
    for array in arrays.values():
        array.flags.writeable = False  # then a Dataset takes them as they are
    return as_dataset(plan, environment(), arrays, sorted(dropped))


def _closed(plan: Plan, arrays: dict[str, Any], dropped: list[int]) -> dict[str, Any]:
    lost = np.bincount(np.array(dropped) // plan.shard_rows, minlength=plan.shards)
    keep = np.concatenate([plan.rows(k)[: len(plan.rows(k)) - lost[k]] for k in range(plan.shards)])
    if len(keep) == 0:
        raise MissingError("Every simulation was invalid and dropped; no row is left.")
    return {name: array[keep.astype(np.int64)] for name, array in arrays.items()}


def _results(job: _Job, todo: Sequence[int], jobs: int | None, cluster: Cluster) -> workers.Results:
    """Each shard as it is finished, on a cluster, in worker processes, or in this process."""
    if not todo:
        return
    if cluster is not None:
        yield from _on_cluster(job, todo, cluster)
        return
    count = cores(jobs)
    left = list(todo)
    alone = count == 1 or len(todo) == 1
    if alone or (jobs is None and not _workers_pay(_seconds(job, todo), count)):
        # The shards themselves tell best what the rest will take. The first may have compiled
        # something, which workers would have to do too.
        began, first = time.perf_counter(), True
        for index, result in workers.in_process(job, todo):
            spent = time.perf_counter() - began
            yield index, result
            left.remove(index)
            if not (alone or first) and _workers_pay(spent * len(left), count):
                break
            began, first = time.perf_counter(), False
    if left:
        yield from workers.in_processes(job, left, count)


def _workers_pay(seconds: float, count: int) -> bool:
    """Whether so many workers finish this work sooner than one process that has begun it."""
    return seconds > START_SECONDS + seconds / count


def _on_cluster(job: _Job, todo: Sequence[int], cluster: Cluster) -> workers.Results:
    """The same on a cluster, with what Dask raises when it is lost in our words."""
    try:
        yield from workers.on_cluster(job, todo, cluster)
    except KeepscoreError:
        raise
    except (OSError, TimeoutError, RuntimeError, CancelledError, asyncio.CancelledError) as error:
        kept = "" if job.folder is None else " Finished shards are kept; the same call goes on."
        raise SimulationError(
            f"The Dask cluster was lost ({type(error).__name__}: {error}).{kept}"
        ) from error


def _seconds(job: _Job, todo: Sequence[int]) -> float:
    """About how long these shards take here: c0 per call and c1 per row. One row,
    done twice, since the first time may have compiled something, and then some rows."""
    calls, n = len(todo), sum(len(job.plan.rows(k)) for k in todo)
    thetas = job.plan.thetas(todo[0])[:PILOT_ROWS]
    scored = job.plan.score_kind is not None
    simulate_rows = job.model.simulate_with_score if scored else job.model.simulate

    def timed(rows: int) -> float:
        began = time.perf_counter()
        simulate_rows(thetas[:rows].copy(), np.random.default_rng(0))
        return time.perf_counter() - began

    with one_thread():
        try:
            one = timed(1)
            if one < LONG_SECONDS:
                one = min(one, timed(1))
            # As many rows as take a second if they cost as much each as one alone; often far less.
            rows = min(len(thetas), max(1, int(PILOT_SECONDS / max(one, 1e-9))))
            if rows == 1:
                return n * one
            many = min(timed(rows) for _ in range(2))
        except (Exception, SystemExit):
            return 0.0  # the run itself will meet the error and say where
    of_row = max(0.0, (many - one) / (rows - 1))
    return calls * max(0.0, one - of_row) + n * of_row


def _unsound(folder: Path, plan: Plan, shards: Sequence[int]) -> tuple[list[int], list[int]]:
    """Shards to be made, and those among them that were there and are damaged."""
    checked = check_shards(folder, plan, shards)
    damaged = {k: found[0] for k, found in checked if found and not not_written(found)}
    if damaged:
        more = f" and {len(damaged) - 3} more" if len(damaged) > 3 else ""
        first = ", ".join(str(problem) for problem in list(damaged.values())[:3])
        warnings.warn(
            f"Damaged in {folder}: {first}{more}. Simulated anew.", KeepscoreWarning, stacklevel=4
        )
    return [index for index, problems in checked if problems], list(damaged)


def _written(folder: Path) -> int:
    """How many shards seem to be there, whatever they hold."""
    names = (entry.name for entry in os.scandir(folder))
    return sum(name.startswith("shard-") and name.endswith(".json") for name in names)


def _require_space(folder: Path, plan: Plan, shards: int) -> None:
    """Refuse to begin what the disk cannot hold: so many shards of this plan."""
    if shards <= 0:
        return
    # Headers, records and the manifest come to less than 4 KiB per file. The last shard is shorter.
    rows = min(plan.n, shards * plan.shard_rows)
    need = rows * plan.row_bytes() + 4096 * (len(plan.arrays()) + 2) * shards
    free = shutil.disk_usage(folder).free
    if need > free:
        raise StorageError(
            f"{folder} has {_size(free)} free; the {shards} shard(s) still to be written need "
            f"{_size(need)}. Make room or choose another folder."
        )


def _require_memory(plan: Plan) -> None:
    need, free = plan.n * plan.row_bytes(), available_memory()
    if need > free:
        raise TooLargeError(
            f"{plan.n} rows of {_size(plan.row_bytes())} need {_size(need)} of memory; "
            f"{_size(free)} are free. Give a path: a data set on disk is read as it is needed."
        )


def _size(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}" if unit != "bytes" else f"{size:.0f} bytes"
        size /= 1024
    return f"{size:.1f} TiB"


@contextmanager
def _progress(plan: Plan, shards: Sequence[int], done: int) -> Iterator[Any]:
    """Rows done, rate and time left, on a terminal; nothing elsewhere."""
    from tqdm import tqdm

    total = sum(len(plan.rows(k)) for k in shards)
    with tqdm(
        total=total, initial=done, desc=plan.model["name"], unit=" rows", disable=None
    ) as bar:
        yield bar.update
