"""How far inference with a surrogate is from inference with the exact likelihood, within a time.

theta_i scattered evenly over the test region, one group of n observations at each. With
Lambda(theta) = 2 (l_max - l(theta)), by the surrogate (s) and by the exact likelihood (e):

    LRT error      mean (Lambda_s(theta_i) - Lambda_e(theta_i))^2
    coverage       share of Lambda_s(theta_i) <= q, q the chi-square quantile at the level
    inefficiency   sum_i (theta^_s - theta_i)^2 / sum_i (theta^_e - theta_i)^2, per parameter
    informed       1 - sum_i (theta^_s - theta_i)^2 / sum_i (mean theta - theta_i)^2, per parameter

The last one needs no likelihood: 0 means that the estimates know no more than the middle of the
box. How many groups there are follows from what an exact one costs.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from keepscore.checks import Floats
from keepscore.errors import KeepscoreWarning, MissingError
from keepscore.evaluation.estimate import Estimate, mean
from keepscore.evaluation.exact_cache import Arrays, cached
from keepscore.inference import invariants
from keepscore.inference.lrt import lrt
from keepscore.likelihood import LikelihoodSource
from keepscore.models.base import Model, describe
from keepscore.numerics.space_filling import fill_cube
from keepscore.space import Space

LEVEL = 0.95
FEWEST, MOST = 24, 400  # groups
WITHOUT_EXACT = 200  # groups where there is no exact likelihood to pay for
TIMED = (2, 16)  # groups behind the cost of one: many together cost less than one by one
TIMING_SHARE = 0.2  # of the seconds: if more of them would take longer, they are not tried
STREAM = 0xF17  # keeps these draws apart from others of the same seed


@dataclass(frozen=True)
class Inferred:
    """What a likelihood says of g groups simulated at theta (g, d): estimates (g, d), and
    Lambda (g,) at the theta they were simulated at."""

    estimate: Floats
    statistic: Floats


@dataclass(frozen=True)
class Yardstick:
    """Groups xs (g, n, *x_shape) simulated at theta (g, d); what the exact likelihood says of them,
    None where the model has none or it costs too much; and the seconds that one group took it."""

    space: Space
    theta: Floats
    xs: NDArray[Any]
    exact: Inferred | None
    seconds_per_group: float


@dataclass(frozen=True)
class Measured:
    """A surrogate on a yardstick; what needs the exact likelihood is None without one."""

    groups: int
    size: int
    lrt_error: Estimate | None
    coverage: Estimate
    coverage_exact: Estimate | None
    inefficiency: tuple[float, ...] | None
    informed: tuple[float, ...]

    def __post_init__(self) -> None:
        for found in (self.coverage, self.coverage_exact):
            if found is not None:
                invariants.require_shares(found.value, "fit", "coverage")
        if self.lrt_error is not None:
            invariants.require_not_negative(self.lrt_error.value, "fit", "a squared error")
        if self.inefficiency is not None:
            invariants.require_not_negative(self.inefficiency, "fit", "a ratio of squared errors")
        invariants.require(
            np.asarray(self.informed) <= 1, "fit", "a share explained is at most 1", self.informed
        )

    def line(self) -> str:
        """In one line."""
        if self.lrt_error is None or self.coverage_exact is None:
            return f"coverage of 95% sets {self.coverage}"
        return (
            f"squared LRT error {self.lrt_error}; coverage of 95% sets {self.coverage} "
            f"(exact {self.coverage_exact})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""

        def plain(found: Estimate | None) -> list[float] | None:
            return None if found is None else [found.value, found.se]

        return {
            "groups": self.groups,
            "size": self.size,
            "lrt_error": plain(self.lrt_error),
            "coverage": plain(self.coverage),
            "coverage_exact": plain(self.coverage_exact),
            "inefficiency": None if self.inefficiency is None else list(self.inefficiency),
            "informed": list(self.informed),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Measured:
        """What `to_dict` made."""

        def estimate(found: list[float] | None) -> Estimate | None:
            return None if found is None else Estimate(*map(float, found))

        coverage = estimate(content["coverage"])
        assert coverage is not None
        inefficiency = content["inefficiency"]
        return cls(
            int(content["groups"]),
            int(content["size"]),
            estimate(content["lrt_error"]),
            coverage,
            estimate(content["coverage_exact"]),
            None if inefficiency is None else tuple(map(float, inefficiency)),
            tuple(map(float, content["informed"])),
        )


@dataclass(frozen=True)
class Extent:
    """How many groups there are, whether the exact likelihood is asked about them, and the seconds
    that one takes it (infinite where there is none)."""

    groups: int
    exact: bool
    seconds_per_group: float


def extent_within(model: Model, size: int, seconds: float, seed: int = 0) -> Extent:
    """As many groups of `size` observations as the exact likelihood manages in `seconds`; without
    it where not even the fewest that tell anything fit into twice that."""
    cost = _seconds_per_group(model, size, seconds, seed)
    if not FEWEST * cost <= 2 * seconds:
        return Extent(WITHOUT_EXACT, False, cost)
    return Extent(int(np.clip(seconds / max(cost, 1e-9), FEWEST, MOST)), True, cost)


def yardstick(
    model: Model, size: int, extent: Extent, seed: int = 0, path: Path | None = None
) -> Yardstick:
    """The groups, and what the exact likelihood says of them; kept at a path, if there is one."""
    theta, xs = _groups(model, extent.groups, size, seed)
    exact = None
    if extent.exact:
        identity = {"model": describe(model), "seed": seed, "groups": extent.groups, "size": size}

        def compute() -> Arrays:
            found = inferred(model, xs, theta)
            return {"estimate": found.estimate, "statistic": found.statistic}

        arrays = cached(path, identity, compute)
        exact = Inferred(arrays["estimate"], arrays["statistic"])
    return Yardstick(model.space, theta, xs, exact, extent.seconds_per_group)


def inferred(source: LikelihoodSource, xs: NDArray[Any], theta: Floats) -> Inferred:
    """Estimates and null statistics of every group by one likelihood."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # hundreds of groups: measured, not told
        test = lrt(source.given(xs), theta)
    return Inferred(np.asarray(test.maximum.theta), np.asarray(test.statistic))


def measured(source: LikelihoodSource, by: Yardstick) -> Measured:
    """A surrogate on the yardstick."""
    found = inferred(source, by.xs, by.theta)
    q = stats.chi2.ppf(LEVEL, by.space.d)

    def covered(statistic: Floats) -> Estimate:
        return share(statistic <= q)

    off = ((found.estimate - by.theta) ** 2).sum(axis=0)
    around = ((by.theta.mean(axis=0) - by.theta) ** 2).sum(axis=0)
    error, coverage_exact, inefficiency = None, None, None
    if by.exact is not None:
        error = mean((found.statistic - by.exact.statistic) ** 2)
        coverage_exact = covered(by.exact.statistic)
        best = ((by.exact.estimate - by.theta) ** 2).sum(axis=0)
        inefficiency = tuple((off / np.maximum(best, np.finfo(float).tiny)).tolist())
    return Measured(
        len(by.theta),
        by.xs.shape[1],
        error,
        covered(found.statistic),
        coverage_exact,
        inefficiency,
        tuple((1 - off / around).tolist()),
    )


def share(true: NDArray[np.bool_]) -> Estimate:
    """A share of g groups, with an error that is not 0 when all agree (one more of each kind)."""
    g, k = len(true), int(true.sum())
    p = (k + 1) / (g + 2)
    return Estimate(k / g, math.sqrt(p * (1 - p) / g))


def _groups(model: Model, count: int, size: int, seed: int) -> tuple[Floats, NDArray[Any]]:
    low, high = model.space.box("test")
    theta = low + (high - low) * fill_cube(count, model.space.d)
    rng = np.random.default_rng([seed, STREAM])
    xs = model.simulate(np.repeat(theta, size, axis=0), rng)
    return theta, np.asarray(xs).reshape(count, size, *model.x_shape)


def _seconds_per_group(model: Model, size: int, seconds: float, seed: int) -> float:
    """Of exact inference; infinite where the model has no likelihood."""
    cost = 0.0
    for count in TIMED:
        if 2 * count * cost > TIMING_SHARE * seconds:
            break
        theta, xs = _groups(model, 2 * count, size, seed + 1)
        try:
            inferred(model, xs[:count], theta[:count])  # compiles where there is anything to
        except MissingError:
            return math.inf
        begin = time.perf_counter()
        inferred(model, xs[count:], theta[count:])
        cost = (time.perf_counter() - begin) / count
    return cost
