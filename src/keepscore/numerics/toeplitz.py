"""The inverse of a block Toeplitz matrix, as far as its sums along block diagonals go.

Fix the parity of the second axis: what is left is a symmetric block Toeplitz matrix T of N x N
symmetric q x q blocks. Its inverse is not Toeplitz, but its first block column X = T^-1 E_0 holds
all of it (Gohberg and Semencul, in the block form of Akaike 1973):
    (T^-1)_ab = sum_t X_{a-t} X_0^-1 X_{b-t}' - X_{N-a+t} X_0^-1 X_{N-b+t}'.
A trace of T^-1 against a symmetric block Toeplitz matrix only asks for the sums along its block
diagonals b - a = d, and counting how often each product occurs there leaves
    sum_{b-a=d} (T^-1)_ab  =  sum_{b-a=d} (N - a - b) W_a W_b',      W = X K, K K' = X_0^-1
(up to transposes, which such traces do not see). With the distance D_a = (N-1)/2 - a from the
middle, N - a - b = 1 + D_a + D_b, so T^-1 may be replaced by
    M = W W' + D W W' + W W' D,
a matrix of rank 2q in place of an inverse: O(m^2 q) operations in place of O(m^3).

In the coordinates of `reflection` T falls into an even and an odd block with factors L. D changes
the parity, so M's even block is A B' + B A' with B = W_even, A = W_even/2 + D W_odd, and likewise
its odd block. Points are numbered outwards, so E_0 sits in the last rows, and L^-1 E_0 is nothing
but the inverse of the last q x q corner of L.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float
from scipy.linalg import blas, lapack

from keepscore.numerics.jit import compiled
from keepscore.numerics.linalg import invert_in_place

Array = np.ndarray


def invert_block_toeplitz_for_fold(
    even: Float[Array, "e e"], odd: Float[Array, "o o"], n: int
) -> None:
    """Overwrite the factors of the even and odd blocks of T, n x n blocks, by those of M."""
    q = len(even) // ((n + 1) // 2)
    x_even, x_odd = _last_columns_of_inverse(even, q), _last_columns_of_inverse(odd, q)
    # E_0 has coordinates 1/sqrt(2) in both blocks: X is (x_even, x_odd)/sqrt(2), X_0 half the sum
    # of corners, and the factors 2 cancel in W = X K.
    corner, failed = lapack.dpotrf(x_even[-q:] + x_odd[-q:], lower=1)
    if failed != 0:  # at the edge of double precision the plain inverse still has an answer
        invert_in_place(even)
        invert_in_place(odd)
        return
    w_even, w_odd = (
        blas.dtrsm(1.0, corner, x, side=1, lower=1, trans_a=1, overwrite_b=1)
        for x in (x_even, x_odd)
    )
    a_even, a_odd = _weigh_by_distance(w_even, w_odd, n, q)
    blas.dsyr2k(1.0, a_even, w_even, beta=0.0, c=even.T, lower=0, overwrite_c=1)
    blas.dsyr2k(1.0, a_odd, w_odd, beta=0.0, c=odd.T, lower=0, overwrite_c=1)


def _last_columns_of_inverse(factor: Float[Array, "m m"], q: int) -> Float[Array, "m q"]:
    """The last q columns of S^-1 = L^-T L^-1: those of L^-1 are zero above their corner."""
    right = np.zeros((len(factor), q), order="F")
    right[-q:], _ = lapack.dtrtrs(factor[-q:, -q:].T, np.eye(q), lower=0, trans=1)
    columns, _ = lapack.dtrtrs(factor.T, right, lower=0, overwrite_b=1)
    return columns


@compiled()
@no_type_check
def _weigh_by_distance(w_even, w_odd, n, q):
    """W/2 + D W in both blocks; a middle point has no odd vector, and distance zero."""
    a_even, a_odd = 0.5 * w_even, 0.5 * w_odd
    middle = len(w_even) - len(w_odd)
    for column in range(q):
        for row in range(len(w_odd)):
            distance = row // q + (1.0 if n % 2 == 1 else 0.5)
            a_even[middle + row, column] += distance * w_odd[row, column]
            a_odd[row, column] += distance * w_even[middle + row, column]
    return a_even, a_odd
