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


class _OfEntries(eqx.Module):
    """A network of these entries (counted from 1) of x."""

    network: Any
    entries: tuple[int, ...] = eqx.field(static=True)

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        chosen = x.reshape(x.shape[0], -1)[:, np.array(self.entries) - 1]
        found: Float[Array, "b f"] = self.network.features(chosen)
        return found

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        found: Float[Array, " b"] = self.network.head(features, theta)
        return found

    def settings(self) -> dict[str, Any]:
        """Those of the network inside, and the entries."""
        return {"entries": list(self.entries), **self.network.settings()}


class ResidualOfEntries(_OfEntries):
    """A residual network of some entries of x, taken as a vector."""

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


class MixtureOfEntries(_OfEntries):
    """A mixture density of some entries of x, taken as one row."""

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

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """That of the network inside."""
        found: Float[Array, " b"] = self.network.log_density(features, theta)
        return found


def _checked(entries: Sequence[int], x_shape: Sequence[int]) -> tuple[int, ...]:
    size = math.prod(x_shape)
    if not entries or min(entries) < 1 or max(entries) > size:
        raise ShapeError(f"Entries are counted from 1 to {size}, and one is needed at least.")
    return tuple(int(entry) for entry in entries)
