"""Exact answers from a surrogate and a few dozen exact values: `refine`.

A surrogate's error is small and smooth in theta, so it is learned from almost nothing. For each
group

    l_exact(theta) = l_surrogate(theta) + D(theta)

and D is interpolated (numerics/kriging.py) from exact values and gradients at points in the group's
confidence set, in coordinates u = A'(theta - theta_hat), A A' the curvature of the surrogate at its
maximum: there the set is about a ball. Round by round,

    1  the refined likelihood is maximised anew; a cloud of points around it, those inside its set
       at `level`, is where the answer is used,
    2  exact values are asked for where the interpolation is least sure,
    3  before they are used they test it: z = (D - predicted) / predicted standard deviation.

The estimated error is the root mean square, over the cloud, of the predicted standard deviation,
times the root mean square of all z so far (never less than one). A group is done when that is below
the tolerance and new points have confirmed it, or when its evaluations are spent.

Nothing is claimed outside the cloud's ellipsoid, and `Refinement.contains` says where that is.
There D is held at its value on the boundary, in the direction of theta; where D falls outward at
the boundary it goes on falling at that rate, so that a surrogate which rises beyond the region,
where the exact likelihood does not, leads nobody away:

    D(theta) = D(h) + min(0, dD/dr(h)) (r - R),    h on the boundary, r = |factor' (theta - centre)|
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from keepscore.checks import Floats, require_count, require_level
from keepscore.errors import (
    DomainError,
    KeepscoreWarning,
    MismatchError,
    NonFiniteError,
)
from keepscore.inference.bfgs import make_positive
from keepscore.inference.exact_work import ExactWork
from keepscore.inference.maximise import climb_again, maximise, maximum_of
from keepscore.inference.mle import observed_information
from keepscore.inference.statistic import drop
from keepscore.likelihood import (
    Integers,
    Likelihood,
    LikelihoodSource,
    Maximum,
    Traced,
    require_likelihood,
)
from keepscore.numerics import kriging
from keepscore.numerics.kriging import Kriging, powers_up_to
from keepscore.numerics.space_filling import fill_ball
from keepscore.space import Region, Space

EVALUATIONS, TOLERANCE, LEVEL = 40, 0.01, 0.99
CLOUD = 192  # candidates per group and round
REACH = 1.25  # of the radius of the set at `level`, for sets that are not quite ellipsoids
ROUNDS = 6
CONFIRMED = 3  # exact points that must have tested the interpolation before a group is done
PRIOR_TESTS = 2.0  # z = 1 counted as often in the mean of z^2
RATE_STEP = 1e-4  # of the radius, for the second derivative of D along a ray
SECOND = 2.0  # of the set's Lambda: other maxima up to there are asked about
GROUPS_AT_ONCE = 256
MOST_TERMS = 300  # of a polynomial for samplers


@dataclass(frozen=True)
class Refinement:
    """What `refine` did, per group: estimated error (g,) of the log-likelihood over the set at
    `level`, exact evaluations (g,), and whether the tolerance was reached (g,).

    centre (g, d), factor (g, d, d), radius: the ellipsoid |factor' (theta - centre)| <= radius that
    was refined. points: one (n, d) array of theta per group.
    """

    error: Floats
    evaluations: Integers
    reached: np.ndarray
    tolerance: float
    level: float
    centre: Floats
    factor: Floats
    radius: float
    points: tuple[Floats, ...]

    def contains(self, theta: Floats, group: Integers) -> np.ndarray:
        """Whether theta (m, d) lies where the likelihood of its group (m,) was refined."""
        s = np.einsum("mji,mj->mi", self.factor[group], theta - self.centre[group])
        return np.asarray((s**2).sum(axis=1) <= self.radius**2 * (1 + 1e-9))

    def of(self, group: Integers) -> Refinement:
        """That of some groups, (k,), in the order given."""
        return replace(
            self,
            error=self.error[group],
            evaluations=self.evaluations[group],
            reached=self.reached[group],
            centre=self.centre[group],
            factor=self.factor[group],
            points=tuple(self.points[i] for i in group),
        )

    def basis(self) -> str:
        """The error and what it cost, as results carry it."""
        return str(self)

    def __str__(self) -> str:
        count, reached = len(self.error), int(self.reached.sum())
        if count == 1:
            state = "within" if reached else "NOT within"
            return (
                f"refined: error {self.error[0]:.2g} by {int(self.evaluations[0])} exact "
                f"evaluations, {state} the tolerance of {self.tolerance:g}"
            )
        return (
            f"refined: median error {np.median(self.error):.2g} (largest {self.error.max():.2g}) "
            f"by {np.mean(self.evaluations):.0f} exact evaluations per group; {reached} of "
            f"{count} groups within the tolerance of {self.tolerance:g}"
        )


def refine(
    like: Likelihood,
    exact: Likelihood,
    evaluations: int = EVALUATIONS,
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
    region: Region = "base",
    seed: int = 0,
    jobs: int = 1,
    path: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Likelihood:
    """A surrogate's likelihood corrected by a few exact evaluations, with a stated error.

    Args:
        like: The surrogate's likelihood, `surrogate.given(xs)`, of one group or many.
        exact: The exact likelihood of the same data, `model.given(xs)`.
        evaluations: The most exact evaluations (value and gradient) per group.
        tolerance: Stop a group when the estimated error of its log-likelihood is below this.
        level: The error is that over the confidence set at this level.
        region: Box of theta.
        seed: Seed of the candidate points.
        jobs: Worker processes for the exact evaluations; 1 computes them here.
        path: Folder in which exact evaluations are kept; a run that was killed goes on from there,
            and so does one with a better surrogate of the same data.
        progress: Whether to show a progress bar.

    Returns:
        A likelihood of kind "refined" that every function of inference takes; its `refinement` says
        how large the error is, what it cost, and where it holds, and its `basis` says so in words.

    Raises:
        MismatchError: The likelihoods are of different data, groups or spaces; `path` holds exact
            evaluations of something else.
        NonFiniteError: The exact likelihood is not finite where the surrogate's sets lie. What was
            computed is in the error's `computed`, and in `path`.
        DomainError: A tolerance that is not positive, or too few evaluations.

    Example:
        >>> import numpy as np
        >>> from dataclasses import replace
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(6, 6))
        >>> truth = model.space.grid(3)[13]
        >>> xs = model.simulate(np.tile(truth, (20, 1)), np.random.default_rng(0))
        >>> exact = model.given(xs)
        >>> def tilted(theta, group):  # what a surrogate may be like: wrong by a slope
        ...     value, slope = exact.pairs_gradient(theta, group)
        ...     return value + 2 * theta[:, 0], slope + np.array([2.0, 0.0, 0.0])
        >>> surrogate = replace(
        ...     exact, kind="surrogate", pairs=lambda t, g: tilted(t, g)[0],
        ...     pairs_gradient=tilted, surface=lambda t: exact.surface(t) + 2 * t[:, 0],
        ... )
        >>> refined = ks.refine(surrogate, exact)
        >>> bool(abs(ks.mle(refined).estimate[0] - ks.mle(exact).estimate[0]) < 0.01)
        True
    """
    require_together(like, exact)
    evaluations = require_count(evaluations, "evaluations", minimum=like.space.d + 3)
    level = require_level(level)
    if not (np.isfinite(tolerance) and tolerance > 0):
        raise DomainError(f"tolerance must be positive; got {tolerance!r}.")
    total = evaluations * like.group_count  # at most
    with ExactWork(exact, jobs, path, progress, total) as work:
        return refine_with(like, work, evaluations, tolerance, level, region, seed)


@dataclass(frozen=True)
class RefinedSource:
    """A surrogate and its model as one source: `given(xs)` is the refined likelihood, so that tests
    which take a surrogate (`ks.etest`, `ks.local_coverage`) take a refined one too."""

    surrogate: LikelihoodSource
    model: LikelihoodSource
    evaluations: int = EVALUATIONS
    tolerance: float = TOLERANCE
    jobs: int = 1
    path: str | os.PathLike[str] | None = None

    @property
    def space(self) -> Space:
        return self.model.space

    def given(self, xs: Any) -> Likelihood:
        """`refine` of both likelihoods of these observations."""
        return refine(
            self.surrogate.given(xs),
            self.model.given(xs),
            self.evaluations,
            self.tolerance,
            jobs=self.jobs,
            path=self.path,
        )


def refine_with(
    like: Likelihood,
    work: ExactWork,
    evaluations: int = EVALUATIONS,
    tolerance: float = TOLERANCE,
    level: float = LEVEL,
    region: Region = "base",
    seed: int = 0,
) -> Likelihood:
    """`refine`, by exact work that somebody else has begun."""
    goal = _Goal(evaluations, float(tolerance), level, region, seed)
    chunks = np.array_split(np.arange(like.group_count), -(-like.group_count // GROUPS_AT_ONCE))
    correction = _joined([_Rounds(like[c], work, c, goal).run() for c in chunks])
    if not correction.record.reached.all():
        short = int((~correction.record.reached).sum())
        warnings.warn(
            f"The tolerance of {tolerance:g} was not reached in {short} of {like.group_count} "
            f"group(s) with {evaluations} exact evaluations each; the largest estimated error is "
            f"{correction.record.error.max():.2g}. Allow more evaluations, or check that both "
            "likelihoods are of the same model.",
            KeepscoreWarning,
            stacklevel=3,
        )
    refined = _corrected(like, correction)
    more = None if like.traceable is None else correction.traced_data()
    if like.traceable is not None and more is not None:
        ours = like.traceable
        traced = Traced(TracedSum(ours.function), (ours.data, more))
        refined = replace(refined, traceable=traced)
    return _with_maximum(refined, correction, work, region)


def _with_maximum(
    refined: Likelihood, correction: Correction, work: ExactWork, region: Region
) -> Likelihood:
    """The refined likelihood, knowing its maximum.

    Outside the region that was refined a poor surrogate may still rise, or have another maximum.
    One exact value at the highest such place decides: a real second maximum is said, and its group
    has not reached the tolerance; else the maximum is the one inside.
    """
    record, everyone = correction.record, np.arange(refined.group_count)
    found = maximise(refined, region)
    rows, place, ours = _outside(found, record)
    if len(rows) == 0:
        refined.remember(found)
        return refined
    lost = np.flatnonzero(~record.contains(found.theta, everyone))
    centre = record.centre[lost]
    inside = climb_again(refined, found, lost, centre, refined.pairs(centre, lost))
    there = work(place, rows)[0]
    real = there > inside.value[rows] + 3 * record.error[rows]
    evaluations, error = record.evaluations.copy(), record.error.copy()
    reached = record.reached.copy()
    evaluations[rows] += 1
    second = rows[real]
    error[second] = np.maximum(error[second], np.abs(there - ours)[real])
    reached[second] = False
    if len(second):
        warnings.warn(
            f"In {len(second)} of {refined.group_count} group(s) the exact likelihood has a higher "
            "place outside the region that was refined (`refinement.contains`): there is a second "
            "maximum, and answers there stand on the surrogate. Use the exact likelihood for them.",
            KeepscoreWarning,
            stacklevel=4,
        )
    keep = np.ones(len(everyone), dtype=bool)
    keep[np.setdiff1d(lost, second)] = False
    best = Maximum(
        np.where(keep[:, None], found.theta, inside.theta),
        np.where(keep, found.value, inside.value),
        np.where(keep[:, None, None], found.curvature, inside.curvature),
        np.where(keep, found.converged, inside.converged),
        found.evaluations + inside.evaluations,
        region,
    )
    told = replace(record, evaluations=evaluations, error=error, reached=reached)
    refined = replace(refined, refinement=told)
    refined.remember(best)
    return refined


def _outside(found: Maximum, record: Refinement) -> tuple[Integers, Floats, Floats]:
    """Groups (k,) whose search met a maximum outside their refined region that might count, the
    highest of these, theta (k, d), and its refined value (k,)."""
    modes = found.modes
    if modes is None:
        return np.zeros(0, dtype=np.int64), found.theta[:0], found.value[:0]
    reach = SECOND * stats.chi2.ppf(record.level, found.theta.shape[1])
    near = drop(found.value[modes.group], modes.value) <= reach
    some = np.flatnonzero(near & ~record.contains(modes.theta, modes.group))
    some = some[np.lexsort((-modes.value[some], modes.group[some]))]
    rows, first = np.unique(modes.group[some], return_index=True)
    return rows, modes.theta[some[first]], modes.value[some[first]]


def require_together(like: Likelihood, exact: Likelihood) -> None:
    """Two likelihoods of the same groups in the same space, or an error."""
    require_likelihood(like)
    require_likelihood(exact)
    if exact.kind != "exact":
        raise MismatchError(
            f"The second likelihood must be an exact one (model.given(xs)); it is {exact.kind}."
        )
    if like.space != exact.space:
        raise MismatchError("Both likelihoods must be of the same space; these differ.")
    here, there = (
        f"{one.group_count} group(s) of {one.group_size} observation(s)" for one in (like, exact)
    )
    if here != there or like.single != exact.single:
        raise MismatchError(f"Both likelihoods must be of the same data: {here}, and {there}.")


# --- the correction ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Correction:
    """D of every group: an interpolant in u = a'(theta - origin), and where it holds."""

    kriging: Kriging
    origin: Floats
    a: Floats
    record: Refinement

    def at(self, theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        """D (m,) and its gradient (m, d) at theta (m, d) of the groups (m,)."""
        record, d = self.record, theta.shape[1]
        factor, offset = record.factor[group], theta - record.centre[group]
        s = np.einsum("mji,mj->mi", factor, offset)
        r = np.sqrt((s**2).sum(axis=1))
        share = np.minimum(1.0, record.radius / np.maximum(r, 1e-300))
        held = record.centre[group] + share[:, None] * offset
        # Outside, h = centre + R offset / r: what moves along the offset changes nothing.
        rise = np.einsum("mij,mj->mi", factor, s) / np.maximum(r, 1e-300)[:, None]  # dr / dtheta
        along = offset[:, :, None] * (rise / np.maximum(r, 1e-300)[:, None])[:, None, :]
        outside = share < 1
        pull = share[:, None, None] * (np.eye(d) - np.where(outside[:, None, None], along, 0.0))
        value, slope = self._interpolated(held, group)
        gradient = np.einsum("mij,mi->mj", pull, slope)
        way = offset / np.maximum(r, 1e-300)[:, None]  # dh / dr
        rate = (slope * way).sum(axis=1)
        i = np.flatnonzero(outside & (rate < 0))
        if len(i):
            beyond = r[i] - record.radius
            value[i] += rate[i] * beyond
            # d rate / dtheta = pull' (Hessian way + slope / R)
            step = RATE_STEP * record.radius * way[i]
            ends = [self._interpolated(held[i] + sign * step, group[i])[1] for sign in (1.0, -1.0)]
            bend = (ends[0] - ends[1]) / (2 * RATE_STEP * record.radius) + slope[i] / record.radius
            turned = np.einsum("mij,mi->mj", pull[i], bend)
            gradient[i] += beyond[:, None] * turned + rate[i, None] * rise[i]
        return value, gradient

    def _interpolated(self, theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        """The interpolant itself, and its gradient in theta."""
        a = self.a[group]
        u = np.einsum("mji,mj->mi", a, theta - self.origin[group])
        value, along = self.kriging.at(u, group)
        return value, np.einsum("mij,mj->mi", a, along)

    def traced_data(self) -> tuple[Any, ...] | None:
        """What `TracedSum` needs of D; None if no polynomial comes near enough.

        The interpolant's weights are large and cancel, which float32 cannot hold. A polynomial of
        it over the ellipsoid, scaled to the unit ball, can.
        """
        import jax.numpy as jnp

        found = self._as_polynomial()
        if found is None:
            return None
        powers, beta = found
        centre, factor = self.record.centre, self.record.factor / self.record.radius
        floats = (jnp.asarray(array, jnp.float32) for array in (centre, factor, beta))
        return *floats, jnp.asarray(powers, jnp.int32)

    def _as_polynomial(self) -> tuple[Integers, Floats] | None:
        """Powers (terms, d) and coefficients (g, terms) in s = factor'(theta - centre) / radius."""
        record, (g, d) = self.record, self.origin.shape
        back = np.linalg.inv(record.factor)
        for degree in range(3, 9):
            powers = powers_up_to(d, degree)
            if len(powers) > MOST_TERMS:
                break
            s = fill_ball(4 * len(powers), d, 1)
            theta = record.centre[:, None] + record.radius * np.einsum("mj,gji->gmi", s, back)
            group = np.repeat(np.arange(g), len(s))
            value = self.at(theta.reshape(-1, d), group)[0].reshape(g, len(s))
            basis = np.prod(s[:, None, :] ** powers, axis=2)
            train = np.arange(len(s)) % 4 != 3
            beta = value[:, train] @ np.linalg.pinv(basis[train]).T
            off = (value - beta @ basis.T)[:, ~train]
            if np.sqrt((off**2).mean(axis=1)).max() < 0.3 * record.tolerance:
                return powers, beta
        return None


@dataclass(frozen=True)
class TracedSum:
    """A traced log-likelihood plus D, a polynomial within the ellipsoid, outside constant or
    falling along rays: (data, (centre, factor, beta, powers)), theta (d,), group -> scalar."""

    function: Callable[[Any, Any, Any], Any]

    def __call__(self, data: tuple[Any, Any], theta: Any, group: Any) -> Any:
        import jax.numpy as jnp

        ours, (*of_group, powers) = data
        centre, factor, beta = (array[group] for array in of_group)
        s = (factor * (theta - centre)[:, None]).sum(axis=0)
        square = (s**2).sum()
        far = square > 1
        r = jnp.sqrt(jnp.where(far, square, 1.0))
        terms = beta * jnp.prod((s / r) ** powers, axis=1)
        # Of a monomial of degree k, k times itself is the derivative in r where r = 1.
        rate = jnp.minimum(0.0, (terms * powers.sum(axis=1)).sum())
        return self.function(ours, theta, group) + terms.sum() + rate * (r - 1)


def _corrected(like: Likelihood, correction: Correction) -> Likelihood:
    """l + D, as a likelihood of its own."""
    count = like.group_count

    def pairs(theta: Floats, group: Integers) -> Floats:
        return like.pairs(theta, group) + correction.at(theta, group)[0]

    def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        value, gradient = like.pairs_gradient(theta, group)
        more, slope = correction.at(theta, group)
        return value + more, gradient + slope

    def surface(theta: Floats) -> Floats:
        rows, group = np.tile(theta, (count, 1)), np.repeat(np.arange(count), len(theta))
        return like.surface(theta) + correction.at(rows, group)[0].reshape(count, len(theta))

    return replace(
        like,
        pairs=pairs,
        pairs_gradient=pairs_gradient,
        surface=surface,
        kind="refined",
        traceable=None,
        calibration=None,  # it was made for the surrogate
        refinement=correction.record,
    )


def _joined(parts: Sequence[Correction]) -> Correction:
    """Corrections of some groups each as one of all of them."""
    most = max(part.kriging.points.shape[1] for part in parts)

    def padded(array: Floats) -> Floats:
        room = [(0, 0), (0, most - array.shape[1]), *[(0, 0)] * (array.ndim - 2)]
        return np.pad(array, room)

    def all_of(pick: Callable[[Correction], Any]) -> Any:
        return np.concatenate([pick(part) for part in parts])

    first = parts[0]
    together = Kriging(
        points=all_of(lambda c: padded(c.kriging.points)),
        weights=all_of(lambda c: padded(c.kriging.weights)),
        beta=all_of(lambda c: c.kriging.beta),
        powers=first.kriging.powers,
        length=all_of(lambda c: c.kriging.length),
        scale=all_of(lambda c: c.kriging.scale),
    )
    record = replace(
        first.record,
        error=all_of(lambda c: c.record.error),
        evaluations=all_of(lambda c: c.record.evaluations),
        reached=all_of(lambda c: c.record.reached),
        centre=all_of(lambda c: c.record.centre),
        factor=all_of(lambda c: c.record.factor),
        points=tuple(p for part in parts for p in part.record.points),
    )
    return Correction(together, all_of(lambda c: c.origin), all_of(lambda c: c.a), record)


# --- the rounds ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Goal:
    """What was asked for."""

    evaluations: int
    tolerance: float
    level: float
    region: Region
    seed: int


class _Rounds:
    """Groups on their way. Those still open all have the same number of points."""

    def __init__(self, like: Likelihood, work: ExactWork, number: Integers, goal: _Goal) -> None:
        # number (g,): of these groups in the exact likelihood.
        self.like, self.work, self.number, self.goal = like, work, number, goal
        self.low, self.high = like.space.box(goal.region)
        self.top = maximum_of(like, goal.region)
        g, d = self.top.theta.shape
        most = goal.evaluations
        self.origin, self.a = self.top.theta, _factor(self.top.curvature)
        self.centre, self.factor = self.origin.copy(), self.a.copy()
        self.cut = float(stats.chi2.ppf(goal.level, d))
        self.radius = REACH * float(np.sqrt(self.cut))
        self.unit = fill_ball(CLOUD, d, goal.seed)
        # Points, exact minus surrogate with its gradient in theta, and exact values; then counts.
        self.theta, self.slope = np.zeros((g, most, d)), np.zeros((g, most, d))
        self.value, self.exact_value = np.zeros((g, most)), np.zeros((g, most))
        self.count = np.zeros(g, dtype=np.int64)
        self.tests, self.squares = np.zeros(g), np.zeros(g)
        self.error, self.reached = np.full(g, np.inf), np.zeros(g, dtype=bool)
        terms = len(kriging.all_powers(d))
        self.kriging = Kriging(
            np.zeros((g, most, d)),
            np.zeros((g, most, 1 + d)),
            np.zeros((g, terms)),
            kriging.all_powers(d),
            np.ones(g),
            np.zeros(g),
        )

    def run(self) -> Correction:
        d, goal = self.origin.shape[1], self.goal
        first = min(goal.evaluations - CONFIRMED, 3 * d)
        step = max(CONFIRMED, -(-(goal.evaluations - first) // ROUNDS))
        rows = np.arange(len(self.origin))
        cloud = self.cloud(rows)
        self.ask(rows, self.spread(rows, cloud, first))
        while len(rows):
            sd = self.fit(rows, cloud)
            inside = self.inside(rows, cloud)
            self.error[rows] = _rms(sd, inside) * self.misfit(rows)
            confirmed = self.tests[rows] >= CONFIRMED
            self.reached[rows] = (self.error[rows] <= goal.tolerance) & confirmed
            left = goal.evaluations - int(self.count[rows[0]])
            go_on = ~self.reached[rows] & (left > 0)
            rows, cloud, sd, inside = rows[go_on], cloud[go_on], sd[go_on], inside[go_on]
            if len(rows):
                chosen = self.least_sure(rows, cloud, sd, inside, min(step, left))
                self.ask(rows, np.take_along_axis(cloud, chosen[..., None], axis=1))
                self.test(rows, np.take_along_axis(sd, chosen, axis=1))
                self.move(rows)
                cloud = self.cloud(rows)
        return self.correction()

    def chart(self, rows: Integers, theta: Floats) -> Floats:
        """u of theta (r, m, d)."""
        return np.einsum("rmj,rji->rmi", theta - self.origin[rows, None], self.a[rows])

    def cloud(self, rows: Integers) -> Floats:
        """Candidates (r, CLOUD, d): a ball in the chart of the current maximum, within the box."""
        inverse = np.linalg.inv(self.factor[rows])
        offset = np.einsum("mj,rji->rmi", self.radius * self.unit, inverse)
        return np.clip(self.centre[rows, None] + offset, self.low, self.high)

    def spread(self, rows: Integers, cloud: Floats, n: int) -> Floats:
        """n candidates per group, the maximum and then always the one farthest from the others."""
        u = self.chart(rows, cloud)
        chosen = [self.origin[rows]]
        distance = (u**2).sum(axis=2)
        # Of the outermost ones an interpolant learns less than of those at about 3/4 of the way.
        distance = np.where(distance > (0.8 * self.radius) ** 2, 0.0, distance)
        for _ in range(n - 1):
            far = distance.argmax(axis=1)
            at = np.arange(len(rows))
            chosen.append(cloud[at, far])
            distance = np.minimum(distance, ((u - u[at, far][:, None]) ** 2).sum(axis=2))
        return np.stack(chosen, axis=1)

    def ask(self, rows: Integers, theta: Floats) -> None:
        """Exact minus surrogate at theta (r, m, d), all groups in one call."""
        r, m, d = theta.shape
        flat, group = theta.reshape(-1, d), np.repeat(rows, m)
        value, slope = self.work(flat, self.number[group])
        sound = np.isfinite(value) & np.isfinite(slope).all(axis=1)
        if not sound.all():
            bad = int(np.flatnonzero(~sound)[0])
            raise NonFiniteError(
                f"The exact log-likelihood is not finite at theta = {flat[bad].tolist()} (group "
                f"{int(self.number[group[bad]])}), where the surrogate's confidence set lies. Are "
                "both likelihoods of the same model? What was computed is in `computed` of this "
                "error, and in the folder if path= was given."
            )
        ours, our_slope = self.like.pairs_gradient(flat, group)
        new = slice(int(self.count[rows[0]]), int(self.count[rows[0]]) + m)
        self.theta[rows, new] = theta
        self.exact_value[rows, new] = value.reshape(r, m)
        self.value[rows, new] = (value - ours).reshape(r, m)
        self.slope[rows, new] = (slope - our_slope).reshape(r, m, d)
        self.count[rows] += m

    def fit(self, rows: Integers, cloud: Floats) -> Floats:
        """Interpolate what is known; standard deviations (r, CLOUD) at the candidates."""
        n = int(self.count[rows[0]])
        u = self.chart(rows, self.theta[rows, :n])
        slope = None
        if self.work.with_gradient:  # d / du = a^-1 d / dtheta
            slope = np.einsum("rij,rmj->rmi", np.linalg.inv(self.a[rows]), self.slope[rows, :n])
        made, sd = kriging.fit(u, self.value[rows, :n], slope, self.chart(rows, cloud))
        k = self.kriging
        k.points[rows, :n], k.weights[rows, :n] = made.points, made.weights
        k.beta[rows], k.length[rows], k.scale[rows] = made.beta, made.length, made.scale
        return sd

    def inside(self, rows: Integers, cloud: Floats) -> np.ndarray:
        """Which candidates lie in the refined set at the level: (r, CLOUD) of bool."""
        value = self.refined(rows, cloud)
        n = int(self.count[rows[0]])
        best = np.maximum(value.max(axis=1), self.exact_value[rows, :n].max(axis=1))
        inside = drop(best[:, None], value) <= self.cut
        # A set hardly seen: the best candidates stand for it.
        few = inside.sum(axis=1) < CLOUD // 8
        rank = np.argsort(np.argsort(-value, axis=1), axis=1)
        return np.where(few[:, None], rank < CLOUD // 8, inside)

    def refined(self, rows: Integers, theta: Floats) -> Floats:
        """Refined values at theta (r, m, d)."""
        r, m, d = theta.shape
        group = np.repeat(rows, m)
        ours = self.like.pairs(theta.reshape(-1, d), group)
        more, _ = self.kriging.at(self.chart(rows, theta).reshape(-1, d), group)
        return np.asarray(ours + more, dtype=float).reshape(r, m)

    def least_sure(
        self, rows: Integers, cloud: Floats, sd: Floats, inside: np.ndarray, n: int
    ) -> Integers:
        """Indices (r, n) of candidates: the least sure, each away from those before it."""
        u, length = self.chart(rows, cloud), self.kriging.length[rows, None]
        score = np.where(inside, sd, 1e-6 * sd)
        chosen, at = [], np.arange(len(rows))
        for _ in range(n):
            worst = score.argmax(axis=1)
            chosen.append(worst)
            gap = ((u - u[at, worst][:, None]) ** 2).sum(axis=2)
            score = score * -np.expm1(-gap / np.minimum(length, 3.0) ** 2)
        return np.stack(chosen, axis=1)

    def test(self, rows: Integers, sd: Floats) -> None:
        """Compare the newest points (r, m) with what had been predicted of them."""
        m = sd.shape[1]
        n = int(self.count[rows[0]])
        new = slice(n - m, n)
        u = self.chart(rows, self.theta[rows, new])
        predicted, _ = self.kriging.at(u.reshape(-1, u.shape[2]), np.repeat(rows, m))
        z = (self.value[rows, new] - predicted.reshape(sd.shape)) / sd
        self.tests[rows] += m
        self.squares[rows] += (z**2).sum(axis=1)

    def misfit(self, rows: Integers) -> Floats:
        """Root mean square of z, with some z = 1 in it, and at least one."""
        mean = (self.squares[rows] + PRIOR_TESTS) / (self.tests[rows] + PRIOR_TESTS)
        return np.maximum(1.0, np.sqrt(mean))

    def move(self, rows: Integers) -> None:
        """Centre and curvature of the refined likelihood, for the next cloud."""
        now = _corrected(self.like, self.correction())
        everyone = np.arange(len(self.centre))
        here = Maximum(
            self.centre, now.pairs(self.centre, everyone), self.top.curvature,
            np.zeros(len(self.centre), dtype=bool), 0, self.goal.region,
        )  # fmt: skip
        found = climb_again(now, here, rows, self.centre[rows], here.value[rows])
        part = Maximum(
            found.theta[rows], found.value[rows], found.curvature[rows], found.converged[rows],
            0, self.goal.region,
        )  # fmt: skip
        information = observed_information(now[rows], part)
        self.centre[rows] = part.theta
        self.factor[rows] = _factor(information)

    def correction(self) -> Correction:
        record = Refinement(
            error=self.error.copy(),
            evaluations=self.count.copy(),
            reached=self.reached.copy(),
            tolerance=self.goal.tolerance,
            level=self.goal.level,
            centre=self.centre.copy(),
            factor=self.factor.copy(),
            radius=self.radius,
            points=tuple(t[:n] for t, n in zip(self.theta, self.count, strict=True)),
        )
        return Correction(self.kriging, self.origin, self.a, record)


def _factor(curvature: Floats) -> Floats:
    """A with A A' = curvature, made positive definite."""
    return np.asarray(np.linalg.cholesky(make_positive(curvature)), dtype=np.float64)


def _rms(sd: Floats, inside: np.ndarray) -> Floats:
    """Root mean square of sd (r, c) over the candidates inside."""
    return np.sqrt((sd**2 * inside).sum(axis=1) / inside.sum(axis=1))
