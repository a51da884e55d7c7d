"""Exact answers from a surrogate and a few dozen exact values: `refine`.

A surrogate's error is small and smooth in theta, so it is learned from almost nothing. For each
group

    l_exact(theta) = l_surrogate(theta) + D(theta)

and D is interpolated from exact values and gradients at points in the group's confidence set:

    correction.py          D itself, and l_surrogate + D as a likelihood
    placement.py           where exact values are asked for
    refinement_rounds.py   ask, interpolate, test, until the estimated error is small
    refinement.py          what was done: error, cost, and where it holds
    few_sizes.py           a compiled surrogate asked in few sizes: little is compiled
    exact_work.py          exact values over processes or a cluster, kept on disk

Nothing is claimed outside the region that was refined, and `Refinement.contains` says where that
is. A maximum outside is asked about once: see `_with_maximum`.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from keepscore.checks import Floats, as_number, require_count, require_level
from keepscore.cluster import Cluster
from keepscore.errors import DomainError, KeepscoreWarning, MismatchError
from keepscore.inference.correction import Correction, TracedSum, corrected, joined
from keepscore.inference.exact_work import ExactWork
from keepscore.inference.few_sizes import with_few_sizes
from keepscore.inference.maximise import climb_again, maximise
from keepscore.inference.refinement import Refinement
from keepscore.inference.refinement_rounds import Goal, Rounds
from keepscore.inference.statistic import drop
from keepscore.likelihood import (
    Integers,
    Likelihood,
    LikelihoodSource,
    Maximum,
    Traced,
    require_likelihood,
)
from keepscore.space import Region, Space

EVALUATIONS, TOLERANCE, LEVEL = 40, 0.01, 0.99
MOST_EVALUATIONS = 1000  # per group: matrices of the interpolation have (1 + d) times as many rows
SECOND = 2.0  # of the set's Lambda: other maxima up to there are asked about
GROUPS_AT_ONCE = 256
FAR = 3.0  # surrogate and exact log-likelihood differ by more: is it the same model?


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
    cluster: Cluster | None = None,
) -> Likelihood:
    """A surrogate's likelihood corrected by a few exact evaluations, with a stated error.

    Args:
        like: The surrogate's likelihood, `surrogate.given(xs)`, of one group or many.
        exact: The exact likelihood of the same data, `model.given(xs)`.
        evaluations: The most exact evaluations (value and gradient) per group. Up to four more look
            at maxima where the tolerance was not reached, or which lie outside the region.
        tolerance: Stop a group when the estimated error of its log-likelihood is below this.
        level: The error is that over the confidence set at this level.
        region: Box of theta.
        seed: Seed of the candidate points.
        jobs: Worker processes for the exact evaluations; 1 computes them here.
        path: Folder in which exact evaluations are kept; a run that was killed goes on from there,
            and so does one with a better surrogate of the same data.
        progress: Whether to show a progress bar.
        cluster: Address of a Dask scheduler, or a `distributed.Client`, to use instead of `jobs`.

    Returns:
        A likelihood of kind "refined" that every function of inference takes; its `refinement` says
        how large the error is, what it cost, and where it holds, and its `basis` says so in words.

    Raises:
        MismatchError: The likelihoods are of different data, groups or spaces; `path` holds exact
            evaluations of something else.
        NonFiniteError: The exact likelihood is not finite where the surrogate's sets lie. What was
            computed is in the error's `computed`, and in `path`.
        DomainError: A tolerance that is not positive; too few evaluations, or over 1,000.
        ShapeError: The exact likelihood does not give one value and gradient per row.

    Example:
        >>> import numpy as np
        >>> from dataclasses import replace
        >>> import keepscore as ks
        >>> space = ks.Space([ks.Parameter("mean", -2, 2, "identity")])
        >>> model = ks.models.from_functions(
        ...     space, (1,), simulate=lambda t, rng: t + rng.standard_normal(t.shape),
        ...     log_prob=lambda t, x: -0.5 * ((x - t) ** 2).sum(axis=1), score=lambda t, x: x - t,
        ... )
        >>> xs = model.simulate(np.full((20, 1), 0.3), np.random.default_rng(0))
        >>> exact = model.given(xs)
        >>> def wavy(theta, group):  # what a surrogate may be like: off by a wave
        ...     value, slope = exact.pairs_gradient(theta, group)
        ...     return value + np.sin(5 * theta[:, 0]), slope + 5 * np.cos(5 * theta)
        >>> surrogate = replace(
        ...     exact, kind="surrogate", pairs=lambda t, g: wavy(t, g)[0], pairs_gradient=wavy,
        ...     surface=lambda t: exact.surface(t) + np.sin(5 * t[:, 0]), traceable=None,
        ... )
        >>> refined = ks.refine(surrogate, exact)
        >>> bool(abs(ks.mle(refined).estimate[0] - ks.mle(exact).estimate[0]) < 0.001)
        True
    """
    require_together(like, exact)
    evaluations = require_count(evaluations, "evaluations", minimum=like.space.d + 3)
    if evaluations > MOST_EVALUATIONS:
        raise DomainError(
            f"evaluations must be at most {MOST_EVALUATIONS:,} per group; got {evaluations:,}. "
            "Where so many can be afforded, use the exact likelihood itself."
        )
    level = require_level(level)
    tolerance = as_number(tolerance, "tolerance")
    seed = require_count(seed, "seed", minimum=0)
    if not (np.isfinite(tolerance) and tolerance > 0):
        raise DomainError(f"tolerance must be positive; got {tolerance!r}.")
    total = evaluations * like.group_count  # at most
    with ExactWork(exact, jobs, path, progress, total, cluster) as work:
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
    cluster: Cluster | None = None

    @property
    def space(self) -> Space:
        return self.model.space

    def given(self, xs: ArrayLike) -> Likelihood:
        """`refine` of both likelihoods of these observations."""
        return refine(
            self.surrogate.given(xs),
            self.model.given(xs),
            self.evaluations,
            self.tolerance,
            jobs=self.jobs,
            path=self.path,
            cluster=self.cluster,
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
    """`refine`, by exact work that has begun already."""
    goal = Goal(evaluations, float(tolerance), level, region, seed)
    like = with_few_sizes(like)
    chunks = np.array_split(np.arange(like.group_count), -(-like.group_count // GROUPS_AT_ONCE))
    correction = joined([Rounds(like[c], work, c, goal).run() for c in chunks])
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
    far = (correction.record.before > FAR) & correction.record.reached
    if far.any():
        warnings.warn(
            f"In {int(far.sum())} of {like.group_count} group(s) surrogate and exact "
            f"log-likelihood differ by more than {FAR:g} over the confidence set (standard "
            f"deviation; largest {correction.record.before[far].max():.2g}). The answers are those "
            "of the exact one; check that both are of the same model, or train a better surrogate.",
            KeepscoreWarning,
            stacklevel=3,
        )
    refined = corrected(like, correction)
    more = None if like.traceable is None else correction.traced_data()
    if like.traceable is not None and more is not None:
        ours = like.traceable
        traced = Traced(TracedSum(ours.function), (ours.data, more), ours.double)
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
    if here != there:
        raise MismatchError(f"Both likelihoods must be of the same data: {here}, and {there}.")
    if like.single != exact.single:
        raise MismatchError(
            "Both likelihoods must be of the same data, in the same shape: one is of a single "
            "group, (n, ...), the other of a list of one group, (1, n, ...)."
        )
    if like.observed is not None and exact.observed is not None:
        pairs = zip(like.observed, exact.observed, strict=True)
        differ = [i for i, (ours, theirs) in enumerate(pairs) if ours != theirs]
        if differ:
            raise MismatchError(
                f"Both likelihoods must be of the same data: the observations of {len(differ)} of "
                f"{like.group_count} group(s) differ, first those of group {differ[0]}."
            )
