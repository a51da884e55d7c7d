"""Judging a surrogate against the exact likelihood: L-test, E-test, scorecard, equivalence."""

from keepscore.evaluation.equivalence import Equivalence, equivalence
from keepscore.evaluation.estimate import Estimate
from keepscore.evaluation.etest import ETest, ETestSet, etest, etest_set
from keepscore.evaluation.ltest import LTest, LTestSet, ltest, ltest_set
from keepscore.evaluation.scorecard import Scorecard, scorecard

__all__ = [
    "ETest",
    "ETestSet",
    "Equivalence",
    "Estimate",
    "LTest",
    "LTestSet",
    "Scorecard",
    "equivalence",
    "etest",
    "etest_set",
    "ltest",
    "ltest_set",
    "scorecard",
]
