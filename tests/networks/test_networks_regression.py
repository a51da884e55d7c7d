"""Regression as a density: against SciPy, begun at least squares, trained, saved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from test_networks_mixture import shaken

import keepscore as ks
from keepscore import networks
from keepscore.networks.layers import silu
from keepscore.networks.regression import RegressionNetwork

KEY = jax.random.key(3)
RNG = np.random.default_rng


def mean_and_covariance(net, theta):
    """m and (L' L)^-1 of the network, layer by layer in float64."""

    def linear(z, layer):
        return z @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float)

    z = linear(theta, net.first)
    for block in net.blocks:
        z = z + linear(np.asarray(silu(linear(np.asarray(silu(z)), block.inner))), block.outer)
    mean = theta @ np.asarray(net.direct, float) + linear(np.asarray(silu(z)), net.last)
    factor = np.asarray(net.factor, float)
    lower = np.tril(factor, -1) + np.diag(np.exp(10 * np.tanh(np.diag(factor) / 10)))
    return mean, np.linalg.inv(lower.T @ lower)


@pytest.mark.parametrize(("shape", "d"), [((1,), 1), ((5,), 2), ((3, 2), 6)])
def test_the_density_is_normal_with_one_covariance(shape, d):
    net = shaken(networks.resolve("regression-10k", shape, d, None, KEY))
    assert isinstance(net, RegressionNetwork)
    x, theta = RNG(d).standard_normal((4, *shape)), RNG(d + 1).standard_normal((4, d))
    rows, at = (jnp.asarray(a, jnp.float32) for a in (x, theta))
    got = net.log_density(net.features(rows), at)
    mean, covariance = mean_and_covariance(net, theta)
    p = int(np.prod(shape))
    wanted = [
        stats.multivariate_normal.logpdf(row, m, covariance)
        for row, m in zip(x.reshape(4, -1), mean, strict=True)
    ]
    np.testing.assert_allclose(
        got, np.array(wanted) + 0.5 * p * np.log(2 * np.pi), rtol=2e-3, atol=2e-3
    )
    np.testing.assert_array_equal(got, net.head(net.features(rows), at))


def linear_data(n, d=3, p=4, seed=0, kind=float):
    """x = theta D + c + e with correlated e, and its exact score."""
    rng = RNG(seed)
    slopes, root = RNG(100).standard_normal((d, p)), 0.3 * RNG(101).standard_normal((p, p))
    space = ks.Space([ks.Parameter(f"t{k}", -1.0, 1.0, transform="identity") for k in range(d)])
    theta = space.uniform(n, rng)
    x = theta @ slopes + 5.0 + rng.standard_normal((n, p)) @ root.T
    inverse = np.linalg.inv(root @ root.T)
    score = (x - theta @ slopes - 5.0) @ inverse @ slopes.T
    return ks.dataset(theta, x.astype(kind), space=space, score=score)


def test_it_begins_at_least_squares():
    data = linear_data(500)
    theta, x = np.asarray(data.theta), np.asarray(data.x)
    low, high = data.space.box("train")
    net = networks.resolve("regression-10k", (4,), 3, None, KEY)
    begun = networks.standardise(net, x, low, high, theta)
    features = begun.features(jnp.asarray(x, jnp.float32))
    got = np.asarray(begun.log_density(features, jnp.asarray(theta, jnp.float32)))
    design = np.column_stack([np.ones(500), theta])
    left = x - design @ np.linalg.lstsq(design, x, rcond=None)[0]
    s, w = left.T @ left / (500 - 4), 4 / 500
    covariance = (1 - w) * s + w * np.diag(np.diag(s))
    wanted = stats.multivariate_normal.logpdf(left, np.zeros(4), covariance)
    np.testing.assert_allclose(got - got[0], wanted - wanted[0], rtol=1e-3, atol=1e-2)
    # Without theta, the control, it knows nothing of it.
    plain = networks.standardise(net, x, low, high)
    moved = jnp.asarray(theta[::-1].copy(), jnp.float32)
    same = plain.log_density(features, moved) == plain.log_density(features, moved[::-1])
    assert np.asarray(same).all()


@pytest.mark.parametrize("n", [3, 6])
def test_hardly_any_rows_make_a_density_all_the_same(n):
    """n no larger than d + 1, or than p; an entry that never changes; one that theta tells."""
    x = RNG(0).standard_normal((n, 5))
    x[:, 2] = 7.0
    net = networks.resolve("regression-10k", (5,), 2, None, KEY)
    theta = RNG(1).standard_normal((n, 2))
    x[:, 3] = theta[:, 0]
    begun = networks.standardise(net, x, -np.ones(2), np.ones(2), theta)
    value = begun.log_density(begun.features(jnp.asarray(x, jnp.float32)), jnp.asarray(theta))
    assert np.isfinite(value).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [float, np.float32])
def test_few_simulations_without_scores_suffice_where_it_is_right(tmp_path, kind):
    """400 rows, no scores: R² of fresh scores above .9 in each of three parameters, where the
    residual network, the control, has less than .8 in some."""
    data = linear_data(400, kind=kind)
    bare = ks.dataset(data.theta, data.x, space=data.space)
    fresh = linear_data(500, seed=1)
    theta, x, exact = (np.asarray(a) for a in (fresh.theta, fresh.x, fresh.score))

    def r2(surrogate):
        return 1 - np.mean((surrogate.score(theta, x) - exact) ** 2, axis=0) / np.mean(
            exact**2, axis=0
        )

    config = ks.TrainConfig(min_epochs=60, max_epochs=60)
    trained, other = (
        ks.train(bare, network=name, loss=ks.BCE(), config=config, progress=False)
        for name in ("regression-10k", "residual-25k")
    )
    assert r2(trained).min() > 0.9
    assert r2(other).min() < 0.8
    trained.save(tmp_path / "saved")
    again = ks.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.relative(theta, x), trained.relative(theta, x))
