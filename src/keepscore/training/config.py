"""Settings of a training run: what we advise, and the paper's as named presets."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from keepscore.checks import as_number, require_count, require_flag
from keepscore.errors import DomainError, unknown_name

# Data set size -> epochs before patience may end a run.
MINIMUM_EPOCHS = ((30_000, 40), (100_000, 30), (300_000, 20), (1_000_000, 10))
SCHEDULES = ("constant", "cosine")
PAPER_LEARNING_RATES = {"sis": 1e-3, "gaussian": 1e-3, "student-t": 3e-3}
# What may differ between a run and its resumption: none of it changes a number.
FREE_SETTINGS = ("checkpoint_minutes", "memory_budget")
COUNTS = ("batch_size", "patience", "max_epochs", "members", "memory_budget")
OPTIONAL = ("min_epochs", "devices")  # None, or a count
LARGEST_COUNT = 2**63  # what a run's record can hold


@dataclass(frozen=True)
class TrainConfig:
    """How to train: Adam, early stopping on validation BCE, best epoch kept.

    The defaults are what we advise: a rate that falls from 2e-3 to zero over the paper's number of
    epochs, and declared symmetries. What they bring is measured in `benchmarks/ablation.py`.
    `TrainConfig.paper(case)` is the paper's.

    min_epochs: None takes the paper's by data set size (40 at 30,000 down to 10 at 1,000,000).
    Training stops once there were that many epochs and `patience` of them brought no better
    validation BCE, or at max_epochs, which may not be less.
    schedule: "constant", or "cosine": the learning rate falls to zero over min_epochs, and training
    ends there.
    averaging: keep a running average of the weights, which forgets a batch by this factor with each
    that follows (0.999: about the last thousand), and validate and return that; 0 for none.
    weight_decay: added to the gradient as an L2 term, as `torch.optim.Adam` does.
    members: networks trained at once from different starts and orders, averaged by the surrogate.
    symmetries: apply a random declared symmetry to each sample, x, theta and score together.
    scale_inputs: standardise x and theta inside the network.
    validation_fraction: of the rows held out when no validation set is given.
    checkpoint_minutes: time between checkpoints within an epoch.
    memory_budget: bytes of x beyond which a data set on disk is streamed instead of loaded.
    devices: number of JAX devices to split each batch over; None takes all.
    """

    batch_size: int = 64
    learning_rate: float = 2e-3
    schedule: str = "cosine"
    averaging: float = 0.0
    weight_decay: float = 1e-6
    min_epochs: int | None = None
    patience: int = 5
    max_epochs: int = 500
    seed: int = 0
    members: int = 1
    symmetries: bool = True
    scale_inputs: bool = True
    validation_fraction: float = 0.1
    checkpoint_minutes: float = 5.0
    memory_budget: int = 4 << 30
    devices: int | None = None

    def __post_init__(self) -> None:
        # Kept as Python's own numbers, which a run's record can hold.
        for name in (*COUNTS, *(n for n in OPTIONAL if getattr(self, n) is not None)):
            self._keep(name, require_count(getattr(self, name), name))
        self._keep("seed", require_count(self.seed, "seed", minimum=0))
        for name in (*COUNTS, *OPTIONAL, "seed"):
            if (getattr(self, name) or 0) >= LARGEST_COUNT:
                raise DomainError(f"{name} must be below 2^63; got {getattr(self, name)!r}.")
        for name in ("learning_rate", "checkpoint_minutes"):
            self._keep(name, self._number(name))
            if getattr(self, name) <= 0:
                raise DomainError(f"{name} must be positive; got {getattr(self, name)!r}.")
        self._keep("weight_decay", self._number("weight_decay"))
        if self.weight_decay < 0:
            raise DomainError(f"weight_decay must not be negative; got {self.weight_decay!r}.")
        if self.schedule not in SCHEDULES:
            raise unknown_name("schedule", self.schedule, SCHEDULES)
        self._keep("averaging", self._number("averaging"))
        if not 0 <= self.averaging < 1:
            raise DomainError(f"averaging must lie in [0, 1); got {self.averaging!r}.")
        self._keep("validation_fraction", self._number("validation_fraction"))
        if not 0 < self.validation_fraction < 1:
            raise DomainError(
                f"validation_fraction must lie between 0 and 1; got {self.validation_fraction!r}."
            )
        for name in ("symmetries", "scale_inputs"):
            self._keep(name, require_flag(getattr(self, name), name))
        if self.min_epochs is not None and self.min_epochs > self.max_epochs:
            raise DomainError(
                f"min_epochs={self.min_epochs} cannot be had with max_epochs={self.max_epochs}. "
                "Raise max_epochs, or lower min_epochs."
            )

    def _number(self, name: str) -> float:
        value = as_number(getattr(self, name), name)
        if not math.isfinite(value):
            raise DomainError(f"{name} must be finite; got {value!r}.")
        return value

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def paper(cls, case: str, **changes: Any) -> TrainConfig:
        """The paper's settings for "sis", "gaussian" or "student-t".

        A constant rate, early stopping, no symmetries; inputs are not scaled.
        """
        if not isinstance(case, str) or case not in PAPER_LEARNING_RATES:
            raise unknown_name("case of the paper", case, PAPER_LEARNING_RATES)
        settings = {
            "learning_rate": PAPER_LEARNING_RATES[case],
            "schedule": "constant",
            "symmetries": False,
            "scale_inputs": False,
        }
        return cls(**{**settings, **changes})

    def epochs_at_least(self, n: int) -> int:
        """min_epochs, or the paper's for n rows, between its sizes in proportion to log n."""
        if self.min_epochs is not None:
            return self.min_epochs
        sizes, epochs = zip(*MINIMUM_EPOCHS, strict=True)
        found = round(float(np.interp(math.log(n), np.log(sizes), epochs)))
        return min(found, self.max_epochs)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a run's record."""
        return asdict(self)
