"""What was the same in all simulations tells nothing: no network's answer depends on it, however
far from it new data are, and one is told."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore import networks
from keepscore.errors import KeepscoreWarning

KEY = jax.random.key(5)
BOX = np.array([-1.0]), np.array([1.0])
RNG = np.random.default_rng(8)


def h(scaled, x):
    theta = jnp.linspace(-1, 1, len(x))[:, None]
    return np.asarray(networks.log_ratio(scaled, theta, jnp.asarray(x, jnp.float32)))


def logits(name, structure, x, new, value):
    """h of data as they are, and with another value in the entries `new`."""
    network = networks.resolve(name, x.shape[1:], 1, structure, KEY)
    scaled = networks.standardise(network, x, *BOX)
    return h(scaled, x[:5]), h(scaled, np.where(new, value, x)[:5])


@pytest.mark.parametrize(
    ("name", "structure", "shape", "constant"),
    [
        ("residual-25k", None, (4,), (slice(None), 2)),
        ("mlp-3k", None, (4,), (slice(None), 2)),
        ("mixture-3k", None, (4,), (slice(None), 2)),
        ("independent-30k", None, (4,), (slice(None), 2)),
        ("set-5k", "iid", (7, 3), (slice(None), slice(None), 1)),
        ("map-10k", None, (8, 8, 2), (slice(None), slice(None), slice(None), 1)),
        ("path-10k", None, (20, 2), (slice(None), slice(None), 1)),
    ],
)
@pytest.mark.parametrize("value", [0.1, 7.7])
def test_no_network_looks_at_them(name, structure, shape, constant, value):
    x = RNG.normal(size=(500, *shape))
    x[constant] = value
    new = np.zeros_like(x, dtype=bool)
    new[constant] = True
    own, other = logits(name, structure, x, new, value + 0.1)
    assert np.isfinite(own).all()
    np.testing.assert_array_equal(own, other)
    varied, far = logits(name, structure, x, ~new, value + 0.1)  # what varies does tell
    assert np.abs(varied - far).max() > 1e-6


def test_a_density_of_counts_stays_sane_where_an_entry_was_always_zero():
    """Counts need them back to take their roots: one count more is one count more."""
    x = RNG.poisson(20, (900, 10)).astype(float)
    x[:, 0] = 0
    network = networks.resolve("counts-3k", (10,), 1, None, KEY)
    scaled = networks.standardise(network, x, *BOX)
    new = x[:50].copy()
    new[:, 0] = 3
    assert np.abs(h(scaled, x[:50]) - h(scaled, new)).max() < 1e3


@pytest.fixture(scope="module")
def surrogate():
    space = ks.Space([ks.Parameter("mean", -1, 1, transform="identity")])
    theta = RNG.uniform(-1, 1, (300, 1))
    x = np.c_[theta + RNG.normal(size=(300, 2)), np.full(300, 0.1)]
    config = ks.TrainConfig(max_epochs=2, min_epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)
        data = ks.dataset(theta, x, space=space)
        return ks.train(data, network="mlp-3k", config=config, progress=False)


@pytest.mark.parametrize("kind", [np.float64, np.float32, list])
def test_other_values_are_told(surrogate, kind, tmp_path):
    """Once saved and loaded too; the value itself, in any precision, is no other."""
    surrogate.save(tmp_path / "s")
    for one in (surrogate, ks.load(tmp_path / "s")):
        row = np.array([[0.3, 0.2, 0.1]])
        given = row.tolist() if kind is list else row.astype(kind)
        with warnings.catch_warnings():
            warnings.simplefilter("error", KeepscoreWarning)
            own = one.given(given)(np.zeros((1, 1)))
        row[0, 2] = 0.4
        given = row.tolist() if kind is list else row.astype(kind)
        with pytest.warns(KeepscoreWarning, match=r"the first is 0\.4, which was always 0\.1"):
            other = one.given(given)(np.zeros((1, 1)))
        np.testing.assert_array_equal(own, other)
