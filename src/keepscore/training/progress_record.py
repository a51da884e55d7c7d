"""Where a run is, and whether what a file says of it can be true.

After E epochs, and s steps of the next one, a run has made E S + s batches (S steps per epoch). It
has one record per epoch, in order; the best validation BCE of each member is the smallest of its
records; and it has finished if and only if its settings say that E epochs are enough. All of that
is checked when a checkpoint is read, so that no edited number is believed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from keepscore.errors import FormatError


@dataclass
class Position:
    """Where a run is: epochs done, steps done in the current one, and what they summed to."""

    epoch: int = 0
    step: int = 0
    batches: int = 0
    bce_sum: list[float] = field(default_factory=list)  # by member
    score_sum: list[list[float]] = field(default_factory=list)  # by member and parameter
    epoch_seconds: float = 0.0
    best_bce: list[float] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return asdict(self)


class RunBounds(NamedTuple):
    """What is known of a run before it starts, and bounds where it can be."""

    members: int
    d: int
    steps: int  # per epoch
    expected_epochs: Callable[[Position], int]  # how many there are if none brings anything better


def read_position(content: Any, extent: RunBounds) -> Position:
    """The position that plain data describe, if a run of this extent can be there."""
    names = {f.name for f in fields(Position)}
    _require(isinstance(content, dict) and set(content) == names, "its fields")
    position = Position(**content)
    members = extent.members
    for name in ("epoch", "step", "batches"):
        _require(_is_count(getattr(position, name)), name)
    _require(position.step < extent.steps, "step")
    _require(position.batches == position.epoch * extent.steps + position.step, "batches")
    _require(_is_number(position.epoch_seconds) and position.epoch_seconds >= 0, "epoch_seconds")
    begun = position.epoch > 0 or position.step > 0
    if begun or position.bce_sum:
        _require(_are_numbers(position.bce_sum, members), "bce_sum")
    if begun or position.score_sum:
        sums = position.score_sum
        _require(isinstance(sums, list) and len(sums) == members, "score_sum")
        _require(all(_are_numbers(row, extent.d) for row in sums), "score_sum")
    _require(type(position.finished) is bool, "finished")
    _require_records(position, members)
    expected = position.step == 0 and 0 < position.epoch >= extent.expected_epochs(position)
    _require(position.finished == expected, "finished")
    return position


def _require_records(position: Position, members: int) -> None:
    """One record per epoch, and the best of them as the position has it."""
    records = position.records
    _require(isinstance(records, list) and all(isinstance(r, dict) for r in records), "records")
    _require(bool(records) and records[0].get("event") == "start", "records")
    epochs = [r for r in records if r.get("event") == "epoch"]
    _require([r.get("epoch") for r in epochs] == list(range(1, len(epochs) + 1)), "records")
    _require(len(epochs) == position.epoch, "epoch")
    _require((records[-1].get("event") == "end") == position.finished, "finished")
    _require(isinstance(position.best_bce, list), "best_bce")
    best = [math.inf] * members if epochs else []
    when = [0] * members if epochs else []
    for number, record in enumerate(epochs, 1):
        by_member = record.get("members") if members > 1 else record
        values = by_member.get("validation_bce") if isinstance(by_member, dict) else None
        values = values if members > 1 else [values]
        _require(_are_numbers(values, members), "records")
        assert values is not None
        for m, value in enumerate(values):
            if value < best[m]:
                best[m], when[m] = value, number
    _require(position.best_bce == best, "best_bce")
    _require(position.best_epoch == when, "best_epoch")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise FormatError(f"The position of the run cannot be true: {what}.")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _are_numbers(values: Any, length: int) -> bool:
    return isinstance(values, list) and len(values) == length and all(_is_number(v) for v in values)
