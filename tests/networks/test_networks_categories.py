"""Probabilities of entries with few values, against sums written out; saved, and left where they
are wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_networks_mixture import shaken

import keepscore as ks
from keepscore import networks
from keepscore.errors import DomainError, KeepscoreWarning
from keepscore.networks.categories import CategoriesNetwork, has_few_values
from keepscore.networks.layers import silu
from keepscore.training import candidates
from keepscore.training.batches import open_rows

KEY = jax.random.key(3)
RNG = np.random.default_rng


def in_float32(*arrays):
    return [jnp.asarray(a, jnp.float32) for a in arrays]


def logits_of(net, theta):
    """Layer by layer in float64."""

    def linear(z, layer):
        return z @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float)

    z = linear(theta, net.first)
    for block in net.blocks:
        z = z + linear(np.asarray(silu(linear(np.asarray(silu(z)), block.inner))), block.outer)
    curved = linear(np.asarray(silu(z)), net.last)
    return (theta @ np.asarray(net.direct, float) + curved).reshape(len(theta), *net.values.shape)


def data_like(shape, kind=np.uint8, n=40):
    """Entries with two, three, four values and one, in turns; values are not 0, 1, 2."""
    p = int(np.prod(shape))
    columns = [RNG(j).integers(0, (2, 3, 4, 1)[j % 4], n) * 2 + 5 for j in range(p)]
    return np.stack(columns, axis=1).reshape(n, *shape).astype(kind)


@pytest.mark.parametrize("size", ["3k", "30k"])
@pytest.mark.parametrize(("shape", "d"), [((1,), 1), ((5,), 2), ((3, 2), 6)])
def test_log_q_is_a_sum_of_logs_of_probabilities(shape, d, size):
    x = data_like(shape)
    net = networks.resolve(f"categories-{size}", shape, d, None, KEY).scaled_to(x)
    net = shaken(net)
    assert isinstance(net, CategoriesNetwork)
    theta = RNG(d).standard_normal((len(x), d))
    rows, at = in_float32(x, theta)
    got = net.log_density(net.features(rows), at)
    logits, flat, wanted = logits_of(net, theta), x.reshape(len(x), -1), np.zeros(len(x))
    for j in range(flat.shape[1]):
        known = np.unique(flat[:, j])
        own = logits[:, j, : len(known)]
        pi = np.exp(own) / np.exp(own).sum(axis=1, keepdims=True)
        wanted += np.log(pi[np.arange(len(x)), np.searchsorted(known, flat[:, j])])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(got, net.head(net.features(rows), at))
    np.testing.assert_allclose(np.diag(net.table(net.features(rows), at)), got, rtol=1e-5)


def test_probabilities_of_all_values_sum_to_one_and_begin_as_shares():
    x = data_like((4,), n=200)
    net = networks.resolve("categories-30k", (4,), 3, None, KEY).scaled_to(x)
    theta = jnp.asarray(RNG(0).standard_normal((7, 3)), jnp.float32)
    pi = np.exp(np.asarray(shaken(net).log_probabilities(theta))).reshape(7, 4, -1)
    np.testing.assert_allclose(pi.sum(axis=2), 1.0, rtol=1e-5)
    begun = np.exp(np.asarray(net.log_probabilities(theta))).reshape(7, 4, -1)
    assert begun.shape[2] == 4  # no more logits than values
    shares = [np.mean(x[:, 1] == v) for v in (5, 7, 9)]
    np.testing.assert_allclose(begun[:, 1, :3], np.tile(shares, (7, 1)), atol=0.03)
    assert begun[:, 3, 1:].max() == 0  # an entry with one value has that one


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32, float, bool])
def test_few_values_are_seen_in_any_type(kind):
    answers = RNG(0).integers(0, 2, (50, 6)).astype(kind)
    assert has_few_values(answers)
    assert has_few_values(answers.reshape(50, 3, 2))
    assert not has_few_values(RNG(0).standard_normal((50, 6)))
    assert not has_few_values(RNG(0).integers(0, 30, (500, 2)))
    assert not has_few_values(np.where(RNG(0).random((50, 6)) < 0.1, np.nan, answers))


def test_data_of_many_values_are_refused():
    net = networks.resolve("categories-3k", (2,), 1, None, KEY)
    with pytest.raises(DomainError, match="at most 9 different values each"):
        net.scaled_to(np.arange(40).reshape(20, 2))
    with pytest.raises(DomainError, match="nothing missing"):
        net.scaled_to(np.full((20, 2), np.nan))


DOSES = np.repeat(np.linspace(-2.0, 2.0, 8), 5)


def survival(n, seed=0, kind=np.uint8, dependent=False):
    """Forty animals at eight doses, d = 2: yes or no by a logistic curve. Dependent: a chain in
    which each is likely to be as the one before."""
    rng = RNG(seed)
    box = {"a": (-1.0, 1.0), "b": (0.5, 3.0)}
    space = ks.Space([ks.Parameter(k, *v, transform="identity") for k, v in box.items()])
    theta = space.uniform(n, rng)
    x = np.zeros((n, len(DOSES)))
    score, before = np.zeros((n, 2)), np.zeros(n)
    for j, dose in enumerate(DOSES):
        logit = theta[:, 0] + theta[:, 1] * (2 * before - 1 if dependent else dose)
        pi = 1 / (1 + np.exp(-logit))
        x[:, j] = rng.random(n) < pi
        slope = 2 * before - 1 if dependent else np.full(n, dose)
        score += (x[:, j] - pi)[:, None] * np.stack([np.ones(n), slope], axis=1)
        before = x[:, j]
    return ks.dataset(theta, x.astype(kind), space=space, score=score)


def tried(data):
    return list(candidates.others(open_rows(data, None, True, 1 << 30), data))


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32, bool])
def test_answers_are_tried_by_auto(kind):
    """Doses are in order, so the answers may be a path, too."""
    assert tried(survival(300, kind=kind)) == ["path-30k", "categories-3k", "categories-30k"]


@pytest.mark.slow
def test_answers_are_learned_from_few_and_come_back_from_disk(tmp_path):
    """R² of scores above .9 on fresh data; shuffled rows, the control, below 0. Where answers
    depend on each other the same network knows nothing of how: below .5."""
    config = ks.TrainConfig(min_epochs=150, max_epochs=150)

    def trained_on(data):
        return ks.train(data, network="categories-3k", config=config, progress=False)

    def r2(found, exact):
        return 1 - np.mean((found - exact) ** 2, axis=0) / np.mean(exact**2, axis=0)

    fresh, trained = survival(500, seed=1), trained_on(survival(400))
    theta, x, exact = (np.asarray(a) for a in (fresh.theta, fresh.x, fresh.score))
    got = trained.score(theta, x)
    assert r2(got, exact).min() > 0.9
    assert r2(np.roll(got, 1, axis=0), exact).max() < 0
    trained.save(tmp_path / "saved")
    again = ks.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.relative(theta, x), trained.relative(theta, x))
    # A group's features add up: its log-likelihood is the sum over its members.
    whole = trained.given(x[:5])(theta[:3])
    each = [trained.relative(np.tile(t, (5, 1)), x[:5]).sum() for t in theta[:3]]
    np.testing.assert_allclose(np.diff(np.ravel(whole)), np.diff(each), rtol=1e-3, atol=1e-3)
    control = survival(500, seed=1, dependent=True)
    found = trained_on(survival(400, dependent=True)).score(control.theta, control.x)
    assert r2(found, np.asarray(control.score)).min() < 0.5


def test_values_that_no_simulation_had_are_told():
    data = survival(300)
    config = ks.TrainConfig(min_epochs=2, max_epochs=2)
    trained = ks.train(data, network="categories-3k", config=config, progress=False)
    x = np.asarray(data.x[:3])
    trained.given(x)  # no warning
    coded = x.astype(int) + 1  # 1 and 2 for 0 and 1
    told = r"were in no simulation: the first is 2 in entry"
    with pytest.warns(KeepscoreWarning, match=told) as caught:
        trained.given(coded)
    assert caught[0].filename == __file__  # it points at the user's line
    with pytest.warns(KeepscoreWarning, match="nearest"):
        trained.relative(np.asarray(data.theta[:3]), x * 0.5 + 0.25)
