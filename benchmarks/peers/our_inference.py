"""Our way to a likelihood surface and an estimate; see inference.py for what is compared.

surface     `surrogate.given(xs)` and its values on the grid: features of the observations included.
            A surface this large is interpolated between Chebyshev points, to about .001 (checked
            in every call; see numerics/chebyshev.py). How many it takes depends on the network, so
            this one is trained to the end. The largest difference from the next line's values is
            reported.
every theta the same with interpolate=False: all 16,000 pairs through the head.
mle         `ks.mle(surrogate.given(xs))`, which also gives standard errors.
default     the two with the network and recipe that `ks.train` advises instead of the paper's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers.cases import epidemics, grid
from benchmarks.peers.our_training import short_config
from benchmarks.peers.processes import Round, timed


def start(settings: dict[str, Any]) -> Round:
    """Settings: n, our_epochs, side. Answers seconds by name."""
    import keepscore as ks

    data, observed = epidemics(settings["n"])
    paper = short_config(settings["our_epochs"])
    surrogate = ks.train(data, network="30k", loss=ks.BCE(), config=paper)
    recipe = ks.TrainConfig(min_epochs=settings["our_epochs"])
    default = ks.train(data, config=recipe)
    theta = grid(settings["side"])

    def play(**often: float) -> dict[str, Any]:
        surface_s, values = timed(lambda: surrogate.given(observed)(theta), **often)
        direct_s, direct = timed(
            lambda: surrogate.given(observed, interpolate=False)(theta), **often
        )
        mle_s, found = timed(lambda: ks.mle(surrogate.given(observed)), **often)
        default_s, _ = timed(lambda: default.given(observed)(theta), **often)
        default_mle_s, default_found = timed(lambda: ks.mle(default.given(observed)), **often)
        seconds = {"surface": surface_s, "surface, every theta": direct_s, "mle": mle_s}
        seconds |= {"surface, default network": default_s, "mle, default network": default_mle_s}
        estimates = {"mle": found.estimate, "mle, default network": default_found.estimate}
        return {
            "seconds": seconds,
            "estimates": {name: np.asarray(v).tolist() for name, v in estimates.items()},
            "interpolation_error": float(np.abs(values - direct).max()),
            "largest_value": float(np.abs(direct).max()),
        }

    first = play(calls=1, seconds=0)["seconds"]  # compiles
    return lambda: play() | {"first_call_seconds": first}
