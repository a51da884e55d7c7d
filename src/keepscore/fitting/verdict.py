"""What a surrogate is good for, in words: good, usable with calibration, or not good enough.

    good                     it meets its target
    usable with calibration  it does not, but calibrated sets hold the truth as often as they say,
                             and estimates scatter less than twice as much as the exact ones (where
                             there is no exact likelihood: they explain a tenth of theta at least)
    not good enough          neither

Targets: "lrt" is the squared error of the likelihood-ratio statistic, "coverage" the distance of
the coverage of 95% sets from the exact likelihood's (from 95% without one), "r2" the least R^2 of
the score over the parameters, which must be at least as large as its value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from keepscore.checks import as_number, require_choice
from keepscore.errors import DomainError
from keepscore.evaluation.estimate import Estimate
from keepscore.fitting.yardstick import LEVEL, Measured
from keepscore.quality import Quality

Grade = Literal["good", "usable with calibration", "not good enough"]
TARGETS = {"lrt": 0.1, "coverage": 0.02, "r2": 0.9}
INEFFICIENT = 2.0
UNINFORMED = 0.1
SLACK = 0.02  # of calibrated coverage, beside three standard errors


@dataclass(frozen=True)
class Target:
    """What to reach: a kind of `TARGETS` and its value."""

    kind: str = "lrt"
    value: float = TARGETS["lrt"]

    @classmethod
    def of(cls, kind: str, value: float | None) -> Target:
        """A target by name, with its usual value where none is given."""
        require_choice(kind, "target", TARGETS)
        number = TARGETS[kind] if value is None else as_number(value, "the value of a target")
        if not (math.isfinite(number) and number > 0) or (kind == "r2" and number >= 1):
            raise DomainError(f"The value of target {kind!r} must be positive; got {number!r}.")
        return cls(kind, number)

    def loss(self, found: Measured, quality: Quality | None) -> float | None:
        """What is compared with `limit`: smaller is better; None where it cannot be measured."""
        if self.kind == "lrt":
            return None if found.lrt_error is None else found.lrt_error.value
        if self.kind == "coverage":
            exact = LEVEL if found.coverage_exact is None else found.coverage_exact.value
            return abs(found.coverage.value - exact)
        if quality is None or quality.score_r2 is None or quality.score_kind != "exact":
            return None
        return 1 - min(quality.score_r2)

    @property
    def limit(self) -> float:
        """The largest `loss` that meets the target."""
        return 1 - self.value if self.kind == "r2" else self.value

    def __str__(self) -> str:
        if self.kind == "r2":
            return f"score R² of every parameter at least {self.value:g}"
        what = {"lrt": "squared LRT error", "coverage": "coverage off by"}[self.kind]
        return f"{what} at most {self.value:g}"


@dataclass(frozen=True)
class Verdict:
    """A grade and the sentence that gives its reasons."""

    grade: Grade
    reasons: str

    def __str__(self) -> str:
        return f"{self.grade}: {self.reasons}"


def judge(
    target: Target,
    found: Measured,
    quality: Quality | None,
    calibrated: Estimate | None,
    advice: str,
    names: Sequence[str],
) -> Verdict:
    """The verdict on a surrogate.

    Args:
        target: What it should have reached.
        found: What was measured.
        quality: What training measured.
        calibrated: Coverage of calibrated 95% sets on groups that were not used to calibrate.
        advice: What to try where it is not good enough.
        names: Of the parameters.
    """
    loss = target.loss(found, quality)
    if loss is not None and loss <= target.limit:
        return Verdict("good", f"{found.line()}; asked for: {target}")
    told = found.line() if loss is not None else f"{target} cannot be measured here; {found.line()}"
    if found.inefficiency is not None:
        ratio = max(found.inefficiency)
        told += f"; estimates scatter {math.sqrt(ratio):.2f} times as much as exact ones"
        sharp = ratio < INEFFICIENT
    else:
        vague = [n for n, share in zip(names, found.informed, strict=True) if share < UNINFORMED]
        sharp = not vague
        if vague:
            told += (
                f"; estimates of {', '.join(vague)} say no more than the middle of the box (data "
                "of this size may not hold more: try larger groups)"
            )
    if calibrated is None:
        return Verdict("not good enough", f"{told}; not calibrated; {advice}")
    told += f"; calibrated 95% sets hold the truth in {calibrated} of groups"
    covers = abs(calibrated.value - LEVEL) <= max(SLACK, 3 * calibrated.se)
    if covers and sharp:
        return Verdict("usable with calibration", f"{told}; to meet the target, {advice}")
    return Verdict("not good enough", f"{told}; {advice}")
