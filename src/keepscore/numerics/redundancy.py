"""Entries of a row that follow from the others, and rows that are parts of a whole.

A total beside its parts, the same length in two units: such rows lie on a plane, where they have no
density. Entry j follows from those before it if what a linear function of these leaves of it has a
standard deviation below 1e-5 of its own, which no network in float32 can tell from none.

Rows are parts of a whole if all entries are above zero and add up to the same number in every row:
shares of time, of sand, silt and clay. They lie on a plane too, and bounded by zero within it. Rows
of two entries are directions if all have the same length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats

LEFT = 1e-5  # of the standard deviation of an entry
SUM = 1e-5  # how far sums of parts may differ, of the sum
# Rows per entry, below which nothing is said: a plane goes through few points, whatever they are.
ENOUGH = 2


def following(rows: Floats) -> NDArray[np.bool_]:
    """Which entries of rows (m, p) follow from those before them, (p,); rows with NaN do not count.
    None where rows are few."""
    p = rows.shape[1]
    found = np.zeros(p, dtype=bool)
    rows = rows[~np.isnan(rows).any(axis=1)]
    if len(rows) <= ENOUGH * (p + 1):
        return found
    sd = rows.std(axis=0)
    z = (rows - rows.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    basis = np.zeros((len(rows), 0))  # orthonormal, of the entries so far
    for j in range(p):
        left = z[:, j]
        for _ in range(2):  # twice, against rounding
            left = left - basis @ (basis.T @ left)
        found[j] = np.sqrt(np.mean(left**2)) < LEFT
        if not found[j]:
            basis = np.column_stack([basis, left / np.linalg.norm(left)])
    return found


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


def radius_of(rows: Floats) -> float | None:
    """The length of all rows (m, 2), if they are directions; rows with NaN do not count."""
    rows = rows[~np.isnan(rows).any(axis=1)]
    if rows.shape[1] != 2 or len(rows) <= ENOUGH * 3:
        return None
    length = np.hypot(rows[:, 0], rows[:, 1])
    radius = float(length.mean())
    same = bool(np.abs(length - radius).max() <= SUM * radius)
    return radius if same and bool((rows.std(axis=0) > SUM * radius).any()) else None
