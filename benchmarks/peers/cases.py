"""The work every contender is given: cases, synthetic training data, and observed epidemics.

Plain NumPy, so that the torch side and the JAX side read exactly the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH = 64
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-6
# Shape of x and number of parameters of each family.
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {"sis": ((13, 8), 2), "field": ((25, 25), 3)}


@dataclass(frozen=True)
class Case:
    """One network on one kind of data, and how many steps make a timed round."""

    family: str
    size: str
    steps: int


# Whole multiples of the 64 batches between two updates of alpha: every round has its share of them.
FULL = (
    Case("sis", "3k", 384),
    Case("sis", "30k", 384),
    Case("sis", "100k", 192),
    Case("field", "30k", 64),
)
QUICK = (Case("sis", "30k", 20), Case("field", "30k", 5))


def synthetic(family: str, n: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """theta (n, d), x (n, *x_shape) and score (n, d), float32: the shapes, not the process.

    A step costs the same whatever the values are, and no simulator has to run.
    """
    rng = np.random.default_rng(20260)
    x_shape, d = SHAPES[family]
    theta = rng.uniform(-1.1, 1.1, (n, d))
    x = rng.integers(0, 2, (n, *x_shape)) if family == "sis" else rng.normal(size=(n, *x_shape))
    score = rng.normal(size=(n, d))
    return theta.astype(np.float32), x.astype(np.float32), score.astype(np.float32)


def epidemics(n: int, group: int = 10) -> tuple[Any, NDArray[Any]]:
    """n simulated epidemics to train on (a `Dataset`), and a group observed at one theta."""
    from keepscore.data import simulate
    from keepscore.models import SIS

    model = SIS()
    data = simulate(model, n, seed=1, jobs=1)
    theta = np.tile([0.2, -0.1], (group, 1))
    return data, model.simulate(theta, np.random.default_rng(2)).astype(np.float32)


def grid(side: int) -> NDArray[np.float64]:
    """The even grid of the surface, (side^2, 2), just inside the box of SIS.

    Inside, because sbi's box excludes its upper bounds.
    """
    axis = np.linspace(-0.999, 0.999, side)
    return np.stack([a.ravel() for a in np.meshgrid(axis, axis, indexing="ij")], axis=1)
