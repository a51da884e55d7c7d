"""Example data of each model, small enough to keep as JSON beside the results.

SIS: one epidemic, seen at the observation times and, because we simulated it, between them too (the
same process observed on a fine grid of times). Fields: one realisation for each of three length
scales in the y direction, with the same random numbers, so that only the length scale differs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from keepscore.models import SIS, build
from reproduction.cases import find_case

SEED = 7
FINE = 50  # points of time between two observations
LENGTHS = (0.4, 1.0, 2.5)


def example_data(case: str) -> dict[str, Any]:
    """Plain data for the figures of `figures/examples.py`."""
    return _epidemic(case) if find_case(case).model == "sis" else _fields(case)


def _epidemic(case: str) -> dict[str, Any]:
    shown = build(find_case(case).model)
    assert isinstance(shown, SIS)
    settings = shown.settings()
    times = np.asarray(shown.times, dtype=float)
    ends = pairwise(times)
    steps = [np.linspace(a, b, FINE, endpoint=False) for a, b in ends]
    fine = np.append(np.concatenate(steps), times[-1])
    path = SIS(**{**settings, "times": fine.tolist()})
    theta = np.array([find_case(case).example])
    states = path.simulate(theta, np.random.default_rng(SEED))[0]
    changes = []
    for node in range(states.shape[1]):
        moved = np.flatnonzero(np.diff(states[:, node].astype(int)))
        changes.append(
            {"start": int(states[0, node]), "times": np.round(fine[moved + 1], 3).tolist()}
        )
    return {
        "kind": "epidemic",
        "theta": theta[0].tolist(),
        "names": list(shown.space.working_names),
        "positions": np.asarray(shown.positions).tolist(),
        "weights": np.round(np.asarray(shown.weights), 6).tolist(),
        "times": times.tolist(),
        "observed": states[::FINE].astype(int).tolist(),
        "nodes": changes,
    }


def _fields(case: str) -> dict[str, Any]:
    model, example = build(find_case(case).model), np.array(find_case(case).example)
    panels = []
    for length in LENGTHS:
        theta = example.copy()
        theta[:2] = 0.0, np.log(length)
        x = model.simulate(theta[None], np.random.default_rng(SEED))[0]
        panels.append({"theta": theta.tolist(), "x": np.round(x, 3).tolist()})
    return {"kind": "fields", "names": list(model.space.working_names), "panels": panels}
