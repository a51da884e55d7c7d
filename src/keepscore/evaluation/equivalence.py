"""What was the score worth? How many BCE simulations, and how much BCE time, match ASA at N.

Let m_BCE(N) be a metric (lower is better) of networks trained with L_BCE on N simulations, and
m_ASA(N) the same with L_ASA. The equivalent number of simulations is

    N* = min { N' : m_BCE(N') <= m_ASA(N) },     factor = N* / N,
    time factor = t_BCE(N*) / t_ASA(N),

with m_BCE between the N that were run by interpolation: in log N and log m for metrics whose ideal
value is zero (a power law is a straight line there), in log N and m otherwise (`scale="linear"`).
Runs are noisy, so m_BCE is first made non-increasing in N by isotonic regression of its means over
seeds. N* is not extrapolated: beyond the largest run it is "more than", before the smallest "at
most". Where a run with fewer than N* simulations is itself as good (its neighbours were worse, and
the regression averages them), that is said: the runs disagree about N*.

Uncertainty over seeds: every mean m(N) over r seeds is off by s / sqrt(r), s the standard deviation
from seed to seed pooled over all cells that have several (on the scale of the interpolation). The
means are redrawn with Student-t errors of the pooled degrees of freedom and N* is found again; the
interval holds 95% of these. With one seed everywhere there is nothing to judge by: no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from keepscore.checks import Floats, require_count
from keepscore.errors import DomainError, MissingError, NonFiniteError, unknown_name
from keepscore.inference import invariants

SCALES = ("log", "linear")
DRAWS = 4000
LEVEL = 0.95


@dataclass(frozen=True)
class Equivalence:
    """N* / N and its time, for one metric. `beyond` is "more" when BCE never reaches the value
    with its largest run (simulations and factor are then lower bounds), "fewer" when its smallest
    run is already as good (upper bounds), and None inside. Interval ends are None where unknown or
    beyond the runs: `open_above`, `open_below` tell the second. `sooner` is the smallest N below N*
    whose own runs are as good, if there is one."""

    n: int
    value: float
    simulations: float
    factor: float
    beyond: str | None
    interval: tuple[float | None, float | None]
    open_below: bool
    open_above: bool
    time_factor: float | None
    seeds: int
    largest: int
    sooner: int | None = None

    def __post_init__(self) -> None:
        law = "simulations, factor and interval must be positive, and the interval in order"
        ends = [end for end in self.interval if end is not None]
        numbers = [self.simulations, self.factor, *ends]
        invariants.require(np.asarray(numbers) > 0, "equivalence", law, numbers)
        invariants.require(ends == sorted(ends), "equivalence", law)

    def __str__(self) -> str:
        sign = {"more": "more than ", "fewer": "at most ", None: ""}[self.beyond]
        text = f"{sign}{self.factor:.3g}x"
        if self.beyond == "more":
            text += f" (BCE with {self.largest:,} simulations does not reach it)"
        low, high = self.interval
        if low is not None or high is not None:
            below = f"under {low:.3g}x" if self.open_below else f"{low:.3g}x"
            above = f"over {high:.3g}x" if self.open_above else f"{high:.3g}x"
            text += f", {LEVEL:.0%} interval {below} to {above}"
        if self.sooner is not None:
            text += f"; uncertain, BCE with {self.sooner:,} simulations reached it too"
        return text

    @property
    def bound(self) -> str:
        """Before a number in a table: what is beyond the runs is a bound."""
        return {"more": "> ", "fewer": "≤ ", None: ""}[self.beyond]

    def brief(self) -> str:
        """For a table: "3.6 (2.8 to 4.5)", "> 10 (6.5 to > 10)", "> 10 (> 10)"; "> 10?" where
        the runs disagree."""
        text = f"{self.bound}{self.factor:.2g}"
        text += "" if self.sooner is None else "?"
        low, high = self.interval
        if low is None or high is None:
            return text
        below = f"{'< ' if self.open_below else ''}{low:.2g}"
        above = f"{'> ' if self.open_above else ''}{high:.2g}"
        beyond = self.open_above and low == high  # no redrawn curve reaches it
        return f"{text} ({above})" if beyond else f"{text} ({below} to {above})"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "interval": list(self.interval)}


def equivalence(
    baseline: Mapping[int, Sequence[float]],
    n: int,
    values: Sequence[float],
    scale: str = "log",
    baseline_seconds: Mapping[int, Sequence[float]] | None = None,
    seconds: Sequence[float] | None = None,
    seed: int = 0,
) -> Equivalence:
    """How many baseline simulations match `values`, reached with n simulations.

    Args:
        baseline: N to the metric of each seed's run; two sizes N or more.
        n: Simulations behind `values`.
        values: The metric of the runs to be matched, one per seed; lower is better.
        scale: "log" for metrics whose ideal value is zero, "linear" otherwise.
        baseline_seconds: Training seconds of the baseline's runs, as `baseline`.
        seconds: Training seconds of the runs to be matched.
        seed: Of the redrawn means behind the interval.

    Returns:
        The equivalent number of simulations, its factor over n, and their interval over seeds.

    Raises:
        MissingError: The baseline has fewer than two sizes, or a size no run.
        DomainError: A metric that is not positive, on the log scale.

    Example:
        >>> import keepscore as ks
        >>> errors = {1000: [0.8], 2000: [0.4], 4000: [0.2]}
        >>> round(ks.equivalence(errors, 1000, [0.4]).factor, 6)
        2.0
    """
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    n = require_count(n, "n")
    if len(baseline) < 2:
        raise MissingError(
            f"Interpolation needs the baseline at two sizes N or more; got {sorted(baseline)}."
        )
    sizes = np.array(sorted(baseline))
    curve = [_on_scale(baseline[int(k)], scale, f"baseline at N = {k}") for k in sizes]
    target = _on_scale(values, scale, "values")
    means, reached = np.array([c.mean() for c in curve]), float(target.mean())
    weights = np.array([len(c) for c in curve], dtype=float)
    points, sides = _match(np.log(sizes), means[None], weights, np.array([reached]))
    log_n, beyond = float(points[0]), {1: "more", -1: "fewer", 0: None}[int(sides[0])]
    interval = _interval(np.log(sizes), [*curve, target], seed)
    ends = tuple(None if end is None else math.exp(end) / n for end in interval[0])
    time_factor = None
    if baseline_seconds is not None and seconds is not None:
        log_t = np.log([np.mean(baseline_seconds[int(k)]) for k in sizes])
        time_factor = math.exp(np.interp(log_n, np.log(sizes), log_t)) / float(np.mean(seconds))
    simulations = math.exp(log_n)
    as_good = sizes[(means <= reached) & (sizes < simulations * (1 - 1e-9))]
    return Equivalence(
        n=n,
        value=float(np.mean(values)),
        simulations=simulations,
        factor=simulations / n,
        beyond=beyond,
        interval=(ends[0], ends[1]),
        open_below=interval[1],
        open_above=interval[2],
        time_factor=time_factor,
        seeds=min(len(c) for c in [*curve, target]),
        largest=int(sizes[-1]),
        sooner=int(as_good[0]) if len(as_good) else None,
    )


def monotone(means: Floats, weights: Floats) -> Floats:
    """The non-increasing sequences nearest to the rows of means (..., k), in weighted squares."""
    k = means.shape[-1]
    zero = np.zeros((*means.shape[:-1], 1))
    total = np.concatenate([zero, np.cumsum(weights * means, axis=-1)], axis=-1)
    weight = np.concatenate([[0.0], np.cumsum(weights)])
    fitted = np.full(means.shape, np.inf)
    # f_i = min over a <= i of max over b >= i of the mean of a..b.
    for a in range(k):
        highest = np.full(means.shape[:-1], -np.inf)
        for b in range(k - 1, a - 1, -1):
            mean = (total[..., b + 1] - total[..., a]) / (weight[b + 1] - weight[a])
            highest = np.maximum(highest, mean)
            fitted[..., b] = np.minimum(fitted[..., b], highest)
    return fitted


def _match(
    log_sizes: Floats, means: Floats, weights: Floats, reached: Floats
) -> tuple[Floats, Floats]:
    """log N* for each row of means (m, k) and value (m,), and the side of the runs it lies on:
    1 beyond the largest, -1 before the smallest, 0 inside."""
    curve, rows = monotone(means, weights), np.arange(len(means))
    side = np.where(reached < curve[:, -1], 1, np.where(reached > curve[:, 0], -1, 0))
    # The first N that is as good; inside, the step before it is worse.
    k = np.maximum(1, np.argmax(curve <= reached[:, None], axis=1))
    above, below = curve[rows, k - 1], curve[rows, k]
    drop = np.where(above > below, above - below, 1.0)
    share = np.clip((above - reached) / drop, 0.0, 1.0)
    inside = log_sizes[k - 1] + share * (log_sizes[k] - log_sizes[k - 1])
    return np.where(side > 0, log_sizes[-1], np.where(side < 0, log_sizes[0], inside)), side


def _interval(
    log_sizes: Floats, cells: Sequence[Floats], seed: int
) -> tuple[tuple[float | None, float | None], bool, bool]:
    freedom = sum(len(c) - 1 for c in cells)
    if freedom == 0:
        return (None, None), False, False
    spread = math.sqrt(sum(float(((c - c.mean()) ** 2).sum()) for c in cells) / freedom)
    counts = np.array([len(c) for c in cells], dtype=float)
    means = np.array([c.mean() for c in cells])
    rng = np.random.default_rng(seed)
    redrawn = means + rng.standard_t(freedom, size=(DRAWS, len(cells))) * spread / np.sqrt(counts)
    points, sides = _match(log_sizes, redrawn[:, :-1], counts[:-1], redrawn[:, -1])
    order = np.lexsort((points, sides))  # all "fewer" first, all "more" last
    tail = (1 - LEVEL) / 2
    first, last = order[int(tail * DRAWS)], order[int((1 - tail) * DRAWS)]
    return (
        (float(points[first]), float(points[last])),
        bool(sides[first] < 0),
        bool(sides[last] > 0),
    )


def _on_scale(values: Sequence[float], scale: str, name: str) -> Floats:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or len(array) == 0:
        raise MissingError(f"{name}: one number per seed is needed; got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise NonFiniteError(f"{name} must be finite; got {array.tolist()}.")
    if scale == "linear":
        return array
    if (array <= 0).any():
        raise DomainError(f"{name} must be positive on the log scale; got {array.min():g}.")
    return np.log(array)
