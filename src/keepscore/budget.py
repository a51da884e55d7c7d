"""Time that work may take, and what is said on the way.

A function with `minutes` measures what a small part of its work costs, does as much as fits, and
says so where that is less than was asked for. One with `progress` tells its stages in words.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable

from keepscore.checks import as_number
from keepscore.errors import DomainError, KeepscoreWarning

Say = Callable[[str], object]


def voice(progress: Say | bool | None, name: str) -> Say:
    """Where stages are told: a function, standard error (True; None: on a terminal), or nowhere."""
    if callable(progress):
        return progress
    shown = is_shown(progress)

    def tell(text: str) -> None:
        if shown:
            print(f"keepscore {name}: {text}", file=sys.stderr, flush=True)

    return tell


def is_shown(progress: bool | None) -> bool:
    """Whether to show progress: as asked; None: on a terminal."""
    return sys.stderr.isatty() if progress is None else progress


def as_minutes(minutes: float | None) -> float | None:
    """A positive number of minutes, or None for no limit."""
    if minutes is None:
        return None
    value = as_number(minutes, "minutes")
    if not (math.isfinite(value) and value > 0):
        raise DomainError(
            f"minutes must be a positive number, or None for no limit; got {value!r}."
        )
    return value


def seconds_of(work: Callable[[], object]) -> float:
    """How long work takes; done twice, since what compiles does so the first time."""
    begin = time.perf_counter()
    work()
    first = time.perf_counter() - begin
    if first > 10.0:  # long enough to know, and too long to repeat
        return first
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def affordable(
    minutes: float | None, seconds_each: float, asked: int, least: int, what: str, name: str
) -> int:
    """How many of `asked` pieces of work fit into the time; fewer are warned of.

    Args:
        minutes: The time; None for no limit.
        seconds_each: What one piece costs.
        asked: How many are wanted.
        least: How many are done in any case.
        what: The pieces, in words.
        name: The function that does them.
    """
    if minutes is None:
        return asked
    fit = int(60 * minutes / max(seconds_each, 1e-9))
    if fit >= asked:
        return asked
    count = max(least, fit)
    longer = f" (the fewest that make sense: about {in_words(least * seconds_each)})"
    over = "" if fit >= least else longer
    warnings.warn(
        f"{name}: {shortened(count, asked, what)} fit into {in_words(60 * minutes)}{over}. "
        "Results are noisier; give more minutes for all of them.",
        KeepscoreWarning,
        stacklevel=3,
    )
    return count


def shortened(count: int, asked: int, what: str) -> str:
    """What was cut, for a result to say; nothing where nothing was."""
    return "" if count >= asked else f"{count:,} {what} instead of {asked:,}"


def in_words(seconds: float) -> str:
    """A time as people say it."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
