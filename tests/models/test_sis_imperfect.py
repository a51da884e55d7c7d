"""SIS seen through tests that err, or not at all: against dense matrices and by its laws.

Statistical tests use fixed seeds and alarm falsely once in 1e6; each says what it can detect.
"""

from __future__ import annotations

import json
import pickle

import faults
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from test_sis import TRIANGLE, dense_generator, random_model, states_of

import keepscore as ks
from keepscore.errors import DomainError, DtypeError, NonFiniteError, ShapeError, TooLargeError
from keepscore.models.sis import SIS
from keepscore.space import Parameter, Space

FALSE_ALARM = 1e-6
DIGEST = 6279
RATES = [Parameter("lambda", -1, 1), Parameter("mu", -1, 1)]
SENSITIVITY = Parameter("sensitivity", 0.7, 0.95, "identity", train_margin=0.1)
SPECIFICITY = Parameter("specificity", -0.4, -0.05, "log", train_margin=0.1)
BOTH = Space([*RATES, SENSITIVITY, SPECIFICITY])


def dense_log_prob(model, theta, y, initial=None):
    """The filter from the definition: dense exponentials, one factor per test. NaN: no test."""
    raw = model.space.to_raw(theta)
    named = dict(zip(model.space.names, raw, strict=True))
    sensitivity = named.get("sensitivity", model.sensitivity)
    specificity = named.get("specificity", model.specificity)
    nodes = model.node_count
    q = dense_generator(model, raw[0], raw[1])
    infected = (np.arange(2**nodes)[:, None] >> np.arange(nodes)) & 1
    law = np.full(2**nodes, 0.5**nodes) if initial is None else initial
    steps = {gap: scipy.linalg.expm(q * gap) for gap in np.diff(model.times)}
    value = 0.0
    for i, row in enumerate(np.asarray(y, dtype=float)):
        if i:
            law = law @ steps[np.diff(model.times)[i - 1]]
        for k, result in enumerate(row):
            if not np.isnan(result):
                positive = np.where(infected[:, k], sensitivity, 1 - specificity)
                law = law * (positive if result else 1 - positive)
        value += np.log(law.sum())
        law = law / law.sum()
    return value


def slopes(log_prob, theta):
    """Central differences of fourth order."""
    step, columns = 1e-4, []
    for k in range(theta.shape[1]):
        move = step * np.eye(theta.shape[1])[k]
        near = log_prob(theta + move) - log_prob(theta - move)
        far = log_prob(theta + 2 * move) - log_prob(theta - 2 * move)
        columns.append((8 * near - far) / (12 * step))
    return np.stack(columns, axis=1)


ONE = Space([*RATES, SPECIFICITY])
VARIANTS = {
    "both known": {"sensitivity": 0.9, "specificity": 0.8},
    "false negatives": {"sensitivity": 0.7},
    "both parameters": {"space": BOTH},
    "one of each": {"space": ONE, "sensitivity": 0.85},
    "one perfect": {"space": ONE},
    "no infection from outside": {"sensitivity": 0.9, "specificity": 0.8, "self_infection": 0.0},
    "a chance for each": {"sensitivity": 0.9, "specificity": 0.8, "initial": 0.2},
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("nodes", [1, 3, 4])
def test_log_prob_and_score_against_dense_matrices(nodes, options):
    rng = np.random.default_rng(nodes)
    model = random_model(nodes, rng, **options)
    assert not model.perfect
    assert model.structure is None
    theta = model.space.uniform(6, rng)
    theta[1] = theta[0]  # neighbours with one theta go side by side
    y = rng.integers(0, 2, (6, 4, nodes))
    value, score = model.log_prob_and_score(theta, y)
    initial = None
    if model.initial is not None:
        infected = (np.arange(2**nodes)[:, None] >> np.arange(nodes)) & 1
        initial = np.where(infected, 0.2, 0.8).prod(axis=1)
    expected = [dense_log_prob(model, t, r, initial) for t, r in zip(theta, y, strict=True)]
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(model.log_prob(theta, y), value, rtol=1e-13)
    np.testing.assert_array_equal(score, model.score(theta, y))
    numeric = slopes(lambda t: model.log_prob(t, y), theta)
    np.testing.assert_allclose(score, numeric, rtol=1e-7, atol=1e-8)


def test_the_papers_graph_against_dense_matrices():
    model = SIS(sensitivity=0.9, specificity=0.98)
    theta = np.array([[0.3, -0.6]])
    x = model.simulate(theta, np.random.default_rng(0))
    holes = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x)
    assert model.log_prob(theta, x)[0] == pytest.approx(
        dense_log_prob(model, theta[0], x[0]), rel=1e-11
    )
    assert model.log_prob_observed(theta, holes)[0] == pytest.approx(
        dense_log_prob(model, theta[0], holes[0]), rel=1e-11
    )


@pytest.mark.parametrize("options", [{}, VARIANTS["both known"], VARIANTS["both parameters"]])
def test_missing_tests_against_dense_matrices(options):
    rng = np.random.default_rng(5)
    model = random_model(3, rng, times=[0, 0.5, 1, 2.5, 3], **options)
    theta = model.space.uniform(7, rng)
    y = model.simulate(theta, rng).astype(float)
    y[0, 2] = np.nan  # a visit
    y[1, 0] = np.nan  # the first one
    y[2, 3:] = np.nan  # the last ones
    y[3, :, 1] = np.nan  # a person
    y[4, 1:4] = np.nan
    y[5][rng.random((5, 3)) < 0.5] = np.nan
    y[6, 4, 2] = np.nan
    value, score = model.log_prob_and_score_observed(theta, y)
    expected = [dense_log_prob(model, t, r) for t, r in zip(theta, y, strict=True)]
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(model.log_prob_observed(theta, y), value, rtol=1e-13)
    numeric = slopes(lambda t: model.log_prob_observed(t, y), theta)
    np.testing.assert_allclose(score, numeric, rtol=1e-7, atol=1e-8)
    turned = np.where(np.isnan(y), y, 1 - y)  # control: the wrong way round
    assert np.abs(model.log_prob_observed(theta, turned) - value).min() > 1e-3


def test_what_is_missing_is_summed_over():
    rng = np.random.default_rng(6)
    model = SIS(weights=TRIANGLE, times=[0, 1, 2], sensitivity=0.8, specificity=0.9)
    y = rng.integers(0, 2, (1, 3, 3)).astype(float)
    theta = np.array([[0.2, -0.4]])
    filled = np.repeat(y, 4, axis=0)
    filled[:, 1, 0], filled[:, 2, 2] = [0, 1, 0, 1], [0, 0, 1, 1]
    y[0, 1, 0] = y[0, 2, 2] = np.nan
    whole = np.exp(model.log_prob(np.repeat(theta, 4, axis=0), filled)).sum()
    assert model.log_prob_observed(theta, y)[0] == pytest.approx(np.log(whole), rel=1e-12)


@pytest.mark.parametrize("options", [{}, VARIANTS["both parameters"]])
def test_with_nobody_tested_nothing_is_said(options):
    model = SIS(weights=TRIANGLE, times=[0, 1, 3], **options)
    theta = model.space.uniform(3, np.random.default_rng(0))
    value, score = model.log_prob_and_score_observed(theta, np.full((3, 3, 3), np.nan))
    np.testing.assert_array_equal(value, 0.0)
    np.testing.assert_array_equal(score, 0.0)


@pytest.mark.parametrize("options", [{}, {"times": [0, 0.5, 2, 2.5]}, {"self_infection": 0.0}])
def test_perfect_tests_with_nothing_missing_are_the_markov_chain(options):
    model = SIS(**options)
    rng = np.random.default_rng(2)
    theta = model.space.uniform(10, rng)
    x = model.simulate(theta, rng)
    value, score = model.log_prob_and_score(theta, x)
    for kind in (np.uint8, np.float32, float, bool):
        seen, slope = model.log_prob_and_score_observed(theta, x.astype(kind))
        np.testing.assert_allclose(seen, value, rtol=1e-12)
        np.testing.assert_allclose(slope, score, rtol=1e-9, atol=1e-10)
    given = SIS(sensitivity=1, specificity=1.0, **options)
    assert given.settings() == model.settings()
    assert given.space == model.space
    assert given.structure == model.structure
    np.testing.assert_array_equal(given.log_prob(theta, x), value)
    x_again, score_again = given.simulate_with_score(theta, np.random.default_rng(3))
    x_first, score_first = model.simulate_with_score(theta, np.random.default_rng(3))
    np.testing.assert_array_equal(x_again, x_first)
    np.testing.assert_array_equal(score_again, score_first)


def test_simulated_states_without_errors_are_what_they_always_were():
    """A digest of paths drawn before there were tests with errors."""
    x = SIS().simulate(np.tile([0.3, -0.2], (3, 1)), np.random.default_rng(7))
    assert int((x.reshape(3, -1) @ (np.arange(104) % 97 + 1)).sum()) == DIGEST


def test_results_err_as_often_as_they_are_said_to():
    """Two million tests of everybody infected, or nobody: detects an error off by .002."""
    for initial, wanted in ((1.0, 0.9), (0.0, 0.2)):
        model = SIS(
            weights=np.zeros((2, 2)), self_infection=0.0, times=[0, 1e-9], initial=initial,
            sensitivity=0.9, specificity=0.8,
        )  # fmt: skip
        x = model.simulate(np.zeros((500_000, 2)), np.random.default_rng(0))
        error = np.sqrt(wanted * (1 - wanted) / x.size)
        assert abs(x.mean() - wanted) < scipy.stats.norm.isf(FALSE_ALARM / 2) * error
        lag = np.corrcoef(x[:, 0, 0], x[:, 1, 0])[0, 1]
        assert abs(lag) < 5 / np.sqrt(len(x))


def test_simulation_depends_on_the_seed_alone_and_not_on_the_batch():
    model = SIS(space=BOTH)
    theta = model.space.uniform(40, np.random.default_rng(0))
    x, score = model.simulate_with_score(theta, np.random.default_rng(1))
    assert x.dtype == np.uint8
    assert set(np.unique(x)) == {0, 1}
    rng = np.random.default_rng(1)
    parts = [model.simulate(theta[:15], rng), model.simulate(theta[15:], rng)]
    np.testing.assert_array_equal(np.concatenate(parts), x)
    np.testing.assert_array_equal(score, model.score(theta, x))


def test_joint_score_has_the_score_as_its_mean_given_the_results():
    """K = 2, T = 2, four parameters: all 16 results, 300,000 paths, a z-test in each for each
    parameter. Detects a conditional mean off by 6% of the score's largest value (the control)."""
    weights, n = np.array([[0.0, 0.9], [0.4, 0.0]]), 300_000
    model = SIS(weights=weights, times=[0, 1.5], score="joint", space=BOTH)
    theta = np.array([0.5, 0.1, 0.8, -0.2])
    y, joint = model.simulate_with_score(np.tile(theta, (n, 1)), np.random.default_rng(6))
    limit = scipy.stats.norm.isf(FALSE_ALARM / 2 / 64)
    cell = states_of(y) @ [1, 4]
    table = ((np.arange(16)[:, None] >> np.arange(4)) & 1).reshape(16, 2, 2)
    exact = model.score(np.tile(theta, (16, 1)), table)

    def worst(expected):
        z = []
        for c in range(16):
            rows = joint[cell == c]
            assert len(rows) > 1000
            error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
            z.append(np.abs(rows.mean(axis=0) - expected[c]) / error)
        return np.max(z, axis=0)

    assert (worst(exact) < limit).all()
    assert (worst(exact + 0.06 * np.abs(exact).max(axis=0)) > limit).all()


def test_the_laws_hold_exactly_over_every_result():
    """K = 2, T = 3: all 64 results, so that nothing is left to chance."""
    model = SIS(weights=[[0, 0.9], [0.4, 0]], times=[0, 1, 2.5], space=BOTH)
    results = ((np.arange(64)[:, None] >> np.arange(6)) & 1).reshape(64, 3, 2)
    theta = np.tile([0.3, -0.5, 0.8, -0.2], (64, 1))
    value, score = model.log_prob_and_score(theta, results)
    p = np.exp(value)
    assert p.sum() == pytest.approx(1.0, abs=1e-13)
    np.testing.assert_allclose(p @ score, 0.0, atol=1e-12)
    moves = 1e-4 * np.eye(4)
    rises = [model.score(theta + m, results) - model.score(theta - m, results) for m in moves]
    hessian = np.stack(rises, axis=1) / 2e-4
    information = np.einsum("n,ni,nj->ij", p, score, score)
    np.testing.assert_allclose(information, -np.einsum("n,nij->ij", p, hessian), atol=1e-6)


SMALL = {"weights": TRIANGLE, "times": [0, 1, 2, 3.5]}


@pytest.mark.parametrize(
    "options",
    [
        {"sensitivity": 0.9, "specificity": 0.98},
        {**SMALL, "space": BOTH},
        {**SMALL, "space": BOTH, "score": "joint"},
        {"weights": 1.0 - np.eye(3), "times": [0, 1, 2], "space": BOTH, "initial": 0.3},
    ],
)
def test_every_law_holds(options):
    report = ks.check_model(SIS(**options), draws=400, show=False)
    assert report.passed, str(report)
    assert set(report.not_checked) <= {"score = autodiff"}
    if "weights" not in options:
        assert "symmetries" in report.held


def swapped(model):
    """The likelihood takes sensitivity for specificity; the simulator does not."""
    other = SIS(sensitivity=model.specificity, specificity=model.sensitivity, **SMALL)
    return faults.Faulty(model, log_prob=other.log_prob, score=other.score)


def ignored(model):
    """The likelihood takes results for states."""
    other = SIS(**SMALL)
    return faults.Faulty(model, log_prob=other.log_prob, score=other.score)


@pytest.mark.parametrize("fault", [swapped, ignored, faults.flipped_score])
def test_wrong_errors_are_convicted(fault):
    model = SIS(sensitivity=0.85, specificity=0.95, **SMALL)
    assert not ks.check_model(fault(model), draws=600, show=False).passed


def test_given_is_the_sum_of_log_prob_and_score():
    model = SIS(weights=TRIANGLE, times=[0, 1, 2.5], space=BOTH)
    rng = np.random.default_rng(8)
    xs = model.simulate(model.space.uniform(5 * 14, rng), rng).reshape(5, 14, 3, 3)
    theta = model.space.uniform(3, rng)
    like = model.given(xs)
    sums = [[model.log_prob_and_score(np.tile(t, (14, 1)), group) for t in theta] for group in xs]
    value = np.array([[s[0].sum() for s in row] for row in sums])
    slope = np.array([[s[1].sum(axis=0) for s in row] for row in sums])
    np.testing.assert_allclose(like(theta), value, rtol=1e-12)
    np.testing.assert_allclose(like.gradient(theta), slope, rtol=1e-9, atol=1e-9)
    group = np.array([4, 0, 2])
    np.testing.assert_allclose(like.pairs(theta, group), value[group, [0, 1, 2]], rtol=1e-12)
    one = model.given(xs[3])
    assert one(theta[1]) == pytest.approx(value[3, 1], rel=1e-12)
    each = model.given(xs[3], each=True)
    np.testing.assert_allclose(each(theta[1]), model.log_prob(np.tile(theta[1], (14, 1)), xs[3]))
    found = ks.mle(model.given(xs.reshape(-1, 3, 3)))
    assert np.isfinite(found.estimate).all()


def test_a_model_is_rebuilt_from_its_description():
    rng = np.random.default_rng(0)
    for options in VARIANTS.values():
        model = SIS(weights=TRIANGLE, times=[0, 1, 3], score="joint", **options)
        told = json.loads(json.dumps(ks.models.describe(model)))
        again = ks.models.build(told)
        assert ks.models.describe(again) == told
        assert again.sensitivity == model.sensitivity
        theta = model.space.uniform(3, rng)
        x = model.simulate(theta, rng)
        value = model.log_prob(theta, x)
        np.testing.assert_array_equal(again.log_prob(theta, x), value)
        copy = pickle.loads(pickle.dumps(model))  # noqa: S301  workers get models this way
        np.testing.assert_array_equal(copy.log_prob(theta, x), value)
        assert len(pickle.dumps(model)) < 5000
    plain, other = SIS(), SIS(sensitivity=0.9)
    assert ks.models.describe(plain) != ks.models.describe(other)
    assert "sensitivity" not in plain.settings()
    assert other.space.fixed == {"eta": 0.135, "sensitivity": 0.9}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sensitivity": 0.0}, DomainError, r"\(0, 1\]"),
        ({"specificity": 1.01}, DomainError, r"\(0, 1\]"),
        ({"specificity": np.nan}, DomainError, r"\(0, 1\]"),
        ({"sensitivity": "high"}, DtypeError, "sensitivity"),
        ({"sensitivity": [0.9, 0.8]}, ShapeError, "sensitivity"),
        ({"sensitivity": 0.9, "space": BOTH}, DomainError, "among the parameters"),
        ({"space": Space([*RATES, Parameter("accuracy", 0, 1)])}, DomainError, "accuracy"),
        ({"space": Space([SENSITIVITY, *RATES])}, DomainError, "lambda and mu"),
        (
            {"space": Space([*RATES, Parameter("specificity", 0.9, 1.0, "identity")])},
            DomainError,
            "narrower bounds",
        ),
        (
            {"space": Space(RATES, {"sensitivity": 0.8}), "sensitivity": 0.9},
            DomainError,
            "fixes sensitivity at 0.8",
        ),
    ],
)
def test_bad_options_are_typed_errors(options, error, words):
    with pytest.raises(error, match=words):
        SIS(**options)


def test_bad_data_are_typed_errors():
    model, theta = SIS(sensitivity=0.9, **SMALL), np.zeros((2, 2))
    x = model.simulate(theta, np.random.default_rng(0)).astype(float)
    with pytest.raises(DtypeError, match=r"0 .* and 1 .* only"):
        model.log_prob(theta, x + 1)
    for call in (model.log_prob, model.score, SIS(**SMALL).log_prob):
        with pytest.raises(NonFiniteError, match="x must be finite"):
            call(theta, np.where(x == 1, np.nan, x))
    with pytest.raises(NonFiniteError):
        model.given(np.full((1, 4, 3), np.nan))
    with pytest.raises(DtypeError, match=r"0 .* and 1 .* only"):
        model.log_prob_observed(theta, np.where(x == 1, np.nan, 0.5))
    with pytest.raises(NonFiniteError, match="x must be finite"):
        model.log_prob_observed(theta, np.where(x == 1, np.inf, x))
    with pytest.raises(ShapeError, match="row by row"):
        model.log_prob_observed(theta, x[:1])
    with pytest.raises(ShapeError, match=r"\(n, 4, 3\)"):
        model.log_prob_and_score_observed(theta, x[:, :3])
    free = SIS(space=BOTH, **SMALL)
    with pytest.raises(DomainError, match="sensitivity must lie between 0 and 1"):
        free.log_prob([[0, 0, 1.2, -0.1]], x[:1])
    with pytest.raises(DomainError, match="Row 0 of theta"):
        model.score([[25.0, 0.0]], x[:1])
    none = np.empty((0, 2))
    assert model.log_prob(none, x[:0]).shape == (0,)
    assert model.score(none, x[:0]).shape == (0, 2)
    assert model.simulate_with_score(none, np.random.default_rng(0))[1].shape == (0, 2)


def test_a_result_that_cannot_be_has_no_score():
    """No false positives and no infection from outside: a positive test out of nowhere."""
    model = SIS(weights=TRIANGLE, times=[0, 1], initial=0.0, self_infection=0.0, sensitivity=0.9)
    x = np.zeros((1, 2, 3))
    assert model.log_prob(np.zeros((1, 2)), x)[0] == pytest.approx(0.0, abs=1e-12)
    x[0, 1, 0] = 1
    assert model.log_prob(np.zeros((1, 2)), x)[0] == -np.inf
    with pytest.raises(NonFiniteError, match="Row 0 has probability zero"):
        model.score(np.zeros((1, 2)), x)


def test_many_nodes_have_joint_scores_alone():
    places = np.random.default_rng(0).random((64, 2)) * 6
    model = SIS(positions=places, times=[0, 1, 2], score="joint", space=BOTH)
    theta = model.space.uniform(50, np.random.default_rng(0))
    x, score = model.simulate_with_score(theta, np.random.default_rng(0))
    assert x.shape == (50, 3, 64)
    assert score.shape == (50, 4)
    assert np.isfinite(score).all()
    for call in (model.log_prob, model.score, model.log_prob_observed):
        with pytest.raises(TooLargeError, match=r"2\^64 states.*GiB.*joint"):
            call(theta, x)
    with pytest.raises(TooLargeError):
        model.given(x)


def test_the_default_network_learns_from_results():
    model = SIS(sensitivity=0.9, specificity=0.98, **SMALL)
    data = ks.simulate(model, 400, seed=0, jobs=1)
    assert data.structure is None
    config = ks.TrainConfig(batch_size=64, min_epochs=2, max_epochs=2, guard=False)
    surrogate = ks.train(data, config=config)
    assert np.isfinite(surrogate.given(data.x[:10])(np.zeros((1, 2)))).all()
