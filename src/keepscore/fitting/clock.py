"""A budget of time that outlives an interruption."""

from __future__ import annotations

import time


class Clock:
    """Counts down from `seconds`, of which `before` were spent in earlier calls."""

    def __init__(self, seconds: float, before: float = 0.0) -> None:
        self.seconds = seconds
        self._before = before
        self._began = time.monotonic()

    @property
    def spent(self) -> float:
        """Seconds spent, those of earlier calls included."""
        return self._before + time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds left; negative once the time is over."""
        return self.seconds - self.spent

    def __str__(self) -> str:
        left = max(0, round(self.left))
        return f"{left // 60}:{left % 60:02d} left"
