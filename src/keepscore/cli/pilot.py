"""keepscore worth: a pilot that tells whether scores pay on a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepscore.cli.settings import (
    Json,
    ModelName,
    ModelSettings,
    Seed,
    find_model,
    say,
    show,
)
from keepscore.files import make_folder, write_json


def worth(
    model: ModelName,
    n: Annotated[int, typer.Option("--n", "-n", help="Largest number of simulations.")] = 8_000,
    minutes: Annotated[float, typer.Option(help="Budget the advice is for.")] = 10.0,
    network: Annotated[str, typer.Option(help="Network, as for train.")] = "auto",
    seeds: Annotated[int, typer.Option(help="Trainings per kind.")] = 2,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for JSON and picture.")
    ] = None,
    seed: Seed = 0,
    settings: ModelSettings = None,
    json: Json = False,
) -> None:
    """Small runs with and without scores: what a score costs, what it is worth, what to do.

    Example: keepscore worth sis --minutes 10 --out runs/worth
    """
    from jax.random import key

    from keepscore.evaluation.pilot import worth as pilot
    from keepscore.networks import resolve

    built = find_model(model, settings)
    if network != "auto":  # a wrong name is an error now, not after the simulations
        graph = getattr(built, "weights", None)
        resolve(network, built.x_shape, built.space.d, built.structure, key(0), graph)
    folder = None if out is None else make_folder(out)
    found = pilot(
        built,
        n,
        60 * minutes,
        network,
        seeds,
        seed,
        progress=say,
    )
    text = str(found)
    if folder is not None:
        from keepscore import figures

        write_json(folder / "worth.json", found.to_dict())
        figures.save_figure(figures.pilot(found), folder / "worth.png")
        text += f"\n\nWritten to {folder}"
    show(found.to_dict(), text, json)
