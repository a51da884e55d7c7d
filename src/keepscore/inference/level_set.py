"""The region where a smooth function of theta is not positive: its volume, extent, and contact.

A confidence set is {theta : F(theta) <= 0}, F = Lambda - critical value. F is known on an even
grid, k points per side, shared by all groups, and between them by its tensor cubic spline (exact
for a quadratic; the log-likelihood nearly is one). On the spline, which costs nothing to evaluate,

    1  fine grids, each inside the last, find the bounding box of each group's set,
    2  an even grid in that box gives the volume: a cell with value F and gradient F' at its centre
       counts  clip(1/2 - F / sum_a |F'_a| h_a, 0, 1),  nearly the share that a plane cuts off,
       and what two cell sizes give is extrapolated to none.

The spline is checked where the truth is known: at the estimate, F is minus the critical value.
An error of e there changes the volume, which goes as critical^(d/2), by about d e / (2 critical):
that misfit and the size of the last extrapolation make the error reported. Where the misfit exceeds
2 %, as for a likelihood that bends within a cell, the likelihood itself is evaluated on a grid
around the set and the steps repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import make_interp_spline

from keepscore.checks import Floats
from keepscore.likelihood import Integers
from keepscore.space import tensor_grid

POINTS_PER_SIDE = {1: 101, 2: 24, 3: 12}
FINE = 4  # spline points per cell in step 1
CELLS_PER_SIDE = {1: 400, 2: 48, 3: 28}  # step 2
ACCEPTED_MISFIT = 0.02
MOST_ZOOMS = 6
MOST_SHRINKS = 30
ENTRIES_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class LevelSet:
    """F for every group over the box [low, high] (p,), and what is known at the estimates.

    on_grid(theta (m, p)) -> (g, m);  at(theta (m, p), group (m,)) -> (m,);  centre (g, p) lies in
    every set, and critical (g,) is -F there.
    """

    low: Floats
    high: Floats
    centre: Floats
    critical: Floats
    on_grid: Callable[[Floats], Floats]
    at: Callable[[Floats, Integers], Floats]


@dataclass(frozen=True)
class SetExtent:
    """Of each group's set: volume (g,), its relative error (g,) and the spline's part in that (g,),
    bounds (g, p, 2), and whether it reaches the box on each side (g, p, 2)."""

    volume: Floats
    error: Floats
    misfit: Floats
    bounds: Floats
    touches: np.ndarray


def measure(field: LevelSet, points: int | None = None) -> SetExtent:
    """Volume and extent of every group's set."""
    g, p = field.centre.shape
    side = points or POINTS_PER_SIDE.get(p, max(4, int(2000 ** (1 / p))))
    low, high = np.tile(field.low, (g, 1)), np.tile(field.high, (g, 1))
    values = field.on_grid(_lattice(field.low[None], field.high[None], side)[0])
    result = _on_spline(field, _smooth(values), low, high, np.arange(g), side)
    for _ in range(MOST_ZOOMS):
        i = np.flatnonzero(result.misfit > ACCEPTED_MISFIT)
        if len(i) == 0:
            break
        # One old cell around the set and the estimate: a spline this wrong may also misplace it.
        spacing = (high[i] - low[i]) / (side - 1)
        inner = np.minimum(result.bounds[i, :, 0], field.centre[i]) - spacing
        outer = np.maximum(result.bounds[i, :, 1], field.centre[i]) + spacing
        low[i], high[i] = np.maximum(inner, field.low), np.minimum(outer, field.high)
        lattice = _lattice(low[i], high[i], side)
        flat = field.at(lattice.reshape(-1, p), np.repeat(i, lattice.shape[1]))
        better = _on_spline(field, _smooth(flat.reshape(len(i), -1)), low[i], high[i], i, side)
        for name in ("volume", "error", "misfit", "bounds", "touches"):
            getattr(result, name)[i] = getattr(better, name)
    return result


def _on_spline(
    field: LevelSet, values: Floats, low: Floats, high: Floats, group: Integers, side: int
) -> SetExtent:
    """Steps 1 and 2 for some groups, in blocks; low, high (n, p) are the corners of their grids."""
    n, p = low.shape
    cells = CELLS_PER_SIDE.get(p, 10)
    most = max((side - 1) * FINE + 1, cells) ** p
    block = max(1, ENTRIES_AT_ONCE // most)
    parts = []
    for i in range(0, n, block):
        rows = slice(i, i + block)
        cube = values[rows].reshape(-1, *(side,) * p)
        parts.append(_block(field, cube, low[rows], high[rows], group[rows]))
    return SetExtent(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _block(
    field: LevelSet, cube: Floats, low: Floats, high: Floats, group: Integers
) -> tuple[Floats, Floats, Floats, Floats, np.ndarray]:
    n, p, side = len(cube), low.shape[1], cube.shape[1]
    spacing = (high - low) / (side - 1)
    critical = field.critical[group]
    # Positions are in units of grid steps from here on.
    home = np.clip((field.centre[group] - low) / spacing, 0, side - 1)
    first, last, touches = _bounding_box(cube, home)
    touches[:, :, 0] &= low <= field.low
    touches[:, :, 1] &= high >= field.high
    cells = CELLS_PER_SIDE.get(p, 10)
    half, _, _ = _share_inside(cube, first, last, cells // 2)
    full, f, where = _share_inside(cube, first, last, cells)
    # The error of a share goes as the square of the cell's side (Richardson).
    share = np.clip((4 * full - half) / 3, 0.0, 1.0)
    volume = share * ((last - first) * spacing).prod(axis=1)
    at_home = _interpolate(cube, home[:, :, None]).reshape(n)
    misfit = p * np.abs(at_home + critical) / (2 * critical)
    error = misfit + np.abs(full - half) / np.maximum(3 * full, 1e-300)
    ends = _ends(f, where, first, last, touches, home)
    bounds = np.stack([low + e * spacing for e in ends], axis=2)
    return volume, error, misfit, bounds, touches


def _bounding_box(cube: Floats, home: Floats) -> tuple[Floats, Floats, np.ndarray]:
    """Step 1: corners (n, p) of a box around each set, and which sides of the grid it reaches.

    The box shrinks to what it contains until that fills half of it in every direction.
    """
    n, p, side = len(cube), home.shape[1], cube.shape[1]
    share = np.linspace(0, 1, (side - 1) * FINE + 1)
    first, last = np.zeros((n, p)), np.full((n, p), side - 1.0)
    touches = np.zeros((n, p, 2), dtype=bool)
    i = np.arange(n)
    for _ in range(MOST_SHRINKS):
        nodes = first[i, :, None] + (last - first)[i, :, None] * share
        inside = np.asarray(_interpolate(cube[i], nodes) <= 0)
        begin, end = home[i].copy(), home[i].copy()
        for a in range(p):
            seen = np.any(inside, axis=tuple(1 + b for b in range(p) if b != a))
            some, row = np.asarray(seen.any(axis=1)), np.arange(len(i))
            left, right = seen.argmax(axis=1), len(share) - 1 - seen[:, ::-1].argmax(axis=1)
            begin[:, a] = np.where(some, np.minimum(begin[:, a], nodes[row, a, left]), begin[:, a])
            end[:, a] = np.where(some, np.maximum(end[:, a], nodes[row, a, right]), end[:, a])
        touches[i, :, 0], touches[i, :, 1] = begin <= 0, end >= side - 1
        # The set may reach to the next node; a little more leaves a cell of step 2 outside it.
        room = nodes[:, :, 1] - nodes[:, :, 0] + 0.03 * (end - begin)
        begin, end = np.maximum(begin - room, 0), np.minimum(end + room, side - 1)
        shrunk = ((end - begin) < 0.5 * (last - first)[i]).any(axis=1)
        first[i], last[i] = begin, end
        i = i[shrunk]
        if len(i) == 0:
            break
    return first, last, touches


def _share_inside(
    cube: Floats, first: Floats, last: Floats, cells: int
) -> tuple[Floats, Floats, Floats]:
    """Step 2: share of the box inside the set (n,), F at the cells' centres, and the centres along
    each axis (n, p, cells)."""
    p = first.shape[1]
    size = (last - first) / cells
    where = first[:, :, None] + size[:, :, None] * (np.arange(cells) + 0.5)
    f = _interpolate(cube, where)
    reach = np.zeros_like(f)
    for a in range(p):
        slope = _interpolate(cube, where, slope_along=a)
        reach += np.abs(slope) * size[:, a].reshape(-1, *(1,) * p)
    counted = np.clip(0.5 - f / np.maximum(reach, 1e-300), 0.0, 1.0)
    return counted.mean(axis=tuple(range(1, p + 1))), f, where


def _ends(
    f: Floats, where: Floats, first: Floats, last: Floats, touches: np.ndarray, home: Floats
) -> tuple[Floats, Floats]:
    """Where the set begins and ends along each axis, interpolating the lowest F across the rest."""
    begin, end = home.copy(), home.copy()
    for a in range(f.ndim - 1):
        lowest = f.min(axis=tuple(1 + b for b in range(f.ndim - 1) if b != a))
        hits = lowest <= 0
        some = hits.any(axis=1)
        left = _crossing(where[:, a], lowest, hits.argmax(axis=1), -1)
        right = _crossing(where[:, a], lowest, hits.shape[1] - 1 - hits[:, ::-1].argmax(axis=1), 1)
        begin[:, a] = np.where(some, np.minimum(home[:, a], left), home[:, a])
        end[:, a] = np.where(some, np.maximum(home[:, a], right), home[:, a])
    begin = np.where(touches[:, :, 0], np.minimum(begin, first), begin)
    return begin, np.where(touches[:, :, 1], np.maximum(end, last), end)


def _crossing(t: Floats, v: Floats, i: Integers, way: int) -> Floats:
    """Where v (n, m) over t (n, m), not positive at i (n,), crosses zero on its way to i + way."""
    row, j = np.arange(len(t)), np.clip(i + way, 0, t.shape[1] - 1)
    rise = v[row, j] - v[row, i]
    share = np.where(rise > 0, -v[row, i] / np.where(rise > 0, rise, 1.0), 0.0)
    return t[row, i] + (t[row, j] - t[row, i]) * share


def _interpolate(cube: Floats, where: Floats, slope_along: int | None = None) -> Floats:
    """Tensor cubic spline of cube (n, side, ..., side), or its derivative along one axis, on the
    grids with axes where (n, p, m): (n, m, ..., m)."""
    side = cube.shape[1]
    spline = make_interp_spline(np.arange(side), np.eye(side), k=min(3, side - 1))
    values = cube
    for a in range(where.shape[1]):
        basis = spline(where[:, a], nu=1 if a == slope_along else 0)  # (n, m, side)
        moved = np.moveaxis(values, 1 + a, -1)
        shape = moved.shape[:-1]
        flat = moved.reshape(len(cube), -1, side) @ np.swapaxes(basis, 1, 2)
        values = np.moveaxis(flat.reshape(*shape, -1), -1, 1 + a)
    return values


def _lattice(low: Floats, high: Floats, side: int) -> Floats:
    """Even grids over boxes low, high (n, p): (n, side^p, p), last coordinate fastest."""
    share = tensor_grid([np.linspace(0, 1, side)] * low.shape[1])
    # The upper bound itself, not one rounding away from it.
    inner = low[:, None] + (high - low)[:, None] * share
    return np.where(share == 1, high[:, None], inner)


def _smooth(values: Floats) -> Floats:
    """F with impossible theta (infinite F) set to the group's highest finite value."""
    finite = np.isfinite(values)
    if finite.all():
        return values
    highest = np.where(finite, values, -np.inf).max(axis=1, keepdims=True)
    return np.where(finite, values, np.maximum(highest, 1.0))
