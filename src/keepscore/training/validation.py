"""Losses on rows that are not trained on, with one fixed permutation for Y = 0.

The permutation is drawn once per run, so that epochs are compared on the same pairs.

An epoch is the best by its criterion. Where there are scores, both losses count, each as a share of
what a network that knows nothing has (h = 0, so a score of 0, which is the mean of any score):

    criterion = L_BCE / log 2 + (1/d) sum_k L_k / L_k(0),    L_k(0) = mean_i rho(t_ik)

Each term is 1 at the start and both are least at the truth. The weights are constants of the run:
alpha, which weighs the losses in training, changes from epoch to epoch, and epochs could not be
compared by it. Without scores the criterion is the loss that is trained: L_BCE itself, or

    L_NLL = -mean_i log q(x_i | theta_i)

of a network that is a density q. Pairs would not do: among many parameters any network tells a
theta at random from the own one, also one that has learned its rows by heart.

A density knows h up to a function of x only, and the place of L_BCE in the sum above and in the
history is taken by

    mean_i softplus(log q(x_i | theta_pi(i)) - log q(x_i | theta_i)),

in which such a function cancels. It is log 2, too, for a network that knows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats
from keepscore.losses import network_score, pair_losses, residual_losses
from keepscore.networks.base import Rest, Weights, has_density
from keepscore.networks.compilation import compiler_options, shared, without_arrays
from keepscore.training.batches import Rows, generator

ROWS = 256  # pairs at a time: the layers' intermediate arrays stay in the cache
BLOCK_BYTES = 64 << 20

Array = jax.Array
Place = Callable[[NDArray[np.generic]], Array]


class Validation(NamedTuple):
    """BCE of each member (members,), score losses (members, d) if there are any, and the criterion
    (members,)."""

    bce: Floats
    score: Floats | None
    criterion: Floats


class ScoreTerm(NamedTuple):
    """How the score loss is computed: the residual, and m where it needs one."""

    residual: str
    scale: Floats | None


def validator(
    rest: Rest,
    rows: Rows,
    seed: int,
    members: int,
    place: Place = jnp.asarray,
    term: ScoreTerm | None = None,
) -> Callable[[Weights], Validation]:
    """weights -> the losses on these rows; `term` for the score losses, which need scores."""
    partner = generator(seed, "validation").permutation(len(rows))
    d = rows.theta.shape[1]
    arrays, others, key = without_arrays(rest)
    constants = arrays, _placed_scale(term)
    residual = None if term is None else term.residual
    summed = shared(
        key and ("validation", key, residual, members),
        partial(_program, others, residual, members),
    )

    def blocks() -> Iterator[tuple[Array, ...]]:
        row = 4 * int(np.prod(rows.data.x.shape[1:]))
        parts = max(1, min(BLOCK_BYTES // (ROWS * row), -(-len(rows) // ROWS)))
        for start in range(0, len(rows), parts * ROWS):
            index = np.arange(start, start + parts * ROWS)
            use = index < len(rows)
            index = np.where(use, index, 0)
            x, score = rows.fetch(index)
            arrays = [x, rows.theta[index], rows.theta[partner[index]], use]
            if term is not None:
                assert score is not None
                arrays.append(score)
            yield tuple(place(a.reshape(parts, ROWS, *a.shape[1:])) for a in arrays)

    kept = None if rows.streamed else list(blocks())
    nothing = None if term is None else _score_of_nothing(rows, term)

    def validate(weights: Weights) -> Validation:
        pairs, trained, of_score = np.zeros(members), np.zeros(members), np.zeros((members, d))
        for block in blocks() if kept is None else kept:
            sums = summed(weights, constants, *block)
            bce, own, score = (np.asarray(part, np.float64) for part in sums)
            pairs += bce.reshape(members, -1).sum(axis=1)
            trained += own.reshape(members, -1).sum(axis=1)
            of_score += score.reshape(members, -1, d).sum(axis=1)
        bce = pairs / len(rows)
        if nothing is None:
            return Validation(bce, None, trained / len(rows))
        losses = of_score / len(rows)
        return Validation(bce, losses, both_losses(bce, losses, nothing))

    return validate


def _program(others: Rest, residual: str | None, members: int) -> Callable[..., Any]:
    """weights, (arrays of the network, m), block -> sums over the block of the loss of pairs, the
    loss that is trained without scores, and the score losses, one per `ROWS` pairs."""

    def block_sum(
        weights: Weights, constants: tuple[Rest, Array | None], *block: Array
    ) -> tuple[Array, Array, Array]:
        arrays, scale = constants
        network = eqx.combine(weights, arrays, others)

        def part(total: float, pairs: tuple[Array, ...]) -> tuple[float, tuple[Array, ...]]:
            x, theta, other, use = pairs[:4]
            features = network.features(x.astype(jnp.float32))
            own, swapped = jax.vmap(lambda t: network.head(features, t))(jnp.stack([theta, other]))
            dense = has_density(network)
            each = jax.nn.softplus(swapped - own) if dense else pair_losses(own, swapped)
            trained = -network.log_density(features, theta) if dense else each
            sums = tuple(jnp.sum(jnp.where(use, one, 0.0)) for one in (each, trained))
            if residual is None:
                return total, (*sums, jnp.zeros(theta.shape[1]))
            _, score = network_score(network.head, features, theta, "autodiff")
            losses = residual_losses(score - pairs[4], residual, scale)
            return total, (*sums, jnp.sum(jnp.where(use[:, None], losses, 0.0), axis=0))

        bce, trained, losses = jax.lax.scan(part, 0.0, block)[1]
        return bce, trained, losses

    axes = (0, None, *[None] * (4 if residual is None else 5))
    program = block_sum if members == 1 else jax.vmap(block_sum, axes)
    return jax.jit(program, compiler_options=compiler_options())


def both_losses(bce: Floats, score: Floats, nothing: Floats) -> Floats:
    """The criterion of each member; `nothing` is L_k(0). A parameter whose scores are all zero has
    nothing to be a share of and does not count."""
    counts = nothing > 0
    shares = score[:, counts] / nothing[counts]
    return bce / math.log(2) + (shares.mean(axis=1) if counts.any() else 0.0)


def _score_of_nothing(rows: Rows, term: ScoreTerm) -> Floats:
    """L_k(0) on these rows."""
    total = np.zeros(rows.theta.shape[1])
    for start in range(0, len(rows), 8192):
        _, score = rows.fetch(np.arange(start, min(start + 8192, len(rows))))
        assert score is not None
        found = residual_losses(jnp.asarray(score), term.residual, _placed_scale(term))
        total += np.asarray(found, np.float64).sum(axis=0)
    return total / len(rows)


def _placed_scale(term: ScoreTerm | None) -> Array | None:
    if term is None or term.scale is None:
        return None
    return jnp.asarray(term.scale, jnp.float32)
