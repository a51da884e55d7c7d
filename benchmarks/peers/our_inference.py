"""Our way to a likelihood surface and an estimate; see inference.py for what is compared.

surface     `surrogate.given(xs)` and its values on the grid: features of the observations included.
            A surface this large is interpolated between 400 Chebyshev points, to the rounding of
            float32 (checked in every call; see numerics/chebyshev.py). The largest difference from
            the next line's values is reported.
every theta the same with interpolate=False: all 16,000 pairs through the head.
mle         `ks.mle(surrogate.given(xs))`, which also gives standard errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.cases import epidemics, grid
from benchmarks.peers.our_training import short_config
from benchmarks.peers.processes import Round


def start(settings: dict[str, Any]) -> Round:
    """Settings: n, epochs, side. Answers seconds by name."""
    import keepscore as ks

    data, observed = epidemics(settings["n"])
    surrogate = ks.train(
        data, network="30k", loss=ks.BCE(), config=short_config(settings["epochs"])
    )
    theta = grid(settings["side"])

    def play() -> dict[str, Any]:
        surface_s, values = timed(lambda: surrogate.given(observed)(theta))
        direct_s, direct = timed(lambda: surrogate.given(observed, interpolate=False)(theta))
        mle_s, found = timed(lambda: ks.mle(surrogate.given(observed)))
        return {
            "seconds": {"surface": surface_s, "surface, every theta": direct_s, "mle": mle_s},
            "estimates": {"mle": np.asarray(found.estimate).tolist()},
            "interpolation_error": float(np.abs(values - direct).max()),
            "largest_value": float(np.abs(direct).max()),
        }

    first = play()["seconds"]  # compiles
    return lambda: play() | {"first_call_seconds": first}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result
