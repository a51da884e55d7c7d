"""Evidence by importance sampling against closed forms; without its safeguards it is wrong."""

import numpy as np
import pytest
from scipy import special, stats

from keepscore.numerics import mean_over_box
from keepscore.numerics.mean_over_box import log_mean


def peaks(d, sd, r=24, seed=0):
    """log f of r normal peaks of these widths in the box (-1, 1)^d, 300 nats down; exact c."""
    rng = np.random.default_rng(seed)
    mean, scale = rng.uniform(-1, 1, (r, d)), sd * np.exp(0.5 * rng.standard_normal((r, d)))

    def log_f(theta):
        z = (theta - mean[:, None]) / scale[:, None]
        return (-0.5 * (z**2).sum(axis=2) - 300.0)[None]

    inside = special.ndtr((1 - mean) / scale) - special.ndtr((-1 - mean) / scale)
    exact = np.log(inside * scale * np.sqrt(2 * np.pi) / 2).sum(axis=1) - 300.0
    return log_f, exact


def error(log_f, exact, d, **given):
    found = log_mean(log_f, -np.ones(d), np.ones(d), **given)[1]
    return float(np.sqrt(np.mean((found - exact) ** 2)))


@pytest.mark.parametrize(
    ("d", "sd", "most"),
    [(1, 0.01, 0.05), (2, 0.02, 0.05), (3, 0.03, 0.07), (3, 0.3, 0.07), (5, 0.1, 0.2)],
)
def test_peaks_have_their_exact_mean(d, sd, most):
    assert error(*peaks(d, sd), d) < most


def test_an_even_cover_alone_is_wrong_for_peaks_and_right_for_plains():
    assert error(*peaks(3, 0.03), 3, cover_only=True) > 5
    assert error(*peaks(1, 1.0), 1, cover_only=True) < 0.01


def test_without_tempering_the_best_of_a_few_bad_nodes_is_all_there_is(monkeypatch):
    monkeypatch.setattr(mean_over_box, "tempering", lambda log_w: np.ones(len(log_w)))
    assert error(*peaks(3, 0.03), 3) > 0.5


def test_two_modes_are_both_found():
    """Two peaks, one with twice the mass of the other, far apart: log 3 times the smaller one."""
    log_f, _ = peaks(2, 0.05, r=1)
    single = log_mean(log_f, -np.ones(2), np.ones(2))[1]

    def both(theta):
        return np.logaddexp(log_f(theta), log_f(-theta) + np.log(2.0))

    found = log_mean(both, -np.ones(2), np.ones(2))[1]
    np.testing.assert_allclose(found, single + np.log(3.0), atol=0.1)


def test_a_prior_counts():
    """N(0, .5^2) on (-1, 1), peak N(.4, .1^2): the product is another normal."""
    prior = stats.truncnorm(-2, 2, scale=0.5)
    grid = np.linspace(-1, 1, 20001)
    log_f = stats.norm(0.4, 0.1).logpdf
    exact = np.log((np.exp(log_f(grid)) * prior.pdf(grid)).mean() * 2)
    found = log_mean(
        lambda theta: log_f(theta[..., 0])[None], -np.ones(1), np.ones(1),
        lambda theta: prior.logpdf(theta[:, 0]),
    )  # fmt: skip
    np.testing.assert_allclose(found[1], exact, atol=0.02)
    flat = log_mean(lambda theta: log_f(theta[..., 0])[None], -np.ones(1), np.ones(1))
    assert abs(flat[1][0] - exact) > 0.1


def test_members_and_their_mean():
    log_f, exact = peaks(2, 0.1)

    def two(theta):
        return np.concatenate([log_f(theta), log_f(theta) + 1.0])

    members, whole = log_mean(two, -np.ones(2), np.ones(2))
    np.testing.assert_allclose(members[1] - members[0], 1.0, atol=1e-9)
    np.testing.assert_allclose(whole - members[0], 0.5, atol=1e-9)
    assert np.abs(members[0] - exact).max() < 0.15


def test_the_same_functions_have_the_same_means():
    log_f, _ = peaks(3, 0.1)
    one, two = (log_mean(log_f, -np.ones(3), np.ones(3))[1] for _ in range(2))
    np.testing.assert_array_equal(one, two)
