"""Does a set cover where it matters? Coverage point by point over the parameter space.

At each theta of a grid, groups are simulated and the sets' verdicts on the true theta counted, for
Wilks' critical value and, beside it, for calibrated ones, on the same groups. Standard errors are
binomial around the nominal level's own (never zero when every group is covered).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from keepscore.checks import Floats, as_theta, require_count, require_level
from keepscore.errors import DomainError, unknown_name
from keepscore.inference import invariants
from keepscore.inference.calibration import Simulator, null_statistics
from keepscore.inference.null_distribution import Calibration
from keepscore.likelihood import LikelihoodSource
from keepscore.numerics.space_filling import fill_cube
from keepscore.space import Region, Space

POINTS_PER_SIDE = {1: 100, 2: 10, 3: 5}
POINTS = 100  # scattered, from four parameters on
STREAM = 0xC0FE


@dataclass(frozen=True)
class LocalCoverage:
    """Coverage of nominal `level` at m points: theta (m, d); statistics (m, k), k groups per point;
    covered: for each method ("wilks", "calibrated") which sets held the truth, (m, k) bool."""

    space: Space
    level: float
    theta: Floats
    statistics: Floats
    covered: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        name = "a likelihood-ratio statistic"
        invariants.require_not_negative(self.statistics, "local_coverage", name)
        for hits in self.covered.values():
            invariants.require_counted(hits, "local_coverage")
            law = "coverage must count every group"
            invariants.require(hits.shape == self.statistics.shape, "local_coverage", law)

    def coverage(self, method: str = "wilks") -> Floats:
        """Share of sets that hold the truth at each theta: (m,)."""
        return self._of(method).mean(axis=1)

    def standard_error(self, method: str = "wilks") -> Floats:
        """Binomial standard error at each theta, with one success and one failure added: (m,)."""
        hits, k = self._of(method).sum(axis=1), self.statistics.shape[1]
        rate = (hits + 1) / (k + 2)
        return np.sqrt(rate * (1 - rate) / k)

    def overall(self, method: str = "wilks") -> tuple[float, float]:
        """Coverage over all points, and its standard error."""
        hits = self._of(method)
        rate = (hits.sum() + 1) / (hits.size + 2)
        return float(hits.mean()), float(np.sqrt(rate * (1 - rate) / hits.size))

    def evenness(self, method: str = "wilks") -> float:
        """P-value of "coverage is the nominal level at every theta" (chi-square over points)."""
        k = self.statistics.shape[1]
        z = (self.coverage(method) - self.level) / np.sqrt(self.level * (1 - self.level) / k)
        return float(stats.chi2.sf((z**2).sum(), len(z)))

    def _of(self, method: str) -> np.ndarray:
        if method not in self.covered:
            raise unknown_name("method", method, self.covered)
        return self.covered[method]

    def __str__(self) -> str:
        m, k = self.statistics.shape
        lines = [f"Coverage at nominal {self.level:g}: {m} points, {k} groups each"]
        for method in self.covered:
            rate, error = self.overall(method)
            local = self.coverage(method)
            worst = int(np.argmin(local))
            where = ", ".join(f"{v:.3g}" for v in self.theta[worst])
            lines.append(
                f"  {method:<11}{rate:.4f} (s.e. {error:.4f}); lowest {local[worst]:.3f} "
                f"(s.e. {self.standard_error(method)[worst]:.3f}) at ({where})"
            )
        return "\n".join(lines)


def local_coverage(
    surrogate: LikelihoodSource,
    simulator: Simulator,
    level: float = 0.95,
    calibration: Calibration | Mapping[str, Any] | None = None,
    theta: ArrayLike | None = None,
    groups: int = 30,
    group_size: int = 10,
    region: Region = "test",
    seed: int = 0,
) -> LocalCoverage:
    """Coverage of joint confidence sets at each of many theta, by simulation.

    Args:
        surrogate: What makes the sets: a surrogate, or a model.
        simulator: A model, or anything with `simulate`.
        level: Nominal coverage.
        calibration: Critical values beside Wilks'; without one, that saved with the surrogate.
        theta: Points (m, d); by default about 100 over the `region`, on a grid for up to three
            parameters and scattered evenly for more.
        groups: Data sets simulated at each theta.
        group_size: Observations per data set.
        region: Where the default points lie. The sets are those of `confidence_set` in the base box
            (or the calibration's own).
        seed: Seed of the simulations.

    Returns:
        Coverage at each theta and in all, for each method.

    Raises:
        DomainError: The calibration is for something else, or a point lies outside the sets' box.

    Example:
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(4, 4))
        >>> found = ks.local_coverage(model, model, theta=model.space.grid(3)[[13]], groups=40)
        >>> rate, error = found.overall()
        >>> bool(abs(rate - 0.95) < 4 * error)
        True
    """
    level = require_level(level)
    groups = require_count(groups, "groups")
    group_size = require_count(group_size, "group_size")
    seed = require_count(seed, "seed", minimum=0)
    space = surrogate.space
    points = _points(space, region) if theta is None else as_theta(theta, space.d)
    known = getattr(surrogate, "calibration", None) if calibration is None else calibration
    if known is not None and not isinstance(known, Calibration):
        known = Calibration.from_dict(known)
    box: Region = "base" if known is None else known.fit.region
    if known is not None and (known.group_size != group_size or known.parameters != space.names):
        raise DomainError(
            f"The calibration is for groups of {known.group_size} and for "
            f"{', '.join(known.parameters)}; coverage was asked for groups of {group_size} and for "
            f"{', '.join(space.names)}."
        )
    if not space.contains(points, box).all():
        raise DomainError(f"Points must lie in the {box} box, where the sets are.")
    rng = np.random.default_rng([seed, STREAM])
    rows = np.repeat(points, groups, axis=0)
    held = np.ones((1, space.d), dtype=bool)
    statistic = null_statistics(surrogate, simulator, rows, group_size, rng, held, box)[:, 0]
    covered = {"wilks": statistic <= stats.chi2.ppf(level, space.d)}
    if known is not None:
        covered["calibrated"] = statistic <= known.critical(rows, level)
    shape = (len(points), groups)
    return LocalCoverage(
        space,
        level,
        points,
        statistic.reshape(shape),
        {method: hits.reshape(shape) for method, hits in covered.items()},
    )


def _points(space: Space, region: Region) -> Floats:
    if space.d in POINTS_PER_SIDE:
        return space.grid(POINTS_PER_SIDE[space.d], region)
    low, high = space.box(region)
    return low + (high - low) * fill_cube(POINTS, space.d)
