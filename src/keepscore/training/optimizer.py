"""How weights move: Adam, its learning rate over time, and the average of the weights kept beside.

    rate at batch t of T     constant: r          cosine: r (1 + cos(pi t / T)) / 2
                             cooling: r_b (1 + cos(pi (t - t_0) / C)) / 2
    average after batch t    a <- c a + (1 - c) w,    c = min(averaging, t / (t + 9))

A run with a falling rate whose length the validation curve may cut (`length`) can be made to cool:
after batch t_0, within C batches, from the rate r_b that it had at its best epoch. It carries what
this takes in its state.

The average smooths what single batches do to the weights; it is what is validated and kept, while
training goes on from the weights themselves. c grows from 0, so that the start is forgotten. All
this lives in the optimizer's state and so in every checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from numpy.typing import ArrayLike

from keepscore.networks import Tree, Weights
from keepscore.training.config import TrainConfig
from keepscore.training.step import Member, adam


class Average(NamedTuple):
    """Batches so far, and the average of the weights after each."""

    batches: jax.Array
    weights: Weights


class Rate(NamedTuple):
    """Batches so far, and the cosine of the rate: from which batch, how long, how high."""

    batches: jax.Array
    start: jax.Array
    length: jax.Array
    peak: jax.Array


def optimizer(
    config: TrainConfig, steps: int, may_cool: bool = False
) -> optax.GradientTransformation:
    """Of a run of so many steps; with a constant rate their number does not matter. Runs that move
    their weights alike have the same `update`, so that they can share a compiled program."""
    rate, decay, average = config.learning_rate, config.weight_decay, config.averaging
    if may_cool:
        update = _cooling(decay, average)
        return optax.GradientTransformation(
            lambda weights: _starting(update.init(weights), rate, steps), update.update
        )
    return _fixed(rate, steps if config.schedule == "cosine" else None, decay, average)


@lru_cache(maxsize=64)
def _fixed(
    rate: float, steps: int | None, decay: float, average: float
) -> optax.GradientTransformation:
    """With a rate that nothing changes: constant, or falling to zero in so many steps."""
    schedule = rate if steps is None else optax.cosine_decay_schedule(rate, steps)
    return _averaged(adam(schedule, decay), average)


@lru_cache(maxsize=64)
def _cooling(decay: float, average: float) -> optax.GradientTransformation:
    """With a rate in its state."""
    parts = optax.add_decayed_weights(decay), optax.scale_by_adam(), falling()
    return _averaged(optax.chain(*parts), average)


def _averaged(plain: optax.GradientTransformation, most: float) -> optax.GradientTransformation:
    return optax.chain(plain, averaging(most)) if most else plain


def _starting(state: Tree, peak: float, steps: int) -> Tree:
    """The state before the first batch of a run whose rate falls from `peak` in so many steps."""

    length, height = (jnp.asarray(a, jnp.float32) for a in (steps, peak))
    return _with_rate(state, lambda rate: rate._replace(length=length, peak=height))


def _with_rate(state: Tree, changed: Callable[[Rate], Rate]) -> Tree:
    """An optimizer's state with its rate changed."""

    def part(leaf: Tree) -> Tree:
        return changed(leaf) if isinstance(leaf, Rate) else leaf

    return jax.tree.map(part, state, is_leaf=lambda leaf: isinstance(leaf, Rate))


def falling() -> optax.GradientTransformation:
    """Scales updates by minus the rate, which falls to zero as its state says."""

    def start(weights: Weights) -> Rate:
        none = jnp.zeros((), jnp.int32)
        return Rate(none, none, jnp.ones(()), jnp.zeros(()))

    def update(
        change: Weights, state: Rate, weights: Weights | None = None
    ) -> tuple[Weights, Rate]:
        rate = rate_at(state, state.batches)
        moved = jax.tree.map(lambda g: -rate * g, change)
        return moved, state._replace(batches=state.batches + 1)

    return optax.GradientTransformation(start, update)


def rate_at(state: Rate, batch: jax.Array) -> jax.Array:
    """The rate of the update that follows so many batches."""
    share = jnp.clip((batch - state.start) / state.length, 0.0, 1.0)
    return state.peak * 0.5 * (1.0 + jnp.cos(jnp.pi * share))


def cooled(member: Member, best: Weights, best_batches: ArrayLike, steps: int) -> Member:
    """The member back at its best weights, its rate falling from what it was after `best_batches`
    (one number per member of an ensemble) to zero within so many steps."""

    def cool(state: Rate) -> Rate:
        peak = rate_at(state, jnp.asarray(best_batches).reshape(state.peak.shape))
        return Rate(state.batches, state.batches, jnp.full_like(state.length, steps), peak)

    return member._replace(weights=best, optimizer=_with_rate(member.optimizer, cool))


def averaging(most: float) -> optax.GradientTransformation:
    """Leaves the updates as they are and averages the weights they lead to."""

    def start(weights: Weights) -> Average:
        return Average(jnp.zeros((), jnp.int32), weights)

    def update(
        change: Weights, state: Average, weights: Weights | None = None
    ) -> tuple[Weights, Average]:
        t = state.batches + 1
        c = jnp.minimum(most, (t - 1) / (t + 8.0))
        moved = optax.apply_updates(weights, change)
        mean = jax.tree.map(lambda a, w: c * a + (1 - c) * w, state.weights, moved)
        return change, Average(t, mean)

    return optax.GradientTransformation(start, update)


def weights_to_keep(member: Member) -> Weights:
    """The average if there is one, else the weights."""
    if not isinstance(member.optimizer, tuple) or not isinstance(member.optimizer[-1], Average):
        return member.weights
    average = member.optimizer[-1].weights
    if average.ndim == 1:
        return ravel_pytree(member.weights)[1](average)
    unflatten = ravel_pytree(jax.tree.map(lambda a: a[0], member.weights))[1]
    return jax.vmap(unflatten)(average)
