"""How many draws fit into a time, by what one evaluation of the likelihood costs.

With c chains advancing together and t(c) seconds for c values with gradients, w + n steps of NUTS
take about

    (w + n) s t(c),    s = 7 leapfrog steps per draw (a whitened density needs a few)

and c populations of m particles take c m r t, t the seconds per value, r = 100 values per particle
(about five temperatures of some twenty sweeps). Both are rough; what they buy is that minutes do
not become hours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from keepscore.budget import affordable, seconds_of, shortened
from keepscore.inference.nuts import Settings
from keepscore.likelihood import Likelihood

STEPS, SWEEPS = 7, 100
FEWEST_DRAWS, FEWEST_WARMUP, FEWEST_PARTICLES = 100, 50, 200
TIMED = 8  # values behind the cost of one


@dataclass(frozen=True)
class Length:
    """Settings of the sampler, particles per population, and what was cut."""

    settings: Settings
    particles: int
    cut: str = ""


def chains_within(
    like: Likelihood, settings: Settings, chains: int, particles: int, minutes: float | None
) -> Length:
    """Draws and warm-up of NUTS that fit, warm-up in proportion."""
    if minutes is None:
        return Length(settings, particles)
    theta = _middle(like, chains)
    group = np.zeros(chains, dtype=np.int64)
    step = seconds_of(lambda: like.pairs_gradient(theta, group))
    asked, share = settings.draws, settings.warmup / settings.draws
    what = "draws per chain"
    least = min(asked, FEWEST_DRAWS)
    draws = affordable(minutes, STEPS * step * (1 + share), asked, least, what, "posterior")
    warmup = settings.warmup * draws // asked
    warmup = max(min(settings.warmup, FEWEST_WARMUP), warmup)
    shorter = replace(settings, draws=draws, warmup=warmup)
    return Length(shorter, particles, shortened(draws, asked, what))


def particles_within(
    like: Likelihood, settings: Settings, chains: int, particles: int, minutes: float | None
) -> Length:
    """Particles per population that fit; an even number, and no more draws than particles."""
    if minutes is None:
        return Length(settings, particles)
    cost = _seconds_per_value(like)
    what, least = "particles per population", min(particles, FEWEST_PARTICLES)
    fit = affordable(minutes, chains * SWEEPS * cost, particles, least, what, "posterior")
    fit -= fit % 2
    shorter = replace(settings, draws=min(settings.draws, fit))
    return Length(shorter, fit, shortened(fit, particles, what))


def exact_draws_within(
    exact: Likelihood, asked: int, chains: int, jobs: int, minutes: float | None
) -> tuple[int, str]:
    """Draws to evaluate exactly in half of the time; the other half is for refining."""
    if minutes is None:
        return asked, ""
    cost = _seconds_per_value(exact) / jobs
    what, least = "draws evaluated exactly", min(asked, max(FEWEST_DRAWS, 2 * chains))
    count = affordable(minutes / 2, cost, asked, least, what, "posterior")
    return count, shortened(count, asked, what)


def _seconds_per_value(like: Likelihood) -> float:
    theta, group = _middle(like, TIMED), np.zeros(TIMED, dtype=np.int64)
    return seconds_of(lambda: like.pairs(theta, group)) / TIMED


def _middle(like: Likelihood, rows: int) -> np.ndarray:
    """Some theta around the middle of the box, all different, so that none is computed twice."""
    low, high = like.space.box("base")
    share = 0.5 + 0.1 * np.linspace(-1, 1, rows)[:, None]
    return np.asarray(low + (high - low) * share)
