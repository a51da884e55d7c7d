"""keepscore evaluate: the scorecard of a surrogate beside the exact likelihood."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keepscore.cli.settings import (
    Config,
    Json,
    ModelSettings,
    Seed,
    find_model,
    record_command,
    show,
)
from keepscore.files import write_json


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a trained surrogate.")],
    model: Annotated[
        str | None, typer.Option(help="The model; by default the built-in one it was trained on.")
    ] = None,
    size: Annotated[str, typer.Option(help="small (a minute), medium, or paper.")] = "small",
    seed: Seed = 0,
    settings: ModelSettings = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Compare a surrogate with the exact likelihood: losses, tests, sets, estimates.

    Example: keepscore evaluate runs/sis/asa --size medium
    """
    from keepscore.cli.train import trained_model
    from keepscore.evaluation import scorecard
    from keepscore.surrogate import load

    surrogate = load(run)
    exact = trained_model(surrogate) if model is None else find_model(model, settings)
    card = scorecard(surrogate, exact, size=size, seed=seed)
    record_command(run, "evaluate", {"model": model, "size": size, "seed": seed})
    write_json(run / "scorecard.json", card.to_dict())
    show(card.to_dict(), f"{card}\n\nWritten to {run / 'scorecard.json'}", json)
