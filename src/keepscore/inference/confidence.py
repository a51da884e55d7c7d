"""Confidence sets: all theta that a likelihood-ratio test at this level does not reject.

    { theta in the box : Lambda(theta) <= c }   c = chi-square quantile           (method "wilks")
                                                c = c(theta), simulated           ("calibrated")

For a subset of parameters Lambda is the profile statistic. Membership is exact; the volume (working
units) of up to three parameters is by cubic interpolation of Lambda on a grid, with the error that
level_set.py describes, and of more parameters by sampling (set_sampling.py), with its Monte Carlo
error. Intervals are profiles: each parameter alone at the level, with the chi-square quantile of
one degree of freedom, or with what the profile statistic of that parameter was calibrated to.
Nothing is computed before it is asked for, except the maximum.
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

from keepscore.checks import (
    Floats,
    as_counts,
    as_floats,
    as_theta,
    require_count,
    require_level,
)
from keepscore.errors import DomainError, KeepscoreWarning, ShapeError, unknown_name
from keepscore.inference import invariants
from keepscore.inference.level_set import POINTS_PER_SIDE, LevelSet, SetExtent, measure
from keepscore.inference.lrt import held_parameters
from keepscore.inference.maximise import maximum_of
from keepscore.inference.mle import warn_unconverged
from keepscore.inference.null_distribution import Calibration, find_calibration
from keepscore.inference.plain_data import plain
from keepscore.inference.profile import (
    Critical,
    Ends,
    faces_reached,
    profile_intervals,
    restricted,
)
from keepscore.inference.set_sampling import DRAWS, sampled_volumes
from keepscore.inference.statistic import drop
from keepscore.likelihood import Integers, Likelihood, Maximum, require_likelihood
from keepscore.space import Region, tensor_grid

METHODS = ("wilks", "calibrated")
MOST_GRIDDED = 3  # parameters of a set whose volume is by a grid
ROUGH_VOLUME = 0.1  # relative error of a sampled volume that is warned of


@dataclass(frozen=True)
class Intervals:
    """Confidence intervals: working and raw (k, 2), at_boundary (k, 2); a first axis for groups.

    kind: "profile" (each parameter alone at the level, others profiled out) or "projection" (shadow
    of the joint set, which holds all parameters at once and is therefore wider: calibrated sets
    whose calibration has no profiles). method: "wilks" or "calibrated". basis: what the likelihood
    stands on.
    """

    names: tuple[str, ...]
    kind: str
    working: Floats
    raw: Floats
    at_boundary: Any
    fitted: str = ""
    method: str = ""
    basis: str = ""

    def __post_init__(self) -> None:
        for ends in (self.working, self.raw):
            invariants.require_ordered(ends, "confidence_set.intervals")

    def __str__(self) -> str:
        if self.working.ndim == 3:
            groups = self.fitted or f"{len(self.working)} groups"
            return f"{self._what} of {', '.join(self.names)}: {groups}{self._on}"
        lines = [self._what + (f": {self.fitted}" if self.fitted else "") + self._on]
        for k, name in enumerate(self.names):
            edge = "   reaches the boundary" if self.at_boundary[k].any() else ""
            lines.append(f"  {name:<14}[{self.raw[k, 0]:.5g}, {self.raw[k, 1]:.5g}]{edge}")
        return "\n".join(lines)

    @property
    def _what(self) -> str:
        return f"{self.kind} intervals" + (f" ({self.method})" if self.method else "")

    @property
    def _on(self) -> str:
        return f"; {self.basis}" if self.basis else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "names": list(self.names),
            "kind": self.kind,
            "method": self.method,
            "working": plain(self.working),
            "raw": plain(self.raw),
            "at_boundary": plain(self.at_boundary),
            "fitted": self.fitted,
            "basis": self.basis,
        }


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
    draws: int = DRAWS

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
        return self.like.squeezed(result[:, 0] if array.ndim == 1 else result)

    def covers(self, theta: ArrayLike) -> Any:
        """Is each group's own theta, (g, k), in that group's set? (g,)"""
        rows = as_theta(theta, len(self.parameters))
        if len(rows) != self.like.group_count:
            raise ShapeError(f"One theta per group ({self.like.group_count}); got {len(rows)}.")
        inside = self._in_box(rows)
        result, i = np.zeros(len(rows), dtype=bool), np.flatnonzero(inside)
        if len(i):
            result[i] = self._field.at(rows[i], i) <= 0
        return self.like.squeezed(result)

    def mask(self, shape: int | Sequence[int] = 40) -> Any:
        """Membership on an even grid of the box, bounds included: shape, or (g, *shape)."""
        low, high = self._field.low, self._field.high
        p = len(low)
        counts = as_counts(shape, p, "points per side of a mask")
        grid = tensor_grid([np.linspace(low[k], high[k], counts[k]) for k in range(p)])
        inside = self._field.on_grid(grid) <= 0
        return self.like.squeezed(inside.reshape(self.like.group_count, *counts))

    @property
    def volume(self) -> Any:
        """Volume in working units."""
        return self.like.squeezed(self._extent.volume)

    @property
    def volume_error(self) -> Any:
        """Estimated relative error of the volume: of interpolation and counting (level_set.py), or
        of sampling (one standard error; set_sampling.py)."""
        return self.like.squeezed(self._extent.error)

    @property
    def touches_boundary(self) -> Any:
        """Does the set reach the boundary of the box, where it is cut off?"""
        return self.like.squeezed(self._extent.touches.any(axis=(1, 2)))

    @property
    def basis(self) -> str:
        """What the likelihood stands on: "exact", "surrogate" or "refined: ..."."""
        return self.like.basis

    @cached_property
    def intervals(self) -> Intervals:
        """An interval for each parameter of the set.

        Wilks: by profile, each alone at the level. Calibrated: by the calibrated profile of each
        parameter; a calibration without profiles gives projections of the joint set, which are
        wider, and `kind` says so.
        """
        space, like, found = self.like.space, self.like, self.maximum
        index = [space.index(name) for name in self.parameters]
        critical = self._profile_critical(index)
        kind = "projection" if critical is None else "profile"
        if critical is None and len(self.parameters) <= MOST_GRIDDED:
            working, at_boundary = self._extent.bounds, self._extent.touches
        else:
            ends = self._ends(index, self._joint_critical if critical is None else critical)
            working, at_boundary, found = ends.value, ends.at_boundary, ends.maximum
        low, high = space.box(self.region)
        width, function = (high - low)[index], "confidence_set.intervals"
        invariants.require_holds(working, found.theta[:, index], width, function)
        raw = np.stack(
            [space.parameters[k].to_raw(working[:, j]) for j, k in enumerate(index)], axis=1
        )
        return Intervals(
            self.parameters,
            kind,
            like.squeezed(working),
            like.squeezed(raw),
            like.squeezed(at_boundary),
            like.grouping,
            self.method,
            like.basis,
        )

    def _ends(self, index: list[int], critical: float | Critical) -> Ends:
        ends = profile_intervals(self.like, self.maximum, index, critical)
        _warn_missed(ends.missed)
        return ends

    def _profile_critical(self, index: list[int]) -> float | Critical | None:
        """Critical value of the profile statistic of one parameter; None if it is not known."""
        known, level = self.calibration, self.level
        if known is None:
            return float(stats.chi2.ppf(level, 1))
        if len(self.parameters) == 1:
            return self._joint_critical
        if any(name not in known.profiles for name in self.parameters):
            return None
        profiles = {k: known.profiles[n] for k, n in zip(index, self.parameters, strict=True)}

        def critical(theta: Floats, which: Integers) -> Floats:
            found = np.empty(len(theta))
            for k, one in profiles.items():
                mine = which == k
                found[mine] = one.critical(theta[mine], level)
            return found

        return critical

    def _joint_critical(self, theta: Floats, which: Integers) -> Floats:
        return self.critical(theta)

    @cached_property
    def _field(self) -> LevelSet:
        return (
            _joint_field(self)
            if len(self.parameters) == self.like.space.d
            else _profile_field(self)
        )

    @cached_property
    def _extent(self) -> SetExtent:
        known = self._field
        if len(self.parameters) <= MOST_GRIDDED:
            extent = measure(known, self.points)
        else:
            extent = self._sampled_extent(known)
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

    def _sampled_extent(self, known: LevelSet) -> SetExtent:
        """By sampling: no grid. The bounds are left out (NaN); intervals are by profile."""
        index = [self.like.space.index(name) for name in self.parameters]
        covariance = np.linalg.inv(self.maximum.curvature)[:, index][:, :, index]
        volume, error = sampled_volumes(known, np.linalg.inv(covariance), self.draws)
        rough = int((error > ROUGH_VOLUME).sum())
        if rough:
            warnings.warn(
                f"The volume of {rough} of {len(error)} set(s) is known to "
                f"{float(error.max()):.0%} only; confidence_set(like, draws=...) takes more draws "
                f"than {self.draws}.",
                KeepscoreWarning,
                stacklevel=4,
            )
        touches = faces_reached(self.like, self.maximum, index, self._joint_critical)
        bounds = np.full((len(volume), len(index), 2), np.nan)
        return SetExtent(volume, error, np.zeros(len(volume)), bounds, touches)

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
        return f"{text}: {self.like.grouping}; {self.basis}"

    def to_dict(self, volume: bool = True) -> dict[str, Any]:
        """Plain data for JSON, with the intervals and, unless volume=False, the volume."""
        content = {
            "level": self.level,
            "method": self.method,
            "parameters": list(self.parameters),
            "region": self.region,
            "intervals": self.intervals.to_dict(),
            "fitted": self.like.grouping,
            "basis": self.basis,
        }
        if volume:
            content |= {
                "volume": plain(self.volume),
                "volume_error": plain(self.volume_error),
                "touches_boundary": plain(self.touches_boundary),
            }
        return content


def confidence_set(
    like: Likelihood,
    level: float = 0.95,
    method: str = "wilks",
    parameters: Sequence[str] | None = None,
    calibration: Calibration | Mapping[str, Any] | None = None,
    grid: int | None = None,
    region: Region = "base",
    draws: int = DRAWS,
) -> ConfidenceSet:
    """Confidence sets at `level` for every group; with `parameters`, for those alone by profile.

    Args:
        like: A likelihood, from `model.given(xs)`, `surrogate.given(xs)` or `ks.refine`.
        level: Probability that a set holds the truth.
        method: "wilks" (chi-square quantile) or "calibrated" (quantiles by simulation).
        parameters: Names, in the space's order; the others are profiled out. None is all of them.
        calibration: From `ks.calibrate`; makes the method "calibrated". Without one, that saved
            with the surrogate is used for method="calibrated".
        grid: Points per side behind the volume of a set of up to three parameters.
        region: Box of theta, in which the sets lie.
        draws: Draws per group behind the volume of a set of four parameters or more.

    Returns:
        Sets that answer `contains`, `covers`, `volume`, `intervals`, `mask`; each is computed when
        it is asked for.

    Raises:
        MissingError: method="calibrated" without a calibration.
        DomainError: The calibration is for something else; `grid` for four parameters or more.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(6, 6))
        >>> like = model.given(model.simulate(np.zeros((40, 3)), np.random.default_rng(0)))
        >>> chosen = ks.confidence_set(like)
        >>> bool(chosen.contains([0.0, 0.0, 0.0])), chosen.basis
        (True, 'exact')
        >>> ends = chosen.intervals.working
        >>> bool((ends[:, 0] < 0).all() and (ends[:, 1] > 0).all())
        True
    """
    require_likelihood(like)
    level = require_level(level)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    _, names = held_parameters(like.space, parameters)
    if calibration is not None:
        method = "calibrated"
    known = None
    if method == "calibrated":
        known = find_calibration(like, calibration, names, region, needed=True)
    if len(names) > MOST_GRIDDED and grid is not None:
        raise DomainError(
            f"grid is for sets of up to {MOST_GRIDDED} parameters; this one has {len(names)}, and "
            "its volume is by sampling: use draws=."
        )
    points = POINTS_PER_SIDE.get(len(names), 0)
    if grid is not None:
        points = require_count(grid, "grid", minimum=4)  # cubic interpolation needs four
    draws = require_count(draws, "draws", minimum=256)
    found = maximum_of(like, region)
    warn_unconverged(found)
    return ConfidenceSet(like, level, method, names, region, found, known, points, draws)


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
        return drop(found.value[:, None], cs.like.surface_in_blocks(theta)) - cs.critical(theta)

    def at(theta: Floats, group: Integers) -> Floats:
        return drop(found.value[group], cs.like.pairs(theta, group)) - cs.critical(theta)

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
        return drop(found.value[group], there.value) - cs.critical(there.theta)

    def on_grid(theta: Floats) -> Floats:
        g = like.group_count
        values = at(np.tile(theta, (g, 1)), np.repeat(np.arange(g), len(theta)))
        return values.reshape(g, len(theta))

    centre = found.theta[:, held]
    return LevelSet(low[held], high[held], centre, cs.critical(found.theta), on_grid, at)
