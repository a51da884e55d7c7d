"""Residual networks in which theta meets x in the first layer, for x of few numbers.

    z_0     = x W_x + theta W_t + b
    z_{k+1} = z_k + silu(silu(z_k) A_k + a_k) B_k + b_k
    h       = silu(z_K) . w + c

The networks for large x embed it first and let theta in afterwards: x is then seen once, whatever
the number of thetas. But features that know nothing of theta have to serve every theta, and where
the likelihood is sharp (x near a curve that theta moves) they cannot. Here theta enters with x;
what is kept per x is x W_x + b.

`ResidualSetNetwork` is for x of n rows that are independent and alike given theta (structure
"iid"): log p(x | theta) is the sum over rows, and so is h, with the same weights for each row and
for any n:

    h(x, theta) = sum_i h_1(x_i, theta)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import equinox as eqx
from jaxtyping import Array, Float

from keepscore.networks.layers import Join, Linear, Source, silu

SIZES: dict[str, dict[str, int]] = {
    "5k": {"width": 32, "blocks": 2},
    "25k": {"width": 64, "blocks": 3},
    "100k": {"width": 128, "blocks": 3},
}


class Block(eqx.Module):
    """z + silu(silu(z) A + a) B + b."""

    inner: Linear
    outer: Linear

    def __init__(self, width: int, rng: Source) -> None:
        self.inner = Linear(width, width, rng)
        self.outer = Linear(width, width, rng)

    def __call__(self, z: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
        return z + self.outer(silu(self.inner(silu(z))))


class ResidualNetwork(eqx.Module):
    """h(x, theta) for x of any shape, taken as a vector."""

    join: Join
    blocks: tuple[Block, ...]
    last: Linear

    def __init__(
        self, x_shape: Sequence[int], d: int, rng: Source, width: int, blocks: int
    ) -> None:
        self.join = Join(math.prod(x_shape), d, width, rng)
        self.blocks = tuple(Block(width, rng) for _ in range(blocks))
        self.last = Linear(width, 1, rng)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        return self.join.of_features(x.reshape(x.shape[0], -1))

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.logit(self.join.with_theta(features, theta))

    def logit(self, z: Float[Array, "*n width"]) -> Float[Array, "*n"]:
        for block in self.blocks:
            z = block(z)
        return self.last(silu(z))[..., 0]

    def settings(self) -> dict[str, int]:
        """Width and blocks: with x_shape and d, all that is needed to build the same network."""
        return {"width": self.join.bias.shape[-1], "blocks": len(self.blocks)}


class ResidualSetNetwork(eqx.Module):
    """h(x, theta) = sum_i h_1(x_i, theta) for x (n, ...), any n."""

    row: ResidualNetwork
    x_scale = "states"  # a row's entries are alike in all rows

    def __init__(
        self, x_shape: Sequence[int], d: int, rng: Source, width: int, blocks: int
    ) -> None:
        self.row = ResidualNetwork(x_shape[1:], d, rng, width, blocks)

    def features(self, x: Float[Array, "b n ..."]) -> Float[Array, "b f"]:
        rows = x.reshape(x.shape[0], x.shape[1], -1)
        return self.row.join.of_features(rows).reshape(x.shape[0], -1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        rows = features.reshape(features.shape[0], -1, self.row.join.bias.shape[-1])
        return self.row.logit(self.row.join.with_theta(rows, theta[:, None, :])).sum(axis=1)

    def settings(self) -> dict[str, int]:
        return self.row.settings()
