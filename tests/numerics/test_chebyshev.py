"""Chebyshev interpolation: exact for polynomials, geometric for analytic functions, and honest."""

import numpy as np
import pytest

from keepscore.numerics import chebyshev
from keepscore.numerics.chebyshev import (
    CHECKS,
    NODES_PER_SIDE,
    as_tensor_grid,
    evaluate_all,
    interpolate,
)


def grid(*axes):
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)


def scattered(m, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (m, d)) * rng.uniform(0.5, 3.0, d) + rng.normal(size=d)


class Counting:
    """Functions of points (k, d) -> (g, k), and how many points they were asked for."""

    def __init__(self, *functions):
        self.functions, self.asked = functions, 0

    def __call__(self, points):
        self.asked += len(points)
        return np.stack([f(points) for f in self.functions])


@pytest.mark.parametrize("d", [1, 2, 3])
def test_polynomials_come_back_to_rounding(d):
    # Of degree N - TAIL - 1 in each variable: the highest that leaves the watched coefficients 0.
    side = NODES_PER_SIDE[d][-1]
    degree = side - chebyshev.TAIL - 1
    rng = np.random.default_rng(d)
    roots = rng.uniform(-1, 1, (2, d, degree))
    points = scattered(3000, d)
    low, high = points.min(axis=0), points.max(axis=0)

    def polynomial(k):
        def value(t):
            u = (2 * t - low - high) / (high - low)
            return np.prod(2 * (u[:, :, None] - roots[k]), axis=(1, 2))

        return value

    functions = Counting(polynomial(0), polynomial(1))
    values, resolved = interpolate(functions, points, 1e-10, side)
    expected = functions(points)
    assert resolved.all()
    np.testing.assert_allclose(values, expected, atol=1e-12 * np.abs(expected).max())
    assert functions.asked == side**d + CHECKS + len(points)


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_grid_and_the_same_points_in_any_order(shuffled):
    points = grid(np.linspace(-1, 2, 50), np.linspace(0.5, 0.7, 40))
    if shuffled:
        points = np.random.default_rng(0).permutation(points)
        assert as_tensor_grid(points) is None

    def f(t):
        return np.exp(t[:, 0]) * np.sin(20 * t[:, 1]) - 30 * t[:, 0] ** 2

    values, resolved = interpolate(Counting(f), points, 1e-9, 20)
    assert resolved.all()
    np.testing.assert_allclose(values[0], f(points), atol=1e-9)


def test_only_resolved_functions_are_called_so():
    points = scattered(2000, 2)

    def smooth(t):
        return np.cos(t).sum(axis=1)

    def kinked(t):
        return np.abs(t[:, 0] - points[:, 0].mean())

    def narrow(t):
        # Between the nodes, near one point only: the coefficients see little of it.
        return 100 * np.exp(-0.5 * (((t - points.mean(axis=0)) / 0.05) ** 2).sum(axis=1))

    def broken(t):
        return np.where(t[:, 1] > points[:, 1].mean(), np.nan, 1.0)

    _, resolved = interpolate(Counting(smooth, kinked, narrow, broken), points, 1e-6, 20)
    assert resolved.tolist() == [True, False, False, False]


def test_the_points_asked_for_are_looked_at():
    """A wave that vanishes at all nodes has no coefficients: only the spot checks can see it."""
    points = grid(np.linspace(-1, 1, 60), np.linspace(-1, 1, 60))
    n = 20

    def wave(t):
        return 5.0 + np.cos(n * np.arccos(np.clip(t[:, 0], -1, 1)))  # T_n: zero at n points

    _, resolved = interpolate(Counting(wave), points, 1e-3, n)
    assert not resolved.any()


def test_coefficients_that_have_not_died_out_are_not_trusted():
    """The highest polynomial the nodes can hold comes back exactly, but nothing says it is the
    last one: only the coefficients can tell."""
    points = grid(np.linspace(-1, 1, 60), np.linspace(-1, 1, 60))
    n = 20

    def highest(t):
        return np.cos((n - 1) * np.arccos(np.clip(t[:, 1], -1, 1)))

    values, resolved = interpolate(Counting(highest), points, 1e-3, n)
    np.testing.assert_allclose(values[0], highest(points), atol=1e-10)
    assert not resolved.any()


def test_an_axis_with_one_value_needs_one_node():
    points = grid(np.linspace(0, 1, 900), [0.3])
    functions = Counting(lambda t: np.sin(3 * t[:, 0]) * t[:, 1])
    values, resolved = interpolate(functions, points, 1e-10, 20)
    assert functions.asked == 20 + CHECKS
    assert resolved.all()
    np.testing.assert_allclose(values[0], np.sin(3 * points[:, 0]) * 0.3, atol=1e-12)


def test_tensor_grids_are_recognised():
    axes = [np.array([0.0, 1.0, 3.0]), np.array([2.0, 2.5]), np.array([-1.0])]
    found = as_tensor_grid(grid(*axes))
    assert found is not None
    for a, b in zip(axes, found, strict=True):
        np.testing.assert_array_equal(a, b)
    broken = grid(*axes)
    broken[4, 1] += 1e-9
    assert as_tensor_grid(broken) is None
    assert as_tensor_grid(grid(*axes)[:-1]) is None


def test_what_is_not_resolved_is_tried_with_more_nodes_and_then_evaluated():
    points = grid(np.linspace(-1, 1, 40), np.linspace(-1, 1, 40))
    first, second = NODES_PER_SIDE[2]

    def wave(k):  # a Chebyshev polynomial of degree k in each variable
        return lambda t: np.cos(k * np.arccos(np.clip(t, -1, 1))).prod(axis=1)

    functions = [wave(3), wave(first), lambda t: np.abs(t[:, 0] - 0.1), wave(second - 3)]
    asked = []

    def evaluate(t, rows):
        asked.append((len(t), rows.tolist()))
        return np.stack([functions[i](t) for i in rows])

    values = evaluate_all(evaluate, 4, points, 1e-9)
    np.testing.assert_allclose(values, [f(points) for f in functions], atol=1e-12)
    assert asked == [
        (first**2 + CHECKS, [0, 1, 2, 3]),
        (second**2 + CHECKS, [1, 2, 3]),
        (len(points), [2]),
    ]
    np.testing.assert_array_equal(values[2], functions[2](points))


def test_few_points_or_many_parameters_are_evaluated():
    for points in (grid(np.linspace(0, 1, 8), np.linspace(0, 1, 8)), np.zeros((5000, 4))):
        asked = []

        def evaluate(t, rows, asked=asked):
            asked.append(t)
            return np.tile(t[:, 0], (len(rows), 1))

        values = evaluate_all(evaluate, 2, points, 1e-3)
        np.testing.assert_array_equal(values, np.tile(points[:, 0], (2, 1)))
        assert len(asked) == 1
        assert asked[0] is points


def test_rounding_of_large_values_does_not_count_as_error():
    """Values near 1e6 in float32 are off by .03: a tolerance of .001 cannot be asked for."""
    points = grid(np.linspace(-1, 1, 40), np.linspace(-1, 1, 40))

    def single(t):
        return (1e6 + t.sum(axis=1)).astype(np.float32).astype(float)

    _, resolved = interpolate(Counting(single), points, 1e-3, 17)
    assert resolved.all()


def test_worthwhile_only_where_it_saves_a_quarter_of_the_work():
    least = -(-4 * (289 + CHECKS) // 3)
    assert chebyshev.worthwhile(least, 289)
    assert not chebyshev.worthwhile(least - 1, 289)
