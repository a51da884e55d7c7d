"""Profiles: the likelihood maximised over all parameters but some, and intervals from it.

    l_P(t) = max over the other parameters of l(theta) with theta_P = t
    Lambda_P(t) = 2 (l_max - l_P(t)),  and by the envelope theorem  dl_P/dt = dl/dtheta_P there

An interval's ends solve Lambda_k(t) = c on either side of the estimate; c is a number, or depends
on the restricted maximum (calibrated). The signed root r(t) = sqrt(Lambda) is nearly a straight
line, so Newton on it, kept inside a bracket, needs three or four profiles; all groups, parameters
and sides advance together. A profile that rises above l_max shows that the search for the maximum
missed: it starts again there, and so do the intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import Floats, as_floats, require_finite
from keepscore.errors import ConvergenceError, DomainError, ShapeError
from keepscore.inference.bfgs import Climb, Summit, climb, solve_free
from keepscore.inference.invariants import rounding
from keepscore.inference.maximise import improved, maximum_of
from keepscore.inference.statistic import drop
from keepscore.likelihood import Integers, Likelihood, Maximum, require_likelihood
from keepscore.space import Region

ROOT_TOLERANCE = 1e-4  # of Lambda; a change of 3e-5 in a coverage probability
MOST_STEPS = 40
MOST_RESTARTS = 5

# Restricted maxima theta (m, d), and which parameter each is restricted in (m,) -> critical (m,)
Critical = Callable[[Floats, Integers], Floats]


def restricted(
    like: Likelihood,
    found: Maximum,
    held: np.ndarray,
    theta0: Floats,
    group: Integers,
    warm: Summit | None = None,
) -> Summit:
    """Maximum with the coordinates `held` (m, d) fixed at theta0 (m, d); row i is of group[i].

    From `warm` (a solution nearby) if given. Else from two places, where something is left to
    maximise: where the quadratic at the overall maximum leads, and the maximum's own values.
    """
    low, high = like.space.box(found.region)
    lower, upper = np.where(held, theta0, low), np.where(held, theta0, high)

    def solve(start: Floats, curvature: Floats) -> Summit:
        first = np.where(held, theta0, start)
        return climb(like, Climb(first, group, lower, upper, high - low, curvature))

    if warm is not None:
        return solve(warm.theta, warm.curvature)
    one = solve(np.clip(_follow(found, held, theta0, group), low, high), found.curvature[group])
    if held.all():
        return one
    return _better(one, solve(found.theta[group], found.curvature[group]))


def _follow(found: Maximum, held: np.ndarray, theta0: Floats, group: Integers) -> Floats:
    """Given theta_P moved by v, the quadratic's other coordinates move by -B_NN^-1 B_NP v."""
    estimate, curvature = found.theta[group], found.curvature[group]
    moved = np.where(held, theta0 - estimate, 0.0)
    pull = -np.einsum("pij,pj->pi", curvature, moved)
    return np.where(held, theta0, estimate + solve_free(curvature, pull, ~held))


@dataclass(frozen=True)
class Ends:
    """Interval ends (g, k, 2) in working units, and which stopped at the box (g, k, 2); `maximum`
    is what they lie around, and `missed` (g,) where that is not the maximum that was given."""

    value: Floats
    at_boundary: np.ndarray
    maximum: Maximum
    missed: np.ndarray


def profile_intervals(
    like: Likelihood, found: Maximum, index: list[int], critical: float | Critical
) -> Ends:
    """{t : Lambda_k(t) <= critical} around the estimate, for each parameter k in `index`."""
    missed = np.zeros(len(found.value), dtype=bool)
    for _ in range(MOST_RESTARTS + 1):
        value, at_boundary, best = _ends(like, found, index, _as_function(critical))
        slack = rounding(found.value)
        found, beaten = improved(like, found, best.theta, best.value, slack)
        if not beaten.any():
            _require_width(like, found, index, value, at_boundary)
            return Ends(value, at_boundary, found, missed)
        missed |= beaten
    raise _too_many_maxima(beaten)


def _as_function(critical: float | Critical) -> Critical:
    if callable(critical):
        return critical
    number = float(critical)
    return lambda theta, which: np.full(len(theta), number)


def _too_many_maxima(beaten: np.ndarray) -> ConvergenceError:
    return ConvergenceError(
        f"Profiling went on finding a higher likelihood than the search did, in "
        f"{int(beaten.sum())} of {len(beaten)} group(s) after {MOST_RESTARTS} new searches; the "
        "likelihood has too many maxima. Look for them first, with more starts and a finer grid: "
        "ks.mle(like, starts=20, grid=25)."
    )


def faces_reached(
    like: Likelihood, found: Maximum, index: list[int], critical: Critical
) -> np.ndarray:
    """Which sides of the box, (g, k, 2), the set {Lambda <= critical} reaches: those on which the
    likelihood, maximised over the face, is still high enough."""
    g, d = found.theta.shape
    box = like.space.box(found.region)
    group, which, side = (
        a.ravel() for a in np.meshgrid(np.arange(g), index, [0, 1], indexing="ij")
    )
    bound = np.where(side == 0, box[0][which], box[1][which])
    held = np.arange(d) == which[:, None]
    there = restricted(like, found, held, np.tile(bound[:, None], d), group)
    reached = drop(found.value[group], there.value) <= critical(there.theta, which)
    return np.asarray(reached.reshape(g, len(index), 2))


def _require_width(
    like: Likelihood, found: Maximum, index: list[int], ends: Floats, at_boundary: np.ndarray
) -> None:
    """An interval may end at its estimate on one side (the data are impossible beyond), never on
    both: then the likelihood has no finite value or gradient around it, and says nothing."""
    low, high = like.space.box(found.region)
    short = np.abs(ends - found.theta[:, index, None]) <= 1e-8 * (high - low)[index, None]
    lost = short.all(axis=-1) & ~at_boundary.any(axis=-1)
    if lost.any():
        group, k = (int(i) for i in np.argwhere(lost)[0])
        raise ConvergenceError(
            f"No interval for {like.space.names[index[k]]} of group {group} ({int(lost.sum())} "
            "such in all): around the estimate the log-likelihood or its gradient is not finite. "
            "Look at them there, and at `converged` of the estimate."
        )


@dataclass
class _Best:
    """The highest likelihood met on the way, of every group: theta (g, d), value (g,)."""

    theta: Floats
    value: Floats

    def see(self, there: Summit, group: Integers) -> None:
        order = np.argsort(there.value, kind="stable")  # the highest of a group is written last
        order = order[there.value[order] > self.value[group[order]]]
        self.theta[group[order]], self.value[group[order]] = there.theta[order], there.value[order]


def _ends(
    like: Likelihood, found: Maximum, index: list[int], critical: Critical
) -> tuple[Floats, np.ndarray, _Best]:
    g, d = found.theta.shape
    low, high = like.space.box(found.region)
    group, which, side = (
        a.ravel() for a in np.meshgrid(np.arange(g), index, [0, 1], indexing="ij")
    )
    estimate, sign = found.theta[group, which], np.where(side == 0, -1.0, 1.0)
    limit = np.where(side == 0, low[which], high[which])
    variance = np.diagonal(np.linalg.inv(found.curvature), axis1=1, axis2=2)[group, which]
    first = critical(found.theta[group], which)
    guess = estimate + sign * np.sqrt(first * np.maximum(variance, 1e-12))
    t = np.clip(guess, low[which], high[which])
    # The bracket: known to be in, and how far it may go. Its ends move, so they are float64.
    inside, outside = estimate.astype(np.float64), limit.astype(np.float64)
    at_boundary = estimate == limit
    end, open_ = np.where(at_boundary, limit, t), ~at_boundary
    warm, best = _warm(found, which, t, group), _Best(found.theta.copy(), found.value.copy())
    for _ in range(MOST_STEPS):
        i = np.flatnonzero(open_)
        if len(i) == 0:
            break
        held = np.arange(d) == which[i, None]
        there = restricted(like, found, held, np.tile(t[i, None], d), group[i], _rows(warm, i))
        warm.theta[i], warm.curvature[i] = there.theta, there.curvature
        best.see(there, group[i])
        statistic = np.maximum(drop(found.value[group[i]], there.value), 1e-12)
        limit_here = critical(there.theta, which[i])
        within = statistic <= limit_here
        end[i] = t[i]
        edge = within & (t[i] == limit[i])
        at_boundary[i[edge]] = True
        inside[i] = np.where(within, t[i], inside[i])
        outside[i] = np.where(within, outside[i], t[i])
        narrow = np.abs(outside[i] - inside[i]) < 1e-9 * (high - low)[which[i]]
        open_[i[edge | narrow | (np.abs(statistic - limit_here) < ROOT_TOLERANCE)]] = False
        # r = sqrt(Lambda), dr/dt = -(dl/dtheta_k) / r.
        root, slope = np.sqrt(statistic), -there.gradient[np.arange(len(i)), which[i]]
        rising = slope * sign[i] > 0
        step = t[i] + (np.sqrt(limit_here) - root) * root / np.where(rising, slope, 1.0)
        step = np.where(rising, step, np.nan)
        t[i] = _within_bracket(step, inside[i], outside[i], limit[i], within)
    shape = (g, len(index), 2)
    return end.reshape(shape), at_boundary.reshape(shape), best


def _warm(found: Maximum, which: Integers, t: Floats, group: Integers) -> Summit:
    d = found.theta.shape[1]
    held = np.arange(d) == which[:, None]
    start, curvature = _follow(found, held, np.tile(t[:, None], d), group), found.curvature[group]
    return Summit(start, t, start, curvature.copy(), np.ones(len(t), dtype=bool), 0)


def _rows(summit: Summit, i: Integers) -> Summit:
    return Summit(
        summit.theta[i],
        summit.value[i],
        summit.gradient[i],
        summit.curvature[i],
        summit.converged[i],
        0,
    )


def profile_curve(
    like: Likelihood, parameter: str, values: ArrayLike, region: Region = "base"
) -> Floats:
    """The profile statistic Lambda_k of one parameter at each of some values.

    Args:
        like: A likelihood.
        parameter: Name of the parameter; all others are maximised over.
        values: Where, (m,), working.
        region: Box of theta.

    Returns:
        Lambda_k, (m,) for one single group, (g, m) for many; not negative.

    Raises:
        ShapeError: `values` is not one row.
        DomainError: A value lies outside the box.
        ConvergenceError: The likelihood has so many maxima that none holds.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> from keepscore.inference import profile_curve
        >>> model = ks.models.GaussianField(shape=(6, 6))
        >>> like = model.given(model.simulate(np.zeros((20, 3)), np.random.default_rng(0)))
        >>> best = ks.mle(like).estimate[0]
        >>> profile_curve(like, "l_x", [best, best + 0.5]).round(1)
        array([0. , 5.6])
    """
    require_likelihood(like)
    index = like.space.index(parameter)
    values = as_floats(values, "values")
    if values.ndim != 1:
        raise ShapeError(f"values must be one row (m,); got shape {values.shape}.")
    require_finite(values, "values")
    low, high = (float(end[index]) for end in like.space.box(region))
    slack = 1e-9 * (high - low)
    if ((values < low - slack) | (values > high + slack)).any():
        raise DomainError(
            f"values of {parameter} must lie in the {region} box, [{low:g}, {high:g}]; got "
            f"{values.min():g} to {values.max():g}."
        )
    values = np.clip(values, low, high)
    found = maximum_of(like, region)
    g, d = found.theta.shape
    group = np.repeat(np.arange(g), len(values))
    held = np.zeros((len(group), d), dtype=bool)
    held[:, index] = True
    for _ in range(MOST_RESTARTS + 1):
        theta0 = np.where(held, np.tile(values, g)[:, None], found.theta[group])
        there = restricted(like, found, held, theta0, group)
        best = _Best(found.theta.copy(), found.value.copy())
        best.see(there, group)
        top = found.value
        found, beaten = improved(like, found, best.theta, best.value, rounding(found.value))
        if not beaten.any():
            fall = drop(top[:, None], there.value.reshape(g, -1))
            return np.asarray(like.squeezed(np.maximum(fall, 0.0)))
    raise _too_many_maxima(beaten)


def _within_bracket(
    step: Floats, inside: Floats, outside: Floats, limit: Floats, within: np.ndarray
) -> Floats:
    """Newton's proposal if it falls strictly inside the bracket, the box if beyond, else halve."""
    low, high = np.minimum(inside, outside), np.maximum(inside, outside)
    fine = np.isfinite(step) & (step > low) & (step < high) & (step != inside)
    # Still unbounded on the far side: the box itself is the next thing to try.
    beyond = within & (outside == limit) & ((step - limit) * (limit - inside) >= 0)
    return np.where(fine, step, np.where(beyond, limit, (inside + outside) / 2))


def _better(one: Summit, two: Summit) -> Summit:
    second = two.value > one.value
    pick = second[:, None]
    return Summit(
        np.where(pick, two.theta, one.theta),
        np.where(second, two.value, one.value),
        np.where(pick, two.gradient, one.gradient),
        np.where(pick[..., None], two.curvature, one.curvature),
        np.where(second, two.converged, one.converged),
        one.evaluations + two.evaluations,
    )
