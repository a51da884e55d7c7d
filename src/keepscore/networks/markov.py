"""A network for paths x (T, ...) of a time-homogeneous Markov chain.

    log p(x | theta) = log p(x_1 | theta) + sum_t log P_theta(x_t -> x_(t+1))
    S(x)             = A_1(x_1)           + sum_t A(x_t, x_(t+1)),     h as in `exponential`

The same small network A looks at every transition, so each path teaches it T - 1 times, and the
sum is exact: unlikely paths are as unlikely as their transitions, where a network that pools first
and decides later has to guess. Any discrete-time or equally observed continuous-time chain is of
this form.

A chain in continuous time may be seen at times that differ from path to path (structure
"timed-markov"). A row of x is then (t, state), rows of NaN are visits that did not take place, and
with the gaps s_t between those that did,

    S(x)             = A_1(x_1)           + sum_t A(x_t, x_(t+1), s_t, log s_t)

Any number of visits will do, and only differences of times count.
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


SHORTEST = 0.1  # mean gaps: shorter ones are much alike


class MarkovNetwork(ExponentialFamilyNetwork):
    """h(x, theta) for x of shape (T, ...): T at least 2 states of any one shape."""

    transition: Layers
    start: Layers
    family: ExponentialFamily

    x_scale: ClassVar = "states"
    times: ClassVar = 0  # numbers of a row that are no state
    gaps: ClassVar = 0  # numbers that stand for a gap

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
        width = math.prod(x_shape[1:]) - self.times
        if width < 1:
            raise ShapeError(f"Each row of x is a time and a state; got x {tuple(x_shape)}.")
        self.transition = Layers([2 * width + self.gaps, *transition, statistics], rng)
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


class TimedMarkovNetwork(MarkovNetwork):
    """The same for x (T, 1 + m), a time and a state in each row, or NaN."""

    x_scale: ClassVar = "times, states"
    takes_missing: ClassVar = True
    whole_rows: ClassVar = True
    times: ClassVar = 1
    gaps: ClassVar = 2

    def statistics(self, x: Float[Array, "b T m"]) -> Float[Array, "b r"]:
        """S(x)."""
        states, gap, both = visits(x)
        beside = jnp.stack([gap, jnp.log(gap + SHORTEST)], axis=-1)
        parts = self.transition(jnp.concatenate([states[:, :-1], states[:, 1:], beside], axis=-1))
        return self.start(states[:, 0]) + (both[..., None] * parts).sum(axis=1)


def visits(
    x: Float[Array, "b T m"],
) -> tuple[Float[Array, "b T k"], Float[Array, "b S"], Float[Array, "b S"]]:
    """Of x (T, 1 + k): the states, those that are NaN last and 0; the gap after each but the last;
    and whether (1 or 0) both of its ends are there."""
    gone = jnp.isnan(x).any(axis=2)
    order = jnp.argsort(gone, axis=1, stable=True)
    there = ~jnp.take_along_axis(gone, order, axis=1)
    rows = jnp.where(there[..., None], jnp.take_along_axis(x, order[..., None], axis=1), 0.0)
    both = there[:, 1:]
    gap = jnp.where(both, rows[:, 1:, 0] - rows[:, :-1, 0], 1.0)
    return rows[:, :, 1:], gap, both.astype(x.dtype)
