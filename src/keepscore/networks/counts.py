"""Densities of counts: a density of their roots, no finer than counts are.

    y_j = 2 sqrt(x_j + 3/8)
    q(y | theta) = sum_k w_k(theta) N(y; m_k(theta), (L_k(theta)' L_k(theta))^-1)    (`mixture`)
    1 / L_jj >= (1/2) dy_j / dx_j

or, where counts are independent given theta (`independent`),

    q(y | theta) = prod_j N(y_j; m_j(theta), s_j(theta)^2),    s_j >= (1/2) dy_j / dx_j

The root is Anscombe's: Poisson counts have a standard deviation near 1 in y, few or many. (dy / dx
is a function of x alone and of no use to a likelihood.) L is lower triangular, so 1 / L_jj is the
standard deviation of y_j given the entries before it. If it is half of a step between counts or
more, a normal density sums to 1 over them within 1.5%, wherever its mean is. Without this bound a
frequent value (no cases at all, say) would get a density as high as the network cares to give it,
and would seem to tell of theta.

Where some entries are counts and others continuous numbers, as in summaries of data (how many, how
long, how much), the root and the bound are for the counts alone (`MixedNetwork`,
`IndependentMixedNetwork`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike, NDArray

from keepscore.errors import DomainError
from keepscore.networks.independent import IndependentNetwork
from keepscore.networks.layers import Source
from keepscore.networks.mixture import SIZES as SIZES
from keepscore.networks.mixture import MixtureNetwork
from keepscore.numerics.alike import all_alike

LEAST_SD = 0.5  # of a step
FEWEST_VALUES = 10  # of an entry, below which no normal density is like it
CONTINUOUS = 0.99  # share of different values among numbers that are no counts
FINE = 1e-5  # of a standard deviation: the step of numbers that have none


class DensityOfCounts(eqx.Module):
    """log q(y | theta) for counts x of any shape, taken as one row.

    It is given (x - x_mean) / x_sd, as any network, and takes that back; the density inside sees
    (y - y_mean) / y_sd, entry by entry."""

    network: MixtureNetwork | IndependentNetwork
    x_mean: NDArray[np.float32]
    x_sd: NDArray[np.float32]
    y_mean: NDArray[np.float32]
    y_sd: NDArray[np.float32]
    constants: ClassVar[tuple[str, ...]] = ("x_mean", "x_sd", "y_mean", "y_sd")

    def __init__(self, network: MixtureNetwork | IndependentNetwork, p: int) -> None:
        self.network = network
        self.x_mean, self.y_mean = np.zeros(p, np.float32), np.zeros(p, np.float32)
        self.x_sd, self.y_sd = np.ones(p, np.float32), np.ones(p, np.float32)

    def scaled_to(
        self, x: NDArray[Any], x_mean: ArrayLike = 0.0, x_sd: ArrayLike = 1.0
    ) -> DensityOfCounts:
        """The same for data like x (b, ...), which it will be given as (x - x_mean) / x_sd."""
        values = np.asarray(x, np.float64).reshape(len(x), -1)
        if not (values >= 0).all():  # NaN is not either
            raise DomainError(
                f"A counts network needs x of 0 or more, nothing missing; got {values.min():g} at "
                "least. Use network='auto', or 'mixture-3k' for numbers of any sign."
            )
        of_x = [np.broadcast_to(a, x.shape[1:]).ravel() for a in (x_mean, x_sd)]
        found: DensityOfCounts = self._with_scale(values, of_x)
        return found

    def _with_scale(self, values: NDArray[np.float64], of_x: list[NDArray[Any]]) -> Any:
        y = np.asarray(self.in_roots(values))
        y_sd = np.where(all_alike(y), 1.0, y.std(axis=0))
        scale = (*of_x, y.mean(axis=0), y_sd)
        return eqx.tree_at(
            lambda n: (n.x_mean, n.x_sd, n.y_mean, n.y_sd),
            self,
            tuple(np.asarray(a, np.float32) for a in scale),
        )

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        counts = x.reshape(len(x), -1) * self.x_sd + self.x_mean
        return (self.in_roots(counts) - self.y_mean) / self.y_sd

    def in_roots(self, x: NDArray[Any] | Array) -> Any:
        """y of x (b, p), an array of NumPy or JAX."""
        return 2 * (x.clip(0) + 3 / 8) ** 0.5

    def step(self, y: Float[Array, "b f"]) -> Float[Array, "b f"]:
        """dy / dx: how far counts are apart in y."""
        return 2 / y

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """log q(y | theta), up to a constant."""
        step = self.step(features * self.y_sd + self.y_mean) / self.y_sd
        return self.network.log_density(features, theta, LEAST_SD * step)

    def settings(self) -> Mapping[str, int | list[int]]:
        """Those of the density inside."""
        return self.network.settings()


class CountsNetwork(DensityOfCounts):
    """A mixture density of the roots of all counts."""

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        components: int,
        widths: Sequence[int],
    ) -> None:
        inside = MixtureNetwork(x_shape, d, rng, components, widths)
        super().__init__(inside, math.prod(x_shape))


class IndependentCountsNetwork(DensityOfCounts):
    """Densities of the roots of counts that are independent given theta."""

    def __init__(self, x_shape: Sequence[int], d: int, rng: Source, widths: Sequence[int]) -> None:
        super().__init__(IndependentNetwork(x_shape, d, rng, widths), math.prod(x_shape))


class DensityOfMixed(DensityOfCounts):
    """The same where only some entries are counts (1 in `counted`, else 0)."""

    counted: NDArray[np.float32]
    constants: ClassVar[tuple[str, ...]] = (*DensityOfCounts.constants, "counted")

    def __init__(self, network: MixtureNetwork | IndependentNetwork, p: int) -> None:
        super().__init__(network, p)
        self.counted = np.zeros(p, np.float32)

    def scaled_to(
        self, x: NDArray[Any], x_mean: ArrayLike = 0.0, x_sd: ArrayLike = 1.0
    ) -> DensityOfMixed:
        """As above; counts are the entries that are whole and never negative."""
        values = np.asarray(x, np.float64).reshape(len(x), -1)
        if not np.isfinite(values).all():
            raise DomainError("A mixed network needs x with nothing missing. Use network='auto'.")
        counted = np.array([are_counts(column) for column in values.T], np.float32)
        own = eqx.tree_at(lambda n: n.counted, self, counted)
        of_x = [np.broadcast_to(a, x.shape[1:]).ravel() for a in (x_mean, x_sd)]
        found: DensityOfMixed = own._with_scale(values, of_x)
        return found

    def in_roots(self, x: NDArray[Any] | Array) -> Any:
        return self.counted * super().in_roots(x * self.counted) + (1 - self.counted) * x

    def step(self, y: Float[Array, "b f"]) -> Float[Array, "b f"]:
        """That of counts; next to nothing for other numbers."""
        others = 1 - self.counted
        of_counts = super().step(y * self.counted + others) * self.counted
        return of_counts + others * FINE * self.y_sd


class MixedNetwork(DensityOfMixed):
    """A mixture density of numbers and of the roots of counts."""

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        components: int,
        widths: Sequence[int],
    ) -> None:
        inside = MixtureNetwork(x_shape, d, rng, components, widths)
        super().__init__(inside, math.prod(x_shape))


class IndependentMixedNetwork(DensityOfMixed):
    """Densities of numbers and of the roots of counts that are independent given theta."""

    def __init__(self, x_shape: Sequence[int], d: int, rng: Source, widths: Sequence[int]) -> None:
        super().__init__(IndependentNetwork(x_shape, d, rng, widths), math.prod(x_shape))


def are_counts(column: NDArray[Any]) -> bool:
    """Whether all are whole and none is negative; NaN is no count either."""
    return bool(np.array_equal(column, np.round(column)) and column.min() >= 0)


def is_counted(x: NDArray[Any]) -> bool:
    """Whether x are counts, and half of its entries at least have ten values or more."""
    if x.dtype.kind not in "iuf" or x.size == 0:
        return False
    columns = x.reshape(len(x), -1).T
    if not are_counts(columns):
        return False
    values = [len(np.unique(column)) for column in columns]
    return float(np.median(values)) >= FEWEST_VALUES


def is_mixed(x: NDArray[Any]) -> bool:
    """Whether some entries of x are counts with ten values or more, and all others numbers that
    hardly ever repeat."""
    if x.dtype.kind != "f" or x.size == 0:
        return False
    columns = x.reshape(len(x), -1).T
    counted = [are_counts(column) for column in columns]
    values = [len(np.unique(column)) for column in columns]
    needed = [FEWEST_VALUES if c else CONTINUOUS * len(x) for c in counted]
    alike = all(v >= n for v, n in zip(values, needed, strict=True))
    return alike and any(counted) and not all(counted)
