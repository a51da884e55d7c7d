"""Whether a surrogate is as sure as it may be: a law that the true likelihood obeys for any step.

For theta' = theta + e and r = q(x | theta') / q(x | theta), x from the process at theta,

    E[r] = 1,    so    E[r - 1 - log r] = E[-log r],

and with small steps e along parameter k both sides are e^2 / 2 times the variance of the score
and the information, which are equal (Bartlett's second identity). With the steps +e and -e,

    ratio_k = sum E[r - 1 - log r] / sum E[-log r].

It is 1 for the true likelihood. A surrogate that follows noise in x has scores that vary more than
the curve of its likelihood says: its ratio is above 1, likelihood ratio statistics come out larger
by about that factor (Kent 1982), and intervals shorter by its root. Below 1 it is less sure than it
could be. No score of the data is needed, only held-out rows. The step is half of a standard error,
1 / (2 sd of the score); rows from which it leads out of the box do not count.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import Floats
from keepscore.numerics.evenly import evenly
from keepscore.quality import UNKNOWN
from keepscore.surrogate import Surrogate
from keepscore.training.batches import Rows

Ratios: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  # and their standard errors

MOST_ROWS, FEWEST_ROWS = 1_000, 50
FIRST_STEP = 0.01  # of the box: the slope by which the step is chosen
STEP, LARGEST_STEP = 0.5, 0.1  # standard errors; of the box
LARGEST_LOG = 30.0  # of r


def of_held_out(surrogate: Surrogate, held: Rows) -> Ratios | None:
    """By some of the held-out rows."""
    index = evenly(len(held), MOST_ROWS)
    return information_ratio(surrogate, held.theta[index], held.fetch(index)[0])


def information_ratio(surrogate: Surrogate, theta: ArrayLike, x: np.ndarray) -> Ratios | None:
    """ratio_k for each parameter, by theta (n, d) and their x (n, ...), and standard errors; None
    where there are too few rows to tell."""
    theta = np.asarray(theta, np.float64)
    if len(theta) < FEWEST_ROWS:
        return None
    low, high = surrogate.space.box("train")
    own = surrogate.relative(theta, x)
    found = []
    for k in range(theta.shape[1]):
        width = high[k] - low[k]
        up, down, counts = _steps(surrogate, theta, x, own, k, FIRST_STEP * width)
        if counts.sum() < FEWEST_ROWS:
            return None
        slope = float(np.sqrt(np.mean((up - down)[counts] ** 2))) / (2 * FIRST_STEP * width)
        if slope > 0:
            step = min(STEP / slope, LARGEST_STEP * width)
            up, down, counts = _steps(surrogate, theta, x, own, k, step)
        if counts.sum() < FEWEST_ROWS:
            return None
        found.append(_ratio(up[counts], down[counts]))
    ratio, error = zip(*found, strict=True)
    return ratio, error


def _steps(
    surrogate: Surrogate, theta: Floats, x: np.ndarray, own: Floats, k: int, step: float
) -> tuple[Floats, Floats, np.ndarray]:
    """log r for a step up and one down in parameter k, and the rows where both stay in the box."""
    logs, counts = [], np.ones(len(theta), dtype=bool)
    for e in (step, -step):
        moved = theta.copy()
        moved[:, k] += e
        inside = surrogate.space.contains(moved, "train", 0.0)
        moved = np.where(inside[:, None], moved, theta)  # as many rows as ever: compiled already
        logs.append(np.asarray(surrogate.relative(moved, x) - own, np.float64))
        counts &= inside
    return logs[0], logs[1], counts


def _ratio(up: Floats, down: Floats) -> tuple[float, float]:
    logs = np.clip(np.stack([up, down]), -LARGEST_LOG, LARGEST_LOG)
    above, below = (np.expm1(logs) - logs).sum(axis=0), -logs.sum(axis=0)
    n, mean = len(up), float(below.mean())
    if not above.any():
        return 1.0, 0.0  # the surrogate tells nothing of this parameter, and claims nothing
    if not mean > 2 * float(below.std()) / math.sqrt(n):
        return UNKNOWN, UNKNOWN  # no curve that could be told from none
    ratio = float(above.mean()) / mean
    error = float(np.std(above - ratio * below)) / math.sqrt(n) / mean
    return min(ratio, UNKNOWN), min(error, UNKNOWN)
