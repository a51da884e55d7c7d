"""Some of many, evenly spread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """Indices of at most `most` of n rows, in order, from the first to the last."""
    return np.unique(np.linspace(0, n - 1, min(most, n)).astype(np.int64))
