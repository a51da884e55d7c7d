"""Densities of independent entries against SciPy; trained, saved, and left where they are wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from test_networks_mixture import shaken

import keepscore as ks
from keepscore import networks
from keepscore.networks.counts import LEAST_SD, IndependentCountsNetwork
from keepscore.networks.independent import IndependentNetwork
from keepscore.networks.layers import silu
from keepscore.training import candidates
from keepscore.training.batches import open_rows

KEY = jax.random.key(3)


def mean_and_sd(net, theta):
    """m and s of the network, layer by layer in float64."""

    def linear(z, layer):
        return z @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float)

    z = linear(theta, net.first)
    for block in net.blocks:
        z = z + linear(np.asarray(silu(linear(np.asarray(silu(z)), block.inner))), block.outer)
    mean, free = np.split(linear(np.asarray(silu(z)), net.last), 2, axis=1)
    return mean, np.exp(10 * np.tanh(free / 10))


def in_float32(*arrays):
    return [jnp.asarray(a, jnp.float32) for a in arrays]


@pytest.mark.parametrize(("shape", "d"), [((1,), 1), ((5,), 2), ((3, 2), 6)])
def test_the_density_is_a_product_of_normal_ones(shape, d):
    rng = np.random.default_rng(d)
    net = shaken(networks.resolve("independent-30k", shape, d, None, KEY))
    assert isinstance(net, IndependentNetwork)
    x, theta = rng.standard_normal((4, *shape)), rng.standard_normal((4, d))
    rows, at = in_float32(x, theta)
    got = net.log_density(net.features(rows), at)
    mean, sd = mean_and_sd(net, theta)
    wanted = stats.norm.logpdf(x.reshape(4, -1), mean, sd).sum(axis=1)
    constant = 0.5 * np.prod(shape) * np.log(2 * np.pi)
    np.testing.assert_allclose(got, wanted + constant, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(got, net.head(net.features(rows), at))


def test_counts_are_never_told_finer_than_they_are():
    """s is softly above half a step of the root; without counts, far below it."""
    net = shaken(networks.resolve("independent-30k", (3,), 1, None, KEY))
    x, theta, least = in_float32(np.zeros((5, 3)), np.ones((5, 1)), np.full((5, 3), 0.7))
    bounded, free = net.log_density(x, theta, least), net.log_density(x, theta)
    mean, sd = mean_and_sd(net, np.ones((5, 1)))
    raised = 0.7 * (1 + sd / 0.7)  # exp(log a + softplus(log s - log a)) = a + s
    wanted = (stats.norm.logpdf(0, mean, raised) + 0.5 * np.log(2 * np.pi)).sum(axis=1)
    np.testing.assert_allclose(bounded, wanted, rtol=1e-3, atol=1e-3)
    assert not np.allclose(bounded, free)


@pytest.mark.parametrize("kind", [np.int64, float])
def test_counts_take_roots_and_their_scale_back(kind):
    x = np.random.default_rng(0).poisson(30.0, (50, 3)).astype(kind)
    net = networks.resolve("independent-counts-30k", (3,), 2, None, KEY).scaled_to(x)
    assert isinstance(net, IndependentCountsNetwork)
    theta = np.random.default_rng(1).standard_normal((50, 2))
    y = (2 * np.sqrt(x + 3 / 8) - net.y_mean) / net.y_sd
    step = 1 / np.sqrt(x + 3 / 8) / net.y_sd
    rows, at, roots, least = in_float32(x, theta, y, LEAST_SD * step)
    wanted = net.network.log_density(roots, at, least)
    np.testing.assert_allclose(net.log_density(net.features(rows), at), wanted, rtol=1e-3)


def decay(n, seed=0, counts=False):
    """exp(-r t) 100 at 40 times, d = 1, with an error of 10% each or as Poisson counts."""
    rng, times = np.random.default_rng(seed), np.linspace(0.1, 3.0, 40)
    theta = rng.uniform(-1.0, 0.5, (n, 1))
    mean = 100 * np.exp(-np.exp(theta) * times)
    slope = -np.exp(theta) * times  # d log mean / d theta
    if counts:
        x = rng.poisson(mean).astype(float)
        score = ((x - mean) * slope).sum(axis=1, keepdims=True)
    else:
        x = np.exp(np.log(mean) + 0.1 * rng.standard_normal(mean.shape))
        score = (np.log(x / mean) / 0.01 * slope).sum(axis=1, keepdims=True)
    space = ks.Space([ks.Parameter("r", -1.0, 0.5)])
    return ks.dataset(theta, x, space=space, score=score)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "name"), [(False, "independent-30k"), (True, "independent-counts-30k")]
)
def test_a_curve_with_noise_is_learned_from_few_and_comes_back_from_disk(tmp_path, counts, name):
    """Forty numbers are too many for a covariance, and "auto" tries this density alone. Scores are
    followed on fresh data: R² above .6; shuffled rows, the control, give less than 0."""
    data = decay(400, counts=counts)
    rows = open_rows(data, None, True, 1 << 30)
    assert list(candidates.others(rows, data)) == [name]
    config = ks.TrainConfig(min_epochs=200, max_epochs=200)
    trained = ks.train(data, network=name, config=config, progress=False)
    fresh = decay(500, seed=1, counts=counts)
    theta, x = np.asarray(fresh.theta), np.asarray(fresh.x)
    exact, got = np.asarray(fresh.score), trained.score(theta, x)

    def r2(found):
        return 1 - np.mean((found - exact) ** 2) / np.mean(exact**2)

    assert r2(got) > 0.6
    assert r2(np.roll(got, 1, axis=0)) < 0
    trained.save(tmp_path / "saved")
    again = ks.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.relative(theta, x), trained.relative(theta, x))
