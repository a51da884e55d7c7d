"""Cholesky factors of symmetric matrices, in place, for many small matrices in a row.

    S = L L',   log det S = 2 sum log L_ii,   S^-1 = L^-T L^-1.

Matrices are C-ordered and only their lower triangle is read or written. LAPACK is column-major, so
what it sees is the transpose: our lower L is its upper U = L', without a copy. Vectors are rows:
u of shape (n, m) holds n vectors of length m. No jitter is ever added.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.linalg import blas, lapack

from keepscore.errors import NotPositiveDefiniteError

Array = np.ndarray


def cholesky_in_place(matrix: Float[Array, "m m"]) -> None:
    """Overwrite the lower triangle of S by L; the upper triangle keeps whatever it held."""
    _, failed = lapack.dpotrf(matrix.T, lower=0, clean=0, overwrite_a=1)
    if failed != 0:
        raise NotPositiveDefiniteError(
            f"The covariance ({len(matrix)} x {len(matrix)}) is not positive definite: "
            f"the leading minor of order {failed} fails."
        )


def log_determinant(factor: Float[Array, "m m"]) -> float:
    """log det S from L."""
    return 2.0 * float(np.add.reduce(np.log(factor.diagonal())))


def invert_in_place(factor: Float[Array, "m m"]) -> None:
    """Overwrite L by the lower triangle of S^-1."""
    lapack.dpotri(factor.T, lower=0, overwrite_c=1)


def colour(factor: Float[Array, "m m"], z: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """L z: white noise to covariance S."""
    if len(z) == 1:  # the level-2 routine is several times faster for one vector
        return blas.dtrmv(factor.T, z[0], lower=0, trans=1)[None]
    return blas.dtrmm(1.0, factor.T, z.T, lower=0, trans_a=1).T


def whiten(factor: Float[Array, "m m"], u: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """L^-1 u: covariance S to white noise."""
    return _triangular_solve(factor, u, trans=1)


def whiten_transposed(factor: Float[Array, "m m"], z: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """L^-T z, which is S^-1 u when z = L^-1 u."""
    return _triangular_solve(factor, z, trans=0)


def outer_minus(u: Float[Array, "n m"], matrix: Float[Array, "m m"], times: float) -> None:
    """Overwrite the lower triangle of M by sum_i u_i u_i' - times M."""
    blas.dsyrk(1.0, u.T, beta=-times, c=matrix.T, lower=0, overwrite_c=1)


def _triangular_solve(factor: Array, right: Array, trans: int) -> Array:
    solution, _ = lapack.dtrtrs(factor.T, right.T, lower=0, trans=trans)
    return solution.T
