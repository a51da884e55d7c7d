"""The region that is refined: an ellipsoid around a confidence set, found from values alone.

The set {theta in the box: Lambda(theta) <= c} need not be what the curvature at the maximum says: a
parameter that the data hardly know has a long tail on one side, down to the edge of the box. So

    1  from the maximum, along both directions of every eigenvector v_j of the curvature, the set
       ends at t_j+ and t_j-; an ellipsoid in the middle has half axes (t_j+ + t_j-) / 2,
    2  a cloud fills the ellipsoid; those of its points that lie in the set are particles that walk
       through all of it: each moves by a multiple of the difference of two others, if that leads
       to a place in the set (differential evolution; ter Braak 2006),
    3  the smallest ellipsoid around the particles is another one: its covariance is that of weights
       w on the particles which maximise its determinant (Titterington 1978), found by

           w_i <- w_i q_i' M^-1 q_i / (d + 1),    q_i = (theta_i, 1),   M = sum_i w_i q_i q_i'.

       A tail widens it along the tail and nowhere else.

An ellipsoid is centre m (d,) and factor F (d, d): |F'(theta - m)| <= sqrt(c) is about the set, and
a little more of it is looked at, up to a radius R > sqrt(c). It is widened until all points of the
set that were seen are within R. Everything is done for many groups at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keepscore.checks import Floats
from keepscore.inference.bfgs import make_positive
from keepscore.inference.statistic import drop
from keepscore.likelihood import Integers, Maximum

DOUBLINGS, HALVINGS = 8, 6  # of a step along an axis, to find where the set ends
MARGIN = 1.15  # between the farthest point of the set that was seen and R
STRIDES = (0.3, 1.2)  # of a difference of two particles
FEWEST = 8  # points of a set, times d, for an ellipsoid around them
TINY = 1e-12
WEIGHINGS = 60  # rounds of weights for the smallest ellipsoid
THINNEST = 0.04  # squared half axis, of the ellipsoid before: a set seen as flat is not flat

Values = Callable[[Floats, Integers], Floats]


class Ellipsoid(NamedTuple):
    """Centres (g, d) and factors (g, d, d) of g groups."""

    centre: Floats
    factor: Floats

    def chart(self, theta: Floats) -> Floats:
        """F'(theta - m) (g, n, d) of theta (g, n, d)."""
        return np.einsum("gji,gnj->gni", self.factor, theta - self.centre[:, None])

    def norm(self, theta: Floats) -> Floats:
        """|F'(theta - m)| (g, n) of theta (g, n, d)."""
        return np.sqrt((self.chart(theta) ** 2).sum(axis=2))


def along_axes(
    values: Values, top: Maximum, rows: Integers, cut: float, low: Floats, high: Floats
) -> Ellipsoid:
    """Step 1 for the groups numbered `rows` (r,) of `values`, whose maxima are `top`."""
    at = top.theta[rows]
    size, axes = np.linalg.eigh(make_positive(top.curvature[rows]))
    local = np.sqrt(cut / size)  # (r, d): the half axes if the log-likelihood were quadratic
    r, d = at.shape
    # One ray per group, axis and side.
    way = np.stack([axes, -axes], axis=3).transpose(0, 2, 3, 1).reshape(-1, d)
    start = np.repeat(at, 2 * d, axis=0)
    group, best = np.repeat(rows, 2 * d), np.repeat(top.value[rows], 2 * d)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(way > 0, (high - start) / way, (low - start) / way)
    end = np.where(way == 0, np.inf, room).min(axis=1).clip(min=0.0)

    def inside(t: Floats) -> np.ndarray:
        theta = np.clip(start + t[:, None] * way, low, high)
        return drop(best, np.asarray(values(theta, group), dtype=np.float64)) <= cut

    within, t = np.zeros(len(end)), np.minimum(np.repeat(local, 2, axis=1).ravel(), end)
    for _ in range(DOUBLINGS):
        holds = inside(t)
        within = np.where(holds, t, within)
        t = np.where(holds, np.minimum(2 * t, end), t)
    for _ in range(HALVINGS):
        middle = 0.5 * (within + t)
        holds = inside(middle)
        within, t = np.where(holds, middle, within), np.where(holds, t, middle)
    ends = within.reshape(r, d, 2)
    half = np.maximum(ends.mean(axis=2), 0.25 * local)  # at a corner rays end at once
    shift = 0.5 * (ends[..., 0] - ends[..., 1])
    centre = at + np.einsum("rij,rj->ri", axes, shift)
    return Ellipsoid(np.clip(centre, low, high), axes * (np.sqrt(cut) / half)[:, None, :])


def walk(
    values: Callable[[Floats], Floats],
    theta: Floats,
    best: Floats,
    cut: float,
    box: tuple[Floats, Floats],
    rng: np.random.Generator,
    steps: int,
) -> tuple[Floats, np.ndarray]:
    """Step 2: particles (g, n, d) that began at theta (g, n, d), and which are in the set (g, n).

    values: log-likelihoods (g, n) at (g, n, d); best (g,): the maximum. Where theta is outside, a
    particle begins with one inside, if there is any.
    """
    g, n, _ = theta.shape
    inside = drop(best[:, None], values(theta)) <= cut
    count = inside.sum(axis=1)
    order = np.argsort(~inside, axis=1, kind="stable")  # those inside first
    pick = (rng.random((g, n)) * np.maximum(count, 1)[:, None]).astype(np.int64)
    begin = np.where(inside, np.arange(n), np.take_along_axis(order, pick, axis=1))
    theta = np.take_along_axis(theta, begin[..., None], axis=1)
    for _ in range(steps):
        one, other = rng.permutation(n), rng.permutation(n)
        far = rng.uniform(*STRIDES, (g, n, 1))
        new = np.clip(theta + far * (theta[:, one] - theta[:, other]), *box)
        held = drop(best[:, None], values(new)) <= cut
        theta = np.where(held[..., None], new, theta)
    return theta, np.broadcast_to((count > 0)[:, None], (g, n))


def around(
    now: Ellipsoid, theta: Floats, inside: np.ndarray, cut: float, radius: float
) -> Ellipsoid:
    """Step 3: ellipsoids around those points theta (g, n, d) of a cloud that lie inside (g, n)."""
    d = theta.shape[2]
    count = inside.sum(axis=1)
    # In the metric of the ellipsoid before, where all axes are about alike.
    weight = _outermost(now.chart(theta), inside)
    mean = np.einsum("gn,gnd->gd", weight, theta)
    s = np.einsum("gji,gnj->gni", now.factor, theta - mean[:, None])
    covariance = np.einsum("gn,gni,gnj->gij", weight, s, s) * d / cut
    covariance += THINNEST * np.eye(d)
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    factor = np.einsum("gij,gkj->gik", now.factor, whiten)
    found = Ellipsoid(mean, factor)
    farthest = np.where(inside, found.norm(theta), 0.0).max(axis=1)
    factor = factor * np.minimum(1.0, radius / np.maximum(MARGIN * farthest, 1e-12))[:, None, None]
    enough = count >= FEWEST * d
    return Ellipsoid(
        np.where(enough[:, None], mean, now.centre),
        np.where(enough[:, None, None], factor, now.factor),
    )


def _outermost(s: Floats, inside: np.ndarray) -> Floats:
    """Weights (g, n) on those points s (g, n, d) inside (g, n) whose covariance is that of the
    smallest ellipsoid around them."""
    g, n, d = s.shape
    weight = inside / np.maximum(inside.sum(axis=1), 1)[:, None]
    q = np.concatenate([s, np.ones((g, n, 1))], axis=2)
    for _ in range(WEIGHINGS):
        moments = np.einsum("gn,gni,gnj->gij", weight, q, q) + TINY * np.eye(d + 1)
        leverage = np.einsum("gni,gij,gnj->gn", q, np.linalg.inv(moments), q, optimize=True)
        weight = weight * leverage
        weight /= np.maximum(weight.sum(axis=1), TINY)[:, None]
    return weight
