"""The E-test: does inference with the surrogate agree with inference with the exact likelihood?

theta_i on an even grid of the inner (test) region, about 100 points (scattered evenly, not on a
grid, from four parameters on); G groups of n observations at each, x_ig ~ p(. | theta_i). For the
surrogate and for the exact likelihood, every group gets

    estimate   theta^ = argmax l(theta) over the base box
    statistic  Lambda = 2 l(theta^) - 2 l(theta_i)            null likelihood-ratio statistic
    covered    Lambda <= chi-square quantile (95%, d)         is theta_i in the Wilks set?
    volume     of the Wilks set within the base box, in working units

and these are compared: mean of (Lambda - Lambda_exact)^2; coverage in all and along each parameter;
mean volume; the median over theta_i of the mean over groups of (theta^ - theta^_exact)^2; the two
null distributions and their largest distance (Kolmogorov-Smirnov). Standard errors take the grid
as fixed and groups as independent; that of the median is a bootstrap over groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from keepscore.budget import Say, affordable, as_minutes, seconds_of, shortened, voice
from keepscore.checks import Floats, as_counts, require_count, require_level, require_parts
from keepscore.cluster import Cluster
from keepscore.errors import DomainError, KeepscoreWarning, MissingError
from keepscore.evaluation.estimate import Estimate, stratified_mean
from keepscore.evaluation.exact_cache import Arrays, cached
from keepscore.evaluation.ltest import require_same_space
from keepscore.evaluation.set_volumes import wilks_volumes
from keepscore.inference import RefinedSource, confidence_set, invariants, lrt
from keepscore.inference.refine import TOLERANCE
from keepscore.likelihood import Likelihood, LikelihoodSource
from keepscore.models.base import Model, describe
from keepscore.numerics.space_filling import fill_cube
from keepscore.space import Space

GRID = {1: (100,), 2: (10, 10), 3: (5, 5, 4)}
THETAS = 100  # where there is no grid
BINS = 5  # along a parameter whose values are scattered
LEVEL = 0.95
BOOTSTRAPS = 200
TIMED, TIMED_TOGETHER = 2, 8  # groups behind the cost of one: exact, and by a surrogate
FEWEST_GROUPS, FEWEST_THETAS = 2, 10  # where the time is short
SHARED_GRID = 2  # up to this many parameters one grid over the box serves all sets
STREAM = 0xE7E57  # keeps these draws apart from others made with the same seed


@dataclass(frozen=True)
class Inferences:
    """What a likelihood says of p x G groups: estimate (p, G, d); statistic, volume and covered
    (p, G). `cut` counts sets that reach the boundary of the base box, `unconverged` searches that
    did not meet their tolerance. basis: what the likelihood stands on."""

    estimate: Floats
    statistic: Floats
    volume: Floats
    covered: NDArray[np.bool_]
    cut: int
    unconverged: int
    basis: str = ""

    def __post_init__(self) -> None:
        for name in ("statistic", "volume"):
            invariants.require_not_negative(getattr(self, name), "etest", f"a {name}")
        invariants.require_counted(self.covered, "etest")


@dataclass(frozen=True)
class ETestSet:
    """Groups xs (p * G, n, *x_shape) at theta (p, d), and the exact likelihood's inferences."""

    space: Space
    theta: Floats
    xs: NDArray[Any]
    groups: int
    level: float
    points: int | None
    exact: Inferences


@dataclass(frozen=True)
class ETest:
    """A surrogate's inferences beside the exact ones, per theta and group, and their summary."""

    space: Space
    theta: Floats
    size: int
    level: float
    surrogate: Inferences
    exact: Inferences
    lrt_mse: Estimate
    coverage: Estimate
    coverage_exact: Estimate
    volume: Estimate
    volume_exact: Estimate
    mle_mse: tuple[Estimate, ...]
    null_distance: float
    basis: str = ""
    refined: ETest | None = None
    evaluations: int | None = None  # of a refined one: the most exact evaluations per group
    cut: str = ""  # what did not fit into the time

    def __post_init__(self) -> None:
        for found in (self.surrogate, self.exact):
            invariants.require_estimate(found.estimate, *self.space.box("base"), "etest")
        for share in (self.coverage, self.coverage_exact):
            invariants.require_shares(share.value, "etest", "coverage")
        invariants.require_shares(self.null_distance, "etest", "a distance of distributions")
        for name, value in self.rows():
            invariants.require_not_negative([value.value, value.se], "etest", name)

    @property
    def coverage_by_theta(self) -> Floats:
        """Share of the groups at each theta whose set holds it: (p,)."""
        return self.surrogate.covered.mean(axis=1)

    def coverage_along(self, name: str, exact: bool = False) -> list[tuple[float, Estimate]]:
        """Coverage at each grid value of one parameter, over all values of the others; of the
        surrogate's sets, or of the exact likelihood's. Scattered theta are put into five bins of
        as many theta each, and stand at their mean."""
        column = self.theta[:, self.space.index(name)]
        covered = (self.exact if exact else self.surrogate).covered.astype(float)
        parts = [np.flatnonzero(column == v) for v in np.unique(column)]
        if self.space.d > 1 and len(parts) == len(column) > BINS:  # on a grid, values repeat
            parts = np.array_split(np.argsort(column, kind="stable"), BINS)
        return [(float(column[part].mean()), stratified_mean(covered[part])) for part in parts]

    def rows(self) -> Iterator[tuple[str, Estimate]]:
        """Name and value of each metric, in a fixed order."""
        yield "lrt_mse", self.lrt_mse
        yield "coverage", self.coverage
        yield "coverage_exact", self.coverage_exact
        yield "volume", self.volume
        yield "volume_exact", self.volume_exact
        for name, value in zip(self.space.names, self.mle_mse, strict=True):
            yield f"mle_mse[{name}]", value

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the summary, each theta's means, and the null statistics sorted."""
        found, exact = self.surrogate, self.exact
        return {
            "groups": int(found.statistic.shape[1]),
            "size": self.size,
            "level": self.level,
            "metrics": {name: value.to_dict() for name, value in self.rows()},
            "null_distance": self.null_distance,
            "sets_cut": found.cut,
            "unconverged": found.unconverged,
            "coverage_along": {
                name: [[v, e.value, e.se] for v, e in self.coverage_along(name)]
                for name in self.space.names
            },
            "by_theta": {
                "theta": _rounded(self.theta, 6),
                "coverage": _rounded(self.coverage_by_theta, 4),
                "lrt_mse": _rounded(((found.statistic - exact.statistic) ** 2).mean(axis=1), 5),
                "volume": _rounded(found.volume.mean(axis=1), 6),
                "mle_mse": _rounded(((found.estimate - exact.estimate) ** 2).mean(axis=1), 8),
            },
            "null": _rounded(np.sort(found.statistic, axis=None), 3),
            "basis": self.basis,
            "cut": self.cut,
            "exact_evaluations": self.evaluations,
            "refined": None if self.refined is None else self.refined.to_dict(),
        }


def etest(
    surrogate: LikelihoodSource,
    model: Model,
    grid: Sequence[int] | None = None,
    groups: int = 30,
    size: int = 10,
    seed: int = 0,
    test_set: ETestSet | None = None,
    thetas: int | None = None,
    refine: int | None = None,
    tolerance: float = TOLERANCE,
    jobs: int = 1,
    path: Path | None = None,
    cluster: Cluster | None = None,
    minutes: float | None = None,
    progress: Say | bool | None = None,
) -> ETest:
    """Inference with a surrogate beside inference with the model's own likelihood.

    Args:
        surrogate: What is judged; anything with a space and `given`.
        model: The model it was trained on, with a likelihood.
        grid: Theta along each parameter (10 x 10, or 5 x 5 x 4).
        groups: Data sets simulated at each theta.
        size: Observations per data set.
        seed: Seed of the simulations.
        test_set: Groups and exact inferences made beforehand by `etest_set`, used as they are.
        thetas: Scatter so many theta evenly over the test region instead of using a grid; the
            default, with 100, from four parameters on.
        refine: With a number, inference with the surrogate refined by so many exact evaluations per
            group (`ks.refine`) is compared as well: `result.refined`, an E-test of its own.
        tolerance: Of the refined log-likelihood.
        jobs: Worker processes for the exact evaluations of refining.
        path: Folder that keeps these evaluations, to go on after an interruption.
        cluster: Address of a Dask scheduler, or a `distributed.Client`, to use instead of `jobs`.
        minutes: Time for exact inference on the test groups, by far the most of it: where they do
            not fit, there are fewer groups at each theta (2 at least), then fewer theta, scattered
            evenly, with a warning, and the result says so in `cut`.
        progress: Told each stage in words; True for standard error, the default on a terminal.

    Returns:
        Both inferences, per theta and group, and their comparison with standard errors.

    Raises:
        MismatchError: Surrogate and model have different parameter spaces.
        MissingError: The model has no likelihood.

    Example:
        >>> import keepscore as ks
        >>> model = ks.models.SIS(weights=[[0, 1], [1, 0]], times=[0, 1, 2])
        >>> found = ks.etest(model, model, thetas=2, groups=2, size=5)
        >>> found.lrt_mse.value, found.coverage == found.coverage_exact
        (0.0, True)
    """
    require_parts(surrogate, "surrogate", "space", "given")
    require_parts(model, "model", "space", "simulate", "given")
    require_same_space(surrogate.space, model.space)
    minutes, say, cut = as_minutes(minutes), voice(progress, "etest"), ""
    if test_set is None:
        if minutes is not None:
            say("timing the exact likelihood")
            grid, groups, thetas, cut = _within(model, grid, groups, size, seed, thetas, minutes)
        say("exact inference on test groups")
        truth = etest_set(model, grid, groups, size, seed, thetas=thetas)
    else:
        truth = test_set
    say("measuring the surrogate")
    refined = None
    if refine is not None:
        source = RefinedSource(surrogate, model, refine, tolerance, jobs, path, cluster)
        refined = replace(_compared(source, truth, None), evaluations=refine)
    return replace(_compared(surrogate, truth, refined), cut=cut)


def _compared(source: LikelihoodSource, truth: ETestSet, refined: ETest | None) -> ETest:
    """Inference with a source beside the exact ones of the test set."""
    found, exact = (
        infer(source.given, truth.xs, truth.theta, truth.level, truth.points),
        truth.exact,
    )
    squared = (found.estimate - exact.estimate) ** 2
    return ETest(
        space=truth.space,
        theta=truth.theta,
        size=truth.xs.shape[1],
        level=truth.level,
        surrogate=found,
        exact=exact,
        lrt_mse=stratified_mean((found.statistic - exact.statistic) ** 2),
        coverage=stratified_mean(found.covered.astype(float)),
        coverage_exact=stratified_mean(exact.covered.astype(float)),
        volume=stratified_mean(found.volume),
        volume_exact=stratified_mean(exact.volume),
        mle_mse=tuple(_median_of_means(squared[..., k]) for k in range(truth.space.d)),
        null_distance=float(stats.ks_2samp(found.statistic.ravel(), exact.statistic.ravel())[0]),
        basis=found.basis,
        refined=refined,
    )


def etest_set(
    model: Model,
    grid: Sequence[int] | None = None,
    groups: int = 30,
    size: int = 10,
    seed: int = 0,
    level: float = LEVEL,
    points: int | None = None,
    path: Path | None = None,
    thetas: int | None = None,
) -> ETestSet:
    """Simulate the groups and do inference with the exact likelihood; with a path, keep that.

    points: per side, of the grids behind the volumes of sets (up to three parameters); fewer are
    quicker and rougher. The other arguments are those of `etest`.
    """
    level = require_level(level)
    groups, size = require_count(groups, "groups"), require_count(size, "size")
    seed = require_count(seed, "seed", minimum=0)
    points = None if points is None else require_count(points, "points", minimum=4)
    space = model.space
    if points is not None and space.d > max(GRID):
        raise DomainError(f"points is for up to {max(GRID)} parameters; there are {space.d}.")
    shape, theta = _thetas(space, grid, thetas)
    rng = np.random.default_rng([seed, STREAM])
    flat = model.simulate(np.repeat(theta, groups * size, axis=0), rng)
    xs = flat.reshape(len(theta) * groups, size, *model.x_shape)
    identity = {"model": describe(model), "seed": seed, "grid": shape}
    identity |= {"groups": groups, "size": size, "level": level, "points": points}

    def compute() -> Arrays:
        try:
            found = vars(infer(model.given, xs, theta, level, points)).copy()
            found.pop("basis")
            return found
        except MissingError as error:
            raise MissingError(
                f"The E-test compares with the exact likelihood, and {model.name} has none: {error}"
            ) from error

    arrays = cached(None if path is None else Path(path) / "exact.npz", identity, compute)
    counts = {name: int(arrays[name]) for name in ("cut", "unconverged")}
    exact = Inferences(**{**arrays, **counts}, basis="exact")  # type: ignore[arg-type]
    return ETestSet(space, theta, xs, groups, level, points, exact)


def seconds_per_group(
    model: Model, size: int = 10, seed: int = 0, surrogate: LikelihoodSource | None = None
) -> float:
    """What inference on one group of the model costs: by its exact likelihood, or by a surrogate,
    which answers for several groups at once."""
    if surrogate is None:
        return seconds_of(lambda: etest_set(model, None, 1, size, seed, thetas=TIMED)) / TIMED
    _, theta = _thetas(model.space, None, TIMED_TOGETHER)
    x = model.simulate(np.repeat(theta, size, axis=0), np.random.default_rng([seed, STREAM]))
    xs = x.reshape(len(theta), size, *model.x_shape)
    given = surrogate.given
    return seconds_of(lambda: infer(given, xs, theta, LEVEL)) / len(theta)


def _within(
    model: Model,
    grid: Sequence[int] | None,
    groups: int,
    size: int,
    seed: int,
    thetas: int | None,
    minutes: float,
) -> tuple[Sequence[int] | None, int, int | None, str]:
    """Grid, groups at each theta, scattered theta, and what was cut, so that it fits the time."""
    groups = require_count(groups, "groups")
    p = len(_thetas(model.space, grid, thetas)[1])
    asked = p * groups
    few = min(groups, FEWEST_GROUPS)
    least = min(asked, few * FEWEST_THETAS)
    count = affordable(
        minutes, seconds_per_group(model, size, seed), asked, least, "test groups", "etest"
    )
    if count >= few * p:
        fewer = count // p
        what = f"test groups ({p} theta with {fewer} each)"
        return grid, fewer, thetas, shortened(p * fewer, asked, what)
    places = max(2, count // few)
    what = f"test groups ({places} scattered theta with {few} each)"
    return None, few, places, shortened(places * few, asked, what)


def _thetas(space: Space, grid: Sequence[int] | None, thetas: int | None) -> tuple[Any, Floats]:
    """What identifies the theta of a test, and the theta (p, d) themselves."""
    if grid is not None and thetas is not None:
        raise DomainError("grid and thetas exclude each other; got both.")
    if grid is None and thetas is None and space.d in GRID:
        grid = GRID[space.d]
    if grid is not None:
        shape = as_counts(grid, space.d, "grid", minimum=2)
        return shape, space.grid(shape, "test")
    count = THETAS if thetas is None else require_count(thetas, "thetas", minimum=2)
    low, high = space.box("test")
    return {"scattered": count}, low + (high - low) * fill_cube(count, space.d)


def infer(
    given: Callable[[Any], Likelihood],
    xs: NDArray[Any],
    theta: Floats,
    level: float,
    points: int | None = None,
) -> Inferences:
    """Estimate, null statistic, membership and volume of xs (p * G, n, *x_shape), simulated at
    theta (p, d), G consecutive groups at each."""
    p, d = theta.shape
    groups = len(xs) // p
    truth = np.repeat(theta, groups, axis=0)
    with warnings.catch_warnings():
        # Thousands of groups: sets cut by the box and failed searches are counted, not warned of.
        warnings.filterwarnings("ignore", category=KeepscoreWarning)
        like = given(xs)
        test = lrt(like, truth)
        if d <= SHARED_GRID:
            sets = confidence_set(like, level, grid=points)
            volume, cut = np.asarray(sets.volume), int(np.sum(sets.touches_boundary))
        else:

            def of(index: NDArray[np.int64]) -> Likelihood:
                # Of these groups alone a surface costs less; a refined one is not refined again.
                return given(xs[index]) if like.refinement is None else like[index]

            volume, cut = wilks_volumes(of, test.maximum, groups, level, points)
    statistic = np.asarray(test.statistic)
    return Inferences(
        estimate=np.asarray(test.maximum.theta).reshape(p, groups, d),
        statistic=statistic.reshape(p, groups),
        volume=volume.reshape(p, groups),
        covered=(statistic <= stats.chi2.ppf(level, d)).reshape(p, groups),
        cut=cut,
        unconverged=int(np.sum(~np.asarray(test.maximum.converged))),
        basis=like.basis,
    )


def _median_of_means(squared: Floats) -> Estimate:
    """Median over theta of the mean over groups of (p, G), and its bootstrap error over groups."""
    p, groups = squared.shape
    rng = np.random.default_rng(0)
    picks = rng.integers(groups, size=(BOOTSTRAPS, p, groups))
    redrawn = np.take_along_axis(squared[None], picks, axis=2).mean(axis=2)
    spread = float(np.median(redrawn, axis=1).std(ddof=1)) if groups > 1 else 0.0
    return Estimate(float(np.median(squared.mean(axis=1))), spread)


def _rounded(values: Floats, digits: int) -> list[Any]:
    """Numbers short enough for JSON in a repository, to `digits` decimals."""
    return list(np.round(np.asarray(values, dtype=float), digits).tolist())
