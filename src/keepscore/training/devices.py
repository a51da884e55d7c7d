"""Data-parallel training: one batch split over several JAX devices.

Weights and data are copied to every device, the rows of a batch are divided among them, and XLA
adds up the gradients. On several hosts call `jax.distributed.initialize()` in each process before
anything else, with the same data and settings; `jax.devices()` then lists the devices of all (see
`hosts`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from keepscore.errors import DomainError
from keepscore.training import hosts
from keepscore.training.batches import Place
from keepscore.training.step import Batch


class Placement(NamedTuple):
    """`place` puts an array on every device; `shard` divides a batch among them, in traced code
    (None on one device)."""

    place: Place
    shard: Callable[[Batch], Batch] | None
    devices: int


def placement(devices: int | None, batch_size: int) -> Placement:
    """For so many devices (None: all there are)."""
    there = jax.devices()
    count = len(there) if devices is None else devices
    if count > len(there):
        raise DomainError(f"devices={count} was asked for; JAX sees {len(there)}.")
    if count == 1:
        return Placement(jnp.asarray, None, 1)
    if batch_size % count:
        raise DomainError(
            f"batch_size must be a multiple of the {count} devices; got {batch_size}. "
            "Change it, or set devices=1."
        )
    mesh = Mesh(there[:count], ("batch",))
    everywhere = NamedSharding(mesh, PartitionSpec())

    def shard(batch: Batch) -> Batch:
        x, theta, score, other = batch
        rows = NamedSharding(mesh, PartitionSpec("batch"))
        pairs = NamedSharding(mesh, PartitionSpec(None, "batch"))
        fix = jax.lax.with_sharding_constraint
        return type(batch)(
            fix(x, rows),
            fix(theta, rows),
            None if score is None else fix(score, rows),
            fix(other, pairs),
        )

    def place(a: NDArray[Any]) -> jax.Array:
        if not hosts.several():
            return jax.device_put(a, everywhere)
        # Every process has the whole array: nothing needs to be sent, or compared.
        return jax.make_array_from_process_local_data(everywhere, np.asarray(a))

    return Placement(place, shard, count)
