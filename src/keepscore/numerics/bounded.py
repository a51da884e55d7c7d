"""Columns of numbers between bounds that everybody knows, which they come close to.

    shares and percents, correlations    0 to 1, 0 to 100, -1 to 1
    angles                               -pi to pi, 0 to 2 pi, -180 to 180, 0 to 360

All values lie between the bounds, and many of them within a hundredth of one: had the numbers no
bound there, some would lie beyond it. Angles come close to both. Bounds at zero alone are left to
`networks/tails.py`: waiting times have no other.
"""

from __future__ import annotations

import math

import numpy as np

from keepscore.checks import Floats

BOUNDS = ((0.0, 1.0), (0.0, 100.0), (-1.0, 1.0))
PERIODS = ((-math.pi, math.pi), (0.0, 2 * math.pi), (-180.0, 180.0), (0.0, 360.0))
CLOSE, MANY = 0.01, 20  # of the width; values
DIRECTIONS = 36


def bounds_of(values: Floats) -> tuple[float, float] | None:
    """The bounds of a column that is not periodic, if it has some; NaN do not count. Values at an
    upper bound are taken for rounded ones, zeros are not: a logarithm does not bear them."""
    values = values[~np.isnan(values)]
    for low, high in BOUNDS:
        below, above = _close(values, low, high)
        inside = len(values) > 0 and values.min() >= low and values.max() <= high
        if inside and low == 0 and values.min() > 0 and above:
            return low, high
        if inside and low < 0 and values.min() < 0 and (below or above):
            return low, high
    return None


def period_of(values: Floats) -> tuple[float, float] | None:
    """The bounds of a column of angles, if it is one; NaN do not count."""
    values = values[~np.isnan(values)]
    for low, high in PERIODS:
        slack = 1e-6 * (high - low)  # pi in float32 is above pi
        inside = len(values) > 0 and values.min() >= low - slack and values.max() <= high + slack
        if inside and all(_close(values, low, high)):
            return low, high
    return None


def emptiest(angles: Floats) -> float:
    """The direction, in radians from -pi to pi, around which there are fewest angles."""
    turned = np.mod(angles[~np.isnan(angles)], 2 * math.pi)
    counts = np.bincount(
        (turned * DIRECTIONS / (2 * math.pi)).astype(int) % DIRECTIONS, minlength=DIRECTIONS
    )
    around = counts + np.roll(counts, 1) + np.roll(counts, -1)
    middle = (int(np.argmin(around)) + 0.5) * 2 * math.pi / DIRECTIONS
    return float(math.remainder(middle, 2 * math.pi))


def _close(values: Floats, low: float, high: float) -> tuple[bool, bool]:
    """Whether many values are close to the lower bound, and to the upper one."""
    reach = CLOSE * (high - low)
    below, above = np.sum(values < low + reach), np.sum(values > high - reach)
    return bool(below >= MANY), bool(above >= MANY)
