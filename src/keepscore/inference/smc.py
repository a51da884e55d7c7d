"""Sequential Monte Carlo: draws from posteriors with several modes, and the evidence.

Particles start from the prior and are led to the posterior through tempered densities

    pi_b(theta)  proportional to  prior(theta) L(theta)^b,      0 = b_0 < b_1 < ... < b_T = 1.

Each b is the largest for which the weights L^(b - b_before) keep an effective number of particles
1 / sum w^2 of at least half of them (Del Moral, Doucet and Jasra 2006). Particles are resampled
(systematically) and moved by Metropolis steps that leave pi_b as it is. A step adds the difference
of two other particles, times gamma, to a particle (differential evolution, ter Braak 2006): its
length and direction are those of the posterior itself, also in modes of other shapes and on curved
ridges, and now and then (gamma = 1) it leads from mode to mode. gamma adapts to the acceptance;
steps go on until nearly every particle has moved several times. Differences come from the half of
the particles that is not being moved, so that each half moves by a proposal that does not depend on
it and detailed balance holds exactly.

The mean weights multiply to the evidence, log integral prior L, relative to the reference.
Only values of the likelihood are asked for, of all particles of all groups in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from keepscore.checks import Floats
from keepscore.errors import ConvergenceError
from keepscore.likelihood import Integers, Likelihood
from keepscore.space import Region

ESS_SHARE = 0.5
AIM = 0.25  # acceptance
ACCEPTED_MOVES = 4.0  # per particle and temperature, on average
LAST_MOVES = 8.0  # at b = 1
MOST_SWEEPS = 60
JUMP = 0.1  # share of steps with gamma = 1
SMALLEST_STEP = 1e-9


@dataclass(frozen=True)
class Particles:
    """Of each population: theta (g, n, d), log likelihood (g, n), log evidence (g,), number of
    temperatures (g,), acceptance of the last sweep (g,)."""

    theta: Floats
    log_likelihood: Floats
    log_evidence: Floats
    temperatures: Floats
    acceptance: Floats


def smc(
    like: Likelihood,
    group: Integers,
    start: Floats,
    log_prior: Callable[[Floats], Floats] | None,
    rng: np.random.Generator,
    region: Region = "base",
) -> Particles:
    """Populations of particles that are led to the posterior, each independently of the others.

    Args:
        like: the likelihood.
        group: whose posterior each population is of, (g,).
        start: draws of the prior, (g, n, d), n even; at least one must have a finite likelihood.
        log_prior: (m, d) -> (m,), up to a constant; None is uniform on the box.
        rng: the source of randomness.
        region: the box outside of which the posterior is zero.
    """
    g, n, d = start.shape
    low, high = like.space.box(region)

    def log_likelihood(theta: Floats) -> Floats:
        flat = np.clip(theta.reshape(-1, d), low, high)
        value = np.asarray(like.pairs(flat, np.repeat(group, theta.shape[1])), dtype=np.float64)
        return np.where(np.isnan(value), -np.inf, value).reshape(theta.shape[:-1])

    def prior(theta: Floats) -> Floats:
        inside = ((theta >= low) & (theta <= high)).all(axis=-1)
        if log_prior is None:
            return np.where(inside, 0.0, -np.inf)
        flat = np.clip(theta.reshape(-1, d), low, high)
        value = np.asarray(log_prior(flat), dtype=float).reshape(theta.shape[:-1])
        return np.where(inside, value, -np.inf)

    theta = np.array(start, dtype=np.float64)
    value, before = log_likelihood(theta), prior(theta)
    _require_begun(value)
    beta, evidence, gamma = np.zeros(g), np.zeros(g), np.full(g, 2.38 / np.sqrt(2 * d))
    count, accepted = np.zeros(g), np.ones(g)
    while (beta < 1).any():
        step = _temperatures(value, beta)
        log_weight = np.where(step[:, None] > 0, step[:, None] * value, 0.0)
        log_weight = np.where(np.isnan(log_weight), -np.inf, log_weight)
        top = log_weight.max(axis=1, keepdims=True)
        weight = np.exp(log_weight - top)
        evidence += np.log(weight.mean(axis=1)) + top[:, 0]
        count += beta < 1
        beta = np.minimum(1.0, beta + step)
        index = _systematic(weight / weight.sum(axis=1, keepdims=True), rng)
        index = np.take_along_axis(index, np.argsort(rng.random((g, n)), axis=1), axis=1)
        theta = np.take_along_axis(theta, index[..., None], axis=1)
        value, before = (np.take_along_axis(a, index, axis=1) for a in (value, before))
        wanted = np.where(beta < 1, ACCEPTED_MOVES, LAST_MOVES)
        moved = np.zeros(g)
        for _ in range(MOST_SWEEPS):
            accepted = np.zeros(g)
            for half in (slice(0, n // 2), slice(n // 2, n)):
                rest = theta[:, n // 2 :] if half.start == 0 else theta[:, : n // 2]
                proposal = _proposal(theta[:, half], rest, gamma, rng)
                new, new_prior = log_likelihood(proposal), prior(proposal)
                gain = np.where(
                    np.isfinite(new_prior) & np.isfinite(new),
                    beta[:, None] * (new - value[:, half]) + new_prior - before[:, half],
                    -np.inf,
                )
                take = np.log(rng.random(gain.shape)) < gain
                theta[:, half] = np.where(take[..., None], proposal, theta[:, half])
                value[:, half] = np.where(take, new, value[:, half])
                before[:, half] = np.where(take, new_prior, before[:, half])
                accepted += take.mean(axis=1) / 2
            moved += accepted
            gamma = np.clip(gamma * np.exp(accepted - AIM), SMALLEST_STEP, 2.38 / np.sqrt(2 * d))
            if (moved >= wanted).all():
                break
    return Particles(theta, value, evidence, count, accepted)


def _require_begun(value: Floats) -> None:
    lost = np.asarray(~np.isfinite(value).any(axis=1))
    if lost.any():
        raise ConvergenceError(
            f"None of {value.shape[1]} points drawn from the prior has a finite log density in "
            f"{int(lost.sum())} of {len(lost)} population(s). Narrow the box to where the data are "
            "possible, or ask for more draws."
        )


def _proposal(theta: Floats, rest: Floats, gamma: Floats, rng: np.random.Generator) -> Floats:
    """theta + gamma (a - b) + a little noise, a and b two of the rest."""
    g, n, d = theta.shape
    i = rng.integers(0, rest.shape[1], (g, n))
    j = (i + rng.integers(1, rest.shape[1], (g, n))) % rest.shape[1]
    along = np.take_along_axis(rest, i[..., None], 1) - np.take_along_axis(rest, j[..., None], 1)
    factor = gamma[:, None] * np.exp(0.5 * rng.standard_normal((g, n)))
    factor = np.where(rng.random((g, n)) < JUMP, 1.0, factor)
    noise = 1e-4 * rest.std(axis=1, keepdims=True) * gamma[:, None, None]
    return theta + factor[..., None] * along + noise * rng.standard_normal((g, n, d))


def _temperatures(value: Floats, beta: Floats) -> Floats:
    """The steps in b (g,) that keep the effective number of particles, by bisection."""

    def share(step: Floats) -> Floats:
        log_weight = np.where(step[:, None] > 0, step[:, None] * value, 0.0)
        log_weight = np.where(np.isnan(log_weight), -np.inf, log_weight)
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        return weight.sum(axis=1) ** 2 / (weight**2).sum(axis=1) / value.shape[1]

    low, high = np.zeros_like(beta), 1.0 - beta
    whole = share(high) >= ESS_SHARE
    for _ in range(60):
        middle = (low + high) / 2
        enough = share(middle) >= ESS_SHARE
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return np.where(whole, 1.0 - beta, np.maximum(low, 1e-12))


def _systematic(weight: Floats, rng: np.random.Generator) -> np.ndarray:
    """Indices (g, n): each particle floor or ceil of n w times."""
    g, n = weight.shape
    places = (np.arange(n) + rng.random((g, 1))) / n
    total = np.cumsum(weight, axis=1)
    total[:, -1] = 1.0
    return np.stack([np.searchsorted(t, p) for t, p in zip(total, places, strict=True)])
