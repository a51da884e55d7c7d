"""Surrogate speed, exact answers: what `ks.refine` reaches, what it costs, and is it honest?

Three kinds of cells; each is one small file in results/refinement, and a finished one is not run
again.

accuracy   (refinement_accuracy.py) the E-test with surrogate, refined and exact likelihoods, and
           whether the estimated error is true
cost       (refinement_cost.py) exact evaluations of one data set's answers, fields of 25, 49 and 75
           per side
control    (refinement_controls.py) what must be caught: wrong data, a wrong score, kinks, another
           model

`python -m benchmarks refinement` runs what is missing, prints the tables and writes them into
docs/benchmarks.md; `python -m benchmarks.refinement --page` writes them from the cells there are,
`--check gaussian 100 200 40` looks at some groups alone.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keepscore as ks
from benchmarks import machine, refinement_accuracy, refinement_controls, refinement_cost
from benchmarks.pages import write_between
from benchmarks.refinement_surrogates import CASES
from keepscore.files import make_folder, read_json, write_json

RESULTS = machine.ROOT / "benchmarks" / "results"
PAGE = machine.ROOT / "docs" / "benchmarks.md"
EVALUATIONS = (20, 40)
SIDES = (25, 49, 75)


def run(quick: bool = False, folder: Path | None = None) -> dict[str, Any]:
    """Every cell that is not there yet."""
    data = make_folder((folder or RESULTS / "runs") / "refinement")
    kept = make_folder(data / "cells" if quick else RESULTS / "refinement")
    for name, compute in cells(data, quick).items():
        path = kept / f"{name}.json"
        if not path.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ks.KeepscoreWarning)  # counted in the results
                write_json(path, compute())
            print(f"{name}: done", flush=True)
    result = found(kept, quick)
    if not quick:
        write_page(PAGE, result)
    return result


def cells(data: Path, quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    """What computes each cell, by its name."""
    cases, sides = (("sis",), (5,)) if quick else (tuple(CASES), SIDES)
    out: dict[str, Callable[[], dict[str, Any]]] = {}
    for case in cases:
        for n in EVALUATIONS[:1] if quick else EVALUATIONS[::-1]:
            out[f"accuracy-{case}-{n}"] = lambda case=case, n=n: refinement_accuracy.accuracy(
                case, n, data, quick
            )
    for case in cases:
        out[f"control-{case}"] = lambda case=case: refinement_controls.control(case, data, quick)
    for side in sides:
        out[f"cost-{side}"] = lambda side=side: refinement_cost.cost(side, data, quick)
    return out


def found(kept: Path, quick: bool = False) -> dict[str, Any]:
    """The cells there are, in their order."""
    paths = {name: kept / f"{name}.json" for name in cells(kept, quick)}
    return {
        "quick": quick,
        "cells": {name: read_json(path) for name, path in paths.items() if path.exists()},
    }


def table(result: dict[str, Any]) -> str:
    """Accuracy and honesty, cost, controls."""
    by_kind: dict[str, list[dict[str, Any]]] = {"accuracy": [], "cost": [], "control": []}
    for name, cell in result["cells"].items():
        by_kind[name.split("-")[0]].append(cell)
    parts = [
        refinement_accuracy.table(by_kind["accuracy"]),
        refinement_accuracy.honesty_table(by_kind["accuracy"]),
        refinement_controls.table(by_kind["control"]),
        refinement_cost.table(by_kind["cost"]),
        refinement_cost.seconds_table(by_kind["cost"]),
    ]
    return "\n\n".join(part for part in parts if part)


def write_page(page: Path, result: dict[str, Any]) -> None:
    """The tables between the page's two marks."""
    write_between(page, "refinement", f"\n{table(result)}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.refinement", description=__doc__)
    parser.add_argument("--page", action="store_true", help="run nothing; write the tables")
    parser.add_argument(
        "--check", nargs=4, metavar=("CASE", "FIRST", "LAST", "EVALUATIONS"),
        help="some groups of a case alone: sis, gaussian or student-t",
    )  # fmt: skip
    asked = parser.parse_args()
    if asked.page:
        write_page(PAGE, found(RESULTS / "refinement"))
    elif asked.check:
        case, *numbers = asked.check
        data = make_folder(RESULTS / "runs" / "refinement")
        told = refinement_accuracy.check(case, *(int(n) for n in numbers), data)
        print(json.dumps(told, indent=1))
    else:
        print(table(run(quick=True)))
