"""The E-test: exact against itself is zero, theory holds on a Gaussian toy, bends are measured."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from doubles import Bent
from many_parameters import Linear
from scipy import stats
from scipy.special import gamma
from toys import GaussianToy

from keepscore.errors import DomainError, MismatchError, MissingError
from keepscore.evaluation.etest import etest, etest_set
from keepscore.space import Parameter, Space

SIZES = {"grid": (4, 4), "groups": 12, "size": 5, "seed": 2}


class WideToy(GaussianToy):
    """The toy in its sufficient statistics: instant surfaces, and a box no set reaches."""

    def __init__(self):
        super().__init__(m=4)
        self.space = Space(
            [
                Parameter("mean", -3, 3, "identity", test_margin=1.6),
                Parameter("sd", -1.5, 1.5, "log", test_margin=1.6),
            ]
        )

    def given(self, xs):
        from keepscore.likelihood import Likelihood, as_groups

        groups, single = as_groups(xs, self.x_shape)
        flat = groups.reshape(len(groups), -1)
        n, total, square = flat.shape[1], flat.sum(1), (flat**2).sum(1)

        def value(mean, log_sd, group):
            rest = square[group] - 2 * mean * total[group] + n * mean**2
            return -0.5 * rest * np.exp(-2 * log_sd) - n * log_sd, rest

        def pairs(theta, group):
            return value(theta[:, 0], theta[:, 1], group)[0]

        def pairs_gradient(theta, group):
            v, rest = value(theta[:, 0], theta[:, 1], group)
            precision = np.exp(-2 * theta[:, 1])
            slope = (total[group] - n * theta[:, 0]) * precision
            return v, np.stack([slope, rest * precision - n], axis=1)

        def surface(theta):
            every = np.arange(len(groups))[:, None]
            return value(theta[None, :, 0], theta[None, :, 1], every)[0]

        g = len(groups)
        return Likelihood(self.space, g, groups.shape[1], pairs, pairs_gradient, surface, single)


@pytest.fixture(scope="module")
def toy():
    return WideToy()


@pytest.fixture(scope="module")
def truth(toy):
    return etest_set(toy, **SIZES)


def test_exact_against_itself_is_zero(toy, truth):
    found = etest(toy, toy, test_set=truth)
    assert found.lrt_mse.value == 0
    assert found.lrt_mse.se == 0
    assert [e.value for e in found.mle_mse] == [0, 0]
    assert found.coverage == found.coverage_exact
    assert found.volume == found.volume_exact
    assert found.null_distance == 0


def obeys_wilks(found):
    """Lambda chi-square with 2 d.f. up to Bartlett's 2% at 40 draws a group, coverage 0.95.

    3,000 groups, bounds at 5 standard errors: false alarms below 1e-6; a likelihood raised to the
    power 1.2 is seen (the control below).
    """
    wide = 5 / np.sqrt(3000)
    return (
        abs(found.statistic.mean() - 2.04) < 2 * wide
        and abs(found.covered.mean() - 0.947) < np.sqrt(0.95 * 0.05) * wide
        and stats.kstest(found.statistic.ravel(), "chi2", (2,)).pvalue > 1e-6
    )


def test_theory_on_the_gaussian_toy(toy):
    """10 x 10 theta, 30 groups of 10: closed-form MLE, Wilks' theorem, the ellipse's area."""
    truth = etest_set(toy, seed=1)
    exact, n = truth.exact, 40
    flat = truth.xs.reshape(100, 30, -1)
    np.testing.assert_allclose(exact.estimate[..., 0], flat.mean(-1), atol=1e-5)
    np.testing.assert_allclose(exact.estimate[..., 1], np.log(flat.std(-1)), atol=1e-5)
    assert obeys_wilks(exact)
    # Information n/sd^2 and 2n: area pi c sd / (n sqrt 2), exact to O(1/n).
    area = np.pi * stats.chi2.ppf(0.95, 2) * np.exp(exact.estimate[..., 1]) / (n * np.sqrt(2))
    assert (exact.volume / area).mean() == pytest.approx(1.0, abs=0.06)
    assert exact.cut == 0
    assert exact.unconverged == 0
    control = etest(Bent(toy, power=1.2), toy, test_set=truth)
    assert not obeys_wilks(control.surrogate)


def test_an_overconfident_likelihood_is_caught(toy, truth):
    """Likelihood cubed: the same estimates, three times the statistic, sets a third as large."""
    found = etest(Bent(toy, power=3.0), toy, test_set=truth)
    assert all(e.value < 1e-8 for e in found.mle_mse)
    np.testing.assert_allclose(found.surrogate.statistic, 3 * found.exact.statistic, atol=1e-5)
    squared = (2 * found.exact.statistic) ** 2
    assert found.lrt_mse.value == pytest.approx(squared.mean(), rel=1e-4)
    assert found.volume.value == pytest.approx(found.volume_exact.value / 3, rel=0.08)
    assert found.coverage.value < 0.8
    assert found.null_distance > 0.2


def test_shared_boxes_measure_the_same_volumes(toy, truth, monkeypatch):
    """The way for three parameters, on two, where every set is also measured on its own."""
    monkeypatch.setattr(sys.modules["keepscore.evaluation.etest"], "SHARED_GRID", 0)
    shared = etest_set(toy, **SIZES)
    np.testing.assert_allclose(shared.exact.volume, truth.exact.volume, rtol=0.02)
    monkeypatch.setattr(
        "keepscore.evaluation.set_volumes.REACH", 0.05
    )  # boxes far too small must grow
    grown = etest_set(toy, **SIZES)
    np.testing.assert_allclose(grown.exact.volume, truth.exact.volume, rtol=0.02)
    assert shared.exact.cut == grown.exact.cut == truth.exact.cut == 0


def test_sets_cut_by_the_box_are_counted():
    narrow = WideToy()
    narrow.space = Space(
        [Parameter("mean", -0.2, 0.2, "identity"), Parameter("sd", -1.5, 1.5, "log")]
    )
    found = etest_set(narrow, **SIZES).exact
    assert found.cut == found.statistic.size


def test_a_tilted_likelihood_moves_estimates(toy, truth):
    found = etest(Bent(toy, tilt=0.3), toy, test_set=truth)
    squared = (found.surrogate.estimate - found.exact.estimate) ** 2
    for k, value in enumerate(found.mle_mse):
        assert value.value == pytest.approx(np.median(squared[..., k].mean(axis=1)))
        assert 0 < value.se < value.value


def test_coverage_is_reported_along_each_parameter(toy, truth):
    found = etest(Bent(toy, power=2.0), toy, test_set=truth)
    assert found.coverage_by_theta.shape == (16,)
    for name in ("mean", "sd"):
        levels = found.coverage_along(name)
        assert len(levels) == 4
        assert np.mean([e.value for _, e in levels]) == pytest.approx(found.coverage.value)


def test_the_summary_is_json_and_compact(toy, truth):
    found = etest(Bent(toy, power=2.0), toy, test_set=truth).to_dict()
    text = json.dumps(found, allow_nan=False)
    assert len(text) < 40 * 16 * 12
    assert len(found["null"]) == 16 * 12
    assert found["null"] == sorted(found["null"])
    assert set(found["metrics"]) >= {"lrt_mse", "coverage", "volume", "mle_mse[mean]"}


def test_exact_results_are_kept_on_disk(toy, truth, tmp_path):
    first = etest_set(toy, **SIZES, path=tmp_path)
    np.testing.assert_array_equal(first.exact.statistic, truth.exact.statistic)

    class Silent(WideToy):
        def given(self, xs):
            raise AssertionError("computed again")

    again = etest_set(Silent(), **SIZES, path=tmp_path)
    for name, values in vars(first.exact).items():
        np.testing.assert_array_equal(values, getattr(again.exact, name))
    with pytest.raises(MismatchError, match="groups: 12 there, 11 here"):
        etest_set(toy, **{**SIZES, "groups": 11}, path=tmp_path)


def test_a_model_without_likelihood_is_refused():
    class Unknown(WideToy):
        def given(self, xs):
            raise MissingError("no log_prob was given")

    with pytest.raises(MissingError, match="E-test compares with the exact likelihood"):
        etest_set(Unknown(), **SIZES)


@pytest.mark.parametrize("d", [4, 10])
def test_many_parameters_without_a_grid(d):
    """Exact against itself is zero, against a likelihood 1.5 times too sharp theory is met: Lambda
    is chi-square times 1.5, and the volume of an ellipsoid goes as 1.5^(-d/2)."""
    model = Linear(d)
    truth = etest_set(model, groups=8, size=10, thetas=20)
    assert truth.theta.shape == (20, d)
    assert model.space.contains(truth.theta, "test").all()
    same = etest(model, model, test_set=truth)
    assert same.lrt_mse.value == 0
    assert same.coverage == same.coverage_exact
    assert abs(same.coverage.value - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 160)
    sharp = etest(Linear(d, 1.5), model, test_set=truth)
    ratio = sharp.surrogate.statistic / sharp.exact.statistic
    np.testing.assert_allclose(ratio, 1.5, rtol=1e-3)
    precision = model.design.T @ model.design * 10 / model.sd**2
    ball = np.pi ** (d / 2) / gamma(d / 2 + 1) * stats.chi2.ppf(0.95, d) ** (d / 2)
    volume = ball / np.sqrt(np.linalg.det(precision))
    assert truth.exact.cut == 0
    for found, expected in ((sharp.volume_exact, volume), (sharp.volume, volume * 1.5 ** (-d / 2))):
        assert abs(found.value - expected) < 5 * found.se
        assert found.se < 0.05 * expected
    along = sharp.coverage_along("b0")
    assert len(along) == 5
    assert np.isclose(np.mean([e.value for _, e in along]), sharp.coverage.value)
    json.dumps(sharp.to_dict(), allow_nan=False)


def test_grid_and_scattered_theta_exclude_each_other(toy):
    with pytest.raises(DomainError, match="exclude"):
        etest_set(toy, grid=(2, 2), thetas=5)
    with pytest.raises(DomainError, match="up to 3 parameters"):
        etest_set(Linear(4), points=9)
    assert etest_set(toy, thetas=5, groups=2, size=2).theta.shape == (5, 2)


class Tilted:
    """The wide toy with an error that is smooth in theta: what a surrogate may be like."""

    def __init__(self, toy):
        self.toy, self.space = toy, toy.space

    def given(self, xs):
        exact = self.toy.given(xs)

        def error(theta):
            return 1.5 * np.sin(1.5 * theta[:, 0] + theta[:, 1])

        def slope(theta):
            return 1.5 * np.cos(1.5 * theta[:, :1] + theta[:, 1:]) * np.array([1.5, 1.0])

        def both(theta, group):
            value, gradient = exact.pairs_gradient(theta, group)
            return value + error(theta), gradient + slope(theta)

        return replace(
            exact,
            kind="surrogate",
            pairs=lambda t, g: exact.pairs(t, g) + error(t),
            pairs_gradient=both,
            surface=lambda t: exact.surface(t) + error(t),
        )


@pytest.mark.slow
def test_refined_stands_beside_surrogate_and_exact(toy, truth):
    """Twelve exact evaluations per group: errors fall by thousands, and coverage is that of the
    exact likelihood. Without refining they do not: the control."""
    found = etest(Tilted(toy), toy, test_set=truth, refine=12)
    assert found.basis == "surrogate"
    assert found.refined.basis.startswith("refined: median error")
    assert (found.evaluations, found.refined.evaluations) == (None, 12)
    assert found.lrt_mse.value > 0.05
    assert found.refined.lrt_mse.value < 1e-3 * found.lrt_mse.value
    for ours, theirs in zip(found.refined.mle_mse, found.mle_mse, strict=True):
        assert ours.value < 1e-2 * theirs.value
    assert found.refined.coverage.value == pytest.approx(found.coverage_exact.value, abs=0.01)
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["refined"]["metrics"]["lrt_mse"]["value"] == found.refined.lrt_mse.value
    assert content["refined"]["refined"] is None
