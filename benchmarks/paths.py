"""Paths without a likelihood: what the path network brings, and what is kept where it does not.

    python -m benchmarks paths [--quick]

Ten simulators, 5,000 paths each, no scores. "all times" is the network that `ks.train` takes
first (`compare=False`), "auto" what it keeps after trying others. Both are judged on 300 fresh
paths, one by one, as maps are (`benchmarks/maps.py`); but estimates are posterior means under a
uniform prior: one path leaves some parameters open, and maxima then lie at the edge of the box. One
small file per model in results/paths; a finished one is not run again.

    animals     50 counts of a population that grows and crashes (Ricker map, Poisson counts; Wood
                2010); chosen on this one and the next two
    epidemic    52 weekly counts of reported cases (SEIR, reports with extra variance)
    spikes      200 counts of a neuron that excites itself
    flies       180 counts of blowflies, every other day (delayed recruitment; Wood 2010); this one
                and the next were looked at while the form was not final
    volatility  250 returns whose log-variance is a hidden autoregression
    rain        150 days, dry or with an amount (wet and dry spells)
    current     200 noisy values of a channel that opens and closes
    queue       50 times between departures (M/G/1); the network's extremes were added for it, and
                the others run again
    growth      a control: 24 measurements along a growth curve, each with an error of its own
    moves       a control: 20 moves of an animal, north and east, independent
"""

from __future__ import annotations

from typing import Any

import numpy as np

import keepscore as ks
from benchmarks import machine, maps
from benchmarks.maps import Makers, Rng, Theta, X, positive

RESULTS = machine.ROOT / "benchmarks" / "results" / "paths"
FIRST, DRAWS = "all times", 10_000


def animals() -> Any:
    space = ks.Space(
        [positive("growth", 10, 100), positive("sd", 0.05, 0.7), positive("share", 2, 20)]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        growth, sd, share = np.exp(theta).T
        n, counts = np.full(len(theta), 7.0), []
        for t in range(100):
            n = growth * n * np.exp(-n + sd * rng.standard_normal(len(n)))
            if t >= 50:
                counts.append(rng.poisson(share * n))
        return np.stack(counts, axis=1)

    return ks.models.from_functions(space, (50,), simulate=simulate, name="animals")


def epidemic() -> Any:
    people, weeks, steps = 20_000, 52, 7
    space = ks.Space(
        [
            positive("R0", 1.2, 5),
            positive("infectious days", 3, 14),
            positive("reported", 0.02, 0.5),
            positive("extra", 1, 20),  # variance of a report over its mean
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        r0, days, reported, extra = np.exp(theta).T
        s, e, i = (np.full(len(theta), n) for n in (people - 20, 10, 10))
        out = []
        for _ in range(weeks):
            cases = np.zeros(len(theta), dtype=np.int64)
            for _ in range(steps):
                exposed = rng.binomial(s, 1 - np.exp(-r0 / days * i / people))
                ill = rng.binomial(e, 1 - np.exp(-1 / 3.0))
                well = rng.binomial(i, 1 - np.exp(-1 / days))
                s, e, i = s - exposed, e + exposed - ill, i + ill - well
                cases = cases + ill
            mean = reported * cases + 1e-9
            out.append(rng.poisson(rng.gamma(mean / extra, extra)))
        return np.stack(out, axis=1)

    return ks.models.from_functions(space, (weeks,), simulate=simulate, name="epidemic")


def volatility() -> Any:
    space = ks.Space(
        [
            ks.Parameter("level", -2.0, 2.0, "identity"),
            ks.Parameter("memory", 0.5, 0.95, "identity"),
            positive("sd", 0.1, 1.0),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        level, memory, sd = theta[:, 0], theta[:, 1], np.exp(theta[:, 2])
        h = sd / np.sqrt(1 - memory**2) * rng.standard_normal(len(theta))
        out = []
        for _ in range(250):
            out.append(np.exp((level + h) / 2) * rng.standard_normal(len(theta)))
            h = memory * h + sd * rng.standard_normal(len(theta))
        return np.stack(out, axis=1)

    return ks.models.from_functions(space, (250,), simulate=simulate, name="volatility")


def spikes() -> Any:
    space = ks.Space(
        [
            positive("base", 0.1, 2),
            ks.Parameter("excitation", 0.0, 0.9, "identity"),
            positive("memory", 0.5, 10),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        base, share, memory = np.exp(theta[:, 0]), theta[:, 1], np.exp(theta[:, 2])
        keep, excited, out = np.exp(-1 / memory), np.zeros(len(theta)), []
        for t in range(250):
            count = rng.poisson(np.minimum(base + share * (1 - keep) * excited, 1e4))
            excited = keep * (excited + count / keep)
            if t >= 50:
                out.append(count)
        return np.stack(out, axis=1)

    return ks.models.from_functions(space, (200,), simulate=simulate, name="spikes")


def flies() -> Any:
    space = ks.Space(
        [
            positive("births", 2, 20),
            positive("crowding", 200, 1_000),
            positive("deaths", 0.08, 0.4),
            positive("sd of births", 0.1, 1.0),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        births, crowding, deaths, sd = np.exp(theta).T
        lag, shape = 14, 1 / sd**2
        past = [np.full(len(theta), 180.0) for _ in range(lag)]
        out = []
        for t in range(460):
            before = past[-lag]
            noise = rng.gamma(shape) / shape
            recruits = rng.poisson(
                np.minimum(births * before * np.exp(-before / crowding) * noise, 1e8)
            )
            alive = rng.binomial(past[-1].astype(np.int64), np.exp(-deaths))
            past = [*past[1:], (recruits + alive).astype(float)]
            if t >= 100 and t % 2 == 0:
                out.append(past[-1])
        return np.stack(out, axis=1)

    return ks.models.from_functions(space, (180,), simulate=simulate, name="flies")


def rain() -> Any:
    space = ks.Space(
        [
            ks.Parameter("wet after dry", 0.1, 0.4, "identity"),
            ks.Parameter("wet after wet", 0.4, 0.9, "identity"),
            positive("amount", 1, 10),
            positive("shape", 0.4, 2),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        amount, shape = np.exp(theta[:, 2:]).T
        wet, out = rng.random(len(theta)) < 0.4, []
        for _ in range(150):
            wet = rng.random(len(theta)) < np.where(wet, theta[:, 1], theta[:, 0])
            out.append(np.where(wet, rng.gamma(shape) * amount / shape, 0.0))
        return np.stack(out, axis=1)

    return ks.models.from_functions(space, (150,), simulate=simulate, name="rain")


def current() -> Any:
    space = ks.Space(
        [
            positive("opening", 0.02, 0.3),
            positive("closing", 0.02, 0.3),
            positive("open current", 0.5, 3),
            positive("noise", 0.3, 1),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        opening, closing, height, noise = np.exp(theta).T
        is_open, out = rng.random(len(theta)) < opening / (opening + closing), []
        for _ in range(200):
            change = rng.random(len(theta)) < np.where(is_open, closing, opening)
            is_open = is_open ^ change
            out.append(height * is_open + noise * rng.standard_normal(len(theta)))
        return np.stack(out, axis=1)

    return ks.models.from_functions(space, (200,), simulate=simulate, name="current")


def queue() -> Any:
    space = ks.Space(
        [
            ks.Parameter("shortest", 0, 10, "identity"),
            ks.Parameter("width", 0.1, 10, "identity"),
            positive("arrivals", 0.02, 0.37),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        shortest, width, arrivals = theta[:, 0], theta[:, 1], np.exp(theta[:, 2])
        arrived, left, between = np.zeros(len(theta)), np.zeros(len(theta)), []
        for _ in range(50):
            arrived = arrived + rng.exponential(1 / arrivals)
            service = shortest + width * rng.random(len(theta))
            now = service + np.maximum(arrived, left)
            between.append(now - left)
            left = now
        return np.stack(between, axis=1)

    return ks.models.from_functions(space, (50,), simulate=simulate, name="queue")


def growth() -> Any:
    times = np.linspace(0, 12, 24)
    space = ks.Space([positive("rate", 0.2, 2), positive("limit", 5, 20), positive("sd", 0.1, 1)])

    def simulate(theta: Theta, rng: Rng) -> X:
        rate, limit, sd = np.exp(theta).T[:, :, None]
        curve = limit / (1 + (limit - 1) * np.exp(-rate * times))
        return curve + sd * rng.standard_normal(curve.shape)

    return ks.models.from_functions(space, (24,), simulate=simulate, name="growth")


def moves() -> Any:
    space = ks.Space(
        [
            ks.Parameter("north", -1.0, 1.0, "identity"),
            ks.Parameter("east", -1.0, 1.0, "identity"),
            positive("sd", 0.5, 2),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        noise = rng.standard_normal((len(theta), 20, 2))
        return theta[:, None, :2] + np.exp(theta[:, 2])[:, None, None] * noise

    return ks.models.from_functions(space, (20, 2), simulate=simulate, name="moves")


MODELS: Makers = {
    make.__name__: make
    for make in (animals, epidemic, spikes, flies, volatility, rain, current, queue, growth, moves)
}


def means(surrogate: Any, x: X) -> Theta:
    """Posterior means under a uniform prior: those of draws from the box, weighted."""
    low, high = surrogate.space.lower, surrogate.space.upper
    draws = np.random.default_rng(7).uniform(low, high, (DRAWS, len(low)))
    found = []
    for one in x:
        value = surrogate.given(one[None])(draws)
        weight = np.exp(value - value.max())
        found.append(weight @ draws / weight.sum())
    return np.stack(found)


def run(quick: bool = False) -> dict[str, Any]:
    """All models that are not there yet; one of them, small, if quick."""
    if quick:
        return {"moves": maps.quietly(moves(), 200, 20, FIRST, means)}
    return maps.every(MODELS, RESULTS, FIRST, means)


def table(result: dict[str, Any]) -> str:
    """One row per model."""
    return maps.table(result, FIRST)
