"""What a network is here, and the parts of it that are trained.

    features(x)             (b, *x_shape) -> (b, f)    once for each x
    head(features, theta)   (b, f), (b, d) -> (b,)     once for each pair; row i from row i only

h(x, theta) = head(features(x), theta) estimates log p(x | theta) / p(x). Any Equinox module with
these two methods will do. Its JAX arrays are weights and are trained; NumPy arrays in it are
constants and are not.

A network may say more of itself. How to compute every pair at once, where that is cheaper than row
by row (what depends on theta alone is then computed once for each theta):

    table(features, theta)  (b, f), (m, d) -> (m, b)

That it is a density q in x, up to a factor that does not depend on theta:

    log_density(features, theta)  (b, f), (b, d) -> (b,)

Training then maximises its likelihood (`training/step.py`), its head may be log q up to any
function of x, and in h = log q(x | theta) - log p(x) the second term is not learned but computed,
p(x) being the mean of q over the design (`Surrogate.log_evidence`).

By `linear_head = True`, that its head is linear in the features. The features of a group of
independent observations then add up, and a group costs one head, whatever its size. And by
`x_scale`, how x is to be scaled for it:

    "entries"      each entry of x by its own mean and standard deviation; the default for vectors
    "states"       x is (T, ...), each entry of a state by its own at all times; for sequences
    "places"       x is (H, W, ...), each channel by its own at all places; for maps
    "whole"        all entries alike; for everything else
    "about zero"   all entries alike, the mean left where it is
    "largest"      by the largest of all |x|; for times in a window, which then ends at 1
    "none"         x as it comes
    "times"        x is (T, 1 + m), a time first in each row: times in units of the mean gap between
                   neighbours, the rest as it comes
    "times, states"  the same, the rest as in "states"
    "graphs"       x is (T + K, K), weights below states: all by the largest sum of a row of weights

Entries, states or channels with heavy tails (`tails`) are scaled by median and quartiles instead,
and drawn in by arsinh, in networks that are no densities: otherwise the few largest values set the
scale of all others. Those that are never negative and lean on zero are taken by their logarithm,
all but. Those that never varied have an infinite scale: the network sees 0, whatever comes later.
Rows that are parts of a whole, or hold entries that follow from others, are shown in other
coordinates first (`view`).

By `size_free = True`, that the same weights serve x of other shapes than it was built for, of as
many axes. By `takes_missing = True`, that x may hold NaN, "not observed" (see `masking`); other
networks are refused for such data.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import NDArray

from keepscore.networks.views import AS_IT_IS, View

Tree: TypeAlias = PyTree  # a network, or anything else that JAX takes apart into leaves
Weights: TypeAlias = PyTree[Array]  # a network's trained arrays, None where it has something else
Rest: TypeAlias = PyTree  # a network without its weights

X_SCALES = (
    *("entries", "states", "places", "whole", "about zero", "largest", "none"),
    *("times", "times, states", "graphs"),
)


@runtime_checkable
class Network(Protocol):
    """See the top of this file."""

    def features(self, x: Array) -> Array: ...
    def head(self, features: Array, theta: Array) -> Array: ...


class DensityNetwork(Network, Protocol):
    """A network that is a density in x; see the top of this file."""

    def log_density(self, features: Array, theta: Array) -> Array: ...


def is_weight(leaf: object) -> bool:
    """Whether a leaf of a network is trained."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def split(network: Network) -> tuple[Weights, Rest]:
    """(weights, rest): two trees that `eqx.combine` puts together again."""
    return eqx.partition(network, is_weight)


def count_weights(network: Tree) -> int:
    """Number of trained parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(network, is_weight)))


def has_linear_head(network: Network) -> bool:
    """Whether the features of a group of observations may be summed before the head."""
    return bool(getattr(_inner(network), "linear_head", False))


def has_table(network: Network) -> bool:
    """Whether the network computes every pair at once."""
    return hasattr(_inner(network), "table")


def has_density(network: Network) -> bool:
    """Whether the network is a density in x."""
    return hasattr(_inner(network), "log_density")


def takes_missing(network: Network) -> bool:
    """Whether the network is for x with NaN, "not observed"."""
    return bool(getattr(_inner(network), "takes_missing", False))


def needs_whole_rows(network: Network) -> bool:
    """Whether rows of x must be observed as a whole or not at all."""
    return bool(getattr(_inner(network), "whole_rows", False))


def is_size_free(network: Network) -> bool:
    """Whether the same weights serve x of other shapes."""
    return bool(getattr(_inner(network), "size_free", False))


def _inner(network: Network) -> Network:
    return network.network if isinstance(network, Scaled) else network


def every_pair(
    network: Network, features: Float[Array, "b f"], theta: Float[Array, "m d"]
) -> Array:
    """The head on each row of theta (m, d) with each row of features (b, f): (m, b)."""
    if isinstance(network, Scaled):
        return every_pair(network.network, features, network.scaled_theta(theta))
    if hasattr(network, "table"):
        return network.table(features, theta)
    m, b = len(theta), len(features)
    rows = jnp.broadcast_to(features, (m, *features.shape)).reshape(m * b, -1)
    return network.head(rows, jnp.repeat(theta, b, axis=0)).reshape(m, b)


def log_ratio(network: Network, theta: Float[Array, "b d"], x: Array) -> Float[Array, " b"]:
    """h(x, theta), pairs row by row."""
    return network.head(network.features(x.astype(jnp.float32)), theta)


class Scaled(eqx.Module):
    """A network fed standardised x and theta.

    h(x, theta) = network((x - x_mean) / x_sd, (theta - theta_mean) / theta_sd) is a function of the
    working theta: its score is taken of the composition, so the factor 1 / theta_sd is in it.
    drawn_in: x with heavy tails or near zero; the network sees z = arsinh((x - x_mean) / x_sd), or
    (z - z_mean) / z_sd where these are given. x here is what `view` shows of it.
    """

    network: Network
    x_mean: NDArray[np.float32]
    x_sd: NDArray[np.float32]
    theta_mean: NDArray[np.float32]
    theta_sd: NDArray[np.float32]
    drawn_in: bool = eqx.field(static=True, default=False)
    z_mean: NDArray[np.float32] | None = None
    z_sd: NDArray[np.float32] | None = None
    view: View = eqx.field(static=True, default=AS_IT_IS)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        return self.network.features(self.scaled_x(x))

    def scaled_x(self, x: Float[Array, "b ..."]) -> Float[Array, "b ..."]:
        z = (self.view.shown(x) - self.x_mean) / self.x_sd
        if self.drawn_in:
            z = jnp.arcsinh(z)
        if self.z_mean is not None and self.z_sd is not None:
            z = (z - self.z_mean) / self.z_sd
        return z

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.network.head(features, self.scaled_theta(theta))

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """That of a network that is one (`has_density`)."""
        return cast("DensityNetwork", self.network).log_density(features, self.scaled_theta(theta))

    def scaled_theta(self, theta: Float[Array, "b d"]) -> Float[Array, "b d"]:
        return (theta - self.theta_mean) / self.theta_sd
