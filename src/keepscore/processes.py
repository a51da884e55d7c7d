"""Worker processes: how many, on one thread each, and how an object gets to them.

A pool holds one object, the same for all its tasks (a model with its plan, a likelihood):

    pool = start_pool(packed(held, "The model"), workers)    here; processes start as needed
    pool.submit(function, *arguments)                        there, `function` asks in_worker()

The object travels as bytes and is unpacked with the first task, not while the worker starts: a
worker that cannot import a module can so say what is wrong. New processes are neither forked (safe
after JAX) nor run the caller's `__main__` again (safe in notebooks and plain scripts). They leave
Ctrl-C to their parent, and end when it is gone.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from keepscore.errors import DomainError, SimulationError

if TYPE_CHECKING:
    from joblib.externals.loky import ProcessPoolExecutor

ONE_THREAD = {
    f"{library}_NUM_THREADS": "1"
    for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA")
} | {"VECLIB_MAXIMUM_THREADS": "1"}


def cores(jobs: int | None) -> int:
    """How many processes: all cores this process may use, unless told otherwise."""
    if jobs is None:
        from joblib import cpu_count

        return int(cpu_count())
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise DomainError(f"jobs is a number of processes, 1 or more, or None; got {jobs!r}.")
    return jobs


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS, OpenMP and Numba on one thread: as many processes as cores is parallel enough, and
    the order of sums, hence the bytes, does not depend on the number of cores."""
    numba = sys.modules.get("numba")
    threads = numba.get_num_threads() if numba else 1
    with threadpool_limits(limits=1):
        if numba:
            numba.set_num_threads(1)
        try:
            yield
        finally:
            if numba:
                numba.set_num_threads(threads)


# --- here ----------------------------------------------------------------------------------------


def packed(held: object, what: str) -> bytes:
    """The object as bytes. What it holds of importable modules goes by name, the rest by value.

    `what` names it at the start of an error message: "The model".
    """
    from joblib.externals.loky.backend.reduction import dumps

    try:
        return bytes(dumps(held))
    except Exception as error:  # locks, open files, generators: each fails in its own way
        raise SimulationError(
            f"{what} cannot be sent to worker processes: {type(error).__name__}: {error}. Leave "
            "open files, locks and the like out of it, or use jobs=1."
        ) from error


def start_pool(data: bytes, workers: int) -> ProcessPoolExecutor:
    """A pool whose processes hold what `packed` gave; they start with the first tasks."""
    from joblib.externals.loky import ProcessPoolExecutor

    return ProcessPoolExecutor(
        max_workers=workers, initializer=_prepare, initargs=(data, os.getpid()), env=ONE_THREAD
    )


# --- in a worker ---------------------------------------------------------------------------------

_data: bytes = b""
_held: object = None


def _prepare(data: bytes, parent: int) -> None:
    """Runs once in a new worker process."""
    global _data
    _data = data
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threadpool_limits(limits=1)

    def leave_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # no parent waits for the result, and files are whole or absent

    if os.name == "posix":
        threading.Thread(target=leave_with_parent, daemon=True).start()


def in_worker() -> object:
    """What this worker's pool holds."""
    global _held
    if _held is None:
        _held = unpacked(_data)
    return _held


def unpacked(data: bytes) -> object:
    """The object in a worker; the bytes are our parent's own, never a file's."""
    try:
        return pickle.loads(data)  # noqa: S301
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
