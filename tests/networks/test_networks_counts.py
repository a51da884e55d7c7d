"""Densities of counts: that of their roots, nearly a probability, saved and loaded."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore import networks
from keepscore.networks.counts import (
    FINE,
    LEAST_SD,
    CountsNetwork,
    IndependentMixedNetwork,
    MixedNetwork,
    is_counted,
    is_mixed,
)

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


@pytest.mark.slow
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


def summaries(n, seed=0):
    """How many, how much and a number of any sign."""
    rng = np.random.default_rng(seed)
    many = rng.poisson(20.0, n)
    return np.stack([rng.normal(3.0, 2.0, n), many, rng.gamma(2.0, 1.0, n)], axis=1)


@pytest.mark.parametrize("family", ["mixed-3k", "mixed-10k", "independent-mixed-30k"])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_only_counts_among_other_numbers_have_roots_and_a_bound(family, d):
    x = summaries(60)
    net = networks.resolve(family, (3,), d, None, KEY).scaled_to(x)
    kind = IndependentMixedNetwork if "independent" in family else MixedNetwork
    assert isinstance(net, kind)
    np.testing.assert_array_equal(net.counted, [0, 1, 0])
    y = x.copy()
    y[:, 1] = 2 * np.sqrt(x[:, 1] + 3 / 8)
    np.testing.assert_allclose(net.y_mean, y.mean(axis=0), rtol=1e-5)
    scaled = jnp.asarray((y - y.mean(axis=0)) / y.std(axis=0), jnp.float32)
    features = net.features(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(features, scaled, rtol=1e-4, atol=1e-4)
    least = np.full(x.shape, LEAST_SD * FINE)
    least[:, 1] = LEAST_SD * 2 / y[:, 1] / y[:, 1].std()
    theta = jnp.asarray(np.random.default_rng(1).normal(size=(60, d)), jnp.float32)
    wanted = net.network.log_density(scaled, theta, jnp.asarray(least, jnp.float32))
    np.testing.assert_allclose(net.log_density(features, theta), wanted, rtol=1e-3, atol=1e-3)


def test_of_counts_alone_the_mixed_density_is_that_of_counts():
    x = np.random.default_rng(0).poisson(12.0, (40, 3))
    mixed = networks.resolve("mixed-3k", (3,), 2, None, KEY).scaled_to(x)
    theta = np.random.default_rng(1).normal(size=(40, 2))
    np.testing.assert_allclose(
        log_q(mixed, x, theta), log_q(network(x, 2), x, theta), rtol=1e-4, atol=1e-4
    )


def test_what_is_mixed():
    x = summaries(200)
    assert is_mixed(x)
    assert is_mixed(x.astype(np.float32))
    assert is_mixed(x.reshape(200, 3, 1))
    assert not is_mixed(x[:, [0, 2]])  # numbers alone
    assert not is_mixed(x[:, [1, 1]])  # counts alone
    assert not is_mixed(x - [0, 90, 0])  # whole numbers that are no counts
    assert not is_mixed(np.where([False, True, False], x > 20, x))  # few values
    assert not is_mixed(np.where(x == x[3, 1], np.nan, x))
    with pytest.raises(ks.errors.DomainError, match="nothing missing"):
        networks.resolve("mixed-3k", (3,), 1, None, KEY).scaled_to(np.full((5, 3), np.nan))


@pytest.mark.slow
def test_a_count_and_a_mean_are_learned_and_come_back_from_disk(tmp_path):
    """Animals along a line: how many were seen, and the root mean square of their distances.
    Differences of log-likelihoods within 30% of the exact ones; shuffled, the control, beyond 100%.
    The same after loading."""
    rng = np.random.default_rng(0)
    space = ks.Space([ks.Parameter(name, *box, transform="identity") for name, box in BOX.items()])
    theta = space.uniform(1500, rng)
    seen = rng.poisson(np.exp(theta[:, 0])) + 2
    spread = np.exp(theta[:, 1]) * np.sqrt(rng.chisquare(seen) / seen)
    x = np.stack([seen, spread], axis=1)

    def log_p(theta):
        lam, s2 = np.exp(theta[:, 0]), np.exp(2 * theta[:, 1])
        return (seen - 2) * theta[:, 0] - lam - seen * (theta[:, 1] + spread**2 / 2 / s2)

    score = np.stack(
        [seen - 2 - np.exp(theta[:, 0]), seen * (spread**2 / np.exp(2 * theta[:, 1]) - 1)], axis=1
    )
    data = ks.dataset(theta, x, space=space, score=score)
    config = ks.TrainConfig(min_epochs=60, max_epochs=60)
    trained = ks.train(data, network="mixed-3k", config=config, progress=False)
    low, high = space.box()
    other = np.clip(theta + 0.1 * rng.normal(size=theta.shape), low, high)
    exact = log_p(other) - log_p(theta)
    got = trained.relative(other, x) - trained.relative(theta, x)

    def share(found):
        return np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2))

    assert share(got) < 0.3
    assert share(np.roll(got, 1)) > 1
    trained.save(tmp_path / "saved")
    again = ks.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.relative(theta, x), trained.relative(theta, x))


BOX = {"log density": (2.5, 4.0), "log reach": (-0.5, 0.5)}
