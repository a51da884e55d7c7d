"""Does the order of entries mean something? False alarms, and what is seen."""

import numpy as np
import pytest

from keepscore.numerics.order import excess, order_matters

N, T = 400, 40
RNG = np.random.default_rng


def test_an_order_by_chance_is_hardly_ever_seen():
    """Entries that depend on theta each in its own way, in any order. One in some 200 data sets
    passes: of 200, six or more have a probability below .001."""
    alarms = 0
    for seed in range(200):
        rng = RNG(seed)
        theta = rng.uniform(-1, 1, (N, 2))
        slope = rng.standard_normal((2, T))
        x = theta @ slope + np.exp(theta[:, :1] * rng.uniform(0, 1, T)) * rng.standard_normal(
            (N, T)
        )
        alarms += order_matters(x)
    assert alarms < 6


def autoregression(rng, memory):
    x = [rng.standard_normal(N)]
    for _ in range(T - 1):
        x.append(memory * x[-1] + np.sqrt(1 - memory**2) * rng.standard_normal(N))
    return np.stack(x, axis=1)


def volatile(rng):
    return np.exp(autoregression(rng, 0.8)) * rng.standard_normal((N, T))


def crashes(rng):
    """Theta makes all times alike; from one to the next values go up and down."""
    return 2 * rng.standard_normal((N, 1)) + autoregression(rng, -0.7)


PATHS = {
    "neighbours alike": lambda rng: autoregression(rng, 0.5),
    "wild in the same weeks": volatile,
    "less alike than others": crashes,
    "counts": lambda rng: rng.poisson(np.exp(autoregression(rng, 0.8))).astype(float),
    "one channel of two": lambda rng: np.stack(
        [rng.standard_normal((N, T)), autoregression(rng, 0.5)], axis=2
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_paths_are_seen_and_shuffled_ones_are_not(name):
    x = PATHS[name](RNG(1))
    assert order_matters(x)
    shuffled = [x[:, RNG(seed).permutation(T)] for seed in range(20)]
    assert sum(order_matters(one) for one in shuffled) <= 2  # negative control


def test_entries_that_do_not_vary_say_nothing():
    assert not order_matters(np.ones((N, T)))
    assert excess(np.zeros((N, T))) == 0.0
