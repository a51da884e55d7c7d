"""keepscore evaluate: the scorecard of a surrogate beside the exact likelihood."""

from __future__ import annotations

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
from keepscore.files import write_json


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
    show(card.to_dict(), f"{card}\n\nWritten to {run / 'scorecard.json'}", json)
