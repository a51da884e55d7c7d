"""What a batch costs, measured apart from the sweep.

A sweep takes hours, on machines that do other work too, and its cells follow one another: their own
clocks say little about one loss against the other. So the time per batch is measured by itself,
both losses in turns, a few batches per round, and kept in `<path>/<case>/timing.json`. A cell's
times are then

    seconds_per_step   median over rounds, of its network and loss
    seconds_total      batches it trained times that
    seconds_to_best    its share up to the best epoch

which also puts all cells on one machine. Without the file they are what the cell itself measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keepscore.data import Dataset, environment
from keepscore.models import build
from reproduction.cases import LOSSES, find_case
from reproduction.results import FORMAT, TIMING, write_record

BATCH, BATCHES, ROUNDS = 64, 256, 5


def measure_times(
    case: str,
    networks: Sequence[str],
    path: Path,
    rounds: int = ROUNDS,
    batches: int = BATCHES,
    report: Callable[[str], Any] = print,
) -> dict[str, Any]:
    """Milliseconds a batch of each network with each loss, in turns; written to timing.json.

    Let nothing else run on the machine meanwhile.
    """
    data = _noise(case, BATCH * batches)
    taken: dict[str, dict[str, list[float]]] = {
        network: {loss: [] for loss in LOSSES} for network in networks
    }
    for number in range(rounds):
        for network in networks:
            for loss in LOSSES:
                taken[network][loss].append(_milliseconds(case, data, network, loss))
        report(f"{case}: times, round {number + 1} of {rounds}")
    content = {
        "format": FORMAT,
        "case": case,
        "batch_size": BATCH,
        "batches": batches,
        "milliseconds": taken,
        "environment": environment(),
    }
    write_record(path / case / TIMING, content)
    return content


def _noise(case: str, n: int) -> Dataset:
    """Data of the right shape and nothing else: a step costs the same on any numbers."""
    model, rng = build(find_case(case).model), np.random.default_rng(0)
    x = rng.integers(0, 2, (n, *model.x_shape)).astype(model.x_dtype)
    theta = model.space.uniform(n, rng)
    score = rng.standard_normal(theta.shape)
    return Dataset(theta, x, score, model.space, "exact", model.structure)


def _milliseconds(case: str, data: Dataset, network: str, loss: str) -> float:
    """A batch's time in the second and third of three epochs; the first one compiles."""
    from keepscore import ASA, BCE, TrainConfig, train

    config = TrainConfig.paper(case, min_epochs=3, max_epochs=3, learning_rate=1e-6)
    small = data.take(BATCH)
    how = ASA.paper() if loss == "asa" else BCE()
    history = train(data, small, network, how, config, progress=False).history
    return statistics.mean([r["ms_per_step"] for r in history if r["event"] == "epoch"][1:])
