"""keepscore evaluate: the scorecard of a surrogate beside the exact likelihood."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from keepscore.cli.settings import (
    CardSize,
    Config,
    Json,
    ModelSettings,
    Seed,
    TrainedModel,
    TrainedRun,
    record_command,
    show,
)
from keepscore.files import write_atomically, write_json

if TYPE_CHECKING:
    from keepscore.evaluation.scorecard import Scorecard


def evaluate(
    run: TrainedRun,
    model: TrainedModel = None,
    size: CardSize = "small",
    seed: Seed = 0,
    settings: ModelSettings = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Compare a surrogate with the exact likelihood: losses, tests, sets, estimates.

    Writes scorecard.json into the run's folder, and scorecard.png where there is a likelihood.

    Example: keepscore evaluate runs/sis/asa --size medium
    """
    from keepscore.cli.train import model_of
    from keepscore.evaluation import scorecard
    from keepscore.surrogate import load

    surrogate = load(run)
    exact = model_of(surrogate, model, settings)
    card = scorecard(surrogate, exact, size=size, seed=seed)
    record_command(run, "evaluate", {"model": model, "size": size, "seed": seed})
    write_json(run / "scorecard.json", card.to_dict())
    written = [str(run / "scorecard.json")]
    if card.etest is not None:
        written.append(str(_picture(run / "scorecard.png", card)))
    show(card.to_dict(), f"{card}\n\nWritten to {' and '.join(written)}", json)


def _picture(path: Path, card: Scorecard) -> Path:
    from keepscore.figures.scorecard import scorecard_plot

    figure = scorecard_plot(card)
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=150))
    return path
