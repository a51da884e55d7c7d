"""How long to train: updates of the weights by N and d, and what the validation curve says.

    updates    U(N, d) = max(E(N) S, 5,000 + 1,000 d),    S = N / batch size, steps per epoch

E(N) is the paper's number of epochs, 40 at 30,000 rows down to 10 at 1,000,000. Below some 10,000
rows it makes too few updates, whatever the data: 560 at 1,000 rows, where 10,000 are needed. So few
rows are passed over more often instead, which is cheap where it matters.

They can be learned by heart then. With c_1, ..., c_e the criterion (`validation`) after each epoch,
b the best epoch, W = max(5, E / 20) and s the noise of c from one epoch to the next (the median
absolute difference over .95, its value for normal noise of standard deviation 1, in the last half
of the epochs and no fewer than 4 W), the network has begun to overfit when none of the last W
epochs came near the best:

    min(c_{e-W+1}, ..., c_e) > c_b + 4 s

The run then goes back to the weights of b and lets the rate fall from what it was there to zero
within max(5, b / 2) epochs ("cooling"), never more than are left. Independent noise hardly ever
does this (in the tests, none of 200 curves): the best of some hundred epochs is 2 to 3 s below
their middle, and W in a row would all have to lie a whole s above it. Runs whose length is the
paper's, or was stated, do not cool.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Data set size -> epochs before patience may end a run.
PAPER_EPOCHS = ((30_000, 40), (100_000, 30), (300_000, 20), (1_000_000, 10))
LEAST_UPDATES, UPDATES_PER_PARAMETER = 5_000, 1_000
SHORTEST_WINDOW, WINDOW_SHARE = 5, 20
NOISES, NOISE_WINDOWS = 4.0, 4
NORMAL_STEP = 0.9539  # median |a - b| of two normal draws of standard deviation 1


class Cooling(NamedTuple):
    """Where a run turned back: after which epoch, and for how many epochs it cools."""

    after: int
    epochs: int


def paper_epochs(n: int) -> int:
    """E(N): the paper's, between its sizes in proportion to log N."""
    sizes, epochs = zip(*PAPER_EPOCHS, strict=True)
    return round(float(np.interp(math.log(n), np.log(sizes), epochs)))


def advised_epochs(n: int, d: int, batch_size: int) -> int:
    """Epochs that make U(N, d) updates (rows that fill no whole batch are left out of an epoch, so
    a set of a few batches makes somewhat fewer)."""
    samples = (LEAST_UPDATES + UPDATES_PER_PARAMETER * d) * batch_size
    return max(paper_epochs(n), -(-samples // n))


def window(epochs: int) -> int:
    """W for a run of so many epochs."""
    return max(SHORTEST_WINDOW, -(-epochs // WINDOW_SHARE))


def overfits(criterion: Sequence[float], epochs: int) -> bool:
    """Whether the criterion after each epoch so far, of a run of so many, says so."""
    w = window(epochs)
    best = int(np.argmin(criterion)) + 1
    if len(criterion) - best < w or not 2 * w <= len(criterion) < epochs:
        return False
    later = criterion[-max(NOISE_WINDOWS * w, len(criterion) // 2) :]
    noise = float(np.median(np.abs(np.diff(later)))) / NORMAL_STEP
    return min(criterion[-w:]) > criterion[best - 1] + NOISES * noise


def cooling_after(criterion: Sequence[float], epochs: int) -> Cooling:
    """The cooling of a run that overfits after these epochs."""
    best = int(np.argmin(criterion)) + 1
    left = epochs - len(criterion)
    return Cooling(len(criterion), min(left, max(SHORTEST_WINDOW, -(-best // 2))))


def first_cooling(criterion: Sequence[float], epochs: int) -> Cooling | None:
    """Where a run with this criterion turned back, if it did."""
    for e in range(2 * window(epochs), len(criterion) + 1):
        if overfits(criterion[:e], epochs):
            return cooling_after(criterion[:e], epochs)
    return None
