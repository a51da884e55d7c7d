"""The low-rank stand-in for the inverse of a block Toeplitz matrix, against the inverse itself.

A trace against a symmetric block Toeplitz matrix asks for nothing but sums along block diagonals,
so the law is checked against every member of a basis of such matrices.
"""

import numpy as np
import pytest
from scipy.linalg import toeplitz

from keepscore.numerics import toeplitz as subject
from keepscore.numerics.toeplitz import invert_block_toeplitz_for_fold

SIZES = [(n, q) for n in (2, 3, 4, 7, 8) for q in (1, 2, 5)]


def block_toeplitz(n, q, seed=0):
    """Positive definite: a sum of products of covariances along and across the blocks."""
    rng = np.random.default_rng(seed)
    whole = 0.3 * np.eye(n * q)
    for length in (0.7, 2.5):
        root = rng.standard_normal((q, q))
        whole += np.kron(toeplitz(np.exp(-np.arange(n) / length)), root @ root.T / q)
    return whole


def basis(n, q):
    """Every symmetric block Toeplitz matrix of symmetric blocks is a sum of these."""
    for d in range(n):
        across = (np.abs(np.subtract.outer(np.arange(n), np.arange(n))) == d).astype(float)
        for i in range(q):
            for j in range(i, q):
                block = np.zeros((q, q))
                block[i, j] = block[j, i] = 1.0
                yield np.kron(across, block)


def parities(n, q):
    """Orthonormal even and odd vectors, (n q, e) and (n q, o), numbered outwards."""
    even, odd = [], []
    if n % 2:
        even.append(np.eye(n)[n // 2])
    for k in reversed(range(n // 2)):
        one, other = np.eye(n)[k], np.eye(n)[n - 1 - k]
        even.append((one + other) / np.sqrt(2))
        odd.append((one - other) / np.sqrt(2))
    return (np.kron(np.array(part).T, np.eye(q)) for part in (even, odd))


def stand_in(matrix, n, q):
    """M (n q, n q) from the factors of the even and odd blocks of a matrix."""
    u, v = parities(n, q)
    blocks = [np.ascontiguousarray(np.linalg.cholesky(p.T @ matrix @ p)) for p in (u, v)]
    invert_block_toeplitz_for_fold(*blocks, n)
    lower = [np.tril(block) + np.tril(block, -1).T for block in blocks]
    return u @ lower[0] @ u.T + v @ lower[1] @ v.T


def largest_gap(matrix, n, q):
    inverse, other = np.linalg.inv(matrix), stand_in(matrix, n, q)
    gaps = [abs(np.sum(inverse * s) - np.sum(other * s)) for s in basis(n, q)]
    return max(gaps) / np.abs(inverse).sum()


@pytest.mark.parametrize(("n", "q"), SIZES)
def test_traces_are_those_of_the_inverse(n, q):
    assert largest_gap(block_toeplitz(n, q), n, q) < 1e-11


def test_it_is_not_the_inverse_and_not_right_for_other_matrices():
    """Negative controls: M differs from T^-1, and the law needs T to be Toeplitz."""
    n, q = 5, 2
    matrix = block_toeplitz(n, q)
    assert np.abs(stand_in(matrix, n, q) - np.linalg.inv(matrix)).max() > 1e-3
    scale = np.repeat([1.0, 1.5, 0.8, 1.5, 1.0], q)  # symmetric under reflection, not Toeplitz
    assert largest_gap(scale[:, None] * matrix * scale, n, q) > 1e-3


def test_where_the_corner_has_no_factor_the_plain_inverse_answers(monkeypatch):
    n, q = 5, 2
    factor = subject.lapack.dpotrf

    class Failing:
        dtrtrs = subject.lapack.dtrtrs

        @staticmethod
        def dpotrf(*arguments, **options):
            return factor(*arguments, **options)[0], 1

    monkeypatch.setattr(subject, "lapack", Failing)
    matrix = block_toeplitz(n, q)
    np.testing.assert_allclose(stand_in(matrix, n, q), np.linalg.inv(matrix), atol=1e-12)
