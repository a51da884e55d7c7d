"""A smooth function at many points of a box, from its values at few: Chebyshev interpolation.

    f(t) ~ sum_k c_k T_k1(u_1) ... T_kd(u_d),    u = t scaled to [-1, 1]^d,    k_a < N

with c from the values at the N^d Chebyshev points cos(pi (i + 1/2) / N), where the transform is
orthogonal and loses nothing to rounding. If f is analytic near the box, the coefficients, and the
error with them, fall geometrically in N: twenty points a side give a smooth network's surface to
the rounding of float32. Nothing is taken on trust: a function counts as resolved only if

    its last two coefficients along every axis, and
    its error at some of the points asked for, where it is evaluated as well,

are below `tolerance` times its largest value. The others are to be evaluated point by point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats

POINTS_PER_SIDE = {1: 40, 2: 20, 3: 16}
CHECKS = 16  # points at which the error is looked at
TAIL = 2  # coefficients an axis that must have died out
ENTRIES_AT_ONCE = 4_000_000


def worthwhile(count: int, d: int) -> bool:
    """Whether interpolating at this many points saves at least half of the evaluations."""
    return d in POINTS_PER_SIDE and count >= 2 * (POINTS_PER_SIDE[d] ** d + CHECKS)


def interpolate(
    evaluate: Callable[[Floats], Floats], points: Floats, tolerance: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """g functions, evaluate(t (k, d)) -> (g, k), at points (m, d): (g, m), and which are resolved.

    The box is the smallest that holds the points.
    """
    m, d = points.shape
    low, high = points.min(axis=0), points.max(axis=0)
    sides = tuple(POINTS_PER_SIDE[d] if w > 0 else 1 for w in high - low)
    half = np.where(high > low, (high - low) / 2, 1.0)
    nodes = low + half * (_unit_nodes(sides) + (high > low))
    # Steps by the golden ratio visit all parts of a grid, in whatever order it is listed.
    chosen = (np.arange(1, CHECKS + 1) * 0.6180339887498949 % 1.0 * m).astype(int)
    values = evaluate(np.concatenate([nodes, points[chosen]]))
    known, checked = values[:, : len(nodes)], values[:, len(nodes) :]
    coefficients = known.reshape(-1, *sides)
    for a, side in enumerate(sides):
        coefficients = _along(coefficients, _transform(side), a)
    unit = np.clip((points - low) / half - (high > low), -1.0, 1.0)
    result = _sum(coefficients, unit)
    allowed = tolerance * np.abs(known).max(axis=1)
    error = np.abs(result[:, chosen] - checked).max(axis=1)
    for a, side in enumerate(sides):
        if side > 1:
            last = coefficients.reshape(len(values), prod(sides[:a]), side, -1)[:, :, -TAIL:]
            error = np.maximum(error, np.abs(last).max(axis=(1, 2, 3)))
    # NaN compares as false: not resolved.
    return result, np.asarray(error <= allowed)


def _sum(coefficients: Floats, unit: Floats) -> Floats:
    """sum_k c_k T_k(u) at u (m, d) for coefficients (g, N_1, ..., N_d): (g, m)."""
    axes = as_tensor_grid(unit)
    if axes is None:
        return _sum_at_points(coefficients, unit)
    for a, axis in enumerate(axes):
        coefficients = _along(coefficients, _polynomials(axis, coefficients.shape[1 + a]).T, a)
    return coefficients.reshape(len(coefficients), -1)


def _sum_at_points(coefficients: Floats, unit: Floats) -> Floats:
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
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)


@cache
def _transform(n: int) -> Floats:
    """Values at n Chebyshev points to coefficients: c_k = (2 - [k = 0]) / n sum_i f_i T_k(u_i)."""
    angle = np.pi * (np.arange(n) + 0.5) / n
    scale = np.where(np.arange(n) == 0, 1.0, 2.0) / n
    return scale[:, None] * np.cos(np.arange(n)[:, None] * angle)
