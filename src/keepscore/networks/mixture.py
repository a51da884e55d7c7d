"""Mixture densities: x as a mixture of Gaussians whose parameters are functions of theta.

    log q(y | theta) = log sum_k w_k(theta) N(y; m_k(theta), (L_k(theta)' L_k(theta))^-1)
    log q(x | theta) = sum_i log q(x_i | theta)

for x of n rows x_i of p numbers that are independent and alike given theta (structure "iid"; any
n), or of one row, x itself. L_k is lower triangular, with a positive diagonal exp(l_k), l_k bounded
by 10 (a standard deviation of 5e-5 of the data's), so that no component collapses on single points.
w, m, l and the rest of L are one network of theta with a linear part beside it.

q is a density in x, so it has a better teacher than the cross-entropy of pairs: its likelihood (see
`training/step.py`). Scores teach q as they teach any network. The evidence is computed from q.

Files of earlier versions also hold the weights of a learned evidence (`row_part`, `set_part`); they
are kept, and nothing uses them.

Few numbers in a row are needed: L_k has p (p + 1) / 2 entries. What is no mixture of a few
Gaussians (the ring of two moons) is left to `residual`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.exponential_family import Layers
from keepscore.networks.layers import Source, beginning_small, scattered

SIZES: dict[str, dict[str, int | tuple[int, ...]]] = {
    "3k": {"components": 1, "widths": (64, 64)},  # one Gaussian
    "10k": {"components": 4, "widths": (64, 64)},
    "30k": {"components": 8, "widths": (128, 128)},
    "100k": {"components": 16, "widths": (192, 192)},
}
SMALL = 0.1  # of the last layer: all components begin as nearly the same Gaussian for all theta
LARGEST = 10.0  # of l, either way
APART = 0.5  # standard deviation of where their means begin


class MixtureNetwork(eqx.Module):
    """log q(x | theta) for x of any shape, taken as one row."""

    of_theta: Layers
    slope: Float[Array, "d outputs"]
    centre: Float[Array, "k p"]
    row_part: Layers | None
    set_part: Layers | None

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        components: int,
        widths: Sequence[int],
        evidence: Sequence[int] | None = None,
    ) -> None:
        p = math.prod(x_shape)
        outputs = components * (1 + p + p * p)
        net = Layers([d, *widths, outputs], rng)
        last = beginning_small(net.layers[-1], SMALL)
        self.of_theta = eqx.tree_at(lambda n: n.layers[-1], net, last)
        self.slope = jnp.zeros((d, outputs), jnp.float32)
        self.centre = scattered(rng, (components, p), APART)
        self.row_part, self.set_part = None, None
        if evidence is not None:
            self.row_part = Layers([p, *evidence], rng)
            self.set_part = Layers([evidence[-1], *evidence, 1], rng)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        return x.reshape(x.shape[0], -1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self,
        features: Float[Array, "b f"],
        theta: Float[Array, "b d"],
        least_sd: Float[Array, "b p"] | None = None,
    ) -> Float[Array, " b"]:
        """sum_i log q(x_i | theta), up to a constant. least_sd: see `log_rows`."""
        rows = features.reshape(len(features), -1, self.centre.shape[1])
        return self.log_rows(rows, theta, least_sd).sum(axis=1)

    def log_rows(
        self,
        rows: Float[Array, "b n p"],
        theta: Float[Array, "b d"],
        least_sd: Float[Array, "b p"] | None = None,
    ) -> Float[Array, "b n"]:
        """log q(x_i | theta) of each row, up to a constant. least_sd: that of an entry given those
        before it, exp(-l), is never below."""
        k, p = self.centre.shape
        out = self.of_theta(theta) + theta @ self.slope
        log_weight = jax.nn.log_softmax(out[:, :k])
        mean = out[:, k : k + k * p].reshape(-1, k, p) + self.centre
        square = out[:, k + k * p :].reshape(-1, k, p, p)
        log_diagonal = LARGEST * jnp.tanh(jnp.diagonal(square, axis1=2, axis2=3) / LARGEST)
        if least_sd is not None:
            most = -jnp.log(least_sd)[:, None]
            log_diagonal = most - jax.nn.softplus(most - log_diagonal)
        factor = square * np.tri(p, k=-1, dtype=np.float32)
        z = rows[:, :, None] - mean[:, None]
        e = jnp.exp(log_diagonal)[:, None] * z
        if p > 1:
            e = e + (factor[:, None] * z[..., None, :]).sum(axis=-1)
        log_parts = log_weight + log_diagonal.sum(axis=2)
        parts = log_parts[:, None] - 0.5 * (e**2).sum(axis=-1)
        return jax.nn.logsumexp(parts, axis=2)

    def settings(self) -> dict[str, int | list[int]]:
        """With x_shape and d, all that is needed to build the same network."""
        found: dict[str, int | list[int]] = {
            "components": self.centre.shape[-2],
            "widths": self.of_theta.hidden(),
        }
        if self.row_part is not None:
            found["evidence"] = [layer.bias.shape[-1] for layer in self.row_part.layers]
        return found


class MixtureSetNetwork(eqx.Module):
    """log q(x | theta) = sum_i log q(x_i | theta) for x (n, ...), any n."""

    row: MixtureNetwork
    x_scale = "states"  # a row's entries are alike in all rows

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        components: int,
        widths: Sequence[int],
        evidence: Sequence[int] | None = None,
    ) -> None:
        if len(x_shape) < 2:
            raise ShapeError(
                f"A set network needs x of shape (n, ...), n rows; got {tuple(x_shape)}."
            )
        self.row = MixtureNetwork(x_shape[1:], d, rng, components, widths, evidence)

    def features(self, x: Float[Array, "b n ..."]) -> Float[Array, "b f"]:
        return x.reshape(x.shape[0], -1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.row.head(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        return self.row.log_density(features, theta)

    def settings(self) -> dict[str, int | list[int]]:
        """Those of the network of one row."""
        return self.row.settings()
