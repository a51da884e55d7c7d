"""A density for Gaussian fields at scattered sites x (S, 3): a learned covariance, neighbours only.

A row of x is (s_i, y_i), a site and its value; rows of NaN are not there. The network is a
stationary covariance, whose parameters are a small network of theta,

    C(h; theta) = sum_m a_m exp(-(h_1 / l_1m)^2 / 2 - (h_2 / l_2m)^2 / 2) + v [h = 0],

a mixture of Gaussian kernels of many lengths: positive definite whatever its parameters, and near
any kernel that is a function of one distance along two axes (Schoenberg 1938). And with it

    log q(y | s, theta) = sum_i log N(y_i; the k nearest sites before i)        Vecchia (1988)

where sites are taken so that each is far from those before it, whatever the order of rows: the
next one is the farthest from the middle and from all before it. The conditional law comes from
eliminating the k neighbours one by one from their joint covariance, in plain arithmetic. So q is a
density in y for every set of sites, and the same weights serve any number of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.exponential_family import Layers
from keepscore.networks.layers import Source, beginning_small

SIZES: dict[str, dict[str, Any]] = {
    "3k": {"neighbours": 6, "kernels": 6, "widths": (32, 32)},
    "5k": {"neighbours": 12, "kernels": 8, "widths": (48, 48)},
}
SMALL = 0.1  # of the last layer: all theta begin with nearly the same covariance
SHORTEST, LONGEST = 0.05, 4.0  # lengths at the start, in standard deviations of the sites
NUGGET = 0.05  # v at the start
LEAST = 1e-4  # of v: float32 could not tell
WIDEST = 6.0  # logs of parameters move so far at most
FAR = 1e3  # distance of what is not there
PER_SITE = 4  # numbers kept of a site or neighbour: s_1, s_2, y, whether it is there
MOST_PLACES = 1 << 14  # of all data sets at once: more are taken in turns


class SitesNetwork(eqx.Module):
    """log q(y | s, theta) for x of shape (S, 3), and for other numbers of sites."""

    covariance: Layers
    neighbours: int = eqx.field(static=True)

    x_scale: ClassVar = "states"
    size_free: ClassVar = True
    takes_missing: ClassVar = True
    whole_rows: ClassVar = True

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        neighbours: int,
        kernels: int,
        widths: Sequence[int],
    ) -> None:
        if len(x_shape) != 2 or x_shape[1] != 3 or x_shape[0] < 1:
            raise ShapeError(f"A sites network needs x of shape (S, 3); got {tuple(x_shape)}.")
        self.neighbours = neighbours
        layers = Layers([d, *widths, 3 * kernels + 1], rng)
        last = beginning_small(layers.layers[-1], SMALL)
        self.covariance = eqx.tree_at(lambda one: one.layers, layers, (*layers.layers[:-1], last))

    def features(self, x: Float[Array, "b S 3"]) -> Float[Array, "b f"]:
        """Of each site its neighbours and itself, side by side."""
        return jax.vmap(lambda one: neighbourhoods(one, self.neighbours))(x).reshape(len(x), -1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        at_once = max(1, MOST_PLACES // max(1, features.shape[1] // self._width))
        if len(features) <= at_once:
            return jax.vmap(self._of_one)(features, theta)
        one = jax.checkpoint(lambda pair: self._of_one(*pair))
        return jax.lax.map(one, (features, theta), batch_size=at_once)

    def _of_one(self, places: Float[Array, " p"], theta: Float[Array, " d"]) -> Float[Array, ""]:
        rows = places.reshape(-1, self.neighbours + 1, PER_SITE)
        mean, variance = self._conditional(rows, theta)
        value, there = rows[:, -1, 2], rows[:, -1, 3]
        logs = (value - mean) ** 2 / variance + jnp.log(variance) + math.log(2.0 * math.pi)
        return -0.5 * (there * logs).sum()

    def _conditional(
        self, rows: Float[Array, "S n 4"], theta: Float[Array, " d"]
    ) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
        """Mean and variance of the last of n sites given the others, in each of S rows."""
        s1, s2, value, there = rows.transpose(2, 1, 0)  # rows last: arithmetic goes along them
        n = len(s1)
        apart = [(s[:, None] - s[None]) ** 2 for s in (s1, s2)]
        weight, rate, nugget = self._parameters(theta)
        smooth = sum(
            weight[m] * jnp.exp(-0.5 * (apart[0] * rate[0, m] + apart[1] * rate[1, m]))
            for m in range(len(weight))
        )
        # What is not there: a number of its own, independent of all others.
        alone = jnp.eye(n)[..., None] * (nugget + 1.0 - there)
        matrix = there[:, None] * there[None] * smooth + alone
        (left, matrix), _ = jax.lax.scan(_eliminate, (value, matrix), jnp.arange(n - 1))
        return value[-1] - left[-1], matrix[-1, -1]

    def _parameters(self, theta: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        """a (m,), 1 / l^2 (2, m) and v of the covariance at theta."""
        out = WIDEST * jnp.tanh(self.covariance(theta) / WIDEST)
        m = (len(out) - 1) // 3
        start = np.log(np.geomspace(SHORTEST, LONGEST, m)).astype(np.float32)
        weight = jnp.exp(out[:m]) / m
        rate = jnp.exp(-2.0 * (start + out[m : 3 * m].reshape(2, m)))
        return weight, rate, LEAST + NUGGET * jnp.exp(out[-1])

    @property
    def _width(self) -> int:
        """Numbers kept per site."""
        return PER_SITE * (self.neighbours + 1)

    def settings(self) -> dict[str, Any]:
        """With x_shape and d, all that is needed to build the same network."""
        widths = self.covariance.hidden()
        return {
            "neighbours": self.neighbours,
            "kernels": (self.covariance.layers[-1].bias.shape[-1] - 1) // 3,
            "widths": widths,
        }


def _eliminate(state: tuple[Array, Array], j: Array) -> tuple[tuple[Array, Array], None]:
    """Values (n, S) and their covariance (n, n, S), given the value at place j."""
    value, matrix = state
    column = jax.lax.dynamic_index_in_dim(matrix, j, keepdims=False)
    share = column / jax.lax.dynamic_index_in_dim(column, j)
    value = value - share * jax.lax.dynamic_index_in_dim(value, j)
    return (value, matrix - share[:, None] * column[None]), None


def neighbourhoods(x: Float[Array, "S 3"], k: int) -> Float[Array, "S k4"]:
    """Of each site, in the order of `far_first`: the k nearest before it, and itself, each with
    PER_SITE numbers; zeros for those that are not there."""
    there = ~jnp.isnan(x).any(axis=1)
    filled = jnp.where(there[:, None], x, 0.0)
    order = far_first(filled[:, :2], there)
    filled, there = filled[order], there[order]
    apart = ((filled[:, None, :2] - filled[None, :, :2]) ** 2).sum(axis=-1)
    earlier = jnp.tril(jnp.ones(apart.shape, bool), -1) & there[None]
    apart = jnp.where(earlier, apart, FAR**2)
    if k > len(x):
        apart = jnp.pad(apart, ((0, 0), (0, k - len(x))), constant_values=FAR**2)
    nearest, which = jax.lax.top_k(-apart, k)
    near = (nearest > -(FAR**2)).astype(x.dtype)
    others = filled[jnp.minimum(which, len(x) - 1)] * near[..., None]
    own = jnp.concatenate([filled, there.astype(x.dtype)[:, None]], axis=1)
    kept = jnp.concatenate([others, near[..., None]], axis=2)
    return jnp.concatenate([kept, own[:, None]], axis=1).reshape(len(x), -1)


def far_first(site: Float[Array, "S 2"], there: Array) -> Array:
    """An order in which each site is the farthest from those before it; what is not there last."""
    count = jnp.maximum(there.sum(), 1)
    middle = jnp.where(there[:, None], site, 0.0).sum(axis=0) / count
    free = jnp.where(there, 0.0, -2.0 * FAR**2)

    def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        distance, taken = state
        chosen = jnp.argmax(distance + free + taken)
        new = ((site - site[chosen]) ** 2).sum(axis=1)
        taken = taken.at[chosen].set(-4.0 * FAR**2)
        return (jnp.minimum(distance, new), taken), chosen

    first = ((site - middle) ** 2).sum(axis=1)
    (_, _), order = jax.lax.scan(step, (first, jnp.zeros(len(site))), None, length=len(site))
    return order
