"""Epidemics at times that differ: against dense exponentials, the laws, and planted faults.

Statistical tests use fixed seeds and alarm falsely once in 1e6 (`check_model`).
"""

import json
import pickle

import faults
import numpy as np
import pytest
import scipy.linalg

import keepscore as ks
from keepscore.errors import DomainError, DtypeError, MissingError, ShapeError, UnknownNameError

WEIGHTS = np.array([[0.0, 0.5, 1.2], [0.3, 0.0, 0.8], [0.9, 0.1, 0.0]])


def small(**options):
    return ks.models.SIS(weights=WEIGHTS, times=np.arange(6), **options)


def generator(model, lam, mu):
    """Q entry by entry from the definition."""
    nodes = model.node_count
    q = np.zeros((2**nodes, 2**nodes))
    for s in range(2**nodes):
        v = [(s >> k) & 1 for k in range(nodes)]
        for k in range(nodes):
            exposure = sum(model.weights[k, j] * v[j] for j in range(nodes) if j != k)
            q[s, s ^ (1 << k)] = mu if v[k] else model.self_infection + lam * exposure
            q[s, s] -= q[s, s ^ (1 << k)]
    return q


def dense_log_prob(model, theta, x):
    """By matrix exponentials over the visits that took place."""
    q = generator(model, *np.exp(theta))
    rows = x[~np.isnan(x[:, 0])]
    states = rows[:, 1:].astype(int) @ (1 << np.arange(model.node_count))
    value = -model.node_count * np.log(2)
    for i, gap in enumerate(np.diff(rows[:, 0])):
        value += np.log(scipy.linalg.expm(q * gap)[states[i], states[i + 1]])
    return value


def draws(model, n, seed=0):
    rng = np.random.default_rng(seed)
    theta = model.space.uniform(n, rng)
    return theta, model.simulate(theta, rng)


@pytest.mark.parametrize("law", ["uniform", "jittered"])
def test_the_likelihood_is_that_of_dense_exponentials(law):
    model = ks.models.with_times(small(), law, visits=(2, 6))
    theta, x = draws(model, 12)
    assert len({row.tobytes() for row in x[:, :, 0]}) == 12  # all designs differ
    expected = [dense_log_prob(model.base, t, one) for t, one in zip(theta, x, strict=True)]
    np.testing.assert_allclose(model.log_prob(theta, x), expected, rtol=1e-10)
    value, score = model.log_prob_and_score(theta, x)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    step = 1e-5
    for k in range(2):
        h = step * np.eye(2)[k]
        slope = (model.log_prob(theta + h, x) - model.log_prob(theta - h, x)) / (2 * step)
        np.testing.assert_allclose(score[:, k], slope, atol=1e-7)


def test_a_likelihood_of_groups_is_a_sum_over_data_sets():
    model = ks.models.with_times(small(), visits=(3, 6))
    theta, x = draws(model, 6)
    groups = x.reshape(2, 3, *model.x_shape)
    like = model.given(groups)
    at = theta[:4]
    expected = [[sum(model.log_prob(np.tile(t, (3, 1)), g)) for t in at] for g in groups]
    np.testing.assert_allclose(like(at), expected, rtol=1e-12)
    value, slope = like.pairs_gradient(at, np.array([0, 1, 1, 0]))
    np.testing.assert_allclose(value, np.array(expected)[[0, 1, 1, 0], range(4)], rtol=1e-12)
    tiled = [np.tile(t, (3, 1)) for t in at]
    scores = [model.score(t, groups[k]).sum(0) for t, k in zip(tiled, [0, 1, 1, 0], strict=True)]
    np.testing.assert_allclose(slope, scores, rtol=1e-10)


def test_equal_times_are_the_model_of_those_times():
    """Also for groups, which then share their transitions."""
    base = small()
    model = ks.models.with_times(base, "jittered")
    rng = np.random.default_rng(0)
    theta = base.space.uniform(8, rng)
    states = base.simulate(theta, rng)
    x = model.join(base.times, states)
    np.testing.assert_allclose(model.log_prob(theta, x), base.log_prob(theta, states), rtol=1e-12)
    there, here = model.given(x[:4]), base.given(states[:4])
    np.testing.assert_allclose(there(theta), here(theta), rtol=1e-12)
    assert there.single
    assert there.observed != here.observed  # other data, since the times are data too


def test_only_differences_of_times_count_and_rows_of_nan_do_not():
    model = ks.models.with_times(small(), visits=4)
    theta, x = draws(model, 5)
    later = x.copy()
    later[:, :, 0] += 100.0
    np.testing.assert_allclose(model.log_prob(theta, later), model.log_prob(theta, x), rtol=1e-10)
    moved = x[:, [4, 0, 5, 1, 2, 3]]  # rows of NaN in between
    assert np.isnan(moved[:, 0]).all()
    np.testing.assert_allclose(model.log_prob(theta, moved), model.log_prob(theta, x), rtol=1e-12)


def test_tests_that_err_are_filtered_over_the_gaps_there_are():
    base = small(sensitivity=0.9, specificity=0.95)
    model = ks.models.with_times(base, visits=(3, 6))
    assert model.structure is None
    theta, x = draws(model, 4)
    for t, one in zip(theta, x, strict=True):
        rows = one[~np.isnan(one[:, 0])]
        fixed = small(sensitivity=0.9, specificity=0.95).at_times(rows[:, 0])
        expected = fixed.log_prob(t[None], rows[None, :, 1:])
        np.testing.assert_allclose(model.log_prob(t[None], one[None]), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        ks.models.with_times(ks.models.SIS(times=np.arange(5)), visits=(2, 5)),
        ks.models.with_times(small(), "jittered"),
        ks.models.with_times(small(score="joint")),
        ks.models.with_times(small(sensitivity=0.8, specificity=0.9), visits=(2, 6)),
    ],
    ids=["eight people", "jittered", "joint", "imperfect"],
)
def test_the_laws_hold(model):
    report = ks.check_model(model, draws=150, show=False)
    assert report.passed, str(report)
    assert not {"E[score] = 0", "E0[p1/(p0+p1)] = E1[p0/(p0+p1)]"} & set(report.not_checked)


def shuffled(model):
    """The gaps between visits come in another order than they were."""

    def simulate(theta, rng):
        x = model.simulate(theta, rng)
        gaps = rng.permuted(np.diff(x[:, :, 0], axis=1), axis=1)
        x[:, 1:, 0] = x[:, :1, 0] + np.cumsum(gaps, axis=1)
        return x

    return faults.Faulty(model, simulate=simulate)


def evenly(model):
    """The likelihood thinks that visits come at even times."""

    def even(x):
        times = np.linspace(0, 1, x.shape[1]) * x[:, -1:, 0]
        return np.concatenate([times[..., None], x[:, :, 1:]], axis=2)

    return faults.Faulty(
        model,
        log_prob=lambda theta, x: model.log_prob(theta, even(x)),
        score=lambda theta, x: model.score(theta, even(x)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", [shuffled, evenly])
def test_wrong_times_are_convicted(fault):
    report = ks.check_model(fault(ks.models.with_times(small())), draws=700, show=False)
    assert not report.passed, str(report)


def test_a_chain_whose_rates_follow_the_clock_is_convicted():
    model = ks.models.with_times(small())

    def log_prob(theta, x):  # rates rise with the time of day
        return model.log_prob(theta + 0.01 * np.nanmean(x[:, :, 0], axis=1)[:, None], x)

    faulty = faults.Faulty(model, log_prob=log_prob, score=model.score)  # which is not looked at
    faulty.structure = "timed-markov"
    report = ks.check_model(faulty, draws=50, show=False)
    assert "structure: timed-markov" in report.broken


def test_drawn_times_are_as_they_say():
    base = small()
    rng = np.random.default_rng(0)
    uniform = ks.models.with_times(base, visits=(2, 5)).context.draw(400, rng)
    counts = (~np.isnan(uniform)).sum(axis=1)
    assert set(counts) == {2, 3, 4, 5}
    assert (uniform[:, 0] == 0).all()
    assert np.nanmax(uniform) <= 5
    assert (np.diff(uniform, axis=1)[~np.isnan(np.diff(uniform, axis=1))] > 0).all()
    jittered = ks.models.with_times(base, "jittered").context.draw(400, rng)
    assert (np.abs(jittered - np.arange(6)) <= 0.25).all()
    assert jittered.std(axis=0)[1:].min() > 0.1


def test_a_function_draws_times():
    def twice(n, rng):
        times = np.full((n, 6), np.nan)
        times[:, 3], times[:, 1] = 2 + rng.random(n), 1
        return times

    model = ks.models.with_times(small(), twice)
    _, x = draws(model, 3)
    assert (x[:, 0, 0] == 1).all()  # in order, NaN last
    assert np.isnan(x[:, 2:]).all()
    with pytest.raises(MissingError, match="function"):
        ks.models.build(ks.models.describe(model))


def test_new_data_with_the_same_times():
    model = ks.models.with_times(small(), visits=(2, 6))
    theta, x = draws(model, 5)
    again = model.simulate_at(theta, x, np.random.default_rng(1))
    np.testing.assert_array_equal(again[:, :, 0], x[:, :, 0])
    assert not np.array_equal(again, x, equal_nan=True)


def test_check_data_does_not_mistake_a_design_for_a_misfit():
    """Visits at even times, where training has them anywhere, are no misfit."""
    base = ks.models.SIS(times=np.arange(7))
    model = ks.models.with_times(base)
    states = base.simulate(np.zeros((6, 2)), np.random.default_rng(0))
    x = model.join(base.times, states)
    assert ks.check_data(model, x, draws=60, level=0.05).fits


def test_it_is_described_rebuilt_and_pickled():
    model = ks.models.with_times(small(), "jittered", visits=(3, 5))
    again = ks.models.build(json.loads(json.dumps(ks.models.describe(model))))
    theta, x = draws(model, 3)
    for other in (again, pickle.loads(pickle.dumps(model))):  # noqa: S301
        np.testing.assert_array_equal(draws(other, 3)[1], x)
        assert other.settings() == model.settings()
        np.testing.assert_array_equal(other.log_prob(theta, x), model.log_prob(theta, x))


def test_a_data_set_of_them_knows_its_graph(tmp_path):
    model = ks.models.with_times(small(), visits=(2, 6))
    data = ks.simulate(model, 100, path=tmp_path / "set", jobs=1)
    assert data.missing
    assert data.structure == "timed-markov"
    np.testing.assert_array_equal(data.contacts, WEIGHTS)


def test_what_cannot_be_is_refused():
    model = ks.models.with_times(small(), visits=(2, 6))
    theta, x = draws(model, 2)
    with pytest.raises(DtypeError, match="SIS"):
        ks.models.with_times(ks.models.GaussianField(shape=(3, 3)))
    with pytest.raises(DtypeError, match="same times"):
        ks.models.with_times(small(), [0, 1, 2])
    with pytest.raises(UnknownNameError):
        ks.models.with_times(small(), "random")
    for visits in (1, 7, (5, 3), (2, 3, 4)):
        with pytest.raises((DomainError, DtypeError)):
            ks.models.with_times(small(), visits=visits)
    with pytest.raises(DomainError, match="visits"):
        ks.models.with_times(small(), lambda n, rng: None, visits=3)
    with pytest.raises(ShapeError, match="function"):
        ks.models.with_times(small(), lambda n, rng: np.zeros((n, 2))).simulate(theta, None)
    with pytest.raises(DomainError, match="increasing"):
        ks.models.with_times(small(), lambda n, rng: np.zeros((n, 6))).simulate(theta, None)
    backwards = x[:, ::-1].copy()
    with pytest.raises(DomainError, match="increasing"):
        model.log_prob(theta, backwards)
    one = np.full_like(x, np.nan)
    one[:, 0] = x[:, 0]
    with pytest.raises(DomainError, match="visits"):
        model.log_prob(theta, one)
    partly = x.copy()
    partly[:, 0, 2] = np.nan
    with pytest.raises(DomainError, match="as a whole"):
        model.log_prob(theta, partly)
    halves = x.copy()
    halves[:, 0, 1:] = 0.5
    with pytest.raises(DtypeError, match="0 "):
        model.log_prob(theta, halves)
    with pytest.raises(DomainError, match="design"):
        ks.models.with_missing(model, 0.1)
    with pytest.raises(ShapeError, match="states"):
        model.join(np.arange(4), np.zeros((2, 3, 3)))
    with pytest.raises(ShapeError, match="at most"):
        model.join(np.arange(9), np.zeros((2, 9, 3)))
