"""The report of a reproduction: a case study's cells, read from their JSON alone.

The page shows every figure of the sweep, and in numbers the network that was trained at the most
sizes: both losses at each N, one seed; beside it what we advise, where that was run. Its surfaces
are those of the example group at the largest N that both losses have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keepscore.errors import MissingError
from keepscore.evaluation import METRICS, Estimate, title_of
from keepscore.models import build
from keepscore.reports import (
    EXACT,
    Axis,
    Coverage,
    Group,
    Notice,
    ReportContent,
    ScoreRow,
    Surface,
    Surfaces,
    picture_from,
)
from reproduction.cases import CASES, OURS, Case, profile_of
from reproduction.claims import CLAIMS, judge
from reproduction.figures.by_case import case_figures, shown_network
from reproduction.results import Result, find, load_exact, load_results

CAPTIONS = {
    "examples": "Example data of the model",
    "losses": "Cross-entropy and score error on fresh pairs",
    "differences": "Log-ratios against the exact likelihood",
    "inference": "Tests and confidence sets against the exact likelihood",
    "estimates": "Estimates against the exact ones",
    "timing": "Training time",
    "training_time": "Test cross-entropy as training goes on",
    "null_cdf": "The test statistic under the null",
    "surfaces": "Likelihood surfaces of one group",
    "equivalence": "How many simulations the score was worth",
}
VERDICTS = {
    "same": "as in the paper",
    "better": "more than in the paper",
    "partly": "partly as in the paper",
    "not seen": "not seen here",
}


def cases_in(path: str | Path) -> list[str]:
    """The case studies that have results under a folder."""
    return [name for name in CASES if load_results(Path(path), name)]


def reproduction_content(path: str | Path, case: str, created: str = "") -> ReportContent:
    """Everything a page says of one case of a sweep."""
    study, folder = CASES[case], Path(path)
    results, exact = load_results(folder, case), load_exact(folder, case)
    if not results:
        raise MissingError(
            f"No results of {case} under {folder}. Run `python -m reproduction {case}`."
        )
    network = shown_network(study, results)
    chosen = [*find(results, network=network, seed=0), *find(results, network=OURS, seed=0)]
    chosen.sort(key=lambda r: (r.cell.network == OURS, r.cell.n, r.cell.loss != "bce"))
    labels = {_label(r): r for r in chosen}
    settings = results[0].content["settings"]
    found = profile_of(case, (r.cell for r in results), settings)
    profile = "" if found is None else f" --profile {found}"
    return ReportContent(
        title=f"Reproduction: {study.title}",
        subtitle=f"{len(results)} trained networks; in numbers, the paper's network of size "
        f"{network.upper()}, trained on N simulations without scores (BCE) and with (ASA)",
        created=created,
        methods=(*labels, EXACT),
        commands=(f"python -m reproduction {case}{profile} --out {folder}",),
        findings=tuple(_findings(results)),
        warnings=tuple(_unfinished(study, results)),
        scorecard=tuple(_rows(labels, exact)),
        coverage=_coverage(labels, exact),
        surfaces=_surfaces(study, chosen, exact),
        pictures=tuple(
            picture_from(figure, CAPTIONS.get(name, name), CAPTIONS.get(name, name))
            for name, figure in case_figures(study, results, exact)
        ),
        provenance={**results[-1].content["environment"], **settings},
    )


def _label(result: Result) -> str:
    loss = result.cell.loss.upper()
    advised = f"{loss} + structure" if result.cell.network == OURS else loss
    return f"{advised}, N = {result.cell.n:,}"


def _findings(results: list[Result]) -> Iterator[str]:
    """What the results say of the paper's claims, as far as there are any."""
    for claim in CLAIMS:
        found = judge(claim, results)
        if found.verdict != "not yet run":
            verdict = VERDICTS.get(found.verdict, found.verdict)
            yield f"{claim.text.rstrip('.')}: {verdict}. Measured: {found.measured}."


def _unfinished(case: Case, results: list[Result]) -> Iterator[Notice]:
    pairs = {(r.cell.network, r.cell.n) for r in find(results, loss="asa")}
    if len({r.cell.seed for r in results}) == 1:
        yield Notice("note", "Every cell was trained once: differences include that luck.")
    if not pairs:
        yield Notice("caution", f"No cell of {case.name} has been trained with ASA yet.")


def _rows(labels: dict[str, Result], exact: dict[str, Any] | None) -> Iterator[ScoreRow]:
    every = {label: result.metrics() for label, result in labels.items()}
    first = next(iter(every.values()))
    for metric in first:
        name = metric.partition("[")[0]
        if name not in METRICS or name == "coverage":  # coverage has a section of its own
            continue
        known = METRICS[name]
        values = {label: found[metric] for label, found in every.items()}
        perfect = _perfect(name, list(every.values()), exact)
        yield ScoreRow(title_of(metric), known.meaning, values, perfect, known.unit, known.better)


def _perfect(
    name: str, every: list[dict[str, Estimate]], exact: dict[str, Any] | None
) -> Estimate | None:
    """What the exact likelihood scores: its own volume, the least cross-entropy, no error."""
    if name == "volume":
        return None if exact is None else Estimate(exact["volume"]["value"], exact["volume"]["se"])
    if name != "bce":
        return Estimate(0.0)
    known = [(found["bce"], found["bce_excess"]) for found in every if "bce_excess" in found]
    least = [Estimate(b.value - e.value, math.hypot(b.se, e.se)) for b, e in known]
    return min(least, key=lambda estimate: estimate.se, default=None)


def _coverage(labels: dict[str, Result], exact: dict[str, Any] | None) -> tuple[Coverage, ...]:
    values = {label: result.metric("coverage") for label, result in labels.items()}
    if exact is not None:
        values[EXACT] = Estimate(exact["coverage"]["value"], exact["coverage"]["se"])
    test = next(iter(labels.values())).content["etest"]
    return (Coverage(float(test["level"]), values, "Wilks", len(test["null"])),)


def _surfaces(case: Case, chosen: list[Result], exact: dict[str, Any] | None) -> Surfaces | None:
    both = [r.cell.n for r in find(chosen, loss="asa") if r.cell.network != OURS]
    if exact is None or not both:
        return None
    shown = {
        _label(r): r.content["surface"]
        for r in chosen
        if r.cell.n == max(both) or r.cell.network == OURS
    }
    shown[EXACT] = exact["surface"]
    grid, space = exact["surface"], build(case.model).space
    axes = []
    for name, values in zip(grid["names"], grid["axes"], strict=True):
        k = space.working_names.index(name)
        points = np.tile(np.array(case.example), (len(values), 1))
        points[:, k] = values
        axes.append(Axis(name, np.array(values), space.names[k], space.to_raw(points)[:, k]))
    # Stored to two decimals, relative to a maximum between grid points: never above it.
    surfaces = tuple(
        Surface(method, np.minimum(np.array(s["values"], dtype=float), 0.0), tuple(s["mle"]))
        for method, s in shown.items()
    )
    held = [
        f"{name} = {value:g}"
        for name, value in zip(space.working_names, case.example, strict=True)
        if name not in grid["names"]
    ]
    group = "example group" + (f" ({', '.join(held)})" if held else "")
    return Surfaces(tuple(axes), (Group(group, surfaces, tuple(grid["truth"])),))
