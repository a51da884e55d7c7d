"""The paper's network for fields x (H, W): convolutions with pooling, then join theta.

    three times: 3 x 3 convolution, ReLU, 2 x 2 average -> features -> head with theta (SiLU)

Pooling drops an odd last row or column: 25 -> 23 -> 11 -> 9 -> 4 -> 2 -> 1. Nothing after the first
layer sees what is dropped, so the field is cut beforehand to the part that matters (22 x 22 of
25 x 25): the same function, a quarter of the work saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.layers import ConvPool, Head, Source, as_matrix_product, hidden_widths

SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "30k": {"channels": (40, 40, 32), "hidden": (48, 32)},
    "100k": {"channels": (80, 80, 44), "hidden": (64, 64, 32)},
    "300k": {"channels": (128, 128, 108), "hidden": (128, 80, 64)},
    "1m": {"channels": (256, 256, 136), "hidden": (256, 176, 96)},
}
# On a CPU, more fields than a batch are embedded so many at a time: the layers' arrays then stay in
# its cache, which saves a third of the time.
LARGEST_BATCH, IN_CACHE = 64, 32


def places_left(side: int, layers: int) -> int:
    """Places of a side left after so many convolutions (minus 2) and poolings (halving)."""
    for _ in range(layers):
        side = (side - 2) // 2
    return max(side, 0)


def places_seen(left: int, layers: int) -> int:
    """How much of a side those places see: one layer maps 2 n + 2 to n."""
    for _ in range(layers):
        left = 2 * left + 2
    return left


class ImageNetwork(eqx.Module):
    """h(x, theta) for x of shape (H, W), or (H, W, channels)."""

    convolutions: tuple[ConvPool, ...]
    joint: Head
    seen: tuple[int, int] = eqx.field(static=True)

    x_scale: ClassVar = "whole"

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        channels: Sequence[int],
        hidden: Sequence[int],
    ) -> None:
        if len(x_shape) not in (2, 3):
            raise ShapeError(f"An image network needs x of shape (H, W); got {tuple(x_shape)}.")
        layers = len(channels)
        left = [places_left(side, layers) for side in x_shape[:2]]
        if min(left) < 1:
            raise ShapeError(
                f"{layers} layers of convolution and pooling need a field of at least "
                f"{places_seen(1, layers)} x {places_seen(1, layers)}; got "
                f"{x_shape[0]} x {x_shape[1]}. Use network='mlp-30k', or your own module."
            )
        self.seen = (places_seen(left[0], layers), places_seen(left[1], layers))
        widths = [math.prod(x_shape[2:]), *channels]
        self.convolutions = tuple(ConvPool(widths[i], widths[i + 1], rng) for i in range(layers))
        self.joint = Head(left[0] * left[1] * widths[-1], d, hidden, rng)

    def features(self, x: Float[Array, "b H W *c"]) -> Float[Array, "b f"]:
        if as_matrix_product() and len(x) > LARGEST_BATCH and len(x) % IN_CACHE == 0:
            parts = jax.lax.map(self._embed, x.reshape(-1, IN_CACHE, *x.shape[1:]))
            return parts.reshape(len(x), -1)
        return self._embed(x)

    def _embed(self, x: Float[Array, "b H W *c"]) -> Float[Array, "b f"]:
        z = x.reshape(*x.shape[:3], -1)
        z = jnp.swapaxes(z[:, : self.seen[0], : self.seen[1]], 0, 1)
        for convolution in self.convolutions:
            z = convolution(z)
        return self.joint.of_features(jnp.swapaxes(z, 0, 1).reshape(x.shape[0], -1))

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.joint(features, theta)

    def settings(self) -> dict[str, Any]:
        """Layer widths: with x_shape and d, all that is needed to build the same network."""
        return {
            "channels": [layer.bias.shape[-1] for layer in self.convolutions],
            "hidden": hidden_widths(self.joint),
        }
