"""The null distribution of the likelihood-ratio statistic as a function of theta: a calibration.

    S(lambda | theta) = P(Lambda(theta) > lambda | theta)     simulated, not assumed chi-square

Quantiles of log Lambda at a few levels are polynomials in theta (scaled to [-1, 1]); between them
log S is linear in lambda, which is exact for two degrees of freedom. Groups held out of that fit
then correct it: with h_1 <= ... <= h_n their values of S, a new group's p-value is

    p = (1 + #{h_i <= S(Lambda | theta)}) / (n + 1)                (distributional conformal)

so sets {theta : p > 1 - level} cover with probability at least `level`, on average over theta drawn
as in the calibration, for any n and however poor the likelihood or the fit: only exchangeability is
used. How even the coverage is over theta depends on the fit; `local_coverage` shows it. References:
Dalmasso et al. 2021 (likelihood-free frequentist inference), Chernozhukov et al. 2021.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import Floats, as_floats, as_theta, require_level
from keepscore.errors import DomainError, FormatError, MissingError
from keepscore.inference import invariants
from keepscore.likelihood import Likelihood
from keepscore.space import REGIONS, Region, Space

FORMAT, VERSION = "keepscore-calibration", 1
CHECKED = ("level", "wilks", "fitted", "corrected", "standard_error")
LOWEST_LOG = -600.0  # S stays a positive number however far out the statistic lies


@dataclass(frozen=True)
class NullFit:
    """Quantiles of Lambda as exp(polynomial): coefficients (levels, terms), powers (terms, d)."""

    space: Space
    region: Region
    levels: Floats
    powers: np.ndarray
    coefficients: Floats

    def quantiles(self, theta: Floats) -> Floats:
        """Of Lambda at each level, (m, levels), strictly rising."""
        values = features(self.space, self.region, self.powers, theta) @ self.coefficients.T
        # Polynomials fitted one level at a time may cross: rearrange (Chernozhukov et al. 2010).
        rising = np.sort(np.exp(np.clip(values, -30, 30)), axis=1)
        return rising * (1 + 1e-9 * np.arange(1, rising.shape[1] + 1))

    def survival(self, statistic: Floats, theta: Floats) -> Floats:
        """S(statistic | theta), row by row (m,); linear in log S, also beyond the last level."""
        knots, logs = self._knots(theta)
        segment = np.clip((statistic[:, None] >= knots).sum(axis=1), 1, knots.shape[1] - 1)
        row = np.arange(len(theta))
        left, right = knots[row, segment - 1], knots[row, segment]
        share = (statistic - left) / (right - left)
        log_s = logs[segment - 1] + share * (logs[segment] - logs[segment - 1])
        return np.exp(np.maximum(log_s, LOWEST_LOG))

    def inverse(self, survival: float, theta: Floats) -> Floats:
        """The statistic with this S at each theta: (m,)."""
        knots, logs = self._knots(theta)
        segment = int(np.clip((math.log(survival) <= logs).sum(), 1, len(logs) - 1))
        share = (math.log(survival) - logs[segment - 1]) / (logs[segment] - logs[segment - 1])
        return knots[:, segment - 1] + share * (knots[:, segment] - knots[:, segment - 1])

    def _knots(self, theta: Floats) -> tuple[Floats, Floats]:
        knots = np.column_stack([np.zeros(len(theta)), self.quantiles(theta)])
        return knots, np.concatenate([[0.0], np.log1p(-self.levels)])


@dataclass(frozen=True)
class Calibration:
    """Critical values and p-values that hold for one likelihood and one group size.

    `check` holds what the held-out groups showed: coverage of Wilks sets, of the fitted quantiles
    before the correction, with standard errors, and after it by part of the space. `profiles`: the
    same for the profile statistic of each parameter alone, by name; intervals rest on them.
    """

    fit: NullFit
    parameters: tuple[str, ...]
    group_size: int
    held_out: Floats
    check: Mapping[str, Any] = field(default_factory=dict)
    profiles: Mapping[str, Calibration] = field(default_factory=dict)

    @property
    def space(self) -> Space:
        return self.fit.space

    def p_value(self, statistic: ArrayLike, theta: ArrayLike) -> Floats:
        """P-values of statistics (m,) at theta (m, d)."""
        rows, values = as_theta(theta, self.space.d), as_floats(statistic, "statistic")
        below = np.searchsorted(self.held_out, self.fit.survival(values, rows), side="right")
        found = (1 + below) / (len(self.held_out) + 1)
        invariants.require_shares(found, "Calibration.p_value")
        return found

    def critical(self, theta: ArrayLike, level: float) -> Floats:
        """Largest statistic that keeps theta (m, d) in the set at this level: (m,)."""
        level = require_level(level)
        # p > 1 - level  <=>  at least k held-out values lie below  <=>  S >= h_k.
        k = math.floor((1 - level) * (len(self.held_out) + 1) + 1e-9)
        if k == 0:
            raise DomainError(
                f"Level {level} needs at least {math.ceil(1 / (1 - level)) - 1} held-out groups; "
                f"this calibration has {len(self.held_out)}. Calibrate with a larger n."
            )
        value = self.fit.inverse(float(self.held_out[k - 1]), as_theta(theta, self.space.d))
        sound = np.isfinite(value) & (value >= 0)
        law = "a critical value must be finite and not negative"
        invariants.require(sound, "Calibration.critical", law, value)
        return value

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` turns it back."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "space": self.space.to_dict(),
            "region": self.fit.region,
            "parameters": list(self.parameters),
            "group_size": self.group_size,
            "levels": self.fit.levels.tolist(),
            "powers": self.fit.powers.tolist(),
            "coefficients": self.fit.coefficients.tolist(),
            "held_out": self.held_out.tolist(),
            "check": dict(self.check),
            "profiles": {name: one.to_dict() for name, one in self.profiles.items()},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Calibration:
        """From `to_dict`; anything else is a FormatError."""
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise FormatError("Not a calibration.")
        if content.get("version") != VERSION:
            raise FormatError(
                f"Calibration of format version {content.get('version')!r}; "
                f"this version of keepscore reads {VERSION}."
            )
        try:
            space = Space.from_dict(content["space"])
            fit = NullFit(
                space,
                content["region"],
                np.array(content["levels"], dtype=float),
                np.array(content["powers"], dtype=int).reshape(-1, space.d),
                np.array(content["coefficients"], dtype=float),
            )
            held_out = np.array(content["held_out"], dtype=float)
            names, size = tuple(content["parameters"]), int(content["group_size"])
            check = dict(content.get("check", {}))
            check |= {key: float(check[key]) for key in CHECKED if check}
        except Exception as error:  # what is forged can fail in any way
            raise FormatError(f"A damaged calibration: {error}.") from None
        stored = content.get("profiles", {})
        if not isinstance(stored, Mapping):
            raise FormatError("A damaged calibration: its profiles are no object.")
        if any(isinstance(one, Mapping) and one.get("profiles") for one in stored.values()):
            raise FormatError("A damaged calibration: profiles have no profiles of their own.")
        profiles = {name: cls.from_dict(one) for name, one in stored.items()}
        result = cls(fit, names, size, held_out, check, profiles)
        result._require_sound()
        return result

    def _require_sound(self) -> None:
        fit, h = self.fit, self.held_out
        sound = (
            fit.levels.ndim == 1
            and fit.coefficients.shape == (len(fit.levels), len(fit.powers))
            and np.isfinite(fit.coefficients).all()
            and len(fit.levels) > 0
            and bool(
                np.all((fit.levels > 0) & (fit.levels < 1)) and np.all(np.diff(fit.levels) > 0)
            )
            and h.ndim == 1
            and len(h) > 0
            and bool(np.all((h > 0) & (h <= 1)) and np.all(np.diff(h) >= 0))
            and bool(np.all(fit.powers >= 0))
        )
        named = all(name in fit.space.names for name in self.parameters)
        same = all(
            one.parameters == (name,)
            and name in self.parameters
            and (one.space, one.fit.region) == (fit.space, fit.region)
            and one.group_size == self.group_size
            for name, one in self.profiles.items()
        )
        if not (sound and named and same and fit.region in REGIONS):
            raise FormatError("A damaged calibration: its numbers do not fit together.")

    def __str__(self) -> str:
        c = self.check
        degree = int(self.fit.powers.sum(axis=1).max())
        text = (
            f"Calibration for {', '.join(self.parameters)}, groups of {self.group_size}: quantiles "
            f"of degree {degree}, {len(self.held_out)} groups held out"
        )
        if c:
            text += (
                f"\n  held-out coverage at {c['level']:g}: Wilks {c['wilks']:.3f}, fitted "
                f"{c['fitted']:.3f}, corrected {c['corrected']:.3f}, "
                f"s.e. {c['standard_error']:.3f}"
            )
        if self.profiles:
            text += f"\n  profiles, for intervals: {', '.join(self.profiles)}"
        return text


def features(space: Space, region: Region, powers: np.ndarray, theta: Floats) -> Floats:
    """Monomials of theta scaled to [-1, 1] over the region: (m, terms)."""
    low, high = space.box(region)
    scaled = np.clip((2 * theta - low - high) / (high - low), -1.0, 1.0)
    return np.prod(scaled[:, None, :] ** powers, axis=2)


def monomials(d: int, degree: int) -> np.ndarray:
    """Powers of all monomials of at most this total degree: (terms, d)."""
    every = itertools.product(range(degree + 1), repeat=d)
    return np.array([p for p in every if sum(p) <= degree], dtype=int)


def find_calibration(
    like: Likelihood,
    given: Calibration | Mapping[str, Any] | None,
    parameters: tuple[str, ...],
    region: Region,
    needed: bool = False,
) -> Calibration | None:
    """The calibration given, or else the one that came with the likelihood, if it applies.

    One that was given or is needed and does not apply is an error; the saved one is else ignored.
    """
    content = like.calibration if given is None else given
    if content is None:
        if needed:
            raise MissingError(
                "A calibrated set needs a calibration: pass calibration=ks.calibrate(...), or use "
                "a surrogate saved with one."
            )
        return None
    calibration = content if isinstance(content, Calibration) else Calibration.from_dict(content)
    if len(parameters) == 1 and calibration.parameters != parameters:
        calibration = calibration.profiles.get(parameters[0], calibration)
    reasons = []
    if calibration.group_size != like.group_size:
        reasons.append(f"groups of {calibration.group_size}, not {like.group_size}")
    if calibration.parameters != parameters:
        reasons.append(f"{', '.join(calibration.parameters)}, not {', '.join(parameters)}")
    if calibration.fit.region != region:
        reasons.append(f"the {calibration.fit.region} box, not the {region} box")
    if calibration.space != like.space:
        reasons.append("another parameter space")
    if not reasons:
        return calibration
    if given is None and not needed:
        return None
    raise DomainError(
        f"This calibration is for {'; and for '.join(reasons)}. Calibrate again for what you test."
    )
