"""The metrics of the two tests in words: one home for their names, units and meanings.

A metric is named as in results ("bce", "score_mse[mu]"); what stands in brackets is its parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher", ""]


@dataclass(frozen=True)
class Metric:
    """A metric in words.

    title: on a page. label: short, for a line of a table. unit: of its values, "" if it has none.
    meaning: one sentence. better: which way, "" if neither. panel: over a picture. column: over a
    narrow column. brief: within a sentence.
    """

    title: str
    label: str
    unit: str
    meaning: str
    panel: str
    column: str
    brief: str
    better: Better = "lower"


METRICS: dict[str, Metric] = {
    "bce": Metric(
        "Cross-entropy", "test BCE", "nats",
        "How well pairs (θ, x) that belong together are told from shuffled ones.",
        "test BCE", "test BCE", "test BCE",
    ),
    "bce_excess": Metric(
        "Excess cross-entropy", "excess over the optimum", "nats",
        "What the exact ratio would save on the same pairs.",
        "excess BCE", "excess", "excess BCE",
    ),
    "score_mse": Metric(
        "Score error, squared", "score error²", "", "Mean squared error of the gradient in θ.",
        "score error²", "score error²", "score error",
    ),
    "rmse_near": Metric(
        "Log-ratio differences, near", "differences, near (RMSE)", "nats",
        "Root mean square error of log p(x|θ') − log p(x|θ) over small moves.",
        "log-ratio differences, near", "near RMSE", "near differences",
    ),
    "rmse_far": Metric(
        "Log-ratio differences, far", "differences, far (RMSE)", "nats",
        "Root mean square error of log p(x|θ') − log p(x|θ) over large moves.",
        "log-ratio differences, far", "far RMSE", "far differences",
    ),
    "lrt_mse": Metric(
        "Test statistic error, squared", "LRT statistic, error²", "",
        "Likelihood-ratio statistic at the truth, against the exact one.",
        "LRT statistic, error²", "LRT MSE", "LRT error",
    ),
    "coverage": Metric(
        "Coverage of the 95% sets", "coverage of 95% sets", "",
        "How often the sets held the truth; 0.95 is right.",
        "coverage of 95% sets", "coverage", "coverage", "",
    ),
    "volume": Metric(
        "Volume of the confidence sets", "volume of 95% sets", "working units",
        "Near the exact one is good; smaller is not better unless coverage holds.",
        "volume of 95% sets", "volume", "volume", "",
    ),
    "mle_mse": Metric(
        "Estimate error, squared", "MLE error² (median)", "working units",
        "Median over θ of the mean squared distance to the exact estimate.",
        "MLE error² (median)", "MLE error²", "MLE error",
    ),
}  # fmt: skip


def title_of(metric: str) -> str:
    """A metric with its parameter: score_mse[mu] is "Score error, squared, mu"."""
    name, parameter = split(metric)
    return _with(METRICS[name].title if name in METRICS else name, parameter)


def label_of(metric: str) -> str | None:
    """The short label of a metric with its parameter; None if it is not one to show."""
    name, parameter = split(metric)
    if name.endswith("_exact") and name.removesuffix("_exact") in METRICS:
        return "the same, exact likelihood"
    return _with(METRICS[name].label, parameter) if name in METRICS else None


def panel_of(metric: str) -> str:
    """What stands over a picture of a metric."""
    name, parameter = split(metric)
    return _with(METRICS[name].panel, parameter)


def axis_of(metric: str) -> str:
    """What stands beside an axis of a metric: its title and unit."""
    known = METRICS[split(metric)[0]]
    return f"{title_of(metric)} ({known.unit})" if known.unit else title_of(metric)


def split(metric: str) -> tuple[str, str]:
    """ "score_mse[mu]" as ("score_mse", "mu"); without a parameter the second is empty."""
    name, _, parameter = metric.partition("[")
    return name, parameter.rstrip("]")


def _with(words: str, parameter: str) -> str:
    return f"{words}, {parameter}" if parameter else words
