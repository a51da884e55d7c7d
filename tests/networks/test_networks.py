"""Networks: the paper's sizes, PyTorch's initialisation, and fast layers equal to plain ones."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training_helpers import Tiny

from keepscore import networks
from keepscore.errors import (
    DomainError,
    DtypeError,
    FormatError,
    MissingError,
    ShapeError,
    UnknownNameError,
)
from keepscore.networks import catalogue, pooling, winograd
from keepscore.networks.layers import Conv1d, ConvPool, Head, Linear
from keepscore.networks.winograd import pooled_channels

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize(
    ("size", "count"), [("3k", 3031), ("10k", 10093), ("30k", 30225), ("100k", 99681)]
)
def test_sequence_network_has_the_papers_number_of_weights(size, count):
    network = eqx.filter_eval_shape(
        lambda: networks.SequenceNetwork(
            (13, 8), 2, None, **catalogue.FAMILIES["sequence"].sizes[size]
        )
    )
    assert sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(network)) == count


@pytest.mark.parametrize(
    ("size", "count"), [("30k", 29721), ("100k", 99549), ("300k", 303293), ("1m", 1004281)]
)
def test_image_network_has_the_papers_number_of_weights(size, count):
    network = eqx.filter_eval_shape(
        lambda: networks.ImageNetwork((25, 25), 3, None, **catalogue.FAMILIES["image"].sizes[size])
    )
    assert sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(network)) == count


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [
        (Linear(50, 40, RNG), 50),
        (Conv1d(10, 40, 5, RNG), 50),
        (ConvPool(6, 40, RNG), 54),
        (Head(46, 4, (40, 5), RNG).join, 50),
    ],
)
def test_weights_are_uniform_within_one_over_root_fan_in(layer, fan_in):
    bound = fan_in**-0.5
    for leaf in jax.tree.leaves(layer):
        values = np.asarray(leaf).ravel()
        assert np.abs(values).max() <= bound
        if len(values) >= 1000:
            # Uniform: the standard deviation is bound / sqrt(3), within 10 % for 1,000 draws.
            assert np.abs(values).max() > 0.98 * bound
            assert values.std() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_convolution_in_time_as_a_matrix_product_equals_lax_conv():
    layer, z = Conv1d(3, 4, 5, RNG), normal(13, 6, 3)
    _same_map(layer.by_patches, layer.by_convolution, z)
    weight, bias, values = (np.asarray(a) for a in (layer.weight, layer.bias, z))
    plain = [np.einsum("wbi,wio->bo", values[t : t + 5], weight) + bias for t in range(9)]
    np.testing.assert_allclose(eqx.filter_jit(layer)(z), np.stack(plain), atol=1e-5)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("height", "width", "inputs", "fields"),
    [
        (10, 14, 3, 5),
        (10, 10, 64, 5),
        (8, 12, 3, 5),
        (4, 6, 64, 5),
        (10, 14, 1, 5),
        (10, 14, 1, 32),
    ],
)
def test_convolution_with_pooling_as_matrix_products_equals_lax_conv(
    height, width, inputs, fields, cores, monkeypatch
):
    """One input goes by windows (32 fields in three blocks on one core), several by Winograd (64
    with spare channels; tiles of four along sides of 6, 10 and 14, of two along others)."""
    monkeypatch.setattr(pooling, "threads", lambda: cores)
    layer, z = ConvPool(inputs, 4, RNG), normal(height, fields, width, inputs)
    _same_map(layer.as_products, layer.by_convolution, z)


@pytest.mark.parametrize(
    ("height", "width", "share"),
    [(8, 8, 5e-7), (10, 8, 3e-6), (8, 10, 3e-6), (10, 10, 8e-6)],
    ids=["tiles of 2 x 2", "4 x 2", "2 x 4", "4 x 4"],
)
def test_winograds_scheme_keeps_the_accuracy_of_float32(height, width, share):
    """Against float64, at the paper's channels: tiles of two cost no digit, tiles of four one
    (measured: 2e-7, 1e-6, 1e-6 and 4e-6 of the largest output)."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(height, 8, width, 80))
    weight, bias = rng.normal(size=(3, 3, 80, 80)), np.ones(80)
    patches = np.lib.stride_tricks.sliding_window_view(z, (3, 3), axis=(0, 2))
    y = np.maximum(np.einsum("hbwcij,ijco->hbwo", patches, weight, optimize=True) + bias, 0)
    expected = y.reshape(height // 2 - 1, 2, 8, width // 2 - 1, 2, 80).mean(axis=(1, 4))
    found = pooled_channels(*(jnp.asarray(a, jnp.float32) for a in (z, weight, bias)))
    np.testing.assert_allclose(found, expected, atol=share * np.abs(expected).max())


def test_the_matrices_of_winograd_filter():
    """A^T [(G g) * (B^T d)] is the filter g on d. Numbers are integers below ten, so that a wrong
    entry shows as an error of 1/24 or more."""
    rng = np.random.default_rng(6)
    for scheme in (winograd.F2, winograd.F4):
        g, d = rng.integers(-9, 9, 3), rng.integers(-9, 9, scheme.m + 2)
        found = scheme.outputs @ ((scheme.kernel @ g) * (scheme.window @ d))
        np.testing.assert_allclose(found, np.convolve(d, g[::-1], "valid"), atol=1e-4)


@pytest.mark.parametrize(
    ("height", "inputs", "fields"), [(6, 3, 2), (4, 3, 2), (6, 64, 2), (6, 1, 2), (6, 1, 160)]
)
def test_convolution_with_pooling_can_be_differentiated_twice(height, inputs, fields, monkeypatch):
    """The backward passes are our own; autodiff of them, against autodiff of `lax.conv` twice."""
    monkeypatch.setattr(pooling, "threads", lambda: 1)  # in blocks
    layer, z = ConvPool(inputs, 4, RNG), normal(height, fields, 6, inputs)

    def second(name):
        def slope(layer):
            return jax.grad(lambda z: jnp.sum(jnp.sin(getattr(layer, name)(z))))(z)

        return eqx.filter_jit(eqx.filter_grad(lambda layer: jnp.sum(slope(layer) ** 2)))(layer)

    mine, theirs = second("as_products"), second("by_convolution")
    np.testing.assert_allclose(mine.weight, theirs.weight, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(mine.bias, theirs.bias, rtol=1e-4, atol=1e-4)


def _same_map(one, other, z):
    """Same values, and the same gradient in the input and in the weights."""

    @eqx.filter_jit
    def value_and_gradient(layer, name, z):
        def loss(both):
            y = getattr(both[0], name)(both[1])
            return jnp.sum(jnp.sin(y)), y

        (_, y), gradient = eqx.filter_value_and_grad(loss, has_aux=True)((layer, z))
        return y, gradient

    mine = value_and_gradient(one.__self__, one.__name__, z)
    theirs = value_and_gradient(one.__self__, other.__name__, z)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_image_network_is_the_papers_though_it_skips_what_pooling_drops():
    """Convolve and pool the whole 25 x 25 field, concatenate theta, and go through the head."""
    network = networks.resolve("30k", (25, 25), 3, "stationary-field", KEY)

    def plain(network, theta, x):
        z = x[..., None]
        for layer in network.convolutions:
            z = jax.lax.conv_general_dilated(
                z, layer.weight, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            z = jax.nn.relu(z + layer.bias)
            z = jax.lax.reduce_window(z, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
        assert z.shape == (4, 1, 1, 32)
        return _plain_head(network.joint, z[:, 0, 0], theta)

    _same_network(network, plain, normal(4, 3, seed=1), normal(4, 25, 25))


@pytest.mark.slow
def test_many_fields_are_embedded_in_parts():
    """Rows are independent, so 96 = 3 x 32 at a time are those one by one, gradients too."""
    network = networks.resolve("30k", (25, 25), 3, "stationary-field", KEY)
    x = normal(96, 25, 25)

    def total(network, x):
        return jnp.sum(jnp.sin(network.features(x)))

    np.testing.assert_allclose(
        network.features(x),
        np.concatenate([network.features(part) for part in x.reshape(6, 16, 25, 25)]),
        atol=1e-5,
    )
    whole = eqx.filter_jit(eqx.filter_grad(total))(network, x)
    halves = [eqx.filter_jit(eqx.filter_grad(total))(network, part) for part in (x[:48], x[48:])]
    for a, b, c in zip(*map(jax.tree.leaves, (whole, *halves)), strict=True):
        np.testing.assert_allclose(a, b + c, atol=1e-3)


def _same_network(network, plain, theta, x):
    expected = eqx.filter_jit(plain)(network, theta, x)
    np.testing.assert_allclose(
        eqx.filter_jit(networks.log_ratio)(network, theta, x), expected, atol=1e-5
    )


def test_sequence_network_is_the_papers():
    network = networks.resolve("3k", (13, 8), 2, "markov", KEY)

    def plain(network, theta, z):
        silu = jax.nn.silu
        for linear in network.embedding:
            z = silu(z @ linear.weight + linear.bias)
        for layer in network.convolutions:
            z = jax.lax.conv_general_dilated(
                z, layer.weight, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
            )
            z = silu(z + layer.bias)
        assert z.shape == (5, 1, 16)
        return _plain_head(network.joint, z[:, 0], theta)

    x = (normal(5, 13, 8) > 0).astype(jnp.float32)
    _same_network(network, plain, normal(5, 2, seed=1), x)


def _plain_head(head, features, theta):
    """Features and theta side by side through linear layers, SiLU in between."""
    join = head.join
    z = jnp.concatenate([features, theta], axis=1)
    z = z @ jnp.concatenate([join.feature_weight, join.theta_weight]) + join.bias
    for layer in head.layers:
        z = jax.nn.silu(z) @ layer.weight + layer.bias
    return z[:, 0]


def test_longer_sequences_and_larger_fields_keep_all_places_as_features():
    sequence = networks.resolve("3k", (15, 4), 2, "markov", KEY)
    assert sequence.joint.join.feature_weight.shape == (3 * 16, 30)
    image = networks.resolve("30k", (30, 38), 2, "stationary-field", KEY)
    assert image.joint.join.feature_weight.shape == (2 * 3 * 32, 48)
    shape = jax.eval_shape(lambda: networks.log_ratio(image, normal(2, 2), normal(2, 30, 38)))
    assert shape.shape == (2,)


@pytest.mark.parametrize(
    ("name", "structure", "x_shape", "kind"),
    [
        ("3k", "markov", (13, 8), networks.SequenceNetwork),
        ("30k", "stationary-field", (25, 25), networks.ImageNetwork),
        ("3k", None, (4,), networks.MLP),
        ("3K", None, (5, 4), networks.MLP),
        ("mlp-3k", "markov", (13, 8), networks.MLP),
    ],
)
def test_a_size_takes_the_network_that_fits_the_data(name, structure, x_shape, kind):
    assert type(networks.resolve(name, x_shape, 2, structure, KEY)) is kind


def test_users_modules_and_functions_that_make_them_are_networks():
    module = Tiny(KEY)
    assert networks.resolve(module, (4,), 2, None, KEY) is module
    assert isinstance(networks.resolve(Tiny, (4,), 2, None, KEY), Tiny)
    assert networks.count_weights(module) == 4 * 8 + 2 * 8  # the NumPy array is a constant


class NoHead(eqx.Module):
    def features(self, x):
        return x


class WrongHead(Tiny):
    def head(self, features, theta):
        return features + theta @ self.v


class WrongFeatures(Tiny):
    def features(self, x):
        return x @ self.w.T


def test_what_is_no_network_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean '30k'"):
        networks.resolve("30kk", (4,), 2, None, KEY)
    with pytest.raises(UnknownNameError, match="100k, 1m, 300k, 30k"):
        networks.resolve("3k", (25, 25), 3, "stationary-field", KEY)
    with pytest.raises(UnknownNameError, match="unknown-30k"):
        networks.resolve("unknown-30k", (4,), 2, None, KEY)
    with pytest.raises(DtypeError, match="features"):
        networks.resolve(3, (4,), 2, None, KEY)
    with pytest.raises(ShapeError, match="at least 22 x 22; got 21 x 25"):
        networks.resolve("30k", (21, 25), 3, "stationary-field", KEY)
    with pytest.raises(ShapeError, match="T of at least 13; got T = 12"):
        networks.resolve("3k", (12, 8), 2, "markov", KEY)
    with pytest.raises(MissingError, match="NoHead has no head"):
        networks.resolve(lambda key: NoHead(), (4,), 2, None, KEY)
    with pytest.raises(ShapeError, match=r"one logit a row; for b = 3 it gave \(3, 8\)"):
        networks.resolve(WrongHead(KEY), (4,), 2, None, KEY)
    with pytest.raises(ShapeError, match=r"features\(x\) fails on arrays of shape"):
        networks.resolve(WrongFeatures(KEY), (4,), 2, None, KEY)


def test_scaling_is_inside_the_function_the_score_is_taken_of():
    """d/dtheta of the scaled network, at working theta, is the inner derivative over theta_sd."""
    inner = Tiny(KEY)
    data = np.random.default_rng(0).normal(3.0, [1.0, 2.0, 5.0, 0.1], (500, 4))
    low, high = np.array([-4.0, 0.0]), np.array([4.0, 1.0])
    scaled = networks.standardise(inner, data, low, high)
    x, theta = jnp.asarray(data[:6], jnp.float32), normal(6, 2)
    z = (data[:6] - data.mean(0)) / data.std(0)
    np.testing.assert_allclose(scaled.features(x), inner.features(jnp.asarray(z)), atol=2e-4)

    sd = (high - low) / np.sqrt(12)

    @jax.jit
    def scores(theta):
        """Of the whole, of the inner network at scaled theta, and central differences."""
        features, step = scaled.features(x), 1e-2

        def h(t):
            return scaled.head(features, t)

        moved = [(h(theta + step * e) - h(theta - step * e)) / (2 * step) for e in jnp.eye(2)]
        whole = jax.grad(lambda t: h(t).sum())(theta)
        at = (theta - (low + high) / 2) / sd
        inside = jax.grad(lambda t: inner.head(features, t).sum())(at)
        return whole, inside, jnp.stack(moved, axis=1)

    whole, inside, moved = scores(theta)
    np.testing.assert_allclose(whole, np.asarray(inside) / sd, rtol=1e-4)
    np.testing.assert_allclose(whole, moved, atol=5e-3)


def test_scales_follow_the_layout_of_x():
    low, high = -np.ones(2), np.ones(2)
    x = np.random.default_rng(0).normal(size=(50, 23, 24))
    image = networks.resolve("30k", (23, 24), 2, "stationary-field", KEY)
    assert networks.standardise(image, x, low, high).x_mean.shape == ()
    constant = np.ones((50, 4))
    assert np.all(np.isinf(networks.standardise(Tiny(KEY), constant, low, high).x_sd))


def test_a_network_says_how_x_is_scaled_for_it():
    low, high = -np.ones(2), np.ones(2)
    x = np.random.default_rng(0).normal(3.0, 2.0, (500, 4))

    class Picky(Tiny):
        x_scale: ClassVar = "about zero"

    scaled = networks.standardise(Picky(KEY), x, low, high)
    assert scaled.x_mean == 0
    assert scaled.x_sd == pytest.approx(np.sqrt(np.mean(x**2)), rel=1e-5)

    class Wrong(Tiny):
        x_scale: ClassVar = "wole"

    with pytest.raises(UnknownNameError, match="whole"):
        networks.standardise(Wrong(KEY), x, low, high)


def test_a_head_that_claims_to_be_linear_is_put_to_the_test():
    class Claims(Tiny):
        linear_head: ClassVar = True

    with pytest.raises(DomainError, match=r"not linear in the features.*differ by"):
        networks.resolve(Claims(KEY), (4,), 2, None, KEY)

    class Linear(Claims):
        def head(self, features, theta):
            return jnp.sum(features * theta[:, :1], axis=1)

    assert networks.resolve(Linear(KEY), (4,), 2, None, KEY).linear_head


def test_a_table_of_every_pair_is_put_to_the_test():
    class Right(Tiny):
        def head(self, features, theta):
            return jnp.sum(features * theta[:, :1], axis=1)

        def table(self, features, theta):
            return theta[:, :1] * features.sum(axis=1)

    assert networks.resolve(Right(KEY), (4,), 2, None, KEY).table

    class Turned(Right):
        def table(self, features, theta):
            return super().table(features, theta).T

    with pytest.raises(DomainError, match=r"differs from head\(features, theta\) by"):
        networks.resolve(Turned(KEY), (4,), 2, None, KEY)

    class Short(Right):
        def table(self, features, theta):
            return super().table(features, theta)[0]

    with pytest.raises(ShapeError, match=r"must give \(m, b\)"):
        networks.resolve(Short(KEY), (4,), 2, None, KEY)


@pytest.mark.parametrize(
    ("name", "structure", "x_shape"),
    [("3k", "markov", (13, 8)), ("30k", "stationary-field", (25, 25)), ("1k", None, (4,))],
)
def test_a_description_rebuilds_the_same_network(name, structure, x_shape):
    network = networks.resolve(name, x_shape, 2, structure, KEY)
    again = networks.rebuild(networks.describe(network, x_shape, 2))
    assert jax.tree.structure(again) == jax.tree.structure(network)
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(network)]
    assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(again)] == shapes


@pytest.mark.parametrize(
    "change",
    [
        {"family": "os.system"},
        {"x_shape": [4, -1]},
        {"x_shape": "4"},
        {"x_shape": [1 << 60]},
        {"d": 0},
        {"widths": {"embedding": [8], "hidden": [8], "evil": [1]}},
        {"widths": {"embedding": [8], "hidden": []}},
        {"widths": {"embedding": [8], "hidden": [10**9]}},
        {"widths": [8]},
        {"scaled": [7]},
    ],
)
def test_a_description_that_makes_no_network_is_refused(change):
    good = networks.describe(networks.resolve("1k", (4,), 2, None, KEY), (4,), 2)
    networks.rebuild(good)
    with pytest.raises(FormatError):
        networks.rebuild({**good, **change}, weights=10_000)  # as many as the file beside it holds


def test_a_users_class_is_never_imported_from_a_description():
    description = networks.describe(Tiny(KEY), (4,), 2)
    assert description["class"] == "training_helpers.Tiny"
    with pytest.raises(MissingError, match="never imported"):
        networks.rebuild(description)
