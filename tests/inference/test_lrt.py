"""Likelihood-ratio tests: chi-square under the null, profiles in closed form, restarts."""

from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy, Sharpened, from_function, toy_groups
from scipy import stats

import keepscore as ks
from keepscore.errors import DomainError, NonFiniteError, ShapeError, UnknownNameError
from keepscore.likelihood import Maximum

FALSE_ALARM = 1e-6


def null_pvalues(source, parameters=None, g=2000, n=50):
    """Chi-square p-values of true nulls; groups of 50 x 4 numbers, so that Wilks holds to ~0.5%."""
    _, theta, x = toy_groups(g, n=n, seed=11, region="test")
    like = source.given(x)
    held = theta if parameters is None else theta[:, [like.space.index(p) for p in parameters]]
    result = ks.lrt(like, held, parameters=parameters)
    assert (result.statistic >= 0).all()
    return result.p_value


# 2000 p-values: Kolmogorov-Smirnov at 1e-6 detects a shift of the distribution by 0.06.
@pytest.mark.parametrize("parameters", [None, ["mean"], ["sd"]])
def test_p_values_are_uniform_under_the_null(parameters):
    assert stats.kstest(null_pvalues(FastToy(), parameters), "uniform").pvalue > FALSE_ALARM


def test_a_likelihood_twice_too_sharp_is_found_out():
    p = null_pvalues(Sharpened(FastToy(), 2.0))
    assert stats.kstest(p, "uniform").pvalue < FALSE_ALARM


def test_closed_form_joint_and_profile_statistics():
    toy, _, x = toy_groups(20, seed=12, theta=[0.2, 0.1])
    flat = x.reshape(20, -1)
    mean, var, count = flat.mean(1), flat.var(1), flat.shape[1]
    theta0 = np.array([0.1, 0.05])
    about = ((flat - theta0[0]) ** 2).mean(1)  # mean square about the null's mean
    # l(m, s) = -N (s + about(m) e^{-2s} / 2); its maximum -N (log var + 1) / 2.
    joint = count * (2 * theta0[1] + about * np.exp(-2 * theta0[1]) - np.log(var) - 1)
    result = ks.lrt(toy.given(x), theta0)
    np.testing.assert_allclose(result.statistic, joint, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(result.p_value, stats.chi2.sf(joint, 2), rtol=1e-5)
    profile = ks.lrt(toy.given(x), {"mean": 0.1}, parameters=["mean"])
    np.testing.assert_allclose(profile.statistic, count * np.log(about / var), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(profile.null[:, 1], 0.5 * np.log(about), atol=1e-5)
    assert profile.degrees_of_freedom == 1
    spread = ks.lrt(toy.given(x), [0.05], parameters=["sd"])
    expected = count * (0.1 + var * np.exp(-0.1) - np.log(var) - 1)
    np.testing.assert_allclose(spread.statistic, expected, rtol=1e-5, atol=1e-7)
    assert mean.std() > 0


def test_one_group_gives_numbers():
    toy, theta, x = toy_groups(1, seed=13)
    result = ks.lrt(toy.given(x[0]), theta[0])
    assert isinstance(result.statistic, float)
    assert isinstance(result.p_value, float)
    assert result.calibrated_p_value is None
    assert "p =" in str(result)
    assert "1 group of 10" in str(ks.lrt(toy.given(x), theta))


def test_a_null_better_than_the_maximum_restarts_the_search():
    toy, _, x = toy_groups(4, seed=14, theta=[0.0, 0.0])
    like = toy.given(x)
    honest = ks.lrt(like, [0.0, 0.0])
    far = np.tile([0.9, 0.6], (4, 1))
    wrong = Maximum(far, like.paired(far), honest.maximum.curvature, np.ones(4, bool), 0, "base")
    misled = replace(like)  # the same functions, nothing remembered
    misled.remember(wrong)
    result = ks.lrt(misled, [0.0, 0.0])
    assert result.restarted.all()
    np.testing.assert_allclose(result.statistic, honest.statistic, atol=1e-6)
    assert not honest.restarted.any()


def test_a_peak_the_grid_cannot_see_is_found_from_theta0():
    # A needle at theta0 between grid points, beside a broad hill that every start climbs.
    needle = np.array([0.517, -0.483])

    def parts(theta):
        hill = -0.5 * ((theta + 0.5) ** 2).sum(1) / 0.2**2
        return hill, 20 - 0.5 * ((theta - needle) ** 2).sum(1) / 0.004**2

    def value(theta, group):
        return np.logaddexp(*parts(theta))

    def gradient(theta, group):
        hill, tip = parts(theta)
        share = np.exp(tip - np.logaddexp(hill, tip))[:, None]
        return -(1 - share) * (theta + 0.5) / 0.2**2 - share * (theta - needle) / 0.004**2

    result = ks.lrt(from_function(value, gradient), needle)
    assert result.restarted
    assert result.statistic == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(result.maximum.theta[0], needle, atol=1e-5)


def test_theta0_at_the_maximum_is_zero_not_negative():
    toy, _, x = toy_groups(50, seed=15)
    like = toy.given(x)
    estimate = ks.mle(like).estimate
    statistic = ks.lrt(like, estimate).statistic
    assert (statistic >= 0).all()
    assert statistic.max() < 1e-8


def test_bad_theta0():
    toy, theta, x = toy_groups(3, seed=16)
    like = toy.given(x)
    with pytest.raises(DomainError, match="must lie in the base box"):
        ks.lrt(like, [0.0, 2.0])
    with pytest.raises(DomainError):
        ks.lrt(like, [1.5], parameters=["mean"])
    for bad in ([0.0], np.zeros((2, 2)), [[0.0, 0.0]]):
        with pytest.raises(ShapeError):
            ks.lrt(like, bad)
    with pytest.raises(ShapeError):
        ks.lrt(like, [0.0, 0.0], parameters=["mean"])
    with pytest.raises(ShapeError, match="exactly"):
        ks.lrt(like, {"mean": 0.0})
    with pytest.raises(NonFiniteError):
        ks.lrt(like, [np.nan, 0.0])
    with pytest.raises(UnknownNameError, match="Did you mean 'mean'"):
        ks.lrt(like, [0.0], parameters=["meen"])
    for names in ([], "mean", ["mean", "mean"], ["sd", "mean"]):
        with pytest.raises(DomainError):
            ks.lrt(like, [0.0, 0.0], parameters=names)
    assert theta.shape == (3, 2)


def test_impossible_null_is_rejected_with_certainty():
    toy, _, x = toy_groups(2, seed=17, theta=[0.0, 0.0])
    like = toy.given(x)
    broken = replace(like, pairs=lambda t, g: np.full(len(t), -np.inf))
    result = ks.lrt(broken, [0.5, 0.5])
    assert np.isinf(result.statistic).all()
    assert (result.p_value == 0).all()
