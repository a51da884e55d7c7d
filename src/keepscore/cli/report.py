"""keepscore report: one HTML page for a surrogate, or several beside each other."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from keepscore.cli.settings import (
    CardSize,
    Config,
    Json,
    ModelSettings,
    Seed,
    TrainedModel,
    show,
)
from keepscore.errors import DomainError, KeepscoreWarning, MismatchError
from keepscore.files import make_folder

GROUPS, GROUP_SIZE = 4, 10


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained surrogates.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    model: TrainedModel = None,
    size: CardSize = "small",
    seed: Seed = 0,
    settings: ModelSettings = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Scorecards, training curves and likelihood surfaces of one run or several, in one page.

    Example: keepscore report runs/sis/bce runs/sis/asa --out runs/sis/report.html
    """
    make_folder(out.parent)
    if out.is_dir():
        raise DomainError(f"{out} is a folder; name the page, e.g. {out / 'report.html'}.")
    from keepscore.cli.train import model_of
    from keepscore.evaluation import scorecard
    from keepscore.reports import write
    from keepscore.surrogate import load

    surrogates = {_label(path, runs): load(path) for path in runs}
    first = next(iter(surrogates.values()))
    for name, other in surrogates.items():
        if (other.space, other.x_shape) != (first.space, first.x_shape):
            raise MismatchError(f"{name} was trained on another space or x_shape than the first.")
    exact = model_of(first, model, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # the page has notices of its own
        cards = {name: scorecard(s, exact, size, seed) for name, s in surrogates.items()}
        content = _content(surrogates, exact, cards, runs, seed)
    page = write(content, out)
    result = {"report": str(page), "scorecards": {k: c.to_dict() for k, c in cards.items()}}
    show(result, f"Report: {page}", json)


def _content(surrogates: Any, model: Any, cards: Any, runs: list[Path], seed: int) -> Any:
    from keepscore.cli.compare import likelihoods, machine, now, surfaces_of
    from keepscore.evaluation import run_of
    from keepscore.reports import EXACT, ReportContent, example_from, scorecard_from

    rng = np.random.default_rng([seed, 0xAE])
    truths = model.space.uniform(GROUPS, rng, "test")
    xs = model.simulate(np.repeat(truths, GROUP_SIZE, axis=0), rng)
    groups = xs.reshape(GROUPS, GROUP_SIZE, *model.x_shape)
    rows, coverage = scorecard_from(cards)
    surfaces = None
    if cards and next(iter(cards.values())).etest is not None and model.space.d <= 3:
        names = [f"test group {k + 1}" for k in range(GROUPS)]
        surfaces = surfaces_of(likelihoods(surrogates, model, groups), truths, names)
    return ReportContent(
        title=f"Surrogates of {model.name}",
        subtitle=", ".join(surrogates),
        created=now(),
        methods=(*surrogates, EXACT),
        commands=("keepscore report " + " ".join(str(r) for r in runs),),
        runs=tuple(run_of(name, s) for name, s in surrogates.items()),
        scorecard=rows,
        coverage=coverage,
        surfaces=surfaces,
        examples=tuple(
            example_from(group[0], model.structure, f"Test group {k + 1}, first observation")
            for k, group in enumerate(groups[:3])
        ),
        provenance={**machine(), "seed": seed, "model": model.settings()},
    )


def _label(path: Path, all_paths: list[Path]) -> str:
    """A folder's own name, or its whole path where names repeat."""
    name = path.resolve().name
    return name if [p.resolve().name for p in all_paths].count(name) == 1 else str(path)
