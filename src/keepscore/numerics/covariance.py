"""A stationary covariance of the plane, factorised: Sigma = sigma2 rho(r) + eps^2 I = L L'.

All that a density, a draw and a gradient need of Sigma: log det, L z, L^-1 u, L^-T z, and
    t_k = tr(A dSigma/dk) / 2    for k in l_x, l_y, eps, sigma2,
    A   = sum_i w_i alpha_i alpha_i' - n Sigma^-1,
the gradient of -(n log det Sigma + sum_i w_i u_i' Sigma^-1 u_i)/2 at fixed w, with
alpha = Sigma^-1 u. A is folded once onto the table of lags; each dSigma/dk is a table too.
Vectors b_j that belong to every one of the n add n sum_j b_j b_j' to A (see `contrasts`).

One object holds the memory for one Sigma at a time: `factorise` fills it, `gradient` comes last
because it overwrites L by Sigma^-1. Vectors come per block, as rows: (g, n, m_b).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from keepscore.errors import DomainError
from keepscore.numerics import linalg
from keepscore.numerics.dense import DenseBlocks
from keepscore.numerics.kernels import correlation_and_slopes
from keepscore.numerics.reflection import GridBlocks
from keepscore.numerics.some_places import SomePlaces

Array = np.ndarray
Rows = Float[Array, "g n _"]


class StationaryCovariance:
    """Room for one factorised covariance, in the block form of a grid or dense."""

    def __init__(self, kernel: str, blocks: GridBlocks | DenseBlocks | SomePlaces) -> None:
        self.kernel = kernel
        self.blocks = blocks
        self.log_determinant = np.nan
        self._lags = blocks.lags
        self._factors = blocks.allocate()

    def factorise(self, l_x: float, l_y: float, eps: float, sigma2: float) -> None:
        """Form Sigma and overwrite it by L."""
        self._l_x, self._l_y, self._eps, self._sigma2 = l_x, l_y, eps, sigma2
        self._rho, self._slope_x, self._slope_y = correlation_and_slopes(
            self.kernel, *self._lags, l_x, l_y
        )
        table = sigma2 * self._rho
        table[self.blocks.diagonal] += eps * eps
        # LAPACK would carry infinities and NaN through without a word.
        if not np.isfinite(table).all():
            raise DomainError("The covariance is not finite.")
        self.blocks.assemble(table, self._factors)
        for factor in self._factors:
            linalg.cholesky_in_place(factor)
        self.log_determinant = sum(linalg.log_determinant(factor) for factor in self._factors)

    def colour(self, z: list[Rows]) -> list[Rows]:
        """L z: from white noise to covariance Sigma."""
        return [_rowwise(linalg.colour, L, v) for L, v in zip(self._factors, z, strict=True)]

    def whiten(self, u: list[Rows]) -> list[Rows]:
        """L^-1 u: from covariance Sigma to white noise."""
        return [_rowwise(linalg.whiten, L, v) for L, v in zip(self._factors, u, strict=True)]

    def gradient(
        self,
        z: list[Rows],
        weight: Float[Array, "g n"],
        spent: list[Float[Array, "p _"]] | None = None,
    ) -> dict[str, Float[Array, " g"]]:
        """t_k for each of g groups of n vectors u = L z; afterwards L is gone. spent: rows q_j, for
        which b_j = L^-T q_j."""
        root = np.sqrt(weight)[..., None]
        alphas = [
            root * _rowwise(linalg.whiten_transposed, L, v)
            for L, v in zip(self._factors, z, strict=True)
        ]
        g, n = weight.shape
        if spent is not None:
            alphas = [
                np.concatenate([alpha, np.broadcast_to(b, (g, *b.shape))], axis=1)
                for alpha, b in zip(alphas, self._spent(spent, n), strict=True)
            ]
        self.blocks.invert_for_fold(self._factors)
        folded = np.empty((g, *self._rho.shape))
        for k in range(g):
            last = k == g - 1
            matrices = self._factors if last else [inverse.copy() for inverse in self._factors]
            for alpha, matrix in zip(alphas, matrices, strict=True):
                linalg.outer_minus(alpha[k], matrix, float(n))
            folded[k] = self.blocks.fold(matrices)
        return self._contract(folded)

    def _spent(self, rows: list[Float[Array, "p _"]], n: int) -> list[Float[Array, "p _"]]:
        """b_j, times the root of n."""
        return [
            np.sqrt(float(n)) * linalg.whiten_transposed(L, q)
            for L, q in zip(self._factors, rows, strict=True)
        ]

    def _contract(self, folded: Float[Array, "g a b"]) -> dict[str, Float[Array, " g"]]:
        half = 0.5 * folded.reshape(len(folded), -1)
        diagonal = 0.5 * folded[(slice(None), *self.blocks.diagonal)].reshape(len(folded), -1)
        return {
            "l_x": half @ self._slope_x.ravel() * (self._sigma2 / self._l_x),
            "l_y": half @ self._slope_y.ravel() * (self._sigma2 / self._l_y),
            "eps": diagonal.sum(axis=1) * (2.0 * self._eps),
            "sigma2": half @ self._rho.ravel(),
        }


def _rowwise(
    operation: Callable[[Array, Array], Array], factor: Float[Array, "m m"], rows: Rows
) -> Rows:
    g, n, m = rows.shape
    return operation(factor, rows.reshape(g * n, m)).reshape(g, n, m)
