"""The paper's network for sequences x (T, K), e.g. SIS: embed states, convolve in time, join theta.

    embed each x_t by a small MLP -> three convolutions of width 5 -> features -> head with theta

SiLU after every layer but the last. Three valid convolutions of width 5 shorten T by 12; what is
left is flattened (T = 13 leaves one place, so the features are the last channels).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.layers import (
    Conv1d,
    Head,
    Linear,
    Source,
    hidden_widths,
    linear_layers,
    silu,
)

WIDTH = 5
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "3k": {"embedding": (16, 8), "channels": (8, 12, 16), "hidden": (30, 12)},
    "10k": {"embedding": (32, 16), "channels": (16, 24, 24), "hidden": (52, 32)},
    "30k": {"embedding": (64, 32), "channels": (32, 32, 48), "hidden": (64, 64, 32)},
    "100k": {"embedding": (64, 64), "channels": (64, 64, 96), "hidden": (128, 64, 32)},
}


class SequenceNetwork(eqx.Module):
    """h(x, theta) for x of shape (T, K)."""

    embedding: tuple[Linear, ...]
    convolutions: tuple[Conv1d, ...]
    joint: Head

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        embedding: Sequence[int],
        channels: Sequence[int],
        hidden: Sequence[int],
    ) -> None:
        if len(x_shape) != 2:
            raise ShapeError(f"A sequence network needs x of shape (T, K); got {tuple(x_shape)}.")
        places = x_shape[0] - len(channels) * (WIDTH - 1)
        if places < 1:
            raise ShapeError(
                f"{len(channels)} convolutions of width {WIDTH} need T of at least "
                f"{len(channels) * (WIDTH - 1) + 1}; got T = {x_shape[0]}. "
                "Use network='mlp-30k', or your own module."
            )
        widths = [x_shape[1], *embedding]
        self.embedding = linear_layers(widths, rng)
        widths = [widths[-1], *channels]
        self.convolutions = tuple(
            Conv1d(widths[i], widths[i + 1], WIDTH, rng) for i in range(len(channels))
        )
        self.joint = Head(places * widths[-1], d, hidden, rng)

    def features(self, x: Float[Array, "b T K"]) -> Float[Array, "b f"]:
        z = jnp.swapaxes(x, 0, 1)
        for linear in self.embedding:
            z = silu(linear(z))
        for convolution in self.convolutions:
            z = silu(convolution(z))
        return self.joint.of_features(jnp.swapaxes(z, 0, 1).reshape(x.shape[0], -1))

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.joint(features, theta)

    def settings(self) -> dict[str, Any]:
        """Layer widths: with x_shape and d, all that is needed to build the same network."""
        return {
            "embedding": [layer.bias.shape[-1] for layer in self.embedding],
            "channels": [layer.bias.shape[-1] for layer in self.convolutions],
            "hidden": hidden_widths(self.joint),
        }
