"""The covariance of some places of a regular grid: one dense block, read from the table of lags.

With the table c of covariances by lag, and places (i, j) and (k, l) of the grid,
    B[(i, j), (k, l)] = c[|i - k|, |j - l|].
The mirror images that split a whole grid (`reflection.GridBlocks`) do not map the places that were
observed to themselves, so there is one block. `fold` is the adjoint of `assemble`, as there:
sum(fold(M) * c) = tr(M B).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from keepscore.numerics.linalg import invert_in_place
from keepscore.numerics.reflection import GridBlocks

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class SomePlaces:
    """Places (m, 2), as index pairs into a grid, and their m x m covariance as a single block."""

    grid: GridBlocks
    places: Int[Array, "m 2"]

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.places),)

    @property
    def lags(self) -> tuple[Float[Array, "n1 1"], Float[Array, "1 n2"]]:
        """Those of the whole grid: the table is the same."""
        return self.grid.lags

    @property
    def diagonal(self) -> tuple[int, int]:
        return self.grid.diagonal

    @cached_property
    def index(self) -> Int[Array, "m m"]:
        """Where in the flat table each pair of places is found."""
        apart = np.abs(self.places[:, None, :] - self.places[None, :, :])
        return apart[..., 0] * self.grid.shape[1] + apart[..., 1]

    def to_blocks(self, x: Float[Array, "n m"]) -> list[Float[Array, "n m"]]:
        return [x]

    def from_blocks(self, coordinates: list[Float[Array, "n m"]]) -> Float[Array, "n m"]:
        return coordinates[0]

    def allocate(self) -> list[Float[Array, "m m"]]:
        return [np.empty((len(self.places), len(self.places)))]

    def assemble(self, table: Float[Array, "n1 n2"], blocks: list[Float[Array, "m m"]]) -> None:
        np.take(table.ravel(), self.index, out=blocks[0])

    def invert_for_fold(self, factors: list[Float[Array, "m m"]]) -> None:
        invert_in_place(factors[0])

    def fold(self, blocks: list[Float[Array, "m m"]]) -> Float[Array, "n1 n2"]:
        """Adjoint of `assemble`, read from the lower triangle: entries below the diagonal twice."""
        whole = np.tril(blocks[0]) + np.tril(blocks[0], -1)
        n_1, n_2 = self.grid.shape
        folded = np.bincount(self.index.ravel(), whole.ravel(), minlength=n_1 * n_2)
        return folded.reshape(n_1, n_2)
