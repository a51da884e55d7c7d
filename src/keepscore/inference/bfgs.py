"""Maximising many small problems at once: box constraints, gradients, few evaluations.

Problem i climbs l_i(theta) = log-likelihood of group[i] within lower[i] <= theta <= upper[i]; a
coordinate with lower = upper is held fixed, which is all that profiling needs. All problems still
open are evaluated together, once per round:

    F          coordinates free to move: not held at a bound by the gradient
    direction  B_FF p_F = g_F,   B a BFGS estimate of -Hessian, g the gradient
    trial      theta' = clip(theta + a p);  accepted if l rises enough (Armijo), or if l does not
               fall beyond rounding and the slope along the step shrinks (Hager & Zhang 2005)
    stop       gain = g_F' p_F / 2 < 1e-10: what a Newton step still promises, in log-likelihood

The gain is free of units: at 1e-10 the estimate is within 1.5e-5 standard errors of the maximum.

A surrogate computes in float32, and its log-ratio may be a small difference of large terms: its
values then carry a noise far above the rounding of l itself, and the test of l in the line search
refuses good steps, though the gradient, where nothing cancels, still knows the way. So where a line
search has failed and little is promised, the noise is measured (More & Wild 2011): at nine points
1/100 of a standard error apart along the step, what is smooth leaves 1e-8 in the fourth
differences of l, and the rest is noise,

    sigma^2 = mean of (4th differences)^2 / 70,        70 = sum of squared binomials (4 choose k)

A fall of l by less than 4 sigma is then no fall. A problem also stops, converged, when the gain is
below the noise and the line search can no longer improve; noise counts up to 1e-3, at which the
estimate is within 0.05 standard errors. Matrices are d x d: batched NumPy, outside any jit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepscore.checks import Floats
from keepscore.likelihood import Integers, Likelihood

GAIN = 1e-10
ROUNDING = 1e-6  # relative to 1 + |l|; float32 sums of a few terms
NOISE_POINTS, NOISE_SPACING = 9, 0.01  # of a standard error
NOISE_FACTOR, MOST_NOISE = 4.0, 1e-3
ARMIJO = 1e-4
LARGEST_STEP = 0.25  # of the box, a coordinate
MOST_ROUNDS = 100
MOST_REJECTIONS = 20


@dataclass(frozen=True)
class Climb:
    """p problems to solve: start, lower, upper (p, d); group (p,); scale (d,); curvature (p, d, d).

    `scale` is the width of the parameter box, in whose units steps are measured; `curvature` is a
    first guess at -Hessian, made positive definite here.
    """

    start: Floats
    group: Integers
    lower: Floats
    upper: Floats
    scale: Floats
    curvature: Floats


@dataclass
class Summit:
    """Where each problem ended: theta (p, d), value (p,), gradient (p, d), curvature (p, d, d)."""

    theta: Floats
    value: Floats
    gradient: Floats
    curvature: Floats
    converged: np.ndarray
    evaluations: int


def climb(like: Likelihood, problems: Climb) -> Summit:
    """Solve all problems; see the top of this file."""
    p, scale = len(problems.start), problems.scale
    # Unit coordinates u = theta / scale: one step length means the same for every parameter.
    low, high = problems.lower / scale, problems.upper / scale
    u = np.clip(problems.start / scale, low, high)
    curvature = make_positive(problems.curvature * np.outer(scale, scale))
    value, gradient = _evaluate(like, u * scale, problems.group, scale)
    evaluations = p
    open_, converged = np.isfinite(value), np.zeros(p, dtype=bool)
    length, rejections = np.ones(p), np.zeros(p, dtype=int)
    measured = np.full(p, np.nan)  # noise of l, where it had to be known
    for _ in range(MOST_ROUNDS):
        i = np.flatnonzero(open_)
        if len(i) == 0:
            break
        step, gain = _direction(u[i], gradient[i], curvature[i], low[i], high[i])
        unsure = (rejections[i] >= 3) & np.isnan(measured[i]) & (gain < 10 * MOST_NOISE)
        if unsure.any():
            j = i[unsure]
            measured[j] = _noise(
                like, u[j], step[unsure], curvature[j], low[j], high[j], problems.group[j], scale
            )
            evaluations += NOISE_POINTS * len(j)
            length[j], rejections[j] = 1.0, 0
        noise = np.fmax(ROUNDING * (1 + np.abs(value[i])), measured[i])
        stuck = (rejections[i] >= MOST_REJECTIONS) | ((rejections[i] >= 4) & (gain < noise))
        converged[i] = (gain < GAIN) | (stuck & (gain < noise))
        going = ~converged[i] & ~stuck
        open_[i[~going]] = False
        i, step, noise = i[going], step[going], noise[going]
        if len(i) == 0:
            break
        trial = np.clip(u[i] + length[i, None] * step, low[i], high[i])
        new_value, new_gradient = _evaluate(like, trial * scale, problems.group[i], scale)
        evaluations += len(i)
        moved = trial - u[i]
        slope, new_slope = _dot(gradient[i], moved), _dot(new_gradient, moved)
        rise = new_value - value[i]
        good = np.isfinite(new_value) & (
            (rise >= ARMIJO * slope) | ((rise >= -noise) & (np.abs(new_slope) <= 0.9 * slope))
        )
        a, bad = i[good], i[~good]
        curvature[a] = _update(curvature[a], moved[good], gradient[a] - new_gradient[good])
        u[a], value[a], gradient[a] = trial[good], new_value[good], new_gradient[good]
        length[a], rejections[a] = 1.0, 0
        length[bad] *= _shrink(slope[~good], rise[~good])
        rejections[bad] += 1
    return Summit(
        # The bound itself, not u * scale one rounding away from it.
        np.clip(u * scale, problems.lower, problems.upper),
        np.where(np.isfinite(value), value, -np.inf),
        gradient / scale,
        curvature / np.outer(scale, scale),
        converged,
        evaluations,
    )


def make_positive(matrices: Floats) -> Floats:
    """Symmetric (p, d, d) with each eigenvalue replaced by its size, kept away from zero."""
    values, vectors = np.linalg.eigh((matrices + np.swapaxes(matrices, 1, 2)) / 2)
    size = np.abs(values)
    size = np.maximum(size, np.maximum(1e-4 * size.max(axis=1, keepdims=True), 1e-3))
    return np.einsum("pik,pk,pjk->pij", vectors, size, vectors)


def solve_free(matrices: Floats, right: Floats, free: np.ndarray) -> Floats:
    """x with A_FF x_F = b_F and x = 0 elsewhere, one problem per row.

    A matrix that is singular in floating point, as next to a singularity of the likelihood, is
    solved in the least-squares sense.
    """
    both = free[:, :, None] & free[:, None, :]
    padded = np.where(both, matrices, np.eye(matrices.shape[1]))
    wanted = np.where(free, right, 0.0)[..., None]
    try:
        return np.linalg.solve(padded, wanted)[..., 0]
    except np.linalg.LinAlgError:
        return np.where(free, (np.linalg.pinv(padded, hermitian=True) @ wanted)[..., 0], 0.0)


def _direction(
    u: Floats, gradient: Floats, curvature: Floats, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    at_low, at_high = u <= low, u >= high
    free = ~((at_low & (gradient <= 0)) | (at_high & (gradient >= 0)))
    step = solve_free(curvature, gradient, free)
    for _ in range(u.shape[1] - 1):
        # A coordinate on its bound that the coupling pushes outward must be held as well.
        outward = free & ((at_low & (step < 0)) | (at_high & (step > 0)))
        if not outward.any():
            break
        free &= ~outward
        step = solve_free(curvature, gradient, free)
    gain = 0.5 * _dot(gradient, step)
    largest = np.abs(step).max(axis=1, keepdims=True)
    return step * np.minimum(1.0, LARGEST_STEP / np.maximum(largest, 1e-300)), gain


def _noise(
    like: Likelihood,
    u: Floats,
    step: Floats,
    curvature: Floats,
    low: Floats,
    high: Floats,
    group: Integers,
    scale: Floats,
) -> Floats:
    """What a fall of l must exceed to be one, (p,): 4 sigma, at most MOST_NOISE; see the top."""
    length = np.sqrt(np.einsum("pi,pij,pj->p", step, curvature, step))
    spacing = NOISE_SPACING / np.maximum(length, 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(step > 0, (high - u) / step, (low - u) / step)
    room = np.where(step != 0, room, np.inf).min(axis=1)
    spacing = np.minimum(spacing, room / (NOISE_POINTS - 1))  # a bound would bend the line
    along = spacing[:, None] * np.arange(NOISE_POINTS)
    points = u[:, None, :] + along[:, :, None] * step[:, None, :]
    flat = np.clip(points, low[:, None], high[:, None]).reshape(-1, u.shape[1])
    value, _ = _evaluate(like, flat * scale, np.repeat(group, NOISE_POINTS), scale)
    with np.errstate(invalid="ignore"):  # an impossible theta beside: nothing is known
        differences = np.diff(value.reshape(len(u), NOISE_POINTS), n=4, axis=1)
    sigma = np.sqrt((differences**2).mean(axis=1) / 70)
    return np.minimum(NOISE_FACTOR * np.where(np.isfinite(sigma), sigma, 0.0), MOST_NOISE)


def _update(b: Floats, s: Floats, y: Floats) -> Floats:
    """BFGS: B - B s s' B / s'Bs + y y' / s'y, where the slope fell along the step."""
    bs, sy = np.einsum("pij,pj->pi", b, s), _dot(s, y)
    sbs = _dot(s, bs)
    falls = (sy > 1e-8 * np.sqrt(_dot(s, s) * _dot(y, y))) & (sbs > 0)
    sy, sbs = np.where(falls, sy, 1.0), np.where(falls, sbs, 1.0)
    change = (
        y[:, :, None] * y[:, None, :] / sy[:, None, None]
        - bs[:, :, None] * bs[:, None, :] / sbs[:, None, None]
    )
    found = b + np.where(falls[:, None, None], change, 0.0)
    # Next to a singularity the numbers may leave floating point: then nothing was learned.
    finite = np.isfinite(found).all(axis=(1, 2), keepdims=True)
    return np.where(finite, found, b)


def _shrink(slope: Floats, rise: Floats) -> Floats:
    """Peak of the parabola through the value, slope and rejected rise; within 0.1 to 0.5."""
    fall = slope - rise
    usable = np.isfinite(fall) & (fall > 0)
    peak = np.where(usable, slope / (2 * np.where(usable, fall, 1.0)), 0.1)
    return np.clip(peak, 0.1, 0.5)


def _evaluate(
    like: Likelihood, theta: Floats, group: Integers, scale: Floats
) -> tuple[Floats, Floats]:
    value, gradient = like.pairs_gradient(theta, group)
    value, gradient = np.asarray(value, dtype=float), np.asarray(gradient, dtype=float) * scale
    usable = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
    return np.where(usable, value, -np.inf), np.where(usable[:, None], gradient, 0.0)


def _dot(a: Floats, b: Floats) -> Floats:
    return np.einsum("pi,pi->p", a, b)
