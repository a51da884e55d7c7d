"""A network for paths x (T, ...) of a time-homogeneous Markov chain.

    log p(x | theta) = log p(x_1 | theta) + sum_t log P_theta(x_t -> x_(t+1))
    S(x)             = A_1(x_1)           + sum_t A(x_t, x_(t+1)),     h as in `exponential`

The same small network A looks at every transition, so each path teaches it T - 1 times, and the
sum is exact: unlikely paths are as unlikely as their transitions, where a network that pools first
and decides later has to guess. Any discrete-time or equally observed continuous-time chain is of
this form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.exponential_family import (
    ExponentialFamily,
    ExponentialFamilyNetwork,
    Layers,
)
from keepscore.networks.layers import Source

_NATURAL = {"statistics": 32, "natural": (32, 32), "nodes": 64}
SIZES: dict[str, dict[str, Any]] = {
    "5k": {"transition": (32, 32), "start": (16,), **_NATURAL},
    "10k": {"transition": (64, 64), "start": (16,), **_NATURAL},
    "30k": {"transition": (128, 112), "start": (32,), **_NATURAL, "natural": (48, 48)},
}


class MarkovNetwork(ExponentialFamilyNetwork):
    """h(x, theta) for x of shape (T, ...): T at least 2 states of any one shape."""

    transition: Layers
    start: Layers
    family: ExponentialFamily

    x_scale: ClassVar = "states"

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        transition: Sequence[int],
        start: Sequence[int],
        statistics: int,
        natural: Sequence[int],
        nodes: int,
    ) -> None:
        if len(x_shape) < 1 or x_shape[0] < 2:
            raise ShapeError(
                f"A Markov network needs x of shape (T, ...) with T of at least 2; "
                f"got {tuple(x_shape)}."
            )
        width = math.prod(x_shape[1:])
        self.transition = Layers([2 * width, *transition, statistics], rng)
        self.start = Layers([width, *start, statistics], rng)
        self.family = ExponentialFamily(statistics, d, natural, nodes, rng)

    def statistics(self, x: Float[Array, "b T ..."]) -> Float[Array, "b r"]:
        """S(x)."""
        b, length = x.shape[:2]
        states = x.reshape(b, length, -1)
        pairs = jnp.concatenate([states[:, :-1], states[:, 1:]], axis=-1)
        parts = self.transition(pairs.reshape(b * (length - 1), -1))
        return self.start(states[:, 0]) + parts.reshape(b, length - 1, -1).sum(axis=1)

    def features(self, x: Float[Array, "b T ..."]) -> Float[Array, "b f"]:
        return self.family.features(self.statistics(x))

    def settings(self) -> dict[str, Any]:
        """Layer widths: with x_shape and d, all that is needed to build the same network."""
        return {
            "transition": self.transition.hidden(),
            "start": self.start.hidden(),
            **self.family.settings(),
        }
