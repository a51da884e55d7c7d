"""All cells of the benchmark, and what they say beside the published results.

    python -m benchmarks sbibm                    every cell, hours; what is there is not run again
    python -m benchmarks.sbibm --tasks two_moons slcp --n 1000 --observations 1 2 3
    python -m benchmarks.sbibm --page             table and figure of the documentation

One JSON file per cell in benchmarks/results/sbibm. The published means (Lueckmann et al. 2021, ten
observations each) are in published.csv.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.pages import PAGE, write_between
from benchmarks.sbibm import cell, figure
from benchmarks.sbibm.reference import OBSERVATIONS
from benchmarks.sbibm.tasks import HELD_BACK, TASKS
from keepscore.figures.saving import save_figure
from keepscore.files import read_json

SIZES = (1_000, 10_000)
AMORTISED, SEQUENTIAL = ("NRE", "NPE", "NLE"), ("SNRE", "SNPE", "SNLE")
RESULTS = machine.ROOT / "benchmarks" / "results" / "sbibm"


def published() -> dict[tuple[str, int, str], float]:
    """Mean C2ST by task, number of simulations and algorithm."""
    with (Path(__file__).parent / "published.csv").open() as file:
        return {
            (row["task"], int(row["num_simulations"]), row["algorithm"]): float(row["c2st_mean"])
            for row in csv.DictReader(file)
        }


def run(
    quick: bool = False,
    tasks: Iterable[str] = tuple(TASKS),
    sizes: Sequence[int] = SIZES,
    methods: Sequence[str] = cell.METHODS,
    seeds: Sequence[int] = (0,),
    observations: Sequence[int] = OBSERVATIONS,
    folder: Path = RESULTS,
) -> list[dict[str, Any]]:
    """The records of all cells asked for, computed or found."""
    if quick:
        tasks, sizes, observations = ("gaussian_mixture",), (200,), (1,)
        folder = machine.ROOT / "benchmarks" / "results" / "runs" / "sbibm-quick"
    every = [(s, n, t, m) for s in seeds for n in sizes for t in tasks for m in methods]
    return [cell.run(t, n, m, s, folder, tuple(observations)) for s, n, t, m in every]


def found(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The records of all cells that were run."""
    return [read_json(file) for file in sorted(folder.glob("*.json"))]


def goals(task: str, n: int) -> dict[str, float]:
    """What each method is to reach: with scores what the best amortised method has with ten times
    the simulations, without them what NRE has with as many, in rounds what the best sequential
    method has with ten times as many."""
    known = published()

    def best(size: int, algorithms: Sequence[str]) -> float:
        return min(
            (known[task, size, a] for a in algorithms if (task, size, a) in known), default=1
        )

    return {
        "asa": best(10 * n, AMORTISED),
        "bce": best(n, ("NRE",)),
        "rounds": best(10 * n, SEQUENTIAL),
    }


def means(cells: Iterable[dict[str, Any]]) -> dict[tuple[str, int, str], tuple[float, int]]:
    """Mean C2ST over observations and seeds, and how many there are of both, by task, size and
    method."""
    values: dict[tuple[str, int, str], list[float]] = {}
    for one in cells:
        key = (one["task"], one["n"], one["method"])
        values.setdefault(key, []).extend(one["c2st"].values())
    return {key: (statistics.mean(v), len(v)) for key, v in values.items() if v}


def table(cells: Iterable[dict[str, Any]]) -> str:
    """One row per task and number of simulations: each method of ours, what it was to reach, and
    whether it did."""
    ours = means(cells)
    if not ours:
        return (
            "No cell of ours has been run yet with this version; the figure has the published ones."
        )
    lines = [
        "| task, N | scores | best amortised, 10 N | BCE | NRE, N | rounds | best sequential, 10 N "
        "|",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for task, n in sorted({key[:2] for key in ours}):
        goal = goals(task, n)
        row = []
        for method in cell.METHODS:
            if (task, n, method) in ours:
                value, count = ours[task, n, method]
                verdict = "met" if value <= goal[method] else "not met"
                row.append(f"{value:.3f} ({count}) {verdict}")
            else:
                row.append("not run")
            row.append(f"{goal[method]:.3f}")
        held = "*" if task in HELD_BACK else ""
        lines.append(f"| {task}{held}, {n:,} | {' | '.join(row)} |")
    return "\n".join(lines)


def write_page(page: Path, image: Path, cells: Sequence[dict[str, Any]]) -> None:
    """The table between the page's two marks, and the figure."""
    write_between(page, "sbibm", table(cells))
    save_figure(figure.against_simulations(means(cells), published()), image)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sbibm", description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--n", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--methods", nargs="+", choices=cell.METHODS, default=list(cell.METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--observations", nargs="+", type=int, default=list(OBSERVATIONS))
    parser.add_argument("--page", action="store_true", help="run nothing; write table and figure")
    asked = parser.parse_args(arguments)
    if asked.page:
        write_page(PAGE, PAGE.parent / "images" / "sbibm.svg", found())
        return
    run(False, asked.tasks, asked.n, asked.methods, asked.seeds, asked.observations)
    print(table(found()))
