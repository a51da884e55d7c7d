"""Data with holes for networks: NaN in x means "not observed".

    z = (x with 0 for NaN, 1 where observed and 0 elsewhere)        two channels, on a last axis

x comes standardised over what was observed (`catalogue.standardise`), so 0 is the mean of an entry.
`Masked` is any network of such z: of twice as many numbers for vectors and sequences, of two
channels for images. Networks that sum over rows need more: a row that is missing as a whole adds
exactly nothing, so that any number of rows works,

    h(x, theta) = sum_i o_i h_1(z_i, theta),                    o_i = 1 if a part of row i is there
    log q(x | theta) = sum_i o_i log q(x_i | theta),                     mixtures: whole rows only

A network that takes x with NaN says `takes_missing = True`; all others are refused for such data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from keepscore.errors import ShapeError
from keepscore.networks.base import Network
from keepscore.networks.layers import Source
from keepscore.networks.mixture import MixtureNetwork
from keepscore.networks.residual import ResidualNetwork

# Of data: complete, with rows (of structure "iid") missing as a whole, or with single entries.
NONE, ROWS, ENTRIES = "none", "rows", "entries"


def holes_of(x: NDArray[Any], missing: bool) -> str:
    """Which of these data x (b, ...) are; `missing`: whether NaN is declared at all."""
    if not missing:
        return NONE
    if x.ndim < 2 or x.dtype.kind != "f":
        return ENTRIES
    nan, inside = np.isnan(x), tuple(range(2, x.ndim))
    return ROWS if np.array_equal(nan.all(axis=inside), nan.any(axis=inside)) else ENTRIES


def with_mask(x: Float[Array, "*n"]) -> Float[Array, "*n 2"]:
    """The two channels of the top of this file."""
    observed = ~jnp.isnan(x)
    return jnp.stack([jnp.where(observed, x, 0.0), observed.astype(x.dtype)], axis=-1)


class Masked(eqx.Module):
    """A network of x and its mask; `merged`: the two channels side by side on the last axis."""

    network: Network
    merged: bool = eqx.field(static=True, default=False)

    takes_missing: ClassVar = True

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        z = with_mask(x)
        return self.network.features(z.reshape(*x.shape[:-1], -1) if self.merged else z)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.network.head(features, theta)

    @property
    def x_scale(self) -> str:
        """That of the network inside; an AttributeError if it has none, as for any network."""
        return str(self.network.x_scale)  # type: ignore[attr-defined]

    @property
    def linear_head(self) -> bool:
        return bool(getattr(self.network, "linear_head", False))

    def settings(self) -> dict[str, Any]:
        """Those of the network inside."""
        return self.network.settings()  # type: ignore[attr-defined]


def masked(build: Callable[..., Any], merged: bool = False) -> Callable[..., Masked]:
    """How to build a network of this class for data with holes."""

    def make(x_shape: Sequence[int], d: int, rng: Source, **widths: Any) -> Masked:
        inner = (*x_shape[:-1], 2 * x_shape[-1]) if merged else (*x_shape, 2)
        return Masked(build(inner, d, rng, **widths), merged)

    return make


class MaskedSetNetwork(eqx.Module):
    """h(x, theta) = sum_i o_i h_1(z_i, theta) for x (n, ...), any n and any holes."""

    row: ResidualNetwork

    takes_missing: ClassVar = True
    x_scale: ClassVar = "states"  # a row's entries are alike in all rows

    def __init__(self, x_shape: Sequence[int], d: int, rng: Source, widths: Sequence[int]) -> None:
        require_rows(x_shape)
        self.row = ResidualNetwork((*x_shape[1:], 2), d, rng, widths)

    def features(self, x: Float[Array, "b n ..."]) -> Float[Array, "b f"]:
        """Each row joined, and o, side by side."""
        b, n = x.shape[:2]
        rows = x.reshape(b, n, -1)
        joined = self.row.join.of_features(with_mask(rows).reshape(b, n, -1))
        there = (~jnp.isnan(rows)).any(axis=2, keepdims=True)
        return jnp.concatenate([joined, there.astype(joined.dtype)], axis=2).reshape(b, -1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        join = self.row.join
        rows = features.reshape(features.shape[0], -1, join.bias.shape[-1] + 1)
        of_theta = theta @ join.theta_weight  # the same for every row
        return (rows[..., -1] * self.row.logit(rows[..., :-1] + of_theta[:, None, :])).sum(axis=1)

    def settings(self) -> dict[str, list[int]]:
        """Those of the network of one row."""
        return self.row.settings()


class MaskedMixtureSetNetwork(eqx.Module):
    """log q = sum_i o_i log q(x_i | theta) for x (n, ...), any n, whole rows missing.

    A row that is missing in part stays NaN, and so does all that comes of it.
    """

    row: MixtureNetwork

    takes_missing: ClassVar = True
    whole_rows: ClassVar = True
    x_scale: ClassVar = "states"

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        components: int,
        widths: Sequence[int],
        evidence: Sequence[int] | None = None,
    ) -> None:
        require_rows(x_shape)
        self.row = MixtureNetwork(x_shape[1:], d, rng, components, widths, evidence)

    def features(self, x: Float[Array, "b n ..."]) -> Float[Array, "b f"]:
        """The rows (0 for those that are missing) and o, side by side."""
        b, n = x.shape[:2]
        rows = x.reshape(b, n, -1)
        there = (~jnp.isnan(rows)).any(axis=2, keepdims=True)
        filled = jnp.where(there, rows, 0.0)
        flags = there[..., 0].astype(rows.dtype)
        return jnp.concatenate([filled.reshape(b, -1), flags], axis=1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """sum_i o_i log q(x_i | theta), up to a constant."""
        p = self.row.centre.shape[1]
        n = features.shape[1] // (p + 1)
        rows = features[:, : n * p].reshape(len(features), n, p)
        there = features[:, n * p : n * (p + 1)]
        return (there * self.row.log_rows(rows, theta)).sum(axis=1)

    def settings(self) -> dict[str, int | list[int]]:
        """Those of the network of one row."""
        return self.row.settings()


def require_rows(x_shape: Sequence[int]) -> None:
    """That x is (n, ...), n rows."""
    if len(x_shape) < 2 or math.prod(x_shape) == 0:
        raise ShapeError(f"A set network needs x of shape (n, ...), n rows; got {tuple(x_shape)}.")
