"""keepscore evaluate: the scorecard of a surrogate beside the exact likelihood."""

from __future__ import annotations

from keepscore.cli.settings import (
    CardSize,
    Json,
    Minutes,
    ModelSettings,
    Seed,
    TrainedModel,
    TrainedRun,
    record_command,
    say,
    show,
)
from keepscore.files import write_json


def evaluate(
    run: TrainedRun,
    model: TrainedModel = None,
    size: CardSize = "small",
    minutes: Minutes = None,
    seed: Seed = 0,
    settings: ModelSettings = None,
    json: Json = False,
) -> None:
    """Compare a surrogate with the exact likelihood: losses, tests, sets, estimates.

    Writes scorecard.json into the run's folder, and scorecard.png where there is a likelihood.

    Example: keepscore evaluate runs/sis/asa --size medium
    """
    from keepscore import figures
    from keepscore.cli.train import model_of
    from keepscore.evaluation import exact_side, scorecard
    from keepscore.surrogate import load

    surrogate = load(run)
    exact = model_of(surrogate, model, settings)
    sets = exact_side(exact, size, seed, say, minutes)
    say("measuring the surrogate")
    card = scorecard(surrogate, exact, exact=sets)
    record_command(run, "evaluate", {"model": model, "size": size, "seed": seed})
    write_json(run / "scorecard.json", card.to_dict())
    written = f"{run / 'scorecard.json'}"
    if card.etest is not None:
        written += f" and {figures.save_figure(figures.scorecard(card), run / 'scorecard.png')}"
    show(card.to_dict(), f"{card}\n\nWritten to {written}", json)
