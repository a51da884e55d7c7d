"""Layers, with PyTorch's default initialisation and the layouts that are fast on a CPU.

    Linear      z -> z W + b
    Join        the first layer of a head, (features, theta) -> features W_f + theta W_t + b
    Conv1d      "valid" convolution along time, on (T, b, channels)
    ConvPool    3 x 3 convolution, ReLU, 2 x 2 average, on (b, H, W, channels)
    Head        Join and Linear layers with SiLU between them, to one logit

All weights are uniform on (-1, 1) / sqrt(fan in), as `torch.nn.Linear` and `torch.nn.Conv2d` draw
theirs. On XLA's CPU backend the gradient of `lax.conv` is slow; there a convolution is a matrix
product with patches (shifted slices side by side). On an accelerator it is `lax.conv`.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

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
    """3 x 3 valid convolution, ReLU, 2 x 2 average: (b, 2h+2, 2w+2, inputs) -> (b, h, w, outputs).

    With many inputs the matrix product is the work, and is done once. With one input (the field
    itself) writing and averaging its large output is; then each of the four places in a pooling
    window is a product of its own, and the average a sum of four arrays: a third of the time.
    """

    weight: Float[Array, "3 3 inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, rng: Source) -> None:
        self.weight = uniform(rng, (3, 3, inputs, outputs), 9 * inputs)
        self.bias = uniform(rng, (outputs,), 9 * inputs)

    def __call__(self, z: Float[Array, "b H W inputs"]) -> Float[Array, "b h w outputs"]:
        if not as_matrix_product():
            return self.by_convolution(z)
        return self.by_places(z) if z.shape[-1] == 1 else self.by_patches(z)

    def by_patches(self, z: Float[Array, "b H W inputs"]) -> Float[Array, "b h w outputs"]:
        b, h, w, inputs = z.shape[0], z.shape[1] - 2, z.shape[2] - 2, z.shape[3]
        shifted = [z[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]
        patches = jnp.concatenate(shifted, axis=-1)
        y = jax.nn.relu(patches @ self.weight.reshape(9 * inputs, -1) + self.bias)
        return y.reshape(b, h // 2, 2, w // 2, 2, -1).mean(axis=(2, 4))

    def by_places(self, z: Float[Array, "b H W inputs"]) -> Float[Array, "b h w outputs"]:
        b, height, width, inputs = z.shape
        h, w = height // 2 - 1, width // 2 - 1
        # Every second row and column, by parity: a tap (i, j) of window place (p, q) reads parity
        # ((i + p) % 2, (j + q) % 2), shifted by ((i + p) // 2, (j + q) // 2).
        even_odd = z.reshape(b, height // 2, 2, width // 2, 2, inputs)

        def tap(i: int, j: int) -> Array:
            (di, pi), (dj, pj) = divmod(i, 2), divmod(j, 2)
            return even_odd[:, di : di + h, pi, dj : dj + w, pj]

        matrix = self.weight.reshape(9 * inputs, -1)
        total = jnp.zeros((), z.dtype)
        for p in range(2):
            for q in range(2):
                taps = [tap(i + p, j + q) for i in range(3) for j in range(3)]
                patches = jnp.concatenate(taps, axis=-1)
                total = total + jax.nn.relu(patches @ matrix + self.bias)
        return total / 4

    def by_convolution(self, z: Float[Array, "b H W inputs"]) -> Float[Array, "b h w outputs"]:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(z, self.weight, (1, 1), "VALID", dimension_numbers=numbers)
        y = jax.nn.relu(y + self.bias)
        window = (1, 2, 2, 1)
        return jax.lax.reduce_window(y, 0.0, jax.lax.add, window, window, "VALID") / 4
