"""Networks for mean-zero stationary fields x (H, W), Gaussian or with heavier tails.

    y           = U x V'                               cosine transforms, as in `quadratic`
    q(x, theta) = sum_ij y_ij^2 exp(-l_ij(theta))      l_ij: log-variance of the coefficient y_ij
    g(x, theta) = -q/2 - sum_ij l_ij/2 + c                               Gaussian, c of theta
    g(x, theta) = -(n + nu)/2 log((nu + q)/(nu + n)) - sum_ij l_ij/2 + c     tailed, nu of theta too
    h(x, theta) = g - log p(x)                         p(x) by quadrature, as in `exponential`

If the transform made the coefficients independent, g would be the log-density itself: of a Gaussian
field (Whittle's likelihood), or of a Student-t field with nu degrees of freedom (n = H W). It
nearly does, and U and V are trained. What is left to learn is small and smooth: how the spectrum
changes with theta,

    l_ij(theta) = level_ij + sum_r a_ri c_rj w_r(theta).

The Gaussian form is linear in the powers y_ij^2, so the features of a group add up. The tailed one
has it as a limit, and on Gaussian fields comes close to it; but every observation counts by itself.
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
from keepscore.networks.exponential_family import Layers, starting_nodes
from keepscore.networks.layers import Source, computed
from keepscore.networks.quadratic import Cosines, powers, row_frequencies

SIZES: dict[str, dict[str, Any]] = {
    "5k": {"modes": 4, "natural": (48, 48), "nodes": 256},
    "10k": {"modes": 6, "natural": (64, 64), "nodes": 256},
}
WIDEST = 14.0  # of |l_ij|: exp stays far from overflow, and variances of 1e-6 to 1e6 have room
LOG_NU = 1.5  # at the start


class SpectralNetwork(eqx.Module):
    """h(x, theta) for Gaussian x of shape (H, W); the same for x, -x and the mirror images of x."""

    first: Cosines
    second: Cosines
    level: Float[Array, " n"]
    along_first: Float[Array, "r H"]
    along_second: Float[Array, "r W"]
    natural: Layers
    nodes: Float[Array, "m d"]
    log_weights: Float[Array, " m"]

    linear_head: ClassVar = True
    x_scale: ClassVar = "about zero"  # a sample's mean taken off would undo what the sign says
    scalars: ClassVar = 1  # learned functions of theta besides w: c

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        modes: int,
        natural: Sequence[int],
        nodes: int,
    ) -> None:
        if len(x_shape) != 2 or min(x_shape) < 2:
            raise ShapeError(
                f"A spectral network needs x of shape (H, W), at least 2 x 2; got {tuple(x_shape)}."
            )
        height, width = x_shape
        self.first, self.second = Cosines(height, rng), Cosines(width, rng)
        self.level = computed(rng, (height * width,), lambda: rough_spectrum(height, width).ravel())
        every = modes**2
        self.along_first = computed(
            rng, (every, height), lambda: np.repeat(smooth_rows(height, modes), modes, axis=0)
        )
        self.along_second = computed(
            rng, (every, width), lambda: np.tile(smooth_rows(width, modes), (modes, 1))
        )
        self.natural = Layers([d, *natural, every + self.scalars], rng)
        self.nodes, self.log_weights = starting_nodes(nodes, d, rng)

    def features(self, x: Float[Array, "b H W"]) -> Float[Array, "b f"]:
        """Powers, 1 and -log p(x), side by side; the 1 counts the observations of a group."""
        power = powers(self.first, self.second, x).reshape(len(x), -1)
        found = jnp.concatenate([power, jnp.ones((len(x), 1), power.dtype)], axis=1)
        at_nodes = self._densities(found, self.nodes)
        evidence = jax.nn.logsumexp(at_nodes + self.log_weights[:, None], axis=0)
        return jnp.concatenate([found, -evidence[:, None]], axis=1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        precision, constant, scalars = self.of_theta(theta)
        q = jnp.sum(features[:, :-2] * precision, axis=1)
        return self.radial(q, scalars) + constant * features[:, -2] + features[:, -1]

    def table(self, features: Float[Array, "b f"], theta: Float[Array, "m d"]) -> Array:
        return self._densities(features[:, :-1], theta) + features[:, -1]

    def _densities(self, found: Float[Array, "b f"], theta: Float[Array, "m d"]) -> Array:
        """g of every theta with every x, (m, b)."""
        precision, constant, scalars = self.of_theta(theta)
        q = precision @ found[:, :-1].T
        return self.radial(q, scalars[:, None]) + constant[:, None] * found[:, -1]

    def of_theta(self, theta: Float[Array, "m d"]) -> tuple[Array, Array, Array]:
        """exp(-l) (m, n), c - sum l/2 (m,), and what `radial` needs (m, scalars - 1)."""
        r = len(self.along_first)
        out = self.natural(theta)
        modes = (self.along_first[:, :, None] * self.along_second[:, None, :]).reshape(r, -1)
        log_variance = jnp.clip(self.level + out[:, :r] @ modes, -WIDEST, WIDEST)
        constant = out[:, r] - log_variance.sum(axis=1) / 2
        return jnp.exp(-log_variance), constant, out[:, r + 1 :]

    def radial(self, q: Array, scalars: Array) -> Array:
        """How the log-density falls with q; `scalars` (..., 0)."""
        return -q / 2

    def settings(self) -> dict[str, Any]:
        """Layer widths: with x_shape and d, all that is needed to build the same network."""
        return {
            "modes": round(len(self.along_first) ** 0.5),
            "natural": self.natural.hidden(),
            "nodes": self.nodes.shape[0],
        }


class TailedSpectralNetwork(SpectralNetwork):
    """The same for fields with the tails of a Student-t."""

    linear_head: ClassVar = False
    scalars: ClassVar = 2  # c and log nu

    def radial(self, q: Array, scalars: Array) -> Array:
        """-(n + nu)/2 log((nu + q)/(nu + n)); `scalars` (..., 1) is log nu, from its start.

        Not log(1 + q/nu): that changes by n/2 when log nu does by 1, for all x alike, and c would
        have to undo it to five digits. The rest of the normaliser is of the order of log nu.
        """
        n, nu = len(self.level), jnp.exp(LOG_NU + scalars[..., 0])
        return -0.5 * (n + nu) * jnp.log1p((q - n) / (nu + n))


def rough_spectrum(height: int, width: int) -> np.ndarray:
    """Log-variances (H, W) of a rough field with some noise, to begin with."""
    i, j = row_frequencies(height), row_frequencies(width)
    return np.log(30.0 * (1.0 + i[:, None] ** 2 + j[None] ** 2) ** -1.5 + 0.02)


def smooth_rows(n: int, modes: int) -> np.ndarray:
    """Chebyshev polynomials of log frequency (modes, n), in the order of the rows of `Cosines`."""
    place = np.log1p(row_frequencies(n))
    unit = 2.0 * place / place.max() - 1.0
    return np.cos(np.arange(modes)[:, None] * np.arccos(np.clip(unit, -1.0, 1.0)))
