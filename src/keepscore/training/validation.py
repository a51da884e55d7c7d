"""Validation BCE: the loss on rows that are not trained on, with one fixed permutation for Y = 0.

The permutation is drawn once a run, so that epochs are compared on the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from keepscore.checks import Floats
from keepscore.losses import pair_losses
from keepscore.training.batches import Rows, generator

ROWS = 256  # pairs at a time: the layers' intermediate arrays stay in the cache
BLOCK_BYTES = 64 << 20


def validator(
    rest: Any, rows: Rows, seed: int, members: int, place: Any = jnp.asarray
) -> Callable[[Any], Floats]:
    """weights -> validation BCE of each member, (members,)."""
    partner = generator(seed, "validation").permutation(len(rows))

    def block_sum(weights: Any, x: Any, theta: Any, other: Any, use: Any) -> Any:
        network = eqx.combine(weights, rest)

        def part(total: Any, pairs: Any) -> Any:
            x, theta, other, use = pairs
            features = network.features(x.astype(jnp.float32))
            own, swapped = jax.vmap(lambda t: network.head(features, t))(jnp.stack([theta, other]))
            return total, jnp.sum(jnp.where(use, pair_losses(own, swapped), 0.0))

        return jax.lax.scan(part, 0.0, (x, theta, other, use))[1]

    axes = (0, None, None, None, None)
    summed = jax.jit(block_sum if members == 1 else jax.vmap(block_sum, axes))

    def blocks() -> Iterator[tuple[Any, ...]]:
        row = 4 * int(np.prod(rows.data.x.shape[1:]))
        parts = max(1, min(BLOCK_BYTES // (ROWS * row), -(-len(rows) // ROWS)))
        for start in range(0, len(rows), parts * ROWS):
            index = np.arange(start, start + parts * ROWS)
            use = index < len(rows)
            index = np.where(use, index, 0)
            x, _ = rows.fetch(index)
            arrays = (x, rows.theta[index], rows.theta[partner[index]], use)
            yield tuple(place(a.reshape(parts, ROWS, *a.shape[1:])) for a in arrays)

    kept = None if rows.streamed else list(blocks())

    def validate(weights: Any) -> Floats:
        total = np.zeros(members)
        for block in blocks() if kept is None else kept:
            sums = np.asarray(summed(weights, *block), np.float64).reshape(members, -1)
            total += sums.sum(axis=1)
        return total / len(rows)

    return validate
