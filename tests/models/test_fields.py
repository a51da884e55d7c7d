"""Gaussian and Student-t fields: SciPy's densities, autodiff, the simulators' laws, bad input."""

import json

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from keepscore.errors import (
    DomainError,
    MissingError,
    NonFiniteError,
    NotPositiveDefiniteError,
    ShapeError,
    UnknownNameError,
)
from keepscore.models.base import Model, build, describe
from keepscore.models.gaussian import GaussianField
from keepscore.models.student_t import StudentTField
from keepscore.numerics.covariance import StationaryCovariance
from keepscore.numerics.kernels import KERNELS
from keepscore.space import Parameter, Space

FIELDS = [GaussianField, StudentTField]
GRIDS = [
    {"side": 5},
    {"side": 4},
    {"shape": (4, 7), "extent": (1.0, 3.0)},
    {"shape": (7, 4), "extent": 2.0},
    {"shape": (6, 1)},
]
FALSE_ALARM = 1e-6


def places_of(model):
    """Where each entry of x.ravel() lies."""
    if model.locations is not None:
        return model.locations
    s_1, s_2 = (np.linspace(-e, e, n) for e, n in zip(model.extent, model.x_shape, strict=True))
    return np.array([(a, b) for a in s_1 for b in s_2])


def sigma(model, theta, xp=np):
    """The paper's covariance, pair by pair, in NumPy or JAX."""
    places = places_of(model)
    h = xp.asarray(np.abs(places[:, None] - places[None]))
    same = np.eye(len(places))
    u, v = h[..., 0] / xp.exp(theta[0]), h[..., 1] / xp.exp(theta[1])
    # The identity keeps the square root's slope finite at lag zero; its effect is masked away.
    r = xp.sqrt(u**2 + v**2 + same) * (1 - same)
    if model.kernel == "exponential":
        rho = xp.exp(-r)
    elif model.kernel == "matern32":
        rho = (1 + np.sqrt(3) * r) * xp.exp(-np.sqrt(3) * r)
    else:
        rho = (1 + np.sqrt(5) * r + 5 / 3 * r**2) * xp.exp(-np.sqrt(5) * r)
    eps = xp.exp(theta[2]) if isinstance(model, GaussianField) else 0.0
    return rho + eps**2 * same


def scipy_log_prob(model, theta, x):
    covariance = sigma(model, theta)
    if isinstance(model, GaussianField):
        return stats.multivariate_normal(cov=covariance).logpdf(x.ravel())
    nu = np.exp(theta[2]) + 2
    return stats.multivariate_t(shape=covariance * (nu - 2) / nu, df=nu).logpdf(x.ravel())


def jax_log_prob(model, theta, x):
    """An independent form for autodiff: dense, solved by LU."""
    covariance = sigma(model, theta, jnp)
    q = x @ jnp.linalg.solve(covariance, x)
    log_det = jnp.linalg.slogdet(covariance)[1]
    if isinstance(model, GaussianField):
        return -0.5 * (q + log_det + len(x) * jnp.log(2 * jnp.pi))
    nu, gammaln = jnp.exp(theta[2]) + 2, jax.scipy.special.gammaln
    norm = gammaln((nu + len(x)) / 2) - gammaln(nu / 2) - len(x) / 2 * jnp.log(jnp.pi * (nu - 2))
    return norm - 0.5 * log_det - (nu + len(x)) / 2 * jnp.log(1 + q / (nu - 2))


def spread_draws(model, n, seed):
    """theta over and a little beyond the space, with one field each."""
    rng = np.random.default_rng(seed)
    theta = model.space.uniform(n, rng, region="train")
    return theta, model.simulate(theta, rng)


# Density and score ------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_log_prob_is_scipys(field, grid, kernel):
    model = field(**grid, kernel=kernel)
    theta, x = spread_draws(model, 4, seed=1)
    expected = [scipy_log_prob(model, t, v) for t, v in zip(theta, x, strict=True)]
    np.testing.assert_allclose(model.log_prob(theta, x), expected, rtol=1e-9)


@pytest.mark.parametrize("field", FIELDS)
def test_log_prob_on_the_papers_grid(field):
    model = field()
    assert model.x_shape == (25, 25)
    theta, x = spread_draws(model, 2, seed=2)
    expected = [scipy_log_prob(model, t, v) for t, v in zip(theta, x, strict=True)]
    np.testing.assert_allclose(model.log_prob(theta, x), expected, rtol=1e-9)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_score_is_the_autodiff_gradient(field, kernel):
    model = field(shape=(5, 4), extent=(1.0, 3.0), kernel=kernel)
    theta, x = spread_draws(model, 2, seed=3)
    with jax.enable_x64(True):
        gradient = jax.grad(jax_log_prob, argnums=1)
        expected = [
            np.asarray(gradient(model, jnp.asarray(t), jnp.asarray(v.ravel())))
            for t, v in zip(theta, x, strict=True)
        ]
    np.testing.assert_allclose(model.score(theta, x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("options", [{}, {"side": 6, "kernel": "matern32"}], ids=str)
def test_score_is_the_slope_of_log_prob(field, options):
    model = field(**options)
    theta, x = spread_draws(model, 3, seed=4)
    h = 1e-5
    expected = np.stack(
        [
            (model.log_prob(theta + h * e, x) - model.log_prob(theta - h * e, x)) / (2 * h)
            for e in np.eye(3)
        ],
        axis=1,
    )
    score = model.score(theta, x)
    # Rounding of log_prob (about 1e-12 of 1e3) over h, and the third derivative times h^2.
    np.testing.assert_allclose(score, expected, rtol=1e-6, atol=2e-5)
    both = model.log_prob_and_score(theta, x)
    np.testing.assert_array_equal(both[0], model.log_prob(theta, x))
    np.testing.assert_array_equal(both[1], score)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_scattered_locations_agree_with_the_grid(field, kernel):
    grid = field(shape=(5, 4), extent=(1.0, 2.0), kernel=kernel)
    order = np.random.default_rng(5).permutation(20)
    scattered = field(locations=places_of(grid)[order], kernel=kernel)
    assert scattered.x_shape == (20,)
    theta, x = spread_draws(grid, 4, seed=6)
    moved = x.reshape(4, -1)[:, order]
    np.testing.assert_allclose(scattered.log_prob(theta, moved), grid.log_prob(theta, x), rtol=1e-9)
    np.testing.assert_allclose(scattered.score(theta, moved), grid.score(theta, x), rtol=1e-6)


def test_l_x_acts_along_the_first_axis():
    model = GaussianField(side=12)
    theta = np.tile([1.0, -1.0, -3.0], (50, 1))
    x = model.simulate(theta, np.random.default_rng(7))
    along_first, along_second = (np.mean(np.diff(x, axis=a) ** 2) for a in (1, 2))
    assert along_first < 0.5 * along_second
    # The transposed field is another field: far less likely at this theta.
    transposed = np.swapaxes(x, 1, 2)
    assert np.mean(model.log_prob(theta, x) - model.log_prob(theta, transposed)) > 20
    swapped = theta[:, [1, 0, 2]]
    np.testing.assert_allclose(model.log_prob(swapped, transposed), model.log_prob(theta, x))


def test_heavy_tails_vanish_as_nu_grows():
    gaussian = GaussianField(side=5, space=Space(StudentTField().space.parameters[:2], {"eps": 0}))
    student = StudentTField(side=5)
    theta, x = spread_draws(student, 3, seed=8)
    theta[:, 2] = 16.0  # the difference is of order S^2/nu
    np.testing.assert_allclose(
        student.log_prob(theta, x), gaussian.log_prob(theta[:, :2], x), atol=1e-3
    )
    assert np.abs(student.score(theta, x)[:, 2]).max() < 1e-3


def test_any_parameter_may_be_free_or_fixed():
    free = Space(
        [
            Parameter("sigma2", -1, 1),
            Parameter("nu", 3.0, 30.0, "identity"),
            Parameter("l_y", -1, 1),
            Parameter("eps", 0.0, 0.5, "identity"),
        ],
        fixed={"l_x": 0.8},
    )
    model = StudentTField(shape=(4, 3), space=free)
    rng = np.random.default_rng(9)
    theta = free.uniform(3, rng)
    x, score = model.simulate_with_score(theta, rng)
    for row, value, slope in zip(theta, x, score, strict=True):
        raw = dict(zip(free.names, free.to_raw(row), strict=True))
        logs = [np.log(0.8), np.log(raw["l_y"]), 0.0]
        covariance = raw["sigma2"] * sigma(model, logs) + raw["eps"] ** 2 * np.eye(12)
        nu = raw["nu"]
        expected = stats.multivariate_t(shape=covariance * (nu - 2) / nu, df=nu)
        assert model.log_prob(row[None], value[None])[0] == pytest.approx(
            expected.logpdf(value.ravel()), rel=1e-9
        )
        for k, e in enumerate(1e-6 * np.eye(4)):
            pair = model.log_prob(np.stack([row + e, row - e]), np.stack([value, value]))
            assert slope[k] == pytest.approx((pair[0] - pair[1]) / 2e-6, rel=1e-5, abs=1e-5)
    assert all(s.theta_index == (0, 1, 2, 3) for s in model.symmetries)


# Simulators -------------------------------------------------------------------------------------


def whitened(model, theta, x):
    """L^-1 x with a factor of the plainly built covariance."""
    factor = np.linalg.cholesky(sigma(model, theta))
    return np.linalg.solve(factor, x.reshape(len(x), -1).T).T


def test_whitened_gaussian_fields_are_white():
    """Kolmogorov-Smirnov on all entries and on |z|^2; false alarms 1e-6 each. With 60000 entries a
    scale off by about 2% is seen."""
    model, theta, n = GaussianField(shape=(6, 5)), np.array([0.4, -0.5, -2.0]), 2000
    x = model.simulate(np.tile(theta, (n, 1)), np.random.default_rng(10))
    z = whitened(model, theta, x)
    assert stats.kstest(z.ravel(), "norm").pvalue > FALSE_ALARM
    assert stats.kstest((z**2).sum(1), "chi2", args=(30,)).pvalue > FALSE_ALARM
    # Entries of different places are uncorrelated: n r^2 summed over the pairs is chi-square.
    r = np.corrcoef(z.T)[np.tril_indices(30, -1)]
    assert stats.chi2.sf(n * np.sum(r**2), len(r)) > FALSE_ALARM
    for wrong in (theta[[1, 0, 2]], theta + np.array([0, 0, 0.7]), theta + 0.1):
        q = (whitened(model, wrong, x) ** 2).sum(1)
        assert stats.kstest(q, "chi2", args=(30,)).pvalue < FALSE_ALARM


def test_whitened_student_fields_are_spherical_t():
    """|z|^2/S nu/(nu-2) ~ F(S, nu), and directions uniform: z_1^2/|z|^2 ~ Beta(1/2, (S-1)/2)."""
    model, theta, n = StudentTField(shape=(6, 5)), np.array([0.4, -0.5, 0.5]), 4000
    nu = np.exp(theta[2]) + 2
    x = model.simulate(np.tile(theta, (n, 1)), np.random.default_rng(11))
    z = whitened(model, theta, x)
    q = (z**2).sum(1)
    law = stats.f(30, nu)
    assert stats.kstest(q / 30 * nu / (nu - 2), law.cdf).pvalue > FALSE_ALARM
    for k in (0, 17):
        share = stats.kstest(z[:, k] ** 2 / q, stats.beta(0.5, 14.5).cdf)
        assert share.pvalue > FALSE_ALARM
    # The usual scaling sqrt(nu/R), other degrees of freedom, or a Gaussian field would be seen.
    assert stats.kstest(q / 30, law.cdf).pvalue < FALSE_ALARM
    assert stats.kstest(q / 30 * nu / (nu - 2), stats.f(30, nu + 2).cdf).pvalue < FALSE_ALARM
    assert stats.kstest(q, "chi2", args=(30,)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("centre", [[0.0, 0.0, -1.0], [0.5, -0.5, -1.5]], ids=str)
def test_score_has_mean_zero(field, centre):
    """t statistics of the mean score; false alarms 1e-6 in all. The control: scores at a theta
    moved by 0.4 in one parameter at a time."""
    model, n = field(shape=(6, 5)), 1500
    bound = stats.norm.isf(FALSE_ALARM / 6)
    theta = np.tile(centre, (n, 1))
    x, score = model.simulate_with_score(theta, np.random.default_rng(12))
    assert np.all(np.abs(score.mean(0)) / (score.std(0) / np.sqrt(n)) < bound)
    for k, e in enumerate(0.4 * np.eye(3)):
        moved = model.score(theta + e, x)[:, k]
        assert np.abs(moved.mean()) / (moved.std() / np.sqrt(n)) > bound


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("places", [{"side": 5}, {"locations": np.eye(2)}], ids=["grid", "places"])
def test_simulate_with_score_is_simulate_and_score(field, places):
    model = field(**places)
    theta = model.space.uniform(6, np.random.default_rng(13))
    theta[4] = theta[1]  # equal rows share a factorisation, and must still differ in x
    x, score = model.simulate_with_score(theta, np.random.default_rng(14))
    np.testing.assert_array_equal(x, model.simulate(theta, np.random.default_rng(14)))
    np.testing.assert_allclose(score, model.score(theta, x), rtol=1e-8, atol=1e-9)
    again, value, _ = model.simulate_with_log_prob_and_score(theta, np.random.default_rng(14))
    np.testing.assert_array_equal(again, x)
    np.testing.assert_allclose(value, model.log_prob(theta, x), rtol=1e-10)
    assert x.dtype == np.float64
    assert not np.allclose(x[4], x[1])


# Likelihoods of groups --------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("places", [{"shape": (4, 5)}, {"locations": np.arange(10).reshape(5, 2)}])
def test_given_sums_over_the_group(field, places):
    model = field(**places)
    rng = np.random.default_rng(15)
    xs = np.stack([model.simulate(np.tile(t, (3, 1)), rng) for t in model.space.uniform(4, rng)])
    theta = model.space.uniform(2, rng)
    like = model.given(xs)
    values = np.array([[model.log_prob(np.tile(t, (3, 1)), g).sum() for t in theta] for g in xs])
    slopes = np.array([[model.score(np.tile(t, (3, 1)), g).sum(axis=0) for t in theta] for g in xs])
    np.testing.assert_allclose(like(theta), values, rtol=1e-11)
    np.testing.assert_allclose(like.gradient(theta), slopes, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(like(theta[0]), values[:, 0], rtol=1e-11)
    group = np.array([2, 0, 2, 3, 1])
    row = np.array([0, 1, 1, 0, 0])
    np.testing.assert_allclose(like.pairs(theta[row], group), values[group, row], rtol=1e-11)
    value, slope = like.pairs_gradient(theta[row], group)
    np.testing.assert_allclose(value, values[group, row], rtol=1e-11)
    np.testing.assert_allclose(slope, slopes[group, row], rtol=1e-8, atol=1e-8)
    single = model.given(xs[1])
    assert single(theta[0]) == pytest.approx(values[1, 0], rel=1e-11)


def test_groups_share_one_factorisation_per_theta(monkeypatch):
    calls = []
    factorise = StationaryCovariance.factorise

    def counted(self, *args):
        calls.append(args)
        factorise(self, *args)

    monkeypatch.setattr(StationaryCovariance, "factorise", counted)
    model = StudentTField(side=4)
    rng = np.random.default_rng(16)
    theta = model.space.uniform(2, rng)
    like = model.given(rng.normal(size=(5, 3, 4, 4)))
    like(theta)
    assert len(calls) == 2
    like.gradient(theta)
    assert len(calls) == 4
    model.simulate_with_score(np.repeat(theta, 7, axis=0), rng)
    assert len(calls) == 6


# What the model declares ------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("places", "count"),
    [
        ({"side": 4}, 15),
        ({"side": 5}, 15),
        ({"shape": (4, 5)}, 7),
        ({"side": 4, "extent": (1.0, 2.0)}, 7),
        ({"shape": (1, 5)}, 3),
        ({"locations": np.arange(12).reshape(6, 2)}, 1),
    ],
    ids=str,
)
def test_symmetries_leave_the_density_alone(field, places, count):
    model = field(**places)
    theta, x = spread_draws(model, 2, seed=17)
    value, score = model.log_prob_and_score(theta, x)
    assert len({(s.name, *s.x_index, s.sign) for s in model.symmetries}) == count
    for s in model.symmetries:
        moved, slope = model.log_prob_and_score(s.of_theta(theta), s.of_x(x))
        np.testing.assert_allclose(moved, value, rtol=1e-10)
        np.testing.assert_allclose(slope, s.of_theta(score), rtol=1e-7, atol=1e-7)
        if "transpose" in s.name:
            assert not np.allclose(model.log_prob(theta, s.of_x(x)), value, rtol=1e-6)
    kind = "gaussian-field" if field is GaussianField else "stationary-field"
    assert model.structure == (None if model.locations is not None else kind)


@pytest.mark.parametrize("field", FIELDS)
def test_spaces_are_the_papers(field):
    space = field().space
    low, high = space.box("train")
    np.testing.assert_allclose(low[:2], -1.05)
    np.testing.assert_allclose(high[:2], 1.05)
    np.testing.assert_allclose(space.box("test")[1][:2], 0.8)
    if field is GaussianField:
        assert space.working_names == ("log l_x", "log l_y", "log eps")
        assert (space.lower[2], space.upper[2]) == (-4, -1)
    else:
        assert space.working_names == ("log l_x", "log l_y", "log(nu - 2)")
        assert (space.lower[2], space.upper[2]) == (-2, 3)
        np.testing.assert_allclose(space.to_working([1.0, 1.0, 3.0]), 0.0)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "options", [{"shape": (4, 3), "kernel": "matern52"}, {"locations": [[0, 0], [1, 0.5]]}]
)
def test_rebuilds_from_plain_data_and_travels_to_workers(field, options):
    model = field(**options)
    assert isinstance(model, Model)
    theta, x = spread_draws(model, 3, seed=18)
    assert model.symmetries
    again = build(json.loads(json.dumps(describe(model))))
    copied = cloudpickle.loads(cloudpickle.dumps(model))
    for other in (again, copied):
        assert type(other) is field
        assert describe(other) == describe(model)
        np.testing.assert_array_equal(other.log_prob(theta, x), model.log_prob(theta, x))


# Input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
def test_other_number_types_give_the_same(field):
    model = field(side=4)
    theta = np.array([[0, 1, -1], [1, 0, -1]])
    x = np.random.default_rng(19).integers(-2, 3, size=(2, 4, 4))
    expected = model.log_prob_and_score(theta.astype(float), x.astype(float))
    for kind in (np.int64, np.float32):
        got = model.log_prob_and_score(theta.astype(kind), x.astype(kind))
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])
        assert got[0].dtype == got[1].dtype == np.float64


@pytest.mark.parametrize("field", FIELDS)
def test_nothing_is_computed_from_unset_memory(field, monkeypatch):
    """Fresh memory may hold a signalling NaN, at which arithmetic warns, or raises if asked to."""
    model = field(side=4)
    theta = model.space.uniform(3, np.random.default_rng(0))
    x = model.simulate(theta, np.random.default_rng(1))
    expected = model.log_prob(theta, x)

    def unset(like, **_):
        array = np.zeros_like(like)
        array.view(np.uint64)[...] = 0x7FF0_0000_0000_0001
        return array

    monkeypatch.setattr(np, "empty_like", unset)
    with np.errstate(invalid="raise"):
        np.testing.assert_array_equal(model.log_prob(theta, x), expected)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("places", [{"shape": (4, 3)}, {"locations": np.eye(2)}], ids=str)
def test_empty_batches_give_empty_arrays(field, places):
    model = field(**places)
    theta, x = np.empty((0, 3)), np.empty((0, *model.x_shape))
    rng = np.random.default_rng(20)
    assert model.simulate(theta, rng).shape == x.shape
    drawn, score = model.simulate_with_score(theta, rng)
    assert (drawn.shape, score.shape) == (x.shape, (0, 3))
    assert model.log_prob(theta, x).shape == (0,)
    assert model.score(theta, x).shape == (0, 3)


@pytest.mark.parametrize("field", FIELDS)
def test_bad_input_is_a_typed_error(field):
    model = field(side=4)
    theta, x = spread_draws(model, 2, seed=21)
    with pytest.raises(ShapeError, match=r"\(n, 3\); got \(2, 2\)"):
        model.log_prob(theta[:, :2], x)
    with pytest.raises(ShapeError, match=r"\(n, 4, 4\); got \(2, 16\)"):
        model.score(theta, x.reshape(2, 16))
    with pytest.raises(ShapeError, match=r"2 row.* of theta and 1 of x"):
        model.log_prob(theta, x[:1])
    with pytest.raises(NonFiniteError):
        model.log_prob(theta, np.where(x > 0, np.nan, x))
    with pytest.raises(NonFiniteError):
        model.simulate(theta * np.nan, np.random.default_rng(0))
    outside = theta + 1.5
    assert not model.space.contains(outside).any()
    assert np.isfinite(model.log_prob(outside, x)).all()


@pytest.mark.parametrize("value", [-800.0, 800.0])
@pytest.mark.parametrize(("field", "last"), [(GaussianField, "log eps"), (StudentTField, "log")])
def test_outside_the_domain_names_theta(field, last, value):
    model = field(side=4)
    x = np.zeros((2, 4, 4))
    theta = np.array([[0.0, 0.0, -1.0], [value, 0.25, -1.0]])
    with pytest.raises(DomainError, match=rf"l_x .*theta = \(log l_x = {value:g}, log l_y = 0.25"):
        model.log_prob(theta, x)
    theta = np.array([[0.0, 0.0, -1.0], [0.25, 0.0, value]])
    if field is StudentTField or value > 0:
        with pytest.raises(DomainError, match=rf"theta = \(log l_x = 0.25.*{last}.* = {value:g}\)"):
            model.simulate(theta, np.random.default_rng(0))
    with pytest.raises(DomainError, match="greater than 2; got 2"):
        StudentTField().space.to_working([1.0, 1.0, 2.0])


@pytest.mark.parametrize("method", ["log_prob", "score", "simulate", "simulate_with_score"])
def test_no_cholesky_factor_names_theta(method):
    twice = StudentTField(locations=[[0, 0], [1, 1], [0, 0]])
    theta = np.array([[0.5, -0.25, 1.0]])
    second = np.random.default_rng(0) if "simulate" in method else np.ones((1, 3))
    message = r"theta = \(log l_x = 0.5, log l_y = -0.25, log\(nu - 2\) = 1\)"
    with pytest.raises(NotPositiveDefiniteError, match=message):
        getattr(twice, method)(theta, second)
    # With a nugget the same places are fine: each observation has its own noise.
    assert np.isfinite(GaussianField(locations=twice.locations).log_prob(theta, np.ones((1, 3))))


def test_bad_settings_are_typed_errors():
    with pytest.raises(UnknownNameError, match="exponential"):
        GaussianField(kernel="exponentail")
    with pytest.raises(DomainError, match="not both"):
        GaussianField(5, shape=(5, 5))
    with pytest.raises(DomainError, match="not both"):
        GaussianField(5, locations=np.eye(2))
    with pytest.raises(DomainError, match="at least 1; got 0"):
        GaussianField(0)
    with pytest.raises(ShapeError, match="n_1, n_2"):
        GaussianField(shape=(5, 5, 5))
    with pytest.raises(ShapeError, match=r"\(S, 2\)"):
        GaussianField(locations=np.zeros((4, 3)))
    with pytest.raises(NonFiniteError, match="locations"):
        GaussianField(locations=[[0.0, np.inf]])
    for extent in (0.0, -1.0, np.inf, np.nan, (1.0, 0.0)):
        with pytest.raises(DomainError, match="extent"):
            GaussianField(extent=extent)
    with pytest.raises(ShapeError, match="extent"):
        GaussianField(extent=(1.0, 2.0, 3.0))
    with pytest.raises(UnknownNameError, match="l_z"):
        GaussianField(space=Space([Parameter("l_z", -1, 1)]))
    with pytest.raises(MissingError, match="nu"):
        StudentTField(space=Space([Parameter("l_x", -1, 1), Parameter("l_y", -1, 1)]))
    with pytest.raises(DomainError, match=r"nu must be finite and greater than 2; got nu = 1\.5"):
        StudentTField(space=Space(StudentTField().space.parameters[:2], fixed={"nu": 1.5}))
