"""Points that fill a cube or a ball evenly, as many as wanted, in any number of dimensions.

A grid of k points per side has k^d of them; a scrambled Sobol sequence (Owen 1998) fills the cube
about as evenly with any number, and every part of it is even too. A ball is filled from a cube of
one dimension more: d coordinates become a direction through the normal quantile, and the last the
radius, r^d uniform.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy import stats
from scipy.stats import qmc

from keepscore.checks import Floats


def fill_cube(n: int, d: int, seed: int = 0) -> Floats:
    """n points spread evenly over (0, 1)^d: (n, d), the same for the same seed."""
    with warnings.catch_warnings():
        # Any n will do here; balance to the last digit would need a power of two.
        warnings.filterwarnings("ignore", message="The balance properties", category=UserWarning)
        points = qmc.Sobol(d, scramble=True, seed=np.random.default_rng(seed)).random(n)
    return np.asarray(np.clip(points, 1e-9, 1 - 1e-9), dtype=np.float64)


def fill_ball(n: int, d: int, seed: int = 0) -> Floats:
    """n points spread evenly over the unit ball: (n, d), the same for the same seed."""
    cube = fill_cube(n, d + 1, seed)
    direction = stats.norm.ppf(cube[:, :d])
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return np.asarray(direction * cube[:, d:] ** (1 / d), dtype=np.float64)
