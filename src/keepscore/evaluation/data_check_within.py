"""A check of data that nobody asked for: made where it is cheap, else said to be left out.

With n observations, B simulated groups and m simulations to compare features with, a check of a
surrogate simulates

    R = B n + F + m        observations    (F of them place the centre of the features)

and a simulation costs what a few of them take. The surrogate's own part costs seconds.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import ArrayLike

from keepscore.budget import in_words
from keepscore.checks import as_real
from keepscore.errors import KeepscoreError
from keepscore.evaluation.data_check import FEWEST, DataCheck, check_data, compared_with
from keepscore.models.base import Model
from keepscore.surrogate import Surrogate

SECONDS = 20.0  # of simulations that are worth an answer nobody asked for
DRAWS, LEVEL = 200, 0.01
PILOT_SECONDS, PILOT_ROWS = 0.2, 64


def check_data_within(
    surrogate: Surrogate,
    xs: ArrayLike,
    model: Model,
    seconds: float | None = SECONDS,
    seed: int = 0,
) -> DataCheck | str:
    """The check of xs, or why it was left out.

    Args:
        surrogate: What will answer about xs.
        xs: Observations of one system, (n, *x_shape).
        model: The simulator behind the surrogate.
        seconds: Time that its simulations may take. None: it was asked for, and is made whatever it
            costs; what goes wrong is then an error.
        seed: Of the simulations.

    Returns:
        A `DataCheck`, or a sentence with the reason that there is none.
    """
    if seconds is None:
        return check_data(surrogate, xs, model, draws=DRAWS, level=LEVEL, seed=seed)
    n = len(as_real(xs, "xs"))
    try:
        rows, needed = simulating(model, n, seed)
        if needed > seconds:
            return f"its {rows:,} simulations take about {in_words(needed)}"
        return check_data(surrogate, xs, model, draws=DRAWS, level=LEVEL, seed=seed)
    except KeepscoreError as error:  # the answer itself may still be right
        return f"it failed: {error}"


def simulating(model: Model, n: int, seed: int = 0) -> tuple[int, float]:
    """How many observations a check of n simulates, and the seconds that takes: some of them at one
    theta, which many models do at less cost, the others each at its own."""
    alike, apart = DRAWS * n, FEWEST + compared_with(n, LEVEL)
    one, own = (seconds_per_row(model, same, seed) for same in (True, False))
    return alike + apart, alike * one + apart * own


def seconds_per_row(model: Model, same: bool, seed: int = 0) -> float:
    """What one simulated observation costs, by a few of them; at one theta, or each at its own."""
    rng = np.random.default_rng([seed, 0x717E])
    theta = model.space.uniform(PILOT_ROWS, rng)
    theta = np.repeat(theta[:1], PILOT_ROWS, axis=0) if same else theta
    model.simulate(theta[:1], rng)  # compiles where there is anything to
    rows, spent = 1, 0.0
    while spent < PILOT_SECONDS and rows < PILOT_ROWS:
        rows = 1 if spent == 0.0 else 2 * rows
        begin = time.perf_counter()
        model.simulate(theta[:rows], rng)
        spent = time.perf_counter() - begin
    return spent / rows
