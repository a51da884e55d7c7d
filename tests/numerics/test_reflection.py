"""The block form against the full covariance, and its adjoint; the dense form; the factor."""

import numpy as np
import pytest

from keepscore.errors import DomainError, NotPositiveDefiniteError
from keepscore.numerics import linalg
from keepscore.numerics.covariance import StationaryCovariance
from keepscore.numerics.dense import DenseBlocks
from keepscore.numerics.kernels import KERNELS, correlation_and_slopes
from keepscore.numerics.reflection import GridBlocks

SHAPES = [(5, 5), (4, 4), (4, 7), (7, 4), (6, 5), (1, 6), (3, 1), (2, 2), (1, 1)]


def full(table):
    """The S x S covariance of a table of lags, entry by entry."""
    i, j = np.indices(table.shape).reshape(2, -1)
    return table[abs(i[:, None] - i), abs(j[:, None] - j)]


def symmetric(lower):
    return np.tril(lower) + np.tril(lower, -1).T


def rotation(grid):
    """The change of coordinates as a matrix: rows are the basis vectors of all blocks."""
    s = int(np.prod(grid.shape))
    return np.concatenate(grid.to_blocks(np.eye(s).reshape(s, *grid.shape)), axis=1).T


@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_are_the_whole_covariance(shape):
    rng = np.random.default_rng(1)
    grid, table = GridBlocks(shape, (0.3, 0.2)), rng.normal(size=shape)
    q = rotation(grid)
    np.testing.assert_allclose(q @ q.T, np.eye(len(q)), atol=1e-14)
    rest = q @ full(table) @ q.T
    blocks = grid.allocate()
    grid.assemble(table, blocks)
    start = 0
    for block in blocks:
        here = slice(start, start + len(block))
        np.testing.assert_allclose(symmetric(block), rest[here, here], atol=1e-13)
        rest[here, here] = 0.0
        start += len(block)
    assert start == table.size
    np.testing.assert_allclose(rest, 0.0, atol=1e-13)


def test_a_covariance_that_is_not_even_in_each_axis_does_not_split():
    i, j = np.indices((5, 5)).reshape(2, -1)
    sheared = np.exp(-np.hypot(i[:, None] - i + 0.5 * (j[:, None] - j), j[:, None] - j))
    grid = GridBlocks((5, 5), (1.0, 1.0))
    rest = rotation(grid) @ sheared @ rotation(grid).T
    assert np.abs(rest[:9, 9:]).max() > 0.01


def test_sizes_of_the_paper_grid():
    assert GridBlocks((25, 25), (0.25, 0.25)).sizes == (169, 156, 156, 144)


@pytest.mark.parametrize("shape", SHAPES)
def test_fold_is_the_adjoint_of_assemble(shape):
    rng = np.random.default_rng(2)
    grid, table = GridBlocks(shape, (0.3, 0.2)), rng.normal(size=shape)
    blocks = grid.allocate()
    grid.assemble(table, blocks)
    matrices = [m + m.T for m in (rng.normal(size=b.shape) for b in blocks)]
    trace = sum(np.trace(m @ symmetric(b)) for m, b in zip(matrices, blocks, strict=True))
    # Only the lower triangle counts: whatever stands above must not be read.
    for m in matrices:
        m[np.triu_indices(len(m), 1)] = np.nan
    np.testing.assert_allclose(np.sum(grid.fold(matrices) * table), trace, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [*SHAPES, (9, 8), (8, 9)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_folded_inverse_is_that_of_the_inverse(shape, kernel):
    grid = GridBlocks(shape, (0.4, 0.3))
    table, _, _ = correlation_and_slopes(kernel, *grid.lags, 0.9, 1.4)
    table[grid.diagonal] += 0.01
    factors = grid.allocate()
    grid.assemble(table, factors)
    for factor in factors:
        linalg.cholesky_in_place(factor)
    plain = [factor.copy() for factor in factors]
    for matrix in plain:
        linalg.invert_in_place(matrix)
    grid.invert_for_fold(factors)
    expected = grid.fold(plain)
    np.testing.assert_allclose(grid.fold(factors), expected, atol=1e-10 * np.abs(expected).max())
    # The trace of the identity: the whole adjoint at once, by the covariance itself.
    assert np.sum(grid.fold(factors) * table) == pytest.approx(table.size, rel=1e-9)


def test_where_the_block_column_fails_the_plain_inverse_serves():
    grid = GridBlocks((4, 2), (1.0, 1.0))
    factors = [np.diag([2.0, 1e200]) for _ in grid.sizes]  # a corner of the inverse underflows
    grid.invert_for_fold(factors)
    for matrix in factors:
        np.testing.assert_array_equal(np.tril(matrix), np.diag([0.25, 0.0]))


@pytest.mark.parametrize("shape", SHAPES)
def test_coordinates_keep_lengths_and_come_back(shape):
    x = np.random.default_rng(3).normal(size=(4, *shape))
    grid = GridBlocks(shape, (1.0, 1.0))
    blocks = grid.to_blocks(x)
    assert tuple(u.shape[1] for u in blocks) == grid.sizes
    np.testing.assert_allclose(sum((u**2).sum(1) for u in blocks), (x**2).sum((1, 2)), rtol=1e-13)
    np.testing.assert_allclose(grid.from_blocks(blocks), x, atol=1e-14)


@pytest.mark.parametrize("shape", [(5, 4), (3, 3)])
def test_grid_and_dense_forms_agree(shape):
    rng = np.random.default_rng(4)
    grid = GridBlocks(shape, (0.4, 0.3))
    places = np.indices(shape).reshape(2, -1).T * np.array([0.4, 0.3])
    one = StationaryCovariance("matern32", grid)
    other = StationaryCovariance("matern32", DenseBlocks(places))
    for covariance in (one, other):
        covariance.factorise(0.8, 1.3, 0.2, 1.7)
    assert one.log_determinant == pytest.approx(other.log_determinant, rel=1e-12)
    x = rng.normal(size=(6, *shape))
    z_1 = one.whiten([u.reshape(2, 3, -1) for u in grid.to_blocks(x)])
    z_2 = other.whiten([x.reshape(2, 3, -1)])
    q_1, q_2 = (sum((z**2).sum(-1) for z in zs) for zs in (z_1, z_2))
    np.testing.assert_allclose(q_1, q_2, rtol=1e-11)
    weight = rng.uniform(0.5, 2.0, size=(2, 3))
    slopes_1, slopes_2 = one.gradient(z_1, weight), other.gradient(z_2, weight)
    for name in ("l_x", "l_y", "eps", "sigma2"):
        np.testing.assert_allclose(slopes_1[name], slopes_2[name], rtol=1e-9)


def test_gradient_is_that_of_the_weighted_gaussian():
    rng = np.random.default_rng(5)
    grid = GridBlocks((4, 5), (0.4, 0.3))
    covariance = StationaryCovariance("matern52", grid)
    u, weight = grid.to_blocks(rng.normal(size=(3, 4, 5))), rng.uniform(0.5, 2.0, size=(1, 3))
    u = [v[None] for v in u]
    at = {"l_x": 0.8, "l_y": 1.3, "eps": 0.2, "sigma2": 1.7}

    def objective(**changed):
        covariance.factorise(**{**at, **changed})
        q = sum((z**2).sum(-1) for z in covariance.whiten(u))
        return -0.5 * (3 * covariance.log_determinant + (weight * q).sum())

    covariance.factorise(**at)
    slopes = covariance.gradient(covariance.whiten(u), weight)
    for name, value in at.items():
        h = 1e-6
        difference = (objective(**{name: value + h}) - objective(**{name: value - h})) / (2 * h)
        assert slopes[name][0] == pytest.approx(difference, rel=1e-6)


def test_factor_helpers_read_and_write_the_lower_triangle_only():
    rng = np.random.default_rng(6)
    a = rng.normal(size=(7, 7))
    s = a @ a.T + np.eye(7)
    expected = np.linalg.cholesky(s)
    work = s.copy()
    work[np.triu_indices(7, 1)] = np.nan
    linalg.cholesky_in_place(work)
    np.testing.assert_allclose(np.tril(work), expected, rtol=1e-12)
    assert linalg.log_determinant(work) == pytest.approx(np.linalg.slogdet(s)[1], rel=1e-12)
    for n in (0, 1, 3):
        z = rng.normal(size=(n, 7))
        np.testing.assert_allclose(linalg.colour(work, z), z @ expected.T, atol=1e-12)
        np.testing.assert_allclose(linalg.whiten(work, z @ expected.T), z, atol=1e-12)
        np.testing.assert_allclose(linalg.whiten_transposed(work, z @ expected), z, atol=1e-12)
    linalg.invert_in_place(work)
    np.testing.assert_allclose(np.tril(work), np.tril(np.linalg.inv(s)), atol=1e-12)
    u = rng.normal(size=(3, 7))
    linalg.outer_minus(u, work, 3.0)
    np.testing.assert_allclose(np.tril(work), np.tril(u.T @ u - 3 * np.linalg.inv(s)), atol=1e-12)


def test_no_factor_is_an_error_and_never_jittered():
    singular = np.array([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(NotPositiveDefiniteError, match="order 2"):
        linalg.cholesky_in_place(singular)
    covariance = StationaryCovariance("exponential", GridBlocks((3, 3), (1.0, 1.0)))
    with pytest.raises(NotPositiveDefiniteError):
        covariance.factorise(1e20, 1e20, 0.0, 1.0)
    with pytest.raises(DomainError, match="not finite"):
        covariance.factorise(1.0, 1.0, 1e200, 1.0)
