"""All cells of the benchmark, and what they say beside the published results.

    python -m benchmarks sbibm                    every cell, hours; what is there is not run again
    python -m benchmarks.sbibm --tasks two_moons slcp --n 1000 --observations 1 2 3

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
from benchmarks.sbibm import cell
from benchmarks.sbibm.reference import OBSERVATIONS
from benchmarks.sbibm.tasks import TASKS
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


def table(cells: Iterable[dict[str, Any]]) -> str:
    """One row per task and number of simulations: ours, and the best published."""
    rows: dict[tuple[str, int], dict[str, list[float]]] = {}
    seen: dict[tuple[str, int], set[str]] = {}
    for one in cells:
        key = (one["task"], one["n"])
        values = rows.setdefault(key, {}).setdefault(one["method"], [])
        values.extend(one["c2st"].values())
        seen.setdefault(key, set()).update(one["c2st"])
    known = published()

    def best(task: str, n: int, algorithms: Sequence[str]) -> str:
        values = [known[task, n, a] for a in algorithms if (task, n, a) in known]
        return f"{min(values):.3f}" if values else ""

    lines = [
        "| task, N | ours, scores | ours, BCE | NRE | best amortised | best amortised, 10 N | "
        "best sequential | observations |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (task, n), methods in sorted(rows.items()):
        ours = [f"{statistics.mean(methods[m]):.3f}" if m in methods else "" for m in cell.METHODS]
        lines.append(
            f"| {task}, {n:,} | {' | '.join(ours)} | {best(task, n, ('NRE',))} | "
            f"{best(task, n, AMORTISED)} | {best(task, 10 * n, AMORTISED)} | "
            f"{best(task, n, SEQUENTIAL)} | {len(seen[task, n])} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sbibm", description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--n", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--methods", nargs="+", choices=cell.METHODS, default=list(cell.METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--observations", nargs="+", type=int, default=list(OBSERVATIONS))
    asked = parser.parse_args(arguments)
    run(False, asked.tasks, asked.n, asked.methods, asked.seeds, asked.observations)
    print(table(found()))
