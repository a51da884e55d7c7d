"""The path network: means over times at several scales, and the path as a whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore import networks
from keepscore.errors import FormatError, ShapeError
from keepscore.networks.paths import MOST_WHOLE
from keepscore.training import candidates
from keepscore.training.batches import open_rows
from keepscore.training.config import TrainConfig

KEY = jax.random.key(0)
RNG = np.random.default_rng


def made(shape, d=2, size="10k"):
    return networks.resolve(f"path-{size}", shape, d, None, KEY)


def inputs_written_out(network, x):
    """(f_1 ... f_K, e, m) of one x (T, c), time by time."""
    z, found = np.asarray(x, float), []
    for stage in network.stages:
        weight, bias = np.asarray(stage.weight, float), np.asarray(stage.bias, float)
        out = []
        for i in range((len(z) - 2) // 2):
            pair = [
                np.maximum(np.tensordot(z[t : t + 3], weight, axes=2) + bias, 0)
                for t in (2 * i, 2 * i + 1)
            ]
            out.append((pair[0] + pair[1]) / 2)
        z = np.stack(out)
        found.append(z.mean(axis=0) * np.sqrt(len(z)))
    whole = np.asarray(x, float)
    while len(whole) > MOST_WHOLE:
        whole = np.stack([(whole[2 * i] + whole[2 * i + 1]) / 2 for i in range(len(whole) // 2)])
    ends = [np.array([one(channel) for channel in np.asarray(x, float).T]) for one in (min, max)]
    return np.concatenate([*found, whole.ravel(), *ends])


@pytest.mark.parametrize("shape", [(16,), (21, 2), (4,), (299,), (130, 3)])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_features_are_means_over_times_and_the_path(shape, kind):
    """Against loops over times, odd lengths and long paths included: a flipped kernel, a dropped
    factor, a missing scale or times and channels exchanged show."""
    network = made(shape)
    x = (3 * RNG(1).standard_normal((2, *shape))).astype(kind)
    whole = x.reshape(2, shape[0], -1)
    wanted = np.stack([inputs_written_out(network, one) for one in whole])
    got = network.features(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(
        got, network.joint.features(jnp.asarray(wanted, jnp.float32)), rtol=1e-4, atol=1e-4
    )
    turned = network.features(jnp.asarray(x[:, ::-1], jnp.float32))  # negative control
    assert np.abs(turned - got).max() > 1e-3


@pytest.mark.parametrize("shape", [(16,), (300,), (40, 3)])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_it_is_described_and_rebuilt(shape, d):
    network = made(shape, d)
    scaled = networks.standardise(network, np.ones((4, *shape)), -np.ones(d), np.ones(d))
    again = networks.rebuild(networks.describe(scaled, shape, d))
    assert type(again.network) is networks.PathNetwork
    shapes = [leaf.shape for leaf in jax.tree.leaves(again.network)]
    assert shapes == [leaf.shape for leaf in jax.tree.leaves(network)]


def test_one_of_an_earlier_version_has_no_extremes():
    """As its file says: other widths, and inputs without the last two per channel."""
    network = made((40, 3))
    described = networks.describe(network, (40, 3), 2)
    assert described["widths"].pop("extremes") == 2
    old = networks.rebuild(described)
    assert networks.describe(old, (40, 3), 2) == described
    inputs = [one.joint.join.feature_weight.shape[0] for one in (network, old)]
    assert inputs[0] - inputs[1] == 2 * 3
    for wrong in (1, 3):
        with pytest.raises(FormatError, match="must be 0 or 2"):
            networks.rebuild({**described, "widths": {**described["widths"], "extremes": wrong}})


@pytest.mark.slow
def test_the_end_of_what_is_possible_is_seen():
    """40 numbers between theta and theta + 3: the least and the greatest know theta to .052, the
    mean to .137. Root mean squared error of posterior means, 200 data sets (Monte Carlo error a
    twentieth): .054; a network of means and the whole path, without m, has .104."""
    space = ks.Space([ks.Parameter("start", -2, 2, "identity", train_margin=0.0)])

    def simulate(theta, rng):
        return theta + 3 * rng.random((len(theta), 40))

    model = ks.models.from_functions(space, (40,), simulate=simulate, name="ends")
    data = ks.simulate(model, 4_000, seed=0, jobs=1)
    surrogate = ks.train(data, network="path-30k", progress=False)
    rng = np.random.default_rng(1)
    theta = space.draw(200, rng)
    grid = np.linspace(-2, 2, 801)[:, None]
    values = surrogate.given(model.simulate(theta, rng)[:, None]).surface_in_blocks(grid)
    weights = np.exp(values - values.max(axis=1, keepdims=True))
    found = (weights @ grid)[:, 0] / weights.sum(axis=1)
    assert np.sqrt(np.mean((found - theta[:, 0]) ** 2)) < 0.075


@pytest.mark.parametrize("shape", [(), (3,), (3, 9)])
def test_what_is_no_path_is_refused(shape):
    with pytest.raises(ShapeError, match="T of at least 4"):
        made(shape)


def test_what_may_be_a_path():
    assert networks.is_path((16,))
    assert networks.is_path((16, 4))
    assert not networks.is_path((15,))
    assert not networks.is_path((16, 5))
    assert not networks.is_path((64, 2, 2))


def test_channels_are_scaled_each_by_its_own_at_all_times():
    x = RNG(0).standard_normal((50, 20, 2)) * [1.0, 10.0] + [0.0, 5.0]
    scaled = networks.standardise(made((20, 2)), x, -np.ones(2), np.ones(2))
    np.testing.assert_allclose(scaled.x_mean, x.mean(axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(scaled.x_sd, x.std(axis=(0, 1)), rtol=1e-5)


def alternating(n, times=48, seed=0, counts=False, structure=None):
    """Each time is like the one before by theta; one time alone tells nothing."""
    rng = RNG(seed)
    space = ks.Space([ks.Parameter("t", -0.9, 0.9, transform="identity")])
    theta = space.uniform(n, rng)
    x = rng.standard_normal((n, times))
    for j in range(1, times):
        x[:, j] = theta[:, 0] * x[:, j - 1] + np.sqrt(1 - theta[:, 0] ** 2) * x[:, j]
    if counts:
        x = rng.poisson(2 * np.exp(x))
    return ks.dataset(theta, x, space=space, structure=structure)


def tried(data):
    return list(candidates.others(open_rows(data, None, data.score is not None, 1 << 30), data))


@pytest.mark.parametrize("times", [16, 300])  # of few numbers, of many
def test_paths_are_tried_where_order_matters(times):
    data = alternating(300, times)
    found = tried(data)
    assert "path-30k" in found
    assert 1 + len(found) <= candidates.most_trainings(data.x.shape[1:], None, scores=False)
    mixed = np.asarray(data.x)[:, RNG(3).permutation(times)]
    assert "path-30k" not in tried(ks.dataset(data.theta, mixed, space=data.space))


def test_of_declared_series_only_those_without_a_density_are_taken_for_paths():
    assert tried(alternating(300, counts=True, structure="series")) == ["path-30k"]
    assert tried(alternating(300, structure="series")) == []  # series-3k serves them
    assert tried(alternating(300, counts=True, structure="iid")) == []


@pytest.mark.slow
def test_dependence_in_time_is_learned_as_a_path():
    """Beside the exact estimate of an AR(1): from 1,000 paths without scores, errors stay below
    twice the exact ones; all times side by side learn less (negative control)."""
    data, fresh = alternating(1000), alternating(200, seed=1)
    config = TrainConfig(guard=False, max_epochs=60, min_epochs=60)
    by_path = ks.train(data, network="path-30k", loss=ks.BCE(), config=config, progress=False)
    flat = ks.train(data, network="residual-25k", loss=ks.BCE(), config=config, progress=False)
    x, theta = np.asarray(fresh.x), np.asarray(fresh.theta)[:, 0]
    exact = np.array([exact_estimate(one) for one in x])
    errors = [np.sqrt(np.mean((highest(s, x) - theta) ** 2)) for s in (by_path, flat)]
    best = np.sqrt(np.mean((exact - theta) ** 2))
    assert errors[0] < 2.0 * best
    assert errors[1] > 1.5 * errors[0]  # all times side by side


GRID = np.linspace(-0.9, 0.9, 91)


def highest(surrogate, x):
    """The theta of a grid where the log-likelihood ratio is highest, for each x."""
    every = [surrogate.log_ratio(np.full((len(x), 1), t), x) for t in GRID]
    return GRID[np.argmax(every, axis=0)]


def exact_estimate(x):
    grid = GRID[:, None]
    v = 1 - grid**2
    each = -0.5 * ((x[1:] - grid * x[:-1]) ** 2 / v + np.log(v))
    return GRID[np.argmax(each.sum(axis=1))]
