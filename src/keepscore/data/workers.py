"""Who computes the shards: this process, processes of this machine, or a Dask cluster.

All three take a task and shard numbers, and give (shard, task(shard)) in the order they finish; the
result depends on the shard alone. Each local worker is a pool of one process, so that when it dies
(out of memory, killed, crashed in native code) exactly its own shard is lost: the process is
replaced and the shard tried again, three times in all, while the others go on.

A task travels as bytes and is unpacked with the first shard. A worker that cannot import the
model's module can so say what is wrong, which it could not while it is still starting.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from keepscore.data.cluster import Cluster, dask_client
from keepscore.data.shard import one_thread
from keepscore.errors import DomainError, SimulationError

if TYPE_CHECKING:
    from distributed import Client

TRIES = 3
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1"
    for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA")
} | {"VECLIB_MAXIMUM_THREADS": "1"}

Task = Callable[[int], Any]
Results = Generator[tuple[int, Any], None, None]


def cores(jobs: int | None) -> int:
    """How many processes: all cores this process may use, unless told otherwise."""
    if jobs is None:
        from joblib import cpu_count

        return int(cpu_count())
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise DomainError(f"jobs is a number of processes, 1 or more, or None; got {jobs!r}.")
    return jobs


def in_process(task: Task, shards: Iterable[int]) -> Results:
    """One after the other, here."""
    with one_thread():
        for index in shards:
            yield index, task(index)


# --- the task on its way -------------------------------------------------------------------------


def _packed(task: Task) -> bytes:
    """The task as bytes. What it holds of an importable module goes by name, the rest by value."""
    from joblib.externals.loky.backend.reduction import dumps

    try:
        return bytes(dumps(task))
    except Exception as error:  # locks, open files, generators: each fails in its own way
        raise SimulationError(
            f"The model cannot be sent to worker processes: {type(error).__name__}: {error}. Leave "
            "open files, locks and the like out of it, or use jobs=1."
        ) from error


def _unpacked(packed: bytes) -> Task:
    """The task in a worker; the bytes are our parent's own, never a file's."""
    try:
        task: Task = pickle.loads(packed)  # noqa: S301
    except ImportError as error:
        raise SimulationError(
            f"A worker process cannot import what the model needs: {error}. The module must be "
            "installed where the workers run, or lie in a folder of sys.path (PYTHONPATH). With "
            "jobs=1 no workers are needed."
        ) from None
    except Exception as error:  # a user's own code: anything may come
        raise SimulationError(
            f"A worker process cannot make the model: {type(error).__name__}: {error}. The module "
            "that holds it is imported anew in each worker. With jobs=1 no workers are needed."
        ) from error
    return task


# --- processes of this machine -------------------------------------------------------------------

_sent: bytes = b""
_task: Task | None = None


def _prepare(packed: bytes, parent: int) -> None:
    """Runs once in a new worker process."""
    global _sent
    _sent = packed
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threadpool_limits(limits=1)

    def leave_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # orphaned: nobody waits for the result, and files are whole or absent

    if os.name == "posix":
        threading.Thread(target=leave_with_parent, daemon=True).start()


def _run(index: int) -> Any:
    global _task
    if _task is None:
        _task = _unpacked(_sent)
    return _task(index)


def in_processes(task: Task, shards: Iterable[int], jobs: int) -> Results:
    """On `jobs` processes; shards that killed their worker three times are named in an error once
    all others are done."""
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    packed = _packed(task)

    def start() -> Any:
        # Not the caller's __main__, not a fork: safe after JAX, in notebooks and plain scripts.
        return ProcessPoolExecutor(
            max_workers=1, initializer=_prepare, initargs=(packed, os.getpid()), env=ONE_THREAD
        )

    waiting, tries, lost = deque(shards), Counter[int](), dict[int, str]()
    running: dict[Future[Any], tuple[int, Any]] = {}
    idle = [start() for _ in range(min(jobs, len(waiting)))]
    try:
        while waiting or running:
            while idle and waiting:
                worker, index = idle.pop(), waiting.popleft()
                try:
                    running[worker.submit(_run, index)] = index, worker
                except BrokenProcessPool:  # died while idle: no shard is to blame
                    waiting.appendleft(index)
                    idle.append(start())
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                index, worker = running.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool as error:
                    worker.shutdown(wait=False, kill_workers=True)
                    idle.append(start())
                    tries[index] += 1
                    if tries[index] < TRIES:
                        waiting.append(index)
                    else:
                        lost[index] = str(error.__cause__ or error)
                else:
                    idle.append(worker)
                    yield index, result
    finally:
        # Wait for their end, so that what they were writing is known to be abandoned.
        for worker in (*idle, *(w for _, w in running.values())):
            worker.shutdown(wait=True, kill_workers=True)
    if lost:
        raise _lost(lost)


def _lost(lost: dict[int, str]) -> SimulationError:
    numbers = ", ".join(str(k) for k in sorted(lost))
    last = next(iter(lost.values())).strip()
    # A death by a signal is the system's doing; with an exit code the worker ended by itself.
    guess = (
        "it ended by itself: an error while it started, printed above, or an exit in the model"
        if "EXIT(" in last
        else "out of memory, or a crash in native code?"
    )
    return SimulationError(
        f"The worker of shard {numbers} died {TRIES} times ({guess}). All other shards are kept; "
        f"the same call tries again. The last death: {last}"
    )


# --- a Dask cluster ------------------------------------------------------------------------------


def _on_cluster(packed: bytes, index: int) -> Any:
    threadpool_limits(limits=1)  # for good: a worker may run several shards at once in threads
    with one_thread():
        return _unpacked(packed)(index)


def on_cluster(task: Task, shards: Iterable[int], cluster: Cluster) -> Results:
    """On an existing Dask cluster: its address, or a client of it. Dask itself restarts shards
    whose worker died, a few times."""
    with dask_client(cluster) as client:
        yield from _with_client(task, shards, client)


def _with_client(task: Task, shards: Iterable[int], client: Client) -> Results:
    from distributed import KilledWorker, as_completed

    packed = _packed(task)
    waiting, lost = deque(shards), dict[int, str]()
    ours: dict[Any, tuple[Any, int]] = {}

    def submit() -> Any:
        index = waiting.popleft()
        future = client.submit(_on_cluster, packed, index, pure=False)
        ours[future.key] = future, index
        return future

    try:
        # A few shards ahead of the workers; results are taken as they come and then let go.
        ahead = 2 * max(1, sum(client.nthreads().values()))
        first = [submit() for _ in range(min(ahead, len(waiting)))]
        # On this client's own loop: by default it would be that of whatever client is current.
        finished = as_completed(first, loop=client.loop)
        for future in finished:
            _, index = ours.pop(future.key)
            try:
                result = future.result()
            except KilledWorker as error:
                lost[index] = str(error)
            else:
                yield index, result
            if waiting:
                finished.add(submit())
    finally:
        with suppress(Exception):
            client.cancel([future for future, _ in ours.values()])
    if lost:
        raise _lost(lost)
