"""Networks for data with holes: a hole is not a value, and rows that are missing add nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from keepscore import networks
from keepscore.errors import MissingError
from keepscore.networks.masking import MaskedMixtureSetNetwork, MaskedSetNetwork, with_mask

KEY = jax.random.key(0)
CASES = {
    "mlp-1k": ((5,), None),
    "residual-5k": ((2, 3), None),
    "sequence-3k": ((13, 2), "markov"),
    "markov-5k": ((4, 2), "markov"),
    "image-30k": ((22, 23), "gaussian-field"),
    "map-10k": ((9, 8), None),
    "path-10k": ((18, 2), None),
    "set-5k": ((4, 2), "iid"),
    "mixture-set-10k": ((4, 2), "iid"),
}


def made(name, holes="entries"):
    x_shape, structure = CASES[name]
    return networks.resolve(name, x_shape, 2, structure, KEY, holes=holes), x_shape


def drawn(x_shape, rows=False, n=5):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((n, *x_shape)).astype(np.float32)
    gone = rng.random((n, x_shape[0]) if rows else x.shape) < 0.4
    x[gone] = np.nan
    return x, jnp.asarray(rng.standard_normal((n, 2)), jnp.float32)


@pytest.mark.parametrize("name", CASES)
def test_what_is_missing_is_finite_told_apart_and_saved_in_plain_words(name):
    network, x_shape = made(name)
    x, theta = drawn(x_shape, rows="set" in name)
    h = network.head(network.features(jnp.asarray(x)), theta)
    assert np.isfinite(h).all()
    filled = network.head(network.features(jnp.asarray(np.nan_to_num(x))), theta)
    assert np.abs(h - filled).max() > 1e-6  # a value of 0 is not a hole
    scaled = networks.standardise(network, x, -np.ones(2), np.ones(2))
    assert networks.takes_missing(scaled)
    description = networks.describe(scaled, x_shape, 2)
    assert description["missing"] is True
    again = networks.rebuild(description)
    assert type(again.network) is type(network)
    shapes = [leaf.shape for leaf in jax.tree.leaves(again.network)]
    assert shapes == [leaf.shape for leaf in jax.tree.leaves(network)]


def test_the_mask_is_one_where_something_was_observed():
    z = np.asarray(with_mask(jnp.array([[2.0, jnp.nan]])))
    assert z.tolist() == [[[2.0, 1.0], [0.0, 0.0]]]


@pytest.mark.parametrize("kind", [MaskedSetNetwork, MaskedMixtureSetNetwork])
def test_missing_rows_add_nothing_whatever_their_number(kind):
    """Rows that are all NaN may be left out or added: the same h, to rounding."""
    name = "set-5k" if kind is MaskedSetNetwork else "mixture-set-10k"
    network, x_shape = made(name, holes="rows")
    assert type(network) is kind
    x, theta = drawn(x_shape, rows=True)
    x[:, 0] = 0.5
    h = network.head(network.features(jnp.asarray(x)), theta)
    more = np.concatenate([np.full_like(x, np.nan), x, np.full_like(x[:, :2], np.nan)], axis=1)
    assert np.allclose(network.head(network.features(jnp.asarray(more)), theta), h, atol=1e-4)
    for one, t, value in zip(x, theta, h, strict=True):
        kept = one[~np.isnan(one[:, 0])]
        alone = network.head(network.features(jnp.asarray(kept[None])), t[None])[0]
        assert np.isclose(alone, value, atol=1e-4)


def test_a_mixture_without_holes_is_the_plain_one():
    masked, x_shape = made("mixture-set-10k", holes="rows")
    plain = networks.resolve("mixture-set-10k", x_shape, 2, "iid", KEY)
    x, theta = np.random.default_rng(0).standard_normal((3, *x_shape)), jnp.zeros((3, 2))
    x = jnp.asarray(x, jnp.float32)
    of_plain = plain.head(plain.features(x), theta)
    assert np.allclose(masked.head(masked.features(x), theta), of_plain, atol=1e-5)


def test_a_row_missing_in_part_does_not_pass_a_mixture_unnoticed():
    network, x_shape = made("mixture-set-10k", holes="rows")
    x = jnp.zeros((1, *x_shape)).at[0, 1, 0].set(jnp.nan)
    assert not np.isfinite(network.features(x)).all()


@pytest.mark.parametrize(
    ("x_shape", "structure", "holes", "kind"),
    [
        ((4, 2), "iid", "rows", "MaskedMixtureSetNetwork"),
        ((4, 2), "iid", "entries", "MaskedSetNetwork"),
        ((13, 8), "markov", "entries", "SequenceNetwork"),
        ((6, 3), "markov", "entries", "ResidualNetwork"),
        ((25, 25), "gaussian-field", "entries", "MaskedLocalFieldNetwork"),
        ((5,), None, "entries", "ResidualNetwork"),
        ((500,), None, "entries", "MLP"),
    ],
)
def test_auto_takes_a_network_that_sees_holes(x_shape, structure, holes, kind):
    network = networks.resolve("auto", x_shape, 2, structure, KEY, holes=holes)
    inner = network.network if isinstance(network, networks.Masked) else network
    assert type(inner).__name__ == kind
    assert networks.takes_missing(network)


def test_networks_of_complete_data_are_refused():
    for name, shape in {
        "spectral-5k": (9, 9),
        "quadratic-10k": (9, 9),
        "mixture-10k": (3,),
    }.items():
        with pytest.raises(MissingError, match="needs complete x"):
            networks.resolve(name, shape, 2, None, KEY, holes="entries")
    own = networks.MLP((3,), 2, np.random.default_rng(0), embedding=(4,), hidden=(4,))
    with pytest.raises(MissingError, match="takes_missing"):
        networks.resolve(own, (3,), 2, None, KEY, holes="entries")
    inner = networks.MLP((3, 2), 2, np.random.default_rng(0), embedding=(4,), hidden=(4,))
    assert networks.resolve(networks.Masked(inner), (3,), 2, None, KEY, holes="entries")


def test_x_is_scaled_by_what_was_observed():
    network, _ = made("mlp-1k")
    x = np.random.default_rng(0).normal(3.0, 2.0, (4000, 5))
    x[np.random.default_rng(1).random(x.shape) < 0.5] = np.nan
    x[:, 4] = np.nan
    scaled = networks.standardise(network, x, -np.ones(2), np.ones(2))
    assert np.allclose(scaled.x_mean[:4], np.nanmean(x[:, :4], axis=0), atol=1e-5)
    assert np.allclose(scaled.x_sd[:4], np.nanstd(x[:, :4], axis=0), atol=1e-5)
    assert (scaled.x_mean[4], scaled.x_sd[4]) == (0.0, np.inf)  # never there: not looked at
