"""The course of a training run, from its history."""

from __future__ import annotations

from typing import Any

import numpy as np


def epochs_of(history: Any) -> list[Any]:
    """The records of its epochs."""
    return [record for record in history if record["event"] == "epoch"]


def course(history: Any) -> dict[str, Any]:
    """Weights, epochs, batches, alpha, and the median time of a step over all epochs but the
    first, which also compiles: a busy moment of the machine does not count."""
    epochs = epochs_of(history)
    steps = [record["ms_per_step"] for record in epochs]
    return {
        "weights": next(r["weights"] for r in history if r["event"] == "start"),
        "epochs": len(epochs),
        "best_epoch": epochs[-1]["best_epoch"],
        "batches": epochs[-1]["batches"],
        "seconds_per_step": float(np.median(steps[1:] or steps)) / 1e3,
        "alpha": [round(float(r["alpha"]), 6) for r in epochs if "alpha" in r],
    }
