"""Short names of metrics, for tables and axes."""

from __future__ import annotations

WORDS = {
    "bce": "test BCE",
    "bce_excess": "excess over the optimum",
    "score_mse": "score error²",
    "rmse_near": "differences, near (RMSE)",
    "rmse_far": "differences, far (RMSE)",
    "lrt_mse": "LRT statistic, error²",
    "coverage": "coverage of 95% sets",
    "coverage_exact": "the same, exact likelihood",
    "volume": "volume of 95% sets",
    "volume_exact": "the same, exact likelihood",
    "mle_mse": "MLE error² (median)",
}


def title(metric: str) -> str | None:
    """Words for a metric such as "bce" or "score_mse[eps]"; None if it is not one to show."""
    name, _, parameter = metric.partition("[")
    if name not in WORDS:
        return None
    return f"{WORDS[name]}, {parameter[:-1]}" if parameter else WORDS[name]
