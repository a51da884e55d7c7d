"""Judging a surrogate against the exact likelihood: L-test, E-test, scorecard, equivalence."""

from keepscore.evaluation.equivalence import Equivalence, equivalence
from keepscore.evaluation.estimate import Estimate, mean, root_mean_square, stratified_mean
from keepscore.evaluation.etest import ETest, ETestSet, etest, etest_set
from keepscore.evaluation.ltest import LTest, LTestSet, ltest, ltest_set
from keepscore.evaluation.metrics import METRICS, Metric, label_of, title_of
from keepscore.evaluation.scorecard import Scorecard, scorecard
from keepscore.losses import pair_losses

__all__ = [
    "METRICS",
    "ETest",
    "ETestSet",
    "Equivalence",
    "Estimate",
    "LTest",
    "LTestSet",
    "Metric",
    "Scorecard",
    "equivalence",
    "etest",
    "etest_set",
    "label_of",
    "ltest",
    "ltest_set",
    "mean",
    "pair_losses",
    "root_mean_square",
    "scorecard",
    "stratified_mean",
    "title_of",
]
