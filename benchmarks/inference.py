"""Inference with a surrogate against the exact likelihood, on the SIS model.

one group     a 40 x 40 surface and an estimate for one group of ten, from the observations: what
              depends on x alone (features; transition counts) is computed inside the clock.
many groups   estimate, likelihood-ratio test at the truth and 95 % set with its volume, for 3,000
              groups of ten.

Two surrogates, both trained on 10,000 simulations for the paper's number of epochs (how many points
an interpolated surface needs depends on the network, see `numerics/chebyshev.py`): the paper's 30K
network, and the network and recipe that `ks.train` advises. A first call compiles; that is reported
apart. The exact likelihood does one group in full, and many groups at two smaller counts, from
which the time for all is extrapolated as a fixed part (surfaces share one computation a theta among
all groups) plus a part for each group.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import keepscore as ks
from keepscore.models.sis import SIS

GROUP_SIZE = 10
SIDE = 40
TASKS = {"surface": f"{SIDE} x {SIDE} surface, one group", "mle": "estimate, one group"}


def run(quick: bool = False) -> dict[str, Any]:
    """Seconds for each task with each likelihood, and ratios; plain data, ready for JSON."""
    model, rng = SIS(), np.random.default_rng(0)
    count = 60 if quick else 3000
    few, more = (2, 4) if quick else (50, 250)
    theta = model.space.uniform(count, rng, "test")
    x = model.simulate(np.repeat(theta, GROUP_SIZE, axis=0), rng)
    xs = x.reshape(count, GROUP_SIZE, *model.x_shape)
    exact = {g: _seconds(lambda g=g: _everything(model, xs[:g], theta[:g])) for g in (few, more)}
    per_group = max(0.0, exact[more] - exact[few]) / (more - few)
    extrapolated = exact[few] + per_group * (count - few)
    rounds, networks = 2 if quick else 7, {}
    for name, surrogate in _surrogates(model, quick).items():
        first = _seconds(lambda s=surrogate: _everything(s, xs, theta))
        again = _seconds(lambda s=surrogate: _everything(s, xs, theta))
        networks[name] = {
            "surface": _compare(lambda s: _surface(s, xs[0]), surrogate, model, rounds),
            "mle": _compare(lambda s: _mle(s, xs[0]), surrogate, model, rounds),
            "many_s": again,
            "many_first_call_s": first,
            "many_ratio": extrapolated / again,
        }
    return {
        "quick": quick,
        "group_size": GROUP_SIZE,
        "groups": count,
        "exact_measured_s": {str(g): s for g, s in exact.items()},
        "exact_extrapolated_s": extrapolated,
        "networks": networks,
    }


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown table."""
    lines = [
        "| task (SIS, groups of 10) | network | surrogate | exact | exact / surrogate |",
        "|---|---|---:|---:|---:|",
    ]
    sizes = " and ".join(result["exact_measured_s"])
    for name, got in result["networks"].items():
        for task, words in TASKS.items():
            mine, theirs = 1e3 * got[task]["surrogate_s"], 1e3 * got[task]["exact_s"]
            ratio = f"{got[task]['ratio']:.0f}"
            lines.append(f"| {words} | {name} | {mine:.1f} ms | {theirs:.0f} ms | {ratio} |")
        lines.append(
            f"| estimate + test + set, {result['groups']:,} groups | {name} "
            f"| {got['many_s']:.1f} s (first call {got['many_first_call_s']:.1f} s) "
            f"| {result['exact_extrapolated_s']:.0f} s (from {sizes} groups) "
            f"| {got['many_ratio']:.1f} |"
        )
    return "\n".join(lines)


def _surrogates(model: SIS, quick: bool) -> dict[str, Any]:
    data = ks.simulate(model, 640 if quick else 10_000, seed=0)
    held = ks.simulate(model, 640 if quick else 2_000, seed=1, purpose="validation")
    short: dict[str, Any] = {"min_epochs": 1, "max_epochs": 1} if quick else {}
    paper, ours = ks.TrainConfig.paper("sis", **short), ks.TrainConfig(**short)
    return {
        "30k": ks.train(data, held, network="30k", loss=ks.ASA.paper(), config=paper),
        "default": ks.train(data, held, config=ours),
    }


def _surface(source: Any, xs: np.ndarray) -> None:
    np.asarray(source.given(xs)(source.space.grid(SIDE)))


def _mle(source: Any, xs: np.ndarray) -> None:
    ks.mle(source.given(xs))


def _everything(source: Any, xs: np.ndarray, theta: np.ndarray) -> None:
    like = source.given(xs)
    ks.mle(like)
    test = ks.lrt(like, theta)
    chosen = ks.confidence_set(like)
    assert np.isfinite(test.statistic).all()
    assert (np.asarray(chosen.volume) > 0).all()


def _compare(
    work: Callable[[Any], None], surrogate: Any, model: SIS, rounds: int
) -> dict[str, float]:
    """Median seconds of each, measured in turn after one call to warm up."""
    work(surrogate)
    work(model)
    ours, exact = [], []
    for _ in range(rounds):
        ours.append(_seconds(lambda: work(surrogate)))
        exact.append(_seconds(lambda: work(model)))
    a, b = statistics.median(ours), statistics.median(exact)
    return {"surrogate_s": a, "exact_s": b, "ratio": b / a}


def _seconds(work: Callable[[], None]) -> float:
    with warnings.catch_warnings():
        # Sets at the edge of the box, and a surrogate hardly trained: not what is measured.
        warnings.simplefilter("ignore", ks.KeepscoreWarning)
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


if __name__ == "__main__":
    print(table(run(quick=True)))
