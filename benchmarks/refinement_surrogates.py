"""The surrogates that are refined: the paper's 30K network for SIS, the default ones for fields."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import keepscore as ks
from keepscore.models import SIS, GaussianField, StudentTField

CASES: dict[str, Callable[[], Any]] = {
    "sis": SIS,
    "gaussian": lambda: GaussianField(25),
    "student-t": lambda: StudentTField(25),
}
SIMULATIONS = {"gaussian-49": 3_000, "gaussian-75": 1_000}  # 30,000 elsewhere
SIZE = 10  # observations per group
SEED = 77


def surrogate_of(case: str, model: Any, data: Path, quick: bool) -> Any:
    """The case's surrogate, trained once."""
    folder = data / f"{case}-surrogate{'-quick' if quick else ''}"
    if (folder / "surrogate.json").exists():
        return ks.load(folder)
    n = 2_000 if quick else SIMULATIONS.get(case, 30_000)
    train = ks.simulate(model, n, seed=SEED, path=data / f"{case}-train-{n}", jobs=1)
    short: dict[str, Any] = {"min_epochs": 2, "max_epochs": 2} if quick else {}
    if case == "sis":
        config = ks.TrainConfig.paper("sis", **short)
        made = ks.train(train, None, "30k", ks.ASA.paper(), config)
    elif short:
        made = ks.train(train, config=ks.TrainConfig(**short))
    else:
        made = ks.train(train)  # the best we know
    made.save(folder)
    return made


def some_groups(model: Any, count: int, seed: Any) -> tuple[np.ndarray, np.ndarray]:
    """Theta (count, d) all over the test region, and a group (count, SIZE, ...) at each."""
    rng = np.random.default_rng(seed)
    theta = model.space.uniform(count, rng, "test")
    flat = model.simulate(np.repeat(theta, SIZE, axis=0), rng)
    return theta, flat.reshape(count, SIZE, *model.x_shape)
