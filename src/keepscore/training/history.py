"""What a run says while it goes: one JSON line for each event, and a progress bar.

{"event": "start", settings, versions, number of weights, ...}
{"event": "epoch", epoch, train_bce, validation_bce, score_loss, alpha, seconds, ms_per_step}
{"event": "end", best epoch, total seconds}
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from tqdm import tqdm

import keepscore
from keepscore.budget import is_shown
from keepscore.errors import StorageError
from keepscore.files import write_atomically

NAME = "history.jsonl"


def versions() -> dict[str, str]:
    """Of everything that could change a number."""
    return {
        "keepscore": keepscore.__version__,
        "jax": jax.__version__,
        "equinox": eqx.__version__,
        "optax": optax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "backend": jax.default_backend(),
    }


def rewrite(folder: Path | None, records: list[dict[str, Any]]) -> None:
    """Make the history file hold exactly these records (after a resume it may have had more)."""
    if folder is not None:
        text = "".join(_line(record) for record in records)
        write_atomically(folder / NAME, lambda file: file.write(text.encode()))


def append(folder: Path | None, record: Mapping[str, Any]) -> None:
    """Add one record."""
    if folder is None:
        return
    try:
        with (folder / NAME).open("a", encoding="utf-8") as file:
            file.write(_line(record))
    except OSError as error:
        raise StorageError(f"Cannot write {folder / NAME}: {error.strerror}.") from error


class Bar:
    """A progress bar over all steps expected, on standard error."""

    def __init__(self, shown: bool | None, epochs: int, steps: int) -> None:
        self.steps = steps
        hidden = not is_shown(shown)
        self.bar = tqdm(total=epochs * steps, unit="step", disable=hidden, smoothing=0.05)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.close()

    def at(self, epoch: int, step: int, expected: int, numbers: Mapping[str, float]) -> None:
        """Move to a step of an epoch (from 1), of so many epochs expected, and show numbers."""
        self.bar.total = max(expected, epoch) * self.steps
        self.bar.set_description(f"epoch {epoch}", refresh=False)
        shown = {name: f"{value:.4g}" for name, value in numbers.items()}
        self.bar.set_postfix(shown, refresh=False)
        self.bar.update((epoch - 1) * self.steps + step - self.bar.n)


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, sort_keys=True) + "\n"
