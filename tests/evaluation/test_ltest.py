"""The L-test: exact against itself is zero, known bends give known errors, quadrature is right."""

import json

import numpy as np
import pytest
from doubles import Bent
from many_parameters import Linear
from scipy.special import log_ndtr
from toys import GaussianToy

from keepscore.errors import DomainError, FormatError, MismatchError
from keepscore.evaluation.estimate import Estimate, mean, root_mean_square, stratified_mean
from keepscore.evaluation.evidence import clenshaw_curtis, log_evidence, tensor_rule
from keepscore.evaluation.ltest import ltest, ltest_set
from keepscore.space import Parameter, Space

SIZES = {"n": 400, "exact": 300, "evidence": 200, "seed": 3}


@pytest.fixture(scope="module")
def toy():
    return GaussianToy()


@pytest.fixture(scope="module")
def pairs(toy):
    return ltest_set(toy, **SIZES)


@pytest.mark.parametrize("degree", [0, 1, 4, 7, 8])
def test_clenshaw_curtis_integrates_polynomials_exactly(degree):
    nodes, weights = clenshaw_curtis(8)
    exact = 0.0 if degree % 2 else 1 / (degree + 1)
    assert weights.sum() == pytest.approx(1, abs=1e-14)
    assert (weights > 0).all()
    assert weights @ nodes**degree == pytest.approx(exact, abs=1e-14)


def test_the_tensor_rule_averages_over_the_training_box():
    space = Space([Parameter("a", -1, 3, "identity"), Parameter("b", 0, 1, "identity")])
    nodes, fine, coarse = tensor_rule(space, 8)
    low, high = space.box("train")
    for weights in (fine, coarse):
        assert weights @ nodes == pytest.approx((low + high) / 2)
        second = weights @ (nodes[:, 0] ** 2)
        assert second == pytest.approx((low[0] ** 2 + low[0] * high[0] + high[0] ** 2) / 3)
    with pytest.raises(DomainError):
        tensor_rule(space, 6)


class OnlyMean(GaussianToy):
    """theta = mean alone, sd = 1: the evidence is a difference of normal distribution functions."""

    def __init__(self):
        super().__init__(m=3)
        self.space = Space([Parameter("mean", -1, 1, "identity")])

    def log_prob_and_score(self, theta, x):
        z = np.asarray(x) - np.asarray(theta)
        value = -0.5 * (z**2).sum(1) - 1.5 * np.log(2 * np.pi)
        return value, z.sum(1)[:, None]


def test_log_evidence_equals_its_closed_form():
    model, x = OnlyMean(), np.random.default_rng(0).normal(size=(50, 3)) * 2
    low, high = (b[0] for b in model.space.box("train"))
    centre, m = x.mean(1), 3
    # Integral of exp(-m (theta - centre)^2 / 2) over [low, high], by the tail that does not cancel.
    a, b = np.sqrt(m) * (low - centre), np.sqrt(m) * (high - centre)
    sign = np.where(centre > 0, -1, 1)
    upper = log_ndtr(np.where(sign > 0, b, -a))
    integral = upper + np.log1p(-np.exp(log_ndtr(np.where(sign > 0, a, -b)) - upper))
    integral += 0.5 * np.log(2 * np.pi / m)
    peak = -0.5 * (x**2).sum(1) + 0.5 * m * centre**2 - 1.5 * np.log(2 * np.pi)
    value, error = log_evidence(model, x)
    np.testing.assert_allclose(value, peak + integral - np.log(high - low), atol=1e-10)
    assert error.max() < 1e-8


def test_too_few_nodes_show_in_the_error_estimate():
    model, x = OnlyMean(), np.random.default_rng(0).normal(size=(20, 3))
    good, _ = log_evidence(model, x)
    poor, error = log_evidence(model, x, intervals=4)
    assert np.mean(np.abs(poor - good)) < np.mean(error)
    assert error.max() > 1e-3


def test_log_evidence_minds_the_constant_a_likelihood_leaves_out():
    from test_etest import WideToy

    class Whole(WideToy):
        given = GaussianToy.given

    x = np.random.default_rng(0).normal(size=(5, 4))
    short, whole = WideToy().given(x[:, None]), Whole().given(x[:, None])
    assert (np.abs(short.surface(np.zeros((1, 2))) - whole.surface(np.zeros((1, 2)))) > 1).all()
    np.testing.assert_allclose(log_evidence(WideToy(), x)[0], log_evidence(Whole(), x)[0])


def test_exact_against_itself_is_zero(toy, pairs):
    found = ltest(Bent(toy), toy, test_set=pairs)
    assert [e.value for e in found.score_mse] == [0, 0]
    assert found.rmse_near.value < 1e-12
    assert found.rmse_far.value < 1e-12
    assert abs(found.bce_excess.value) < 1e-12
    assert found.bce_excess.se < 1e-12
    assert found.quadrature_error < 1e-6


def test_bce_is_the_formula(toy, pairs):
    found = ltest(Bent(toy, tilt=0.4), toy, test_set=pairs)
    theta, x = np.asarray(pairs.data.theta), np.asarray(pairs.data.x)
    h = Bent(toy, tilt=0.4).log_ratio
    terms = [np.log1p(np.exp(-h(theta, x))), np.log1p(np.exp(h(theta[pairs.partner], x)))]
    assert found.bce.value == pytest.approx(np.mean(terms), rel=1e-12)
    assert found.n == 400
    assert found.exact == 300
    assert found.evidence == 200


def test_negatives_are_never_the_pair_itself(pairs):
    assert sorted(pairs.partner) == list(range(400))
    assert (pairs.partner != np.arange(400)).all()


def test_a_tilt_is_measured(toy, pairs):
    """h + a . theta: every score error is a, every difference error a . (theta - theta')."""
    found = ltest(Bent(toy, tilt=0.5), toy, test_set=pairs)
    for value in found.score_mse:
        assert value.value == pytest.approx(0.25)
        assert value.se == pytest.approx(0, abs=1e-9)
    theta = np.asarray(pairs.data.theta)[:300]
    for rmse, other in ((found.rmse_near, "near_theta"), (found.rmse_far, "far_theta")):
        errors = (theta - pairs.exact[other]) @ [0.5, 0.5]
        assert rmse.value == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert found.rmse_far.value > 2 * found.rmse_near.value
    # 0.5 in each of two coordinates: sd 0.1 * sqrt(0.5) before clipping.
    assert found.rmse_near.value == pytest.approx(0.0707, rel=0.25)
    assert found.bce_excess.value > 0
    assert found.bce_excess.se < found.bce.se


def test_nudged_thetas_stay_in_the_base_box(toy, pairs):
    for name in ("near_theta", "far_theta"):
        assert toy.space.contains(pairs.exact[name]).all()


def test_same_seed_same_numbers_other_seed_others(toy):
    again = ltest(Bent(toy, 0.2), toy, **SIZES).to_dict()
    assert ltest(Bent(toy, 0.2), toy, **SIZES).to_dict() == again
    assert ltest(Bent(toy, 0.2), toy, **{**SIZES, "seed": 4}).to_dict() != again
    json.dumps(again, allow_nan=False)


def test_the_cache_gives_the_same_and_refuses_others(toy, tmp_path):
    first = ltest_set(toy, **SIZES, path=tmp_path)

    class Silent(GaussianToy):
        def log_prob_and_score(self, theta, x):
            if len(theta) > 1:
                raise AssertionError("computed again")
            return super().log_prob_and_score(theta, x)

    second = ltest_set(Silent(), **SIZES, path=tmp_path)
    for name, values in first.exact.items():
        np.testing.assert_array_equal(values, second.exact[name])
    with pytest.raises(MismatchError, match="evidence: 200 there, 100 here"):
        ltest_set(toy, **{**SIZES, "evidence": 100}, path=tmp_path)
    (tmp_path / "exact.npz").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(FormatError, match="delete it"):
        ltest_set(toy, **SIZES, path=tmp_path)


def test_another_space_is_refused(toy):
    other = GaussianToy()
    other.space = Space([Parameter("mean", -2, 2, "identity"), Parameter("sd", -0.7, 0.7)])
    with pytest.raises(MismatchError, match="different parameter spaces"):
        ltest(Bent(other), toy, **SIZES)


def test_without_a_likelihood_only_the_bce_is_left(toy):
    from keepscore.errors import MissingError

    class Unknown(GaussianToy):
        def log_prob_and_score(self, theta, x):
            raise MissingError("no likelihood")

    found = ltest(Bent(toy, 0.3), Unknown(), **SIZES)
    assert found.score_mse is None
    assert found.bce_excess is None
    assert [name for name, _ in found.rows()] == ["bce"]


def test_standard_errors_are_those_of_repeated_draws():
    """5,000 repetitions: each mean SE within 10% of the spread it claims to be."""
    rng = np.random.default_rng(0)
    draws = rng.exponential(size=(5000, 80))
    for estimate in (mean, root_mean_square):
        found = [estimate(row) for row in draws]
        spread = np.std([e.value for e in found])
        assert np.mean([e.se for e in found]) == pytest.approx(spread, rel=0.1)
    strata = draws.reshape(5000, 8, 10) + 5 * np.arange(8)[:, None]
    found = [stratified_mean(row) for row in strata]
    spread = np.std([e.value for e in found])
    assert np.mean([e.se for e in found]) == pytest.approx(spread, rel=0.1)


def test_estimates_print_the_digits_they_know():
    assert str(Estimate(0.39972, 0.00041)) == "0.39972 ± 0.00041"
    assert str(Estimate(12.345, 0.6)) == "12.35 ± 0.60"
    assert str(Estimate(3.0, 0.0)) == "3"
    assert str(Estimate(0.04, 1e-18)) == "0.04"


@pytest.mark.parametrize("d", [4, 6, 10])
def test_evidence_of_many_parameters_by_sampling(d):
    """Linear Gaussian, posteriors well inside the box: the evidence in closed form, to within 5 of
    the standard errors it states; those are small."""
    model, rng = Linear(d), np.random.default_rng(0)
    theta = rng.uniform(-1, 1, (20, d))
    x = model.simulate(theta, rng)
    value, error = log_evidence(model, x)
    gram = model.design.T @ model.design
    best = np.linalg.solve(gram, model.design.T @ x.T).T
    low, high = model.space.box("train")
    expected = model.log_prob(best, x) + 0.5 * d * np.log(2 * np.pi * model.sd**2)
    expected -= 0.5 * np.linalg.slogdet(gram)[1] + np.log(high - low).sum()
    assert error.max() < 0.1
    assert (np.abs(value - expected) < 5 * error).all()
    # The control: the evidence over another box is told apart.
    other = (
        expected + np.log(high - low).sum() - np.log(np.subtract(*model.space.box()[::-1])).sum()
    )
    assert (np.abs(value - other) > 5 * error).all()


@pytest.mark.slow
def test_the_evidence_of_a_density_is_computed_once_and_for_few_pairs(toy, monkeypatch):
    """The losses are those of `log_ratio` on the first pairs; of 700, 500 evidences are computed,
    each once. (A scorecard of 2,000 pairs took minutes: every pair had its own, four times.)"""
    import jax

    from keepscore.evaluation.ltest import EVIDENCES, _losses
    from keepscore.losses import pair_losses
    from keepscore.networks.catalogue import resolve, standardise
    from keepscore.surrogate import Surrogate

    many = ltest_set(toy, n=700, exact=30, evidence=20, seed=3)
    x = many.data.rows(np.arange(700))[1]
    made = resolve("mixture-10k", toy.x_shape, toy.space.d, None, jax.random.key(1))
    scaled = standardise(made, x, *toy.space.box("train"))
    surrogate = Surrogate(scaled, toy.space, toy.x_shape)
    asked, plain = [], Surrogate.log_evidence

    def counted(self, x):
        asked.append(len(x))
        return plain(self, x)

    monkeypatch.setattr(Surrogate, "log_evidence", counted)
    ltest(surrogate, toy, test_set=many)
    assert sum(asked) == EVIDENCES == 500
    loss = _losses(surrogate, many, 0)
    theta, first = np.asarray(many.data.theta), np.arange(40)
    own, other = (surrogate.log_ratio(theta[i], x[first]) for i in (first, many.partner[first]))
    np.testing.assert_allclose(loss[:40], pair_losses(own, other), atol=1e-4)
