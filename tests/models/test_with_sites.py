"""Fields at sites that differ: against SciPy's normal density, the laws, and planted faults.

Statistical tests use fixed seeds and alarm falsely once in 1e6 (`check_model`).
"""

import json

import faults
import numpy as np
import pytest
import scipy.stats

import keepscore as ks
from keepscore.errors import DomainError, DtypeError, MissingError, ShapeError, UnknownNameError


def few(**options):
    return ks.models.with_sites(ks.models.GaussianField(), sites=(4, 9), **options)


def draws(model, n, seed=0):
    rng = np.random.default_rng(seed)
    theta = model.space.uniform(n, rng)
    return theta, model.simulate(theta, rng)


def dense_log_prob(theta, x):
    """The normal density at the sites, from the definition of the exponential kernel."""
    l_x, l_y, eps = np.exp(theta)
    rows = x[~np.isnan(x[:, 0])]
    h = rows[:, None, :2] - rows[None, :, :2]
    distance = np.sqrt((h[..., 0] / l_x) ** 2 + (h[..., 1] / l_y) ** 2)
    covariance = np.exp(-distance) + eps**2 * np.eye(len(rows))
    return scipy.stats.multivariate_normal(cov=covariance).logpdf(rows[:, 2])


def test_the_likelihood_is_the_normal_density_at_the_sites():
    model = few()
    theta, x = draws(model, 10)
    counts = (~np.isnan(x[:, :, 0])).sum(axis=1)
    assert len(set(counts)) > 3
    expected = [dense_log_prob(t, one) for t, one in zip(theta, x, strict=True)]
    np.testing.assert_allclose(model.log_prob(theta, x), expected, rtol=1e-9)
    score, step = model.score(theta, x), 1e-5
    for k in range(3):
        h = step * np.eye(3)[k]
        slope = (model.log_prob(theta + h, x) - model.log_prob(theta - h, x)) / (2 * step)
        np.testing.assert_allclose(score[:, k], slope, atol=1e-6)
    _, same = model.simulate_with_score(theta, np.random.default_rng(5))
    again = model.simulate(theta, np.random.default_rng(5))
    np.testing.assert_allclose(same, model.score(theta, again), atol=1e-8)


def test_a_likelihood_of_groups_is_a_sum_over_data_sets():
    model = few()
    theta, x = draws(model, 6)
    groups = x.reshape(2, 3, *model.x_shape)
    expected = [[sum(model.log_prob(np.tile(t, (3, 1)), g)) for t in theta] for g in groups]
    np.testing.assert_allclose(model.given(groups)(theta), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        few(),
        pytest.param(
            ks.models.with_sites(ks.models.StudentTField(), sites=6), marks=pytest.mark.slow
        ),
    ],
    ids=["gaussian", "student"],
)
def test_the_laws_hold(model):
    report = ks.check_model(model, draws=100, show=False)
    assert report.passed, str(report)


def exchanged(model):
    """The sites of the data are those of another data set."""

    def simulate(theta, rng):
        x = model.simulate(theta, rng)
        x[:, :, :2] = np.roll(x[:, :, :2], 1, axis=0)
        return x

    return faults.Faulty(model, simulate=simulate)


def turned(model):
    """The likelihood takes the first coordinate for the second."""
    wrong = [1, 0, 2]
    return faults.Faulty(
        model,
        log_prob=lambda theta, x: model.log_prob(theta, x[:, :, wrong]),
        score=lambda theta, x: model.score(theta, x[:, :, wrong]),
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", [exchanged, turned])
def test_wrong_sites_are_convicted(fault):
    model = ks.models.with_sites(ks.models.GaussianField(), sites=12)
    report = ks.check_model(fault(model), draws=200, show=False)
    assert not report.passed, str(report)


def test_a_field_that_is_not_stationary_is_convicted():
    model = few()

    def log_prob(theta, x):  # the length grows to the right
        right = np.nanmean(x[:, :, :1], axis=1) * np.array([0.1, 0.0, 0.0])
        return model.log_prob(theta + right, x)

    faulty = faults.Faulty(model, log_prob=log_prob, score=model.score)  # which is not looked at
    faulty.structure = "gaussian-sites"
    assert "structure: gaussian-sites" in ks.check_model(faulty, draws=50, show=False).broken


def test_own_data_and_new_data_at_the_same_sites():
    model = few()
    sites = np.random.default_rng(0).uniform(-3, 3, (5, 2))
    field = ks.models.GaussianField(locations=sites)
    rng = np.random.default_rng(1)
    theta = field.space.uniform(3, rng)
    values = field.simulate(theta, rng)
    x = model.join(sites, values)
    np.testing.assert_allclose(model.log_prob(theta, x), field.log_prob(theta, values), rtol=1e-12)
    again = model.simulate_at(theta, x, rng)
    np.testing.assert_array_equal(again[..., :2], x[..., :2])


def test_it_is_described_and_rebuilt():
    model = few()
    again = ks.models.build(json.loads(json.dumps(ks.models.describe(model))))
    np.testing.assert_array_equal(draws(again, 3)[1], draws(model, 3)[1])


def test_a_function_draws_sites():
    def corners(n, rng):
        return np.tile([[0.0, 0], [0, 1], [1, 0], [np.nan, np.nan]], (n, 1, 1))

    model = ks.models.with_sites(ks.models.GaussianField(), corners, sites=4)
    _, x = draws(model, 2)
    assert np.isnan(x[:, 3]).all()
    with pytest.raises(MissingError, match="function"):
        ks.models.build(ks.models.describe(model))
    with pytest.raises(ShapeError, match="function"):
        draws(ks.models.with_sites(ks.models.GaussianField(), corners, sites=5), 2)


def test_what_cannot_be_is_refused():
    field, model = ks.models.GaussianField(), few()
    theta, x = draws(model, 2)
    with pytest.raises(DtypeError, match="GaussianField"):
        ks.models.with_sites(ks.models.SIS(), sites=4)
    with pytest.raises(DomainError, match="trend"):
        ks.models.with_sites(ks.models.GaussianField(trend="constant"), sites=4)
    with pytest.raises(UnknownNameError):
        ks.models.with_sites(field, "grid", sites=4)
    with pytest.raises(DtypeError, match="locations"):
        ks.models.with_sites(field, np.zeros((4, 2)), sites=4)
    for sites in (0, (9, 4), 2.5):
        with pytest.raises((DomainError, DtypeError)):
            ks.models.with_sites(field, sites=sites)
    partly = x.copy()
    partly[:, 0, 2] = np.nan
    with pytest.raises(DomainError, match="as a whole"):
        model.log_prob(theta, partly)
    with pytest.raises(DomainError, match="sites"):
        model.log_prob(theta, np.full_like(x, np.nan))
    with pytest.raises(ShapeError, match="values"):
        model.join(np.zeros((3, 2)), np.zeros((2, 4)))
    with pytest.raises(ShapeError, match="at most"):
        model.join(np.zeros((20, 2)), np.zeros((2, 20)))
