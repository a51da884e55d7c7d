"""Inference with a surrogate against the exact likelihood, on the SIS model.

one group     a 40 x 40 surface and an estimate for one group of ten, from the observations: what
              depends on x alone (features; transition counts) is computed inside the clock.
many groups   estimate, likelihood-ratio test at the truth and 95 % set with its volume, for 3,000
              groups of ten.

The surrogate is the paper's 30K network, trained for a few epochs only: time does not depend on how
good it is. Its first call compiles; that is reported apart. The exact likelihood does one group in
full, and many groups at two smaller counts, from which the time for all is extrapolated as a fixed
part (surfaces share one computation a theta among all groups) plus a part for each group.
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


def run(quick: bool = False) -> dict[str, Any]:
    """Seconds for each task with each likelihood, and ratios; plain data, ready for JSON."""
    model, rng = SIS(), np.random.default_rng(0)
    count = 60 if quick else 3000
    few, more = (2, 4) if quick else (20, 60)
    theta = model.space.uniform(count, rng, "test")
    x = model.simulate(np.repeat(theta, GROUP_SIZE, axis=0), rng)
    xs = x.reshape(count, GROUP_SIZE, *model.x_shape)
    surrogate = _surrogate(model, quick)
    rounds = 2 if quick else 7
    one = {
        "surface": _compare(lambda source: _surface(source, xs[0]), surrogate, model, rounds),
        "mle": _compare(lambda source: _mle(source, xs[0]), surrogate, model, rounds),
    }
    first = _seconds(lambda: _everything(surrogate, xs, theta))
    again = _seconds(lambda: _everything(surrogate, xs, theta))
    exact = {g: _seconds(lambda g=g: _everything(model, xs[:g], theta[:g])) for g in (few, more)}
    per_group = (exact[more] - exact[few]) / (more - few)
    extrapolated = exact[few] + per_group * (count - few)
    return {
        "quick": quick,
        "network": "30k, a few epochs of training",
        "group_size": GROUP_SIZE,
        "one_group": one,
        "many_groups": {
            "groups": count,
            "surrogate_s": again,
            "surrogate_first_call_s": first,
            "exact_measured_s": {str(g): s for g, s in exact.items()},
            "exact_extrapolated_s": extrapolated,
            "ratio": extrapolated / again,
        },
    }


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown table."""
    lines = [
        "| task (SIS, groups of 10) | surrogate | exact | exact / surrogate |",
        "|---|---:|---:|---:|",
    ]
    names = {"surface": f"{SIDE} x {SIDE} surface, one group", "mle": "estimate, one group"}
    for task, got in result["one_group"].items():
        lines.append(
            f"| {names[task]} | {1e3 * got['surrogate_s']:.1f} ms | {1e3 * got['exact_s']:.0f} ms "
            f"| {got['ratio']:.0f} |"
        )
    many = result["many_groups"]
    sizes = " and ".join(many["exact_measured_s"])
    lines.append(
        f"| estimate + test + set, {many['groups']:,} groups | {many['surrogate_s']:.1f} s "
        f"| {many['exact_extrapolated_s']:.0f} s (from {sizes} groups) | {many['ratio']:.1f} |"
    )
    lines.append(
        f"\nSurrogate: {result['network']}; the first call, with compilation, took "
        f"{many['surrogate_first_call_s']:.1f} s for all groups."
    )
    return "\n".join(lines)


def _surrogate(model: SIS, quick: bool) -> Any:
    data = ks.simulate(model, 640 if quick else 10_000, seed=0)
    held = ks.simulate(model, 640 if quick else 2_000, seed=1, purpose="validation")
    config = ks.TrainConfig(min_epochs=1, max_epochs=1 if quick else 5)
    return ks.train(data, held, network="30k", loss=ks.ASA(), config=config)


def _surface(source: Any, xs: np.ndarray) -> None:
    np.asarray(source.given(xs)(source.space.grid(SIDE)))


def _mle(source: Any, xs: np.ndarray) -> None:
    ks.mle(source.given(xs))


def _everything(source: Any, xs: np.ndarray, theta: np.ndarray) -> None:
    like = source.given(xs)
    found = ks.mle(like)
    test = ks.lrt(like, theta, maximum=found.maximum)
    chosen = ks.confidence_set(like, maximum=test.maximum)
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
