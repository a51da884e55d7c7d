"""keepscore reproduce: the paper's experiments, resumable, and their figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from keepscore.cli.settings import Config, Json, show


def reproduce(
    case: Annotated[
        str, typer.Argument(help="sis, gaussian, student-t, all, or sis-large.")
    ] = "all",
    profile: Annotated[
        str, typer.Option(help="smoke (a minute), laptop (an hour a model), committed, or paper.")
    ] = "laptop",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for cells and figures.")] = Path(
        "runs/reproduce"
    ),
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    figures: Annotated[bool, typer.Option(help="Draw the figures from the results.")] = True,
    times: Annotated[
        bool,
        typer.Option("--times", help="Measure the time a batch too, losses in turns; needs quiet."),
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Sweep over simulations, network sizes and losses: one JSON file a cell, only what is missing.

    sis-large is 64 people on a contact network, where no likelihood can be computed: joint scores
    against none (profiles smoke and laptop).

    Example: keepscore reproduce sis --profile smoke --out runs/smoke
    """
    from keepscore.experiments import reproduce as run_sweep
    from keepscore.experiments.sis_large import CASE

    quiet = (lambda line: None) if json else typer.echo
    if case == CASE:
        _reproduce_large(profile, out, figures, json, quiet)
        return
    results = run_sweep(case, profile, out, cluster, report=quiet)
    if times:
        from keepscore.experiments.timing import measure_times

        for name, found in results.items():
            measured = list(dict.fromkeys(r.cell.network for r in found))
            measure_times(name, measured, out, report=quiet)
    drawn: list[str] = []
    if figures:
        from keepscore.figures.reproduction import figures_from

        drawn = [str(path) for path in figures_from(out)]
    content = {
        "path": str(out),
        "cells": {name: len(found) for name, found in results.items()},
        "figures": drawn,
    }
    show(content, f"{len(drawn)} figures in {out}" if drawn else f"Results in {out}", json)


def _reproduce_large(
    profile: str, out: Path, figures: bool, json: bool, report: Callable[[str], Any]
) -> None:
    from keepscore.experiments.sis_large import CASE, estimates, reproduce_large

    results = reproduce_large(profile, out, report=report)
    drawn: list[str] = []
    if figures:
        from keepscore.figures.saving import save_figure
        from keepscore.figures.sis_large import sis_large

        found = {name: estimates(result) for name, result in results.items()}
        drawn = [str(save_figure(sis_large(found), out / CASE / f"{CASE}.svg"))]
    content = {"path": str(out), "cells": {CASE: len(results)}, "figures": drawn}
    show(content, f"Results in {out / CASE}", json)
