"""Mixture densities against SciPy; what trains them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import keepscore as ks
from keepscore import networks
from keepscore.errors import ShapeError
from keepscore.losses import ASA, BCE
from keepscore.networks import catalogue
from keepscore.networks.mixture import MixtureNetwork, MixtureSetNetwork
from keepscore.networks.residual import ResidualSetNetwork
from keepscore.training.step import Batch, objective

KEY = jax.random.key(3)


def shaken(network):
    """Other weights than those it starts with, of which many are zero."""
    rng = np.random.default_rng(0)
    weights, rest = networks.split(network)
    moved = jax.tree.map(
        lambda w: w + 0.3 * rng.standard_normal(w.shape).astype(np.float32), weights
    )
    return eqx.combine(moved, rest)


def by_scipy(net, row, theta):
    """log q of one row at one theta, up to p/2 log 2 pi."""
    k, p = net.centre.shape
    out = np.asarray(net.of_theta(jnp.asarray(theta, jnp.float32)) + theta @ net.slope, float)
    weight = out[:k] - logsumexp(out[:k])
    mean = out[k : k + k * p].reshape(k, p) + np.asarray(net.centre)
    square = out[k + k * p :].reshape(k, p, p)
    parts = []
    for j in range(k):
        diagonal = np.exp(10 * np.tanh(np.diagonal(square[j]) / 10))
        factor = np.tril(square[j], -1) + np.diag(diagonal)
        normal = stats.multivariate_normal(mean[j], np.linalg.inv(factor.T @ factor))
        parts.append(weight[j] + normal.logpdf(row))
    return logsumexp(parts) + 0.5 * p * np.log(2 * np.pi)


@pytest.mark.parametrize(("p", "d"), [(1, 1), (2, 5), (3, 2)])
def test_the_density_is_a_mixture_of_gaussians(p, d):
    rng = np.random.default_rng(p)
    net = shaken(networks.resolve("mixture-10k", (p,), d, None, KEY))
    x, theta = rng.standard_normal((4, p)), rng.standard_normal((4, d))
    features = net.features(jnp.asarray(x, jnp.float32))
    got = net.log_density(features, jnp.asarray(theta, jnp.float32))
    wanted = [by_scipy(net, a, t) for a, t in zip(x, theta, strict=True)]
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


def test_a_set_is_the_sum_over_its_rows_for_any_number_of_them():
    rng = np.random.default_rng(1)
    net = shaken(networks.resolve("mixture-set-10k", (4, 2), 3, "iid", KEY))
    theta = rng.standard_normal((5, 3))
    for n in (1, 4, 9):
        x = rng.standard_normal((5, n, 2))
        found = net.features(jnp.asarray(x, jnp.float32))
        got = net.log_density(found, jnp.asarray(theta, jnp.float32))
        wanted = [
            sum(by_scipy(net.row, row, t) for row in a) for a, t in zip(x, theta, strict=True)
        ]
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
        shuffled = net.features(jnp.asarray(x[:, rng.permutation(n)], jnp.float32))
        h, again = (net.head(f, jnp.asarray(theta, jnp.float32)) for f in (found, shuffled))
        np.testing.assert_allclose(again, h, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("x_shape", "continuous", "wanted"),
    [
        ((4, 2), True, MixtureSetNetwork),
        ((400, 16), True, MixtureSetNetwork),
        ((4, 17), True, ResidualSetNetwork),
        ((4, 2), False, ResidualSetNetwork),
    ],
)
def test_auto_takes_it_for_rows_of_few_continuous_numbers(x_shape, continuous, wanted):
    net = networks.resolve("auto", x_shape, 2, "iid", KEY, continuous=continuous)
    assert type(net) is wanted
    again = networks.rebuild(networks.describe(net, x_shape, 2))
    assert type(again) is wanted


def test_what_is_continuous():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((500, 3, 2))
    assert networks.is_continuous(x)
    assert networks.is_continuous(x.astype(np.float32))
    assert not networks.is_continuous(np.round(x, 1))
    assert not networks.is_continuous(rng.integers(0, 2**40, (500, 2)))
    mixed = np.concatenate([x, np.round(x[..., :1])], axis=-1)
    assert not networks.is_continuous(mixed)


def test_a_set_needs_rows():
    with pytest.raises(ShapeError, match="n rows"):
        networks.resolve("mixture-set-10k", (4,), 2, "iid", KEY)


@pytest.mark.parametrize("loss", [BCE(), ASA(residual="squared")], ids=["BCE", "ASA"])
def test_likelihood_teaches_a_density_and_pairs_are_recorded(loss):
    """The gradient is that of the mean -log q; the value is mean softplus(log q' - log q)."""
    rng = np.random.default_rng(4)
    net = shaken(MixtureNetwork((2,), 2, rng, 2, (8,)))
    weights, rest = networks.split(net)
    x, theta, other, score = (
        jnp.asarray(rng.standard_normal(s), jnp.float32)
        for s in ((6, 2), (6, 2), (1, 6, 2), (6, 2))
    )
    batch = Batch(x, theta, score, other)

    def log_q(w, theta):
        one = eqx.combine(w, rest)
        return one.log_density(one.features(x), theta)

    value, got = jax.value_and_grad(lambda w: objective(rest, loss)(w, batch)[0])(weights)
    apart = log_q(weights, other[0]) - log_q(weights, theta)
    assert float(value) == pytest.approx(float(np.logaddexp(0, apart).mean()), rel=1e-4)
    wanted = jax.grad(lambda w: -log_q(w, theta).mean())(weights)
    for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(got)) > 0.01


@pytest.mark.slow
def test_it_learns_a_gaussian_from_few_simulations(tmp_path):
    """Rows N(theta1, exp(2 theta2)), 300 simulations: the log-likelihood differences between pairs
    of theta are within .3 of the exact ones for 90% of data sets (they vary by 6)."""
    space = ks.Space(
        [ks.Parameter("m", -1, 1, "identity"), ks.Parameter("log s", -0.5, 0.5, "identity")]
    )

    def simulate(theta, rng):
        z = rng.standard_normal((len(theta), 3, 1))
        return theta[:, None, None, 0] + np.exp(theta[:, None, None, 1]) * z

    def log_prob(theta, x):
        z = (x[..., 0] - theta[:, :1]) / jnp.exp(theta[:, 1:])
        return (-0.5 * z**2 - theta[:, 1:]).sum(axis=1)

    model = ks.models.from_functions(
        space, (3, 1), simulate=simulate, log_prob=log_prob, declares=["iid"], name="rows"
    )
    config = ks.TrainConfig(max_epochs=250, guard=False)
    surrogate = ks.train(ks.simulate(model, 300, jobs=1), config=config, progress=False)
    assert type(surrogate.network.network) is MixtureSetNetwork
    rng = np.random.default_rng(5)
    one, two = space.uniform(200, rng), space.uniform(200, rng)
    x = model.simulate(one, rng)
    exact = np.asarray(model.log_prob(one, x)) - np.asarray(model.log_prob(two, x))
    found = surrogate.log_ratio(one, x) - surrogate.log_ratio(two, x)
    assert exact.std() > 1
    assert np.quantile(np.abs(found - exact), 0.9) < 0.3
    surrogate.save(tmp_path / "s")
    again = ks.load(tmp_path / "s")
    np.testing.assert_array_equal(again.log_ratio(one, x), surrogate.log_ratio(one, x))


def test_sizes_by_rows():
    sizes = [networks.size_by_rows(n) for n in (0, 99_999, 100_000, 999_999, 1_000_000)]
    assert sizes == ["10k", "10k", "30k", "30k", "100k"]


def test_rows_that_are_missing_teach_nothing():
    x = np.ones((10, 4, 2))
    assert networks.rows_to_learn_from(100, x, False) == 400
    assert networks.rows_to_learn_from(100, x.astype(int), True) == 800
    x[:5, 2:] = np.nan  # as a whole
    x[5:, 0, 0] = np.nan  # in part
    assert networks.rows_to_learn_from(100, x, False) == 300
    assert networks.rows_to_learn_from(100, np.ones(10), False) == 100


@pytest.mark.parametrize(
    ("n", "scores", "components"), [(40, False, 4), (60, False, 8), (40, True, 8), (400, True, 16)]
)
def test_auto_takes_a_larger_density_where_there_are_many_rows(monkeypatch, n, scores, components):
    """By all rows of all simulations, those with scores twice; a size that is named is kept."""
    monkeypatch.setattr(catalogue, "SIZES_BY_ROWS", ((1_000, "100k"), (100, "30k")))
    rng = np.random.default_rng(4)
    theta = rng.uniform(-1, 1, (n, 1))
    x = theta[:, :, None] + rng.standard_normal((n, 2, 1))
    space = ks.Space([ks.Parameter("mean", -1, 1, "identity", train_margin=0.0)])
    score = (x - theta[:, :, None]).sum(axis=1) if scores else None
    data = ks.dataset(theta, x, score, space=space, structure="iid")
    config = ks.TrainConfig(min_epochs=1, max_epochs=1, batch_size=8, guard=False)

    def trained(network):
        return ks.train(data, network=network, config=config, progress=False).network.network

    assert len(trained("auto").row.centre) == components
    if n == 60:
        assert len(trained("mixture-set-10k").row.centre) == 4
