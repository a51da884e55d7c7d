"""Densities of entries that are independent given theta: a curve with noise around it.

    log q(x | theta) = sum_j log N(x_j; m_j(theta), s_j(theta)^2)

What a mechanism predicts, measured with errors of their own: growth curves, concentrations,
differential equations. A mixture density (`mixture`) contains it, and has to learn half of the
square of x's numbers as covariances, all of them zero; from few simulations that drowns the curve.
So all of the network is for m here, a residual one of theta, since curves may bend sharply:

    z_0     = theta A + a
    z_{k+1} = z_k + silu(silu(z_k) A_k + a_k) B_k + b_k
    (m, log s) = silu(z_K) C + c

s is at least exp(-10) of the data's standard deviation. The evidence is computed from q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from keepscore.networks.layers import Linear, Source, beginning_small
from keepscore.networks.mixture import LARGEST, SMALL
from keepscore.networks.residual import Block, through

# The width of z, then that of the inner layer of each block.
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "30k": {"widths": (64, 64, 64, 64)},
    "100k": {"widths": (128, 128, 128, 128)},
}


class IndependentNetwork(eqx.Module):
    """log q(x | theta) for x of any shape, taken as a vector."""

    first: Linear
    blocks: tuple[Block, ...]
    last: Linear

    def __init__(self, x_shape: Sequence[int], d: int, rng: Source, widths: Sequence[int]) -> None:
        width, *inner = widths
        self.first = Linear(d, width, rng)
        self.blocks = tuple(Block(width, size, rng) for size in inner)
        self.last = beginning_small(Linear(width, 2 * math.prod(x_shape), rng), SMALL)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        return x.reshape(x.shape[0], -1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self,
        features: Float[Array, "b f"],
        theta: Float[Array, "b d"],
        least_sd: Float[Array, "b f"] | None = None,
    ) -> Float[Array, " b"]:
        """log q(x | theta), up to a constant. least_sd: s is never below."""
        mean, free = jnp.split(self.last(through(self.blocks, self.first(theta))), 2, axis=1)
        log_sd = LARGEST * jnp.tanh(free / LARGEST)
        if least_sd is not None:
            least = jnp.log(least_sd)
            log_sd = least + jax.nn.softplus(log_sd - least)
        return -(0.5 * ((features - mean) * jnp.exp(-log_sd)) ** 2 + log_sd).sum(axis=1)

    def settings(self) -> dict[str, list[int]]:
        """Widths: with x_shape and d, all that is needed to build the same network."""
        inner = [block.inner.bias.shape[-1] for block in self.blocks]
        return {"widths": [self.first.bias.shape[-1], *inner]}
