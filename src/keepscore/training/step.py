"""Algorithm 1: one batch, one update of the weights, and now and then one value of alpha.

    Y = 1 pairs (x_i, theta_i), Y = 0 pairs (x_i, theta_pi(i)) with pi(i) uniform on all rows
    weights <- Adam step on grad(L_BCE + sum_k alpha_k L_k)
    every T_alpha batches: alpha' = ||grad L_BCE|| / ||grad L_Score||, alpha = f_H(alpha' so far)

A network that is a density q in x learns from its likelihood,

    L_NLL = -mean_i log q(x_i | theta_i),

in the place of the cross-entropy. (q by likelihood is the better estimate wherever the network can
be q; the ratio of pairs tells less, and p(x) is not there to be learned: `Surrogate.log_evidence`.)
The loss that is recorded is that of pairs all the same, in the form of `validation`.

x_i is embedded once for both classes and the score. The paper writes the update of alpha after that
of the weights; both gradients are taken here at the weights the batch was computed with, since
together they are the update itself: an update costs one more pass per alpha, 1 batch in 64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from keepscore.losses import (
    ASA,
    AlphaHistory,
    Loss,
    cross_entropy,
    empty_history,
    network_score,
    norm,
    recency_weighted,
    remember,
    score_loss,
)
from keepscore.networks.base import Rest, Weights, has_density

Array = jax.Array


class Member(NamedTuple):
    """What one network carries from batch to batch. The optimizer sees all weights as one vector
    (`flat`): one pass over it takes far fewer programs than a pass over each array does."""

    weights: Weights
    optimizer: optax.OptState
    alpha: Array
    history: AlphaHistory


class Batch(NamedTuple):
    """x (b, *x_shape), theta (b, d), score (b, d) or None, and other thetas (k, b, d) for Y = 0."""

    x: Array
    theta: Array
    score: Array | None
    other: Array


Losses = tuple[Array, Array]
Vector = Array  # all weights, or their gradient, one after the other
Objective = Callable[[Weights, Batch], Losses]


def objective(
    rest: Rest, loss: Loss, epsilon: Array | None = None, scale: Array | None = None
) -> Objective:
    """weights, batch -> (L_BCE, (L_1, ..., L_d)); `rest` is the network without its weights.
    `scale` is m of the score loss."""

    def losses(weights: Weights, batch: Batch) -> Losses:
        network = eqx.combine(weights, rest)
        features = network.features(batch.x)
        dense = has_density(network)

        def head(theta: Array) -> Array:
            return network.head(features, theta)

        def pairs(h_own: Array) -> Array:
            if not dense:
                return cross_entropy(h_own, jax.vmap(head)(batch.other))
            own = network.log_density(features, batch.theta)
            other = jax.lax.stop_gradient(network).log_density(features, batch.other[0])
            recorded = jax.lax.stop_gradient(jax.nn.softplus(other - own).mean())
            return recorded + _gradient_only(-own.mean())

        if not isinstance(loss, ASA):
            return pairs(head(batch.theta)), jnp.zeros(batch.theta.shape[1])
        assert batch.score is not None
        h_own, score = network_score(
            network.head, features, batch.theta, loss.network_score, epsilon
        )
        parts = score_loss(score, batch.score, loss.residual, scale)
        return pairs(h_own), parts

    return losses


def _gradient_only(value: Array) -> Array:
    """Zero, with the gradient of this value."""
    return value - jax.lax.stop_gradient(value)


def start(weights: Weights, optimizer: optax.GradientTransformation, loss: Loss, d: int) -> Member:
    """The state before the first batch: alpha = 0, no history."""
    components = d if isinstance(loss, ASA) and loss.per_parameter else 1
    length = loss.history if isinstance(loss, ASA) else 1
    history = empty_history(length, components)
    return Member(weights, optimizer.init(flat(weights)), jnp.zeros(components), history)


def step(
    member: Member,
    batch: Batch,
    t: Array,
    losses: Objective,
    loss: Loss,
    update: optax.TransformUpdateFn,
) -> tuple[Member, Losses]:
    """Batch number t (from 1): the new state, and the losses at the weights before it. `update` is
    that of the optimizer."""

    def weighted(share: Array) -> tuple[Vector, Losses]:
        """The gradient of share_0 L_BCE + sum_k share_k L_k, and the losses."""

        def total(weights: Weights) -> tuple[Array, Losses]:
            bce, score = losses(weights, batch)
            return share[0] * bce + share[1:] @ score, (bce, score)

        # XLA would take the forward pass out of the loop below, and write all of it to memory.
        weights, share = jax.lax.optimization_barrier((member.weights, share))
        (_, values), gradient = jax.value_and_grad(total, has_aux=True)(weights)
        return flat(gradient), values

    if isinstance(loss, ASA):
        gradient, values, alpha, history = _with_scores(weighted, member, batch, t, loss)
    else:
        gradient, values = weighted(jnp.zeros(1 + batch.theta.shape[1]).at[0].set(1.0))
        alpha, history = member.alpha, member.history
    before, unflatten = ravel_pytree(member.weights)
    change, state = update(gradient, member.optimizer, before)
    return Member(unflatten(optax.apply_updates(before, change)), state, alpha, history), values


def flat(weights: Weights) -> Vector:
    """All weights in one vector."""
    return ravel_pytree(weights)[0]


def _with_scores(
    weighted: Callable[[Array], tuple[Vector, Losses]],
    member: Member,
    batch: Batch,
    t: Array,
    loss: ASA,
) -> tuple[Vector, Losses, Array, AlphaHistory]:
    """The gradient of L_BCE + sum_k alpha_k L_k, the losses, and alpha with its history after
    batch t.

    Row 0 asks for all losses at once. Where alpha is due it asks for L_BCE alone, and the rows
    after it for one alpha each: of all L_k together, or of each by itself. A loop takes one row or
    all of them, so that the losses and their gradient are compiled once.
    """
    d = batch.theta.shape[1]
    parts = jnp.eye(d) if loss.per_parameter else jnp.ones((1, d))
    due = t % loss.update_every == 0
    at_once = jnp.concatenate([jnp.ones(1), member.alpha @ parts])
    each = jnp.zeros((1 + len(parts), 1 + d)).at[0, 0].set(1.0).at[1:, 1:].set(parts)
    rows = jnp.where(due, each, at_once)
    share = jnp.where(due, jnp.concatenate([jnp.ones(1), member.alpha]), 1.0)

    def add(row: Array, so_far: tuple[Vector, Losses, Array]) -> tuple[Vector, Losses, Array]:
        gradient, _, norms = so_far
        g, values = weighted(rows[row])
        return gradient + share[row] * g, values, norms.at[row].set(norm(g))

    nothing = (
        jnp.zeros_like(flat(member.weights)),
        (jnp.zeros(()), jnp.zeros(d)),
        jnp.zeros_like(share),
    )
    gradient, values, norms = jax.lax.fori_loop(0, jnp.where(due, len(rows), 1), add, nothing)

    def renewed() -> tuple[Array, AlphaHistory]:
        history = remember(member.history, norms[0] / norms[1:], t)
        return recency_weighted(history, loss.decay), history

    alpha, history = jax.lax.cond(due, renewed, lambda: (member.alpha, member.history))
    return gradient, values, alpha, history


def adam(
    learning_rate: optax.ScalarOrSchedule, weight_decay: float
) -> optax.GradientTransformation:
    """Adam with an L2 term in the gradient, as in `torch.optim.Adam(weight_decay=...)`."""
    return optax.chain(optax.add_decayed_weights(weight_decay), optax.adam(learning_rate))
