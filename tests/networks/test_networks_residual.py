"""Residual networks against their formula in NumPy, and sums over rows of a set."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from keepscore import networks
from keepscore.errors import ShapeError
from keepscore.networks.mixture import MixtureSetNetwork
from keepscore.networks.residual import ResidualNetwork, ResidualSetNetwork

KEY = jax.random.key(3)


def silu(z):
    return z / (1 + np.exp(-z))


def by_formula(net, x, theta):
    """h of one x (a vector) and one theta, from the top of the module."""
    w = {name: np.asarray(getattr(net.join, name), float) for name in
         ("feature_weight", "theta_weight", "bias")}  # fmt: skip
    z = x @ w["feature_weight"] + theta @ w["theta_weight"] + w["bias"]
    for block in net.blocks:
        inner = silu(z) @ np.asarray(block.inner.weight, float) + np.asarray(block.inner.bias)
        z = z + silu(inner) @ np.asarray(block.outer.weight, float) + np.asarray(block.outer.bias)
    return (silu(z) @ np.asarray(net.last.weight, float) + np.asarray(net.last.bias))[0]


@pytest.mark.parametrize("size", ["5k", "25k", "100k"])
def test_the_formula(size):
    rng = np.random.default_rng(0)
    net = networks.resolve(f"residual-{size}", (2, 3), 2, None, KEY)
    x, theta = rng.standard_normal((4, 2, 3)), rng.standard_normal((4, 2))
    got = net.head(net.features(jnp.asarray(x, jnp.float32)), jnp.asarray(theta, jnp.float32))
    wanted = [by_formula(net, a.ravel(), t) for a, t in zip(x, theta, strict=True)]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_set_is_the_sum_over_its_rows_for_any_number_of_them():
    rng = np.random.default_rng(1)
    net = networks.resolve("set-5k", (4, 2), 3, "iid", KEY)
    theta = rng.standard_normal((5, 3))
    for n in (1, 4, 9):
        x = rng.standard_normal((5, n, 2))
        got = net.head(net.features(jnp.asarray(x, jnp.float32)), jnp.asarray(theta, jnp.float32))
        wanted = [
            sum(by_formula(net.row, row, t) for row in a) for a, t in zip(x, theta, strict=True)
        ]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
        shuffled = x[:, rng.permutation(n)]
        again = net.head(
            net.features(jnp.asarray(shuffled, jnp.float32)), jnp.asarray(theta, jnp.float32)
        )
        np.testing.assert_allclose(again, got, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("x_shape", "structure", "wanted"),
    [
        ((2,), None, ResidualNetwork),
        ((16, 16), None, ResidualNetwork),
        ((257,), None, networks.MLP),
        ((4, 2), "iid", MixtureSetNetwork),
        ((400, 2), "iid", MixtureSetNetwork),
        ((4, 17), "iid", ResidualSetNetwork),
    ],
)
def test_auto_takes_them_where_x_is_small_or_a_set(x_shape, structure, wanted):
    net = networks.resolve("auto", x_shape, 2, structure, KEY)
    assert type(net) is wanted
    again = networks.rebuild(networks.describe(net, x_shape, 2))
    assert type(again) is wanted


def test_a_set_needs_rows():
    with pytest.raises(ShapeError, match="n rows"):
        networks.resolve("set-5k", (4,), 2, "iid", KEY)
