"""Which entries of x tell of theta: a screening by correlations of ranks and of their squares.

With u_j the ranks of entry x_j over n simulations and v those of a parameter or of a score, both
centred and scaled to variance 1, the statistics of a pair are

    z = sqrt(n) mean(f(u_j) g(v)),    f, g in { id, square },  squares centred and scaled too

u v sees that v moves an entry, u^2 v that it stretches it, the squares of v that its sign does not
matter. If entry and v are independent, each z is normal with variance 1 for large n. An entry tells
of theta if some |z| exceeds the two-sided normal quantile of .01 / (number of all z): of all
entries that tell nothing, one in a hundred data sets has a single one chosen.

The scores are asked besides theta because an entry may be independent of theta and matter all the
same: a covariate (x_1 of x_2 = theta x_1 + noise) sets the size of the score.

What only shows jointly (two entries whose ranks are each independent of theta and of the scores)
is not seen. A choice by this screening is held against one without it (`training/candidates.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from keepscore.checks import Floats

LEVEL = 0.01


def telling(x: Floats, theta: Floats, score: Floats | None = None) -> NDArray[np.bool_]:
    """Which entries of x (n, p) depend on theta (n, d) or the scores (n, d): (p,)."""
    beside = theta if score is None else np.concatenate([theta, score], axis=1)
    z = np.abs(statistics(x, beside))
    return np.asarray((z > stats.norm.isf(LEVEL / 2 / z.size)).any(axis=1))


def statistics(x: Floats, beside: Floats) -> Floats:
    """z of each entry of x (n, p) with each column of `beside` (n, m): (p, 4 m)."""
    both = [np.concatenate(scaled_ranks(values), axis=1) for values in (x, beside)]
    z = both[0].T @ both[1] / np.sqrt(len(x))  # (2 p, 2 m)
    return np.concatenate(np.split(z, 2), axis=1)


def scaled_ranks(values: Floats) -> tuple[Floats, Floats]:
    """Scaled ranks of each column, and their scaled squares; 0 of what does not vary."""
    ranks = _scaled(stats.rankdata(values, axis=0))
    return ranks, _scaled(ranks**2)


def _scaled(values: Floats) -> Floats:
    away = values - values.mean(axis=0)
    sd = away.std(axis=0)
    return np.asarray(np.where(sd > 1e-9, away / np.where(sd > 1e-9, sd, 1.0), 0.0))
