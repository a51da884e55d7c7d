"""The form of an exponential family: the evidence is computed, not learned.

    log p(x | theta) = S(x) . eta(theta) + what does not depend on theta
    h(x, theta)      = S(x) . eta(theta) - log sum_m w_m exp( S(x) . eta(theta_m) )

S(x) (r numbers) are learned statistics, eta(theta) learned natural parameters. The second term is
-log p(x) by quadrature over the training box, p(x) = mean of p(x | theta), at nodes theta_m with
weights w_m; both start as an even cover of the box and are trained with the rest. So no part of the
network has to learn p(x) by itself, where a network with a free function of x loses most.

What is independent given theta adds up in S: a path's S is the sum over its transitions, a group's
likelihood sums the S of its members. Any smooth function of a few parameters is close to a
combination of r fixed ones; r = 16 to 32 was enough for every model tried.

The head is one small network of theta and an inner product of length r, whatever x is; it is linear
in the features, so a group's features add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from keepscore.networks.layers import Linear, Source, computed, linear_layers, silu

# Parameters come standardised by their box: uniform on (-sqrt 3, sqrt 3) in each coordinate.
HALF_WIDTH = 3**0.5


class Layers(eqx.Module):
    """Linear layers with SiLU between them; the last one is linear."""

    layers: tuple[Linear, ...]

    def __init__(self, widths: Sequence[int], rng: Source) -> None:
        self.layers = linear_layers(widths, rng)

    def __call__(self, z: Float[Array, "*n inputs"]) -> Float[Array, "*n outputs"]:
        for layer in self.layers[:-1]:
            z = silu(layer(z))
        return self.layers[-1](z)

    def hidden(self) -> list[int]:
        """Widths between input and output."""
        return [layer.bias.shape[-1] for layer in self.layers[:-1]]


class ExponentialFamily(eqx.Module):
    """From S (b, r) to features (b, r + 1), and with theta to h; see the top of this file."""

    natural: Layers
    nodes: Float[Array, "m d"]
    log_weights: Float[Array, " m"]

    def __init__(
        self, statistics: int, d: int, natural: Sequence[int], nodes: int, rng: Source
    ) -> None:
        self.natural = Layers([d, *natural, statistics], rng)
        self.nodes, self.log_weights = starting_nodes(nodes, d, rng)

    def features(self, statistics: Float[Array, "b r"]) -> Float[Array, "b f"]:
        """S and -log p(x), side by side."""
        at_nodes = statistics @ self.natural(self.nodes).T
        evidence = jax.nn.logsumexp(at_nodes + self.log_weights, axis=1)
        return jnp.concatenate([statistics, -evidence[:, None]], axis=1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return jnp.sum(features[:, :-1] * self.natural(theta), axis=1) + features[:, -1]

    def table(
        self, features: Float[Array, "b f"], theta: Float[Array, "m d"]
    ) -> Float[Array, "m b"]:
        return self.natural(theta) @ features[:, :-1].T + features[:, -1]

    def settings(self) -> dict[str, int | list[int]]:
        """Its share of a network's layer widths."""
        return {
            "statistics": self.natural.layers[-1].bias.shape[-1],
            "natural": self.natural.hidden(),
            "nodes": self.nodes.shape[0],
        }


class ExponentialFamilyNetwork(eqx.Module):
    """A network whose features are those of a family; subclasses say what its statistics are."""

    family: eqx.AbstractVar[ExponentialFamily]

    linear_head: ClassVar = True

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.family.head(features, theta)

    def table(
        self, features: Float[Array, "b f"], theta: Float[Array, "m d"]
    ) -> Float[Array, "m b"]:
        return self.family.table(features, theta)


def starting_nodes(m: int, d: int, rng: Source) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    """Nodes that cover the standardised box evenly, and logs of their equal weights."""
    nodes = computed(rng, (m, d), lambda: HALF_WIDTH * (2 * even_cover(m, d) - 1))
    return nodes, jnp.full(m, -np.log(m), jnp.float32)


def even_cover(m: int, d: int) -> np.ndarray:
    """m points that cover the unit cube evenly: multiples of the powers of 1/g, modulo 1, with
    g^(d+1) = g + 1 (the golden ratio for d = 1)."""
    g = 2.0
    for _ in range(64):
        g = (1.0 + g) ** (1.0 / (d + 1))
    steps = g ** -np.arange(1.0, d + 1)
    return (0.5 + np.outer(np.arange(1, m + 1), steps)) % 1.0
