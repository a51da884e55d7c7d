"""A network for paths: x (T,) or (T, channels), a process seen at T times, one after the other.

    z_0     = x
    z_{k+1} = convolution of z_k over three times, ReLU, average of two
    f_k     = sqrt(n_k) (1/n_k) sum over the n_k times of z_k,      k = 1 ... K
    e       = x, averaged over two times again and again until at most sixteen are left
    m       = the least and the greatest value over all times
    h       = residual network of (f_1 ... f_K, e, m, theta), see `residual`

What a stationary process tells of theta are means over times: of the values, of products of
neighbours, of how often much happens soon after much, near by and farther apart (f, as in `maps`).
A network of all times side by side has to learn anew at every time what follows upon what. Here one
kernel serves all of them, and every halving lets the next one look twice as far, until fewer than
four times are left. What a process that begins somewhere tells is also when things happened: the
week of the peak, where growth ends. That is e. And where a parameter is the end of what is possible
(no service in a queue is shorter than theta_1), one value tells more than all means: that is m.
Files of earlier versions have networks without m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from keepscore.errors import DomainError, ShapeError
from keepscore.networks.layers import Conv1d, Source
from keepscore.networks.residual import ResidualNetwork

SIZES: dict[str, dict[str, Any]] = {
    "10k": {"channels": 16, "widths": (32, 32, 32), "extremes": 2},
    "30k": {"channels": 32, "widths": (64, 64, 64), "extremes": 2},
    "100k": {"channels": 64, "widths": (128, 128, 128), "extremes": 2},
}
WINDOW = 3  # times that a kernel sees
LEAST_TIMES = 4  # that a convolution and an average need
LEAST_PATH = 16  # times, for "auto" to take x for a path
MOST_WHOLE = 16  # times of e: with all of them, single values are learned by heart


def is_path(x_shape: Sequence[int]) -> bool:
    """Whether x may be a path: many times, and few channels."""
    channels = math.prod(x_shape[1:])
    return len(x_shape) in (1, 2) and x_shape[0] >= LEAST_PATH and 4 * channels <= x_shape[0]


def times_left(times: int) -> int:
    """Of e."""
    while times > MOST_WHOLE:
        times //= 2
    return times


def averaged(z: Float[Array, "T b c"]) -> Float[Array, "t b c"]:
    """Means of two times and two times; a last one alone is left out."""
    n = len(z) // 2
    return z[: 2 * n].reshape(n, 2, *z.shape[1:]).mean(axis=1)


class PathNetwork(eqx.Module):
    """h(x, theta) from means over times at several scales, and from the path as a whole."""

    stages: tuple[Conv1d, ...]
    joint: ResidualNetwork
    extremes: int = eqx.field(static=True)

    x_scale: ClassVar = "states"

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        channels: int,
        widths: Sequence[int],
        extremes: int = 0,
    ) -> None:
        if len(x_shape) < 1 or x_shape[0] < LEAST_TIMES:
            raise ShapeError(
                f"A path network needs x of shape (T,) or (T, channels), T of at least "
                f"{LEAST_TIMES}; got {tuple(x_shape)}. Use network='residual-25k'."
            )
        times, inputs, stages = x_shape[0], math.prod(x_shape[1:]), []
        while times >= LEAST_TIMES:
            stages.append(Conv1d(inputs, channels, WINDOW, rng))
            times, inputs = (times - WINDOW + 1) // 2, channels
        self.stages = tuple(stages)
        if extremes not in (0, 2):
            raise DomainError(
                f"extremes must be 0 or 2 (the least and the greatest); got {extremes}."
            )
        self.extremes = extremes
        beside = times_left(x_shape[0]) + extremes
        inputs = len(stages) * channels + beside * math.prod(x_shape[1:])
        self.joint = ResidualNetwork((inputs,), d, rng, widths)

    def features(self, x: Float[Array, "b T *c"]) -> Float[Array, "b f"]:
        z = whole = jnp.swapaxes(x.reshape(*x.shape[:2], -1), 0, 1)
        m = [z.min(axis=0), z.max(axis=0)] if self.extremes else []
        means = []
        for stage in self.stages:
            z = averaged(jax.nn.relu(stage(z)))
            means.append(z.mean(axis=0) * math.sqrt(len(z)))
        while len(whole) > MOST_WHOLE:
            whole = averaged(whole)
        e = jnp.swapaxes(whole, 0, 1).reshape(x.shape[0], -1)
        return self.joint.features(jnp.concatenate([*means, e, *m], axis=-1))

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.joint.head(features, theta)

    def settings(self) -> dict[str, Any]:
        """Widths: with x_shape and d, all that is needed to build the same network."""
        found = {"channels": self.stages[0].bias.shape[-1], **self.joint.settings()}
        # Only where it says something: older files have no such entry.
        return {**found, "extremes": self.extremes} if self.extremes else found
