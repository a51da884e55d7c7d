"""Kriging: a smooth function from few of its values and gradients, with its own error.

    f(u) = sum_j beta_j p_j(u) + z(u),    z a Gaussian process, Cov z(u), z(v) = s^2 k(u - v)
    k(r) = exp(-|r|^2 / 2 l^2),           p_j all monomials up to a degree

A gradient of f is an observation too: derivatives of k are its covariances,

    Cov(z(u), d_j z(v))    =  s^2 k(r) r_j / l^2                         r = u - v
    Cov(d_i z(u), d_j z(v)) = s^2 k(r) (delta_ij / l^2 - r_i r_j / l^4)

With K = L L' the covariances of all observations y, P their monomials and L^-1 P = Q R, and with
k, p the covariances and monomials at u (universal kriging),

    beta = R^-1 Q' L^-1 y,      w = L^-T (I - Q Q') L^-1 y,      f(u) = k' w + p' beta
    Var f(u) = s^2 (1 - |L^-1 k|^2 + |R^-T (p - P' K^-1 k)|^2)

Leaving out one point, with its value and gradient, needs no new factors: with B = V' V,
V = (I - Q Q') L^-1, and i the rows of the point,

    e_i = B_ii^-1 (B y)_i ~ N(0, s^2 B_ii^-1)

Degree, l and the share of noise are those with the highest density of the e_i; s^2 is the mean of
e_i' B_ii e_i over all numbers left out. Everything is computed for many groups at once, each with
points, values and settings of its own. References: Rasmussen and Williams 2006 (2.7, 5.4, 9.4);
Dubrule 1983 (leaving out).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from keepscore.checks import Floats
from keepscore.likelihood import Integers

LENGTHS = (1.5, 3.0, 6.0, 12.0)
NOISES = (1e-10, 1e-7, 1e-4)  # variance of the noise of an observation, as a share of s^2
DEGREES = (1, 2, 3)
GROUPS_AT_ONCE = 64  # whose settings are compared: keeps memory flat
BLOCK = 4_000_000  # numbers in one block of predictions
SMALLEST_SCALE = 1e-12


@dataclass(frozen=True)
class Setting:
    """Degree of the polynomial, length of the kernel, share of noise."""

    degree: int
    length: float
    noise: float


@dataclass(frozen=True)
class Kriging:
    """Interpolants of g functions of d variables, from n points each.

    points (g, n, d); weights (g, n, 1 + d), of values and (zero without them) gradients; beta (g,
    terms) of the monomials with these powers (terms, d); length (g,); scale (g,): s.
    """

    points: Floats
    weights: Floats
    beta: Floats
    powers: Integers
    length: Floats
    scale: Floats

    def at(self, u: Floats, group: Integers) -> tuple[Floats, Floats]:
        """Values (m,) and gradients (m, d) at u (m, d) of the functions of these groups (m,)."""
        values, gradients = np.empty(len(u)), np.empty(u.shape)
        for part in self._blocks(len(u)):
            values[part], gradients[part] = self._block(u[part], group[part])
        return values, gradients

    def value(self, u: Floats, group: Integers) -> Floats:
        """The values alone, in a third of the time."""
        values = np.empty(len(u))
        for part in self._blocks(len(u)):
            values[part] = self._sums(u[part], group[part])[0]
        return values

    def _blocks(self, m: int) -> Iterator[slice]:
        n, d = self.points.shape[1:]
        step = max(1, BLOCK // (n * (1 + d) ** 2))
        return (slice(i, i + step) for i in range(0, m, step))

    def _sums(self, u: Floats, group: Integers) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Values (m,), and what their gradients need: u - points, the kernel, sums of weights and
        the square of the length."""
        r = u[:, None, :] - self.points[group]
        square = self.length[group, None] ** 2
        k = np.exp(-0.5 * np.einsum("mni,mni->mn", r, r) / square)
        # Sum over points of a k + b . (d k / d point).
        weights = self.weights[group]
        both = weights[..., 0] + np.einsum("mni,mni->mn", weights[..., 1:], r) / square
        p = monomial_values(u, self.powers)
        value = np.einsum("mn,mn->m", k, both) + np.einsum("mt,mt->m", p, self.beta[group])
        return value, r, k, both, square

    def _block(self, u: Floats, group: Integers) -> tuple[Floats, Floats]:
        value, r, k, both, square = self._sums(u, group)
        inner = (self.weights[group, :, 1:] - r * both[..., None]) / square[..., None]
        _, slope = monomials(u, self.powers)
        gradient = np.einsum("mn,mni->mi", k, inner)
        return value, gradient + np.einsum("mtj,mt->mj", slope, self.beta[group])

    def first(self, n: int) -> Kriging:
        """The same, where no group has more than n points."""
        return replace(self, points=self.points[:, :n], weights=self.weights[:, :n])


def fit(
    points: Floats, values: Floats, gradients: Floats | None, candidates: Floats
) -> tuple[Kriging, Floats]:
    """Interpolants of g functions, and their standard deviations (g, c) at candidates (g, c, d).

    points (g, n, d), values (g, n), gradients (g, n, d) or None where only values are known.
    """
    g, n, d = points.shape
    y = (
        values[..., None]
        if gradients is None
        else np.concatenate([values[..., None], gradients], 2)
    )
    settings = _settings(n, d, y.shape[2])
    blocks = np.array_split(np.arange(g), -(-g // GROUPS_AT_ONCE))
    parts = [_densities(points[rows], y[rows], settings) for rows in blocks if len(rows)]
    density = np.concatenate(parts, axis=1)
    chosen = density.argmax(axis=0)
    weights, beta = np.zeros((g, n, y.shape[2])), np.zeros((g, len(all_powers(d))))
    length, scale, sd = np.ones(g), np.zeros(g), np.zeros(candidates.shape[:2])
    for number in np.unique(chosen):
        rows = np.flatnonzero(chosen == number)
        found = _solve(points[rows], y[rows], settings[number], candidates[rows])
        for kept, new in zip((weights, beta, length, scale, sd), found, strict=True):
            kept[rows] = new
    whole = np.zeros((g, n, 1 + d))
    whole[..., : y.shape[2]] = weights
    return Kriging(points, whole, beta, all_powers(d), length, scale), sd


def all_powers(d: int) -> Integers:
    """The powers of all monomials that an interpolant may use: (terms, d)."""
    return powers_up_to(d, max(DEGREES))


def monomial_values(u: Floats, powers: Integers) -> Floats:
    """u^powers (..., terms) at u (..., d)."""
    value = np.ones((*u.shape[:-1], len(powers)))
    for j, table in enumerate(_tables(u)):
        value *= table[..., powers[:, j]]
    return value


def monomials(u: Floats, powers: Integers) -> tuple[Floats, Floats]:
    """u^powers (..., terms) at u (..., d), and its gradient (..., terms, d)."""
    d, table = u.shape[-1], _tables(u)
    value = monomial_values(u, powers)
    slope = np.zeros((*value.shape, d))
    for j in range(d):
        some = powers[:, j] > 0
        part = powers[some, j] * table[j][..., powers[some, j] - 1]
        for other in range(d):
            if other != j:
                part = part * table[other][..., powers[some, other]]
        slope[..., some, j] = part
    return value, slope


def _tables(u: Floats) -> list[Floats]:
    """Per coordinate its powers (..., degrees)."""
    return [
        np.stack([u[..., j] ** k for k in range(max(DEGREES) + 1)], axis=-1)
        for j in range(u.shape[-1])
    ]


def _settings(n: int, d: int, per_point: int) -> list[Setting]:
    """Those whose polynomial leaves at least half of the numbers, and one point, to the rest."""
    room = min(n * per_point // 2, (n - 1) * per_point - 1)
    degrees = [k for k in DEGREES if len(powers_up_to(d, k)) <= room] or [0]
    return [Setting(*s) for s in itertools.product(degrees, LENGTHS, NOISES)]


def powers_up_to(d: int, degree: int) -> Integers:
    """Exponents of all monomials in d variables up to a degree, low degrees first: (terms, d)."""
    rows = [
        np.bincount(np.array(chosen, dtype=int), minlength=d)
        for k in range(degree + 1)
        for chosen in itertools.combinations_with_replacement(range(d), k)
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, d)


class _Factors(NamedTuple):
    """What leaving out and predicting need: L^-1 (g, size, size), Q (g, size, terms), R (g, terms,
    terms), V = (I - Q Q') L^-1, and which groups have factors at all (g,)."""

    inverse_l: Floats
    q: Floats
    r: Floats
    v: Floats
    sound: np.ndarray


def _factors(covariance: Floats, p: Floats, per: int, length: float, noise: float) -> _Factors:
    """Of covariances (g, size, size) of z without noise, and monomials P (g, size, terms)."""
    size = covariance.shape[1]
    # The noise of a gradient is that of a value over the length.
    on_diagonal = np.where(np.arange(size) % per == 0, 1.0, length**-2.0) * noise
    inverse_l, sound = _inverse_factors(covariance + np.eye(size) * on_diagonal)
    q, r = np.linalg.qr(inverse_l @ p)
    v = inverse_l - q @ (np.swapaxes(q, 1, 2) @ inverse_l)
    return _Factors(inverse_l, q, r, v, sound)


def _trend(points: Floats, per: int, powers: Integers) -> Floats:
    """P (g, n * per, terms): monomials, and their derivatives if per > 1."""
    g, n, _ = points.shape
    if per == 1:
        return monomial_values(points, powers)
    value, slope = monomials(points, powers)
    both = np.concatenate([value[:, :, None, :], np.swapaxes(slope, 2, 3)], axis=2)
    return both.reshape(g, n * per, len(powers))


def _densities(points: Floats, y: Floats, settings: Sequence[Setting]) -> Floats:
    """Density (settings, g) of what is left out.

    Low degrees come first among the monomials, so the first columns of Q belong to a lower degree,
    and one factorisation serves all degrees of a length and a noise: with W = Q' L^-1,

        B of the lower degree  =  B of the higher one  +  W_k' W_k,   k the rows between them
    """
    (g, n, d), per = points.shape, y.shape[2]
    flat = y.reshape(g, n * per)
    out = np.empty((len(settings), g))
    for length in dict.fromkeys(s.length for s in settings):
        covariance = _covariance(points, points, length, per).reshape(g, n * per, n * per)
        for noise in dict.fromkeys(s.noise for s in settings if s.length == length):
            some = [k for k, s in enumerate(settings) if (s.length, s.noise) == (length, noise)]
            some.sort(key=lambda k: -settings[k].degree)
            p = _trend(points, per, powers_up_to(d, settings[some[0]].degree))
            found = _factors(covariance, p, per, length, noise)
            w = np.swapaxes(found.q, 1, 2) @ found.inverse_l
            blocks, by = _own(found.v, n, per), _times_squared(found.v, flat)
            last = p.shape[2]
            for k in some:
                terms = len(powers_up_to(d, settings[k].degree))
                if terms < last:
                    between = w[:, terms:last]
                    blocks = blocks + _own(between, n, per)
                    by = by + _times_squared(between, flat)
                    last = terms
                r = found.r[:, :terms, :terms]
                out[k] = _left_out(blocks, by.reshape(g, n, per), r, found.sound)[0]
    return out


def _own(v: Floats, n: int, per: int) -> Floats:
    """The blocks (g, n, per, per) of V'V that belong to one point each; V (g, rows, n * per)."""
    columns = v.reshape(len(v), v.shape[1], n, per)
    return np.einsum("gsni,gsnj->gnij", columns, columns, optimize=True)


def _times_squared(v: Floats, y: Floats) -> Floats:
    """V'V y (g, size); V (g, rows, size), y (g, size)."""
    return np.einsum("gji,gj->gi", v, np.einsum("gij,gj->gi", v, y))


def _left_out(
    own: Floats, by: Floats, r: Floats, sound: np.ndarray
) -> tuple[Floats, Floats, np.ndarray]:
    """Density of what is left out (g,), s^2 (g,), and whether they mean anything (g,)."""
    n, per = by.shape[1:]
    values, vectors = np.linalg.eigh(own)
    pivots = np.abs(np.diagonal(r, axis1=1, axis2=2))
    sound = sound & (values.min(axis=(1, 2)) > 0)
    sound &= pivots.min(axis=1) > 1e-12 * pivots.max(axis=1)
    values = np.where(sound[:, None, None], values, 1.0)
    # e_i' B_ii e_i = (B y)_i' B_ii^-1 (B y)_i
    square = (np.einsum("gnij,gni->gnj", vectors, by) ** 2 / values).sum(axis=(1, 2))
    scale2 = np.maximum(square / (n * per), SMALLEST_SCALE**2)
    density = 0.5 * np.log(values).sum(axis=(1, 2)) - 0.5 * n * per * np.log(scale2)
    return np.where(sound & np.isfinite(density), density, -np.inf), scale2, sound


def _solve(
    points: Floats, y: Floats, setting: Setting, candidates: Floats
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Weights, beta, length and s of interpolants with one setting, and standard deviations."""
    (g, n, d), per = points.shape, y.shape[2]
    size, powers, flat = n * per, powers_up_to(d, setting.degree), y.reshape(g, n * per)
    covariance = _covariance(points, points, setting.length, per).reshape(g, size, size)
    p = _trend(points, per, powers)
    inverse_l, q, r, v, sound = _factors(covariance, p, per, setting.length, setting.noise)
    by = _times_squared(v, flat).reshape(g, n, per)
    _, scale2, sound = _left_out(_own(v, n, per), by, r, sound)
    r = np.where(sound[:, None, None], r, np.eye(len(powers)))
    inverse_r = np.linalg.inv(r)
    beta = np.zeros((g, len(all_powers(d))))
    ly = np.einsum("gij,gj->gi", inverse_l, flat)
    beta[:, : len(powers)] = np.einsum("gij,gsj,gs->gi", inverse_r, q, ly, optimize=True)
    there = _covariance(candidates, points, setting.length, per, gradients_of_first=False)
    lk = there.reshape(g, -1, size) @ np.swapaxes(inverse_l, 1, 2)
    trend = (monomial_values(candidates, powers) - lk @ (q @ r)) @ inverse_r
    variance = 1 - (lk**2).sum(axis=2) + (trend**2).sum(axis=2)
    scale = np.sqrt(scale2)
    sd = scale[:, None] * np.sqrt(np.maximum(variance, setting.noise))
    return by, beta, np.full(g, setting.length), scale, sd


def _covariance(
    u: Floats, v: Floats, length: float, per: int, gradients_of_first: bool = True
) -> Floats:
    """Covariances of values (and gradients, if per > 1) at u (g, a, d) with those at v (g, b, d):
    (g, a, per, b, per), or (g, a, 1, b, per) of the values at u alone."""
    d, inverse = u.shape[2], length**-2.0
    r = u[:, :, None, :] - v[:, None, :, :]
    k = np.exp(-0.5 * (r**2).sum(axis=3) * inverse)
    rows = per if gradients_of_first else 1
    out = np.empty((*k.shape[:2], rows, k.shape[2], per))
    out[:, :, 0, :, 0] = k
    if per > 1:
        out[:, :, 0, :, 1:] = k[..., None] * r * inverse
    if rows > 1:
        out[:, :, 1:, :, 0] = -np.moveaxis(k[..., None] * r * inverse, 3, 2)
        both = np.eye(d) * inverse - r[..., :, None] * r[..., None, :] * inverse**2
        out[:, :, 1:, :, 1:] = np.moveaxis(k[..., None, None] * both, 3, 2)
    return out


def _inverse_factors(k: Floats) -> tuple[Floats, np.ndarray]:
    """L^-1 of each k = L L', and whether there is one (the identity stands where there is none)."""
    try:
        return np.linalg.inv(np.linalg.cholesky(k)), np.ones(len(k), dtype=bool)
    except np.linalg.LinAlgError:
        out, sound = np.tile(np.eye(k.shape[1]), (len(k), 1, 1)), np.zeros(len(k), dtype=bool)
        for i, one in enumerate(k):
            try:
                out[i], sound[i] = np.linalg.inv(np.linalg.cholesky(one)), True
            except np.linalg.LinAlgError:
                continue
        return out, sound
