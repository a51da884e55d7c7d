"""Smooth functions at many points of a box, from their values at few: Chebyshev interpolation.

    f(t) ~ sum_k c_k T_k1(u_1) ... T_kd(u_d),    u = t scaled to [-1, 1]^d,    k_a < N

with c from the values at the N^d Chebyshev points cos(pi (i + 1/2) / N), where the transform is
orthogonal and loses nothing to rounding. If f is analytic near the box, the coefficients, and the
error with them, fall geometrically in N. Nothing is taken on trust: a function counts as resolved
only if

    its last two coefficients along every axis, and
    its error at some of the points asked for, where it is evaluated as well,

are below `tolerance`. What is not resolved with few nodes is tried again with more, and what is not
resolved then is evaluated point by point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats
from keepscore.space import tensor_grid

NODES_PER_SIDE = {1: (24, 40), 2: (17, 22), 3: (11, 16)}  # first try and second, by d
CHECKS = 16  # points at which the error is looked at
TAIL = 2  # coefficients an axis that must have died out
ROUNDING = 4e-7  # of the largest value: a few roundings of float32, which no tolerance undercuts
ENTRIES_AT_ONCE = 4_000_000
LARGEST_REMEMBERED = 1 << 20  # bytes of points whose plan is kept for the next call

# points (k, d), numbers of functions (j,) -> values (j, k)
Evaluate = Callable[[Floats, NDArray[np.int64]], Floats]


def evaluate_all(evaluate: Evaluate, count: int, points: Floats, tolerance: float) -> Floats:
    """Functions 0 ... count - 1 at points (m, d), each to `tolerance`: (count, m)."""
    values = np.empty((count, len(points)))
    rest = np.arange(count)
    for side in NODES_PER_SIDE.get(points.shape[1], ()):
        if len(rest) and worthwhile(len(points), side ** points.shape[1]):
            of_rest, rows = (lambda t, rows=rest: evaluate(t, rows)), rest
            found, resolved = interpolate(of_rest, points, tolerance, side)
            values[rows[resolved]] = found[resolved]
            rest = rows[~resolved]
    if len(rest):
        values[rest] = evaluate(points, rest)
    return values


def worthwhile(count: int, nodes: int) -> bool:
    """Whether interpolating at this many points saves at least a quarter of the evaluations."""
    return 3 * count >= 4 * (nodes + CHECKS)


def interpolate(
    evaluate: Callable[[Floats], Floats], points: Floats, tolerance: float, side: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """g functions, evaluate(t (k, d)) -> (g, k), at points (m, d): (g, m), and which are resolved.

    The box is the smallest that holds the points, with `side` nodes along each of its edges.
    """
    plan = _plan(points, side)
    values = evaluate(plan.asked)
    known, checked = values[:, : plan.nodes], values[:, plan.nodes :]
    coefficients = known.reshape(-1, *plan.sides)
    for a, n in enumerate(plan.sides):
        coefficients = _along(coefficients, _transform(n), a)
    if plan.bases is None:
        result = _sum_at_points(coefficients, plan.unit)
    else:
        result = coefficients
        for a, basis in enumerate(plan.bases):
            result = _along(result, basis, a)
        result = result.reshape(len(values), -1)
    error = np.abs(result[:, plan.chosen] - checked).max(axis=1)
    for a, n in enumerate(plan.sides):
        if n > 1:
            last = coefficients.reshape(len(values), prod(plan.sides[:a]), n, -1)[:, :, -TAIL:]
            error = np.maximum(error, np.abs(last).max(axis=(1, 2, 3)))
    allowed = np.maximum(tolerance, ROUNDING * np.abs(known).max(axis=1))
    # NaN compares as false: not resolved.
    return result, np.asarray(error <= allowed)


@dataclass(frozen=True)
class _Plan:
    """All that depends on the points alone. asked: the nodes, then the points numbered `chosen`;
    bases: for a full grid, the polynomials along each axis (points, N_a)."""

    sides: tuple[int, ...]
    asked: Floats
    chosen: NDArray[np.int64]
    unit: Floats
    bases: tuple[Floats, ...] | None

    @property
    def nodes(self) -> int:
        return prod(self.sides)


def _plan(points: Floats, side: int) -> _Plan:
    if points.nbytes > LARGEST_REMEMBERED:
        return _make_plan(points, side)
    return _remembered_plan(points.tobytes(), points.shape[1], side)


@lru_cache(maxsize=16)
def _remembered_plan(raw: bytes, d: int, side: int) -> _Plan:
    return _make_plan(np.frombuffer(raw).reshape(-1, d), side)


def _make_plan(points: Floats, side: int) -> _Plan:
    low, high = points.min(axis=0), points.max(axis=0)
    wide = high > low
    sides = tuple(side if w else 1 for w in wide)
    half = np.where(wide, (high - low) / 2, 1.0)
    # Steps by the golden ratio visit all parts of a grid, in whatever order it is listed.
    chosen = (np.arange(1, CHECKS + 1) * 0.6180339887498949 % 1.0 * len(points)).astype(np.int64)
    asked = np.concatenate([low + half * (_unit_nodes(sides) + wide), points[chosen]])
    unit = np.clip((points - low) / half - wide, -1.0, 1.0)
    axes, bases = as_tensor_grid(unit), None
    if axes is not None:
        bases = tuple(_polynomials(u, n).T.copy() for u, n in zip(axes, sides, strict=True))
    return _Plan(sides, asked, chosen, unit, bases)


def _sum_at_points(coefficients: Floats, unit: Floats) -> Floats:
    """sum_k c_k T_k(u) at u (m, d) for coefficients (g, N_1, ..., N_d): (g, m)."""
    g, *sides = coefficients.shape
    m, d = unit.shape
    others = prod(sides[1:])
    first = np.ascontiguousarray(np.swapaxes(coefficients.reshape(g, sides[0], others), 1, 2))
    # Products too small for BLAS to start threads, which would cost more than they save.
    block = max(1, min(512, ENTRIES_AT_ONCE // (g * others)))
    out = np.empty((g, m))
    for i in range(0, m, block):
        t = _polynomials(unit[i : i + block].T, max(sides))  # (N, d, block)
        partial = first @ t[: sides[0], 0]  # (g, N_2 ... N_d, block): points last, side by side
        for a in range(1, d):
            partial = partial.reshape(g, sides[a], -1, partial.shape[-1])
            partial = (partial * t[: sides[a], None, a]).sum(axis=1)
        out[:, i : i + block] = partial.reshape(g, -1)
    return out


def _along(values: Floats, matrix: Floats, a: int) -> Floats:
    """Apply a matrix (p, q) along axis 1 + a, of length q, of values (g, ...)."""
    g, *sides = values.shape
    flat = values.reshape(g, prod(sides[:a]), sides[a], prod(sides[a + 1 :]))
    return (matrix @ flat).reshape(g, *sides[:a], len(matrix), *sides[a + 1 :])


def as_tensor_grid(points: Floats) -> list[Floats] | None:
    """The axes of a full grid listed with its last coordinate fastest, or None if it is not one."""
    rest, axes, sizes = points, [], []
    for a in range(points.shape[1]):
        moved = rest[:, a] != rest[0, a]
        step = int(moved.argmax()) or len(rest)
        axes.append(rest[::step, a])
        sizes.append(len(axes[-1]))
        rest = rest[:step]
    if prod(sizes) != len(points):
        return None
    cube = points.reshape(*sizes, len(sizes))
    shapes = [(1,) * a + (-1,) + (1,) * (len(sizes) - a - 1) for a in range(len(sizes))]
    same = all((cube[..., a] == axes[a].reshape(shape)).all() for a, shape in enumerate(shapes))
    return axes if same else None


def _polynomials(u: Floats, count: int) -> Floats:
    """T_0 ... T_(count - 1) at u: (count, *u.shape), by T_k = 2 u T_(k-1) - T_(k-2)."""
    rows = np.empty((count, *u.shape))
    rows[0] = 1.0
    if count > 1:
        rows[1] = u
    twice = 2 * u
    for k in range(2, count):
        np.multiply(twice, rows[k - 1], out=rows[k])
        rows[k] -= rows[k - 2]
    return rows


@cache
def _unit_nodes(sides: tuple[int, ...]) -> Floats:
    """The tensor grid of Chebyshev points, (prod sides, d), last coordinate fastest."""
    axes = [np.cos(np.pi * (np.arange(n) + 0.5) / n) for n in sides]
    return tensor_grid(axes)


@cache
def _transform(n: int) -> Floats:
    """Values at n Chebyshev points to coefficients: c_k = (2 - [k = 0]) / n sum_i f_i T_k(u_i)."""
    angle = np.pi * (np.arange(n) + 0.5) / n
    scale = np.where(np.arange(n) == 0, 1.0, 2.0) / n
    return scale[:, None] * np.cos(np.arange(n)[:, None] * angle)
