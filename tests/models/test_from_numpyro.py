"""Models from NumPyro programs: likelihoods and joint scores beside closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import keepscore as ks
from keepscore.errors import DomainError, KeepscoreError, MissingError

numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")

SPACE = ks.Space(
    [ks.Parameter("mean", -1, 1, "identity"), ks.Parameter("sd", -0.5, 0.5, "log", shift=0.1)]
)
ONE = ks.Space([ks.Parameter("mean", -1, 1, "identity")])


def normal(n=5):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    sd = numpyro.sample("sd", dist.LogNormal(0, 1))
    with numpyro.plate("rows", n):
        numpyro.sample("x", dist.Normal(mean, sd))


def hierarchy():
    """z ~ N(mean, 1), five x ~ N(z, 1): x is Gaussian with covariance I + 11'."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    z = numpyro.sample("z", dist.Normal(mean, 1))
    numpyro.deterministic("twice", 2 * z)
    with numpyro.plate("rows", 5):
        numpyro.sample("x", dist.Normal(z, 1))


def mixture():
    """x ~ .3 N(mean, 1) + .7 N(2 mean, .25), five times: a discrete latent site for each."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", 5):
        z = numpyro.sample("z", dist.Bernoulli(0.7))
        numpyro.sample("x", dist.Normal(mean * (1 + z), jnp.where(z == 1, 0.5, 1.0)))


def volatility(n=8):
    """Stochastic volatility, its path drawn by a scan."""
    from numpyro.contrib.control_flow import scan

    mean = numpyro.sample("mean", dist.Normal(0, 1))
    sd = numpyro.sample("sd", dist.LogNormal(0, 1))

    def step(h, _):
        h = numpyro.sample("h", dist.Normal(mean + 0.9 * (h - mean), sd))
        return h, numpyro.sample("x", dist.Normal(0, jnp.exp(h / 2)))

    scan(step, mean, None, length=n)


def hierarchy_log_prob(theta, x):
    inverse = np.eye(5) - np.ones((5, 5)) / 6
    r = x - theta[:, :1]
    return -0.5 * jnp.einsum("ni,ij,nj->n", r, inverse, r)


def mixture_log_prob(theta, x):
    one = jnp.log(0.3) - 0.5 * (x - theta[:, :1]) ** 2
    two = jnp.log(0.7) - 0.5 * ((x - 2 * theta[:, :1]) / 0.5) ** 2 - jnp.log(0.5)
    return jnp.logaddexp(one, two).sum(axis=1)


def test_a_program_without_latent_sites_has_its_exact_likelihood():
    model = ks.models.from_numpyro(normal, space=SPACE)
    assert model.score_kind == "exact"
    assert model.x_shape == (5,)
    rng = np.random.default_rng(0)
    theta = SPACE.uniform(7, rng)
    x = model.simulate(theta, rng)
    sd = 0.1 + np.exp(theta[:, 1:])
    expected = stats.norm.logpdf(x, theta[:, :1], sd).sum(axis=1)
    assert model.log_prob(theta, x) == pytest.approx(expected, rel=1e-12)
    z = (x - theta[:, :1]) / sd
    slope = np.stack([(z / sd).sum(1), ((z**2 - 1) / sd).sum(1) * np.exp(theta[:, 1])], axis=1)
    assert model.score(theta, x) == pytest.approx(slope, rel=1e-10)
    report = ks.check_model(model, draws=400, show=False)
    assert report.passed, str(report)
    assert not report.not_checked


@pytest.mark.parametrize(
    ("program", "log_prob"), [(hierarchy, hierarchy_log_prob), (mixture, mixture_log_prob)]
)
def test_joint_scores_obey_their_laws(program, log_prob):
    """E[joint score | x] = score, with the likelihood in closed form beside it; 2,000 draws find a
    bias of .16 standard deviations. Scores that are 1.3 times as large are convicted."""
    model = ks.models.from_numpyro(program, space=ONE)
    assert model.score_kind == "joint"
    with pytest.raises(MissingError):
        model.log_prob([[0.0]], np.zeros((1, 5)))

    def checked(factor):
        def joint(theta, rng):
            x, score = model.simulate_with_score(theta, rng)
            return x, factor * score

        beside = ks.models.from_functions(
            ONE, (5,), simulate=model.simulate, log_prob=log_prob, simulate_with_joint_score=joint
        )
        return ks.check_model(beside, draws=2000, show=False)

    assert checked(1.0).passed
    assert "E[joint score | x] = score" in checked(1.3).broken
    assert ks.check_model(model, draws=200, show=False).held == (
        "shapes and determinism",
        "E[joint score] = 0",
    )


def test_rows_are_their_own_and_seeds_decide():
    model = ks.models.from_numpyro(mixture, space=ONE)
    theta = np.linspace(-1, 1, 5)[:, None]
    x, score = model.simulate_with_score(theta, np.random.default_rng(3))
    again, same = model.simulate_with_score(theta, np.random.default_rng(3))
    assert np.array_equal(x, again)
    assert np.array_equal(score, same)
    fewer, _ = model.simulate_with_score(theta[:3], np.random.default_rng(3))
    assert np.array_equal(fewer, x[:3])
    assert model.simulate(theta[:0], np.random.default_rng(0)).shape == (0, 5)


def test_arguments_are_part_of_the_model():
    small, large = (ks.models.from_numpyro(normal, (n,), space=SPACE) for n in (3, 4))
    assert (small.x_shape, large.x_shape) == ((3,), (4,))
    named = ks.models.from_numpyro(normal, space=SPACE, settings={"n": 3})
    assert small.settings()["code"] != large.settings()["code"]
    assert named.x_shape == (3,)


def test_a_data_set_with_joint_scores():
    model = ks.models.from_numpyro(hierarchy, space=ONE)
    data = ks.simulate(model, 40, jobs=1)
    assert data.score_kind == "joint"
    assert np.isfinite(data.score).all()


def test_a_scan():
    """Sites inside a scan have one value per step."""
    n = 4
    model = ks.models.from_numpyro(volatility, (n,), space=SPACE)
    assert model.x_shape == (n,)
    assert ks.check_model(model, draws=200, show=False).passed


def delta():
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    z = numpyro.sample("z", dist.Delta(mean))
    numpyro.sample("x", dist.Normal(z, 1))


def given():
    numpyro.sample("x", dist.Normal(numpyro.sample("mean", dist.Normal(0, 1)), 1), obs=1.0)


def vector():
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("x", dist.Normal(mean, 1))


def subsampled():
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", 10, subsample_size=2):
        numpyro.sample("x", dist.Normal(mean, 1))


def broken():
    raise RuntimeError("no data file")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (delta, "Delta"),
        (given, "already"),
        (vector, "scalars"),
        (subsampled, "subsampled"),
        (broken, "no data file"),
        (lambda: numpyro.sample("mean", dist.Normal(0, 1)), "site"),
        (lambda: numpyro.sample("x", dist.Normal(0, 1)), "parameter of the space"),
    ],
)
def test_what_cannot_be_done_is_said(program, words):
    with pytest.raises(KeepscoreError, match=words):
        ks.models.from_numpyro(program, space=ONE)
    with pytest.raises(KeepscoreError):
        ks.models.from_numpyro(None, space=ONE)
    assert issubclass(DomainError, KeepscoreError)
