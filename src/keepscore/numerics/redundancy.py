"""Entries of a row that follow from the others, and rows that are parts of a whole.

A total beside its parts, the same length in two units: such rows lie on a plane, where they have no
density. Entry j follows from those before it if what a linear function of these leaves of it has a
standard deviation below 1e-5 of its own, which no network in float32 can tell from none.

Rows are parts of a whole if all entries are above zero and add up to the same number in every row:
shares of time, of sand, silt and clay. They lie on a plane too, and bounded by zero within it. Rows
of two entries are directions if all have the same length. Both are looked for among the other
entries of a row, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats

LEFT = 1e-5  # of the standard deviation of an entry
SUM = 1e-5  # how far sums of parts may differ, of the sum
ONE = 1e-3  # how far a coefficient may be from one
# Rows per entry, below which nothing is said: a plane goes through few points, whatever they are.
ENOUGH = 2


def following(rows: Floats) -> NDArray[np.bool_]:
    """Which entries of rows (m, p) follow from those before them, (p,); rows with NaN do not count.
    None where rows are few."""
    p = rows.shape[1]
    rows = rows[~np.isnan(rows).any(axis=1)]
    if len(rows) <= ENOUGH * (p + 1):
        return np.zeros(p, dtype=bool)
    sd = rows.std(axis=0)
    z = (rows - rows.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    # Entry j of the diagonal is what is left of column j without those before it.
    left = np.abs(np.diag(np.linalg.qr(z, mode="r"))) / np.sqrt(len(z))
    return np.asarray(left < LEFT)


def rule_of(rows: Floats, left_out: NDArray[np.bool_]) -> Floats:
    """How each entry that follows does so, (left out, 2 + kept): its standard deviation, then the
    constant and the coefficients of the entries that are kept; rows with NaN do not count."""
    rows = rows[~np.isnan(rows).any(axis=1)]
    known, found = rows[:, ~left_out], rows[:, left_out]
    mean, sd = known.mean(axis=0), known.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    own, spread = found.mean(axis=0), found.std(axis=0)
    slopes = np.linalg.lstsq((known - mean) / sd, found - own)[0] / sd[:, None]
    return np.column_stack([spread, own - mean @ slopes, slopes.T])


def wholes_in(rows: Floats) -> list[tuple[tuple[int, ...], float]]:
    """Entries of rows (m, p) that are parts of a whole, and what they add up to; no entry twice."""
    left_out = following(rows)
    all_of_it = whole_of(rows) if left_out.sum() <= 1 else None  # two wholes add up to a third
    if all_of_it is not None:
        return [(tuple(range(rows.shape[1])), all_of_it)]
    if not left_out.any():
        return []
    kept, found, taken = np.flatnonzero(~left_out), [], set[int]()
    for j, rule in zip(np.flatnonzero(left_out), rule_of(rows, left_out), strict=True):
        # The last part is the whole less the others.
        parts = sorted(int(i) for i in (*kept[np.abs(rule[2:] + 1) < ONE], j))
        whole = whole_of(rows[:, parts])
        if whole is not None and not taken & set(parts):
            found.append((tuple(parts), whole))
            taken |= set(parts)
    return found


def whole_of(rows: Floats) -> float | None:
    """What the entries of every row (m, p) add up to, if they are parts of a whole; rows with NaN
    do not count."""
    rows = rows[~np.isnan(rows).any(axis=1)]
    p = rows.shape[1]
    if p < 2 or len(rows) <= ENOUGH * (p + 1) or not (rows > 0).all():
        return None
    total = rows.sum(axis=1)
    whole = float(total.mean())
    same = bool(np.abs(total - whole).max() <= SUM * whole)
    return whole if same and bool((rows.std(axis=0) > 0).all()) else None


def directions_in(rows: Floats) -> list[tuple[tuple[int, int], float]]:
    """Pairs of entries of rows (m, p) that are directions in the plane, and their length; rows with
    NaN do not count."""
    rows = rows[~np.isnan(rows).any(axis=1)]
    if rows.shape[1] < 2 or len(rows) <= ENOUGH * 3:
        return []
    squares = rows**2
    mean, cov = squares.mean(axis=0), np.atleast_2d(np.cov(squares.T))
    of_sum = np.diag(cov)[:, None] + np.diag(cov) + 2 * cov  # variances of x_i^2 + x_j^2
    level = mean[:, None] + mean
    pairs = np.argwhere(np.triu(of_sum <= (10 * SUM * level) ** 2, 1))
    found = [((int(i), int(j)), radius_of(rows[:, i], rows[:, j])) for i, j in pairs]
    return [(pair, radius) for pair, radius in found if radius is not None]


def radius_of(first: Floats, second: Floats) -> float | None:
    """The length of all (x, y), if they are directions: the same, and neither entry is."""
    length = np.hypot(first, second)
    radius = float(length.mean())
    same = bool(np.abs(length - radius).max() <= SUM * radius)
    clearly = length.std() <= ONE * min(first.std(), second.std())
    return radius if same and clearly and radius > 0 else None
