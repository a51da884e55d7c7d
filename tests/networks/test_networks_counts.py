"""Densities of counts: that of their roots, nearly a probability, saved and loaded."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore import networks
from keepscore.networks.counts import CountsNetwork, is_counted

KEY = jax.random.key(3)


def network(x, d=1, size="3k"):
    return networks.resolve(f"counts-{size}", x.shape[1:], d, None, KEY).scaled_to(x)


def log_q(net, x, theta):
    features = net.features(jnp.asarray(x, jnp.float32))
    return np.asarray(net.log_density(features, jnp.asarray(theta, jnp.float32)))


def as_narrow_as_it_may(net):
    """The network with the largest L that its weights can ask for, and means as they were."""
    p = net.y_mean.size
    bias = net.network.of_theta.layers[-1].bias
    diagonal = 1 + p + np.arange(p) * (p + 1)
    return eqx.tree_at(
        lambda n: n.network.of_theta.layers[-1].bias, net, bias.at[diagonal].set(100.0)
    )


@pytest.mark.parametrize("mean", [0.3, 2.0, 40.0, 900.0])
@pytest.mark.parametrize("narrow", [False, True])
def test_it_is_nearly_a_probability(mean, narrow):
    """q(y) dy / dx sums to 1 over all counts; a Gaussian that is wide beside its distance from zero
    loses what lies below."""
    x = np.random.default_rng(0).poisson(mean, (500, 1))
    net = network(x)
    if narrow:
        net = as_narrow_as_it_may(net)
    every = np.arange(0, 4000)[:, None]
    values = log_q(net, every, np.zeros((len(every), 1)))
    slope = 1 / np.sqrt(every[:, 0] + 3 / 8) / net.y_sd
    total = float((np.exp(values) * slope).sum() / np.sqrt(2 * np.pi))
    assert total == pytest.approx(1.0, abs=0.25 if mean < 10 else 0.03)


def test_a_frequent_value_does_not_get_any_density():
    """Negative control: without the bound the same weights give it a density 1,000 times as
    high."""
    x = np.zeros((200, 1))
    x[::20] = 5
    net = as_narrow_as_it_may(network(x))
    features, theta = net.features(jnp.zeros((1, 1))), jnp.zeros((1, 1))
    mean = net.network.of_theta(theta)[:, 1:2]  # moved to no counts at all
    net = eqx.tree_at(lambda n: n.network.centre, net, features - mean)
    bounded = float(net.log_density(features, theta)[0])
    free = float(net.network.log_rows(features[:, None], theta)[0, 0])
    # That of a normal density at its mean, whose standard deviation is half a step of y.
    assert bounded == pytest.approx(np.log(2 * np.sqrt(3 / 8) * net.y_sd[0]), abs=1e-3)
    assert free > bounded + np.log(1000)


@pytest.mark.parametrize("shape", [(1,), (6,), (3, 2)])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_any_shape_is_one_row(shape, d):
    x = np.random.default_rng(0).poisson(5.0, (20, *shape))
    net = network(x, d, "10k")
    assert isinstance(net, CountsNetwork)
    flat = network(x.reshape(20, -1), d, "10k")
    theta = np.random.default_rng(1).normal(size=(20, d))
    np.testing.assert_allclose(log_q(net, x, theta), log_q(flat, x.reshape(20, -1), theta))


@pytest.mark.parametrize("kind", [np.int64, np.uint16, np.float32])
def test_a_trained_one_is_right_and_comes_back_from_disk(tmp_path, kind):
    """Poisson counts with rate exp(theta): differences of log-likelihoods within 15% of the
    exact ones, and the same after loading."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(2, 5, (2000, 1))
    x = rng.poisson(np.exp(theta), (2000, 4)).astype(kind)
    score = x.sum(axis=1, keepdims=True) - 4 * np.exp(theta)
    data = ks.dataset(theta, x, space=ks.Space([ks.Parameter("rate", 2.0, 5.0)]), score=score)
    trained = ks.train(data, network="counts-3k", progress=False)
    other = np.clip(theta + 0.1 * rng.normal(size=theta.shape), 2, 5)
    exact = (x * (other - theta) - (np.exp(other) - np.exp(theta))).sum(axis=1)
    got = trained.relative(other, x) - trained.relative(theta, x)
    assert np.sqrt(np.mean((got - exact) ** 2)) < 0.15 * np.sqrt(np.mean(exact**2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # large counts are not far from data that are large
        assert np.isfinite(trained.given(np.full((2, 4), 148, kind))([[4.9]])).all()
    trained.save(tmp_path / "saved")
    again = ks.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.relative(theta, x), trained.relative(theta, x))


@pytest.mark.parametrize("value", [-1.0, np.nan])
def test_numbers_that_are_no_counts_are_refused(value):
    x = np.random.default_rng(0).poisson(5.0, (20, 2)).astype(float)
    x[3, 1] = value
    with pytest.raises(ks.errors.DomainError, match="needs x of 0 or more"):
        network(x)


def test_what_is_scaled_is_taken_back():
    """Through `standardise` or not: the same density."""
    x = np.random.default_rng(0).poisson(30.0, (50, 3))
    plain = network(x, 2)
    low, high = np.full(2, -np.sqrt(3.0)), np.full(2, np.sqrt(3.0))  # theta stays as it is
    scaled = networks.standardise(network(x, 2), x, low, high)
    assert scaled.x_sd[0] == pytest.approx(x[:, 0].std(), rel=1e-5)
    theta = np.random.default_rng(1).normal(size=(50, 2))
    np.testing.assert_allclose(log_q(scaled, x, theta), log_q(plain, x, theta), rtol=1e-4)


def test_what_counts_are():
    counts = np.random.default_rng(0).poisson(20, (100, 3))
    assert is_counted(counts)
    assert is_counted(counts.astype(np.float32))
    assert not is_counted(counts + 0.5)
    assert not is_counted(-counts)
    assert not is_counted(counts > 20)
    assert not is_counted(counts % 3)
    assert not is_counted(np.where(counts == 20, np.nan, counts))
