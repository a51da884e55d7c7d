"""The local network: a density whatever is observed, on grids of any shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore import networks
from keepscore.errors import NonFiniteError, ShapeError
from keepscore.networks.local_field import neighbours

KEY = jax.random.key(0)


def made(x_shape=(4, 5), holes="entries", d=2):
    """With weights that are far from where they begin, so that places depend on each other."""
    network = networks.resolve("local-5k", x_shape, d, "gaussian-field", KEY, holes=holes)
    rng = np.random.default_rng(3)
    weights, rest = networks.split(network)
    moved = jax.tree.map(lambda w: w + 0.15 * rng.standard_normal(w.shape).astype("f4"), weights)
    return networks.base.eqx.combine(moved, rest)


def log_q(network, x, theta=(0.3, -0.5)):
    x = jnp.asarray(x, jnp.float32)
    theta = jnp.tile(jnp.asarray(theta, jnp.float32), (len(x), 1))
    return np.asarray(network.log_density(network.features(x), theta), np.float64)


@pytest.mark.parametrize("shape", [(1, 2), (2, 1)])
def test_it_is_a_density(shape):
    """The integral over a grid of 1 x 2 or 2 x 1 is one; without the log-variance it is not."""
    side = np.linspace(-12, 12, 49)
    both = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, *shape)
    total = np.exp(log_q(made(), both)).sum() * (side[1] - side[0]) ** 2
    assert abs(total - 1) < 1e-3


@pytest.mark.parametrize("shape", [(1, 2), (2, 1)])
def test_with_holes_it_is_a_density_of_what_is_there(shape):
    side = np.linspace(-12, 12, 97)
    for gone in (0, 1):
        x = np.zeros((len(side), 2))
        x[:, 1 - gone], x[:, gone] = side, np.nan
        total = np.exp(log_q(made(), x.reshape(-1, *shape))).sum() * (side[1] - side[0])
        assert abs(total - 1) < 1e-3
    nothing = np.full((1, *shape), np.nan)
    assert log_q(made(), nothing)[0] == 0.0


def test_a_place_sees_its_past_alone():
    """Changing a place changes the terms of itself and of later ones near it; 24 neighbours."""
    assert len(neighbours(3)) == 24
    assert all((i, j) < (0, 0) for i, j in neighbours(3))
    network, x = made((6, 6)), np.random.default_rng(0).standard_normal((1, 6, 6))
    alone = x.copy()
    alone[0, :3] = np.nan  # the rows above are gone
    rows_below = log_q(network, x[:, 3:])
    assert np.allclose(log_q(network, alone), rows_below, atol=1e-4)  # outside = not observed
    other = x.copy()
    other[0, 5, 5] += 1.0  # the last place: nobody's past
    assert not np.allclose(log_q(network, other), log_q(network, x))


def test_pairs_in_turns_are_pairs_at_once(monkeypatch):
    network, rng = made(), np.random.default_rng(1)
    x = jnp.asarray(rng.standard_normal((7, 4, 5)), jnp.float32)
    theta = jnp.asarray(rng.standard_normal((7, 2)), jnp.float32)
    whole = network.head(network.features(x), theta)
    slope = jax.grad(lambda t: network.head(network.features(x), t).sum())(theta)
    monkeypatch.setattr("keepscore.networks.local_field.MOST_PLACES", 45)
    parts = network.head(network.features(x), theta)
    assert np.allclose(parts, whole, atol=1e-3)
    turns = jax.grad(lambda t: network.head(network.features(x), t).sum())(theta)
    assert np.allclose(turns, slope, atol=1e-3)


def test_the_evidence_moves_no_weight_of_the_density():
    network = made()
    x = jnp.asarray(np.random.default_rng(1).standard_normal((3, 4, 5)), jnp.float32)

    def c(net):
        return net.features(x)[:, -1].sum()

    slopes = networks.base.eqx.filter_grad(c)(network)
    for part in ("join", "second", "last"):
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(getattr(slopes, part)))
    assert np.any(slopes.log_weights)


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
