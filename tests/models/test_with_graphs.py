"""Epidemics on graphs that differ: against the model of each graph, the laws, and planted faults.

Statistical tests use fixed seeds and alarm falsely once in 1e6 (`check_model`).
"""

import json

import faults
import numpy as np
import pytest

import keepscore as ks
from keepscore.errors import DomainError, DtypeError, MissingError, NonFiniteError, ShapeError


def random_graphs(n, rng):
    weights = rng.exponential(0.8, (n, 4, 4)) * (rng.random((n, 4, 4)) < 0.6)
    weights[:, np.arange(4), np.arange(4)] = 0.0
    return weights


def small(**options):
    return ks.models.SIS(weights=np.ones((4, 4)), times=np.arange(6), **options)


def draws(model, n, seed=0):
    rng = np.random.default_rng(seed)
    theta = model.space.uniform(n, rng)
    return theta, model.simulate(theta, rng)


def test_the_likelihood_is_that_of_each_graph():
    model = ks.models.with_graphs(small(), random_graphs)
    theta, x = draws(model, 8)
    for t, one in zip(theta, x, strict=True):
        alone = ks.models.SIS(weights=one[6:], times=np.arange(6))
        value, score = alone.log_prob_and_score(t[None], one[None, :6])
        found, slope = model.log_prob_and_score(t[None], one[None])
        np.testing.assert_allclose(found, value, rtol=1e-11)
        np.testing.assert_allclose(slope, score, rtol=1e-9, atol=1e-11)
    groups = x.reshape(2, 4, *model.x_shape)
    expected = [[sum(model.log_prob(np.tile(t, (4, 1)), g)) for t in theta] for g in groups]
    np.testing.assert_allclose(model.given(groups)(theta), expected, rtol=1e-11)


@pytest.mark.parametrize("score", ["exact", "joint"])
def test_the_laws_hold(score):
    report = ks.check_model(
        ks.models.with_graphs(small(score=score), random_graphs), draws=150, show=False
    )
    assert report.passed, str(report)


def exchanged(model):
    """The graphs in x are those of other data sets."""

    def simulate(theta, rng):
        x = model.simulate(theta, rng)
        x[:, 6:] = np.roll(x[:, 6:], 1, axis=0)
        return x

    return faults.Faulty(model, simulate=simulate)


def turned(model):
    """The likelihood has everybody act on those who act on him."""

    def wrong(x):
        return np.concatenate([x[:, :6], x[:, 6:].swapaxes(1, 2)], axis=1)

    return faults.Faulty(
        model,
        log_prob=lambda theta, x: model.log_prob(theta, wrong(x)),
        score=lambda theta, x: model.score(theta, wrong(x)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", [exchanged, turned])
def test_wrong_graphs_are_convicted(fault):
    model = ks.models.with_graphs(small(), random_graphs)
    report = ks.check_model(fault(model), draws=500, show=False)
    assert not report.passed, str(report)


def test_people_who_are_not_alike_are_convicted():
    model = ks.models.with_graphs(small(), random_graphs)

    def log_prob(theta, x):  # the first person decides the rates
        return model.log_prob(theta + 0.3 * x[:, 1, :1], x)

    faulty = faults.Faulty(model, log_prob=log_prob, score=model.score)  # which is not looked at
    faulty.structure = "markov-graphs"
    assert "structure: markov-graphs" in ks.check_model(faulty, draws=50, show=False).broken


def test_a_pool_of_graphs_is_drawn_from_described_and_rebuilt():
    pool = random_graphs(3, np.random.default_rng(1))
    model = ks.models.with_graphs(small(), pool)
    _, x = draws(model, 60)
    assert {one.tobytes() for one in x[:, 6:]} == {one.tobytes() for one in pool}
    again = ks.models.build(json.loads(json.dumps(ks.models.describe(model))))
    np.testing.assert_array_equal(draws(again, 60)[1], x)
    other = ks.models.with_graphs(small(), random_graphs)
    with pytest.raises(MissingError, match="function"):
        ks.models.build(ks.models.describe(other))


def test_own_data_and_new_data_on_the_same_graph():
    model = ks.models.with_graphs(small(), random_graphs)
    base = small()
    rng = np.random.default_rng(1)
    theta = base.space.uniform(3, rng)
    states = base.simulate(theta, rng)
    x = model.join(base.weights, states)
    np.testing.assert_allclose(model.log_prob(theta, x), base.log_prob(theta, states), rtol=1e-11)
    again = model.simulate_at(theta, x, rng)
    np.testing.assert_array_equal(again[:, 6:], x[:, 6:])


def test_what_cannot_be_is_refused():
    model = ks.models.with_graphs(small(), random_graphs)
    theta, x = draws(model, 2)
    with pytest.raises(DtypeError, match="SIS"):
        ks.models.with_graphs(ks.models.GaussianField(), random_graphs)
    for graphs in (np.ones((4, 4)), np.ones((2, 3, 3)), np.ones((0, 4, 4))):
        with pytest.raises(ShapeError, match="graphs"):
            ks.models.with_graphs(small(), graphs)
    with pytest.raises(DomainError, match="negative"):
        ks.models.with_graphs(small(), -np.ones((1, 4, 4)))
    for bad in (-1.0, np.inf):
        wrong = x.copy()
        wrong[1, 7, 0] = bad
        with pytest.raises((DomainError, NonFiniteError)):
            model.log_prob(theta, wrong)
    wrong = x.copy()
    wrong[1, 6, 0] = 1.0  # of a person on himself
    with pytest.raises(DomainError, match="himself"):
        model.log_prob(theta, wrong)
    wrong = x.copy()
    wrong[0, 0] = np.nan
    with pytest.raises(NonFiniteError):
        model.log_prob(theta, wrong)
    with pytest.raises(ShapeError):
        model.log_prob(theta, x[:, :6])  # the graph is not there
    with pytest.raises(ShapeError, match="states"):
        model.join(np.ones((3, 3)), np.zeros((2, 6, 4)))
    with pytest.raises(ShapeError, match="people"):
        small().on_graph(np.ones((3, 3)))
