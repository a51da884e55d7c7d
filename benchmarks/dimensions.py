"""Seconds of each public function at d = 1, 5 and 10 parameters.

The model is a regression with a curved mean, so that no network of ours is exact for it: x is 20
numbers,

    x_i = sum_k a_ik theta_k + (sum_k b_ik theta_k)^2 / 8 + e_i,   e ~ N(0, I),   theta in [-2, 2]^d

with fixed random a and b. Likelihood in JAX, score by autodiff. One data set of ten observations;
5,000 simulations, the default network. Each function is called twice where that is cheap: the first
call compiles. Every call is made as a user would make it, with its defaults but for sizes named in
the table. What a function refuses at this d is in the table as its message.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import keepscore as ks

SIZES = (1, 5, 10)
NUMBERS, GROUP = 20, 10


def model(d: int) -> ks.models.Model:
    """The regression with d parameters."""
    rng = np.random.default_rng(d)
    a, b = rng.standard_normal((2, NUMBERS, d)) / np.sqrt(d)

    def mean(theta: Any) -> Any:
        return theta @ a.T + (theta @ b.T) ** 2 / 8

    def simulate(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return mean(theta) + rng.standard_normal((len(theta), NUMBERS))

    def log_prob(theta: Any, x: Any) -> Any:
        return -0.5 * jnp.sum((x - mean(theta)) ** 2, axis=1)

    space = ks.Space(
        [ks.Parameter(f"theta{k + 1}", -2.0, 2.0, transform="identity") for k in range(d)]
    )
    return ks.models.from_functions(
        space, (NUMBERS,), simulate=simulate, log_prob=log_prob, name=f"regression-{d}"
    )


def run(quick: bool = False) -> dict[str, Any]:
    """Seconds per function and d; plain data."""
    sizes = (1, 2) if quick else SIZES
    return {"rows": {str(d): of_size(d, quick) for d in sizes}, "quick": quick}


def of_size(d: int, quick: bool) -> dict[str, list[Any]]:
    """[first call, second call or None] in seconds, or [message], by function."""
    one, n = model(d), 300 if quick else 5_000
    config = ks.TrainConfig(min_epochs=1) if quick else None
    theta = np.full(d, 0.3)
    xs = one.simulate(np.tile(theta, (GROUP, 1)), np.random.default_rng(1))
    names = one.space.names
    found: dict[str, list[Any]] = {}

    def timed(what: str, call: Callable[[], Any], again: bool = False) -> Any:
        result, laps = None, []
        for _ in range(2 if again else 1):
            start = time.perf_counter()
            try:
                result = call()
            except ks.KeepscoreError as error:
                found[what] = [str(error)]
                return None
            laps.append(round(time.perf_counter() - start, 4))
        found[what] = laps
        print(f"d = {d}: {what}: {laps}", flush=True)
        return result

    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        timed("check_model", lambda: ks.check_model(one, show=False, draws=100 if quick else 1000))
        data = timed(f"simulate, {n:,}", lambda: ks.simulate(one, n, seed=0))
        surrogate = timed("train", lambda: ks.train(data, config=config, progress=False))
        for kind, source in (("surrogate", surrogate), ("exact", one)):
            like = partial(source.given, xs)
            timed(f"mle, {kind}", lambda like=like: ks.mle(like()), again=True)
            timed(f"lrt of all, {kind}", lambda like=like: ks.lrt(like(), theta), again=True)
            if d > 1:
                timed(
                    f"lrt of one, others profiled out, {kind}",
                    lambda like=like: ks.lrt(like(), theta[:1], parameters=names[:1]),
                    again=True,
                )
            timed(
                f"confidence_set with volume, {kind}",
                lambda like=like: ks.confidence_set(like()).volume,
                again=True,
            )
            timed(
                f"profile intervals, {kind}",
                lambda like=like: ks.confidence_set(like()).intervals,
                again=True,
            )
            timed(
                f"posterior, {kind}",
                lambda like=like: ks.posterior(like(), draws=20 if quick else 1000),
                again=True,
            )
        card = "quick" if quick else "small"
        timed(
            "calibrate, 400 groups",
            lambda: ks.calibrate(surrogate, one, group_size=GROUP, n=100 if quick else 400),
        )
        timed(f"scorecard, {card}", lambda: ks.scorecard(surrogate, one, size=card))
        timed(
            "report, quick",
            lambda: ks.report(surrogate, one, path=Path(folder) / "r.html", size="quick"),
        )
        if not quick:
            timed("worth, n = 2,000", lambda: ks.worth(one, n=2_000, seeds=1))
    found["load at the end"] = [round(os.getloadavg()[0], 2)]
    return found


def table(result: dict[str, Any]) -> str:
    """One row per function, one column per d: first call / second call."""
    rows = result["rows"]
    lines = [
        "| seconds, first call / second | " + " | ".join(f"d = {d}" for d in rows) + " |",
        "|---|" + "---:|" * len(rows),
    ]
    every = dict.fromkeys(name for found in reversed(rows.values()) for name in found)
    for name in every:
        cells = [" / ".join(_shown(v) for v in found.get(name, ["-"])) for found in rows.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
