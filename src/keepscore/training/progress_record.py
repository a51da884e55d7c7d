"""Where a run is, and whether what a file says of it can be true.

After E epochs, and s steps of the next one, a run has made E S + s batches (S steps per epoch). It
has one record per epoch, in order; the best criterion of each member is the smallest of its
records; it cools since its records say so; and it has finished if and only if its settings say that
E epochs are enough. All of that is checked when a checkpoint is read, so that no edited number is
used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from keepscore.errors import FormatError
from keepscore.training.length import first_cooling

Record = dict[str, Any]  # of one event of a run
Plain = object  # what JSON may hold


@dataclass
class Position:
    """Where a run is: epochs done, steps done in the current one, and what they summed to."""

    epoch: int = 0
    step: int = 0
    batches: int = 0
    bce_sum: list[float] = field(default_factory=list)  # by member
    score_sum: list[list[float]] = field(default_factory=list)  # by member and parameter
    epoch_seconds: float = 0.0
    best: list[float] = field(default_factory=list)  # the criterion, by member
    best_epoch: list[int] = field(default_factory=list)
    cooling: list[int] = field(default_factory=list)  # after which epoch, for how many; or nothing
    records: list[Record] = field(default_factory=list)
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
    cools: int = 0  # epochs of a run that the validation curve may cut; 0 if it may not


def read_position(content: Plain, extent: RunBounds) -> Position:
    """The position that plain data describe, if a run of this extent can be there."""
    names = {f.name for f in fields(Position)}
    if isinstance(content, dict) and "best_bce" in content:  # of a version without a criterion
        content = {**content, "best": content["best_bce"], "cooling": []}
        del content["best_bce"]
    _require(isinstance(content, dict) and set(content) == names, "its fields")
    assert isinstance(content, dict)
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
    _require_cooling(position, extent.cools)
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
    _require(isinstance(position.best, list), "best")
    best = [math.inf] * members if epochs else []
    when = [0] * members if epochs else []
    for number, record in enumerate(epochs, 1):
        values = criterion_of(record, members)
        _require(_are_numbers(values, members), "records")
        for m, value in enumerate(values):
            if value < best[m]:
                best[m], when[m] = value, number
    _require(position.best == best, "best")
    _require(position.best_epoch == when, "best_epoch")


def criterion_of(record: Record, members: int) -> list[float]:
    """What an epoch is compared by, for each member; the validation BCE where nothing else is."""
    return values_of(record, "criterion" if "criterion" in record else "validation_bce", members)


def values_of(record: Record, name: str, members: int) -> list[float]:
    """One number of an epoch's record for each member."""
    if members == 1:
        return [record.get(name)]  # type: ignore[list-item]
    by_member = record.get("members")
    return by_member.get(name, []) if isinstance(by_member, dict) else []


def mean_criterion(records: list[Record], members: int) -> list[float]:
    """The criterion after each epoch, averaged over members."""
    epochs = [record for record in records if record.get("event") == "epoch"]
    return [sum(criterion_of(record, members)) / members for record in epochs]


def _require_cooling(position: Position, epochs: int) -> None:
    """It turned back where its records say that it overfits, and nowhere else."""
    found = None
    if epochs:
        members = max(1, len(position.best_epoch))
        found = first_cooling(mean_criterion(position.records, members), epochs)
    _require(position.cooling == ([] if found is None else list(found)), "cooling")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise FormatError(f"The position of the run cannot be true: {what}.")


def _is_count(value: Plain) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Plain) -> bool:
    return isinstance(value, (int, float)) and type(value) is not bool and math.isfinite(value)


def _are_numbers(values: Plain, length: int) -> bool:
    return isinstance(values, list) and len(values) == length and all(_is_number(v) for v in values)
