"""The volume of a set in many dimensions, by sampling, with its Monte Carlo error.

A grid that resolves a set of p parameters needs points^p values; from four parameters on the volume
of {theta in the box : F(theta) <= 0} is estimated from draws of a density q that covers it,

    V = E_q[ 1{F(theta) <= 0} / q(theta) ],      error = standard error of that mean / V

whatever the set's shape. q is a mixture of uniform densities on ellipsoids and on the box. Where F
is quadratic, with matrix P / c around the maximum (c the critical value), the part of the set in a
box of widths w lies, for any 0 < s < 1, in the ellipsoid of

    M = s P / c + (1 - s) diag(1 / (p w^2))

which is the set's own ellipsoid for s near one and does not leave the box where F is flat. The
first half of the draws looks where the set really is: its mean and covariance make the ellipsoid
(|u|^2 <= p + 2 in its own units) from which most of the second half is drawn. Only these count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from keepscore.checks import Floats
from keepscore.inference.level_set import LevelSet
from keepscore.likelihood import Integers

DRAWS = 4096
SHARES = (0.9, 0.5)  # s of the first two ellipsoids
SCALES = (1.1, 1.7)  # of the ellipsoids fitted to the set
BOX_WEIGHT, FIRST_WEIGHT = 0.1, 0.2
GROUPS_AT_ONCE = 64


@dataclass(frozen=True)
class Ellipsoids:
    """A mixture of uniform densities: k ellipsoids centre + factor z, |z| <= 1, and a box.

    centre (k, p), factor (k, p, p), weight (k,); what is missing to one is the box's.
    """

    low: Floats
    high: Floats
    centre: Floats
    factor: Floats
    weight: Floats

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """n draws (n, p); some lie outside the box, where no set is."""
        k, p = self.centre.shape
        rest = max(0.0, 1.0 - float(self.weight.sum()))
        which = rng.choice(
            k + 1, size=n, p=np.append(self.weight, rest) / (rest + self.weight.sum())
        )
        z = rng.standard_normal((n, p))
        z *= rng.random((n, 1)) ** (1 / p) / np.linalg.norm(z, axis=1, keepdims=True)
        own = np.minimum(which, k - 1)
        theta = self.centre[own] + np.einsum("nij,nj->ni", self.factor[own], z)
        flat = self.low + (self.high - self.low) * rng.random((n, p))
        return np.where((which == k)[:, None], flat, theta)

    def density(self, theta: Floats) -> Floats:
        """q at theta (n, p) in the box: (n,)."""
        p = theta.shape[1]
        ball = 0.5 * p * np.log(np.pi) - gammaln(0.5 * p + 1)
        found = np.full(len(theta), max(0.0, 1.0 - float(self.weight.sum())))
        found /= (self.high - self.low).prod()
        for centre, factor, weight in zip(self.centre, self.factor, self.weight, strict=True):
            z = np.linalg.solve(factor, (theta - centre).T)
            volume = np.exp(ball + np.linalg.slogdet(factor)[1])
            found += np.where((z**2).sum(axis=0) <= 1, weight / volume, 0.0)
        return found


def sampled_volumes(
    field: LevelSet, precision: Floats, draws: int = DRAWS, seed: int = 0
) -> tuple[Floats, Floats]:
    """Volume of every group's set (g,), and its relative standard error (g,).

    precision (g, p, p): half the curvature of F around the centres, P above.
    """
    g = len(field.centre)
    rng = np.random.default_rng([seed, 0x5E7])
    volume, error = np.empty(g), np.empty(g)
    for start in range(0, g, GROUPS_AT_ONCE):
        rows = np.arange(start, min(start + GROUPS_AT_ONCE, g))
        looks = [first_look(field, precision[[i]], np.array([i])) for i in rows]
        half = max(64, draws // 2)
        drawn = [look.draw(half, rng) for look in looks]
        inside = _inside(field, drawn, rows)
        final = [
            fitted(look, theta[hit], look.density(theta[hit]))
            for look, theta, hit in zip(looks, drawn, inside, strict=True)
        ]
        drawn = [one.draw(half, rng) for one in final]
        inside = _inside(field, drawn, rows)
        for i, one, theta, hit in zip(rows, final, drawn, inside, strict=True):
            volume[i], error[i] = mean_volume(one, theta, hit)
    return volume, error


def first_look(field: LevelSet, precision: Floats, group: Integers) -> Ellipsoids:
    """q before anything is known but the curvature at the maxima of these groups (k,)."""
    p, width = field.centre.shape[1], field.high - field.low
    flat = np.diag(1 / (p * width**2))
    factors = [
        np.linalg.inv(np.linalg.cholesky(s * own / field.critical[i] + (1 - s) * flat)).T
        for own, i in zip(precision, group, strict=True)
        for s in SHARES
    ]
    centre = np.repeat(field.centre[group], len(SHARES), axis=0)
    weight = np.full(len(factors), (1 - BOX_WEIGHT) / len(factors))
    return Ellipsoids(field.low, field.high, centre, np.stack(factors), weight)


def mean_volume(q: Ellipsoids, theta: Floats, inside: np.ndarray) -> tuple[float, float]:
    """The volume by draws theta (n, p) of q, of which some lie inside; its relative error."""
    n, weights = len(theta), np.zeros(len(theta))
    weights[inside] = 1 / q.density(theta[inside])
    volume = float(weights.mean())
    if volume == 0:
        return 0.0, np.inf
    return volume, float(weights.std(ddof=1)) / np.sqrt(n) / volume


def fitted(look: Ellipsoids, theta: Floats, density: Floats) -> Ellipsoids:
    """q with ellipsoids around the part of the set that was seen, theta (n, p)."""
    p = theta.shape[1]
    if len(theta) < 4 * p:
        return look
    share = 1 / density
    share /= share.sum()
    mean = share @ theta
    offset = theta - mean
    covariance = np.einsum("n,ni,nj->ij", share, offset, offset)
    try:
        factor = np.linalg.cholesky(covariance) * np.sqrt(p + 2)
    except np.linalg.LinAlgError:
        return look
    own = (1 - FIRST_WEIGHT) * np.array([0.7, 0.3])
    return Ellipsoids(
        look.low,
        look.high,
        np.concatenate([np.tile(mean, (2, 1)), look.centre]),
        np.concatenate([np.stack([s * factor for s in SCALES]), look.factor]),
        np.concatenate([own, FIRST_WEIGHT * look.weight]),
    )


def _inside(field: LevelSet, drawn: Sequence[Floats], group: Integers) -> list[np.ndarray]:
    """Which draws lie in the set of their group; those outside the box are not asked about."""
    boxed = [in_box(field, theta) for theta in drawn]
    rows = [theta[hit] for theta, hit in zip(drawn, boxed, strict=True)]
    of = np.repeat(group, [len(r) for r in rows])
    value = _at(field.at, np.concatenate(rows), of)
    parts = np.split(value <= 0, np.cumsum([len(r) for r in rows])[:-1])
    for hit, part in zip(boxed, parts, strict=True):
        hit[hit] = part
    return boxed


def in_box(field: LevelSet, theta: Floats) -> np.ndarray:
    return np.asarray(((theta >= field.low) & (theta <= field.high)).all(axis=1))


def _at(at: Callable[[Floats, Integers], Floats], theta: Floats, group: Integers) -> Floats:
    return at(theta, group) if len(theta) else np.zeros(0)
