"""A network for mean-zero fields x (H, W) whose law depends on x by quadratic forms.

Stationary Gaussian and Student-t fields, and whatever else is its own mirror image:

    log p(x | theta) = f( x' Q(theta) x, theta ),     Q commutes with both mirror images

Cosine transforms along both axes nearly make Q diagonal, so what matters are powers in bands of
frequency. A mirror image keeps each cosine or turns its sign, and changes no power:

    y     = U x V'                     rows of U and V are even or odd; cosines at the start
    q_k   = sum_ij a_ki c_kj y_ij^2    bands; weights a_k, c_k are positive and sum to 1
    S(x)  = layers(log q)              h as in `exponential`

U, V and the bands are trained with the rest. All of the field counts, up to its edges: filters of
5 x 5 that must fit inside have 21 x 21 places on 25 x 25. A factor of the field shifts all log q
alike: heavy-tailed fields (Student-t) are a shift of Gaussian ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.exponential_family import (
    ExponentialFamily,
    ExponentialFamilyNetwork,
    Layers,
)
from keepscore.networks.layers import Source, computed

_NATURAL = {"statistics": 32, "natural": (32, 32), "nodes": 256}
SIZES: dict[str, dict[str, Any]] = {
    "10k": {"bands": 6, "embedding": (48, 48), **_NATURAL},
    "20k": {"bands": 8, "embedding": (64, 64), **_NATURAL},
    "30k": {"bands": 10, "embedding": (96, 80), **_NATURAL},
}
# Powers are at least this part of the field's mean, and no less than TINY: no log of zero, and no
# overflow of its slope.
FLOOR, TINY = 1e-9, 1e-30


class Cosines(eqx.Module):
    """A square matrix with even and odd rows, the orthogonal cosine transform to begin with.

    U = [even 0; 0 odd] F, where F takes x to its even and odd halves; F is no part of the weights.
    """

    even: Float[Array, "p p"]
    odd: Float[Array, "q q"]

    def __init__(self, n: int, rng: Source) -> None:
        p, q = (n + 1) // 2, n // 2
        self.even = computed(rng, (p, p), lambda: cosine_rows(n)[0::2] @ fold(n)[:p].T)
        self.odd = computed(rng, (q, q), lambda: cosine_rows(n)[1::2] @ fold(n)[p:].T)

    def matrix(self) -> Float[Array, "n n"]:
        p, q = len(self.even), len(self.odd)
        halves = fold(p + q).astype(np.float32)
        return jnp.concatenate([self.even @ halves[:p], self.odd @ halves[p:]])


class Bands(eqx.Module):
    """log q of the powers of a field: products of bands along the two axes, each with each."""

    first: Float[Array, "k H"]
    second: Float[Array, "k W"]

    def __init__(self, shape: Sequence[int], bands: int, rng: Source) -> None:
        height, width = shape
        every = bands**2
        self.first = computed(
            rng, (every, height), lambda: np.repeat(bumps(height, bands), bands, axis=0)
        )
        self.second = computed(
            rng, (every, width), lambda: np.tile(bumps(width, bands), (bands, 1))
        )

    def __call__(self, power: Float[Array, "b H W"]) -> Float[Array, "b k"]:
        a, c = jax.nn.softmax(self.first, axis=1), jax.nn.softmax(self.second, axis=1)
        weights = (a[:, :, None] * c[:, None, :]).reshape(len(a), -1)
        flat = power.reshape(len(power), -1)
        floor = FLOOR * jnp.mean(flat, axis=1, keepdims=True) + TINY
        return jnp.log(flat @ weights.T + floor)


class QuadraticNetwork(ExponentialFamilyNetwork):
    """h(x, theta) for x of shape (H, W); the same for x, -x and the mirror images of x."""

    first: Cosines
    second: Cosines
    bands: Bands
    embedding: Layers
    family: ExponentialFamily

    x_scale: ClassVar = "about zero"  # a sample's mean taken off would undo what the sign says

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        bands: int,
        embedding: Sequence[int],
        statistics: int,
        natural: Sequence[int],
        nodes: int,
    ) -> None:
        if len(x_shape) != 2 or min(x_shape) < 2:
            raise ShapeError(
                "A quadratic network needs x of shape (H, W), at least 2 x 2; "
                f"got {tuple(x_shape)}."
            )
        self.first, self.second = Cosines(x_shape[0], rng), Cosines(x_shape[1], rng)
        self.bands = Bands(x_shape, bands, rng)
        self.embedding = Layers([bands**2, *embedding, statistics], rng)
        self.family = ExponentialFamily(statistics, d, natural, nodes, rng)

    def log_powers(self, x: Float[Array, "b H W"]) -> Float[Array, "b k"]:
        """log q."""
        return self.bands(powers(self.first, self.second, x))

    def features(self, x: Float[Array, "b H W"]) -> Float[Array, "b f"]:
        return self.family.features(self.embedding(self.log_powers(x)))

    def settings(self) -> dict[str, Any]:
        """Layer widths: with x_shape and d, all that is needed to build the same network."""
        return {
            "bands": round(len(self.bands.first) ** 0.5),
            "embedding": self.embedding.hidden(),
            **self.family.settings(),
        }


def powers(first: Cosines, second: Cosines, x: Float[Array, "b H W"]) -> Float[Array, "b H W"]:
    """y_ij^2."""
    b, height, width = x.shape
    across = (x.reshape(b * height, width) @ second.matrix().T).reshape(b, height, width)
    return jnp.einsum("ki,bij->bkj", first.matrix(), across) ** 2


def fold(n: int) -> np.ndarray:
    """Orthogonal (n, n): even combinations of x_i and x_(n-1-i) first, then odd ones."""
    p, q = (n + 1) // 2, n // 2
    rows = np.zeros((n, n))
    for i in range(p):
        rows[i, [i, n - 1 - i]] = 1.0 if i == n - 1 - i else 0.5**0.5
    for i in range(q):
        rows[p + i, [i, n - 1 - i]] = 0.5**0.5, -(0.5**0.5)
    return rows


def cosine_rows(n: int) -> np.ndarray:
    """The orthogonal cosine transform, row k = frequency k: even rows are even functions."""
    k, i = np.arange(n)[:, None], np.arange(n)[None, :]
    rows = np.cos(np.pi * k * (i + 0.5) / n) * (2.0 / n) ** 0.5
    rows[0] *= 0.5**0.5
    return rows


def bumps(n: int, bands: int) -> np.ndarray:
    """Log-weights (bands, n) of overlapping bands, evenly spread over log frequency, in the order
    of the rows of `Cosines`."""
    place = np.log1p(row_frequencies(n))
    centres = np.linspace(0.3, np.log(n), bands)
    width = (np.log(n) - 0.3) / max(bands - 1, 1)
    return -0.5 * ((place - centres[:, None]) / width) ** 2


def row_frequencies(n: int) -> np.ndarray:
    """Frequencies of the rows of `Cosines`: 0, 2, 4, ..., then 1, 3, ..."""
    return np.concatenate([np.arange(0.0, n, 2), np.arange(1.0, n, 2)])
