"""Contenders in turn, so that a slow moment of the machine hits all of them."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds_per_sample(
    contenders: dict[str, Callable[[], int]], rounds: int
) -> dict[str, list[float]]:
    """Each contender processes some samples and says how many; the first round only warms up."""
    times: dict[str, list[float]] = {method: [] for method in contenders}
    for k in range(rounds + 1):
        for method, work in contenders.items():
            start = time.perf_counter()
            samples = work()
            if k > 0:
                times[method].append((time.perf_counter() - start) / samples)
    return times
