"""Is the line that `ks.train` ends with honest? Its R^2 beside the error of likelihood-ratio tests.

    python -m benchmarks quality-line [--quick]

24 surrogates from bad to excellent: four models, six trainings each, from 300 simulations in three
epochs to 10,000 in sixty. Of each is kept

    the line      validation BCE and score R^2 of every parameter, on held-out pairs; an R^2 below
                  .5 is warned of after a run of full length (these are cut short on purpose)
    the truth     mean squared error of the likelihood-ratio statistic against the exact one, 60
                  groups of ten observations, theta spread over the test region

Each surrogate is one small file in results/quality_line, and a finished one is not run again. The
figure is written to docs/images/quality_line.svg by a full run.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

import keepscore as ks
from benchmarks import front_models, machine
from keepscore.figures.style import BLUE, GREEN, MARKERS, RED, styled
from keepscore.files import make_folder, read_json, write_json
from keepscore.fitting.yardstick import Extent, Yardstick, measured, yardstick
from keepscore.quality import POOR

GROUPS, SIZE, SEED = 60, 10, 0
RESULTS = machine.ROOT / "benchmarks" / "results"
FIGURE = machine.ROOT / "docs" / "images" / "quality_line.svg"
BANDS = ((-math.inf, 0.5), (0.5, 0.9), (0.9, 0.99), (0.99, 1.0))
TARGET = 0.1  # the default target of `ks.fit`


class Training(NamedTuple):
    n: int
    epochs: int
    loss: str


TRAININGS = (
    Training(300, 3, "ASA"),
    Training(1_000, 5, "ASA"),
    Training(1_000, 40, "BCE"),
    Training(3_000, 10, "ASA"),
    Training(3_000, 100, "ASA"),
    Training(10_000, 60, "ASA"),
)
MODELS: dict[str, Callable[[], Any]] = {
    "normal": front_models.normal,
    "tutorial": front_models.tutorial,
    "regression": front_models.regression,
    "SIS": lambda: ks.models.SIS(weights=_ring(4), times=tuple(range(6))),
}


def _ring(nodes: int) -> np.ndarray:
    step = np.eye(nodes, k=1) + np.eye(nodes, k=1 - nodes)
    return step + step.T


def run(quick: bool = False, folder: Path | None = None) -> dict[str, Any]:
    """Every surrogate that is not there yet; plain data."""
    kept = make_folder((folder or RESULTS) / ("quality_line_quick" if quick else "quality_line"))
    results: dict[str, Any] = {}
    for name, build in list(MODELS.items())[: 1 if quick else None]:
        by: Yardstick | None = None
        for one in TRAININGS[: 2 if quick else None]:
            cell = f"{name}-{one.n}-{one.epochs}-{one.loss}".lower()
            path = kept / f"{cell}.json"
            if not path.exists():
                model = build()
                groups = 24 if quick else GROUPS
                by = by or yardstick(model, SIZE, Extent(groups, True, math.nan), SEED)
                write_json(path, surrogate_of(model, one, by))
                print(f"{cell}: done", flush=True)
            results[cell] = read_json(path)
    if not quick and len(results) == len(MODELS) * len(TRAININGS):
        ks.figures.save_figure(figure(results), FIGURE)
    return results


def surrogate_of(model: Any, one: Training, by: Yardstick) -> dict[str, Any]:
    """Train, keep what the line says, and measure."""
    data = ks.simulate(model, one.n, SEED, jobs=1)
    loss = ks.ASA() if one.loss == "ASA" else ks.BCE()
    config = ks.TrainConfig(seed=SEED, max_epochs=one.epochs, guard=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ks.KeepscoreWarning)
        made = ks.train(data, None, "auto", loss, config, progress=False)
    assert made.quality is not None
    assert made.quality.score_r2 is not None
    found = measured(made, by)
    assert found.lrt_error is not None
    return {
        "n": one.n,
        "epochs": one.epochs,
        "loss": one.loss,
        "line": made.quality.line(model.space.names),
        "bce": made.quality.validation_bce,
        "r2": list(made.quality.score_r2),
        "warned": any("R²" in str(w.message) for w in caught),
        "lrt_error": [found.lrt_error.value, found.lrt_error.se],
        "coverage": found.coverage.value,
    }


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Rank correlation of 1 - least R^2 with the error, and the errors in each band of R^2."""
    least = np.array([min(one["r2"]) for one in results.values()])
    error = np.array([one["lrt_error"][0] for one in results.values()])
    bands = {}
    for low, high in BANDS:
        inside = error[(least >= low) & (least < high)]
        bands[f"{low:g} to {high:g}"] = (
            [len(inside), *np.quantile(inside, [0, 0.5, 1])] if len(inside) else [0]
        )
    rank = float(stats.spearmanr(1 - least, error).statistic) if len(least) > 2 else math.nan
    return {"rank": rank, "bands": bands}


def table(results: dict[str, Any]) -> str:
    """The same for a reader."""
    told = summary(results)
    lines = ["| least score R² | surrogates | squared LRT error: least | median | largest |"]
    lines += ["|---|---:|---:|---:|---:|"]
    words = ("below 0.5", "0.5 to 0.9", "0.9 to 0.99", "0.99 or more")
    for word, (count, *numbers) in zip(words, told["bands"].values(), strict=True):
        each = " | ".join(f"{value:.3g}" for value in numbers) or " | | "
        lines.append(f"| {word} | {count} | {each} |")
    return "\n".join(
        [*lines, "", f"Rank correlation of 1 - R² with the error: {told['rank']:.2f}."]
    )


def figure(results: dict[str, Any]) -> Figure:
    """One point per surrogate; red where the least R^2 is below what `train` warns of."""
    with styled():
        chart = Figure(figsize=(5.2, 3.6), layout="constrained")
        ax = chart.subplots()
        for marker, name in zip(MARKERS, MODELS, strict=False):
            rows = [one for cell, one in results.items() if cell.startswith(name.lower())]
            x = [1 - min(one["r2"]) for one in rows]
            y = [one["lrt_error"][0] for one in rows]
            colours = [RED if min(one["r2"]) < POOR else BLUE for one in rows]
            ax.scatter(x, y, c=colours, marker=marker, s=28, linewidths=0)
            ax.scatter([], [], c="0.4", marker=marker, s=28, linewidths=0, label=name)
        ax.scatter([], [], c=RED, marker="o", s=28, linewidths=0, label="R² below 0.5")
        ax.axhline(TARGET, color=GREEN, lw=1, ls=":")
        ax.text(ax.get_xlim()[1], TARGET, "target of fit ", color=GREEN, ha="right", va="bottom")
        ax.set(xscale="log", yscale="log", xlabel="1 - least score R² (what the line says)")
        ax.set_ylabel("squared error of the LRT statistic")
        ax.legend(frameon=False, fontsize=7)
    return chart
