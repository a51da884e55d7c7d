"""A measured number and its Monte Carlo standard error; nothing is reported without one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats


@dataclass(frozen=True)
class Estimate:
    """value, and the standard error of the draws it was averaged over.

    se is 0 for a number that was not averaged, and NaN where it is unknown.
    """

    value: float
    se: float = 0.0

    @property
    def error(self) -> float:
        """The standard error where there is one to show or to reckon with, else 0."""
        return self.se if math.isfinite(self.se) and self.se > 0 else 0.0

    def __str__(self) -> str:
        if not self.se > 1e-6 * abs(self.value):
            return f"{self.value:.4g}"
        # Two digits of the error decide how many of the value are worth printing.
        digits = max(0, min(9, 1 - math.floor(math.log10(self.se))))
        return f"{self.value:.{digits}f} ± {self.se:.{digits}f}"

    def to_dict(self) -> dict[str, float]:
        return {"value": self.value, "se": self.se}


def mean(draws: NDArray[np.floating]) -> Estimate:
    """The mean of independent draws (n,)."""
    values = np.asarray(draws, dtype=np.float64)
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return Estimate(float(values.mean()), spread / math.sqrt(len(values)))


def root_mean_square(draws: NDArray[np.floating]) -> Estimate:
    """sqrt(mean of squares), its error by the delta method: se(m) / (2 sqrt(m))."""
    square = mean(np.asarray(draws, dtype=np.float64) ** 2)
    root = math.sqrt(square.value)
    return Estimate(root, square.se / (2 * root) if root > 0 else 0.0)


def stratified_mean(draws: Floats) -> Estimate:
    """The mean of draws (strata, per stratum): the strata are fixed, only draws within vary."""
    strata, each = draws.shape
    spread = draws.var(axis=1, ddof=1) if each > 1 else np.zeros(strata)
    return Estimate(float(draws.mean()), math.sqrt(float(spread.sum()) / each) / strata)
