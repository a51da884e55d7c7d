"""Every figure of a reproduction, redrawn from its JSON alone.

figures_from("results")      writes results/<case>/figures/<name>.svg for all that was run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from keepscore.errors import MissingError, unknown_name
from keepscore.evaluation import Estimate, panel_of
from keepscore.figures import FORMATS, SurfacePanel, save_figure, surfaces
from keepscore.files import make_folder
from keepscore.models import build
from reproduction.cases import CASES, Case
from reproduction.claims import of_paper
from reproduction.figures.arrows import Arrow, ArrowPanel, arrow_plot
from reproduction.figures.equivalence import EquivalenceRow, equivalence_plot
from reproduction.figures.examples import epidemic, fields
from reproduction.figures.null_cdf import NullSample, null_cdf
from reproduction.figures.timing import timing
from reproduction.figures.training_time import TrainingCurve, training_time
from reproduction.results import TIMES, Result, find, load_exact, load_results
from reproduction.worth_table import worth_table


def figures_from(path: str | Path, out: str | Path | None = None, form: str = "svg") -> list[Path]:
    """Draw all figures of all cases found under `path`; returns the files written.

    out: folder to write to, by case; default `<path>/<case>/figures`.
    """
    if form not in FORMATS:
        raise unknown_name("figure format", form, FORMATS)
    folder, written = Path(path), []
    for case in CASES.values():
        results, exact = load_results(folder, case.name), load_exact(folder, case.name)
        if not results and exact is None:
            continue
        target = folder / case.name / "figures" if out is None else Path(out) / case.name
        make_folder(target)
        for name, figure in case_figures(case, results, exact):
            file = target / f"{name}.{form}"
            written.append(save_figure(figure, file))
    if not written:
        raise MissingError(
            f"No results under {folder}. Run `python -m reproduction` with this folder first."
        )
    return written


def case_figures(
    case: Case, results: list[Result], exact: dict[str, Any] | None
) -> Iterator[tuple[str, Figure]]:
    """Name and figure of everything that can be drawn of one case: the paper's networks."""
    results = of_paper(results)
    if exact is not None:
        yield "examples", _examples(exact["examples"])
    if not results:
        return
    lanes = [n for n in case.networks if find(results, network=n)]
    for name, chosen in _metric_panels(case, results, exact).items():
        # Four side by side are too small to read on a page.
        yield name, arrow_plot(chosen, lanes, columns=2 if len(chosen) == 4 else 3)
    yield "timing", timing({key: _arrows(results, key) for key in TIMES}, lanes)
    drawings: dict[str, Callable[[], Figure | None]] = {
        "training_time": lambda: _training_time(case, results),
        "null_cdf": lambda: _null_cdf(case, results, exact),
        "surfaces": lambda: _surfaces(case, results, exact),
        "equivalence": lambda: _equivalence(case, results),
    }
    for name, draw in drawings.items():
        figure = draw()
        if figure is not None:
            yield name, figure


def _examples(example: dict[str, Any]) -> Figure:
    if example["kind"] == "epidemic":
        return epidemic(example)
    titles = [f"$l_x$ = 1, $l_y$ = {np.exp(p['theta'][1]):.2g}" for p in example["panels"]]
    return fields([p["x"] for p in example["panels"]], titles)


def _arrows(results: list[Result], metric: str) -> list[Arrow]:
    """From BCE to ASA, means over seeds, for each network and N."""
    arrows = []
    for network, n in sorted({(r.cell.network, r.cell.n) for r in results}):
        both = {loss: find(results, network=network, n=n, loss=loss) for loss in ("bce", "asa")}
        ends = {loss: _mean_over_seeds(found, metric) for loss, found in both.items() if found}
        if "bce" in ends:
            arrows.append(Arrow(network, n, ends["bce"], ends.get("asa")))
    return arrows


def _mean_over_seeds(results: list[Result], metric: str) -> Estimate:
    values = [r.metric(metric) for r in results]
    mean = float(np.mean([v.value for v in values]))
    if len(values) == 1:
        return values[0]
    # Seeds share their test set: its error does not average out, the spread of seeds does.
    spread = float(np.var([v.value for v in values], ddof=1)) / len(values)
    return Estimate(mean, float(np.sqrt(spread + np.mean([v.se**2 for v in values]))))


def _metric_panels(
    case: Case, results: list[Result], exact: dict[str, Any] | None
) -> dict[str, list[ArrowPanel]]:
    names = build(case.model).space.names

    def panel(metric: str, **options: Any) -> ArrowPanel:
        return ArrowPanel(panel_of(metric), _arrows(results, metric), **options)

    limit = _limit(results)
    level = float(results[0].content["etest"]["level"])
    size = None if exact is None else exact["volume"]["value"]
    return {
        "losses": [
            panel("bce", line=limit, line_label="exact ratio"),
            *(panel(f"score_mse[{k}]", log=True) for k in names),
        ],
        "differences": [
            panel("bce_excess", log=_positive(results, "bce_excess")),
            panel("rmse_near", log=True),
            panel("rmse_far", log=True),
        ],
        "inference": [
            panel("lrt_mse", log=True),
            panel("coverage", line=level, line_label="nominal"),
            panel("volume", line=size, line_label="exact"),
        ],
        "estimates": [panel(f"mle_mse[{k}]", log=True) for k in names],
    }


def _limit(results: list[Result]) -> float:
    """BCE of the exact ratio on all test pairs: the limit itself is known on few of them, but BCE
    minus excess differs from it only by the noise of the excess, least for the best surrogate."""
    best = min(results, key=lambda r: r.metric("bce_excess").value)
    return best.metric("bce").value - best.metric("bce_excess").value


def _positive(results: list[Result], metric: str) -> bool:
    return all(r.metric(metric).value > 0 for r in results)


def shown_network(case: Case, results: list[Result]) -> str:
    """The largest network that was trained with both losses at the most sizes N."""
    counts = {
        network: len({r.cell.n for r in find(results, network=network, loss="asa")})
        for network in case.networks
    }
    return max(case.networks, key=lambda k: (counts[k], case.networks.index(k)))


def _training_time(case: Case, results: list[Result]) -> Figure | None:
    network = shown_network(case, results)
    curves = [
        TrainingCurve(r.cell.loss, r.cell.n, curve["seconds"], curve["bce"], curve["best"])
        for r in find(results, network=network, seed=0)
        if (curve := r.content["training"].get("curve"))
    ]
    if not curves:
        return None
    return training_time(curves, f"{case.title}, network {network.upper()}", _limit(results))


def _null_cdf(case: Case, results: list[Result], exact: dict[str, Any] | None) -> Figure | None:
    """The paper's choice: both losses at the largest N they share, BCE at the largest N of all."""
    network = shown_network(case, results)
    mine = find(results, network=network, seed=0)
    both = {r.cell.n for r in mine if r.cell.loss == "asa"}
    if not both or exact is None:
        return None
    chosen = [r for r in mine if r.cell.n == max(both)]
    chosen += [r for r in mine if r.cell.loss == "bce" and r.cell.n == max(c.cell.n for c in mine)]
    unique = {r.cell: r for r in chosen}
    samples = [NullSample("exact", exact["null"])]
    samples += [
        NullSample(r.cell.loss, r.content["etest"]["null"], r.cell.n) for r in unique.values()
    ]
    d = len(exact["by_theta"]["theta"][0])
    sizes = sorted({r.cell.n for r in results})
    return null_cdf(samples, d, f"{case.title}, network {network.upper()}", sizes=sizes)


def _surfaces(case: Case, results: list[Result], exact: dict[str, Any] | None) -> Figure | None:
    network = shown_network(case, results)
    both = [r.cell.n for r in find(results, network=network, loss="asa", seed=0)]
    if not both or exact is None:
        return None
    n, truth = max(both), exact["surface"]
    chosen = []
    for loss in ("bce", "asa"):
        for r in find(results, network=network, n=n, loss=loss, seed=0):
            content = r.content["surface"]
            title = f"{loss.upper()}, {network.upper()}, N = {n:,}"
            chosen.append(SurfacePanel(title, content["values"], content["mle"]))
    chosen.append(SurfacePanel("exact", truth["values"], truth["mle"]))
    held = dict(zip(exact["names"], case.example, strict=True))
    fixed = {name: value for name, value in held.items() if name not in truth["names"]}
    return surfaces(chosen, truth["axes"], truth["names"], truth["truth"], truth["mle"], fixed)


def _equivalence(case: Case, results: list[Result]) -> Figure | None:
    rows = [EquivalenceRow(w.label, w.network, w.found) for w in worth_table(results)]
    if not rows:
        return None
    return equivalence_plot(rows, f"{case.title}: what a score is worth")
