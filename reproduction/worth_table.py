"""What ASA at N is worth in BCE simulations, for every metric, network and N of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from keepscore import equivalence
from keepscore.evaluation import Equivalence, label_of
from keepscore.models import build
from reproduction.cases import find_case
from reproduction.results import Result, find

# Metrics that have an equivalence: times, coverage and volume do not.
COMPARED = ("bce", "score_mse", "rmse_near", "rmse_far", "lrt_mse", "mle_mse")
LINEAR = ("bce",)  # has no natural zero: interpolated as it is


@dataclass(frozen=True)
class MetricWorth:
    """One equivalence and what it is of."""

    network: str
    metric: str
    label: str
    found: Equivalence


def worth_table(results: list[Result]) -> list[MetricWorth]:
    """All equivalences that can be had: networks with BCE at two N or more, and ASA at some."""
    table = []
    networks = list(dict.fromkeys(r.cell.network for r in results))
    for network in networks:
        bce = find(results, network=network, loss="bce")
        sizes = sorted({r.cell.n for r in bce})
        if len(sizes) < 2:
            continue
        for n in sorted({r.cell.n for r in find(results, network=network, loss="asa")}):
            asa = find(results, network=network, loss="asa", n=n)
            for metric, label in _labelled(asa[0]):
                table.append(MetricWorth(network, metric, label, _one(bce, sizes, asa, metric)))
    return table


def _labelled(result: Result) -> Iterator[tuple[str, str]]:
    """Metrics that have an equivalence, and words for them."""
    names = build(find_case(result.cell.case).model).space.names
    for key in COMPARED:
        of_each = (f"{key}[{name}]" for name in names)
        for metric in of_each if key in ("score_mse", "mle_mse") else (key,):
            yield metric, label_of(metric) or metric


def _one(bce: list[Result], sizes: Sequence[int], asa: list[Result], metric: str) -> Equivalence:
    def by_size(name: str) -> dict[int, list[float]]:
        return {n: [r.metric(name).value for r in find(bce, n=n)] for n in sizes}

    def of_asa(name: str) -> list[float]:
        return [r.metric(name).value for r in asa]

    return equivalence(
        by_size(metric),
        asa[0].cell.n,
        of_asa(metric),
        scale="linear" if metric in LINEAR else "log",
        baseline_seconds=by_size("seconds_total"),
        seconds=of_asa("seconds_total"),
    )
