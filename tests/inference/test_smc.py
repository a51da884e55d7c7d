"""Sequential Monte Carlo against posteriors known in closed form, with one mode and several."""

from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy, toy_groups
from scipy import integrate, stats
from scipy.special import logsumexp

import keepscore as ks
from keepscore.errors import ConvergenceError
from keepscore.inference.smc import smc
from keepscore.likelihood import Likelihood


def box(d, side=5.0):
    names = [f"t{k}" for k in range(d)]
    return ks.Space([ks.Parameter(n, -side, side, transform="identity") for n in names])


def likelihood(space, function, groups=1):
    """A likelihood of one function per group: function(theta (m, d), group (m,)) -> (m,)."""

    def no_gradient(theta, group):
        raise AssertionError("only values are asked for")

    return Likelihood(
        space, groups, 1, function, no_gradient, lambda theta: None, single=groups == 1
    )


def modes(theta, group):
    """Weights .7 and .3 at (-2, -2) and (2, 1), with standard deviations .1 and .5."""
    parts = [
        np.log(w) + stats.multivariate_normal(m, s**2 * np.eye(2)).logpdf(theta)
        for w, m, s in ((0.7, [-2, -2], 0.1), (0.3, [2, 1], 0.5))
    ]
    return logsumexp(parts, axis=0)


def run(like, begin, log_prior, rng):
    """One population per group, all from the same draws."""
    group = np.arange(like.group_count)
    return smc(like, group, np.tile(begin, (len(group), 1, 1)), log_prior, rng)


def start(space, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(*space.box("base"), (n, space.d)), rng


def test_two_modes_keep_their_weights():
    """Weight of the first mode: 4,000 particles that were resampled some ten times; over seeds its
    standard deviation is below .03, so .1 is a false alarm once in a thousand; losing a mode is .3
    or .7 off."""
    space = box(2)
    begin, rng = start(space, 4000)
    found = run(likelihood(space, modes), begin, None, rng)
    first = found.theta[0][:, 0] < 0
    assert abs(first.mean() - 0.7) < 0.1
    np.testing.assert_allclose(found.theta[0][first].mean(axis=0), [-2, -2], atol=0.02)
    np.testing.assert_allclose(found.theta[0][first].std(axis=0), 0.1, rtol=0.1)
    np.testing.assert_allclose(found.theta[0][~first].std(axis=0), 0.5, rtol=0.1)
    # The integral of the density is 1, under a prior of density 1 / 100.
    assert abs(found.log_evidence[0] + np.log(100)) < 0.2


@pytest.mark.parametrize("d", [1, 6])
def test_a_gaussian_in_any_dimension(d):
    space, sd = box(d), np.linspace(0.05, 0.8, d)
    centre = np.linspace(-1, 1, d) if d > 1 else np.array([0.3])
    begin, rng = start(space, 2000, 1)
    like = likelihood(space, lambda t, _: stats.norm(centre, sd).logpdf(t).sum(axis=1))
    found = run(like, begin, None, rng)
    error = sd / np.sqrt(200)  # an effective sample of a tenth; four of them
    assert (np.abs(found.theta[0].mean(axis=0) - centre) < 4 * error).all()
    np.testing.assert_allclose(found.theta[0].std(axis=0), sd, rtol=0.2)
    assert abs(found.log_evidence[0] + d * np.log(10)) < 0.4
    assert ((found.theta >= -5) & (found.theta <= 5)).all()


def test_a_prior_and_the_edge_of_the_box():
    """Flat likelihood: the draws are the prior's, cut at the box."""
    space = box(1, 1.0)
    begin, rng = start(space, 4000, 2)
    like = likelihood(space, lambda t, _: 3 * t[:, 0])

    def log_prior(theta):
        return -0.5 * theta[:, 0] ** 2

    # Particles must come from the prior they are weighed with.
    weight = np.exp(log_prior(begin))
    drawn = begin[rng.choice(len(begin), len(begin), p=weight / weight.sum())]
    found = run(like, drawn, log_prior, rng).theta[0][:, 0]

    def density(t):
        return np.exp(3 * t - t**2 / 2)

    whole = integrate.quad(density, -1, 1)[0]
    mean = integrate.quad(lambda t: t * density(t) / whole, -1, 1)[0]
    assert abs(found.mean() - mean) < 4 * 0.3 / np.sqrt(1000)
    assert found.max() <= 1


def test_groups_have_posteriors_of_their_own():
    _, _, x = toy_groups(3, n=20, seed=3)
    like = FastToy().given(x)
    begin, rng = start(like.space, 1000, 4)
    found = run(like, begin, None, rng)
    for i in range(3):
        alone = run(FastToy().given(x[i]), begin, None, np.random.default_rng(5))
        sd = alone.theta[0].std(axis=0)
        gap = np.abs(found.theta[i].mean(axis=0) - alone.theta[0].mean(axis=0))
        assert (gap < 6 * sd / np.sqrt(100)).all()
    apart = found.theta.mean(axis=1)
    assert not np.allclose(apart[0], apart[1], atol=0.01)  # the groups do differ


def test_values_that_are_nowhere_finite_but_in_a_corner():
    space = box(2)
    begin, rng = start(space, 1000, 6)

    def corner(theta, group):
        return np.where((theta > 3).all(axis=1), 0.0, -np.inf)

    found = run(likelihood(space, corner), begin, None, rng)
    assert (found.theta[0] > 3).all()
    np.testing.assert_allclose(found.theta[0].mean(axis=0), 4.0, atol=0.15)
    assert abs(found.log_evidence[0] - np.log(0.04)) < 0.5


def test_a_sampler_that_only_looked_at_one_mode_fails_the_first_test():
    """The negative control: what chains from one maximum would give."""
    space = box(2)
    begin, rng = start(space, 4000)
    near = begin * 0.02 + [-2, -2]
    one = replace(likelihood(space, modes))
    found = run(one, near, None, rng)
    assert abs((found.theta[0][:, 0] < 0).mean() - 0.7) > 0.2


def test_nothing_to_begin_from_is_said():
    space = box(2)
    begin, rng = start(space, 100)
    nowhere = likelihood(space, lambda theta, _: np.full(len(theta), -np.inf))
    with pytest.raises(ConvergenceError, match="None of 100 points"):
        run(nowhere, begin, None, rng)


def two_points(theta, group):
    """Two narrow modes of the same height; the one on the right is twice as wide."""
    parts = [-0.5 * ((theta[:, 0] - m) / s) ** 2 for m, s in ((-1.0, 0.1), (1.5, 0.2))]
    return logsumexp(parts, axis=0)


def gradient_of(function):
    def pairs_gradient(theta, group):
        h = 1e-5
        gradient = np.stack(
            [
                (function(theta + h * e, group) - function(theta - h * e, group)) / (2 * h)
                for e in np.eye(theta.shape[1])
            ],
            axis=1,
        )
        return function(theta, group), gradient

    return pairs_gradient


def bimodal():
    space = box(1, 3.0)
    return Likelihood(
        space, 1, 1, two_points, gradient_of(two_points),
        lambda theta: two_points(theta, None)[None],
    )  # fmt: skip


def test_a_posterior_with_two_modes_is_drawn_by_particles():
    """The second mode holds 2/3. Four populations of 1,000: standard error below .02."""
    drawn = ks.posterior(bimodal(), seed=1, draws=1000)
    right = np.asarray(drawn.posterior["t0"]) > 0
    assert abs(right.mean() - 2 / 3) < 0.06
    assert drawn.posterior.attrs["maxima"] == 2
    assert drawn.posterior.attrs["largest_rhat"] < 1.01
    assert drawn.posterior.attrs["inference_library"] == "keepscore"


def test_a_prior_moves_the_particles_too():
    """A prior that prefers the left by exp(2): weights 1 e^2 : 2."""
    drawn = ks.posterior(bimodal(), prior=lambda t: -2.0 * (t[0] > 0), seed=2, draws=1000)
    right = np.asarray(drawn.posterior["t0"]) > 0
    assert abs(right.mean() - 2 / (2 + np.exp(2))) < 0.06


@pytest.mark.slow
def test_nuts_can_be_asked_for_and_warns_of_the_second_mode():
    with pytest.warns(ks.KeepscoreWarning, match="DO NOT TRUST"):
        drawn = ks.posterior(bimodal(), seed=1, draws=300, warmup=200, method="nuts")
    assert drawn.posterior.attrs["inference_library"] == "blackjax"


@pytest.mark.slow
def test_one_mode_by_particles_is_the_same_posterior():
    _, _, x = toy_groups(1, n=20, seed=7)
    like = FastToy().given(x[0])
    one, two = (
        ks.posterior(like, seed=3, draws=1000, warmup=300, method=m) for m in ("nuts", "smc")
    )
    for name in like.space.names:
        a, b = (np.asarray(d.posterior[name]).ravel() for d in (one, two))
        assert abs(a.mean() - b.mean()) < 6 * a.std() / np.sqrt(400)
        assert abs(a.std() / b.std() - 1) < 0.15
    with pytest.raises(ks.errors.UnknownNameError, match="method"):
        ks.posterior(like, method="gibbs")
