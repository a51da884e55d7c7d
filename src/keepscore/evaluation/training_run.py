"""A training as plain data: what pictures and pages show of it, long after the network is gone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from keepscore.surrogate import Surrogate


@dataclass(frozen=True)
class Epoch:
    """One epoch of a training; `score_loss` and `alpha` only where scores were used.

    Those two are one number, or one per parameter; they are kept as tuples.
    """

    epoch: int
    train_bce: float
    validation_bce: float | None = None
    score_loss: tuple[float, ...] | float | None = None
    alpha: tuple[float, ...] | float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("score_loss", "alpha"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(np.ravel(value).tolist()))


@dataclass(frozen=True)
class Run:
    """One training: its settings, epochs, number of weights and wall-clock seconds.

    components: names of the parameters whose score loss and alpha the epochs hold.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[Epoch, ...] = ()
    parameters: int | None = None
    seconds: float | None = None
    best_epoch: int | None = None
    components: tuple[str, ...] = ()

    @property
    def best(self) -> Epoch | None:
        """The epoch that was kept: the one named, or the one of lowest validation BCE."""
        if self.best_epoch is not None:
            return next((e for e in self.history if e.epoch == self.best_epoch), None)
        known = [(e.validation_bce, e) for e in self.history if e.validation_bce is not None]
        finite = [(bce, e) for bce, e in known if math.isfinite(bce)]
        return min(finite, key=lambda entry: entry[0])[1] if finite else None


def run_of(name: str, surrogate: Surrogate) -> Run:
    """A surrogate's own training, from the history that is saved with it."""
    first = next((r for r in surrogate.history if r["event"] == "start"), {})
    last = next((r for r in surrogate.history if r["event"] == "end"), {})
    training = surrogate.provenance.get("training", {})
    epochs = tuple(
        Epoch(
            record["epoch"],
            record["train_bce"],
            record["validation_bce"],
            record.get("score_loss_by_parameter"),
            record.get("alpha_by_parameter", record.get("alpha")),
            record["seconds"],
        )
        for record in surrogate.history
        if record["event"] == "epoch"
    )
    return Run(
        name=name,
        settings={
            "simulations": first.get("rows"),
            "network": training.get("network"),
            "loss": training.get("loss"),
            "training": training.get("config"),
        },
        history=epochs,
        parameters=first.get("weights"),
        seconds=last.get("seconds"),
        best_epoch=last.get("best_epoch"),
        components=surrogate.space.working_names,
    )
