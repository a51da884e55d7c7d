"""Bounds and periods are known by the values that come close to them, and by nothing else."""

import numpy as np
import pytest

from keepscore.numerics.bounded import bounds_of, emptiest, period_of

RNG = np.random.default_rng(5)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 100), (-1, 1)])
def test_bounds_are_found_with_holes_and_in_float32(low, high):
    rng = np.random.default_rng(1)
    values = low + (high - low) * rng.beta(2.0, 1.0, 3000)
    assert bounds_of(values) == (low, high)
    values[::3] = np.nan
    assert bounds_of(values) == (low, high)
    assert bounds_of(values.astype(np.float32).astype(float)) == (low, high)


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(0.5, 0.1, 3000),  # far from both
        np.append(RNG.beta(2.0, 1.0, 3000), 1.01),  # one beyond
        np.append(RNG.beta(2.0, 1.0, 3000), 0.0),  # a zero
        RNG.beta(2.0, 1.0, 30),  # too few to come close
        RNG.exponential(0.08, 3000),  # close to zero alone
        np.full(5, np.nan),
        np.zeros(0),
    ],
)
def test_no_bounds(values):
    assert bounds_of(values) is None
    assert period_of(values) is None


def test_angles_come_close_to_both_ends():
    rng = np.random.default_rng(3)
    angle = rng.uniform(-np.pi, np.pi, 4000)
    assert period_of(angle) == (-np.pi, np.pi)
    assert period_of(angle.astype(np.float32).astype(float)) == (-np.pi, np.pi)
    assert period_of(np.degrees(np.mod(angle, 2 * np.pi))) == (0, 360)
    assert period_of(angle[np.abs(angle) < 3.0]) is None
    assert period_of(angle + 0.1) is None


@pytest.mark.parametrize("centre", [-3.0, -1.0, 0.0, 0.7, 3.1])
def test_the_emptiest_direction_is_opposite_to_where_the_angles_are(centre):
    rng = np.random.default_rng(4)
    gap = emptiest(rng.vonmises(centre, 3.0, 4000))
    assert -np.pi <= gap <= np.pi
    assert np.cos(gap - centre) < -0.7
