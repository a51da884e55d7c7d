"""Confidence sets: all theta that a likelihood-ratio test at this level does not reject.

    { theta in the box : Lambda(theta) <= c }   c = chi-square quantile           (method "wilks")
                                                c = c(theta), simulated           ("calibrated")

For a subset of parameters Lambda is the profile statistic. Membership is exact; the volume (working
units) is by cubic interpolation of Lambda on a grid, with the error region.py describes. Nothing is
computed before it is asked for, except the maximum.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from keepscore.checks import Floats, as_counts, as_floats, as_theta, require_choice, require_level
from keepscore.errors import KeepscoreWarning, ShapeError
from keepscore.inference import invariants
from keepscore.inference.level_set import POINTS_PER_SIDE, LevelSet, SetExtent, measure
from keepscore.inference.likelihood import (
    Integers,
    Likelihood,
    require_likelihood,
    require_points,
    squeeze,
    surface_by_blocks,
)
from keepscore.inference.lrt import held_parameters
from keepscore.inference.maximise import Maximum, maximise, require_maximum
from keepscore.inference.mle import warn_unconverged
from keepscore.inference.null_distribution import Calibration, find_calibration
from keepscore.inference.profile import profile_intervals, restricted
from keepscore.space import Region

METHODS = ("wilks", "calibrated")


@dataclass(frozen=True)
class Intervals:
    """Confidence intervals: working and raw (k, 2), at_boundary (k, 2); a first axis for groups.

    kind: "profile" (each parameter alone at the level, others profiled out) or "projection" (shadow
    of the joint set, which holds all parameters at once and is therefore wider).
    """

    names: tuple[str, ...]
    kind: str
    working: Floats
    raw: Floats
    at_boundary: Any
    fitted: str = ""

    def __post_init__(self) -> None:
        for ends in (self.working, self.raw):
            invariants.require_ordered(ends, "confidence_set.intervals")

    def __str__(self) -> str:
        if self.working.ndim == 3:
            groups = self.fitted or f"{len(self.working)} groups"
            return f"{self.kind} intervals of {', '.join(self.names)}: {groups}"
        lines = [f"{self.kind} intervals" + (f": {self.fitted}" if self.fitted else "")]
        for k, name in enumerate(self.names):
            edge = "   reaches the boundary" if self.at_boundary[k].any() else ""
            lines.append(f"  {name:<14}[{self.raw[k, 0]:.5g}, {self.raw[k, 1]:.5g}]{edge}")
        return "\n".join(lines)


@dataclass(frozen=True)
class ConfidenceSet:
    """The set of one group, or of each of g groups (results then have a first axis of g)."""

    like: Likelihood = field(repr=False)
    level: float
    method: str
    parameters: tuple[str, ...]
    region: Region
    maximum: Maximum = field(repr=False)
    calibration: Calibration | None = field(default=None, repr=False)
    points: int = 24

    def __post_init__(self) -> None:
        box = self.like.space.box(self.region)
        invariants.require_estimate(self.maximum.theta, *box, "confidence_set")
        law = "a set must hold its maximum: its critical value there must not be negative"
        critical = self.critical(self.maximum.theta)
        invariants.require(critical >= 0, "confidence_set", law, critical)

    def contains(self, theta: ArrayLike) -> Any:
        """Is theta, (k,) or (m, k), in the set? Shaped as like(theta); outside the box is outside.

        k counts the set's own parameters. For one theta a group see `covers`.
        """
        array = as_floats(theta, "theta")
        rows = as_theta(array[None] if array.ndim == 1 else array, len(self.parameters))
        inside = self._in_box(rows)
        result = np.zeros((self.like.group_count, len(rows)), dtype=bool)
        if inside.any():
            result[:, inside] = self._field.on_grid(rows[inside]) <= 0
        return squeeze(self.like, result[:, 0] if array.ndim == 1 else result)

    def covers(self, theta: ArrayLike) -> Any:
        """Is each group's own theta, (g, k), in that group's set? (g,)"""
        rows = as_theta(theta, len(self.parameters))
        if len(rows) != self.like.group_count:
            raise ShapeError(f"One theta per group ({self.like.group_count}); got {len(rows)}.")
        inside = self._in_box(rows)
        result, i = np.zeros(len(rows), dtype=bool), np.flatnonzero(inside)
        if len(i):
            result[i] = self._field.at(rows[i], i) <= 0
        return squeeze(self.like, result)

    def mask(self, shape: int | Sequence[int] = 40) -> Any:
        """Membership on an even grid of the box, bounds included: shape, or (g, *shape)."""
        low, high = self._field.low, self._field.high
        p = len(low)
        counts = as_counts(shape, p, "points per side of a mask")
        axes = [np.linspace(low[k], high[k], counts[k]) for k in range(p)]
        grid = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
        inside = self._field.on_grid(grid) <= 0
        return squeeze(self.like, inside.reshape(self.like.group_count, *counts))

    @property
    def volume(self) -> Any:
        """Volume in working units."""
        return squeeze(self.like, self._extent.volume)

    @property
    def volume_error(self) -> Any:
        """Estimated relative error of the volume (interpolation and counting; see region.py)."""
        return squeeze(self.like, self._extent.error)

    @property
    def touches_boundary(self) -> Any:
        """Does the set reach the boundary of the box, where it is cut off?"""
        return squeeze(self.like, self._extent.touches.any(axis=(1, 2)))

    @cached_property
    def intervals(self) -> Intervals:
        """An interval for each parameter: by profile for Wilks, by projection for calibrated."""
        space, like, found = self.like.space, self.like, self.maximum
        index = [space.index(name) for name in self.parameters]
        if self.method == "wilks":
            ends = profile_intervals(like, found, index, stats.chi2.ppf(self.level, 1))
            working, at_boundary, kind = ends.value, ends.at_boundary, "profile"
            found = ends.maximum
            _warn_missed(ends.missed)
        else:
            extent = self._extent
            working, at_boundary, kind = extent.bounds, extent.touches, "projection"
        low, high = space.box(self.region)
        width, function = (high - low)[index], "confidence_set.intervals"
        invariants.require_holds(working, found.theta[:, index], width, function)
        raw = np.stack(
            [space.parameters[k].to_raw(working[:, j]) for j, k in enumerate(index)], axis=1
        )
        return Intervals(
            self.parameters,
            kind,
            squeeze(like, working),
            squeeze(like, raw),
            squeeze(like, at_boundary),
            like.grouping,
        )

    @cached_property
    def _field(self) -> LevelSet:
        return (
            _joint_field(self)
            if len(self.parameters) == self.like.space.d
            else _profile_field(self)
        )

    @cached_property
    def _extent(self) -> SetExtent:
        extent, known = measure(self._field, self.points), self._field
        invariants.require_not_negative(extent.volume, "confidence_set.volume", "a volume")
        everyone = np.arange(self.like.group_count)
        law, at_best = "a set must hold its maximum", known.at(known.centre, everyone)
        invariants.require(at_best <= 0, "confidence_set", law, at_best)
        cut = int(extent.touches.any(axis=(1, 2)).sum())
        if cut:
            warnings.warn(
                f"{cut} of {len(extent.volume)} confidence set(s) touch the boundary of the "
                f"{self.region} box and end there; they say nothing about theta beyond it.",
                KeepscoreWarning,
                stacklevel=3,
            )
        return extent

    def _in_box(self, theta: Floats) -> np.ndarray:
        slack = 1e-9 * (self._field.high - self._field.low)
        inside = (theta >= self._field.low - slack) & (theta <= self._field.high + slack)
        return np.asarray(inside.all(axis=1))

    def critical(self, theta: Floats) -> Floats:
        """Critical value at whole parameter vectors theta (m, d): (m,)."""
        if self.calibration is not None:
            return self.calibration.critical(theta, self.level)
        return np.full(len(theta), stats.chi2.ppf(self.level, len(self.parameters)))

    def __str__(self) -> str:
        what = ", ".join(self.parameters)
        # As many digits as the level has: 99.5% is not 100%.
        text = f"{100 * self.level:g}% confidence set ({self.method}) for {what}"
        return f"{text}: {self.like.grouping}"


def confidence_set(
    like: Likelihood,
    level: float = 0.95,
    method: str = "wilks",
    parameters: Sequence[str] | None = None,
    calibration: Calibration | Mapping[str, Any] | None = None,
    grid: int | None = None,
    region: Region = "base",
    maximum: Maximum | None = None,
) -> ConfidenceSet:
    """Confidence sets at `level` for every group; with `parameters`, for those alone by profile.

    A `calibration` given, or method="calibrated" with one saved beside the surrogate, replaces the
    chi-square quantile by the simulated one. `grid`: points per side behind the volume. `maximum`
    (of a previous result on the same likelihood) saves the search.
    """
    require_likelihood(like)
    level = require_level(level)
    require_choice(method, "method", METHODS)
    _, names = held_parameters(like.space, parameters)
    if calibration is not None:
        method = "calibrated"
    known = None
    if method == "calibrated":
        known = find_calibration(like, calibration, names, region, needed=True)
    points = require_points(grid, POINTS_PER_SIDE.get(len(names), 8))
    found = require_maximum(like, maximum, region)
    if found is None:
        found = maximise(like, region)
        warn_unconverged(found)
    return ConfidenceSet(like, level, method, names, region, found, known, points)


def _warn_missed(missed: np.ndarray) -> None:
    if missed.any():
        warnings.warn(
            f"Profiling found a higher likelihood than the search had, in {int(missed.sum())} of "
            f"{len(missed)} group(s); their intervals lie around the higher maximum. "
            "mle(like, grid=25) or more starts may find it too.",
            KeepscoreWarning,
            stacklevel=3,
        )


def _joint_field(cs: ConfidenceSet) -> LevelSet:
    """F for all parameters at once: one surface, no search."""
    low, high = cs.like.space.box(cs.region)
    found = cs.maximum

    def on_grid(theta: Floats) -> Floats:
        statistic = 2 * (found.value[:, None] - surface_by_blocks(cs.like, theta))
        return _nothing_lost(statistic) - cs.critical(theta)

    def at(theta: Floats, group: Integers) -> Floats:
        statistic = 2 * (found.value[group] - cs.like.pairs(theta, group))
        return _nothing_lost(statistic) - cs.critical(theta)

    return LevelSet(low, high, found.theta, cs.critical(found.theta), on_grid, at)


def _profile_field(cs: ConfidenceSet) -> LevelSet:
    """F for some parameters, the others profiled out: a search for every theta and group."""
    like, found = cs.like, cs.maximum
    held, _ = held_parameters(like.space, cs.parameters)
    low, high = like.space.box(cs.region)

    def at(theta: Floats, group: Integers) -> Floats:
        whole = found.theta[group].copy()
        whole[:, held] = theta
        there = restricted(like, found, np.tile(held, (len(theta), 1)), whole, group)
        statistic = 2 * (found.value[group] - there.value)
        return _nothing_lost(statistic) - cs.critical(there.theta)

    def on_grid(theta: Floats) -> Floats:
        g = like.group_count
        values = at(np.tile(theta, (g, 1)), np.repeat(np.arange(g), len(theta)))
        return values.reshape(g, len(theta))

    centre = found.theta[:, held]
    return LevelSet(low[held], high[held], centre, cs.critical(found.theta), on_grid, at)


def _nothing_lost(statistic: Floats) -> Floats:
    """Impossible theta (log-likelihood -inf or NaN) are never in a set."""
    return np.where(np.isnan(statistic), np.inf, statistic)
