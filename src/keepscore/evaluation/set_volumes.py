"""Volumes of thousands of Wilks sets, when G groups at a time share their theta.

`confidence_set` looks at every group on its own. With three parameters and an exact likelihood that
costs 12^3 factorisations a group; but groups simulated at the same theta have their sets in the
same place. One grid around all G of them costs as many evaluations as a single set does.

The box of theta_i holds every estimate plus 1.5 half-widths of its set, sqrt(c [B^-1]_kk) with B
the curvature at the maximum and c the critical value, and is cut by the base box. A set that still
reaches a side inside the base box widens the box there by its own width, and is measured again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

from keepscore.checks import Floats
from keepscore.inference.level_set import LevelSet, SetExtent, measure
from keepscore.inference.maximise import Maximum
from keepscore.likelihood import Integers, Likelihood

POINTS_PER_SIDE = {1: 101, 2: 32, 3: 14}
REACH = 1.5
MOST_BOXES = 6
FACE = 5


def wilks_volumes(
    given: Callable[[Integers], Likelihood],
    found: Maximum,
    groups: int,
    level: float,
    points: int | None = None,
) -> tuple[Floats, int]:
    """Volume of each group's set (p * G,), and how many reach the boundary of the base box.

    given(index) is the likelihood of those groups alone; consecutive `groups` share their theta.
    points: of the grid, a side.
    """
    volume, cut = np.empty(len(found.value)), 0
    for start in range(0, len(volume), groups):
        index = np.arange(start, min(start + groups, len(volume)))
        extent = _shared(given(index), found, index, level, points)
        volume[index] = extent.volume
        cut += int(extent.touches.any(axis=(1, 2)).sum())
    return volume, cut


def _shared(
    like: Likelihood, found: Maximum, index: Integers, level: float, points: int | None
) -> SetExtent:
    theta, value = found.theta[index], found.value[index]
    low, high = like.space.box(found.region)
    critical = float(stats.chi2.ppf(level, like.space.d))
    variance = np.diagonal(np.linalg.inv(found.curvature[index]), axis1=1, axis2=2)
    points = points or POINTS_PER_SIDE.get(like.space.d)
    half = np.sqrt(critical * np.maximum(variance, 0.0))
    half = np.clip(REACH * half, 0.02 * (high - low), high - low)
    begin, end = (theta - half).min(axis=0), (theta + half).max(axis=0)

    def on_grid(at: Floats) -> Floats:
        return _statistic(value[:, None], like.surface(at)) - critical

    def pairs(at: Floats, group: Integers) -> Floats:
        return _statistic(value[group], like.pairs(at, group)) - critical

    centre = np.full(len(index), critical)
    begin, end = np.maximum(begin, low), np.minimum(end, high)
    for _ in range(MOST_BOXES):
        # A coarse look at the faces is cheap; what it misses shows in the full measurement.
        short = _reached(begin, end, on_grid) & np.stack([begin > low, end < high], axis=1)
        if not short.any():
            extent = measure(LevelSet(begin, end, theta, centre, on_grid, pairs), points)
            short = extent.touches.any(axis=0) & np.stack([begin > low, end < high], axis=1)
            if not short.any():
                return extent
        width = end - begin
        begin = np.maximum(np.where(short[:, 0], begin - width, begin), low)
        end = np.minimum(np.where(short[:, 1], end + width, end), high)
    return measure(LevelSet(low, high, theta, centre, on_grid, pairs), points)


def _reached(begin: Floats, end: Floats, on_grid: Callable[[Floats], Floats]) -> np.ndarray:
    """Which sides of the box, (d, 2), some set reaches, seen on a grid of FACE points a side."""
    d = len(begin)
    axes = [np.linspace(begin[k], end[k], FACE) for k in range(d)]
    grid = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    outer = (grid == begin).any(axis=1) | (grid == end).any(axis=1)
    inside = np.asarray((on_grid(grid[outer]) <= 0).any(axis=0))
    at = grid[outer]
    return np.stack(
        [[inside[at[:, k] == side[k]].any() for side in (begin, end)] for k in range(d)]
    )


def _statistic(best: Floats, value: Floats) -> Floats:
    """Lambda; a theta that cannot have produced the data is in no set."""
    statistic = 2 * (best - np.asarray(value, dtype=float))
    return np.where(np.isnan(statistic), np.inf, statistic)
