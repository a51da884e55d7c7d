"""How weights move: Adam, its learning rate over time, and the average of the weights kept beside.

    rate at batch t of T     constant: r          cosine: r (1 + cos(pi t / T)) / 2
    average after batch t    a <- c a + (1 - c) w,    c = min(averaging, t / (t + 9))

The average smooths what single batches do to the weights; it is what is validated and kept, while
training goes on from the weights themselves. c grows from 0, so that the start is forgotten. Both
live in the optimizer's state and so in every checkpoint.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from keepscore.training.config import TrainConfig
from keepscore.training.step import Member, adam


class Average(NamedTuple):
    """Batches so far, and the average of the weights after each."""

    batches: jax.Array
    weights: Any


def optimizer(config: TrainConfig, steps: int) -> optax.GradientTransformation:
    """Of a run of so many steps; with a constant rate their number does not matter."""
    rate: Any = config.learning_rate
    if config.schedule == "cosine":
        rate = optax.cosine_decay_schedule(config.learning_rate, steps)
    plain = adam(rate, config.weight_decay)
    return optax.chain(plain, averaging(config.averaging)) if config.averaging else plain


def averaging(most: float) -> optax.GradientTransformation:
    """Leaves the updates as they are and averages the weights they lead to."""

    def start(weights: Any) -> Average:
        return Average(jnp.zeros((), jnp.int32), weights)

    def update(change: Any, state: Average, weights: Any = None) -> tuple[Any, Average]:
        t = state.batches + 1
        c = jnp.minimum(most, (t - 1) / (t + 8.0))
        moved = optax.apply_updates(weights, change)
        mean = jax.tree.map(lambda a, w: c * a + (1 - c) * w, state.weights, moved)
        return change, Average(t, mean)

    return optax.GradientTransformation(start, update)


def weights_to_keep(member: Member) -> Any:
    """The average if there is one, else the weights."""
    if isinstance(member.optimizer, tuple) and isinstance(member.optimizer[-1], Average):
        return member.optimizer[-1].weights
    return member.weights
