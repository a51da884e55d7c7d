"""The map network: means over places at several scales, the same kernels everywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore import networks
from keepscore.errors import ShapeError
from keepscore.training import candidates
from keepscore.training.batches import open_rows
from keepscore.training.config import TrainConfig

KEY = jax.random.key(0)
RNG = np.random.default_rng


def made(shape, d=2, size="10k"):
    return networks.resolve(f"map-{size}", shape, d, None, KEY)


def h(network, x, theta):
    return np.asarray(network.head(network.features(jnp.asarray(x, jnp.float32)), theta))


def means_written_out(network, x):
    """f_1 ... f_K of one x (H, W, c), place by place."""
    z, found = np.asarray(x, float), []
    for stage in network.stages:
        weight, bias = np.asarray(stage.weight, float), np.asarray(stage.bias, float)
        height, width = (z.shape[0] - 2) // 2, (z.shape[1] - 2) // 2
        out = np.zeros((height, width, len(bias)))
        for i in range(height):
            for j in range(width):
                for a in range(2):
                    for b in range(2):
                        window = z[2 * i + a : 2 * i + a + 3, 2 * j + b : 2 * j + b + 3]
                        y = np.tensordot(window, weight, axes=3) + bias
                        out[i, j] += np.maximum(y, 0) / 4
        z = out
        found.append(z.mean(axis=(0, 1)) * np.sqrt(height * width))
    return np.concatenate(found)


@pytest.mark.parametrize("shape", [(8, 8), (9, 12), (16, 11, 2), (4, 5)])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_features_are_means_over_places(shape, kind):
    """Against loops over places, rectangles and odd sides included: a transposed map or kernel, a
    dropped factor or a missing scale shows."""
    network = made(shape)
    x = (3 * RNG(1).standard_normal((2, *shape))).astype(kind)
    whole = x.reshape(2, *shape[:2], -1)
    wanted = np.stack([means_written_out(network, one) for one in whole])
    got = network.features(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(
        got, network.joint.features(jnp.asarray(wanted, jnp.float32)), rtol=1e-4, atol=1e-4
    )
    # Negative control: the same values at other places are another map.
    mixed = RNG(2).permuted(x.reshape(2, -1), axis=1).reshape(x.shape)
    assert np.abs(network.features(jnp.asarray(mixed, jnp.float32)) - got).max() > 1e-3


def test_it_is_the_same_wherever_something_lies():
    """A pattern far from the edge may be moved by whole windows: the means of two stages, which see
    ten places, do not change."""
    network, theta = made((32, 32)), jnp.asarray(RNG(0).standard_normal((1, 2)), jnp.float32)
    pattern = 20 * RNG(1).standard_normal((3, 3))
    moved = []
    for shift in ((10, 10), (18, 10), (10, 18)):
        x = np.zeros((1, 32, 32))
        x[0, shift[0] : shift[0] + 3, shift[1] : shift[1] + 3] = pattern
        moved.append(stage_means(network, x, 2))
    np.testing.assert_allclose(moved[1], moved[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moved[2], moved[0], rtol=1e-4, atol=1e-5)
    turned = np.zeros((1, 32, 32))
    turned[0, 10:13, 10:13] = pattern[::-1]
    assert np.abs(stage_means(network, turned, 2) - moved[0]).max() > 1e-3
    assert np.isfinite(h(network, turned, theta)).all()


def stage_means(network, x, stages):
    """f_1 ... of the first stages."""
    z, found = jnp.swapaxes(jnp.asarray(x, jnp.float32)[..., None], 0, 1), []
    for stage in network.stages[:stages]:
        z = stage(z[: z.shape[0] // 2 * 2, :, : z.shape[2] // 2 * 2])
        found.append(np.asarray(z.mean(axis=(0, 2))))
    return np.concatenate(found, axis=-1)


@pytest.mark.parametrize("shape", [(8, 8), (25, 25), (10, 40, 3)])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_it_is_described_and_rebuilt(shape, d):
    network = made(shape, d)
    scaled = networks.standardise(network, np.ones((4, *shape)), -np.ones(d), np.ones(d))
    again = networks.rebuild(networks.describe(scaled, shape, d))
    assert type(again.network) is networks.MapNetwork
    shapes = [leaf.shape for leaf in jax.tree.leaves(again.network)]
    assert shapes == [leaf.shape for leaf in jax.tree.leaves(network)]


@pytest.mark.parametrize("shape", [(9,), (3, 9), (9, 3)])
def test_what_is_no_map_is_refused(shape):
    with pytest.raises(ShapeError, match="sides of at least 4"):
        made(shape)


def test_channels_are_scaled_each_by_its_own_at_all_places():
    x = RNG(0).standard_normal((50, 8, 9, 2)) * [1.0, 10.0] + [0.0, 5.0]
    scaled = networks.standardise(made((8, 9, 2)), x, -np.ones(2), np.ones(2))
    np.testing.assert_allclose(scaled.x_mean, x.mean(axis=(0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(scaled.x_sd, x.std(axis=(0, 1, 2)), rtol=1e-5)
    wild = RNG(0).standard_t(1, (50, 8, 9))
    drawn = networks.standardise(made((8, 9)), wild, -np.ones(2), np.ones(2))
    assert drawn.drawn_in
    assert np.abs(drawn.scaled_x(jnp.asarray(wild))).max() < 20


def textured(n, side=8, seed=0, kind=np.float64):
    """Stripes: neighbours to the east are alike by theta, those to the south are not; one
    place tells nothing."""
    rng = RNG(seed)
    space = ks.Space([ks.Parameter("t", -0.9, 0.9, transform="identity")])
    theta = space.uniform(n, rng)
    x = rng.standard_normal((n, side, side))
    for j in range(1, side):
        x[:, :, j] = theta * x[:, :, j - 1] + np.sqrt(1 - theta**2) * x[:, :, j]
    return ks.dataset(theta, x.astype(kind), space=space)


def tried(data):
    return list(candidates.others(open_rows(data, None, data.score is not None, 1 << 30), data))


@pytest.mark.parametrize("side", [8, 20])  # of few numbers, of many
def test_maps_are_tried(side):
    data = textured(200, side)
    found = tried(data)
    assert "map-30k" in found
    assert 1 + len(found) <= candidates.most_trainings(data.x.shape[1:], None, scores=False)
    flat = ks.dataset(data.theta, np.asarray(data.x).reshape(200, -1), space=data.space)
    assert "map-30k" not in tried(flat)
    series = ks.dataset(data.theta, data.x, space=data.space, structure="series")
    assert tried(series) == []


def test_no_maps_where_sides_are_short_or_channels_many():
    assert networks.is_map((8, 8))
    assert networks.is_map((9, 30, 2))
    assert not networks.is_map((7, 30))
    assert not networks.is_map((8, 8, 9))
    assert not networks.is_map((64,))
    assert not networks.is_map((8, 8, 1, 1))


@pytest.mark.slow
def test_a_texture_is_learned_as_a_map():
    """Beside the exact estimate of an AR(1) in every row: from 1,000 maps without scores, errors
    stay below twice the exact ones; all places side by side learn far less (negative control)."""
    data, fresh = textured(1000), textured(200, seed=1)
    config = TrainConfig(guard=False, max_epochs=60, min_epochs=60)
    by_map = ks.train(data, network="map-30k", loss=ks.BCE(), config=config, progress=False)
    flat = ks.train(data, network="residual-25k", loss=ks.BCE(), config=config, progress=False)
    x, theta = np.asarray(fresh.x), np.asarray(fresh.theta)[:, 0]
    exact = np.array([exact_estimate(one) for one in x])
    errors = [np.sqrt(np.mean((highest(s, x) - theta) ** 2)) for s in (by_map, flat)]
    best = np.sqrt(np.mean((exact - theta) ** 2))
    assert errors[0] < 2.0 * best
    assert errors[1] > 1.5 * errors[0]  # all places side by side


GRID = np.linspace(-0.9, 0.9, 181)


def highest(surrogate, x):
    """The theta of a grid where the log-likelihood ratio is highest, for each x."""
    every = [surrogate.log_ratio(np.full((len(x), 1), t), x) for t in GRID]
    return GRID[np.argmax(every, axis=0)]


def exact_estimate(x):
    grid = GRID[:, None, None]
    residual = x[:, 1:] - grid * x[:, :-1]
    v = 1 - grid**2
    each = -0.5 * (residual**2 / v + np.log(v))
    return GRID[np.argmax(each.sum(axis=(1, 2)))]
