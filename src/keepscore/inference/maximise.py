"""From nothing to the global maximum: a coarse surface, its local maxima, and a climb from each.

One call of `surface` gives every group at every point of a coarse grid (shared theta, which is what
exact and surrogate likelihoods are fastest at). Around each of a group's highest local maxima, a
quadratic fitted to the 3^d neighbouring values gives the first step and the first curvature for
free, so the climb that follows needs few gradients.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from keepscore.checks import Floats, require_count
from keepscore.errors import ConvergenceError, DtypeError, MismatchError
from keepscore.inference.bfgs import Climb, Summit, climb, make_positive
from keepscore.inference.invariants import rounding
from keepscore.inference.likelihood import surface_by_blocks
from keepscore.likelihood import Integers, Likelihood
from keepscore.space import Region

STARTS = 3
POINTS_PER_SIDE = {1: 41, 2: 11, 3: 7, 4: 5}


@dataclass
class Maximum:
    """The maximum of every group: theta (g, d), value (g,), curvature (g, d, d), converged (g,)."""

    theta: Floats
    value: Floats
    curvature: Floats
    converged: np.ndarray
    evaluations: int
    region: Region

    def replaced(self, group: Integers, summit: Summit) -> Maximum:
        """The same with better maxima found for some groups."""
        theta, value = self.theta.copy(), self.value.copy()
        curvature, converged = self.curvature.copy(), self.converged.copy()
        theta[group], value[group] = summit.theta, summit.value
        curvature[group], converged[group] = summit.curvature, summit.converged
        count = self.evaluations + summit.evaluations
        return Maximum(theta, value, curvature, converged, count, self.region)


def maximise(
    like: Likelihood, region: Region = "base", starts: int = STARTS, points: int | None = None
) -> Maximum:
    """Global maximum over the region's box, for every group."""
    starts = require_count(starts, "starts")
    d = like.space.d
    side = POINTS_PER_SIDE.get(d, 3) if points is None else require_count(points, "grid", minimum=3)
    low, high = like.space.box(region)
    grid = like.space.grid(side, region)
    surface = np.asarray(surface_by_blocks(like, grid), dtype=float)
    _require_somewhere_finite(surface)
    problem, start, curvature = _starts(surface.reshape(-1, *(side,) * d), starts)
    spacing = (high - low) / (side - 1)
    box = (np.broadcast_to(low, start.shape), np.broadcast_to(high, start.shape))
    curvature = curvature / np.outer(spacing, spacing)
    summit = climb(like, Climb(low + start * spacing, problem, *box, high - low, curvature))
    best = _best_of(problem, summit.value, like.group_count)
    found = Maximum(
        summit.theta[best],
        summit.value[best],
        summit.curvature[best],
        summit.converged[best],
        summit.evaluations,
        region,
    )
    # A coarse grid can mislead the quadratic; no group may end below a point already seen.
    seen = np.where(np.isfinite(surface), surface, -np.inf).max(axis=1)
    low_ones = np.flatnonzero(found.value < seen - 1e-5 * (1 + np.abs(seen)))
    start = grid[np.where(np.isfinite(surface), surface, -np.inf)[low_ones].argmax(axis=1)]
    return climb_again(like, found, low_ones, start, seen[low_ones])


def require_maximum(like: Likelihood, maximum: Maximum | None, region: Region) -> Maximum | None:
    """A maximum that a caller brings along is of this likelihood and this region, or an error."""
    if maximum is None:
        return None
    if not isinstance(maximum, Maximum):
        raise DtypeError(
            f"maximum must be the `maximum` of a result of mle, lrt or confidence_set; "
            f"got {type(maximum).__name__}."
        )
    if maximum.region != region or maximum.theta.shape != (like.group_count, like.space.d):
        raise MismatchError(
            f"The maximum given is over the {maximum.region} box with shape "
            f"{maximum.theta.shape}; this needs the {region} box and "
            f"{(like.group_count, like.space.d)}. Leave it out to search again."
        )
    value = np.asarray(like.pairs(maximum.theta, np.arange(like.group_count)), dtype=np.float64)
    other = ~(np.abs(value - maximum.value) <= 10 * rounding(maximum.value))
    if other.any():
        raise MismatchError(
            f"The maximum given is of another likelihood: in {int(other.sum())} of {len(other)} "
            f"group(s) its value is not the one here (the first: {maximum.value[other][0]:g}, "
            f"here {value[other][0]:g}). Leave it out to search again."
        )
    return maximum


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
    return found.replaced(group, summit)


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
