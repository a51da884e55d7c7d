"""The three verdicts, and targets that cannot be."""

import pytest

from keepscore.errors import DomainError, UnknownNameError
from keepscore.evaluation.estimate import Estimate
from keepscore.fitting.verdict import Target, judge
from keepscore.fitting.yardstick import Measured
from keepscore.quality import Quality

NAMES = ("mean", "sd")
COVERS, SHORT = Estimate(0.945, 0.01), Estimate(0.80, 0.02)


def found(error=0.05, coverage=0.94, inefficiency=1.1, informed=0.9):
    exact = error is not None
    return Measured(
        200,
        10,
        Estimate(error, error / 10) if exact else None,
        Estimate(coverage, 0.015),
        Estimate(0.95, 0.015) if exact else None,
        (1.0, inefficiency) if exact else None,
        (0.95, informed),
    )


def quality(least):
    return Quality(0.3, 100, (0.99, least), "exact", "ASA", True)


@pytest.mark.parametrize(
    ("measured", "calibrated", "grade"),
    [
        (found(0.05), COVERS, "good"),
        (found(0.5), COVERS, "usable with calibration"),
        (found(0.5), SHORT, "not good enough"),
        (found(0.5, inefficiency=2.5), COVERS, "not good enough"),
        (found(0.5), None, "not good enough"),
        (found(None), COVERS, "usable with calibration"),
        (found(None, informed=0.05), COVERS, "not good enough"),
        (found(None), SHORT, "not good enough"),
    ],
)
def test_grades(measured, calibrated, grade):
    verdict = judge(Target(), measured, None, calibrated, "simulate more", NAMES)
    assert verdict.grade == grade
    assert str(verdict).startswith(f"{grade}: ")
    assert ("simulate more" in str(verdict)) == (grade != "good")
    vague = measured.inefficiency is None and measured.informed[1] < 0.1
    assert ("estimates of sd say no more" in str(verdict)) == vague


def test_targets_by_coverage_and_by_score():
    coverage = Target.of("coverage", None)
    assert judge(coverage, found(5.0, 0.94), None, None, "", NAMES).grade == "good"
    assert judge(coverage, found(5.0, 0.91), None, None, "", NAMES).grade == "not good enough"
    r2 = Target.of("r2", None)
    assert judge(r2, found(5.0), quality(0.95), None, "", NAMES).grade == "good"
    assert judge(r2, found(5.0), quality(0.85), None, "", NAMES).grade == "not good enough"
    assert judge(r2, found(5.0), None, None, "", NAMES).grade == "not good enough"


def test_joint_scores_are_no_measure():
    joint = Quality(0.3, 100, (0.99, 0.99), "joint", "ASA", True)
    assert Target.of("r2", 0.9).loss(found(), joint) is None


@pytest.mark.parametrize(("kind", "value"), [("lrt", 0.0), ("lrt", float("nan")), ("r2", 1.0)])
def test_values_that_cannot_be_met(kind, value):
    with pytest.raises(DomainError, match="must be positive"):
        Target.of(kind, value)


def test_an_unknown_target_is_named():
    with pytest.raises(UnknownNameError, match="target"):
        Target.of("bias", None)
