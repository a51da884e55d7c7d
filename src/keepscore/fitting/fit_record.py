"""What a fit has done so far, on disk: enough to go on after an interruption.

`fit.json`, sealed by a checksum: the question (model, seed, target, ...), the seconds spent, the
laws, the costs, every round and the one under way. Surrogates and data lie in folders beside it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from keepscore.differences import differences
from keepscore.errors import FormatError, MismatchError
from keepscore.files import read_sealed, write_sealed
from keepscore.fitting.attempts import Attempt
from keepscore.fitting.focusing import Focus
from keepscore.fitting.yardstick import Extent, Measured

NAME, FORMAT, VERSION = "fit.json", "keepscore-fit", 1


@dataclass(frozen=True)
class Round:
    """An attempt, what it cost, and what came out."""

    attempt: Attempt
    simulating: float
    training: float
    quality: str
    loss: float
    measured: Measured

    def __str__(self) -> str:
        return f"{self.attempt}: {self.measured.line()}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "attempt": asdict(self.attempt),
            "simulating": self.simulating,
            "training": self.training,
            "quality": self.quality,
            "loss": self.loss,
            "measured": self.measured.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Round:
        """What `to_dict` made."""
        return cls(
            _attempt(content["attempt"]),
            float(content["simulating"]),
            float(content["training"]),
            str(content["quality"]),
            float(content["loss"]),
            Measured.from_dict(content["measured"]),
        )


@dataclass
class FitRecord:
    """The state of a fit. `question`: plain data that a second call must agree with."""

    question: dict[str, Any]
    spent: float = 0.0
    laws: str = ""
    costs: dict[str, float] = field(default_factory=dict)
    loss: str = ""
    extent: Extent | None = None
    rounds: list[Round] = field(default_factory=list)
    under_way: Attempt | None = None
    verdict: dict[str, str] | None = None
    focusing: dict[str, int] = field(default_factory=dict)  # simulations, by the stage's name
    focused: dict[str, Focus] = field(default_factory=dict)

    def write(self, folder: Path | None) -> None:
        """Save it, if there is a folder."""
        if folder is None:
            return
        content: dict[str, Any] = {
            "question": self.question,
            "spent": self.spent,
            "laws": self.laws,
            "costs": self.costs,
            "loss": self.loss,
            "extent": None if self.extent is None else _plain(self.extent),
            "rounds": [r.to_dict() for r in self.rounds],
            "under_way": None if self.under_way is None else asdict(self.under_way),
            "verdict": self.verdict,
            "focusing": self.focusing,
            "focused": {name: one.to_dict() for name, one in self.focused.items()},
        }
        write_sealed(folder / NAME, FORMAT, VERSION, content)


def read_record(folder: Path | None, question: dict[str, Any]) -> FitRecord:
    """The record in a folder, or a new one; a record of another question is an error."""
    path = None if folder is None else folder / NAME
    if path is None or not path.exists():
        return FitRecord(question)
    content = read_sealed(path, FORMAT, VERSION)
    try:
        record = FitRecord(
            dict(content["question"]),
            float(content["spent"]),
            str(content["laws"]),
            {str(k): float(v) for k, v in content["costs"].items()},
            str(content["loss"]),
            None if content["extent"] is None else _extent(content["extent"]),
            [Round.from_dict(r) for r in content["rounds"]],
            None if content["under_way"] is None else _attempt(content["under_way"]),
            None if content["verdict"] is None else dict(content["verdict"]),
            {str(k): int(v) for k, v in content.get("focusing", {}).items()},
            {str(k): Focus.from_dict(v) for k, v in content.get("focused", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise FormatError(
            f"{path} is not the record of a fit ({type(error).__name__}: {error}). Move it away, "
            "or use another folder."
        ) from None
    if record.question != question:
        found = "; ".join(differences(record.question, question))
        raise MismatchError(
            f"{folder} holds a fit of something else: {found}. Use another folder, or ask the same."
        )
    return record


def _attempt(content: dict[str, Any]) -> Attempt:
    epochs = content["epochs"]
    return Attempt(
        int(content["n"]),
        str(content["network"]),
        str(content["loss"]),
        None if epochs is None else int(epochs),
    )


def _plain(extent: Extent) -> dict[str, Any]:
    """For JSON, which has no infinity."""
    cost = extent.seconds_per_group
    return {**asdict(extent), "seconds_per_group": cost if math.isfinite(cost) else None}


def _extent(content: dict[str, Any]) -> Extent:
    cost = content["seconds_per_group"]
    exact = bool(content["exact"])
    return Extent(int(content["groups"]), exact, math.inf if cost is None else float(cost))
