"""What a task of the benchmark is: a model, its prior, and data with a reference posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import keepscore as ks
from benchmarks.sbibm import reference
from keepscore.checks import Floats

Rng = np.random.Generator


@dataclass(frozen=True)
class Task:
    """A model, whose space has the prior, and the folder of its data."""

    name: str
    folder: str
    model: ks.models.Model
    file: str = "observation.csv"

    def observation(self, number: int) -> Floats:
        flat = reference.observation(self.folder, number, self.file)
        return flat.reshape(self.model.x_shape)

    def draw(self, n: int, rng: Rng) -> Floats:
        """Working parameters (n, d) from the prior."""
        return self.model.space.draw(n, rng)

    def posterior(self, number: int) -> Floats:
        """Reference draws in raw parameters."""
        return reference.posterior(self.folder, number)


def box(names: list[str], low: float, high: float) -> ks.Space:
    """A box of parameters that are their own working parameters, without margins."""
    return ks.Space(
        [ks.Parameter(name, low, high, transform="identity", train_margin=0.0) for name in names]
    )


def names(d: int) -> list[str]:
    """theta1 .. theta_d."""
    return [f"theta{k}" for k in range(1, d + 1)]
