"""Layers, with PyTorch's default initialisation and the layouts that are fast on a CPU.

    Linear      z -> z W + b
    Join        the first layer of a head, (features, theta) -> features W_f + theta W_t + b
    Conv1d      "valid" convolution along time, on (T, b, channels)
    ConvPool    3 x 3 convolution, ReLU, 2 x 2 average, on (H, b, W, channels)
    Head        Join and Linear layers with SiLU between them, to one logit

All weights are uniform on (-1, 1) / sqrt(fan in), as `torch.nn.Linear` and `torch.nn.Conv2d` draw
theirs. On XLA's CPU backend the gradient of `lax.conv` is slow; there a convolution is written as
matrix products (in time: with shifted slices side by side). On an accelerator it is `lax.conv`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from keepscore.networks.pooling import pooled_windows
from keepscore.networks.winograd import pooled_channels

silu = jax.nn.silu


Source = np.random.Generator | None


def uniform(rng: Source, shape: tuple[int, ...], fan_in: int) -> Array:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)), float32; zeros without a source of randomness.

    Drawn by NumPy: a compiled draw for each shape would cost seconds before training starts.
    """
    if rng is None:
        return jnp.zeros(shape, jnp.float32)
    bound = fan_in**-0.5
    return jnp.asarray(rng.uniform(-bound, bound, shape).astype(np.float32))


def computed(rng: Source, shape: tuple[int, ...], values: Callable[[], Any]) -> Array:
    """Values to start from that are computed, not drawn; zeros without a source of randomness.

    `uniform` and this are the only ways a weight comes to be, and without a source they only say
    its shape. So a description can be traced whatever sizes it claims, and no memory is taken.
    """
    if rng is None:
        return jnp.zeros(shape, jnp.float32)
    return jnp.asarray(values(), jnp.float32)


def scattered(rng: Source, shape: tuple[int, ...], sd: float) -> Array:
    """Normal draws around zero to start from; zeros without a source of randomness."""
    if rng is None:
        return computed(rng, shape, lambda: None)
    return computed(rng, shape, lambda: sd * rng.standard_normal(shape))


def as_matrix_product() -> bool:
    """Whether convolutions are matrix products here: on CPU, yes."""
    return jax.default_backend() == "cpu"


class Linear(eqx.Module):
    """z W + b on the last axis."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, rng: Source) -> None:
        self.weight = uniform(rng, (inputs, outputs), inputs)
        self.bias = uniform(rng, (outputs,), inputs)

    def __call__(self, z: Float[Array, "*n inputs"]) -> Float[Array, "*n outputs"]:
        return z @ self.weight + self.bias


def linear_layers(widths: Sequence[int], rng: Source) -> tuple[Linear, ...]:
    """Layers from each width to the next."""
    return tuple(Linear(widths[i], widths[i + 1], rng) for i in range(len(widths) - 1))


def beginning_small(linear: Linear, share: float) -> Linear:
    """The same layer with weights of this share and no bias: a last layer whose network begins as
    nearly a constant."""
    begun = (share * linear.weight, jnp.zeros_like(linear.bias))
    return eqx.tree_at(lambda one: (one.weight, one.bias), linear, begun)


class Join(eqx.Module):
    """A linear layer of (features, theta) side by side, in its two summands.

    concat(f, theta) W + b = (f W_f + b) + theta W_t. The bracket is the same for every theta, so it
    is computed once for each x and counts as part of the features.
    """

    feature_weight: Float[Array, "features outputs"]
    theta_weight: Float[Array, "d outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, features: int, d: int, outputs: int, rng: Source) -> None:
        fan_in = features + d
        self.feature_weight = uniform(rng, (features, outputs), fan_in)
        self.theta_weight = uniform(rng, (d, outputs), fan_in)
        self.bias = uniform(rng, (outputs,), fan_in)

    def of_features(self, f: Float[Array, "*n features"]) -> Float[Array, "*n outputs"]:
        return f @ self.feature_weight + self.bias

    def with_theta(
        self, joined: Float[Array, "*n outputs"], theta: Float[Array, "*n d"]
    ) -> Float[Array, "*n outputs"]:
        return joined + theta @ self.theta_weight


class Head(eqx.Module):
    """From (features, theta) to a logit; SiLU after every layer but the last.

    The score of the network is the derivative of this map in theta, and training with scores
    differentiates that once more in the weights. A ReLU here would make the score piecewise
    constant in theta and its second derivative zero: the score loss would say nothing about
    curvature. Hence a smooth activation wherever theta has entered; before that (in convolutions)
    any will do.
    """

    join: Join
    layers: tuple[Linear, ...]

    def __init__(self, features: int, d: int, hidden: Sequence[int], rng: Source) -> None:
        self.join = Join(features, d, hidden[0], rng)
        sizes = [*hidden, 1]
        self.layers = tuple(Linear(sizes[i], sizes[i + 1], rng) for i in range(len(sizes) - 1))

    def of_features(self, f: Float[Array, "b f"]) -> Float[Array, "b h"]:
        return self.join.of_features(f)

    def __call__(
        self, joined: Float[Array, "b h"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        z = silu(self.join.with_theta(joined, theta))
        for layer in self.layers[:-1]:
            z = silu(layer(z))
        return self.layers[-1](z)[:, 0]


class Conv1d(eqx.Module):
    """Valid convolution along the leading axis: (T, b, inputs) -> (T - width + 1, b, outputs).

    Time leads because a shift in time is then one contiguous block.
    """

    weight: Float[Array, "width inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, width: int, rng: Source) -> None:
        self.weight = uniform(rng, (width, inputs, outputs), width * inputs)
        self.bias = uniform(rng, (outputs,), width * inputs)

    def __call__(self, z: Float[Array, "T b inputs"]) -> Float[Array, "S b outputs"]:
        if as_matrix_product():
            return self.by_patches(z)
        return self.by_convolution(z)

    def by_patches(self, z: Float[Array, "T b inputs"]) -> Float[Array, "S b outputs"]:
        width, inputs, outputs = self.weight.shape
        length = z.shape[0] - width + 1
        patches = jnp.concatenate([z[i : i + length] for i in range(width)], axis=-1)
        return patches @ self.weight.reshape(width * inputs, outputs) + self.bias

    def by_convolution(self, z: Float[Array, "T b inputs"]) -> Float[Array, "S b outputs"]:
        numbers = ("WNC", "WIO", "WNC")
        return (
            jax.lax.conv_general_dilated(z, self.weight, (1,), "VALID", dimension_numbers=numbers)
            + self.bias
        )


class ConvPool(eqx.Module):
    """3 x 3 valid convolution, ReLU, 2 x 2 average: (2h+2, b, 2w+2, inputs) -> (h, b, w, outputs).

    Rows of the field lead, for the same reason as time does in Conv1d.
    With many inputs the multiplications are the work, and `winograd.py` saves more than half of
    them. With one (the field itself) writing and averaging the large output is: `pooling.py`.
    """

    weight: Float[Array, "3 3 inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, rng: Source) -> None:
        self.weight = uniform(rng, (3, 3, inputs, outputs), 9 * inputs)
        self.bias = uniform(rng, (outputs,), 9 * inputs)

    def __call__(self, z: Float[Array, "H b W inputs"]) -> Float[Array, "h b w outputs"]:
        return self.as_products(z) if as_matrix_product() else self.by_convolution(z)

    def as_products(self, z: Float[Array, "H b W inputs"]) -> Float[Array, "h b w outputs"]:
        pooled = pooled_windows if z.shape[-1] == 1 else pooled_channels
        return pooled(z, self.weight, self.bias)

    def by_convolution(self, z: Float[Array, "H b W inputs"]) -> Float[Array, "h b w outputs"]:
        numbers = ("HNWC", "HWIO", "HNWC")
        y = jax.lax.conv_general_dilated(z, self.weight, (1, 1), "VALID", dimension_numbers=numbers)
        y = jax.nn.relu(y + self.bias)
        window = (2, 1, 2, 1)
        return jax.lax.reduce_window(y, 0.0, jax.lax.add, window, window, "VALID") / 4


def hidden_widths(head: Head) -> list[int]:
    """Widths of a head's hidden layers."""
    return [head.join.bias.shape[-1], *(layer.bias.shape[-1] for layer in head.layers[:-1])]
