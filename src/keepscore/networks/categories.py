"""Probabilities of entries with few values, independent given theta: answers, presences, grades.

    log q(x | theta) = sum_j log pi_j(x_j | theta)
    pi_j(v | theta)  = exp(l_jv(theta)) / sum_w exp(l_jw(theta)),   v, w the values of entry j

Yes or no, present or absent, a grade from 1 to 5: no normal density is like them (`independent`),
and a few values need none. The logits l are a residual network of theta beside a linear one, so
that logistic regression is where training begins:

    z_0     = theta A + a
    z_{k+1} = z_k + silu(silu(z_k) A_k + a_k) B_k + b_k
    l       = theta D + silu(z_K) C + c

The features of x are ones and zeros, which value each entry has, and log q is linear in them: the
features of a group add up. A value that no simulation had counts as the nearest that one had, and
the surrogate warns of it. The evidence is computed from q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike, NDArray

from keepscore.errors import DomainError
from keepscore.networks.independent import SIZES as INDEPENDENT
from keepscore.networks.layers import Linear, Source, beginning_small, computed
from keepscore.networks.mixture import SMALL
from keepscore.networks.residual import Block, through

MOST_VALUES = 9  # of an entry; with ten or more it is a count (`counts`)
# The width of z, then that of the inner layer of each block. The small one is for simulations
# without scores: a yes or no tells little of a logit.
SIZES: dict[str, dict[str, Any]] = {
    "3k": {"widths": (8, 8), "values": MOST_VALUES},
    "30k": {**INDEPENDENT["30k"], "values": MOST_VALUES},
}
NEVER = -1e9  # the logit of a value that an entry does not have


class CategoriesNetwork(eqx.Module):
    """log q(x | theta) for x of any shape, taken as a vector of entries with few values each.

    values: (entries, most), in order, NaN where an entry has fewer than others."""

    first: Linear
    blocks: tuple[Block, ...]
    last: Linear
    direct: Float[Array, "d outputs"]
    values: NDArray[np.float32]
    constants: ClassVar = ("values",)
    linear_head: ClassVar = True
    x_scale: ClassVar = "none"

    def __init__(
        self, x_shape: Sequence[int], d: int, rng: Source, widths: Sequence[int], values: int
    ) -> None:
        p, (width, *inner) = math.prod(x_shape), widths
        self.first = Linear(d, width, rng)
        self.blocks = tuple(Block(width, size, rng) for size in inner)
        self.last = beginning_small(Linear(width, p * values, rng), SMALL)
        self.direct = computed(rng, (d, p * values), lambda: np.zeros((d, p * values)))
        self.values = np.broadcast_to(np.arange(values, dtype=np.float32), (p, values)).copy()

    def scaled_to(
        self, x: NDArray[Any], x_mean: ArrayLike = 0.0, x_sd: ArrayLike = 1.0
    ) -> CategoriesNetwork:
        """The same for data like x (b, ...): no more logits than there are values, and the shares
        of all values as the probabilities it begins with. x comes as it is (`x_scale`)."""
        columns = np.asarray(x, np.float32).reshape(len(x), -1).T
        seen = [np.unique(column, return_counts=True) for column in columns]
        most = max(len(values) for values, _ in seen)
        if most > MOST_VALUES or not np.isfinite(columns).all():
            raise DomainError(
                f"A categories network needs entries of x with at most {MOST_VALUES} different "
                f"values each, nothing missing; got one with {most}. Use network='auto'."
            )
        own = np.full((len(columns), most), np.nan, np.float32)
        logits = np.zeros((len(columns), most), np.float32)
        for j, (values, counts) in enumerate(seen):
            own[j, : len(values)] = values
            logits[j, : len(values)] = np.log(counts / counts.sum())
        used = slice(0, logits.size)
        parts = self.last.weight[:, used], jnp.asarray(logits.ravel()), self.direct[:, used], own
        return eqx.tree_at(lambda n: (n.last.weight, n.last.bias, n.direct, n.values), self, parts)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        away = jnp.abs(x.reshape(len(x), -1, 1) - self.values)
        nearest = jnp.argmin(jnp.where(jnp.isnan(self.values), jnp.inf, away), axis=2)
        most = self.values.shape[1]
        return jax.nn.one_hot(nearest, most, dtype=jnp.float32).reshape(len(x), -1)

    def unseen(self, x: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of x (..., *x_shape) are values that the data it was made for did not have, as rows
        of entries."""
        rows = np.asarray(x, np.float32).reshape(-1, len(self.values), 1)
        return np.asarray((rows != self.values).all(axis=2))

    def log_probabilities(self, theta: Float[Array, "m d"]) -> Float[Array, "m f"]:
        """log pi_j(v | theta) of all values, entry after entry."""
        curved = self.last(through(self.blocks, self.first(theta)))
        logits = (theta @ self.direct + curved).reshape(-1, *self.values.shape)
        logits = jnp.where(jnp.isnan(self.values), NEVER, logits)
        return jax.nn.log_softmax(logits, axis=2).reshape(len(theta), -1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def table(
        self, features: Float[Array, "b f"], theta: Float[Array, "m d"]
    ) -> Float[Array, "m b"]:
        return self.log_probabilities(theta) @ features.T

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """log q(x | theta)."""
        return (features * self.log_probabilities(theta)).sum(axis=1)

    def settings(self) -> dict[str, int | list[int]]:
        """Widths: with x_shape and d, all that is needed to build the same network."""
        inner = [block.inner.bias.shape[-1] for block in self.blocks]
        return {"widths": [self.first.bias.shape[-1], *inner], "values": self.values.shape[1]}


def has_few_values(x: NDArray[Any]) -> bool:
    """Whether every entry of x has few values, whatever they are; NaN is none."""
    if x.dtype.kind not in "biuf" or x.size == 0:
        return False
    columns = x.reshape(len(x), -1).T
    if not np.isfinite(columns).all():
        return False
    return all(len(np.unique(column)) <= MOST_VALUES for column in columns)
