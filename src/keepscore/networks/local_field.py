"""Fields place by place: a density of each place given earlier ones near it, with holes or without.

    log q(x | theta) = sum_i log N(x_i; w_p . x_N(i), v_p)       p = p(i): which of N(i) are there

Places are taken row by row. N(i) are a few fixed earlier neighbours of place i; those that were not
observed, and those outside the grid, are left out. This is Vecchia's likelihood, and w and v are
what conditioning a Gaussian makes of them:

    w_p = C_pp^-1 c_p,  v_p = C(0) - c_p . w_p,      C(lag) = sum_f s_f(theta) cos(2 pi f . lag / P)

for a stationary field with covariance C, of which C_pp and c_p are the entries between neighbours
that are there, and between them and place i. What is learned is the spectrum s alone, positive
functions of theta (so C is a covariance); how x and the holes enter is known. All 2^k patterns p of
k neighbours are conditioned on at once, one neighbour after the other (`conditionals`).

q depends on x by sums over places with the same pattern, whatever the grid's size and shape:

    log q = -1/2 sum_p [ r_p' M_p r_p / v_p + N_p log(2 pi v_p) ],    M_p = sum_{i: p(i)=p} y_i y_i'
    y_i   = (1, x_i, x_j - x_i for neighbours j that are there),      N_p: how many places

with r_p . y_i = x_i - w_p . x_N(i). So the features are the M_p (N_p is an entry), they add up
over a group of fields, and every theta after that costs one product with them. Differences, because
in a smooth field little is left of x_i once its neighbours are known, and float32 has seven digits.

The tailed form is for fields that are not Gaussian, or whose mean is not zero: the mean m(theta) is
learned, and with Q the first sum above and n places in all

    log q = log Gamma((nu + n)/2)/(Gamma(nu/2) (nu pi)^(n/2)) - (nu + n)/2 log(1 + Q/nu)
            - 1/2 sum_p N_p log v_p,                              nu(theta) learned

a Student-t field, whose tails are shared by all places; Gaussian as nu grows.

What lies beyond the neighbours is lost. With true C, 25 x 25 Gaussian fields and a fifth of them
under clouds, that costs a squared error of .8 +- .4 of the likelihood-ratio statistic with six
neighbours, .5 +- .2 with eight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.exponential_family import Layers
from keepscore.networks.layers import Source, beginning_small, computed

SIZES: dict[str, dict[str, Any]] = {
    "5k": {"neighbours": 6, "widths": (32, 24)},
    "10k": {"neighbours": 8, "widths": (48, 48)},
}
# Steps to earlier places, the most telling first; the far ones look across holes.
STEPS = ((0, -1), (-1, 0), (-1, -1), (-1, 1), (0, -2), (-2, 0), (0, -4), (-4, 0))
PERIOD = 16  # P: beyond the longest lag between neighbours, so that no two lags are the same
SMALL = 0.1  # of the last layer: the spectrum begins as nearly the same for all theta
WIDEST = 14.0  # of |log s|, as in `spectral`
LEAST = 1e-5  # of a variance, in units of that of x: what float32 can tell from zero
LOG_NU = 2.0  # log(nu - 1) at the start
MOST_PLACES = 1 << 17  # of all fields at once: more are taken in turns


class Law(NamedTuple):
    """What m thetas make of the features: r r'/v and log v of each pattern, and log(nu - 1)."""

    quadratic: Float[Array, "f m"]
    log_v: Float[Array, "p m"]
    log_nu: Float[Array, " m"]


class LocalFieldNetwork(eqx.Module):
    """log q(x | theta) for Gaussian x of mean zero, shape (H, W), and for grids of other shapes."""

    level: Float[Array, " frequencies"]
    spectrum: Layers
    neighbours: int = eqx.field(static=True)

    x_scale: ClassVar = "about zero"
    size_free: ClassVar = True
    takes_missing: ClassVar = False
    linear_head: ClassVar = True
    scalars: ClassVar = 0  # learned functions of theta besides the spectrum

    def __init__(
        self, x_shape: Sequence[int], d: int, rng: Source, neighbours: int, widths: Sequence[int]
    ) -> None:
        if len(x_shape) != 2:
            raise ShapeError(f"A local network needs x of shape (H, W); got {tuple(x_shape)}.")
        if not 0 < neighbours <= len(STEPS):
            raise ShapeError(f"A local network has 1 to {len(STEPS)} neighbours; got {neighbours}.")
        self.neighbours = neighbours
        count = len(frequencies())
        self.level = computed(rng, (count,), rough_level)
        layers = Layers([d, *widths, count + self.scalars], rng)
        last = beginning_small(layers.layers[-1], SMALL)
        self.spectrum = eqx.tree_at(lambda n: n.layers[-1], layers, last)

    def features(self, x: Float[Array, "b H W"]) -> Float[Array, "b f"]:
        """The M_p, entry by entry."""
        at_once = max(1, MOST_PLACES // max(1, math.prod(x.shape[1:])))
        if len(x) <= at_once:
            return self._sums(x)
        return jax.lax.map(lambda one: self._sums(one[None])[0], x, batch_size=at_once)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """log q(x | theta)."""
        law, counts = self.of_theta(theta), self._counts(features)
        q = (features.T * law.quadratic).sum(axis=0)
        log_det = (counts.T * law.log_v).sum(axis=0)
        return self.radial(q, log_det, counts.sum(axis=1), law.log_nu)

    def table(
        self, features: Float[Array, "b f"], theta: Float[Array, "m d"]
    ) -> Float[Array, "m b"]:
        law, counts = self.of_theta(theta), self._counts(features)
        q, log_det = law.quadratic.T @ features.T, law.log_v.T @ counts.T
        return self.radial(q, log_det, counts.sum(axis=1), law.log_nu[:, None])

    def radial(self, q: Array, log_det: Array, n: Array, log_nu: Array) -> Array:
        """The log-density from Q, the sum of the log v, and the number of places."""
        return -0.5 * (q + log_det + n * math.log(2.0 * math.pi))

    def of_theta(self, theta: Float[Array, "m d"]) -> Law:
        """The law of all patterns at each theta."""
        count = len(self.level)
        out = self.spectrum(theta)
        log_s = jnp.clip(self.level + out[:, :count], -WIDEST, WIDEST)
        mean, log_nu = self._scalars(out[:, count:])
        k = self.neighbours
        between = (cosines(k).T.astype(np.float32) @ jnp.exp(log_s).T).reshape(k + 1, k + 1, -1)
        own = LEAST * np.eye(k + 1, dtype=np.float32)[:, :, None]
        weights, v = conditionals(jnp.asarray(between + own))
        left = 1.0 - weights.sum(axis=0)
        r = jnp.concatenate([(-mean * left)[None], left[None], -weights])
        quadratic = (r[:, None] * (r / v)).reshape(-1, len(theta))
        return Law(quadratic, jnp.log(v), log_nu)

    def _scalars(self, out: Float[Array, "m scalars"]) -> tuple[Array, Array]:
        """(mean, log(nu - 1)) at each theta."""
        return jnp.zeros(len(out)), jnp.zeros(len(out))

    def _sums(self, x: Float[Array, "b H W"]) -> Float[Array, "b f"]:
        b, k = len(x), self.neighbours
        observed = ~jnp.isnan(x)
        there = observed.astype(x.dtype)
        value = jnp.where(observed, x, 0.0)
        known, before = self._windows(there), self._windows(value)
        own, use = value.reshape(b, -1, 1), there.reshape(b, -1, 1)
        y = jnp.concatenate([jnp.ones_like(own), own, known * (before - own)], axis=2)
        pattern = (known @ (2.0 ** np.arange(k, dtype=np.float32))).astype(jnp.int32)
        place = pattern + 2**k * jnp.arange(b, dtype=jnp.int32)[:, None]
        products = (y[..., None] * (y * use)[:, :, None]).reshape(-1, (k + 2) ** 2)
        sums = jax.ops.segment_sum(products, place.ravel(), b * 2**k).reshape(b, 2**k, -1)
        return jnp.swapaxes(sums, 1, 2).reshape(b, -1)

    def _windows(self, z: Float[Array, "b H W"]) -> Float[Array, "b n k"]:
        """The neighbours of each place; 0 outside the grid."""
        b, height, width = z.shape
        r = max(max(abs(i), abs(j)) for i, j in STEPS)
        wide = jnp.pad(z, ((0, 0), (r, 0), (r, r)))
        steps = STEPS[: self.neighbours]
        parts = [wide[:, r + i : r + i + height, r + j : r + j + width] for i, j in steps]
        return jnp.stack(parts, axis=-1).reshape(b, height * width, -1)

    def _counts(self, features: Float[Array, "b f"]) -> Float[Array, "b p"]:
        """N_p: the first entry of every M_p."""
        return features[:, : 2**self.neighbours]

    def settings(self) -> dict[str, Any]:
        """With x_shape and d, all that is needed to build the same network."""
        return {"neighbours": self.neighbours, "widths": self.spectrum.hidden()}


class TailedLocalFieldNetwork(LocalFieldNetwork):
    """The same for fields with the tails of a Student-t, and with a mean."""

    linear_head: ClassVar = False
    scalars: ClassVar = 2

    def _scalars(self, out: Float[Array, "m scalars"]) -> tuple[Array, Array]:
        return out[:, 0], LOG_NU + out[:, 1]

    def radial(self, q: Array, log_det: Array, n: Array, log_nu: Array) -> Array:
        """The log-density of a Student-t, without the cancellation of its gamma functions."""
        nu = 1.0 + jnp.exp(log_nu)
        half, both = 0.5 * nu, 0.5 * (nu + n)
        gammas = stirling_rest(both) - stirling_rest(half) + 0.5 * jnp.log(half / both)
        tail = both * jnp.log1p((q - n) / (nu + n))
        return gammas - tail - 0.5 * (log_det + n * (1.0 + math.log(2.0 * math.pi)))


class MaskedLocalFieldNetwork(LocalFieldNetwork):
    """The Gaussian one for fields with holes."""

    takes_missing: ClassVar = True


class MaskedTailedLocalFieldNetwork(TailedLocalFieldNetwork):
    """The tailed one for fields with holes."""

    takes_missing: ClassVar = True


def conditionals(
    covariance: Float[Array, "r r m"],
) -> tuple[Float[Array, "k p m"], Float[Array, "p m"]]:
    """Weights and variance of the last of r = k + 1 variables given each of the p = 2^k subsets of
    the others, for m covariances; bit j of a pattern says whether variable j is given.

    Variable by variable: what is left of all later ones once it is given, and as if it were not.
    The tree of subsets shares its beginnings, so a pattern costs some 5 k products, not k^3.
    """
    k = len(covariance) - 1
    # Rows: the variables still to come. Columns: their covariances given what is given so far, and
    # their weights on it.
    rest = covariance[:, :, None]
    for _ in range(k):
        gain = rest[1:, :1] / rest[0, 0]
        given = jnp.concatenate([rest[1:, 1:] - gain * rest[0, 1:], gain], axis=1)
        not_given = jnp.concatenate([rest[1:, 1:], jnp.zeros_like(gain)], axis=1)
        rest = jnp.concatenate([not_given, given], axis=2)
    return rest[0, 1:], rest[0, 0]


def stirling_rest(z: Array) -> Array:
    """log Gamma(z) - ((z - 1/2) log z - z + log(2 pi)/2) for z >= 1/2."""
    rest = jnp.zeros_like(z)
    for _ in range(3):
        rest = rest + (z + 0.5) * jnp.log1p(1.0 / z) - 1.0
        z = z + 1.0
    return rest + (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * z**2)) / z**2) / z


def frequencies() -> np.ndarray:
    """Half of the frequencies of a torus of P x P; the others are their negatives."""
    every = np.arange(PERIOD) - PERIOD // 2
    return np.array([(f, g) for f in range(PERIOD // 2 + 1) for g in every])


def cosines(neighbours: int) -> np.ndarray:
    """cos(2 pi f . lag / P) for all pairs of neighbours and the place itself, (f, (k + 1)^2)."""
    places = np.array([*STEPS[:neighbours], (0, 0)])
    lags = places[:, None] - places[None]
    angle = np.tensordot(frequencies(), lags, axes=(1, 2)) * (2.0 * np.pi / PERIOD)
    return np.asarray(np.cos(angle).reshape(len(angle), -1))


def rough_level() -> np.ndarray:
    """log s of a rough field of variance 1 with some noise, to begin with."""
    power = 30.0 * (1.0 + (frequencies() ** 2).sum(axis=1)) ** -1.5 + 0.02
    return np.asarray(np.log(power / power.sum()))
