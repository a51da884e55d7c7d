"""keepscore train: a surrogate from a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepscore.cli.settings import (
    Json,
    Seed,
    Voice,
    find_model,
    record_command,
    show,
)
from keepscore.errors import (
    DomainError,
    MismatchError,
    MissingError,
    UnknownNameError,
    unknown_name,
)
from keepscore.models.base import Model, build

if TYPE_CHECKING:
    from keepscore.surrogate import Surrogate
    from keepscore.training import TrainConfig

LOSSES = ("asa", "bce")
PAPER = ("sis", "gaussian", "student-t")


def train(
    dataset: Annotated[Path, typer.Argument(help="Folder of a dataset (keepscore simulate).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the surrogate.")],
    validation: Annotated[
        Path | None, typer.Option(help="Folder of a validation set; else a tenth is held out.")
    ] = None,
    network: Annotated[
        str, typer.Option(help="auto (by what the model declares), a size (30k), or family-size.")
    ] = "auto",
    loss: Annotated[
        str | None,
        typer.Option(help="asa (uses scores) or bce; asa where the data have scores, if left out."),
    ] = None,
    negatives: Annotated[int, typer.Option(help="Shuffled partners for each x.", min=1)] = 1,
    preset: Annotated[
        str | None,
        typer.Option(help="The paper's settings: sis, gaussian or student-t."),
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's step size.")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Stop here at the latest.")] = None,
    min_epochs: Annotated[
        int | None, typer.Option(help="Not before this; by N if left out.")
    ] = None,
    members: Annotated[int | None, typer.Option(help="Networks in an ensemble.")] = None,
    symmetries: Annotated[
        bool | None, typer.Option(help="Apply the model's declared symmetries.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew; what was trained in --out is removed.")
    ] = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a network that stands in for the likelihood; the same command goes on where it was.

    Examples:

      keepscore train runs/sis/train --out runs/sis/asa

      keepscore train runs/sis/train --loss bce --network 100k --preset sis --out runs/sis/bce
    """
    from keepscore.data import open_dataset
    from keepscore.losses import ASA, BCE
    from keepscore.training import train as run_training

    if loss is not None and loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    given = {
        "learning_rate": learning_rate,
        "max_epochs": max_epochs,
        "min_epochs": min_epochs,
        "members": members,
        "symmetries": symmetries,
    }
    changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    settings = _settings(preset, {**changes, "seed": seed})
    scores = ASA if preset is None else ASA.paper
    data = open_dataset(dataset)
    loss = loss or ("bce" if data.score is None else "asa")
    make = scores if loss == "asa" else BCE
    surrogate = run_training(
        data,
        validation=None if validation is None else open_dataset(validation),
        network=network,
        loss=make(negatives=negatives),
        config=settings,
        path=out,
        resume=not fresh,
        progress=False if Voice.quiet else None,
    )
    asked = {"dataset": dataset, "validation": validation, "network": network, "loss": loss}
    record_command(out, "train", {**asked, "negatives": negatives, "config": settings.to_dict()})
    end = surrogate.history[-1]
    result: dict[str, Any] = {
        "path": str(out),
        "epochs": end["epochs"],
        "best_epoch": end["best_epoch"],
        "validation_bce": end["best_validation_bce"],
        "seconds": end["seconds"],
    }
    text = (
        f"{end['epochs']} epochs in {end['seconds']:.0f} s, best validation BCE "
        f"{end['best_validation_bce']:.4f} at epoch {end['best_epoch']}\nsurrogate in {out}"
    )
    if surrogate.quality is not None:
        result["quality"] = surrogate.quality.to_dict()
        text += f"\n{surrogate.quality.line(surrogate.space.names)}"
    show(result, text, json)


def _settings(preset: str | None, changes: dict[str, Any]) -> TrainConfig:
    from keepscore.training import TrainConfig

    if preset is None:
        return TrainConfig(**changes)
    if preset not in PAPER:
        raise unknown_name("preset", preset, PAPER)
    return TrainConfig.paper(preset, **changes)


def model_of(surrogate: Surrogate, name: str | None, settings: list[str] | None) -> Model:
    """The model named, or the built-in one a surrogate was trained on, from its provenance."""
    if name is not None:
        model = find_model(name, settings)
        if (model.space.names, model.x_shape) != (surrogate.space.names, surrogate.x_shape):
            raise MismatchError(
                f"The surrogate was trained on parameters {', '.join(surrogate.space.names)} and x "
                f"of shape {surrogate.x_shape}; {name} has {', '.join(model.space.names)} and "
                f"{model.x_shape}. Name the model it was trained on."
            )
        return model
    if settings:
        raise DomainError("--set changes a model named by --model; say that too.")
    description = surrogate.provenance.get("data", {}).get("model")
    try:
        return build(description or {})
    except (UnknownNameError, ValueError) as error:
        raise MissingError(
            f"This surrogate's model cannot be made again by name ({error}); say --model "
            "package.module:object or file.py:object."
        ) from None
