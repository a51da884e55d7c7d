"""The likelihood-ratio statistic, Lambda = 2 (l_max - l): its one home.

drop(best, value)      2 (best - value); infinite where the data are impossible
statistic(best, null)  the same as a result: not negative, or an error of ours
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import Floats
from keepscore.inference import invariants


def drop(best: ArrayLike, value: ArrayLike) -> Floats:
    """Lambda at places whose log-likelihood is `value`, broadcast against `best`.

    A theta that cannot have produced the data (value -inf or NaN) has an infinite Lambda and is in
    no set. Not clipped: a negative one shows a maximum that was missed, or rounding.
    """
    found = 2 * (np.asarray(best, dtype=np.float64) - np.asarray(value, dtype=np.float64))
    return np.where(np.isnan(found), np.inf, found)


def statistic(best: ArrayLike, null: ArrayLike, function: str) -> Floats:
    """Lambda as a result of `function`: not negative; more than rounding below zero is a fault."""
    found = drop(best, null)
    law = "a likelihood-ratio statistic must not be negative"
    invariants.require(found >= -2 * invariants.rounding(best), function, law, found)
    return np.maximum(found, 0.0)
