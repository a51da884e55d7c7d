"""SIGTERM: finish the current few steps, write a checkpoint, and leave with a code of its own.

Batch systems send SIGTERM some time before they kill. The handler only sets a flag, which the
training loop reads between calls to the device. It is installed in the main thread only, and the
handler that was there before is put back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 75  # EX_TEMPFAIL: not finished, worth starting again


class Interrupted(SystemExit):
    """SIGTERM came during training and a checkpoint was written; uncaught, the process exits 75."""

    def __init__(self, message: str) -> None:
        super().__init__(EXIT_CODE)
        self.message = message

    def __str__(self) -> str:
        return self.message


@contextmanager
def termination() -> Iterator[threading.Event]:
    """An event that SIGTERM sets, for as long as the block runs."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def handler(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)
