"""keepscore report: one HTML page for a surrogate, or several beside each other."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from keepscore.cli.settings import (
    CardSize,
    Json,
    ModelSettings,
    Seed,
    TrainedModel,
    read_observations,
    say,
    show,
)
from keepscore.errors import MismatchError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained surrogates.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    model: TrainedModel = None,
    observations: Annotated[
        Path | None,
        typer.Option(help="Your data (.npy or .csv): the page shows their estimates too."),
    ] = None,
    check_data: Annotated[
        bool | None,
        typer.Option(
            "--check-data/--no-check-data",
            help="Say whether the model fits your data; by default where that takes seconds.",
        ),
    ] = None,
    size: CardSize = "small",
    seed: Seed = 0,
    settings: ModelSettings = None,
    json: Json = False,
) -> None:
    """Scorecards, training curves and likelihood surfaces of one run or several, in one page.

    Examples:

      keepscore report runs/sis/bce runs/sis/asa --out runs/sis/report.html

      keepscore report runs/mine --model my_model.py:model --observations data.csv
    """
    from keepscore.cli.train import model_of
    from keepscore.reports import report as make_report
    from keepscore.surrogate import load

    surrogates = {_label(path, runs): load(path) for path in runs}
    first = next(iter(surrogates.values()))
    for name, other in surrogates.items():
        if (other.space, other.x_shape) != (first.space, first.x_shape):
            raise MismatchError(f"{name} was trained on another space or x_shape than the first.")
    exact = model_of(first, model, settings)
    made = make_report(
        surrogates,
        exact,
        out,
        xs=None if observations is None else read_observations(observations, first.x_shape),
        size=size,
        seed=seed,
        commands=(shlex.join(["keepscore", "report", *map(str, runs), "--out", str(out)]),),
        progress=say,
        check=check_data,
    )
    show(made.to_dict(), str(made), json)


def _label(path: Path, all_paths: list[Path]) -> str:
    """A folder's own name, or its whole path where names repeat."""
    name = path.resolve().name
    return name if [p.resolve().name for p in all_paths].count(name) == 1 else str(path)
