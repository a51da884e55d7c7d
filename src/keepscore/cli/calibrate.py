"""keepscore calibrate: critical values that make a surrogate's sets cover."""

from __future__ import annotations

from typing import Annotated

import typer

from keepscore.cli.settings import (
    Json,
    Minutes,
    ModelSettings,
    Seed,
    TrainedModel,
    TrainedRun,
    say,
    show,
)


def calibrate(
    run: TrainedRun,
    model: TrainedModel = None,
    group_size: Annotated[int, typer.Option(help="Observations in a group.", min=1)] = 10,
    n: Annotated[int, typer.Option("--n", "-n", help="Simulated groups.", min=100)] = 4000,
    level: Annotated[float, typer.Option(help="Level of the held-out check.")] = 0.95,
    minutes: Minutes = None,
    seed: Seed = 0,
    settings: ModelSettings = None,
    json: Json = False,
) -> None:
    """Simulate the null distribution of the likelihood-ratio statistic, and keep it in the run.

    Example: keepscore calibrate runs/sis/asa --group-size 10
    """
    from keepscore.cli.train import model_of
    from keepscore.inference import calibrate as run_calibration
    from keepscore.surrogate import load

    surrogate = load(run)
    simulator = model_of(surrogate, model, settings)
    calibration = run_calibration(
        surrogate, simulator, group_size, n, level, seed=seed, minutes=minutes, progress=say
    )
    groups = 2 * len(calibration.held_out)
    surrogate.with_calibration(calibration).save(run)
    content = calibration.to_dict()
    show(
        {"path": str(run), "check": content.get("check"), "groups": groups}, str(calibration), json
    )
