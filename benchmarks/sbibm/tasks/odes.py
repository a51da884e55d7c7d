"""Two ordinary differential equations observed with noise: an epidemic, and predators and prey.

    SIR              S' = -b S I / N,  I' = b S I / N - g I,   N = 10^6, I(0) = 1, 160 days
                     x_j ~ Binomial(1000, I(17 j) / N), j = 0 .. 9;  log b ~ N(log .4, .5^2),
                     log g ~ N(log .125, .2^2)
    Lotka-Volterra   X' = a X - b X Y,  Y' = -c Y + d X Y,  X(0) = 30, Y(0) = 1, 20 days
                     log x_j ~ N(log of X, Y at 2.1 j, .1^2), j = 0 .. 9;  log a, log c ~
                     N(-.125, .5^2), log b, log d ~ N(-3, .5^2)

Working parameters are logarithms of rates. Solutions come from Runge and Kutta's method of order
four in the logarithms of the states, which stay positive and need fewer steps; a test halves them.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import keepscore as ks
from benchmarks.sbibm.tasks.base import Rng, Task
from keepscore.checks import Floats

PLACES = 10
STEPS = {"sir": 34, "lotka_volterra": 84}  # between two observations
POPULATION, COUNT, DAYS = 1e6, 1000, 17.0
NOISE, INTERVAL = 0.1, 2.1


def solve(
    slope: Callable[[Floats, Floats], Floats],
    start: Floats,
    theta: Floats,
    length: float,
    steps: int,
) -> Floats:
    """States at 0, length, 2 length, ...: (10, n, states), for theta (n, d)."""
    h = length / steps

    def step(y: Floats, _: None) -> tuple[Floats, None]:
        k1 = slope(y, theta)
        k2 = slope(y + h / 2 * k1, theta)
        k3 = slope(y + h / 2 * k2, theta)
        k4 = slope(y + h * k3, theta)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    def interval(y: Floats, _: None) -> tuple[Floats, Floats]:
        return jax.lax.scan(step, y, None, steps)[0], y

    begin = jnp.broadcast_to(start, (len(theta), len(start))).astype(theta.dtype)
    return jax.lax.scan(interval, begin, None, PLACES)[1]


def sir_slope(y: Floats, theta: Floats) -> Floats:
    """Of log S/N and log I/N."""
    b, g = jnp.exp(theta[:, 0]), jnp.exp(theta[:, 1])
    return jnp.stack([-b * jnp.exp(y[:, 1]), b * jnp.exp(y[:, 0]) - g], axis=1)


def infected(theta: Floats, steps: int = STEPS["sir"]) -> Floats:
    """log of the share infected at the ten visits, (n, 10)."""
    start = jnp.log(jnp.array([1 - 1 / POPULATION, 1 / POPULATION]))
    return solve(sir_slope, start, theta, DAYS, steps)[:, :, 1].T


def lotka_volterra_slope(y: Floats, theta: Floats) -> Floats:
    """Of log X and log Y."""
    a, b, c, d = jnp.exp(theta).T
    return jnp.stack([a - b * jnp.exp(y[:, 1]), -c + d * jnp.exp(y[:, 0])], axis=1)


def populations(theta: Floats, steps: int = STEPS["lotka_volterra"]) -> Floats:
    """log of prey at the ten times, then of predators, (n, 20), held as the benchmark does."""
    start = jnp.log(jnp.array([30.0, 1.0]))
    states = solve(lotka_volterra_slope, start, theta, INTERVAL, steps)
    both = jnp.moveaxis(states, (0, 1, 2), (2, 0, 1)).reshape(len(theta), -1)
    return jnp.clip(both, np.log(1e-10), np.log(1e4))


def _in_double(f: Callable[[Floats], Floats], theta: Floats) -> Floats:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(f)(jnp.asarray(theta, jnp.float64)))


def simulate_sir(theta: Floats, rng: Rng) -> Floats:
    share = np.exp(np.minimum(_in_double(infected, theta), 0.0))
    return rng.binomial(COUNT, share).astype(float)


def log_prob_sir(theta: Floats, x: Floats) -> Floats:
    log_share = jnp.minimum(infected(theta), -1e-12)
    return (x * log_share + (COUNT - x) * jnp.log(-jnp.expm1(log_share))).sum(axis=1)


def simulate_lotka_volterra(theta: Floats, rng: Rng) -> Floats:
    logs = _in_double(populations, theta)
    return np.exp(logs + NOISE * rng.standard_normal(logs.shape))


def log_prob_lotka_volterra(theta: Floats, x: Floats) -> Floats:
    z = (jnp.log(x) - populations(theta)) / NOISE
    return -0.5 * (z**2).sum(axis=1) - jnp.log(x).sum(axis=1)


def _task(
    name: str, mean: list[float], sd: list[float], rates: str, width: int,
    simulate: Callable[[Floats, Rng], Floats], log_prob: Callable[[Floats, Floats], Floats],
) -> Task:  # fmt: skip
    space = ks.Space(
        [
            ks.Parameter(r, train_margin=0.0, prior=ks.priors.LogNormal(m, s))
            for r, m, s in zip(rates, mean, sd, strict=True)
        ]
    )
    model = ks.models.from_functions(
        space, (width,), simulate=simulate, log_prob=log_prob, name=name
    )
    return Task(name, name, model)


def sir() -> Task:
    mean = [float(np.log(0.4)), float(np.log(0.125))]
    return _task("sir", mean, [0.5, 0.2], "bg", PLACES, simulate_sir, log_prob_sir)


def lotka_volterra() -> Task:
    return _task(
        "lotka_volterra", [-0.125, -3.0, -0.125, -3.0], [0.5] * 4, "abcd", 2 * PLACES,
        simulate_lotka_volterra, log_prob_lotka_volterra,
    )  # fmt: skip
