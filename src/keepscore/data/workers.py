"""Who computes the shards: this process, processes of this machine, or a Dask cluster.

All three take a task and shard numbers, and give (shard, task(shard)) in the order they finish; the
result depends on the shard alone. Each local worker is a pool of one process, so that when it dies
(out of memory, killed, crashed in native code) exactly its own shard is lost: the process is
replaced and the shard tried again, three times in all, while the others go on.

How a task gets to a process, and why it has one thread there: `keepscore/processes.py`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from threadpoolctl import threadpool_limits

from keepscore.cluster import Cluster, dask_client
from keepscore.errors import SimulationError
from keepscore.processes import in_worker, one_thread, packed, start_pool, unpacked

if TYPE_CHECKING:
    from distributed import Client
    from joblib.externals.loky import ProcessPoolExecutor

TRIES = 3

Task = Callable[[int], Any]
Results = Generator[tuple[int, Any], None, None]


def in_process(task: Task, shards: Iterable[int]) -> Results:
    """One after the other, here."""
    with one_thread():
        for index in shards:
            yield index, task(index)


# --- processes of this machine -------------------------------------------------------------------


def _run(index: int) -> Any:
    return cast(Task, in_worker())(index)


def in_processes(task: Task, shards: Iterable[int], jobs: int) -> Results:
    """On `jobs` processes; shards that killed their worker three times are named in an error once
    all others are done."""
    from joblib.externals.loky.process_executor import BrokenProcessPool

    data = packed(task, "The model")

    def start() -> ProcessPoolExecutor:
        return start_pool(data, 1)

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


def _on_cluster(data: bytes, index: int) -> Any:
    threadpool_limits(limits=1)  # for good: a worker may run several shards at once in threads
    with one_thread():
        return cast(Task, unpacked(data))(index)


def on_cluster(task: Task, shards: Iterable[int], cluster: Cluster) -> Results:
    """On an existing Dask cluster: its address, or a client of it. Dask itself restarts shards
    whose worker died, a few times."""
    with dask_client(cluster) as client:
        yield from _with_client(task, shards, client)


def _with_client(task: Task, shards: Iterable[int], client: Client) -> Results:
    from distributed import KilledWorker, as_completed

    data = packed(task, "The model")
    waiting, lost = deque(shards), dict[int, str]()
    ours: dict[Any, tuple[Any, int]] = {}

    def submit() -> Any:
        index = waiting.popleft()
        future = client.submit(_on_cluster, data, index, pure=False)
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
