"""Settings of a training run: what we advise, and the paper's as named presets."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from keepscore.checks import as_number, require_choice, require_count, require_flag
from keepscore.errors import DomainError, unknown_name
from keepscore.training.length import advised_epochs, paper_epochs

SCHEDULES = ("constant", "cosine")
PAPER_LEARNING_RATES = {"sis": 1e-3, "gaussian": 1e-3, "student-t": 3e-3}
# What may differ between a run and its resumption: none of it changes a number.
FREE_SETTINGS = ("checkpoint_minutes", "memory_budget")
LENGTHS = ("advised", "paper")
CRITERIA = ("both", "bce")
COUNTS = ("batch_size", "patience", "members", "memory_budget")
OPTIONAL = ("min_epochs", "max_epochs", "devices")  # None, or a count
PAPER_MAX_EPOCHS = 500
# What settings of earlier versions did, which did not have these.
BEFORE = {"length": "paper", "criterion": "bce", "guard": False, "compare": False}
LARGEST_COUNT = 2**63  # what a run's record can hold


@dataclass(frozen=True)
class TrainConfig:
    """How to train: Adam, validation after each epoch, the best epoch kept.

    The defaults are what we advise: a rate that falls from 2e-3 to zero over a number of updates
    chosen by rows and parameters, and declared symmetries. What they bring is measured in
    `benchmarks/ablation.py`. `TrainConfig.paper(case)` is the paper's.

    Args:
        batch_size: Rows per update.
        learning_rate: Of Adam, at its largest.
        schedule: "cosine": the learning rate falls to zero over the length of the run, and training
            ends there. "constant": training stops once there were that many epochs and `patience`
            of them brought nothing better, or at max_epochs.
        averaging: Keep a running average of the weights, which forgets a batch by this factor with
            each that follows (0.999: about the last thousand), and validate and return that; 0 for
            none.
        weight_decay: Added to the gradient as an L2 term, as `torch.optim.Adam` does.
        length: How many epochs, where min_epochs does not say. "advised": enough updates for the
            rows and parameters there are, fewer where the network begins to overfit (see
            `training/length.py`). "paper": the paper's by data set size (40 at 30,000 rows down to
            10 at 1,000,000).
        min_epochs: So many epochs instead.
        max_epochs: No more than so many; may not be less than min_epochs. None: no limit (500 with
            a constant rate).
        patience: Epochs without anything better, with a constant rate.
        criterion: What makes an epoch the best. "both": validation BCE and score loss together,
            where the loss is ASA and the validation rows have scores; "bce": validation BCE. For a
            density without scores it is its likelihood in either case.
        guard: Where the score term seems to do harm, train without it too, keep the better of the
            two, and say so (see `training/guard.py`).
        compare: Where network="auto" has several candidates and the first is not good, train them
            all and keep the best on held-out rows (see `training/candidates.py`).
        seed: Root of all randomness.
        members: Networks trained at once from different starts and orders, averaged by the
            surrogate.
        symmetries: Apply a random declared symmetry to each sample, x, theta and score together.
        scale_inputs: Standardise x and theta inside the network.
        validation_fraction: Share of the rows held out when no validation set is given.
        checkpoint_minutes: Time between checkpoints within an epoch.
        memory_budget: Bytes of x beyond which a data set on disk is streamed instead of loaded.
        devices: Number of JAX devices to split each batch over; None takes all.

    Raises:
        DomainError: A number out of range, or min_epochs above max_epochs.
        DtypeError: A number of the wrong kind.
        UnknownNameError: No such schedule, length or criterion.

    Example:
        >>> import keepscore as ks
        >>> ks.TrainConfig(members=5, seed=1).schedule
        'cosine'
        >>> ks.TrainConfig.paper("sis").schedule
        'constant'
    """

    batch_size: int = 64
    learning_rate: float = 2e-3
    schedule: str = "cosine"
    averaging: float = 0.0
    weight_decay: float = 1e-6
    length: str = "advised"
    min_epochs: int | None = None
    max_epochs: int | None = None
    patience: int = 5
    criterion: str = "both"
    guard: bool = True
    compare: bool = True
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
        require_choice(self.schedule, "schedule", SCHEDULES)
        self._keep("averaging", self._number("averaging"))
        if not 0 <= self.averaging < 1:
            raise DomainError(f"averaging must lie in [0, 1); got {self.averaging!r}.")
        self._keep("validation_fraction", self._number("validation_fraction"))
        if not 0 < self.validation_fraction < 1:
            raise DomainError(
                f"validation_fraction must lie between 0 and 1; got {self.validation_fraction!r}."
            )
        for name, known in (("length", LENGTHS), ("criterion", CRITERIA)):
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        for name in ("symmetries", "scale_inputs", "guard", "compare"):
            self._keep(name, require_flag(getattr(self, name), name))
        limit = self.max_epochs
        if self.min_epochs is not None and limit is not None and self.min_epochs > limit:
            raise DomainError(
                f"min_epochs={self.min_epochs} cannot be had with max_epochs={self.max_epochs}. "
                "Raise max_epochs, or lower min_epochs."
            )

    def _number(self, name: str) -> float:
        value = as_number(getattr(self, name), name)
        if not math.isfinite(value):
            raise DomainError(f"{name} must be finite; got {value!r}.")
        return value

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def paper(cls, case: str, **changes: Any) -> TrainConfig:
        """The paper's settings for "sis", "gaussian" or "student-t".

        A constant rate, early stopping by validation BCE, no symmetries; inputs are not scaled.
        """
        if not isinstance(case, str) or case not in PAPER_LEARNING_RATES:
            raise unknown_name("case of the paper", case, PAPER_LEARNING_RATES)
        settings = {
            "learning_rate": PAPER_LEARNING_RATES[case],
            "schedule": "constant",
            "symmetries": False,
            "scale_inputs": False,
            "length": "paper",
            "max_epochs": PAPER_MAX_EPOCHS,
            "criterion": "bce",
            "guard": False,
            "compare": False,
        }
        return cls(**{**settings, **changes})

    def epochs_at_least(self, n: int, d: int = 1) -> int:
        """How many epochs of n rows with d parameters: the length of a run with a falling rate, and
        the shortest one with a constant rate."""
        found = self._by_rows(n, d) if self.min_epochs is None else self.min_epochs
        return found if self.max_epochs is None else min(found, self.max_epochs)

    def epochs_at_most(self, n: int, d: int) -> int:
        """The longest run with a constant rate."""
        if self.max_epochs is not None:
            return self.max_epochs
        return max(PAPER_MAX_EPOCHS, self.epochs_at_least(n, d))

    def may_cool(self, n: int, d: int) -> bool:
        """Whether the validation curve may end the run early: where rows are so few that they are
        passed over more often than in the paper."""
        own = self.schedule == "cosine" and self.length == "advised" and self.min_epochs is None
        return own and self.epochs_at_least(n, d) > paper_epochs(n)

    def is_whole(self, n: int, d: int) -> bool:
        """Whether the run is as long as the rule makes it, not cut short by a stated number."""
        return self.epochs_at_least(n, d) >= self._by_rows(n, d)

    def _by_rows(self, n: int, d: int) -> int:
        paper = self.length == "paper"
        return paper_epochs(n) if paper else advised_epochs(n, d, self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a run's record."""
        return asdict(self)
