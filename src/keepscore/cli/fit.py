"""keepscore fit: from a model to a calibrated surrogate of known quality, within a stated time."""

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
    read_observations,
    record_command,
    say,
    show,
)

# What the shell is told.
EXIT_CODES = {"good": 0, "usable with calibration": 4, "not good enough": 1}


def fit(
    model: ModelName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to, or to go on in.")],
    minutes: Annotated[float, typer.Option(help="Time for all of it.")] = 10.0,
    target: Annotated[
        str,
        typer.Option(
            help="lrt (squared error of the likelihood-ratio statistic), coverage (distance of the "
            "coverage of 95% sets from the exact one's), or r2 (least R^2 of the score)."
        ),
    ] = "lrt",
    value: Annotated[
        float | None, typer.Option(help="Of the target: 0.1, 0.02 and 0.9 if left out.")
    ] = None,
    group_size: Annotated[int, typer.Option(help="Observations in a group.", min=1)] = 10,
    observations: Annotated[
        Path | None,
        typer.Option(
            "--data",
            "--observations",
            help=".npy or .csv of your data: the report then has their estimates, and where the "
            "target is not met over the whole box, the fit goes on where their likelihood is.",
        ),
    ] = None,
    network: Annotated[str, typer.Option(help="Network, as for train.")] = "auto",
    seed: Seed = 0,
    settings: ModelSettings = None,
    json: Json = False,
) -> None:
    """Check, simulate, train, measure, calibrate and report, in one go and within a time.

    The same command goes on where it was; with more --minutes it goes further. Exit code 0: good;
    4: usable with calibration; 1: not good enough, or a model that breaks its own laws is refused
    (2).

    Examples:

      keepscore fit sis --minutes 10 --out runs/sis

      keepscore fit my_model.py:model --minutes 10 --out runs/mine --data data.csv
    """
    from keepscore.fitting import fit as run

    built = find_model(model, settings)
    xs = None if observations is None else read_observations(observations, built.x_shape)
    result = run(
        built,
        minutes,
        out,
        target=target,
        value=value,
        group_size=group_size,
        xs=xs,
        network=network,
        seed=seed,
        progress=say,
    )
    asked = {"model": model, "set": settings, "minutes": minutes, "seed": seed, "network": network}
    asked |= {"target": target, "value": value, "group_size": group_size}
    record_command(out, "fit", asked)
    text = f"{result}\nSurrogate: {out / 'surrogate'}"
    show(result.to_dict(), text, json)
    raise typer.Exit(EXIT_CODES[result.verdict.grade])
