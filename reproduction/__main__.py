"""The paper's experiments, resumable, with figures and pages.

python -m reproduction sis --profile committed --out results
python -m reproduction.pages results --out runs/report.html
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from keepscore.errors import KeepscoreError, unknown_name


def reproduce(
    case: Annotated[
        str, typer.Argument(help="sis, gaussian, student-t, all (these three), or sis-large.")
    ],
    profile: Annotated[
        str,
        typer.Option(
            help="smoke (a minute), laptop (an hour per model), committed, paper, falling."
        ),
    ] = "laptop",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for cells and figures.")] = Path(
        "runs/reproduce"
    ),
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    figures: Annotated[bool, typer.Option(help="Draw the figures from the results.")] = True,
    times: Annotated[
        bool,
        typer.Option(
            "--times",
            help="Measure the time per batch too, losses in turns; run nothing beside it.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, nothing else.")
    ] = False,
) -> None:
    """Run what is missing of a sweep over simulations, network sizes and losses; one JSON per cell.

    sis-large is 64 people on a contact network, where no likelihood can be computed: joint scores
    against none (profiles smoke and laptop).

    Example: python -m reproduction sis --profile smoke --out runs/smoke
    """
    from reproduction import reproduce as run_sweep
    from reproduction.cases import CASES
    from reproduction.sis_large import CASE

    known = (*CASES, "all", CASE)
    if case not in known:
        raise unknown_name("case study", case, known)
    quiet = (lambda line: None) if json else typer.echo
    if case == CASE:
        _reproduce_large(profile, out, figures, json, quiet)
        return
    results = run_sweep(case, profile, out, cluster, report=quiet)
    if times:
        from reproduction.timing import measure_times

        for name, found in results.items():
            measured = list(dict.fromkeys(r.cell.network for r in found))
            measure_times(name, measured, out, report=quiet)
    drawn: list[str] = []
    if figures:
        from reproduction.figures.by_case import figures_from

        drawn = [str(path) for path in figures_from(out)]
    content = {
        "path": str(out),
        "cells": {name: len(found) for name, found in results.items()},
        "figures": drawn,
    }
    _show(content, f"{len(drawn)} figures in {out}" if drawn else f"Results in {out}", json)


def _reproduce_large(
    profile: str, out: Path, figures: bool, json: bool, report: Callable[[str], Any]
) -> None:
    from reproduction.sis_large import CASE, estimates, reproduce_large

    results = reproduce_large(profile, out, report=report)
    drawn: list[str] = []
    if figures:
        from keepscore.figures import save_figure
        from reproduction.figures.sis_large import sis_large

        found = {name: estimates(result) for name, result in results.items()}
        drawn = [str(save_figure(sis_large(found), out / CASE / f"{CASE}.svg"))]
    content = {"path": str(out), "cells": {CASE: len(results)}, "figures": drawn}
    _show(content, f"Results in {out / CASE}", json)


def _show(result: dict[str, Any], text: str, as_json: bool) -> None:
    typer.echo(dumps(result, allow_nan=False) if as_json else text)


def run(command: Callable[..., None], name: str) -> None:
    """Run one command of this package; a typed error becomes one sentence and exit code 2."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(no_args_is_help=True)(command)
    try:
        app(prog_name=f"python -m {name}")
    except KeepscoreError as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    run(reproduce, "reproduction")
