"""What each part beyond the paper brings at N = 30,000, and what it costs: an ablation.

From the paper's 30K network and settings, one thing is added at a time: scores (ASA), symmetries,
more negatives (by themselves); then the network that knows the process, with the same additions,
and the recommended recipe (a rate that falls to zero, and symmetries); then what else might have
been in the recipe: more negatives, an alpha for each parameter, larger batches, averaged weights
instead of the falling rate, no symmetries; last, networks that know more of the process. Three
seeds of data, start and order; the same data for all rows of a seed, the same test pairs for all.
The L-test: test BCE, its excess over the Bayes optimum, the RMSE of log-ratio differences (far and
near), and the score's mean squared error over its variance.

The recipe was chosen on SIS and Gaussian fields. Student-t fields and the Ornstein-Uhlenbeck
process of the tutorial were not looked at for that; they show whether it holds elsewhere. (The
tailed spectral network was made with Student-t fields in view, seed 0.)

CPU seconds are of the whole training, compilation included; on a busy machine they say more than
the clock, which is written down too. A finished row is one small file in results/ablation, and is
not run again; the table is rewritten after each (results/ablation.md). Data are kept in
results/runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keepscore as ks
from benchmarks import machine
from benchmarks.ornstein_uhlenbeck import ornstein_uhlenbeck
from keepscore.evaluation.ltest import LTestSet, ltest, ltest_set
from keepscore.files import make_folder, read_json, write_atomically, write_json
from keepscore.models import SIS, GaussianField, StudentTField
from keepscore.models.base import Model

RESULTS = machine.ROOT / "benchmarks" / "results"
SEEDS = (0, 1, 2)
NEGATIVES = 8
PAPER = "paper's network"
PROCESS = "process network"
NETWORKS = {
    "sis": "markov-10k",
    "gaussian": "quadratic-20k",
    "student-t": "quadratic-20k",
    "ornstein-uhlenbeck": "markov-10k",
}
# Networks that know more: who meets whom (SIS), the form of the density (fields).
FURTHER = {
    "sis": ("graph network", "graph-10k"),
    "gaussian": ("spectral network", "spectral-5k"),
    "student-t": ("tailed spectral network", "tailed-5k"),
}
EACH = "alpha per parameter"
RECIPE = f"{PROCESS}, ASA, recipe"

Row = tuple[str, Any, ks.TrainConfig]


def rows_of(case: str, seed: int) -> dict[str, Row]:
    """Name of a row -> network, loss and settings."""
    recipe = ks.TrainConfig(seed=seed)
    ours = replace(recipe, learning_rate=1e-3, schedule="constant", symmetries=False)
    own, many = NETWORKS[case], ks.ASA.paper(negatives=NEGATIVES)
    averaged = replace(ours, symmetries=True, averaging=0.999)
    rows: dict[str, Row] = {
        f"{PROCESS}, BCE": (own, ks.BCE(), ours),
        f"{PROCESS}, ASA": (own, ks.ASA.paper(), ours),
        f"{PROCESS}, ASA, symmetries": (own, ks.ASA.paper(), replace(ours, symmetries=True)),
        f"{PROCESS}, ASA, {NEGATIVES} negatives": (own, many, ours),
        RECIPE: (own, ks.ASA.paper(), recipe),
        f"{PROCESS}, BCE, recipe": (own, ks.BCE(), recipe),
        f"{RECIPE}, {NEGATIVES} negatives": (own, many, recipe),
        f"{RECIPE}, {EACH}": (own, ks.ASA(), recipe),
        f"{RECIPE}, batches of 256": (own, ks.ASA.paper(), replace(recipe, batch_size=256)),
        f"{RECIPE}, no symmetries": (own, ks.ASA.paper(), replace(recipe, symmetries=False)),
        f"{PROCESS}, ASA, symmetries, averaged weights": (own, ks.ASA.paper(), averaged),
    }
    further: dict[str, Row] = {}
    if case in FURTHER:
        what, name = FURTHER[case]
        further = {
            f"{what}, BCE, recipe": (name, ks.BCE(), recipe),
            f"{what}, ASA, recipe": (name, ks.ASA.paper(), recipe),
            f"{what}, ASA, recipe, {EACH}": (name, ks.ASA(), recipe),
        }
    if case in CONFIRMED:
        kept = (f"{PROCESS}, BCE", f"{PROCESS}, ASA", RECIPE, f"{RECIPE}, {EACH}")
        return {name: rows[name] for name in kept} | further
    paper = ks.TrainConfig.paper(case, seed=seed)
    of_paper: dict[str, Row] = {
        f"{PAPER}, BCE": ("30k", ks.BCE(), paper),
        f"{PAPER}, BCE, {NEGATIVES} negatives": ("30k", ks.BCE(negatives=NEGATIVES), paper),
        f"{PAPER}, ASA": ("30k", ks.ASA.paper(), paper),
        f"{PAPER}, ASA, symmetries": ("30k", ks.ASA.paper(), replace(paper, symmetries=True)),
    }
    if case == "gaussian":  # minutes a row
        del of_paper[f"{PAPER}, BCE, {NEGATIVES} negatives"]
    return of_paper | rows | further


CASES: dict[str, Callable[[], Model]] = {
    "sis": SIS,
    "gaussian": GaussianField,
    "student-t": StudentTField,
    "ornstein-uhlenbeck": ornstein_uhlenbeck,
}
CONFIRMED = ("student-t", "ornstein-uhlenbeck")


def run(
    quick: bool = False, folder: Path | None = None, cases: Sequence[str] = ()
) -> dict[str, Any]:
    """Every row of every case and seed, in the order in which a table is soonest complete: what
    takes minutes (the paper's network on fields) comes last."""
    data = folder or RESULTS / "runs" / "ablation"
    kept = data / "rows" if quick else RESULTS / "ablation"
    jobs = [
        (case, seed, row)
        for case in cases or CASES
        for seed in (SEEDS[:1] if quick else SEEDS)
        for row in rows_of(case, seed)
    ]
    slow = [job for job in jobs if PAPER in job[2] and job[0] != "sis"]
    for case, seed, row in [job for job in jobs if job not in slow] + ([] if quick else slow):
        path = make_folder(kept) / f"{case}-{seed}-{_slug(row)}.json"
        if not path.exists():
            pairs = _test_pairs(case, CASES[case](), quick, data)
            found = one(case, row, seed, pairs, data, quick)
            write_json(path, {"case": case, "row": row, "seed": seed, **found})
            if not quick:
                _write_table({"runs": _finished(kept)})
    return {"quick": quick, "runs": _finished(kept)}


def _slug(row: str) -> str:
    return row.replace("'", "").replace(",", "").replace(" ", "-").lower()


def _finished(folder: Path) -> list[dict[str, Any]]:
    """What is there, in the order of the table."""
    found = []
    for case in CASES:
        for row in rows_of(case, 0):
            files = (folder / f"{case}-{seed}-{_slug(row)}.json" for seed in SEEDS)
            found += [read_json(file) for file in files if file.exists()]
    return found


def one(
    case: str, row: str, seed: int, pairs: LTestSet, folder: Path, quick: bool
) -> dict[str, Any]:
    """Train one row and test it."""
    model, n = CASES[case](), 640 if quick else 30_000
    train = ks.simulate(model, n, seed=seed, path=folder / f"{case}-train-{n}-{seed}")
    validation = ks.simulate(
        model, n // 10, seed=seed, purpose="validation", path=folder / f"{case}-held-{n}-{seed}"
    )
    network, loss, config = rows_of(case, seed)[row]
    if quick:
        config = replace(config, min_epochs=1, max_epochs=1)
    began = time.process_time()
    surrogate = ks.train(train, validation, network, loss, config)
    spent = time.process_time() - began
    tested = ltest(surrogate, model, test_set=pairs)
    end = surrogate.history[-1]
    return {
        **{name: value.to_dict() for name, value in tested.rows()},
        "score_variance": list(tested.score_variance or ()),
        "weights": surrogate.history[0]["weights"],
        "epochs": end["epochs"],
        "seconds": end["seconds"],
        "cpu_seconds": spent,
    }


def _test_pairs(case: str, model: Model, quick: bool, folder: Path) -> LTestSet:
    """The same for all rows; three parameters need 17^3 nodes for the evidence of a test field."""
    sizes = (200, 50, 10) if quick else (20_000, 5_000, 1_000 if model.space.d == 2 else 500)
    intervals = 4 if quick else 32 if model.space.d == 2 else 16
    n, exact, evidence = sizes
    path = folder / f"{case}-test{'-quick' if quick else ''}"
    return ltest_set(model, n, 99, exact, evidence, intervals, path)


def table(result: dict[str, Any]) -> str:
    """Means and standard errors over seeds, a table for each case."""
    shown = [case for case in CASES if any(r["case"] == case for r in result["runs"])]
    return "\n\n".join(_case_table(case, result["runs"]) for case in shown)


def _case_table(case: str, runs: list[dict[str, Any]]) -> str:
    lines = [
        f"**{case}**, N = 30,000, mean ± standard error over seeds",
        "",
        "| | seeds | weights | test BCE | excess | RMSE far | RMSE near | score MSE / variance "
        "| CPU s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    of_case = [r for r in runs if r["case"] == case]
    for row in dict.fromkeys(r["row"] for r in of_case):
        same = [r for r in of_case if r["row"] == row]
        metrics = (("bce", 4), ("bce_excess", 4), ("rmse_far", 3), ("rmse_near", 3))
        cells = [_spread([r[key]["value"] for r in same], digits) for key, digits in metrics]
        scores = " ".join(_spread(list(ratios), 3) for ratios in _score_ratios(same))
        spent = [r["cpu_seconds"] for r in same if "cpu_seconds" in r]
        seconds = statistics.mean(spent) if spent else float("nan")
        cells = [str(len(same)), f"{same[0]['weights']:,}", *cells, scores, f"{seconds:.0f}"]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _score_ratios(runs: list[dict[str, Any]]) -> Iterator[tuple[float, ...]]:
    """For each parameter, the score's MSE over its variance in every run."""
    for k, name in enumerate(CASES[runs[0]["case"]]().space.names):
        yield tuple(r[f"score_mse[{name}]"]["value"] / r["score_variance"][k] for r in runs)


def _spread(values: list[float], digits: int) -> str:
    middle = f"{statistics.mean(values):.{digits}f}"
    if len(values) < 2:
        return middle
    return f"{middle} ± {statistics.stdev(values) / len(values) ** 0.5:.{digits}f}"


def _write_table(result: dict[str, Any]) -> None:
    text = "# Ablation\n\nBy `python -m benchmarks ablation`.\n\n" + table(result) + "\n"
    write_atomically(RESULTS / "ablation.md", lambda file: file.write(text.encode()))
