"""Data with heavy tails, or near zero: when the standard deviation is no scale, and what is.

With q_u the quantiles of an entry of x over the data,

    tail = (q_.999 - q_.001) / (q_.75 - q_.25)

is 4.6 for a normal, 6.3 for a logistic, 9 for a Laplace distribution, 13 for Student's t with
three degrees of freedom, 27 with two and over 300 with one. Beyond 12 a few values set the standard
deviation, and with it everything else is near zero. Then the scale is

    z = arsinh((x - q_.5) / s),    s = (q_.75 - q_.25) / 1.349,

which is the usual one in the middle (s is the standard deviation of normal data) and grows as
log|x| beyond it. z is one to one, so it holds all that x does; and since the change of variables
does not depend on theta, ratios of likelihoods are those of x.

Data that are never negative and lean on zero (waiting times, sizes, incomes), told by

    (q_.999 - q_.5) / (q_.5 - q_.001) > 5,

(2.6 for a gamma distribution of shape 5, 3.9 for a half normal, 9 for an exponential, 22 for a
log-normal one) are made of small values as much as of large ones. Their scale is that of their
logarithm, by the same function with q_.5 = 0 and s = q_.01: log|2 x / s| for all but the smallest
values, and at zero no less defined than anywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats

HEAVY = 12.0
LEANING, SMALL = 5.0, 0.01  # SMALL: the quantile that is the scale of what leans on zero
NORMAL_QUARTILES = 1.349  # q_.75 - q_.25 of a standard normal
FEWEST = 200  # values, below which the outer quantiles say nothing


def has_heavy_tails(values: Floats, over: tuple[int, ...]) -> bool:
    """Whether some entry of x has a tail beyond 12; over: the axes that run over the data."""
    columns = _columns(values, over)
    if len(columns) < FEWEST:
        return False
    low, first, third, high = _quantiles(columns, (0.001, 0.25, 0.75, 0.999))
    middle = third - first
    # Entries of which half are alike (zeros, say) have no scale in the middle.
    known = np.isfinite(middle) & (middle > 0)
    return bool(((high - low)[known] > HEAVY * middle[known]).any())


def median_and_spread(values: Floats, over: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Median and s per entry; s is the standard deviation where the quartiles are alike."""
    columns = _columns(values, over)
    first, median, third = _quantiles(columns, (0.25, 0.5, 0.75))
    spread = (third - first) / NORMAL_QUARTILES
    sd = np.sqrt(np.nan_to_num(columns - median).var(axis=0))
    spread = np.where(spread > 0, spread, sd)
    shape = _entries(values, over)
    return median.reshape(shape), spread.reshape(shape)


def lean_on_zero(values: Floats, over: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which entries of x are never negative and mostly near zero."""
    columns = _columns(values, over)
    if len(columns) < FEWEST:
        return np.zeros(_entries(values, over), dtype=bool)
    low, small, median, high = _quantiles(columns, (0.001, SMALL, 0.5, 0.999))
    least = np.nan_to_num(columns).min(axis=0)
    found = (least >= 0) & (small > 0) & (high - median > LEANING * (median - low))
    return found.reshape(_entries(values, over))


def small_values(values: Floats, over: tuple[int, ...]) -> Floats:
    """s per entry of what leans on zero."""
    return _quantiles(_columns(values, over), (SMALL,))[0].reshape(_entries(values, over))


def _quantiles(columns: Floats, levels: tuple[float, ...]) -> Floats:
    """Quantiles (levels, entries) of what was observed; 0 of an entry that never was."""
    never = np.isnan(columns).all(axis=0)
    return np.nanquantile(np.where(never, 0.0, columns), levels, axis=0)


def _entries(values: Floats, over: tuple[int, ...]) -> list[int]:
    """The axes of x that have a scale each."""
    return [side for axis, side in enumerate(values.shape) if axis not in over]


def _columns(values: Floats, over: tuple[int, ...]) -> Floats:
    """Values (m, entries): what is pooled down the rows."""
    first = np.moveaxis(values, over, range(len(over)))
    return first.reshape(int(np.prod([values.shape[a] for a in over])), -1)
