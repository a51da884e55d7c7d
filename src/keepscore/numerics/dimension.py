"""How many dimensions points fill: by the distances to their two nearest neighbours.

Around a point the number of others within r grows as r^D, so the ratio m = r_2 / r_1 of these
distances has the law 1 - m^-D, and D is estimated by n / sum log m (Facco et al. 2017). It falls
short of D where D is large and points are few; so it is compared to that of a Gaussian cloud of as
many points in as many dimensions. Points are made uncorrelated first: a narrow cloud looks like a
surface where its points are further apart than it is thick.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from keepscore.checks import Floats
from keepscore.numerics.evenly import evenly

MOST, FEWEST = 5_000, 200  # points
# A surface has (p - 1) / p of the dimensions; of many, points on one look like points around it.
MISSING, THIN = 0.6, 0.85
FLAT = 1e-10  # of the variance: as thick as the rounding of float32, which is drawn out to no cloud


def _uncorrelated(points: Floats) -> Floats:
    """Points (n, p) with mean zero and the covariance 1, but where they lie on a plane."""
    sd = points.std(axis=0)
    z = (points - points.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    variances, axes = np.linalg.eigh(z.T @ z / len(z))
    return z @ axes / np.sqrt(np.where(variances > FLAT, variances, 1.0))


def dimension(points: Floats) -> float:
    """Of different points (n, p), whatever their units and correlations."""
    z = _uncorrelated(points)
    near = cKDTree(z).query(z, 3)[0][:, 1:]
    ratio = near[:, 1] / np.maximum(near[:, 0], np.finfo(np.float64).tiny)
    return float(len(z) / np.log(ratio).sum())


def is_thin(points: Floats) -> bool:
    """Whether points (n, p) fill clearly fewer dimensions than p, as those of a curve or a surface
    do; points with NaN do not count, equal ones count once, and few points say nothing."""
    points = points[~np.isnan(points).any(axis=1)]
    points = np.unique(points[evenly(len(points), MOST)], axis=0)
    p = points.shape[1]
    if p < 2 or len(points) < FEWEST:
        return False
    cloud = np.random.default_rng(0).standard_normal((len(points), p))
    return dimension(points) < min(1 - MISSING / p, THIN) * dimension(cloud)
