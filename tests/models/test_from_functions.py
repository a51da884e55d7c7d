"""Models from plain functions: NumPy, JAX, without a likelihood, with a joint score."""

import jax.numpy as jnp
import numpy as np
import pytest
from toys import GaussianToy

import keepscore as ks
from keepscore.errors import KeepscoreWarning, MissingError, ShapeError

TOY = GaussianToy(m=3)


def numpy_log_prob(theta, x):
    z = (x - theta[:, :1]) / np.exp(theta[:, 1:])
    return -0.5 * np.square(z).sum(1) - 3 * (theta[:, 1] + 0.5 * np.log(2 * np.pi))


def jax_log_prob(theta, x):
    z = (x - theta[:, :1]) / jnp.exp(theta[:, 1:])
    return -0.5 * jnp.square(z).sum(1) - 3 * (theta[:, 1] + 0.5 * jnp.log(2 * jnp.pi))


@pytest.fixture
def pairs():
    rng = np.random.default_rng(1)
    theta = TOY.space.uniform(20, rng)
    return theta, TOY.simulate(theta, rng)


def test_jax_log_prob_gets_exact_scores_in_float64(pairs):
    model = ks.models.from_functions(TOY.space, (3,), simulate=TOY.simulate, log_prob=jax_log_prob)
    np.testing.assert_allclose(model.log_prob(*pairs), TOY.log_prob(*pairs), rtol=1e-13)
    np.testing.assert_allclose(model.score(*pairs), TOY.score(*pairs), rtol=1e-12)
    assert model.score_kind == "exact"
    report = ks.check_model(model, draws=200, show=False)
    assert report.passed
    assert "score = autodiff" in [f.law for f in report.findings if f.verdict == "holds"]


def test_numpy_log_prob_gets_differences_and_a_warning(pairs):
    with pytest.warns(KeepscoreWarning, match="central differences"):
        model = ks.models.from_functions(
            TOY.space, (3,), simulate=TOY.simulate, log_prob=numpy_log_prob
        )
    expected = TOY.score(*pairs)
    np.testing.assert_allclose(model.score(*pairs), expected, rtol=1e-7, atol=1e-8)
    error = model.score_error(*pairs)
    assert (np.abs(model.score(*pairs) - expected) <= error + 1e-9).all()


def test_a_given_score_is_used_without_a_warning(pairs):
    model = ks.models.from_functions(
        TOY.space, (3,), simulate=TOY.simulate, log_prob=numpy_log_prob, score=TOY.score
    )
    np.testing.assert_array_equal(model.score(*pairs), TOY.score(*pairs))


def test_a_wrong_score_is_convicted_by_autodiff(pairs):
    model = ks.models.from_functions(
        TOY.space,
        (3,),
        simulate=TOY.simulate,
        log_prob=jax_log_prob,
        score=lambda theta, x: TOY.score(theta, x) * (1 + 1e-6),
    )
    assert ks.check_model(model, draws=100, show=False).broken == ("score = autodiff",)


def test_simulator_only(pairs):
    model = ks.models.from_functions(TOY.space, (3,), simulate=TOY.simulate)
    assert model.score_kind is None
    with pytest.raises(MissingError, match="no log_prob"):
        model.log_prob(*pairs)
    with pytest.raises(MissingError, match="BCE"):
        model.score(*pairs)
    report = ks.check_model(model, draws=100, show=False)
    assert report.passed
    assert {f.verdict for f in report.findings[1:]} == {"not checked"}


def latent(theta, rng):
    """x = mean + sd (z + w): the path (z, w) is known along the way, x alone is what is kept."""
    z = rng.standard_normal((len(theta), 3)) / np.sqrt(2)
    middle = theta[:, :1] + np.exp(theta[:, 1:]) * z
    x = middle + np.exp(theta[:, 1:]) * rng.standard_normal((len(theta), 3)) / np.sqrt(2)
    sd = np.exp(theta[:, 1:]) / np.sqrt(2)
    a, b = (middle - theta[:, :1]) / sd, (x - middle) / sd
    joint = np.stack([(a / sd).sum(1), (a**2).sum(1) - 3 + (b**2).sum(1) - 3], axis=1)
    return x, joint


def test_joint_scores_obey_their_law_and_a_scaled_one_does_not():
    def model(function):
        return ks.models.from_functions(
            TOY.space,
            (3,),
            simulate=lambda theta, rng: function(theta, rng)[0],
            log_prob=jax_log_prob,
            simulate_with_joint_score=function,
        )

    def scaled(theta, rng):
        x, joint = latent(theta, rng)
        return x, 1.3 * joint

    assert model(latent).score_kind == "joint"
    assert ks.check_model(model(latent), show=False).passed
    assert "E[joint score | x] = score" in ks.check_model(model(scaled), show=False).broken


def test_wrong_shapes_are_named():
    model = ks.models.from_functions(
        TOY.space, (3,), simulate=lambda t, rng: np.zeros((len(t), 2)), log_prob=jax_log_prob
    )
    with pytest.raises(ShapeError, match=r"\(5, 3\); got \(5, 2\)"):
        model.simulate(np.zeros((5, 2)), np.random.default_rng(0))
    with pytest.raises(ShapeError, match="pair up row by row"):
        model.log_prob(np.zeros((5, 2)), np.zeros((4, 3)))


def test_given_sums_the_observations_of_each_group():
    model = ks.models.from_functions(TOY.space, (3,), simulate=TOY.simulate, log_prob=jax_log_prob)
    rng = np.random.default_rng(2)
    xs = rng.standard_normal((4, 5, 3))
    theta = TOY.space.uniform(6, rng)
    like = model.given(xs)
    expected = [[TOY.log_prob(np.tile(t, (5, 1)), g).sum() for t in theta] for g in xs]
    slopes = [[TOY.score(np.tile(t, (5, 1)), g).sum(0) for t in theta] for g in xs]
    np.testing.assert_allclose(like(theta), expected, rtol=1e-12)
    np.testing.assert_allclose(like.gradient(theta), slopes, rtol=1e-10)
    np.testing.assert_allclose(like.paired(theta[:4]), np.diag(np.array(expected)[:, :4]))
    one = model.given(xs[2])
    np.testing.assert_allclose(one(theta), expected[2], rtol=1e-12)
    assert one(theta[0]) == pytest.approx(expected[2][0])
    assert one.gradient(theta[0]).shape == (2,)


def test_empty_batches():
    model = ks.models.from_functions(TOY.space, (3,), simulate=TOY.simulate, log_prob=jax_log_prob)
    theta, x = np.zeros((0, 2)), np.zeros((0, 3))
    assert model.simulate(theta, np.random.default_rng(0)).shape == (0, 3)
    assert model.log_prob(theta, x).shape == (0,)
    assert model.score(theta, x).shape == (0, 2)


def test_functions_of_one_data_set():
    """vectorized=False: the same model from functions of one theta and one x, in JAX and NumPy."""
    import jax.numpy as jnp

    space = ks.Space([ks.Parameter("a", -1, 1, "identity"), ks.Parameter("b", -1, 1, "log")])

    def simulate(theta, rng):
        assert theta.shape == (2,)
        return theta[0] + np.exp(theta[1]) * rng.standard_normal(3)

    def in_jax(theta, x):
        return -0.5 * (((x - theta[0]) / jnp.exp(theta[1])) ** 2).sum() - 3 * theta[1]

    def in_numpy(theta, x):
        return float(-0.5 * (((x - theta[0]) / np.exp(theta[1])) ** 2).sum() - 3 * theta[1])

    def score(theta, x):
        z = (x - theta[0]) / np.exp(theta[1])
        return np.array([z.sum() / np.exp(theta[1]), float((z**2).sum()) - 3])

    build = ks.models.from_functions
    one = build(space, (3,), simulate=simulate, log_prob=in_jax, vectorized=False)
    two = build(space, (3,), simulate=simulate, log_prob=in_numpy, score=score, vectorized=False)
    rng = np.random.default_rng(0)
    theta = space.uniform(6, rng)
    x = one.simulate(theta, rng)
    assert one.log_prob(theta, x) == pytest.approx(two.log_prob(theta, x), rel=1e-12)
    assert one.score(theta, x) == pytest.approx(two.score(theta, x), rel=1e-12)
    for model in (one, two):
        assert ks.check_model(model, draws=100, show=False).passed
    assert one.settings()["code"] != two.settings()["code"]

    def ragged(theta, rng):
        return np.zeros(2 + int(theta[0] > 0))

    with pytest.raises(ks.errors.ShapeError):
        build(space, (3,), simulate=ragged, vectorized=False).simulate([[-1, 0], [1, 0]], rng)


def test_joint_scores_of_one_data_set():
    space = ks.Space([ks.Parameter("a", -1, 1, "identity")])

    def both(theta, rng):
        z = theta + rng.standard_normal(1)
        return z + rng.standard_normal(3), z - theta

    model = ks.models.from_functions(
        space, (3,), simulate=lambda t, rng: both(t, rng)[0], simulate_with_joint_score=both,
        vectorized=False,
    )  # fmt: skip
    x, score = model.simulate_with_score([[0.0], [0.5]], np.random.default_rng(0))
    assert (x.shape, score.shape) == ((2, 3), (2, 1))
    assert ks.check_model(model, draws=400, show=False).passed


def test_differences_become_shorter_where_a_likelihood_is_sharp():
    """SLCP at t3 = .02, a standard deviation of .0004 in a box of width 6: beside autodiff."""
    import benchmark_models

    from keepscore.models.from_functions import AutodiffScore, central_differences

    theta = np.array([[0.5, -0.5, 0.02, 1.0, 0.3], [0.5, -0.5, 1.5, -0.03, 0.3]])
    x = benchmark_models.simulate_slcp(theta, np.random.default_rng(0))
    expected = AutodiffScore(benchmark_models.slcp_log_prob)(theta, x)
    model = benchmark_models.slcp(declares=())
    found, error = central_differences(model.log_prob, model.space, theta, x)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert np.all(np.abs(found - expected) <= 10 * error + 1e-9)


def _decay(vectorized):
    """exp(-r t) at NumPy times, which simulator and likelihood share, both in JAX."""
    times = np.linspace(0.5, 10.0, 12)

    def mean(theta):
        return jnp.exp(-jnp.exp(theta[..., :1]) * times)

    def simulate(theta, rng):
        return np.asarray(mean(theta)) + 0.1 * rng.standard_normal((*np.shape(theta)[:-1], 12))

    def log_prob(theta, x):
        return -0.5 * (((x - mean(theta)) / 0.1) ** 2).sum(axis=-1)

    model = ks.models.from_functions(
        ks.Space([ks.Parameter("r", -3.0, 0.0)]),
        (12,),
        simulate=simulate,
        log_prob=log_prob,
        vectorized=vectorized,
        name="decay",
    )
    return model, times


@pytest.mark.parametrize("vectorized", [True, False])
def test_a_numpy_constant_may_serve_simulator_and_likelihood(vectorized):
    """JAX keeps it in float64 once the likelihood was traced, and a simulator in float32 met an
    error inside XLA. So simulators are in float64 too: x is right to 1e-12."""
    model, times = _decay(vectorized)
    theta = np.array([[-1.0], [-0.5], [-2.0]])
    x, score = model.simulate_with_score(theta, np.random.default_rng(0))
    noise = np.random.default_rng(0).standard_normal((3, 12))
    exact = np.exp(-np.exp(theta) * times) + 0.1 * noise
    if vectorized:
        np.testing.assert_allclose(x, exact, rtol=0, atol=1e-12)
    assert np.isfinite(score).all()
    again = model.simulate(theta, np.random.default_rng(0))
    np.testing.assert_array_equal(again, x)
    assert ks.check_model(model, draws=200, show=False).passed
