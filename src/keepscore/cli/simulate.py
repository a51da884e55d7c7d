"""keepscore simulate, verify, repair: datasets on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from keepscore.cli.settings import (
    Json,
    ModelName,
    ModelSettings,
    Seed,
    find_model,
    record_command,
    show,
)
from keepscore.errors import DomainError

Folder = Annotated[Path, typer.Argument(help="Folder of the dataset.")]


def simulate(
    model: ModelName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to, or to go on in.")],
    n: Annotated[int, typer.Option("--n", "-n", help="Number of simulations.", min=1)] = 30_000,
    seed: Seed = 0,
    purpose: Annotated[
        str, typer.Option(help="train, validation or test: separate streams of one seed.")
    ] = "train",
    scores: Annotated[bool, typer.Option(help="Keep the scores, which ASA needs.")] = True,
    jobs: Annotated[
        int | None, typer.Option(help="Processes; all cores by default.", min=1)
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    shard: Annotated[
        str | None,
        typer.Option(help="i/k: write share i of k only, for job arrays (i = 1, ..., k)."),
    ] = None,
    on_invalid: Annotated[
        str, typer.Option(help="raise: stop at NaN or infinity; drop: leave them out, recorded.")
    ] = "raise",
    settings: ModelSettings = None,
    json: Json = False,
) -> None:
    """Simulate a dataset (theta, x, score) into a folder; the same command goes on where it was.

    Examples:

      keepscore simulate sis -n 30000 --out runs/sis/train

      keepscore simulate sis -n 30000 --out runs/sis/validation --purpose validation

      keepscore simulate sis -n 1000000 --out runs/big --shard 3/100     (one of a job array)
    """
    from keepscore import data

    built = find_model(model, settings)
    common: dict[str, Any] = {"purpose": purpose, "scores": scores, "on_invalid": on_invalid}
    if shard is not None:
        if cluster is not None:
            raise DomainError("--shard and --cluster exclude each other: shares need no cluster.")
        state = data.simulate_share(built, n, seed, out, _share(shard), jobs=jobs, **common)
        result = {"path": str(out), "complete": state.complete, "missing": list(state.missing)}
        show(result, str(state), json)
        return
    dataset = data.simulate(built, n, seed, out, jobs=jobs, cluster=cluster, **common)
    asked = {"model": model, "set": settings, "n": n, "seed": seed, **common}
    record_command(out, "simulate", asked)
    result = {"path": str(out), "rows": len(dataset), "score_kind": dataset.score_kind}
    show(result, f"{dataset!r}\nin {out}", json)


def verify(folder: Folder, json: Json = False) -> None:
    """Read every byte of a dataset and compare checksums; exit code 1 if anything is damaged."""
    from keepscore import data

    report = data.verify(folder)
    damaged = [str(d) for d in report.damaged]
    show({"path": str(folder), "sound": not damaged, "damaged": damaged}, str(report), json)
    if damaged:
        raise typer.Exit(1)


def repair(
    folder: Folder,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model, where it is not one of the built-in ones: package.module:object or "
            "file.py:object."
        ),
    ] = None,
    settings: ModelSettings = None,
    json: Json = False,
) -> None:
    """Simulate damaged shards again, to the same bytes."""
    from keepscore import data

    report = data.repair(folder, None if model is None else find_model(model, settings))
    damaged = [str(d) for d in report.damaged]
    show({"path": str(folder), "sound": not damaged, "damaged": damaged}, str(report), json)


def _share(text: str) -> tuple[int, int]:
    parts = text.split("/")
    if len(parts) != 2 or not all(p.strip().isdigit() for p in parts):
        raise DomainError(f"--shard is written i/k, e.g. 3/100; got {text!r}.")
    return int(parts[0]), int(parts[1])
