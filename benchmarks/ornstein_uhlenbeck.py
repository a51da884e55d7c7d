"""The tutorial's model, with what it may declare: X_(t+1) ~ N(a X_t, v (1 - a^2)), X_1 ~ N(0, v),

a = exp(-kappa), v = sigma^2 / (2 kappa): a chain in equilibrium, seen at twenty times.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import keepscore as ks

LENGTH = 20


def ornstein_uhlenbeck() -> Any:
    """The model, declared a Markov chain, so that `network="auto"` takes the one for chains."""
    kappa, sigma = ks.Parameter("kappa", -1.5, 0.5, "log"), ks.Parameter("sigma", -1, 1, "log")
    return ks.models.from_functions(
        ks.Space([kappa, sigma]),
        (LENGTH,),
        simulate=_simulate,
        log_prob=_log_prob,
        declares=("markov",),
        name="ornstein-uhlenbeck",
    )


def _simulate(theta: Any, rng: np.random.Generator) -> np.ndarray:
    kappa, sigma = np.exp(theta).T
    a, v = np.exp(-kappa), sigma**2 / (2 * kappa)
    x = np.empty((len(theta), LENGTH))
    x[:, 0] = np.sqrt(v) * rng.standard_normal(len(theta))
    for t in range(1, LENGTH):
        x[:, t] = a * x[:, t - 1] + np.sqrt(v * (1 - a**2)) * rng.standard_normal(len(theta))
    return x


def _log_prob(theta: Any, x: Any) -> Any:
    kappa, sigma = jnp.exp(theta).T
    a, v = jnp.exp(-kappa)[:, None], (sigma**2 / (2 * kappa))[:, None]
    step, w = x[:, 1:] - a * x[:, :-1], v * (1 - a**2)
    first = -0.5 * (x[:, :1] ** 2 / v + jnp.log(2 * jnp.pi * v)).sum(1)
    return first - 0.5 * (step**2 / w + jnp.log(2 * jnp.pi * w)).sum(1)
