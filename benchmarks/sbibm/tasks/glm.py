"""Bernoulli GLM: a neuron that fires with probability sigmoid(V theta) in each of 100 bins.

V is 1 and the stimulus at nine lags; theta ~ N(0, B), where the inverse of B smooths the filter.
x is V'y (ten sufficient statistics) or, "raw", the spikes y themselves. For either,

    log p = y' V theta - sum_t log(1 + exp(V_t theta)) + what does not depend on theta.
"""

from __future__ import annotations

from functools import cache

import jax
import numpy as np

import keepscore as ks
from benchmarks.sbibm.tasks.base import Rng, Task, names
from keepscore.checks import Floats

BINS, D = 100, 10


@cache
def design() -> Floats:
    """V (100, 10), from the benchmark's seed."""
    stimulus = np.random.RandomState(42).randn(BINS).astype(np.float32).astype(float)
    lags = np.zeros((BINS, D - 1))
    for j in range(D - 1):
        lags[j:, j] = stimulus[: BINS - j]
    return np.column_stack([np.ones(BINS), lags])


@cache
def precision() -> Floats:
    """The inverse of B (10, 10): 1/2 for the offset, penalised second differences for the rest."""
    m = D - 1
    difference = np.eye(m) - np.diag(np.ones(m - 1), -1)
    f = difference @ difference + np.diag(np.sqrt(np.arange(m) / m))
    inverse = np.zeros((D, D))
    inverse[0, 0], inverse[1:, 1:] = 0.5, f.T @ f
    return inverse


def spikes(theta: Floats, rng: Rng) -> Floats:
    rate = 1 / (1 + np.exp(-(theta @ design().T)))
    return (rng.random(rate.shape) < rate).astype(float)


def statistics(theta: Floats, rng: Rng) -> Floats:
    return spikes(theta, rng) @ design()


def log_prob(theta: Floats, x: Floats) -> Floats:
    return (x * theta).sum(axis=1) - jax.nn.softplus(theta @ design().T).sum(axis=1)


def log_prob_raw(theta: Floats, x: Floats) -> Floats:
    return log_prob(theta, x @ design())


def _space() -> ks.Space:
    """The prior N(0, B)."""
    inverse = np.linalg.inv(precision())
    prior = ks.priors.MultivariateNormal(np.zeros(D), (inverse + inverse.T) / 2)
    return ks.Space(
        [ks.Parameter(name, transform="identity", train_margin=0.0) for name in names(D)],
        prior=prior,
    )


def _task(name: str, file: str, model: ks.models.Model) -> Task:
    return Task(name, "bernoulli_glm", model, file)


def bernoulli_glm() -> Task:
    model = ks.models.from_functions(
        _space(), (D,), simulate=statistics, log_prob=log_prob, name="bernoulli_glm"
    )
    return _task("bernoulli_glm", "observation.csv", model)


def bernoulli_glm_raw() -> Task:
    model = ks.models.from_functions(
        _space(), (BINS,), simulate=spikes, log_prob=log_prob_raw, name="bernoulli_glm_raw"
    )
    return _task("bernoulli_glm_raw", "observation_raw.csv", model)
