"""The local network: conditionals, densities of what is observed, grids of any shape."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import keepscore as ks
from keepscore import networks
from keepscore.errors import NonFiniteError, ShapeError
from keepscore.networks import local_field

KEY = jax.random.key(0)
THETA = np.array([0.3, -0.5])


def made(x_shape=(4, 5), holes="entries", d=2, name="local-5k"):
    """With weights that are far from where they begin."""
    network = networks.resolve(name, x_shape, d, "gaussian-field", KEY, holes=holes)
    rng = np.random.default_rng(3)
    weights, rest = networks.split(network)
    moved = jax.tree.map(lambda w: w + 0.3 * rng.standard_normal(w.shape).astype("f4"), weights)
    return eqx.combine(moved, rest)


def log_q(network, x, theta=THETA):
    x = jnp.asarray(x, jnp.float32)
    theta = jnp.tile(jnp.asarray(theta, jnp.float32), (len(x), 1))
    return np.asarray(network.log_density(network.features(x), theta), np.float64)


def covariance(network, places, theta=THETA):
    """Between places (n, 2), from the network's spectrum."""
    out = np.asarray(network.spectrum(jnp.asarray(theta, jnp.float32)), np.float64)
    s = np.exp(np.asarray(network.level, np.float64) + out[: len(network.level)])
    lags = places[:, None] - places[None]
    angle = np.tensordot(local_field.frequencies(), lags, axes=(1, 2)) * 2 * np.pi / 16
    return np.tensordot(s, np.cos(angle), axes=1) + local_field.LEAST * np.eye(len(places))


def test_conditionals_are_those_of_every_subset():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 9))
    whole = root @ root.T / 9
    weights, v = local_field.conditionals(jnp.asarray(whole[:, :, None], jnp.float32))
    for pattern in range(16):
        given = [j for j in range(4) if pattern >> j & 1]
        wanted = np.zeros(4)
        wanted[given] = np.linalg.solve(whole[np.ix_(given, given)], whole[given, 4])
        np.testing.assert_allclose(weights[:, pattern, 0], wanted, atol=1e-5)
        np.testing.assert_allclose(v[pattern, 0], whole[4, 4] - wanted @ whole[:4, 4], rtol=1e-4)
    assert np.ptp(v) > 0.1  # patterns differ: a wrong order would be seen


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (3, 1)])
@pytest.mark.parametrize("name", ["local-5k", "local-tailed-5k"])
def test_where_all_earlier_places_are_neighbours_it_is_the_joint_density(shape, name):
    """Every hole of small grids, against SciPy's densities; with other covariances it is not."""
    network, rng = made(shape, name=name), np.random.default_rng(1)
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(-1, 2)
    full = covariance(network, places)
    off = 0.0
    for pattern in range(1, 2 ** len(places)):
        there = np.array([pattern >> j & 1 for j in range(len(places))], bool)
        x = rng.standard_normal(len(places)) * 1.3
        seen = np.where(there, x, np.nan).reshape(1, *shape)
        block = full[np.ix_(there, there)]
        if name == "local-5k":
            law = stats.multivariate_normal(np.zeros(len(block)), block)
        else:
            out = np.asarray(network.spectrum(jnp.asarray(THETA, jnp.float32)), float)[-2:]
            nu = 1 + np.exp(local_field.LOG_NU + out[1])
            law = stats.multivariate_t(np.full(len(block), out[0]), block, nu)
        wanted = law.logpdf(x[there])
        np.testing.assert_allclose(log_q(network, seen)[0], wanted, rtol=1e-3, atol=2e-3)
        off = max(off, abs(log_q(network, seen, -THETA)[0] - wanted))
    assert off > 0.05
    assert log_q(network, np.full((1, *shape), np.nan))[0] == 0.0


def test_the_rest_of_stirlings_formula():
    z = np.array([0.5, 0.7, 1.0, 3.0, 10.0, 1e3, 1e5])
    wanted = special.gammaln(z) - ((z - 0.5) * np.log(z) - z + 0.5 * np.log(2 * np.pi))
    np.testing.assert_allclose(local_field.stirling_rest(jnp.asarray(z)), wanted, atol=2e-6)


@pytest.mark.parametrize("name", ["local-5k", "local-tailed-5k"])
def test_a_place_sees_its_past_alone(name):
    """What is outside the grid is as what is not observed."""
    assert all(step < (0, 0) for step in local_field.STEPS)
    network, x = made((6, 6), name=name), np.random.default_rng(0).standard_normal((1, 6, 6))
    alone = x.copy()
    alone[0, :3] = np.nan  # the rows above are gone
    np.testing.assert_allclose(log_q(network, alone), log_q(network, x[:, 3:]), atol=1e-3)
    other = x.copy()
    other[0, 5, 5] += 1.0  # the last place: nobody's past
    assert not np.allclose(log_q(network, other), log_q(network, x), atol=1e-2)


@pytest.mark.parametrize("name", ["local-5k", "local-tailed-5k"])
def test_a_table_is_every_pair_and_features_add_up(name):
    network, rng = made(name=name), np.random.default_rng(1)
    x = rng.standard_normal((3, 4, 5))
    x[rng.random(x.shape) < 0.2] = np.nan
    features = network.features(jnp.asarray(x, jnp.float32))
    theta = jnp.asarray(rng.standard_normal((4, 2)), jnp.float32)
    table = np.asarray(network.table(features, theta))
    each = np.stack([log_q(network, x, t) for t in theta])
    np.testing.assert_allclose(table, each, rtol=1e-4, atol=1e-3)
    summed = np.asarray(network.table(features.sum(axis=0, keepdims=True), theta))[:, 0]
    apart = np.abs(summed - each.sum(axis=1)).max()
    assert (apart < 1e-3) == networks.base.has_linear_head(network)


def test_fields_in_turns_are_fields_at_once(monkeypatch):
    network = made()
    x = jnp.asarray(np.random.default_rng(1).standard_normal((7, 4, 5)), jnp.float32)
    whole = network.features(x)
    monkeypatch.setattr(local_field, "MOST_PLACES", 45)
    np.testing.assert_allclose(network.features(x), whole, atol=1e-4)


@pytest.mark.parametrize("name", ["local-5k", "local-10k", "local-tailed-5k"])
@pytest.mark.parametrize("holes", ["none", "entries"])
def test_it_is_rebuilt_from_its_description(name, holes):
    network = networks.resolve(name, (4, 5), 2, "field", KEY, holes=holes)
    description = networks.describe(network, (4, 5), 2)
    again = networks.rebuild(description)
    assert jax.tree.structure(again) == jax.tree.structure(network)
    assert networks.describe(again, (4, 5), 2) == description


def test_a_surrogate_of_it_takes_grids_of_other_shapes():
    space = ks.models.GaussianField(shape=(4, 5)).space
    network = made((4, 5), d=3)
    x = np.random.default_rng(0).standard_normal((50, 4, 5))
    scaled = networks.standardise(network, x, *space.box("train"))
    surrogate = ks.Surrogate(scaled, space, (4, 5))
    theta = space.grid(2)
    assert surrogate.given(x[:3])(theta).shape == (8,)
    large = np.random.default_rng(0).standard_normal((2, 3, 7, 6))
    large[0, 0, :2] = np.nan
    like = surrogate.given(large)
    assert like(theta).shape == (2, 8)
    assert np.isfinite(like(theta)).all()
    with pytest.raises(ShapeError):
        surrogate.log_ratio(theta[:1], large[0, :1])
    plain = ks.Surrogate(made((4, 5), holes="none", d=3), space, (4, 5))
    with pytest.raises(NonFiniteError, match="with_missing"):
        plain.given(large)
    assert ks.Surrogate(made((4, 5), d=3), space, (4, 5)).missing


@pytest.mark.slow
def test_it_learns_the_scores_of_fields_with_holes():
    """9 x 9, a fifth under clouds, 1,500 simulations, 25 epochs: R^2 of all scores above .8."""
    clouds = ks.models.clouds(share=0.2, size=3)
    model = ks.models.with_missing(ks.models.GaussianField(9, extent=1.0), clouds)
    data = ks.simulate(model, 1500, seed=0, jobs=1)
    config = ks.TrainConfig(max_epochs=25, guard=False)
    surrogate = ks.train(data, config=config, progress=False)
    assert type(surrogate.network.network) is local_field.MaskedLocalFieldNetwork
    assert min(surrogate.quality.score_r2) > 0.8
