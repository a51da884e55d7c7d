"""Locks that die with their process: advisory locks of the kernel on open files.

`flock` belongs to an open file. The kernel drops it when the process ends, however it ends, and it
holds between containers that share a folder on one machine. Where a file system knows no such
locks, nothing is locked and `None` or success is the answer: then two writers are as they were
before, and every file is still whole or absent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keepscore.errors import BusyError, StorageError

try:
    import fcntl
except ImportError:  # not a POSIX system: there are no such locks
    fcntl = None  # type: ignore[assignment]


def lock_file(handle: int, wait: bool = True) -> bool | None:
    """Lock an open file: True, False if another holds it, None if it cannot be locked here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def remove_unless_locked(file: Path) -> bool | None:
    """Delete a file that no other open file holds the lock of: True if so, False if it is locked,
    None if that cannot be told, and then it is left alone.

    It is deleted while the lock is held here: a writer that has just made it, and waits for the
    lock, finds it gone and makes another, and never writes into a file without a name.
    """
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        free = lock_file(handle, wait=False)
        if free:
            file.unlink()
        return free
    finally:
        os.close(handle)


@contextmanager
def only_writer(folder: Path, what: str, seconds: float = 0.0) -> Iterator[None]:
    """Be the only writer of one kind ("training", "surrogate", ...) in a folder.

    Args:
        folder: Where it writes.
        what: The kind of writer.
        seconds: How long to wait for another one to end.

    Raises:
        BusyError: another process, or another thread of this one, is that writer now.
    """
    path = folder / f".{what}.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        last = time.monotonic() + seconds
        while (locked := lock_file(handle, wait=False)) is False and time.monotonic() < last:
            time.sleep(0.02)
        if locked is False:
            raise BusyError(
                f"{folder} is in use: another process is writing its {what}. Wait for it to end, "
                "or use another folder."
            )
        yield
    finally:
        os.close(handle)  # this drops the lock; the empty file stays, as removing it would race
