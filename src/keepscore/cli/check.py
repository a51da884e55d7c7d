"""keepscore check-model: do simulator, likelihood and score agree?"""

from __future__ import annotations

from typing import Annotated

import typer

from keepscore.cli.settings import (
    Json,
    Minutes,
    ModelName,
    ModelSettings,
    Seed,
    find_model,
    say,
    show,
)
from keepscore.models.laws import check_model as run_laws


def check_model(
    model: ModelName,
    draws: Annotated[int, typer.Option(help="Simulations at each of three points.")] = 1000,
    minutes: Minutes = None,
    seed: Seed = 0,
    settings: ModelSettings = None,
    json: Json = False,
) -> None:
    """Run the laws every model must obey, and print a table; exit code 1 if one is broken.

    Laws that need something the model does not have, such as a likelihood, are listed as not
    checked; they do not change the exit code.

    Examples:

      keepscore check-model sis --draws 2000

      keepscore check-model my_model.py:model
    """
    built = find_model(model, settings)
    report = run_laws(built, draws, seed, show=False, minutes=minutes, progress=say)
    show(report.to_dict(), str(report), json)
    if not report.passed:
        raise typer.Exit(1)
