"""Where exact values are asked for: a cloud in each confidence set, and the places to choose in it.

A cloud of theta fills the ellipsoid |factor' (theta - centre)| <= radius of a group and is cut by
the box. The first places are spread over it, each the farthest from those before; later ones are
where the interpolation is least sure, each away from those before it.

Many models factorise once per theta and then answer for any number of groups. So where there are
several groups, places are points of a lattice that they share: rounded candidates, about PER_PLACE
of them in a set for each place that may be asked for. Steps of all groups are m_k 2^j (m_k the
median over groups, j an integer per group and parameter), so that sets of about the same size have
the same lattice. Group after group chooses, and a theta that a group before it has chosen in
the same round counts BONUS times as much.
"""

from __future__ import annotations

from math import gamma, pi

import numpy as np

from keepscore.checks import Floats
from keepscore.likelihood import Integers

PER_PLACE = 3.0
BONUS = 1.5
WITHIN = 0.8  # of the radius: beyond, first places teach an interpolant less


def cloud_of(
    centre: Floats, factor: Floats, radius: float, unit: Floats, low: Floats, high: Floats
) -> Floats:
    """Candidates (g, c, d): unit (c, d), points of the unit ball, in each ellipsoid and the box."""
    back = np.linalg.inv(factor)
    offset = np.einsum("mj,gji->gmi", radius * unit, back)
    return np.clip(centre[:, None] + offset, low, high)


def lattice_steps(curvature: Floats, radius: float, places: int) -> Floats:
    """Steps (g, d) of each group's lattice; curvature (g, d, d) of its log-likelihood."""
    d = curvature.shape[1]
    ball = pi ** (d / 2) / gamma(d / 2 + 1)
    share = radius * (ball / (PER_PLACE * places)) ** (1 / d)
    own = share / np.sqrt(np.diagonal(curvature, axis1=1, axis2=2))
    middle = np.median(own, axis=0)
    return np.asarray(middle * 2.0 ** np.round(np.log2(own / middle)))


def on_lattice(theta: Floats, steps: Floats, low: Floats, high: Floats) -> Floats:
    """Theta (g, m, d) moved to the nearest points of lattices with steps (g, d), in the box."""
    steps = steps[:, None]
    return np.clip(low + steps * np.round((theta - low) / steps), low, high)


def spread(u: Floats, theta: Floats, wanted: Floats, radius: float, n: int) -> Integers:
    """Indices (g, n) of candidates u (g, c, d), theta (g, c, d): first one in the middle, then
    always one far from all before. wanted (c,): how much each is."""
    if len(u) == 0:
        return np.zeros((0, n), dtype=np.int64)
    size = np.sqrt((u**2).sum(axis=2))
    _, same = np.unique(theta.reshape(-1, theta.shape[2]), axis=0, return_inverse=True)
    same = same.reshape(size.shape)
    taken = np.zeros(same.max() + 1, dtype=bool)
    chosen = np.empty((len(u), n), dtype=np.int64)
    for i in range(len(u)):
        liked = wanted * np.where(taken[same[i]], BONUS, 1.0)
        chosen[i, 0] = np.argmax(liked / (1 + size[i]))
        apart = np.full(len(wanted), np.inf)
        reachable = np.where(size[i] > WITHIN * radius, 0.0, liked)
        for j in range(1, n):
            gap = ((u[i] - u[i, chosen[i, j - 1]]) ** 2).sum(axis=1)
            apart = np.minimum(apart, gap)
            chosen[i, j] = np.argmax(apart * reachable)
        taken[same[i, chosen[i]]] = True
    return chosen


def least_sure(u: Floats, theta: Floats, score: Floats, length: Floats, n: int) -> Integers:
    """Indices (g, n) of candidates u (g, c, d), theta (g, c, d) with the highest score (g, c), each
    away from those before it; length (g,): how far apart two places tell different things."""
    if len(u) == 0:
        return np.zeros((0, n), dtype=np.int64)
    _, same = np.unique(theta.reshape(-1, theta.shape[2]), axis=0, return_inverse=True)
    same = same.reshape(score.shape)
    taken = np.zeros(same.max() + 1, dtype=bool)
    chosen = np.empty((len(u), n), dtype=np.int64)
    for i in range(len(u)):
        now = score[i] * np.where(taken[same[i]], BONUS, 1.0)
        for j in range(n):
            chosen[i, j] = best = int(np.argmax(now))
            gap = ((u[i] - u[i, best]) ** 2).sum(axis=1)
            now = now * -np.expm1(-gap / min(length[i], 3.0) ** 2)
        taken[same[i, chosen[i]]] = True
    return chosen
