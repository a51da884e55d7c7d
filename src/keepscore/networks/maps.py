"""A network for maps: x (H, W) or (H, W, channels) of a process that is alike at all places.

    z_0     = x
    z_{k+1} = 3 x 3 convolution of z_k, ReLU, 2 x 2 average
    f_k     = sqrt(n_k) (1/n_k) sum over the n_k places of z_k,      k = 1 ... K
    h       = residual network of (f_1 ... f_K, theta), see `residual`

What a stationary process tells of theta are means over places: of the values, of products of
neighbours, of how often many things lie close together, near by and farther apart. A network of all
places side by side has to learn each of them anew at every place. Here one kernel serves all of
them, and every halving lets the next one look twice as far, until fewer than four places are left
on a side. A mean of n_k places scatters by 1 / sqrt(n_k), hence the factor.

What differs between places (an epidemic that starts in the middle) is seen only as far as means
tell of it; "auto" holds the map network against the one of all places (`training/candidates.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.image import places_left
from keepscore.networks.layers import ConvPool, Source
from keepscore.networks.residual import ResidualNetwork

SIZES: dict[str, dict[str, Any]] = {
    "10k": {"channels": 16, "widths": (32, 32, 32)},
    "30k": {"channels": 32, "widths": (64, 64, 64)},
    "100k": {"channels": 64, "widths": (128, 128, 128)},
}
LEAST_SIDE = 4  # places that a convolution and an average need
LEAST_MAP = 8  # of a side, for "auto" to take x for a map


def is_map(x_shape: Sequence[int]) -> bool:
    """Whether x may be a map: places on two sides, and at most as many channels as on a side."""
    return (
        len(x_shape) in (2, 3)
        and min(x_shape[:2]) >= LEAST_MAP
        and math.prod(x_shape[2:]) <= min(x_shape[:2])
    )


class MapNetwork(eqx.Module):
    """h(x, theta) from means over places at several scales."""

    stages: tuple[ConvPool, ...]
    joint: ResidualNetwork

    x_scale: ClassVar = "places"

    def __init__(
        self, x_shape: Sequence[int], d: int, rng: Source, channels: int, widths: Sequence[int]
    ) -> None:
        if len(x_shape) < 2 or min(x_shape[:2]) < LEAST_SIDE:
            raise ShapeError(
                f"A map network needs x of shape (H, W) or (H, W, channels), sides of at least "
                f"{LEAST_SIDE}; got {tuple(x_shape)}. Use network='residual-25k'."
            )
        inputs, side, stages = math.prod(x_shape[2:]), min(x_shape[:2]), []
        while side >= LEAST_SIDE:
            stages.append(ConvPool(inputs, channels, rng))
            inputs, side = channels, places_left(side, 1)
        self.stages = tuple(stages)
        self.joint = ResidualNetwork((len(stages) * channels,), d, rng, widths)

    def features(self, x: Float[Array, "b H W *c"]) -> Float[Array, "b f"]:
        z = jnp.swapaxes(x.reshape(*x.shape[:3], -1), 0, 1)
        means = []
        for stage in self.stages:
            height, width = (side // 2 * 2 for side in (z.shape[0], z.shape[2]))
            z = stage(z[:height, :, :width])
            means.append(z.mean(axis=(0, 2)) * math.sqrt(z.shape[0] * z.shape[2]))
        return self.joint.features(jnp.concatenate(means, axis=-1))

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.joint.head(features, theta)

    def settings(self) -> dict[str, Any]:
        """Widths: with x_shape and d, all that is needed to build the same network."""
        return {"channels": self.stages[0].bias.shape[-1], **self.joint.settings()}
