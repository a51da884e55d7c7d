"""From nothing to the global maximum: a look over the box, its local maxima, and a climb from each.

One call of `surface` gives every group at every point of a design (shared theta, which is what
exact and surrogate likelihoods are fastest at). Up to four parameters the design is a coarse grid,
and around each of a group's highest local maxima a quadratic fitted to the 3^d neighbouring values
gives the first step and the first curvature for free, so the climb that follows needs few
gradients. From five parameters on a grid would have too many points, and few of them inside: the
design is a Sobol sequence, 64 points per parameter, whose local maxima are the points higher than
their nearest neighbours; climbs begin with a step of about a tenth of the box.

`maximum_of` is the entry for all others: it searches once per likelihood and region.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from keepscore.checks import Floats, require_count
from keepscore.errors import ConvergenceError
from keepscore.inference.bfgs import Climb, climb, make_positive
from keepscore.inference.invariants import rounding
from keepscore.likelihood import Integers, Likelihood, Maximum, Modes
from keepscore.numerics.space_filling import fill_cube
from keepscore.space import Region

STARTS = 3
STARTS_WITHOUT_GRID = 8
POINTS_PER_SIDE = {1: 41, 2: 11, 3: 7, 4: 5}
DESIGN_PER_PARAMETER = 64
FIRST_STEP = 0.1  # of the box, where no grid tells the curvature


def maximum_of(
    like: Likelihood,
    region: Region = "base",
    starts: int | None = None,
    points: int | None = None,
) -> Maximum:
    """The maximum of every group: the one remembered, or else searched for and remembered.

    With `starts` or `points` named the search is made in any case, and what is higher is kept.
    """
    known = like.known_maximum(region)
    if known is not None and starts is None and points is None:
        return known
    return like.remember(maximise(like, region, starts, points))


def maximise(
    like: Likelihood,
    region: Region = "base",
    starts: int | None = None,
    points: int | None = None,
) -> Maximum:
    """Global maximum over the region's box, for every group; nothing is remembered.

    starts: climbs per group (3 with a grid, 8 without). points: per side of the grid; with five
    parameters or more, twice as many give a design of twice the size (3 is the usual size).
    """
    d = like.space.d
    gridded = d in POINTS_PER_SIDE
    count = STARTS if gridded else STARTS_WITHOUT_GRID
    count = count if starts is None else require_count(starts, "starts")
    side = POINTS_PER_SIDE.get(d, 3) if points is None else require_count(points, "grid", minimum=3)
    low, high = like.space.box(region)
    if gridded:
        design = like.space.grid(side, region)
    else:
        n = DESIGN_PER_PARAMETER * d * side // 3
        design = low + (high - low) * fill_cube(n, d)
    surface = like.surface_in_blocks(design)
    finite = np.where(np.isfinite(surface), surface, -np.inf)
    _require_somewhere_finite(surface)
    if gridded:
        problem, start, curvature = _starts(surface.reshape(-1, *(side,) * d), count)
        spacing = (high - low) / (side - 1)
        start, curvature = low + start * spacing, curvature / np.outer(spacing, spacing)
    else:
        problem, start, curvature = _scattered_starts(like, design, finite, high - low, count)
    box = (np.broadcast_to(low, start.shape), np.broadcast_to(high, start.shape))
    summit = climb(like, Climb(start, problem, *box, high - low, curvature))
    best = _best_of(problem, summit.value, like.group_count)
    found = Maximum(
        summit.theta[best],
        summit.value[best],
        summit.curvature[best],
        summit.converged[best],
        summit.evaluations,
        region,
        Modes(problem, summit.theta, summit.value, summit.curvature),
    )
    # A coarse design can mislead; no group may end below a point already seen.
    seen = finite.max(axis=1)
    low_ones = np.flatnonzero(found.value < seen - 1e-5 * (1 + np.abs(seen)))
    return climb_again(
        like, found, low_ones, design[finite[low_ones].argmax(axis=1)], seen[low_ones]
    )


def improved(
    like: Likelihood, found: Maximum, theta: Floats, value: Floats, slack: Floats | float = 0.0
) -> tuple[Maximum, np.ndarray]:
    """The cross-check of a maximum against a place per group, theta (g, d) with values (g,).

    Where that lies above what the search had found, by more than `slack`, the search missed: it
    starts again there, and what it finds is remembered. Returns the maximum, and which groups (g,)
    were beaten.
    """
    beaten = np.asarray(value > found.value + slack)
    rows = np.flatnonzero(beaten)
    if len(rows) == 0:
        return found, beaten
    return like.remember(climb_again(like, found, rows, theta[rows], value[rows])), beaten


def climb_again(
    like: Likelihood, found: Maximum, group: Integers, start: Floats, value: Floats
) -> Maximum:
    """Search once more for the named groups, from points whose values are known and higher.

    Where no gradient is to be had the climb cannot begin: the point itself is the best there is,
    and the search did not converge.
    """
    if len(group) == 0:
        return found
    low, high = like.space.box(found.region)
    box = (np.broadcast_to(low, start.shape), np.broadcast_to(high, start.shape))
    guess = found.curvature[group]
    summit = climb(like, Climb(start, group, *box, high - low, guess))
    stayed = summit.value < value - rounding(value)
    summit.theta = np.where(stayed[:, None], np.clip(start, low, high), summit.theta)
    summit.value = np.maximum(summit.value, value)
    summit.converged = summit.converged & ~stayed
    theta, best = found.theta.copy(), found.value.copy()
    curvature, converged = found.curvature.copy(), found.converged.copy()
    theta[group], best[group] = summit.theta, summit.value
    curvature[group], converged[group] = summit.curvature, summit.converged
    count = found.evaluations + summit.evaluations
    return Maximum(theta, best, curvature, converged, count, found.region, found.modes)


def _scattered_starts(
    like: Likelihood, design: Floats, finite: Floats, width: Floats, starts: int
) -> tuple[Integers, Floats, Floats]:
    """Group, start and curvature of each group's highest local maxima on a scattered design."""
    d = design.shape[1]
    _, near = cKDTree(design / width).query(design / width, k=min(len(design), d + 2))
    peak = finite >= finite[:, near].max(axis=2)
    ranked = np.where(peak & np.isfinite(finite), finite, -np.inf)
    order = np.argsort(-ranked, axis=1, kind="stable")[:, :starts]
    rows, ranks = np.nonzero(np.isfinite(np.take_along_axis(ranked, order, axis=1)))
    start = design[order[rows, ranks]]
    _, gradient = like.pairs_gradient(start, rows)
    # B = |g| / step, in units of the box: the first Newton step is that long in every direction.
    steep = np.abs(np.nan_to_num(np.asarray(gradient, dtype=np.float64))) * width
    steep = np.maximum(steep, np.maximum(1e-3 * steep.max(axis=1, keepdims=True), 1e-3))
    return rows, start, np.eye(d) * (steep / (FIRST_STEP * width**2))[:, None, :]


def _starts(surface: Floats, starts: int) -> tuple[Integers, Floats, Floats]:
    """Group, start (in grid steps) and curvature of each group's highest local maxima."""
    g, shape = len(surface), surface.shape[1:]
    d = len(shape)
    finite = np.where(np.isfinite(surface), surface, -np.inf)
    peak = ndimage.maximum_filter(finite, size=(1, *(3,) * d), mode="nearest") == finite
    ranked = np.where(peak & np.isfinite(finite), finite, -np.inf).reshape(g, -1)
    order = np.argsort(-ranked, axis=1)[:, :starts]
    rows, ranks = np.nonzero(np.isfinite(np.take_along_axis(ranked, order, axis=1)))
    index = np.stack(np.unravel_index(order[rows, ranks], shape), axis=1)
    centre = np.clip(index, 1, np.array(shape) - 2)
    offsets = np.array(list(itertools.product((-1, 0, 1), repeat=d)))
    where = centre[:, None, :] + offsets
    values = finite[(rows[:, None], *np.moveaxis(where, 2, 0))]
    lowest = np.where(np.isfinite(values), values, np.inf).min(axis=1, keepdims=True)
    gradient, curvature = _quadratic(offsets, np.where(np.isfinite(values), values, lowest))
    curvature = make_positive(curvature)
    newton = np.linalg.solve(curvature, gradient[..., None])[..., 0]
    start = np.clip(centre + newton, index - 1.0, index + 1.0)
    return rows, np.clip(start, 0, np.array(shape) - 1.0), curvature


def _quadratic(offsets: np.ndarray, values: Floats) -> tuple[Floats, Floats]:
    """Least-squares v(o) = c + g'o - o'Bo/2 on the stencil: g (p, d) and B (p, d, d)."""
    d = offsets.shape[1]
    pairs = list(itertools.combinations_with_replacement(range(d), 2))
    squares = [offsets[:, i] * offsets[:, j] * (-0.5 if i == j else -1.0) for i, j in pairs]
    design = np.column_stack([np.ones(len(offsets)), offsets, *squares])
    centred = values - values.max(axis=1, keepdims=True)
    fitted = centred @ np.linalg.pinv(design).T
    curvature = np.empty((len(values), d, d))
    for k, (i, j) in enumerate(pairs):
        curvature[:, i, j] = curvature[:, j, i] = fitted[:, 1 + d + k]
    return fitted[:, 1 : 1 + d], curvature


def _best_of(problem: Integers, value: Floats, g: int) -> Integers:
    """For each group, the problem with the highest value."""
    order = np.lexsort((-value, problem))
    return order[np.searchsorted(problem[order], np.arange(g))]


def _require_somewhere_finite(surface: Floats) -> None:
    lost = ~np.isfinite(surface).any(axis=1)
    if lost.any():
        raise ConvergenceError(
            f"The log-likelihood of {int(lost.sum())} group(s) is not finite anywhere on the "
            f"starting grid (the first: group {int(np.argmax(lost))}); are the data possible "
            "under the model?"
        )
