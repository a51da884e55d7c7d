"""Gaussian mixture: x ~ 1/2 N(theta, I) + 1/2 N(theta, 0.01 I) in two dimensions; theta uniform."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import keepscore as ks
from benchmarks.sbibm.tasks.base import Rng, Task, box, names
from keepscore.checks import Floats

SCALES = (1.0, 0.1)


def simulate(theta: Floats, rng: Rng) -> Floats:
    scale = np.where(rng.random((len(theta), 1)) < 0.5, *SCALES)
    return theta + scale * rng.standard_normal(theta.shape)


def log_prob(theta: Floats, x: Floats) -> Floats:
    square = ((x - theta) ** 2).sum(axis=1)
    parts = [-0.5 * square / s**2 - jnp.log(2 * jnp.pi * s**2) + jnp.log(0.5) for s in SCALES]
    return jax.scipy.special.logsumexp(jnp.stack(parts), axis=0)


def gaussian_mixture() -> Task:
    space = box(names(2), -10.0, 10.0)
    model = ks.models.from_functions(
        space, (2,), simulate=simulate, log_prob=log_prob, name="gaussian_mixture"
    )
    return Task("gaussian_mixture", "gaussian_mixture", model)
