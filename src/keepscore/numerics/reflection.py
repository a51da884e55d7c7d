"""Stationary covariances on a regular grid, split exactly by the two mirror images.

On an axis of n equally spaced points number the points of one half from the middle outwards,
i = 0, 1, ..., and let i' be the mirror image of i. The vectors
    e_i = (d_i + d_i')/sqrt(2),  ceil(n/2) of them,     o_i = (d_i - d_i')/sqrt(2),  floor(n/2),
(e_0 = d_0 for a middle point, its own image) are orthonormal. A covariance that depends on the
absolute lags alone commutes with both mirror images, so in the products of these vectors it falls
into four blocks (even or odd in each axis; for 25 x 25 of sizes 169, 156, 156, 144). With the table
c of covariances by lag, signs s = +1 (even), -1 (odd), p vectors and b = n + 1 - 2p on an axis,
    f[h, j, m] = v_j v_m (c[h, |j-m|] + s_2 c[h, j+m+b_2])
    B[ij, km]  = v_i v_k (f[|i-k|, j, m] + s_1 f[i+k+b_1, j, m]),
v being 1, and 1/sqrt(2) at a middle point. `assemble` is this map from c to the blocks; `fold` is
its adjoint, sum(fold(M) * c) = sum_b tr(M_b B_b), so that traces against any number of covariances
cost one pass over the blocks and then one table each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Float

from keepscore.numerics.jit import compiled
from keepscore.numerics.linalg import invert_in_place
from keepscore.numerics.toeplitz import invert_block_toeplitz_for_fold

Array = np.ndarray
SIGNS = ((1, 1), (1, -1), (-1, 1), (-1, -1))


@dataclass(frozen=True)
class GridBlocks:
    """The block form for a grid of shape (n_1, n_2) with the given spacing along each axis."""

    shape: tuple[int, int]
    spacing: tuple[float, float]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the blocks, without the empty ones of an axis of one point."""
        return tuple(p * q for p, q, _, _ in self._parities())

    @property
    def lags(self) -> tuple[Float[Array, "n1 1"], Float[Array, "1 n2"]]:
        """Distances along each axis; against each other they index the table of covariances."""
        lag_1, lag_2 = (np.arange(n) * h for n, h in zip(self.shape, self.spacing, strict=True))
        return lag_1[:, None], lag_2[None, :]

    @property
    def diagonal(self) -> tuple[int, int]:
        """Where the table holds the variance: the entry that a nugget adds to."""
        return (0, 0)

    def to_blocks(self, x: Float[Array, "n n1 n2"]) -> list[Float[Array, "n _"]]:
        """Coordinates of fields in each block, (n, m_b)."""
        half_1, half_2 = (_analyse(n) for n in self.shape)
        return [
            np.ascontiguousarray(half_1[s_1] @ x @ half_2[s_2].T).reshape(len(x), p * q)
            for p, q, s_1, s_2 in self._parities()
        ]

    def from_blocks(self, coordinates: list[Float[Array, "n _"]]) -> Float[Array, "n n1 n2"]:
        """Fields from their coordinates: the inverse of `to_blocks`."""
        half_1, half_2 = (_analyse(n) for n in self.shape)
        x = np.zeros((len(coordinates[0]), *self.shape))
        for u, (p, q, s_1, s_2) in zip(coordinates, self._parities(), strict=True):
            x += half_1[s_1].T @ u.reshape(-1, p, q) @ half_2[s_2]
        return x

    def allocate(self) -> list[Float[Array, "_ _"]]:
        """Room for the blocks, to be used again: fresh memory costs more than filling it."""
        return [np.empty((m, m)) for m in self.sizes]

    def assemble(self, table: Float[Array, "n1 n2"], blocks: list[Float[Array, "_ _"]]) -> None:
        """Fill the lower triangles of the blocks of the covariance with this table."""
        for block, (p, q, s_1, s_2) in zip(blocks, self._parities(), strict=True):
            _assemble(table, p, q, s_1, s_2, block)

    def fold(self, blocks: list[Float[Array, "_ _"]]) -> Float[Array, "n1 n2"]:
        """Adjoint of `assemble`, from the lower triangles of symmetric blocks."""
        table = np.zeros(self.shape)
        for block, (p, q, s_1, s_2) in zip(blocks, self._parities(), strict=True):
            _fold(block, p, q, s_1, s_2, table)
        return table

    def invert_for_fold(self, factors: list[Float[Array, "_ _"]]) -> None:
        """Overwrite the factors L_b by matrices whose fold is that of the inverse covariance."""
        if self.shape[0] == 1:
            for factor in factors:
                invert_in_place(factor)
            return
        half = len(factors) // 2
        for even, odd in zip(factors[:half], factors[half:], strict=True):
            invert_block_toeplitz_for_fold(even, odd, self.shape[0])

    def _parities(self) -> list[tuple[int, int, int, int]]:
        # Points in a half of each axis, and the signs under the mirror images.
        half_1, half_2 = ({1: (n + 1) // 2, -1: n // 2} for n in self.shape)
        every = [(half_1[s_1], half_2[s_2], s_1, s_2) for s_1, s_2 in SIGNS]
        return [entry for entry in every if entry[0] * entry[1] > 0]


def _analyse(n: int) -> dict[int, Float[Array, "_ n"]]:
    """The even vectors e_i (key 1) and the odd ones o_i (key -1) of an axis, as rows."""
    identity = np.eye(n)
    even = (identity + identity[::-1])[: (n + 1) // 2] / np.sqrt(2.0)
    odd = (identity - identity[::-1])[: n // 2] / np.sqrt(2.0)
    if n % 2 == 1:
        even[-1] /= np.sqrt(2.0)
    return {1: even[::-1].copy(), -1: odd[::-1].copy()}


# What follows is compiled; `no_type_check` keeps the type checks of the tests out of it.


@compiled()
@no_type_check
def _weights(n, count):
    v = np.ones(count)
    if 2 * count == n + 1:
        v[0] = np.sqrt(0.5)
    return v


@compiled()
@no_type_check
def _assemble(table, p, q, s_1, s_2, block):
    n_1, n_2 = table.shape
    b_1, b_2 = n_1 + 1 - 2 * p, n_2 + 1 - 2 * q
    v_1, v_2 = _weights(n_1, p), _weights(n_2, q)
    f = np.empty((n_1, q, q))
    for h in range(n_1):
        for j in range(q):
            for m in range(q):
                f[h, j, m] = (v_2[j] * v_2[m]) * (
                    table[h, abs(j - m)] + s_2 * table[h, j + m + b_2]
                )
    for i in range(p):
        for j in range(q):
            row = block[i * q + j]
            for k in range(i + 1):
                near, far = f[i - k, j], f[i + k + b_1, j]
                v = v_1[i] * v_1[k]
                for m in range(q):
                    row[k * q + m] = v * (near[m] + s_1 * far[m])


@compiled()
@no_type_check
def _fold(block, p, q, s_1, s_2, table):
    n_1, n_2 = table.shape
    b_1, b_2 = n_1 + 1 - 2 * p, n_2 + 1 - 2 * q
    v_1, v_2 = _weights(n_1, p), _weights(n_2, q)
    f = np.zeros((n_1, q, q))
    for i in range(p):
        for j in range(q):
            row = block[i * q + j]
            for k in range(i):
                near, far = f[i - k, j], f[i + k + b_1, j]
                # Twice: the mirror image of this entry in the upper triangle.
                v = 2.0 * v_1[i] * v_1[k]
                for m in range(q):
                    near[m] += v * row[k * q + m]
                    far[m] += (s_1 * v) * row[k * q + m]
            near, far = f[0, j], f[2 * i + b_1, j]
            for m in range(j + 1):
                v = (1.0 if m == j else 2.0) * v_1[i] * v_1[i]
                near[m] += v * row[i * q + m]
                far[m] += (s_1 * v) * row[i * q + m]
    for h in range(n_1):
        for j in range(q):
            for m in range(q):
                v = v_2[j] * v_2[m]
                table[h, abs(j - m)] += v * f[h, j, m]
                table[h, j + m + b_2] += (s_2 * v) * f[h, j, m]
