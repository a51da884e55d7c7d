"""What a task of the benchmark is: a model, its prior, and data with a reference posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import keepscore as ks
from benchmarks.sbibm import reference
from keepscore.checks import Floats

Rng = np.random.Generator


@dataclass(frozen=True)
class Task:
    """A model in working parameters, its prior there, and the folder of its data.

    draw(n, rng) gives working parameters from the prior; log_prior(theta (d,)) is its log density,
    written in JAX, or None if the prior is uniform on the space's base box.
    """

    name: str
    folder: str
    model: ks.models.Model
    draw: Callable[[int, Rng], Floats]
    log_prior: Callable[[Floats], Floats] | None = None
    file: str = "observation.csv"

    def observation(self, number: int) -> Floats:
        flat = reference.observation(self.folder, number, self.file)
        return flat.reshape(self.model.x_shape)

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


def uniform(space: ks.Space) -> Callable[[int, Rng], Floats]:
    """Draws from the base box."""
    low, high = space.box("base")
    return lambda n, rng: rng.uniform(low, high, (n, space.d))
