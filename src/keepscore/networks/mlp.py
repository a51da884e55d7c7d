"""A plain network for vectors: x is flattened, embedded by an MLP, and joined with theta.

SiLU after every layer but the last. Sizes are by the widths below; the number of weights depends on
the length of x (for x of length 8 and two parameters it is close to the name).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from keepscore.networks.layers import Head, Linear, Source, hidden_widths, linear_layers, silu

SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "1k": {"embedding": (16, 16), "hidden": (16, 16)},
    "3k": {"embedding": (30, 30), "hidden": (30, 30)},
    "10k": {"embedding": (56, 56), "hidden": (56, 48)},
    "30k": {"embedding": (96, 96), "hidden": (96, 64, 48)},
    "100k": {"embedding": (180, 180), "hidden": (180, 128, 64)},
}


class MLP(eqx.Module):
    """h(x, theta) for x of any shape, taken as a vector."""

    embedding: tuple[Linear, ...]
    joint: Head

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        embedding: Sequence[int],
        hidden: Sequence[int],
    ) -> None:
        widths = [math.prod(x_shape), *embedding]
        self.embedding = linear_layers(widths, rng)
        self.joint = Head(widths[-1], d, hidden, rng)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        z = x.reshape(x.shape[0], -1)
        for layer in self.embedding:
            z = silu(layer(z))
        return self.joint.of_features(z)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.joint(features, theta)

    def settings(self) -> dict[str, Any]:
        """Layer widths: with x_shape and d, all that is needed to build the same network."""
        return {
            "embedding": [layer.bias.shape[-1] for layer in self.embedding],
            "hidden": hidden_widths(self.joint),
        }
