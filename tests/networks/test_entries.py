"""Networks of chosen entries: they see these and nothing else, and come back from their files."""

import jax.numpy as jnp
import numpy as np
import pytest

from keepscore import networks
from keepscore.errors import FormatError, ShapeError
from keepscore.networks.entries import MixtureOfEntries, ResidualOfEntries

SHAPE, D, CHOSEN = (4, 3), 2, [2, 5, 12]


def made(kind):
    rng = np.random.default_rng(0)
    if kind is ResidualOfEntries:
        return kind(SHAPE, D, rng, entries=CHOSEN, widths=(8, 8))
    return kind(SHAPE, D, rng, entries=CHOSEN, components=2, widths=(8,))


BOTH = pytest.mark.parametrize("kind", [ResidualOfEntries, MixtureOfEntries])


@BOTH
def test_only_the_chosen_entries_count(kind):
    rng = np.random.default_rng(1)
    network, theta = made(kind), jnp.asarray(rng.standard_normal((6, D)), jnp.float32)
    x = rng.standard_normal((6, *SHAPE)).astype(np.float32)
    first = network.head(network.features(jnp.asarray(x)), theta)
    inner = network.network
    alone = x.reshape(6, -1)[:, [1, 4, 11]]
    np.testing.assert_array_equal(first, inner.head(inner.features(jnp.asarray(alone)), theta))
    flat = x.reshape(6, -1)
    for entry in range(12):
        moved = flat.copy()
        moved[:, entry] += 1.0
        other = network.head(network.features(jnp.asarray(moved.reshape(x.shape))), theta)
        assert np.array_equal(first, other) == (entry + 1 not in CHOSEN)


@BOTH
def test_they_are_described_and_rebuilt(kind):
    network = made(kind)
    again = networks.rebuild(networks.describe(network, SHAPE, D))
    assert type(again) is kind
    assert again.entries == tuple(CHOSEN)
    assert networks.has_density(network) == (kind is MixtureOfEntries)


@pytest.mark.parametrize("entries", [[], [0, 1], [-1], [13], [1 << 40], ["1"], "12", None, [1.5]])
@BOTH
def test_entries_of_a_foreign_file_are_not_trusted(kind, entries):
    content = networks.describe(made(kind), SHAPE, D)
    content["widths"]["entries"] = entries
    with pytest.raises(FormatError):
        networks.rebuild(content, weights=10_000)


def test_entries_outside_x_are_refused():
    with pytest.raises(ShapeError, match="1 to 12"):
        ResidualOfEntries(SHAPE, D, np.random.default_rng(0), entries=[13], widths=(8, 8))
