"""Networks of some entries of x, those that tell of theta:

    h(x, theta) = h_S(x_S, theta),    S a fixed set of entries

Where most of x is noise, a network of all of it has to learn from few simulations what to ignore,
and does not. S is a constant: it is chosen before training (`training/candidates.py`) and saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.layers import Source
from keepscore.networks.mixture import MixtureNetwork
from keepscore.networks.residual import ResidualNetwork


class ResidualOfEntries(eqx.Module):
    """A residual network of these entries (counted from 1) of x, taken as a vector."""

    network: ResidualNetwork
    entries: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        entries: Sequence[int],
        widths: Sequence[int],
    ) -> None:
        self.entries = _checked(entries, x_shape)
        self.network = ResidualNetwork((len(self.entries),), d, rng, widths)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        return self.network.features(_chosen(x, self.entries))

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.network.head(features, theta)

    def settings(self) -> dict[str, Any]:
        """Those of the network inside, and the entries."""
        return {"entries": list(self.entries), **self.network.settings()}


class MixtureOfEntries(eqx.Module):
    """A mixture density of these entries (counted from 1) of x, taken as one row."""

    network: MixtureNetwork
    entries: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        entries: Sequence[int],
        components: int,
        widths: Sequence[int],
    ) -> None:
        self.entries = _checked(entries, x_shape)
        self.network = MixtureNetwork((len(self.entries),), d, rng, components, widths)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        return self.network.features(_chosen(x, self.entries))

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.network.head(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        return self.network.log_density(features, theta)

    def settings(self) -> dict[str, Any]:
        """Those of the network inside, and the entries."""
        return {"entries": list(self.entries), **self.network.settings()}


def _checked(entries: Sequence[int], x_shape: Sequence[int]) -> tuple[int, ...]:
    size = math.prod(x_shape)
    if not entries or min(entries) < 1 or max(entries) > size:
        raise ShapeError(f"Entries are counted from 1 to {size}, and one is needed at least.")
    return tuple(int(entry) for entry in entries)


def _chosen(x: Float[Array, "b ..."], entries: tuple[int, ...]) -> Float[Array, "b s"]:
    return x.reshape(x.shape[0], -1)[:, np.array(entries) - 1]
