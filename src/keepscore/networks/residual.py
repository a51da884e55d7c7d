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

from keepscore.errors import ShapeError
from keepscore.networks.layers import Join, Linear, Source, silu

# The width of z, then that of the inner layer of each block.
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "5k": {"widths": (32, 32, 32)},
    "25k": {"widths": (64, 64, 64, 64)},
    "100k": {"widths": (128, 128, 128, 128)},
}


class Block(eqx.Module):
    """z + silu(silu(z) A + a) B + b."""

    inner: Linear
    outer: Linear

    def __init__(self, width: int, inner: int, rng: Source) -> None:
        self.inner = Linear(width, inner, rng)
        self.outer = Linear(inner, width, rng)

    def __call__(self, z: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
        return z + self.outer(silu(self.inner(silu(z))))


def through(blocks: Sequence[Block], z: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
    """silu(z_K), from z_0."""
    for block in blocks:
        z = block(z)
    return silu(z)


class ResidualNetwork(eqx.Module):
    """h(x, theta) for x of any shape, taken as a vector."""

    join: Join
    blocks: tuple[Block, ...]
    last: Linear

    def __init__(self, x_shape: Sequence[int], d: int, rng: Source, widths: Sequence[int]) -> None:
        width, *inner = widths
        self.join = Join(math.prod(x_shape), d, width, rng)
        self.blocks = tuple(Block(width, size, rng) for size in inner)
        self.last = Linear(width, 1, rng)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        return self.join.of_features(x.reshape(x.shape[0], -1))

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.logit(self.join.with_theta(features, theta))

    def logit(self, z: Float[Array, "*n width"]) -> Float[Array, "*n"]:
        return self.last(through(self.blocks, z))[..., 0]

    def settings(self) -> dict[str, list[int]]:
        """Widths: with x_shape and d, all that is needed to build the same network."""
        inner = [block.inner.bias.shape[-1] for block in self.blocks]
        return {"widths": [self.join.bias.shape[-1], *inner]}


class ResidualSetNetwork(eqx.Module):
    """h(x, theta) = sum_i h_1(x_i, theta) for x (n, ...), any n."""

    row: ResidualNetwork
    x_scale = "states"  # a row's entries are alike in all rows

    def __init__(self, x_shape: Sequence[int], d: int, rng: Source, widths: Sequence[int]) -> None:
        if len(x_shape) < 2:
            raise ShapeError(
                f"A set network needs x of shape (n, ...), n rows; got {tuple(x_shape)}."
            )
        self.row = ResidualNetwork(x_shape[1:], d, rng, widths)

    def features(self, x: Float[Array, "b n ..."]) -> Float[Array, "b f"]:
        rows = x.reshape(x.shape[0], x.shape[1], -1)
        return self.row.join.of_features(rows).reshape(x.shape[0], -1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        join = self.row.join
        rows = features.reshape(features.shape[0], -1, join.bias.shape[-1])
        of_theta = theta @ join.theta_weight  # the same for every row
        return self.row.logit(rows + of_theta[:, None, :]).sum(axis=1)

    def settings(self) -> dict[str, list[int]]:
        """Those of the network of one row."""
        return self.row.settings()
