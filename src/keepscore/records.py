"""The records of a training run, as a surrogate carries them: what each event holds.

    {"event": "start", ...}                settings, versions, machine, sizes
    {"event": "resume", ...}               where a run went on elsewhere than it began
    {"event": "epoch", "epoch": 1, ...}    one per epoch, in order: losses, seconds
    {"event": "end", "epochs": 40, ...}    how it ended

Reports and tables read these numbers, so a file that holds something else is refused when loaded.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from keepscore.errors import FormatError

# Numbers of an event, and numbers that it may have besides.
NUMBERS = {
    "epoch": ("train_bce", "validation_bce", "seconds", "ms_per_step"),
    "end": ("best_epoch", "best_validation_bce", "seconds"),
}
PERHAPS = (
    *("batches", "best_epoch", "score_loss", "alpha", "monitor_bce", "compile_seconds"),
    *("criterion", "cooling_epochs"),
)
LISTS = ("score_loss_by_parameter", "alpha_by_parameter", "validation_score_loss")
OBJECTS = ("settings", "versions", "machine", "members", "epsilon")


def require_history(records: list[Any], path: Path) -> None:
    """Refuse records of which one is not what a run writes; `path` is named in the error."""
    epochs = 0
    for place, record in enumerate(records):
        event = record.get("event") if isinstance(record, dict) else None
        if not isinstance(event, str) or (problem := _problem(event, record)) is not None:
            what = "no event" if not isinstance(event, str) else problem
            raise FormatError(f"{path} has no valid history: record {place} has {what}.")
        if event == "epoch":
            epochs += 1
            if type(record.get("epoch")) is not int or record["epoch"] != epochs:
                raise FormatError(f"{path} has no valid history: its epochs are not in order.")
        if event == "end" and (type(record.get("epochs")) is not int or record["epochs"] != epochs):
            raise FormatError(
                f"{path} has no valid history: it ends after {record.get('epochs')!r:.30} epochs "
                f"and records {epochs}."
            )


def _problem(event: str, record: dict[str, Any]) -> str | None:
    for name in NUMBERS.get(event, ()):
        if not _is_number(record.get(name)):
            return f"no number {name}"
    for name in PERHAPS:
        if name in record and not _is_number(record[name]):
            return f"no number {name}"
    for name in LISTS:
        values = record.get(name, [])
        if not (isinstance(values, list) and all(_is_number(value) for value in values)):
            return f"no numbers {name}"
    for name in OBJECTS:
        if not isinstance(record.get(name, {}), dict):
            return f"no valid {name}"
    return None


def _is_number(value: object) -> bool:
    # Not bool, which is an int to `isinstance`.
    return isinstance(value, (int, float)) and type(value) is not bool and math.isfinite(value)
