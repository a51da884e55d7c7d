"""SLCP, "simple likelihood, complex posterior": four points from a Gaussian in the plane.

    mean (theta1, theta2),  s1 = theta3^2,  s2 = theta4^2,  correlation tanh(theta5)
    covariance [[s1^2, rho s1 s2], [rho s1 s2, s2^2]] + 1e-6 I,   theta uniform on [-3, 3]^5

With distractors, 92 numbers that know nothing of theta are mixed in: a mixture of twenty
multivariate t with two degrees of freedom, drawn and permuted as the benchmark's seed says.
"""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np

import keepscore as ks
from benchmarks.sbibm.tasks.base import Rng, Task, box, names
from keepscore.checks import Floats
from keepscore.models.base import Symmetry

POINTS, JITTER = 4, 1e-6
NOISE, COMPONENTS = 92, 20


def simulate(theta: Floats, rng: Rng) -> Floats:
    s1, s2, rho = theta[:, 2] ** 2, theta[:, 3] ** 2, np.tanh(theta[:, 4])
    # Cholesky factor of the covariance.
    a = np.sqrt(s1**2 + JITTER)
    b = rho * s1 * s2 / a
    c = np.sqrt(s2**2 + JITTER - b**2)
    z = rng.standard_normal((len(theta), POINTS, 2))
    x = np.empty_like(z)
    x[..., 0] = theta[:, None, 0] + a[:, None] * z[..., 0]
    x[..., 1] = theta[:, None, 1] + b[:, None] * z[..., 0] + c[:, None] * z[..., 1]
    return x


def log_prob(theta: Floats, x: Floats) -> Floats:
    s1, s2, rho = theta[:, 2] ** 2, theta[:, 3] ** 2, jnp.tanh(theta[:, 4])
    v1, v2, c = s1**2 + JITTER, s2**2 + JITTER, rho * s1 * s2
    # (s1 s2)^2 (1 - rho^2) + jitter, without the difference of two large numbers.
    determinant = (s1 * s2) ** 2 / jnp.cosh(theta[:, 4]) ** 2 + JITTER * (s1**2 + s2**2 + JITTER)
    u, v = x[..., 0] - theta[:, None, 0], x[..., 1] - theta[:, None, 1]
    square = (v2[:, None] * u**2 - 2 * c[:, None] * u * v + v1[:, None] * v**2).sum(axis=1)
    constant = POINTS * (jnp.log(2 * jnp.pi) + 0.5 * jnp.log(determinant))
    return -0.5 * square / determinant - constant


def flips(size: int) -> list[Symmetry]:
    """s1 and s2 are squares: signs of theta3 and theta4 cannot be told. x has `size` numbers."""
    signs = [(a, b) for a in (1, -1) for b in (1, -1)][1:]
    return [
        Symmetry(f"signs {a:+d} {b:+d}", np.arange(size), tuple(range(5)), 1, (1, 1, a, b, 1))
        for a, b in signs
    ]


def slcp() -> Task:
    space = box(names(5), -3.0, 3.0)
    model = ks.models.from_functions(
        space,
        (POINTS, 2),
        simulate=simulate,
        log_prob=log_prob,
        name="slcp",
        declares=["iid", *flips(2 * POINTS)],
    )
    return Task("slcp", "slcp", model)


@cache
def distractors() -> tuple[Floats, Floats, np.ndarray]:
    """Locations (20, 92), factors (20, 92, 92) and the permutation (100,), from the seed 42."""
    rng = np.random.RandomState(42)
    loc = np.array([15 * rng.normal(size=NOISE) for _ in range(COMPONENTS)])
    factor = np.array(
        [
            np.tril(rng.normal(size=(NOISE, NOISE))) + np.diag(np.exp(rng.normal(size=NOISE)))
            for _ in range(COMPONENTS)
        ]
    )
    return loc, 3 * factor, rng.permutation(NOISE + 2 * POINTS)


def simulate_distracted(theta: Floats, rng: Rng) -> Floats:
    loc, factor, order = distractors()
    n = len(theta)
    which = rng.integers(0, COMPONENTS, n)
    z = rng.standard_normal((n, NOISE)) / np.sqrt(rng.chisquare(2, (n, 1)) / 2)
    noise = np.empty((n, NOISE))
    for k in range(COMPONENTS):
        rows = which == k
        noise[rows] = loc[k] + z[rows] @ factor[k].T
    return np.concatenate([simulate(theta, rng).reshape(n, -1), noise], axis=1)[:, order]


def log_prob_distracted(theta: Floats, x: Floats) -> Floats:
    """Up to the density of the distractors, which does not depend on theta."""
    back = np.argsort(distractors()[2])[: 2 * POINTS]
    return log_prob(theta, x[:, back].reshape(-1, POINTS, 2))


def slcp_distractors() -> Task:
    space = box(names(5), -3.0, 3.0)
    model = ks.models.from_functions(
        space,
        (NOISE + 2 * POINTS,),
        simulate=simulate_distracted,
        log_prob=log_prob_distracted,
        name="slcp_distractors",
        declares=flips(NOISE + 2 * POINTS),
    )
    file = "observation_distractors.csv"
    return Task("slcp_distractors", "slcp", model, file=file)
