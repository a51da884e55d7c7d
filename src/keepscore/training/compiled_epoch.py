"""Many steps in one call: batches are gathered and used inside one compiled loop on the device.

The loop takes how many steps to make as a number, so it is compiled once, and where an epoch is cut
into calls changes nothing in its result. What data decide (the scale of x, theta and scores) it
takes as arrays, so that another run of the same network on as many rows compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from keepscore.losses import Loss
from keepscore.models.base import Symmetry
from keepscore.networks.base import Rest
from keepscore.networks.compilation import compiler_options, shared, without_arrays
from keepscore.training.step import Batch, Losses, Member, objective, step

Array = jax.Array


class Tables(NamedTuple):
    """Rows on the device: all thetas (n, d), and x and score of all rows or of those now needed."""

    theta: Array
    x: Array
    score: Array | None


class BatchRows(NamedTuple):
    """Which rows make each batch: (members, steps, b) each, `other` (members, steps, k, b).

    `number` is a row's number in the data set; `row` its place in the tables of x and score.
    `symmetry` numbers the map applied to each sample.
    """

    number: Array
    row: Array
    other: Array
    symmetry: Array | None


class Maps(NamedTuple):
    """Symmetries as tables: x_index (s, size of x), sign (s,), theta_index and
    theta_sign (s, d)."""

    x_index: Array
    sign: Array
    theta_index: Array
    theta_sign: Array


def symmetry_maps(symmetries: Sequence[Symmetry], size: int, d: int) -> Maps:
    """The identity and the declared symmetries, each once."""
    same = Symmetry("identity", np.arange(size), tuple(range(d)))
    every = [same, *symmetries]
    keys = {(tuple(s.x_index.tolist()), s.theta_index, s.sign, s.theta_sign): s for s in every}
    unique = list(keys.values())
    return Maps(
        jnp.asarray(np.stack([s.x_index for s in unique]).astype(np.int32)),
        jnp.asarray([s.sign for s in unique], jnp.float32),
        jnp.asarray([list(s.theta_index) for s in unique], jnp.int32),
        jnp.asarray([s.theta_sign or (1,) * d for s in unique], jnp.float32),
    )


def transform(batch: Batch, which: Array, maps: Maps) -> Batch:
    """Apply map which[i] to sample i: p(S x | T theta) = p(x | theta); the score moves as theta."""
    flat = batch.x.reshape(len(which), -1)
    moved = jnp.take_along_axis(flat, maps.x_index[which], axis=1) * maps.sign[which, None]
    order, flip = maps.theta_index[which], maps.theta_sign[which]
    score = None if batch.score is None else flip * jnp.take_along_axis(batch.score, order, axis=1)
    theta = flip * jnp.take_along_axis(batch.theta, order, axis=1)
    return Batch(moved.reshape(batch.x.shape), theta, score, batch.other)


class Constants(NamedTuple):
    """What a run does not change: arrays of the network that are not weights, the perturbation and
    m of the score loss, and symmetries."""

    network: Rest
    epsilon: Array | None = None
    scale: Array | None = None
    maps: Maps | None = None


Run = Callable[[Member, Tables, BatchRows, Array, Array], tuple[Member, Losses, Array]]
Shard = Callable[[Batch], Batch]


def runner(
    rest: Rest,
    loss: Loss,
    optimizer: optax.GradientTransformation,
    members: int,
    epsilon: Array | None = None,
    scale: Array | None = None,
    maps: Maps | None = None,
    shard: Shard | None = None,
) -> Run:
    """run(member, tables, plan, t, n): n steps after batch t. Gives the new state, the losses of
    each step (steps, members), (steps, members, d), and whether all weights are finite. `rest`,
    `epsilon` and `scale` are those of `objective`."""
    arrays, others, key = without_arrays(rest)
    update = optimizer.update
    program = shared(
        key and ("steps", key, loss, update, members, shard),
        partial(_program, others, loss, update, members, shard),
    )
    return partial(program, Constants(arrays, epsilon, scale, maps))


def _program(
    others: Rest,
    loss: Loss,
    update: optax.TransformUpdateFn,
    members: int,
    shard: Shard | None,
) -> Callable[..., tuple[Member, Losses, Array]]:
    """With one member its arrays have no member axis: a loop over batches of one is slower."""

    def one(
        constants: Constants, member: Member, tables: Tables, plan: BatchRows, i: Array, t: Array
    ) -> tuple[Member, Losses]:
        network, epsilon, scale, maps = constants
        number, row = plan.number[i], plan.row[i]
        batch = Batch(
            tables.x[row].astype(jnp.float32),
            tables.theta[number],
            None if tables.score is None else tables.score[row],
            tables.theta[plan.other[i]],
        )
        if maps is not None and plan.symmetry is not None:
            batch = transform(batch, plan.symmetry[i], maps)
        losses = objective(eqx.combine(network, others), loss, epsilon, scale)
        return step(member, batch if shard is None else shard(batch), t, losses, loss, update)

    def all_members(
        constants: Constants, member: Member, tables: Tables, plan: BatchRows, i: Array, t: Array
    ) -> tuple[Member, Losses]:
        if members == 1:
            first = jax.tree.map(lambda a: a[0], plan)
            member, values = one(constants, member, tables, first, i, t)
            return member, jax.tree.map(lambda v: v[None], values)
        axes = (None, 0, None, 0, None, None)
        return jax.vmap(one, in_axes=axes)(constants, member, tables, plan, i, t)

    @partial(jax.jit, compiler_options=compiler_options())
    def run(
        constants: Constants, member: Member, tables: Tables, plan: BatchRows, t: Array, n: Array
    ) -> tuple[Member, Losses, Array]:
        steps, d = plan.number.shape[1], tables.theta.shape[1]

        def body(i: Array, carry: tuple[Member, Losses]) -> tuple[Member, Losses]:
            member, (bce, score) = carry
            member, (b, s) = all_members(constants, member, tables, plan, i, t + i + 1)
            return member, (bce.at[i].set(b), score.at[i].set(s))

        empty = (jnp.zeros((steps, members)), jnp.zeros((steps, members, d)))
        member, values = jax.lax.fori_loop(0, n, body, (member, empty))
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(member.weights)]
        return member, values, jnp.all(jnp.stack(finite))

    return run
