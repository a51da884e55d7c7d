"""What a network is shown of a row of x: coordinates in which rows have a density.

    parts of a whole     y_j = log(x_j / x_p),  j < p      (Aitchison 1986)
    other rows           the entries that do not follow from those before them

Rows on a plane (`numerics/redundancy.py`) have no density in x: one that is fitted to them grows
without bound across the plane, and what it says along it is lost beside that. In these coordinates
they have one; y takes parts to numbers without bounds, too. Both only leave out what the rest
tells, so ratios of likelihoods are those of x. A row is all of x (p,), or one of x (n, p).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from keepscore.numerics.redundancy import following, rule_of, whole_of

MOST_ROWS, MOST_ENTRIES = 20_000, 256  # rows that are looked at; entries of a row
LEAST_PART = 1e-37  # of which float32 still has a logarithm
OFF = 1e-3  # of the whole, or of a standard deviation: rows that are off by more are said to be


@dataclass(frozen=True)
class View:
    """What of a row x (..., p) is shown. Nothing is left out where both are None.

    whole: what the parts of every row add up to, if rows are parts. kept: of other rows, the
    entries that are shown. rule: per entry that is not, in their order, its standard deviation,
    a constant and coefficients of the entries that are, from which it follows.
    """

    whole: float | None = None
    kept: tuple[int, ...] | None = None
    rule: tuple[tuple[float, ...], ...] = ()

    def shape(self, x_shape: Sequence[int]) -> tuple[int, ...]:
        """That of what the network sees of x."""
        if self.whole is not None:
            return (*x_shape[:-1], x_shape[-1] - 1)
        return tuple(x_shape) if self.kept is None else (*x_shape[:-1], len(self.kept))

    def shown(self, x: Any) -> Any:
        """What the network sees of x (..., p), of NumPy or JAX."""
        numpy = np if isinstance(x, np.ndarray) else jnp
        if self.whole is not None:
            logs = numpy.log(numpy.maximum(x, LEAST_PART))
            return logs[..., :-1] - logs[..., -1:]
        return x if self.kept is None else x[..., np.array(self.kept)]

    def unlike(self, x: NDArray[Any]) -> NDArray[np.bool_]:
        """Which rows of x are not as all simulations were: parts that are not above zero or add up
        to something else, entries that do not follow from the others. Missing rows are not."""
        rows = np.asarray(x, np.float64)
        if self.whole is not None:
            off = np.abs(rows.sum(axis=-1) - self.whole) > OFF * self.whole
            return np.asarray(off | (rows <= 0).any(axis=-1))
        if self.kept is None:
            return np.zeros(x.shape[:-1], dtype=bool)
        spread, constant, *slopes = np.array(self.rule).T
        follows = constant + self.shown(rows) @ np.array(slopes)
        others = np.setdiff1d(np.arange(x.shape[-1]), self.kept)
        return np.asarray((np.abs(rows[..., others] - follows) > OFF * spread).any(axis=-1))


ALL = View()


def view_of(x: NDArray[Any]) -> View:
    """The view that such x (n, p) or (n, rows, p) need; rows may be missing as a whole."""
    p = x.shape[-1]
    if p < 2 or p > MOST_ENTRIES:
        return ALL
    rows = x.reshape(-1, p)
    rows = np.asarray(rows[:: max(1, len(rows) // MOST_ROWS)], np.float64)
    gone = np.isnan(rows)
    if (gone.any(axis=1) != gone.all(axis=1)).any():  # what is missing may follow from what is not
        return ALL
    whole = whole_of(rows)
    if whole is not None:
        return View(whole=whole)
    left_out = following(rows)
    if not left_out.any():
        return ALL
    kept = tuple(int(j) for j in np.flatnonzero(~left_out))
    rule = tuple(tuple(float(a) for a in one) for one in rule_of(rows, left_out))
    return View(kept=kept, rule=rule)
