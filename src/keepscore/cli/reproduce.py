"""keepscore reproduce: the paper's experiments, resumable, and their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepscore.cli.settings import Config, Json, show


def reproduce(
    case: Annotated[str, typer.Argument(help="sis, gaussian, student-t or all.")] = "all",
    profile: Annotated[
        str, typer.Option(help="smoke (a minute), laptop (an hour a model), committed, or paper.")
    ] = "laptop",
    out: Annotated[Path, typer.Option("--out", help="Folder for cells and figures.")] = Path(
        "runs/reproduce"
    ),
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    figures: Annotated[bool, typer.Option(help="Draw the figures from the results.")] = True,
    json: Json = False,
    config: Config = None,
) -> None:
    """Sweep over simulations, network sizes and losses: one JSON file a cell, only what is missing.

    Example: keepscore reproduce sis --profile smoke --out runs/smoke
    """
    from keepscore.experiments import reproduce as run_sweep

    quiet = (lambda line: None) if json else typer.echo
    results = run_sweep(case, profile, out, cluster, report=quiet)
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
