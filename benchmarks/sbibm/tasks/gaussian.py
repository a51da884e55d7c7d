"""Gaussian linear: x ~ N(theta, 0.1 I) in ten dimensions; theta ~ N(0, 0.1 I), or uniform."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import keepscore as ks
from benchmarks.sbibm.tasks.base import Rng, Task, box, names
from keepscore.checks import Floats

D, VARIANCE = 10, 0.1


def simulate(theta: Floats, rng: Rng) -> Floats:
    return theta + np.sqrt(VARIANCE) * rng.standard_normal(theta.shape)


def log_prob(theta: Floats, x: Floats) -> Floats:
    return (-0.5 * (x - theta) ** 2 / VARIANCE - 0.5 * jnp.log(2 * jnp.pi * VARIANCE)).sum(axis=1)


def _model(name: str, space: ks.Space) -> ks.models.Model:
    return ks.models.from_functions(space, (D,), simulate=simulate, log_prob=log_prob, name=name)


def gaussian_linear_uniform() -> Task:
    space = box(names(D), -1.0, 1.0)
    return Task(
        "gaussian_linear_uniform",
        "gaussian_linear_uniform",
        _model("gaussian_linear_uniform", space),
    )


def gaussian_linear() -> Task:
    """The prior N(0, 0.1 I)."""
    prior = ks.priors.Normal(0.0, float(np.sqrt(0.1)))
    space = ks.Space(
        [
            ks.Parameter(name, transform="identity", train_margin=0.0, prior=prior)
            for name in names(D)
        ]
    )
    return Task("gaussian_linear", "gaussian_linear", _model("gaussian_linear", space))
