"""Volumes of thousands of Wilks sets, when G groups at a time share their theta.

`confidence_set` looks at every group on its own. With three parameters and an exact likelihood that
costs 12^3 factorisations per group; but groups simulated at the same theta have their sets in the
same place. One grid around all G of them costs as many evaluations as a single set does.

The box of theta_i holds every estimate plus 1.5 half-widths of its set, sqrt(c [B^-1]_kk) with B
the curvature at the maximum and c the critical value, and is cut by the base box. A set that still
reaches a side inside the base box widens the box there by its own width, and is measured again.

From four parameters on a grid has too many points: all G sets are measured with the same draws,
from a density that covers their union (inference/set_sampling.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

from keepscore.checks import Floats
from keepscore.inference.level_set import LevelSet, SetExtent, measure
from keepscore.inference.profile import faces_reached
from keepscore.inference.set_sampling import first_look, fitted, in_box, mean_volume
from keepscore.inference.statistic import drop
from keepscore.likelihood import Integers, Likelihood, Maximum
from keepscore.space import tensor_grid

POINTS_PER_SIDE = {1: 101, 2: 32, 3: 14}
DRAWS = 2048  # shared by the groups of one theta, from four parameters on
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
    points: per side of the grid.
    """
    volume, cut = np.empty(len(found.value)), 0
    for start in range(0, len(volume), groups):
        index = np.arange(start, min(start + groups, len(volume)))
        like, part = given(index), found.of(index)
        if like.space.d in POINTS_PER_SIDE:
            extent = _shared(like, part, level, points)
            volume[index], touches = extent.volume, extent.touches
        else:
            volume[index], touches = _sampled(like, part, level, start)
        cut += int(touches.any(axis=(1, 2)).sum())
    return volume, cut


def _sampled(
    like: Likelihood, found: Maximum, level: float, seed: int
) -> tuple[Floats, np.ndarray]:
    """Volumes (g,) by shared draws, and the sides of the box (g, d, 2) that the sets reach."""
    low, high = like.space.box(found.region)
    critical = np.full(len(found.value), stats.chi2.ppf(level, like.space.d))
    field = _field(like, found, low, high, critical)
    rng = np.random.default_rng([seed, 0x5E75])
    q = first_look(field, found.curvature, np.arange(len(critical)))
    theta = q.draw(DRAWS // 2, rng)
    theta = theta[in_box(field, theta)]
    seen = theta[(field.on_grid(theta) <= 0).any(axis=0)]
    q = fitted(q, seen, q.density(seen))
    theta, everyone = q.draw(DRAWS, rng), list(range(like.space.d))
    boxed = in_box(field, theta)
    inside = np.zeros((len(critical), len(theta)), dtype=bool)
    inside[:, boxed] = field.on_grid(theta[boxed]) <= 0
    volume = np.array([mean_volume(q, theta, hit)[0] for hit in inside])
    touches = faces_reached(like, found, everyone, lambda t, which: np.full(len(t), critical[0]))
    return volume, touches


def _field(
    like: Likelihood, found: Maximum, low: Floats, high: Floats, critical: Floats
) -> LevelSet:
    """F = Lambda - critical (g,) over the box [low, high]."""

    def on_grid(at: Floats) -> Floats:
        return drop(found.value[:, None], like.surface_in_blocks(at)) - critical[:, None]

    def pairs(at: Floats, group: Integers) -> Floats:
        return drop(found.value[group], like.pairs(at, group)) - critical[group]

    return LevelSet(low, high, found.theta, critical, on_grid, pairs)


def _shared(like: Likelihood, found: Maximum, level: float, points: int | None) -> SetExtent:
    theta = found.theta
    low, high = like.space.box(found.region)
    critical = np.full(len(theta), stats.chi2.ppf(level, like.space.d))
    variance = np.diagonal(np.linalg.inv(found.curvature), axis1=1, axis2=2)
    points = points or POINTS_PER_SIDE.get(like.space.d)
    half = np.sqrt(critical[:, None] * np.maximum(variance, 0.0))
    half = np.clip(REACH * half, 0.02 * (high - low), high - low)
    begin, end = (theta - half).min(axis=0), (theta + half).max(axis=0)
    begin, end = np.maximum(begin, low), np.minimum(end, high)
    on_grid = _field(like, found, low, high, critical).on_grid
    for _ in range(MOST_BOXES):
        # A coarse look at the faces is cheap; what it misses shows in the full measurement.
        short = _reached(begin, end, on_grid) & np.stack([begin > low, end < high], axis=1)
        if not short.any():
            extent = measure(_field(like, found, begin, end, critical), points)
            short = extent.touches.any(axis=0) & np.stack([begin > low, end < high], axis=1)
            if not short.any():
                return extent
        width = end - begin
        begin = np.maximum(np.where(short[:, 0], begin - width, begin), low)
        end = np.minimum(np.where(short[:, 1], end + width, end), high)
    return measure(_field(like, found, low, high, critical), points)


def _reached(begin: Floats, end: Floats, on_grid: Callable[[Floats], Floats]) -> np.ndarray:
    """Which sides of the box, (d, 2), some set reaches, seen on a grid of FACE points per side."""
    d = len(begin)
    grid = tensor_grid([np.linspace(begin[k], end[k], FACE) for k in range(d)])
    outer = (grid == begin).any(axis=1) | (grid == end).any(axis=1)
    inside = np.asarray((on_grid(grid[outer]) <= 0).any(axis=0))
    at = grid[outer]
    return np.stack(
        [[inside[at[:, k] == side[k]].any() for side in (begin, end)] for k in range(d)]
    )
