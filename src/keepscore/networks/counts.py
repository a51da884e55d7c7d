"""Densities of counts: a mixture density (`mixture`) of their roots, no finer than counts are.

    y_j = 2 sqrt(x_j + 3/8)
    q(y | theta) = sum_k w_k(theta) N(y; m_k(theta), (L_k(theta)' L_k(theta))^-1)
    1 / L_jj >= (1/2) dy_j / dx_j

The root is Anscombe's: Poisson counts have a standard deviation near 1 in y, few or many. (dy / dx
is a function of x alone and of no use to a likelihood.) L is lower triangular, so 1 / L_jj is the
standard deviation of y_j given the entries before it. If it is half of a step between counts or
more, a normal density sums to 1 over them within 1.5%, wherever its mean is. Without this bound a
frequent value (no cases at all, say) would get a density as high as the network cares to give it,
and would seem to tell of theta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from keepscore.networks.layers import Source
from keepscore.networks.mixture import SIZES as SIZES
from keepscore.networks.mixture import MixtureNetwork

LEAST_SD = 0.5  # of a step
FEWEST_VALUES = 10  # of an entry, below which no normal density is like it


class CountsNetwork(eqx.Module):
    """log q(y | theta) for counts x of any shape, taken as one row. The mixture sees y less its
    mean, divided by its standard deviation, entry by entry (`scaled_to`)."""

    network: MixtureNetwork
    mean: NDArray[np.float32]
    sd: NDArray[np.float32]
    constants: ClassVar = ("mean", "sd")
    x_scale: ClassVar = "none"

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        components: int,
        widths: Sequence[int],
    ) -> None:
        p = math.prod(x_shape)
        self.network = MixtureNetwork(x_shape, d, rng, components, widths)
        self.mean, self.sd = np.zeros(p, np.float32), np.ones(p, np.float32)

    def scaled_to(self, x: NDArray[Any]) -> CountsNetwork:
        """The same with mean and standard deviation of these data (b, ...)."""
        y = 2 * np.sqrt(np.asarray(x, np.float64).reshape(len(x), -1) + 3 / 8)
        sd = y.std(axis=0)
        scale = y.mean(axis=0).astype(np.float32), np.where(sd > 0, sd, 1.0).astype(np.float32)
        return eqx.tree_at(lambda network: (network.mean, network.sd), self, scale)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        y = 2 * jnp.sqrt(jnp.maximum(x.reshape(len(x), -1), 0.0) + 3 / 8)
        return (y - self.mean) / self.sd

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """log q(y | theta), up to a constant."""
        step = 2 / (features * self.sd + self.mean) / self.sd  # dy / dx = 2 / y
        return self.network.log_rows(features[:, None], theta, LEAST_SD * step)[:, 0]

    def settings(self) -> dict[str, int | list[int]]:
        """Those of the mixture."""
        return self.network.settings()


def is_counted(x: NDArray[Any]) -> bool:
    """Whether x are counts, and half of its entries at least have ten values or more."""
    if x.dtype.kind not in "iuf" or x.size == 0:
        return False
    columns = x.reshape(len(x), -1).T
    # NaN is no count either.
    if not np.array_equal(columns, np.round(columns)) or columns.min() < 0:
        return False
    values = [len(np.unique(column)) for column in columns]
    return float(np.median(values)) >= FEWEST_VALUES
