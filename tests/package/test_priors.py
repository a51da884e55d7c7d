"""Priors against scipy.stats, in raw and in working parameters; spaces, designs and posteriors
that use them."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import keepscore as ks
from keepscore.data import design
from keepscore.errors import DomainError, DtypeError, FormatError, MissingError, ShapeError
from keepscore.evaluation.evidence import log_evidence
from keepscore.likelihood import Likelihood
from keepscore.priors import (
    Beta,
    LogNormal,
    MultivariateNormal,
    Normal,
    Uniform,
    from_dict,
    to_dict,
)
from keepscore.space import TAIL, Parameter, Space

CASES = [
    (Uniform(-1, 3), stats.uniform(-1, 4)),
    (Normal(0.5, 2), stats.norm(0.5, 2)),
    (LogNormal(-1, 0.5), stats.lognorm(0.5, scale=math.exp(-1))),
    (Beta(2, 3), stats.beta(2, 3)),
    (Beta(1, 0.5, -2, 4), stats.beta(1, 0.5, -2, 6)),
]
IDS = [f"{type(p).__name__}-{i}" for i, (p, _) in enumerate(CASES)]


@pytest.mark.parametrize(("prior", "scipy_one"), CASES, ids=IDS)
def test_densities_and_distributions_are_scipys(prior, scipy_one):
    share = np.linspace(0.001, 0.999, 101)
    raw = scipy_one.ppf(share)
    np.testing.assert_allclose(prior.quantile(share), raw, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(prior.cdf(raw), share, rtol=1e-9)
    np.testing.assert_allclose(prior.log_density(raw), scipy_one.logpdf(raw), rtol=1e-9, atol=1e-9)
    inner = raw[5:-5]  # float32 cannot tell how near an end of the support is
    traced = jax.jit(lambda v: prior.log_density(v, jnp))(jnp.asarray(inner, jnp.float32))
    np.testing.assert_allclose(traced, scipy_one.logpdf(inner), rtol=2e-3, atol=1e-3)
    # Outside the support there is nothing, and no warning.
    low, high = prior.support
    outside = [v for v in (low - 1, high + 1) if math.isfinite(v)]
    assert np.all(prior.log_density(np.array(outside)) == -np.inf)


@pytest.mark.parametrize(("prior", "scipy_one"), CASES, ids=IDS)
def test_plain_data_and_back(prior, scipy_one):
    text = json.dumps(to_dict(prior), allow_nan=False)
    assert from_dict(json.loads(text)) == prior
    space = Space([Parameter("v", transform="identity", prior=prior)])
    again = Space.from_dict(json.loads(json.dumps(space.to_dict())))
    assert again == space
    assert hash(again) == hash(space)


@pytest.mark.parametrize("kind", [int, float, np.float32, np.int64, np.float64])
def test_any_kind_of_number(kind):
    assert Normal(kind(1), kind(2)) == Normal(1.0, 2.0)
    assert type(Normal(kind(1), kind(2)).mean) is float
    prior = MultivariateNormal([kind(1), kind(0)], [[kind(2), kind(1)], [kind(1), kind(3)]])
    assert prior == MultivariateNormal((1, 0), np.array([[2, 1], [1, 3]], dtype=np.float32))


def test_a_space_without_a_prior_is_written_as_before():
    space = Space([Parameter("a", 0, 1)])
    assert "prior" not in space.to_dict()
    assert "prior" not in space.to_dict()["parameters"][0]
    assert not space.has_prior


@pytest.mark.parametrize(
    ("parameter", "working"),
    [
        (Parameter("r", prior=LogNormal(-1, 0.5)), stats.norm(-1, 0.5)),
        (Parameter("s", transform="identity", shift=2, prior=Normal(3, 1)), stats.norm(1, 1)),
        (Parameter("u", prior=Uniform(1, 5)), None),
        (Parameter("b", transform="identity", prior=Beta(2, 5)), stats.beta(2, 5)),
    ],
    ids=lambda p: getattr(p, "name", ""),
)
def test_the_working_density_has_its_jacobian(parameter, working):
    """It integrates to one over a wide range, has 1e-4 of its mass outside the box, and draws of it
    have its distribution (Kolmogorov-Smirnov, false alarms 1e-3; 4,000 draws see shifts of .05
    standard deviations)."""
    space = Space([parameter])
    low, high = space.box("base")

    def density(w):
        return float(np.exp(parameter.log_prior(np.float64(w))))

    assert integrate.quad(density, low[0], high[0])[0] == pytest.approx(1 - 2 * TAIL, abs=1e-6)
    inside = integrate.quad(
        lambda w: float(np.exp(space.log_prior([[w]])[0])), low[0] + 1e-12, high[0] - 1e-12
    )[0]
    assert inside == pytest.approx(1, abs=1e-5)
    if working is not None:
        at = working.ppf([0.1, 0.5, 0.9])
        np.testing.assert_allclose(parameter.log_prior(at), working.logpdf(at), rtol=1e-9)
    draws = space.draw(4000, np.random.default_rng(0))
    assert stats.kstest(parameter.share(draws[:, 0]), "uniform").pvalue > 1e-3
    wrong = stats.kstest(parameter.share(draws[:, 0] + 0.1 * draws.std()), "uniform").pvalue
    assert wrong < 1e-3
    mean, sd = space.spread()
    assert mean[0] == pytest.approx(draws.mean(), abs=5 * draws.std() / 60)
    assert sd[0] == pytest.approx(draws.std(), rel=0.1)


def correlated(d):
    rng = np.random.default_rng(d)
    factor = rng.standard_normal((d, d))
    return MultivariateNormal(rng.standard_normal(d), factor @ factor.T + np.eye(d))


@pytest.mark.parametrize("d", [1, 2, 6])
def test_the_multivariate_normal_is_scipys(d):
    prior = correlated(d)
    scipy_one = stats.multivariate_normal(prior.mean, prior.covariance)
    theta = scipy_one.rvs(20, random_state=1).reshape(20, d)
    np.testing.assert_allclose(prior.log_density(theta), scipy_one.logpdf(theta), rtol=1e-9)
    traced = prior.log_density(jnp.asarray(theta, jnp.float32), jnp)
    np.testing.assert_allclose(traced, scipy_one.logpdf(theta), rtol=1e-3)
    space = Space([Parameter(f"p{k}", transform="identity") for k in range(d)], prior=prior)
    sd = np.sqrt(np.diagonal(prior.covariance))
    np.testing.assert_allclose(space.upper, prior.mean - stats.norm.ppf(TAIL) * sd)
    assert Space.from_dict(json.loads(json.dumps(space.to_dict()))) == space
    draws = space.draw(5000, np.random.default_rng(2))
    assert space.contains(draws).all()
    np.testing.assert_allclose(
        np.cov(draws.T).reshape(d, d), prior.covariance, atol=0.3 * sd.max() ** 2
    )
    np.testing.assert_allclose(
        space.log_prior(draws[:5]), scipy_one.logpdf(draws[:5]), atol=2 * d * 1e-4 + 1e-4
    )
    assert space.log_prior(space.upper[None] + 1)[0] == -np.inf


def test_the_design_is_the_priors_and_stratified():
    """One row per cell of equal prior mass; in a shard of its own as in one piece."""
    space = Space([Parameter("r", prior=LogNormal(0, 1), train_margin=0.0)])
    rows = design.thetas(space, 1000, 3, "train", 0, range(1000))
    low, high = space.box("train")
    first, last = space.parameters[0].share(np.array([low[0], high[0]]))
    share = (space.parameters[0].share(rows[:, 0]) - first) / (last - first)
    assert sorted(np.floor(share * 1000).astype(int)) == list(range(1000))
    joint = Space([Parameter(n, transform="identity") for n in "ab"], prior=correlated(2))
    rows = design.thetas(joint, 900, 3, "train", 0, range(900))
    error = np.abs(rows.mean(axis=0) - joint.prior.mean) / joint.prior.sd
    assert (error < 0.02).all()  # independent draws: .033 each
    again = design.thetas(joint, 900, 3, "train", 0, range(900))
    np.testing.assert_array_equal(rows, again)


def test_what_cannot_be_a_prior_is_refused():
    with pytest.raises(DomainError, match="sd must be positive"):
        Normal(0, 0)
    with pytest.raises(DomainError, match="low must be below high"):
        Uniform(2, 2)
    with pytest.raises(DomainError, match="finite"):
        Normal(math.nan, 1)
    with pytest.raises(DtypeError):
        Normal("0", 1)
    with pytest.raises(DomainError, match="LogNormal"):
        Parameter("r", prior=Normal(0, 1))
    with pytest.raises(DtypeError, match="belongs to the space"):
        Parameter("r", transform="identity", prior=MultivariateNormal([0], [[1]]))
    with pytest.raises(DomainError, match="needs bounds"):
        Space([Parameter("r")])
    with pytest.raises(DomainError, match="is missing"):
        Parameter("r", 0)
    with pytest.raises(DomainError, match="holds"):
        Parameter("r", 100, 101, transform="identity", prior=Normal(0, 1))
    with pytest.raises(DomainError, match="infinite"):
        Parameter("r", 0, 1, transform="identity", prior=Beta(0.5, 0.5))
    with pytest.raises(ShapeError, match="mean"):
        MultivariateNormal([0, 1], [[1]])
    with pytest.raises(DomainError, match="positive definite"):
        MultivariateNormal([0, 1], [[1, 2], [2, 1]])
    with pytest.raises(DomainError, match="symmetric"):
        MultivariateNormal([0, 1], [[1, 0.5], [0.2, 1]])
    two = [Parameter("a", 0, 1), Parameter("b", 0, 1)]
    with pytest.raises(ShapeError, match="3 parameters"):
        Space(two, prior=correlated(3))
    with pytest.raises(DtypeError, match="MultivariateNormal"):
        Space(two, prior=Normal(0, 1))
    own = Parameter("b", transform="identity", prior=Normal(0, 1))
    with pytest.raises(DomainError, match="not both"):
        Space([two[0], own], prior=correlated(2))
    for forged in ({}, {"family": "cauchy"}, {"family": []}, {"family": "normal", "mean": "x"}, 3):
        with pytest.raises(FormatError, match="prior"):
            from_dict(forged)


def normal_mean(prior_sd=0.7, noise=1.0):
    """x ~ N(theta, noise^2), theta ~ N(1, prior_sd^2): everything is known in closed form."""
    space = Space([Parameter("m", transform="identity", prior=Normal(1, prior_sd))])
    return ks.models.from_functions(
        space,
        (1,),
        simulate=lambda theta, rng: theta + noise * rng.standard_normal(theta.shape),
        log_prob=lambda theta, x: (
            -0.5 * ((x - theta)[:, 0] / noise) ** 2 - 0.5 * math.log(2 * math.pi * noise**2)
        ),
        name="normal mean",
    )


def known_likelihood(space, x):
    """That of one observation of `normal_mean`, in NumPy."""

    def value(theta, group):
        return -0.5 * (x - theta[:, 0]) ** 2

    return Likelihood(
        space,
        1,
        1,
        pairs=value,
        pairs_gradient=lambda theta, group: (value(theta, group), x - theta),
        surface=lambda theta: value(theta, None)[None],
    )


@pytest.mark.parametrize("method", [pytest.param("nuts", marks=pytest.mark.slow), "smc"])
def test_the_posterior_is_the_conjugate_one(method):
    """Mean within five standard errors of the exact one, (8 x 1,000 draws: .01); a uniform prior
    would move it by .35."""
    model = normal_mean()
    x = np.array([[3.0]])
    precision = 1 / 0.7**2 + 1
    mean, sd = (1 / 0.7**2 + 3.0) / precision, precision**-0.5
    drawn = ks.posterior(known_likelihood(model.space, x[0, 0]), draws=1000, method=method)
    values = np.asarray(drawn.posterior["m"])
    assert values.mean() == pytest.approx(mean, abs=5 * sd / 30)
    assert values.std() == pytest.approx(sd, rel=0.1)
    assert drawn.posterior.attrs["prior"] == "that of the space"


def test_the_evidence_is_the_marginal_density():
    model = normal_mean()
    x = np.array([[-1.0], [1.0], [3.5]])
    found, error = log_evidence(model, x)
    wanted = stats.norm(1, math.hypot(0.7, 1.0)).logpdf(x[:, 0])
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    assert (error < 1e-2).all()


def test_ranks_are_uniform_under_the_prior():
    """SBC with the right prior passes; p-values below .001 are false alarms in 1 of 1,000 runs."""
    found = ks.sbc(normal_mean(), normal_mean(), n=200, group_size=1)
    assert found.p_values.min() > 1e-3


def test_it_goes_along_with_data_sets_and_surrogates(tmp_path):
    model = normal_mean()
    data = ks.simulate(model, 400, path=tmp_path / "data")
    assert ks.open_dataset(tmp_path / "data").space == model.space
    theta = np.asarray(data.theta)[:, 0]
    assert abs(theta.mean() - 1) < 0.02
    assert abs(theta.std() - 0.7) < 0.03
    config = ks.TrainConfig(max_epochs=2)
    ks.train(data, network="residual-5k", config=config, progress=False).save(tmp_path / "s")
    loaded = ks.load(tmp_path / "s")
    assert loaded.space == model.space
    np.testing.assert_allclose(loaded.network.theta_sd, 0.7, rtol=0.02)


def test_draws_without_a_prior_are_the_uniform_ones():
    """So that results of spaces without one stay as they were."""
    space = Space([Parameter("a", 0, 1), Parameter("b", -2, 5)])
    one, two = (np.random.default_rng(7) for _ in range(2))
    for region in ("base", "train", "test"):
        np.testing.assert_array_equal(space.draw(9, one, region), space.uniform(9, two, region))
    values = space.log_prior([[0.5, 0.0], [0.5, 6.0]])
    assert values[0] == pytest.approx(-math.log(7))
    assert values[1] == -np.inf


def test_reports_weigh_their_grids_by_the_prior():
    """Likelihood N(theta; 3, 1) on a grid, prior N(1, .7^2): the mean is the conjugate one."""
    from keepscore.reports.content import Axis, Group, Surface, Surfaces
    from keepscore.reports.rows import grid_posterior_rows

    space = normal_mean().space
    nodes = np.linspace(space.lower[0], space.upper[0], 201)
    surface = Surface("exact", -0.5 * (nodes - 3) ** 2)
    surfaces = Surfaces((Axis("m", nodes, "m", nodes),), (Group("one", (surface,)),))
    (row,) = grid_posterior_rows(surfaces, "exact", space)
    precision = 1 / 0.7**2 + 1
    assert row.mean == pytest.approx((1 / 0.7**2 + 3.0) / precision, abs=1e-3)


def test_sbi_is_not_left_with_another_prior():
    from keepscore.bridges.sbi import to_sbi_potential

    with pytest.raises(MissingError, match="torch distribution"):
        to_sbi_potential(normal_mean())
