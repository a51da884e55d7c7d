"""What each choice of `ks.train` brings on models that nobody here wrote: one change at a time.

    python -m benchmarks.sbibm.ablation                   every run, about an hour; resumes
    python -m benchmarks.sbibm.ablation --page            the table of the documentation

All ten tasks, 1,000 simulations, three seeds, judged on 2,000 fresh simulations by what C2ST is
too dear for: the loss L of telling the own theta from others, far and near, and the robust R^2 of
the exact score, together C = L / log 2 + 1 - mean R^2 (`training/candidates.py`; 2 knowing nothing;
the least possible L is not 0). One small file per run.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import keepscore as ks
from benchmarks import machine
from benchmarks.pages import PAGE, write_between
from benchmarks.sbibm.tasks import HELD_BACK, TASKS
from keepscore.errors import KeepscoreWarning
from keepscore.files import make_folder, read_json, write_json
from keepscore.training.batches import open_rows
from keepscore.training.candidates import criterion

N, FRESH, FRESH_SEED = 1_000, 2_000, 77
SEEDS = (0, 1, 2)
LARGEST = 1e30  # in place of an infinite criterion: absurd at some fresh simulation
RESULTS = machine.ROOT / "benchmarks" / "results" / "sbibm-ablation"
# Name -> network, loss and changed settings.
Row = tuple[str, ks.BCE | ks.ASA, dict[str, Any]]
ROWS: dict[str, Row] = {
    "all defaults": ("auto", ks.ASA(), {}),
    "first network only": ("auto", ks.ASA(), {"compare": False}),
    "squared residuals": ("auto", ks.ASA(residual="squared"), {"guard": False}),
    "without scores": ("auto", ks.BCE(), {}),
    "theta after x": ("mlp-30k", ks.ASA(), {}),
    "paper's length": ("auto", ks.ASA(), {"length": "paper"}),
    "three members": ("auto", ks.ASA(), {"members": 3}),
}


def one(task: str, row: str, seed: int) -> dict[str, Any]:
    """Train one row on one task, and judge it on fresh simulations."""
    model = TASKS[task]().model
    network, loss, changes = ROWS[row]
    data = ks.simulate(model, N, seed=seed, jobs=1)
    fresh = ks.simulate(model, FRESH, seed=FRESH_SEED, jobs=1)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)
        config = ks.TrainConfig(seed=seed, **changes)
        surrogate = ks.train(data, network=network, loss=loss, config=config, progress=False)
    seconds = time.perf_counter() - begin
    rows = (open_rows(fresh, None, scores, 1 << 30) for scores in (False, True))
    told_apart, both = (
        min(float(criterion(surrogate, held, FRESH_SEED).mean()), LARGEST) for held in rows
    )
    return {
        "task": task,
        "row": row,
        "seed": seed,
        "told_apart": told_apart,
        "r2": 1 - (both - told_apart) if both < LARGEST else None,
        "criterion": both,
        "network": type(surrogate.network.network).__name__,
        "seconds": seconds,
    }


def run(folder: Path = RESULTS, seeds: tuple[int, ...] = SEEDS) -> list[dict[str, Any]]:
    """Every run that is not there yet, one seed after the other."""
    for seed in seeds:
        for task in TASKS:
            for number, row in enumerate(ROWS):
                file = make_folder(folder) / f"{task}-{number}-s{seed}.json"
                if not file.exists():
                    write_json(file, one(task, row, seed))
                    print(task, row, seed, f"{read_json(file)['criterion']:.3f}", flush=True)
    return found(folder)


def found(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The records of all runs."""
    return [read_json(file) for file in sorted(folder.glob("*.json"))]


def table(records: list[dict[str, Any]]) -> str:
    """C of each row and task: the median over seeds, and how many there are; seconds of
    training."""
    tasks = [task for task in TASKS if any(r["task"] == task for r in records)]
    heads = [f"{task}*" if task in HELD_BACK else task for task in tasks]
    lines = [f"| | {' | '.join(heads)} | seconds |", f"|---|{'--:|' * (len(tasks) + 1)}"]
    for row in ROWS:
        own = [r for r in records if r["row"] == row]
        if not own:
            continue
        cells = []
        for task in tasks:
            values = [r["criterion"] for r in own if r["task"] == task]
            cells.append(f"{statistics.median(values):.3f} ({len(values)})" if values else "-")
        seconds = statistics.median(r["seconds"] for r in own)
        lines.append(f"| {row} | {' | '.join(cells)} | {seconds:.0f} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sbibm.ablation", description=__doc__
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--page", action="store_true", help="run nothing; write the table")
    asked = parser.parse_args(arguments)
    if asked.page:
        write_between(PAGE, "sbibm-ablation", table(found()))
        return
    print(table(run(seeds=tuple(asked.seeds))))


if __name__ == "__main__":
    main()
