"""Judging a surrogate against the exact likelihood: L-test, E-test, scorecard, equivalence."""

from keepscore.evaluation.equivalence import Equivalence, equivalence
from keepscore.evaluation.estimate import Estimate, mean, root_mean_square, stratified_mean
from keepscore.evaluation.etest import ETest, ETestSet, etest, etest_set
from keepscore.evaluation.ltest import LTest, LTestSet, ltest, ltest_set
from keepscore.evaluation.metrics import METRICS, Metric, label_of, title_of
from keepscore.evaluation.scorecard import Scorecard, scorecard
from keepscore.evaluation.training_run import Epoch, Run, run_of
from keepscore.losses import pair_losses

__all__ = [
    "METRICS",
    "ETest",
    "ETestSet",
    "Epoch",
    "Equivalence",
    "Estimate",
    "LTest",
    "LTestSet",
    "Metric",
    "Run",
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
    "run_of",
    "scorecard",
    "stratified_mean",
    "title_of",
]
