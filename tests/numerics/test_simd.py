"""Several doubles at once, against the same arithmetic one number at a time.

A multiply-add may round once or twice: both answers are computed exactly, and one must come.
"""

from fractions import Fraction

import numba
import numpy as np
import pytest

from keepscore.numerics import simd

SHAPES = [(0,), (0, 0), (0, 0, 0)]  # four, eight and twelve doubles


@numba.njit
def copied(source, out, start, shape):
    simd.store(out, 0, simd.load(source, start, shape))


@numba.njit
def scaled_sum(r, x, y, out, shape):
    simd.store(out, 0, simd.axpy(r, simd.load(x, 0, shape), simd.load(y, 0, shape)))


@numba.njit
def product_sum(x, y, z, out, shape):
    a, b, c = simd.load(x, 0, shape), simd.load(y, 0, shape), simd.load(z, 0, shape)
    simd.store(out, 0, simd.fma(a, b, c))


@numba.njit
def added(x, shape):
    return simd.total(simd.load(x, 0, shape))


@numba.njit
def nothing(out, shape):
    simd.store(out, 0, simd.zeros(shape))


@numba.njit
def swapped(x, neighbours, pairs, shape):
    simd.store(neighbours, 0, simd.swap_neighbours(simd.load(x, 0, shape)))
    simd.store(pairs, 0, simd.swap_pairs(simd.load(x, 0, shape)))


def numbers(n, seed):
    """Of very different sizes, so that roundings show."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n) * 10.0 ** rng.integers(-8, 8, n)


def rounded_once_or_twice(a, b, c):
    return {float(Fraction(a) * Fraction(b) + Fraction(c)), a * b + c}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_loaded_is_stored_and_nothing_beside_it(shape):
    n = simd.LANE * len(shape)
    source, out = numbers(n + 5, 0), np.full(n + 2, np.nan)
    copied(source, out, 3, shape)
    np.testing.assert_array_equal(out[:n], source[3 : 3 + n])
    assert np.isnan(out[n:]).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_multiply_and_add(shape):
    n = simd.LANE * len(shape)
    x, y, z, out = numbers(n, 1), numbers(n, 2), numbers(n, 3), np.empty(n)
    product_sum(x, y, z, out, shape)
    for k in range(n):
        assert out[k] in rounded_once_or_twice(x[k], y[k], z[k])
    r = float(numbers(1, 4)[0])
    scaled_sum(r, x, y, out, shape)
    for k in range(n):
        assert out[k] in rounded_once_or_twice(r, x[k], y[k])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_total_is_the_sum_from_left_to_right(shape):
    x = numbers(simd.LANE * len(shape), 5)
    expected = 0.0
    for value in x.tolist():
        expected += value
    assert added(x, shape) == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_zeros(shape):
    out = np.full(simd.LANE * len(shape), np.nan)
    nothing(out, shape)
    assert not out.any()


@pytest.mark.parametrize("shape", SHAPES)
def test_swaps_flip_one_bit_of_the_place(shape):
    n = simd.LANE * len(shape)
    x, neighbours, pairs = numbers(n, 6), np.empty(n), np.empty(n)
    swapped(x, neighbours, pairs, shape)
    np.testing.assert_array_equal(neighbours, x[np.arange(n) ^ 1])
    np.testing.assert_array_equal(pairs, x[np.arange(n) ^ 2])


def test_the_widest_is_twelve():
    assert simd.WIDEST == simd.LANE * len(SHAPES[-1]) == 12
