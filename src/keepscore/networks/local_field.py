"""A density for fields x (H, W) of any size: each place given its earlier neighbours.

    log q(x | theta) = sum_i o_i log N(x_i; mean_i, exp(s_i)),        o_i = 1 where x_i was observed
    mean_i           = a_i + sum_k w_ik v_ik                           v_i: values at the neighbours
    (w_i, a_i, s_i)  = network(v_i, which of them are there, theta)    the same for all places

Places are taken row by row. The neighbours of a place are those before it within `reach`: rows
above and the left part of its own row (24 for a reach of 3). Those that were not observed, and
those outside the grid, are 0 and marked as not there. So the same weights serve grids of other
shapes (of the same spacing), and fields with holes: whatever is observed, q is a density in it, a
product of normal ones. If a place depended on its near past alone, q could be the likelihood itself
(Vecchia's approximation, with its weights learned); what lies farther back, or behind a hole, is
lost.

    h(x, theta) = log q(x | theta) - c(x)
    c(x)        = log sum_m p_m q(x | theta_m) + g(t(x)),              t: mean products by lag

c stands for log p(x): a quadrature over nodes theta_m, in which q is a constant, and a small
network g for the rest. Nothing of theta is in it, so estimates, tests and posteriors do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.exponential_family import Layers, starting_nodes
from keepscore.networks.layers import Join, Linear, Source, beginning_small, silu

SIZES: dict[str, dict[str, Any]] = {
    "5k": {"reach": 2, "widths": (32, 32), "nodes": 16, "evidence": (32,)},
    "10k": {"reach": 3, "widths": (48, 48), "nodes": 16, "evidence": (32,)},
}
SMALL = 0.1  # of the last layer: places begin as nearly independent, whatever theta
WIDEST = 14.0  # of |s|, as in `spectral`
MOST_PLACES = 1 << 17  # of all fields at once: more are taken in turns
OWN = 2  # numbers per place that are kept beside neighbours and their embedding: x_i, o_i


class LocalFieldNetwork(eqx.Module):
    """h(x, theta) for x of shape (H, W), and for grids of other shapes."""

    join: Join
    second: Linear
    last: Linear
    nodes: Float[Array, "m d"]
    log_weights: Float[Array, " m"]
    evidence: Layers
    reach: int = eqx.field(static=True)

    x_scale: ClassVar = "about zero"
    size_free: ClassVar = True
    takes_missing: ClassVar = False

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        reach: int,
        widths: Sequence[int],
        nodes: int,
        evidence: Sequence[int],
    ) -> None:
        if len(x_shape) != 2:
            raise ShapeError(f"A local network needs x of shape (H, W); got {tuple(x_shape)}.")
        self.reach = reach
        k = len(neighbours(reach))
        self.join = Join(2 * k, d, widths[0], rng)
        self.second = Linear(widths[0], widths[1], rng)
        self.last = beginning_small(Linear(widths[1], k + 2, rng), SMALL)
        self.nodes, self.log_weights = starting_nodes(nodes, d, rng)
        self.evidence = Layers([k + 2, *evidence, 1], rng)

    def features(self, x: Float[Array, "b H W"]) -> Float[Array, "b f"]:
        """Of each place x_i, o_i, its neighbours and their embedding, and c, side by side."""
        b = x.shape[0]
        observed = ~jnp.isnan(x)
        value, there = jnp.where(observed, x, 0.0), observed.astype(x.dtype)
        before, known = self._windows(value), self._windows(there)
        embedded = self.join.of_features(jnp.concatenate([before, known], axis=-1))
        own = jnp.stack([value.reshape(b, -1), there.reshape(b, -1)], axis=-1)
        places = jnp.concatenate([own, before, embedded], axis=-1).reshape(b, -1)
        return jnp.concatenate([places, self._evidence(places)[:, None]], axis=1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta) - features[:, -1]

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """log q(x | theta)."""
        return self._log_density(features[:, :-1], theta)

    def _log_density(
        self, places: Float[Array, "b p"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        at_once = max(1, MOST_PLACES // max(1, self._count(places)))
        if len(places) <= at_once:
            return jax.vmap(self._of_one)(places, theta)
        one = jax.checkpoint(lambda pair: self._of_one(*pair))
        return jax.lax.map(one, (places, theta), batch_size=at_once)

    def _of_one(self, places: Float[Array, " p"], theta: Float[Array, " d"]) -> Float[Array, ""]:
        k = len(neighbours(self.reach))
        rows = places.reshape(self._count(places), -1)
        value, there = rows[:, 0], rows[:, 1]
        before, embedded = rows[:, OWN : OWN + k], rows[:, OWN + k :]
        z = silu(embedded + theta @ self.join.theta_weight)
        out = self.last(silu(self.second(z)))
        mean = out[:, k] + (out[:, :k] * before).sum(axis=1)
        s = WIDEST * jnp.tanh(out[:, k + 1] / WIDEST)
        logs = -0.5 * ((value - mean) ** 2 * jnp.exp(-s) + s + math.log(2.0 * math.pi))
        return (there * logs).sum()

    def _evidence(self, places: Float[Array, "b p"]) -> Float[Array, " b"]:
        """c(x); q is a constant in it, so that the cross-entropy does not move q."""
        fixed, still = jax.lax.stop_gradient((self, places))

        def at(node: Float[Array, " d"]) -> Float[Array, " b"]:
            return fixed._log_density(still, jnp.broadcast_to(node, (len(still), len(node))))

        at_nodes = jax.lax.map(at, fixed.nodes)
        quadrature = jax.nn.logsumexp(at_nodes + self.log_weights[:, None], axis=0)
        return quadrature + self.evidence(self._moments(still))[:, 0]

    def _moments(self, places: Float[Array, "b p"]) -> Float[Array, "b moments"]:
        """Means over observed places of x_i^2 and of x_i times each neighbour, and the log of how
        many places are observed."""
        k = len(neighbours(self.reach))
        rows = places.reshape(len(places), self._count(places), -1)
        value, there = rows[..., :1], rows[..., 1]
        count = jnp.maximum(there.sum(axis=1), 1.0)[:, None]
        products = value * jnp.concatenate([value, rows[..., OWN : OWN + k]], axis=-1)
        return jnp.concatenate([products.sum(axis=1) / count, jnp.log(count)], axis=1)

    def _windows(self, z: Float[Array, "b H W"]) -> Float[Array, "b n k"]:
        """The earlier neighbours of each place; 0 outside the grid."""
        b, height, width = z.shape
        r = self.reach
        wide = jnp.pad(z, ((0, 0), (r, 0), (r, r)))
        parts = [wide[:, r + i : r + i + height, r + j : r + j + width] for i, j in neighbours(r)]
        return jnp.stack(parts, axis=-1).reshape(b, height * width, -1)

    def _count(self, places: Array) -> int:
        """Places in a field, from the numbers kept of it."""
        k = len(neighbours(self.reach))
        return int(places.shape[-1] // (OWN + k + self.join.bias.shape[-1]))

    def settings(self) -> dict[str, Any]:
        """With x_shape and d, all that is needed to build the same network."""
        return {
            "reach": self.reach,
            "widths": [self.join.bias.shape[-1], self.second.bias.shape[-1]],
            "nodes": self.nodes.shape[0],
            "evidence": self.evidence.hidden(),
        }


class MaskedLocalFieldNetwork(LocalFieldNetwork):
    """The same for fields with holes."""

    takes_missing: ClassVar = True


def neighbours(reach: int) -> list[tuple[int, int]]:
    """Steps from a place to those before it, row by row, within `reach`."""
    above = [(i, j) for i in range(-reach, 0) for j in range(-reach, reach + 1)]
    return above + [(0, j) for j in range(-reach, 0)]
