"""Posteriors of many data sets with one surrogate: the first compiles, the others only sample.

A surrogate of the SIS model (10,000 simulations, what `ks.train` advises), 100 data sets of ten
observations, `ks.posterior` with its defaults (4 chains, 500 steps of warm-up and 1,000 draws) on
each, one after the other. Wall-clock and processor seconds both: where other work runs beside it,
the processor's are the fairer ones.
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from typing import Any

import numpy as np

import keepscore as ks

GROUP_SIZE = 10


def run(quick: bool = False) -> dict[str, Any]:
    """Seconds of each posterior; plain data, ready for JSON."""
    model, rng = ks.models.SIS(), np.random.default_rng(0)
    count, settings = (3, {"draws": 50, "warmup": 50}) if quick else (100, {})
    data = ks.simulate(model, 500 if quick else 10_000, seed=0)
    config = ks.TrainConfig(min_epochs=1) if quick else None
    surrogate = ks.train(data, config=config, progress=False)
    theta = model.space.uniform(count, rng, "test")
    x = model.simulate(np.repeat(theta, GROUP_SIZE, axis=0), rng)
    xs = x.reshape(count, GROUP_SIZE, *model.x_shape)
    wall, processor, warned = [], [], 0
    for k, one in enumerate(xs):
        begin, spent = time.perf_counter(), time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ks.KeepscoreWarning)
            ks.posterior(surrogate.given(one), seed=k, method="nuts", **settings)
        wall.append(time.perf_counter() - begin)
        processor.append(time.process_time() - spent)
        warned += any(issubclass(w.category, ks.KeepscoreWarning) for w in caught)
    return {
        "quick": quick,
        "data_sets": count,
        "group_size": GROUP_SIZE,
        "wall_s": wall,
        "processor_s": processor,
        "warned": warned,
        "load_at_end": [round(v, 2) for v in os.getloadavg()],
    }


def table(result: dict[str, Any]) -> str:
    """The same for a reader."""
    lines = ["| seconds | all | the first | after the first, median | largest |", "|" + "---|" * 5]
    for name in ("wall_s", "processor_s"):
        first, *rest = result[name]
        lines.append(
            f"| {name.removesuffix('_s')} | {sum(result[name]):.1f} | {first:.2f} | "
            f"{statistics.median(rest):.2f} | {max(rest):.2f} |"
        )
    lines.append(
        f"\n{result['data_sets']} data sets of {result['group_size']}; {result['warned']} with a "
        f"warning. Load at the end: {result['load_at_end'][0]}."
    )
    return "\n".join(lines)
