"""A density that tells its evidence learns the same from it, in fewer passes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore.networks.base import has_evidence, split
from keepscore.networks.mixture import MixtureNetwork
from keepscore.training.step import Batch, objective


class Telling(MixtureNetwork):
    """The same network, which says what is taken off its logarithm."""

    def log_evidence(self, features):
        return features[:, -1]


@pytest.mark.parametrize("loss", [ks.BCE(), ks.ASA(residual="squared")], ids=["BCE", "ASA"])
def test_losses_and_gradients_are_the_same(loss):
    """With and without `log_evidence`; the cross-entropy moves c alone, the likelihood q alone."""
    rng = np.random.default_rng(0)
    sizes = {"components": 2, "widths": (8,), "evidence": (6,)}
    silent = MixtureNetwork((3,), 2, np.random.default_rng(1), **sizes)
    telling = Telling((3,), 2, np.random.default_rng(1), **sizes)
    assert has_evidence(telling)
    assert not has_evidence(silent)
    x, theta, score, other = (
        jnp.asarray(rng.standard_normal(shape), jnp.float32)
        for shape in ((16, 3), (16, 2), (16, 2), (1, 16, 2))
    )
    batch = Batch(x, theta, score, other)
    found = []
    for network in (silent, telling):
        weights, rest = split(network)

        def total(w, rest=rest):
            bce, parts = objective(rest, loss)(w, batch)
            return bce + parts.sum(), (bce, parts)

        gradient, values = eqx.filter_jit(jax.grad(total, has_aux=True))(weights)
        found.append([*jax.tree.leaves(gradient), *values])
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)
    assert any(np.abs(leaf).max() > 1e-3 for leaf in found[0][:-2])
