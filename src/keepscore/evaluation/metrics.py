"""The metrics of the two tests in words: one home for their names, units and meanings.

A metric is named as in results ("bce", "score_mse[mu]"); what stands in brackets is its parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher", ""]


@dataclass(frozen=True)
class Metric:
    """title: on a page. label: short, for tables and axes. better: which way, "" if neither."""

    title: str
    label: str
    unit: str
    meaning: str
    better: Better = "lower"


METRICS: dict[str, Metric] = {
    "bce": Metric(
        "Cross-entropy", "test BCE", "nats",
        "How well pairs (θ, x) that belong together are told from shuffled ones.",
    ),
    "bce_excess": Metric(
        "Excess cross-entropy", "excess over the optimum", "nats",
        "What the exact ratio would save on the same pairs.",
    ),
    "score_mse": Metric(
        "Score error, squared", "score error²", "", "Mean squared error of the gradient in θ.",
    ),
    "rmse_near": Metric(
        "Log-ratio differences, near", "differences, near (RMSE)", "nats",
        "Root mean square error of log p(x|θ') − log p(x|θ) over small moves.",
    ),
    "rmse_far": Metric(
        "Log-ratio differences, far", "differences, far (RMSE)", "nats",
        "Root mean square error of log p(x|θ') − log p(x|θ) over large moves.",
    ),
    "lrt_mse": Metric(
        "Test statistic error, squared", "LRT statistic, error²", "",
        "Likelihood-ratio statistic at the truth, against the exact one.",
    ),
    "coverage": Metric(
        "Coverage of the 95% sets", "coverage of 95% sets", "",
        "How often the sets held the truth; 0.95 is right.", "",
    ),
    "volume": Metric(
        "Volume of the confidence sets", "volume of 95% sets", "working units",
        "Near the exact one is good; smaller is not better unless coverage holds.", "",
    ),
    "mle_mse": Metric(
        "Estimate error, squared", "MLE error² (median)", "working units",
        "Median over θ of the mean squared distance to the exact estimate.",
    ),
}  # fmt: skip


def title_of(metric: str) -> str:
    """A metric with its parameter: score_mse[mu] is "Score error, squared, mu"."""
    name, parameter = split(metric)
    title = METRICS[name].title if name in METRICS else name
    return f"{title}, {parameter}" if parameter else title


def label_of(metric: str) -> str | None:
    """The short label of a metric with its parameter; None if it is not one to show."""
    name, parameter = split(metric)
    if name.endswith("_exact") and name.removesuffix("_exact") in METRICS:
        return "the same, exact likelihood"
    if name not in METRICS:
        return None
    label = METRICS[name].label
    return f"{label}, {parameter}" if parameter else label


def split(metric: str) -> tuple[str, str]:
    """ "score_mse[mu]" as ("score_mse", "mu"); without a parameter the second is empty."""
    name, _, parameter = metric.partition("[")
    return name, parameter.rstrip("]")
