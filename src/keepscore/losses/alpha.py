"""The weight alpha of the score loss, adapted so that both losses pull equally hard.

    alpha'_t = ||grad L_BCE|| / ||grad L_Score||           every `update_every` batches
    alpha    = sum_i alpha'_ti w_i / sum_i w_i,   w_i = exp(-(t_0 - t_i) / decay)

over the last `history` values (64 of each in the paper), t counting batches from the start of
training. The gradients are in the weights of the network, and L_Score is without alpha. alpha is 0
until the first value. With one alpha for each parameter, alpha'_k uses the gradient of L_k alone.

t_0 cancels in the ratio, so alpha changes only when a value is added.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree


class AlphaHistory(NamedTuple):
    """A ring of the latest values; the next goes to place taken % length."""

    values: Float[Array, "length c"]
    times: Int[Array, " length"]
    taken: Int[Array, ""]


def empty_history(length: int, components: int) -> AlphaHistory:
    """No values yet; `components` is 1, or d for one alpha a parameter."""
    return AlphaHistory(
        jnp.zeros((length, components)), jnp.zeros(length, jnp.int32), jnp.zeros((), jnp.int32)
    )


def remember(
    history: AlphaHistory, value: Float[Array, " c"], time: Int[Array, ""]
) -> AlphaHistory:
    """Add a value; one that is not finite (a vanished gradient) is left out."""
    usable = jnp.all(jnp.isfinite(value))
    place = history.taken % history.times.shape[0]
    added = AlphaHistory(
        history.values.at[place].set(value), history.times.at[place].set(time), history.taken + 1
    )
    return jax.tree.map(lambda new, old: jnp.where(usable, new, old), added, history)


def recency_weighted(history: AlphaHistory, decay: float) -> Float[Array, " c"]:
    """f_H(H): the mean of the remembered values, recent ones weighing most; 0 if there are none."""
    length = history.times.shape[0]
    known = jnp.arange(length) < history.taken
    # Ages from the newest value: the factor exp(-(now - newest)/decay) is common to all and would
    # underflow after a long pause.
    newest = jnp.max(jnp.where(known, history.times, 0))
    weight = jnp.where(known, jnp.exp(-(newest - history.times) / decay), 0.0)
    mean = weight @ history.values / jnp.maximum(weight.sum(), 1e-30)
    return jnp.where(history.taken > 0, mean, 0.0)


def norm(gradient: PyTree[Array]) -> Float[Array, ""]:
    """Euclidean norm over all weights."""
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
