"""Whether the order of the entries of x means something: are neighbours other than any two entries?

With u_t the ranks of entry t over n simulations, centred and scaled, let c_ts be one of

    mean(u_t u_s),    mean(v_t v_s),    v the squares of u, centred and scaled.

Neighbours may be more alike than other entries (weeks of an epidemic), or less (a crash follows
upon growth, while theta makes all times alike). Were the order a matter of chance, the mean of c
over the T - 1 neighbours would scatter around that of all pairs by sd(c) / sqrt(T - 1), whatever
theta does to all entries. The squares see what the values do not: returns that are uncorrelated
and wild in the same weeks.

This is a screening, not a test of a series: what it lets through is trained and held against
what "auto" takes otherwise (`training/candidates.py`).
"""

from __future__ import annotations

import numpy as np

from keepscore.checks import Floats
from keepscore.numerics.dependence import scaled_ranks

BEYOND = 3.0  # standard deviations: of orders by chance, one in some 200 passes per channel


def order_matters(x: Floats) -> bool:
    """Of x (n, T) or (n, T, channels): in one channel at least, by values or by squares."""
    channels = x.reshape(*x.shape[:2], -1)
    return any(
        abs(excess(moment)) > BEYOND
        for k in range(channels.shape[2])
        for moment in scaled_ranks(channels[:, :, k])
    )


def excess(values: Floats) -> float:
    """How many standard deviations the neighbours among the columns (n, T) are above all pairs."""
    correlation = values.T @ values / len(values)
    each = correlation[np.triu_indices(len(correlation), 1)]
    near = np.diagonal(correlation, 1)
    sd = float(each.std())
    if sd < 1e-12:  # all alike
        return 0.0
    return float((near.mean() - each.mean()) / sd * np.sqrt(len(near)))
