"""The covariance at arbitrary places of the plane: one block, nothing to exploit.

The same interface as `reflection.GridBlocks`, and its slow, plain counterpart: the table holds one
entry per pair of places, and is the covariance matrix itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from keepscore.numerics.linalg import invert_in_place

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class DenseBlocks:
    """S places (S, 2) and their S x S covariance as its own single block."""

    places: Float[Array, "s 2"]

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.places),)

    @property
    def lags(self) -> tuple[Float[Array, "s s"], Float[Array, "s s"]]:
        """Distances between all pairs along each axis."""
        apart = np.abs(self.places[:, None, :] - self.places[None, :, :])
        return np.ascontiguousarray(apart[..., 0]), np.ascontiguousarray(apart[..., 1])

    @property
    def diagonal(self) -> tuple[Array, ...]:
        """Where the table holds variances. Two equal places still have a nugget each."""
        return np.diag_indices(len(self.places))

    def to_blocks(self, x: Float[Array, "n s"]) -> list[Float[Array, "n s"]]:
        return [x]

    def from_blocks(self, coordinates: list[Float[Array, "n s"]]) -> Float[Array, "n s"]:
        return coordinates[0]

    def allocate(self) -> list[Float[Array, "s s"]]:
        return [np.empty((len(self.places), len(self.places)))]

    def assemble(self, table: Float[Array, "s s"], blocks: list[Float[Array, "s s"]]) -> None:
        blocks[0][...] = table

    def invert_for_fold(self, factors: list[Float[Array, "s s"]]) -> None:
        invert_in_place(factors[0])

    def fold(self, blocks: list[Float[Array, "s s"]]) -> Float[Array, "s s"]:
        """Adjoint of `assemble`, read from the lower triangle: entries below the diagonal twice."""
        return np.tril(blocks[0]) + np.tril(blocks[0], -1)
