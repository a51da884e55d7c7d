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
from dataclasses import dataclass

import numpy as np

from keepscore.checks import Floats
from keepscore.likelihood import Integers

LENGTHS = (1.5, 3.0, 6.0, 12.0)
NOISES = (1e-10, 1e-7, 1e-4)  # variance of the noise of an observation, as a share of s^2
DEGREES = (1, 2, 3)
TRIED = 48  # groups on which settings are compared before a few are tried on all
KEPT = 8  # those that most of them like best
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
        m, (n, d) = len(u), self.points.shape[1:]
        values, gradients = np.empty(m), np.empty((m, d))
        step = max(1, BLOCK // (n * (1 + d) ** 2))
        for i in range(0, m, step):
            part = slice(i, i + step)
            values[part], gradients[part] = self._block(u[part], group[part])
        return values, gradients

    def _block(self, u: Floats, group: Integers) -> tuple[Floats, Floats]:
        r = u[:, None, :] - self.points[group]
        square = self.length[group, None] ** 2
        k = np.exp(-0.5 * (r**2).sum(axis=2) / square)
        a, b = self.weights[group, :, 0], self.weights[group, :, 1:]
        # Sum over points of a k + b . (d k / d point), and its gradient in u.
        along = (b * r).sum(axis=2) / square
        p, slope = monomials(u, self.powers)
        value = (k * (a + along)).sum(axis=1) + (p * self.beta[group]).sum(axis=1)
        inner = b / square[..., None] - r * ((a + along) / square)[..., None]
        gradient = (k[..., None] * inner).sum(axis=1)
        return value, gradient + np.einsum("mtj,mt->mj", slope, self.beta[group])


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
    density = np.full((len(settings), g), -np.inf)
    some = np.arange(g) if g <= TRIED else np.linspace(0, g - 1, TRIED).astype(int)
    for k, setting in enumerate(settings):
        density[k, some] = _solve(points[some], y[some], setting)[0]
    if g > TRIED:
        wins = np.bincount(density[:, some].argmax(axis=0), minlength=len(settings))
        for k in np.argsort(-wins, kind="stable")[:KEPT]:
            density[k] = _solve(points, y, settings[k])[0]
        # Where none of these has factors, all are tried.
        rest = np.flatnonzero(np.isneginf(density.max(axis=0)))
        for k in range(len(settings)) if len(rest) else ():
            density[k, rest] = _solve(points[rest], y[rest], settings[k])[0]
    chosen = density.argmax(axis=0)
    weights, beta = np.zeros((g, n, y.shape[2])), np.zeros((g, len(all_powers(d))))
    length, scale, sd = np.ones(g), np.zeros(g), np.zeros(candidates.shape[:2])
    for number in np.unique(chosen):
        rows = np.flatnonzero(chosen == number)
        parts = _solve(points[rows], y[rows], settings[number], candidates[rows])[1:]
        for kept, new in zip((weights, beta, length, scale, sd), parts, strict=True):
            kept[rows] = new
    whole = np.zeros((g, n, 1 + d))
    whole[..., : y.shape[2]] = weights
    return Kriging(points, whole, beta, all_powers(d), length, scale), sd


def all_powers(d: int) -> Integers:
    """The powers of all monomials that an interpolant may use: (terms, d)."""
    return powers_up_to(d, max(DEGREES))


def monomials(u: Floats, powers: Integers) -> tuple[Floats, Floats]:
    """u^powers (..., terms) at u (..., d), and its gradient (..., terms, d)."""
    d = u.shape[-1]
    value = np.ones((*u.shape[:-1], len(powers)))
    table = [np.stack([u[..., j] ** k for k in range(max(DEGREES) + 1)], axis=-1) for j in range(d)]
    for j in range(d):
        value = value * table[j][..., powers[:, j]]
    slope = np.zeros((*value.shape, d))
    for j in range(d):
        some = powers[:, j] > 0
        part = powers[some, j] * table[j][..., powers[some, j] - 1]
        for other in range(d):
            if other != j:
                part = part * table[other][..., powers[some, other]]
        slope[..., some, j] = part
    return value, slope


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


def _solve(
    points: Floats, y: Floats, setting: Setting, candidates: Floats | None = None
) -> tuple[Floats, ...]:
    """Density of what is left out (g,), and, given candidates, the parts of the interpolant."""
    g, n, d = points.shape
    per = y.shape[2]
    powers = powers_up_to(d, setting.degree)
    size, terms = n * per, len(powers)
    k = _covariance(points, points, setting.length, per).reshape(g, size, size)
    # The noise of a gradient is that of a value over the length.
    noise = np.where(np.arange(size) % per == 0, 1.0, setting.length**-2.0) * setting.noise
    k = k + np.eye(size) * noise
    value, slope = monomials(points, powers)
    p = value[:, :, None, :]
    if per > 1:
        p = np.concatenate([p, np.swapaxes(slope, 2, 3)], axis=2)
    p = p.reshape(g, size, terms)
    flat = y.reshape(g, size)
    inverse_l, sound = _inverse_factors(k)
    q, r = np.linalg.qr(inverse_l @ p)
    v = inverse_l - q @ (np.swapaxes(q, 1, 2) @ inverse_l)
    vy = np.einsum("gij,gj->gi", v, flat)
    by = np.einsum("gji,gj->gi", v, vy).reshape(g, n, per)
    columns = v.reshape(g, size, n, per)
    own = np.einsum("gsni,gsnj->gnij", columns, columns, optimize=True)
    eigenvalues = np.linalg.eigvalsh(own)
    pivots = np.abs(np.diagonal(r, axis1=1, axis2=2))
    sound &= (eigenvalues.min(axis=(1, 2)) > 0) & (pivots.min(axis=1) > 1e-12 * pivots.max(axis=1))
    own = np.where(sound[:, None, None, None], own, np.eye(per))
    r = np.where(sound[:, None, None], r, np.eye(terms))
    left_out = np.linalg.solve(own, by[..., None])[..., 0]
    square = np.einsum("gni,gnij,gnj->gn", left_out, own, left_out)
    scale2 = np.maximum(square.mean(axis=1) / per, SMALLEST_SCALE**2)
    log_det = np.linalg.slogdet(own)[1].sum(axis=1)
    density = 0.5 * log_det - 0.5 * size * np.log(scale2)
    density = np.where(sound & np.isfinite(density), density, -np.inf)
    if candidates is None:
        return (density,)
    inverse_r = np.linalg.inv(r)
    beta = np.zeros((g, len(all_powers(d))))
    ly = np.einsum("gij,gj->gi", inverse_l, flat)
    beta[:, :terms] = np.einsum("gij,gsj,gs->gi", inverse_r, q, ly, optimize=True)
    there = _covariance(candidates, points, setting.length, per, gradients_of_first=False)
    lk = there.reshape(g, -1, size) @ np.swapaxes(inverse_l, 1, 2)
    trend = (monomials(candidates, powers)[0] - lk @ (q @ r)) @ inverse_r
    variance = 1 - (lk**2).sum(axis=2) + (trend**2).sum(axis=2)
    scale = np.sqrt(scale2)
    sd = scale[:, None] * np.sqrt(np.maximum(variance, setting.noise))
    weights = by
    length = np.full(g, setting.length)
    return density, weights, beta, length, scale, sd


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
