"""Equal numbers are alike, whatever their computed standard deviation; others are not."""

import numpy as np
import pytest

from keepscore.numerics.alike import all_alike


@pytest.mark.parametrize("value", [0.0, 0.1, 7.7, -3.3, 1.2247449, 1e6 + 0.1, 1e-300])
@pytest.mark.parametrize("n", [1, 2, 777, 1000])
def test_equal_numbers(value, n):
    values = np.full((n, 3), value)
    values[:, 1] = np.arange(n)
    assert list(all_alike(values)) == [True, n == 1, True]


def test_what_is_rounding_and_what_is_not():
    shares = np.random.default_rng(0).dirichlet(np.ones(7), 1000)
    total = shares.sum(axis=1)
    assert np.ptp(total) > 0
    small = 1.0 + 1e-9 * np.arange(1000)
    assert list(all_alike(np.stack([total, small], axis=1))) == [True, False]


def test_one_other_value_is_enough():
    values = np.full((1000, 2), 0.1)
    values[700, 1] = 0.2
    assert list(all_alike(values)) == [True, False]


def test_nan_is_no_value_and_axes_are_pooled():
    values = np.full((4, 5, 3), 0.1)
    values[0, :, 0], values[:, :, 1] = np.nan, np.nan
    values[2, 3, 2] = 0.3
    assert list(all_alike(values, (0, 1))) == [True, True, False]
    assert all_alike(values, (0, 1, 2)).shape == ()
