"""Entries that never vary: all their values are alike, but for rounding.

The computed standard deviation of equal numbers is rounding too, 1e-15 of their size and not 0, so
it cannot tell.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats

ROUNDING = 1e-12  # of the largest size


def all_alike(values: Floats, over: tuple[int, ...] = (0,)) -> NDArray[np.bool_]:
    """Per entry, whether its values over these axes are alike; NaN is no value."""
    there = ~np.isnan(values)
    low = np.min(values, axis=over, where=there, initial=np.inf)
    high = np.max(values, axis=over, where=there, initial=-np.inf)
    largest = np.maximum(np.abs(low), np.abs(high))
    return np.asarray((low >= high) | (high - low <= ROUNDING * largest))
