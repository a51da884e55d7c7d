"""Likelihood-ratio tests: Lambda(theta0) = 2 (l_max - l(theta0)), never negative.

Under theta0, and with the true likelihood, Lambda is asymptotically chi-square with as many degrees
of freedom as parameters tested (Wilks); parameters not tested are profiled out. With a calibration
the null distribution was simulated instead, and holds whatever the likelihood's quality. A theta0
that turns out better than the maximum found shows that the search missed: it starts again there.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from keepscore.checks import Floats, as_floats, require_finite
from keepscore.errors import DomainError, KeepscoreWarning, ShapeError
from keepscore.inference import invariants
from keepscore.inference.bfgs import Summit
from keepscore.inference.maximise import improved, maximum_of
from keepscore.inference.mle import warn_unconverged
from keepscore.inference.null_distribution import Calibration, find_calibration
from keepscore.inference.plain_data import plain
from keepscore.inference.profile import restricted
from keepscore.inference.statistic import statistic as checked_statistic
from keepscore.likelihood import Likelihood, Maximum, require_likelihood
from keepscore.space import Region, Space


@dataclass(frozen=True)
class LRT:
    """A likelihood-ratio test. One group: scalars; g groups: arrays of g.

    p_value is the chi-square one; calibrated_p_value is None without a calibration. `null` is the
    best theta under the null hypothesis, (d,) or (g, d). `restarted`: theta0 beat the first search.
    fitted: what one theta was fitted to, in words. basis: what the likelihood stands on.
    """

    parameters: tuple[str, ...]
    statistic: Any
    degrees_of_freedom: int
    p_value: Any
    calibrated_p_value: Any
    null: Floats
    restarted: Any
    maximum: Maximum = field(repr=False, compare=False)
    fitted: str = ""
    basis: str = ""

    def __post_init__(self) -> None:
        name = "a likelihood-ratio statistic"
        invariants.require_not_negative(self.statistic, "lrt", name)
        invariants.require_shares(self.p_value, "lrt")
        if self.calibrated_p_value is not None:
            invariants.require_shares(self.calibrated_p_value, "lrt", "a calibrated p-value")

    def __str__(self) -> str:
        what = ", ".join(self.parameters)
        if np.ndim(self.statistic):
            rejected = int((np.asarray(self.p_value) < 0.05).sum())
            return (
                f"Likelihood-ratio test of {what}: "
                f"{self.fitted or f'{len(self.statistic)} groups'}; "
                f"{rejected} with a chi-square p-value below 0.05"
                + (f"; {self.basis}" if self.basis else "")
            )
        text = (
            f"Likelihood-ratio test of {what}: statistic {self.statistic:.4g}, "
            f"{self.degrees_of_freedom} d.f., p = {self.p_value:.4g}"
        )
        if self.calibrated_p_value is not None:
            text += f" (calibrated: {self.calibrated_p_value:.4g})"
        return "; ".join(part for part in (text, self.fitted, self.basis) if part)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an infinite statistic (impossible data) is None."""
        return {
            "parameters": list(self.parameters),
            "statistic": plain(self.statistic),
            "degrees_of_freedom": self.degrees_of_freedom,
            "p_value": plain(self.p_value),
            "calibrated_p_value": plain(self.calibrated_p_value),
            "null": plain(self.null),
            "restarted": plain(self.restarted),
            "fitted": self.fitted,
            "basis": self.basis,
        }


def lrt(
    like: Likelihood,
    theta0: ArrayLike | Mapping[str, float],
    parameters: Sequence[str] | None = None,
    calibration: Calibration | Mapping[str, Any] | None = None,
    region: Region = "base",
) -> LRT:
    """Test theta = theta0, or only the named parameters, for every group.

    Args:
        like: A likelihood, from `model.given(xs)`, `surrogate.given(xs)` or `ks.refine`.
        theta0: The null value, working: (d,) for all groups or (g, d), one per group; with k
            `parameters` (k,), (g, k), or a mapping from name to value.
        parameters: Names of the parameters tested, in the space's order; the others are profiled
            out. None tests all of them at once.
        calibration: Null distribution by simulation (`ks.calibrate`); without one, that saved with
            the surrogate is used where it applies.
        region: Box of theta.

    Returns:
        The statistic, the chi-square p-value and, with a calibration, the calibrated one.

    Raises:
        ShapeError: theta0 does not fit the parameters and groups.
        DomainError: theta0 lies outside the box, or the calibration given is for something else.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(6, 6))
        >>> truth = model.space.grid(3)[13]  # the centre of the box
        >>> xs = model.simulate(np.tile(truth, (20, 1)), np.random.default_rng(0))
        >>> like = model.given(xs)
        >>> bool(ks.lrt(like, truth).p_value > 0.01)
        True
        >>> bool(ks.lrt(like, {"l_x": 0.9}, parameters=["l_x"]).p_value < 0.01)
        True
    """
    require_likelihood(like)
    held, names = held_parameters(like.space, parameters)
    rows = _null_values(like, _fill(like, theta0, held, region), region)
    calibration = find_calibration(like, calibration, names, region)
    found = maximum_of(like, region)
    null, found, restarted = null_maximum(like, found, held, rows)
    warn_unconverged(found)
    _warn_outside(like, null.theta)
    statistic = checked_statistic(found.value, null.value, "lrt")
    df = int(held.sum())
    calibrated = None if calibration is None else calibration.p_value(statistic, null.theta)
    return LRT(
        parameters=names,
        statistic=like.squeezed(statistic),
        degrees_of_freedom=df,
        p_value=like.squeezed(stats.chi2.sf(statistic, df)),
        calibrated_p_value=None if calibrated is None else like.squeezed(calibrated),
        null=like.squeezed(null.theta),
        restarted=like.squeezed(restarted),
        maximum=found,
        fitted=like.grouping,
        basis=like.basis,
    )


def null_maximum(
    like: Likelihood, found: Maximum, held: np.ndarray, theta0: Floats
) -> tuple[Summit, Maximum, np.ndarray]:
    """The best theta of every group under the null, and the maximum, searched again if beaten."""
    group = np.arange(like.group_count)
    if held.all():
        # Nothing to profile: values alone, no gradients.
        value = np.asarray(like.pairs(theta0, group), dtype=float)
        value = np.where(np.isnan(value), -np.inf, value)
        null = Summit(theta0, value, theta0, found.curvature, np.isfinite(value), len(group))
    else:
        null = restricted(like, found, np.tile(held, (len(group), 1)), theta0, group)
    better, beaten = improved(like, found, null.theta, null.value)
    return null, better, beaten


def held_parameters(
    space: Space, parameters: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Which coordinates a test holds fixed, (d,) bool, and their names in the space's order."""
    if parameters is None:
        return np.ones(space.d, dtype=bool), space.names
    listed = isinstance(parameters, (list, tuple))
    if not listed or not parameters or not all(isinstance(name, str) for name in parameters):
        raise DomainError(f"parameters must be a list of names; got {parameters!r}.")
    held = np.zeros(space.d, dtype=bool)
    held[[space.index(name) for name in parameters]] = True
    if held.sum() != len(parameters):
        raise DomainError(f"Each parameter once; got {', '.join(parameters)}.")
    names = tuple(name for name, h in zip(space.names, held, strict=True) if h)
    if tuple(parameters) != names:
        raise DomainError(
            f"Name the parameters in the order of the space, {', '.join(names)}; "
            f"got {', '.join(parameters)}."
        )
    return held, names


def _fill(
    like: Likelihood, theta0: ArrayLike | Mapping[str, float], held: np.ndarray, region: Region
) -> Floats:
    """theta0 of the held parameters as whole vectors; the others' place is taken by the centre."""
    names = [n for n, h in zip(like.space.names, held, strict=True) if h]
    if isinstance(theta0, Mapping):
        if set(theta0) != set(names):
            raise ShapeError(
                f"theta0 must name exactly {', '.join(names)}; got {', '.join(map(str, theta0))}."
            )
        theta0 = [theta0[name] for name in names]
    if held.all():
        return as_floats(theta0, "theta0")
    array, k = as_floats(theta0, "theta0"), len(names)
    if array.shape not in ((k,), (like.group_count, k)):
        raise ShapeError(
            f"theta0 must hold {', '.join(names)}: shape ({k},) or ({like.group_count}, {k}); "
            f"got {array.shape}."
        )
    low, high = like.space.box(region)
    whole = np.array(np.broadcast_to((low + high) / 2, (*array.shape[:-1], like.space.d)))
    whole[..., held] = array
    return whole


def _null_values(like: Likelihood, theta0: Floats, region: Region) -> Floats:
    """A null value for every group, (g, d): given once (d,) or per group (g, d), and inside."""
    d = like.space.d
    if theta0.shape not in ((d,), (like.group_count, d)):
        raise ShapeError(
            f"theta0 must have shape ({d},), or ({like.group_count}, {d}) for one per group; "
            f"got {theta0.shape}."
        )
    require_finite(theta0, "theta0")
    rows = np.array(np.broadcast_to(theta0, (like.group_count, d)))
    inside = like.space.contains(rows, region)
    if not inside.all():
        low, high = like.space.box(region)
        box = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(low, high, strict=True))
        raise DomainError(
            f"theta0 must lie in the {region} box {box} of the working parameters "
            f"({', '.join(like.space.working_names)}); got {rows[~inside][0].tolist()}."
        )
    return np.clip(rows, *like.space.box(region))


def _warn_outside(like: Likelihood, theta: Floats) -> None:
    """Say so where a null value lies beyond what was refined: there the surrogate speaks alone."""
    if like.refinement is None:
        return
    inside = like.refinement.contains(theta, np.arange(len(theta)))
    if not inside.all():
        warnings.warn(
            f"The null value of {int((~inside).sum())} of {len(inside)} group(s) lies outside the "
            "region that was refined (far outside the confidence set): its statistic is large, and "
            "is the surrogate's, not the exact one.",
            KeepscoreWarning,
            stacklevel=3,
        )
