"""Missing values: masks with the law they promise, and the exact likelihood of what was observed.

The oracle of a field is the density of the observed sub-vector with its covariance written out by
hand; that of rows is the closed form. Negative controls: a mask turned round, and NaN taken for 0.
Statistical tests have fixed seeds; `check_model` has a false-alarm rate of 1e-6 a run.
"""

import json

import faults
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import keepscore as ks
from keepscore.errors import (
    DomainError,
    DtypeError,
    FormatError,
    MissingError,
    NonFiniteError,
    ShapeError,
    UnknownNameError,
)
from keepscore.models.base import declares_missing
from keepscore.models.from_functions import central_differences
from keepscore.models.masks import mask_from
from keepscore.models.narrowed import Narrowed

M = ks.models
SMALL = (4, 5)


def rng(seed=0):
    return np.random.default_rng(seed)


def rows_space():
    return ks.Space([ks.Parameter("mean", -1, 1, "identity"), ks.Parameter("sd", -0.5, 0.5, "log")])


def normal_rows(n=6, p=2, d=2):
    """n rows of p numbers N(mean, sd^2), in closed form; d = 1: the mean alone."""
    space = rows_space() if d == 2 else ks.Space([ks.Parameter("mean", -1, 1, "identity")])

    def sd(theta):
        return np.exp(theta[:, 1]) if d == 2 else np.ones(len(theta))

    def simulate(theta, rng):
        noise = rng.standard_normal((len(theta), n, p))
        return theta[:, 0, None, None] + sd(theta)[:, None, None] * noise

    def log_prob(theta, x):
        z = (x - theta[:, 0, None, None]) / sd(theta)[:, None, None]
        return -0.5 * (z**2).sum(axis=(1, 2)) - n * p * np.log(sd(theta))

    def score(theta, x):
        z = (x - theta[:, 0, None, None]) / sd(theta)[:, None, None]
        slopes = [z.sum(axis=(1, 2)) / sd(theta), (z**2).sum(axis=(1, 2)) - n * p]
        return np.stack(slopes[:d], axis=1)

    return M.from_functions(
        space, (n, p), simulate=simulate, log_prob=log_prob, score=score, declares=["iid"]
    )


def fields():
    yield M.GaussianField(shape=SMALL)
    yield M.StudentTField(shape=SMALL)
    yield M.GaussianField(shape=(1, 7), kernel="matern32")
    yield M.GaussianField(locations=rng(1).uniform(-3, 3, (15, 2)))
    free = [
        ks.Parameter(name, -1, 1, shift=2.0 if name == "nu" else 0.0)
        for name in ("l_x", "l_y", "nu", "eps", "sigma2")
    ]
    yield M.StudentTField(shape=(3, 4), space=ks.Space(free), kernel="matern52")


def name_of(model):
    return f"{model.name}-{model.x_shape}-{model.space.d}"


# --- masks ---

MASKS = {
    "rate": lambda: M.with_missing(M.GaussianField(shape=SMALL), 0.3).mask,
    "fixed": lambda: M.with_missing(M.GaussianField(shape=SMALL), np.eye(4, 5) > 0).mask,
    "clouds": lambda: M.clouds(0.3, 2),
    "drop_out": lambda: M.drop_out(0.3),
    "visits": lambda: M.missing_visits(0.3),
    "rows": lambda: M.missing_rows(1, 4),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_have_the_share_they_promise_and_are_plain_data(name):
    """5 standard errors of 20,000 draws: a false alarm in a million; a bias of .02 is seen."""
    mask, n = MASKS[name](), 20_000
    flags = mask.draw(SMALL, n, rng())
    assert flags.shape == (n, *SMALL)
    assert flags.dtype == bool
    time = np.arange(4)[:, None]
    expected = {
        "rate": 0.3,
        "fixed": np.eye(4, 5),
        "clouds": 0.3,
        "drop_out": 1 - 0.7**time,
        "visits": 0.3,
        "rows": np.array([0.0, 0.25, 0.5, 0.75])[:, None],
    }[name]
    share = np.broadcast_to(expected, SMALL)
    error = np.sqrt(share * (1 - share) / n)
    assert (np.abs(flags.mean(axis=0) - share) <= 5 * error + 1e-12).all()
    again = mask_from(json.loads(json.dumps(mask.settings())))
    assert np.array_equal(again.draw(SMALL, 50, rng(3)), mask.draw(SMALL, 50, rng(3)))
    if mask.whole_rows:
        assert (flags == flags[:, :, :1]).all()


def test_clouds_are_clumped_and_drop_outs_final():
    flags = M.clouds(0.3, 4).draw((20, 20), 200, rng())
    beside = (flags[:, 1:] & flags[:, :-1]).mean()
    assert beside > 0.2  # independent entries: .09
    gone = M.drop_out(0.2).draw((9, 2), 200, rng())
    assert (np.diff(gone.astype(int), axis=1) >= 0).all()


@pytest.mark.parametrize(
    ("mask", "kept"),
    [
        (0.3, {"mirror x", "transpose", "sign"}),
        (np.eye(5) > 0, {"transpose", "sign"}),
        (np.arange(25).reshape(5, 5) < 2, {"sign"}),
        (M.clouds(0.2, 2), {"mirror x", "transpose", "sign"}),
        (M.drop_out(0.2), {"mirror y", "sign"}),
        (M.missing_visits(0.2), {"mirror x", "mirror y", "sign"}),
        (lambda shape, n, rng: rng.random((n, *shape)) < 0.2, {"sign"}),
    ],
)
def test_symmetries_stay_only_where_the_mask_has_them(mask, kept):
    names = {s.name for s in M.with_missing(M.GaussianField(shape=(5, 5)), mask).symmetries}
    assert names & {"mirror x", "mirror y", "transpose", "sign"} >= kept
    for lost in {"mirror x", "transpose"} - kept:
        assert lost not in names


def test_clouds_of_two_lengths_know_which_maps_keep_them():
    """On a grid that is not square the transpose is no map at all; a shuffle is none of theirs."""
    mask = M.clouds(0.2, 2)
    grid = np.arange(20).reshape(SMALL)
    assert mask.keeps(grid[::-1].ravel(), SMALL)
    assert not mask.keeps(rng().permutation(20), SMALL)


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        (1.0, DomainError),
        (-0.1, DomainError),
        ("clouds", DtypeError),
        (np.zeros((3, 3), bool), ShapeError),
        (np.zeros(SMALL), DtypeError),
        (M.missing_rows(1, 9), ShapeError),
        (True, DtypeError),
        (None, DtypeError),
    ],
)
def test_what_is_no_mask_is_refused(mask, error):
    with pytest.raises(error):
        M.with_missing(M.GaussianField(shape=SMALL), mask)


def test_a_mask_function_is_checked_and_fingerprinted():
    model = M.with_missing(normal_rows(), lambda shape, n, rng: np.zeros((n, 2), bool))
    with pytest.raises(ShapeError, match="mask function"):
        model.simulate([[0.0, 0.0]], rng())
    one = M.with_missing(normal_rows(), lambda shape, n, rng: rng.random((n, *shape)) < 0.1)
    two = M.with_missing(normal_rows(), lambda shape, n, rng: rng.random((n, *shape)) < 0.2)
    assert one.settings()["mask"]["code"] != two.settings()["mask"]["code"]
    with pytest.raises(FormatError, match="wrap the model"):
        mask_from(one.settings()["mask"])


# --- fields ---


def dense_oracle(model, theta, x):
    """log density of the observed sites of one field, with the covariance written out."""
    raw = dict(zip(model.space.names, model.space.to_raw(theta), strict=True)) | model.space.fixed
    raw = {"sigma2": 1.0, "eps": 0.0} | raw
    if model.locations is None:
        axes = [
            np.linspace(-e, e, n) if n > 1 else np.zeros(1)
            for e, n in zip(model.extent, model.x_shape, strict=True)
        ]
        places = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    else:
        places = model.locations
    apart = np.abs(places[:, None] - places[None])
    r = np.hypot(apart[..., 0] / raw["l_x"], apart[..., 1] / raw["l_y"])
    rho = {
        "exponential": lambda r: np.exp(-r),
        "matern32": lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
        "matern52": lambda r: (1 + 5**0.5 * r + 5 / 3 * r**2) * np.exp(-(5**0.5) * r),
    }[model.kernel](r)
    sigma = raw["sigma2"] * rho + raw["eps"] ** 2 * np.eye(len(places))
    seen = ~np.isnan(x.ravel())
    part = sigma[np.ix_(seen, seen)]
    if "nu" not in raw:
        return stats.multivariate_normal(np.zeros(seen.sum()), part).logpdf(x.ravel()[seen])
    nu = raw["nu"]
    return stats.multivariate_t(None, part * (nu - 2) / nu, df=nu).logpdf(x.ravel()[seen])


def holes(model, n, seed=0):
    generator = rng(seed)
    theta = model.space.uniform(n, generator, "test")
    return theta, M.with_missing(model, 0.4).simulate(theta, generator)


@pytest.mark.parametrize("model", list(fields()), ids=name_of)
def test_the_likelihood_of_observed_sites_is_the_dense_one(model):
    theta, x = holes(model, 12)
    x[0] = np.where(np.arange(model.size).reshape(model.x_shape) == 0, x[0], np.nan)
    x[0].flat[0] = 0.3  # one site alone
    x[1] = model.simulate(theta[1:2], rng(5))[0]  # and all of them
    wrapped = M.with_missing(model, 0.4)
    expected = np.array([dense_oracle(model, t, one) for t, one in zip(theta, x, strict=True)])
    assert np.allclose(wrapped.log_prob(theta, x), expected, rtol=1e-9, atol=1e-9)
    assert np.allclose(wrapped.log_prob(theta[1:2], x[1:2]), model.log_prob(theta[1:2], x[1:2]))
    # Controls: the mask turned round, and NaN taken for 0, are other numbers.
    turned = np.where(np.isnan(x), 0.1, np.nan)
    rest = slice(2, None)
    assert np.abs(wrapped.log_prob(theta, turned) - expected)[rest].min() > 1e-3
    assert np.abs(model.log_prob(theta, np.nan_to_num(x)) - expected)[rest].min() > 1e-3


@pytest.mark.parametrize("model", list(fields()), ids=name_of)
def test_the_score_of_observed_sites_is_the_slope(model):
    theta, x = holes(model, 10, seed=1)
    theta[5:], x[3] = theta[4], x[2]  # some theta and patterns alike
    wrapped = M.with_missing(model, 0.4)
    value, score = wrapped.log_prob_and_score(theta, x)
    expected, error = central_differences(wrapped.log_prob, model.space, theta, x)
    assert (np.abs(score - expected) <= 10 * error + 1e-6).all()
    assert np.array_equal(value, wrapped.log_prob(theta, x))


def test_nothing_observed_says_nothing():
    for model in (M.GaussianField(shape=SMALL), normal_rows()):
        wrapped = M.with_missing(model, 0.2)
        theta = model.space.uniform(3, rng(), "test")
        x = np.full((3, *model.x_shape), np.nan)
        value, score = wrapped.log_prob_and_score(theta, x)
        assert not value.any()
        assert not score.any()


def test_groups_of_fields_share_one_likelihood_with_the_plain_way():
    wrapped = M.with_missing(M.GaussianField(shape=SMALL), np.arange(20).reshape(SMALL) % 3 == 0)
    theta = wrapped.space.uniform(4, rng(), "test")
    xs = wrapped.simulate(np.repeat(theta[:1], 6, axis=0), rng()).reshape(2, 3, *SMALL)
    like = wrapped.given(xs)
    each = [[wrapped.log_prob(np.tile(t, (3, 1)), group).sum() for t in theta] for group in xs]
    assert np.allclose(like(theta), each, rtol=1e-12)
    one = like[1]
    assert np.allclose(one(theta), each[1], rtol=1e-12)
    gradient = sum(wrapped.score(theta[:1], x[None])[0] for x in xs[1])
    assert np.allclose(one.gradient(theta[0]), gradient, rtol=1e-10)


# --- rows ---


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("p", [1, 2])
def test_rows_that_are_missing_drop_out_of_the_sum(d, p):
    model = normal_rows(n=6, p=p, d=d)
    wrapped = M.with_missing(model, M.missing_rows(1, 6))
    theta = model.space.uniform(40, rng(), "test")
    x = wrapped.simulate(theta, rng(2))
    counts = (~np.isnan(x[:, :, 0])).sum(axis=1)
    assert set(counts) == {1, 2, 3, 4, 5, 6}
    value, score = wrapped.log_prob_and_score(theta, x)
    for t, one, v, s in zip(theta, x, value, score, strict=True):
        seen = one[~np.isnan(one)]
        sd = np.exp(t[1]) if d == 2 else 1.0
        z = (seen - t[0]) / sd
        assert np.isclose(v, -0.5 * (z**2).sum() - len(z) * np.log(sd), rtol=1e-9, atol=1e-12)
        slopes = [z.sum() / sd, (z**2).sum() - len(z)]
        assert np.allclose(s, slopes[:d], rtol=1e-9, atol=1e-9)


def test_a_row_missing_in_part_is_refused_where_the_model_has_no_law_for_it():
    wrapped = M.with_missing(normal_rows(), 0.2)
    x = np.zeros((1, 6, 2))
    x[0, 3, 1] = np.nan
    with pytest.raises(DomainError, match="row 3 of data set 0"):
        wrapped.log_prob([[0.0, 0.0]], x)


def test_impossible_rows_stay_impossible():
    space = ks.Space([ks.Parameter("end", 1, 2, "identity")])

    def log_prob(theta, x):
        inside = (x >= 0) & (x <= theta[:, :, None])
        with np.errstate(divide="ignore"):
            return np.log(inside).sum(axis=(1, 2)) - x.shape[1] * np.log(theta[:, 0])

    model = M.from_functions(
        space, (4, 1), declares=["iid"], log_prob=log_prob,
        score=lambda theta, x: -x.shape[1] / theta,
        simulate=lambda theta, rng: rng.uniform(0, theta[:, :, None], (len(theta), 4, 1)),
    )  # fmt: skip
    wrapped = M.with_missing(model, 0.3)
    x = np.array([[9.0, 0.5, np.nan, np.nan], [0.5, np.nan, 0.4, np.nan]])[:, :, None]
    value = wrapped.log_prob([[1.5], [1.5]], x)
    assert np.isneginf(value[0])
    assert np.isclose(value[1], -2 * np.log(1.5))


# --- models of functions, joint scores, dtypes ---


def observed_vector(space=None, **more):
    """x of 6 numbers N(theta_k, 1), any of them missing; d = 6."""
    space = ks.Space([ks.Parameter(f"m{k}", -1, 1, "identity") for k in range(6)])

    def simulate(theta, rng):
        return theta + rng.standard_normal(theta.shape)

    def log_prob_observed(theta, x):
        seen = ~jnp.isnan(x)
        gap = jnp.where(seen, x, 0.0) - theta
        return -0.5 * jnp.where(seen, gap**2, 0.0).sum(axis=1)

    return M.from_functions(
        space, (6,), simulate=simulate, log_prob=log_prob_observed,
        log_prob_observed=log_prob_observed, **more,
    )  # fmt: skip


def test_functions_of_the_user_may_know_what_was_observed():
    model = M.with_missing(observed_vector(), 0.3)
    assert model.score_kind == "exact"
    report = ks.check_model(model, draws=400, show=False)
    assert report.passed, str(report)
    x = np.array([[1.0, np.nan, 0, 0, 0, np.nan]])
    assert np.allclose(model.score(np.zeros((1, 6)), x), [[1, 0, 0, 0, 0, 0]])


def test_a_nan_that_jax_carries_into_a_gradient_is_explained():
    space = ks.Space([ks.Parameter("m", -1, 1, "identity")])

    def careless(theta, x):
        return -0.5 * jnp.where(jnp.isnan(x), 0.0, (x - theta) ** 2).sum(axis=1)

    model = M.from_functions(
        space, (3,), simulate=lambda theta, rng: theta + rng.standard_normal((len(theta), 3)),
        log_prob=careless, log_prob_observed=careless,
    )  # fmt: skip
    with pytest.raises(ks.KeepscoreError, match="replace it first"):
        M.with_missing(model, 0.5).score([[0.0]], [[np.nan, 1.0, 2.0]])


def test_values_missing_because_of_what_they_are_need_a_model_of_their_own():
    """x below a limit of detection is not seen: the law of that is the user's, and passes."""
    space, limit = ks.Space([ks.Parameter("m", -1, 1, "identity")]), -0.5

    def simulate(theta, rng):
        x = theta + rng.standard_normal((len(theta), 4))
        return np.where(x < limit, np.nan, x)

    def log_prob(theta, x):
        below = np.isnan(x)
        seen = stats.norm.logpdf(np.where(below, 0.0, x), theta)
        return np.where(below, stats.norm.logcdf(limit, theta), seen).sum(axis=1)

    def score(theta, x):
        below = np.isnan(x)
        hazard = -np.exp(stats.norm.logpdf(limit, theta) - stats.norm.logcdf(limit, theta))
        return np.where(below, hazard, np.where(below, 0.0, x) - theta).sum(axis=1, keepdims=True)

    parts = {"simulate": simulate, "log_prob": log_prob, "score": score}
    model = M.from_functions(space, (4,), missing=True, **parts)
    report = ks.check_model(model, draws=1000, show=False)
    assert report.passed, str(report)
    again = M.with_missing(model, 0.0)
    x = model.simulate(np.zeros((5, 1)), rng())
    assert np.allclose(again.log_prob(np.zeros((5, 1)), x), model.log_prob(np.zeros((5, 1)), x))
    with pytest.raises(DtypeError, match="missing=True"):
        M.from_functions(space, (4,), missing=True, x_dtype=int, **parts)
    with pytest.raises(NonFiniteError, match="with_missing"):
        M.from_functions(space, (4,), **parts).log_prob(np.zeros((5, 1)), x)


class NoLawOfParts:
    """A model that knows the law of complete data only."""

    def __init__(self, model):
        self._model = model

    def __getattr__(self, name):
        if name.endswith("_observed") or name == "structure":
            if name == "structure":
                return None
            raise AttributeError(name)
        return getattr(self._model, name)


def test_scores_of_complete_data_are_joint_scores_of_what_was_observed():
    """Fisher's identity, held against the exact score of a field; the sign flipped is convicted."""
    field = M.GaussianField(shape=(2, 3))
    joint = M.with_missing(field, 0.4, score="joint")
    report = ks.check_model(joint, draws=60, show=False)
    assert report.passed, str(report)
    assert "E[joint score | x] = score" in report.held
    blind = M.with_missing(NoLawOfParts(field), 0.4)
    assert blind.score_kind == "joint"
    with pytest.raises(MissingError, match="log_prob_observed"):
        blind.log_prob(np.zeros((1, 3)), np.zeros((1, 2, 3)))
    assert ks.check_model(blind, draws=60, show=False).passed
    with pytest.raises(MissingError, match="score='joint'"):
        M.with_missing(NoLawOfParts(field), 0.4, score="exact")


def test_whole_numbers_become_float32_and_only_if_it_holds_them():
    space = ks.Space([ks.Parameter("rate", 0, 1, "log")])

    def counts(scale):
        return M.from_functions(
            space, (3,), x_dtype=np.int64,
            simulate=lambda theta, rng: scale + rng.poisson(np.exp(theta), (len(theta), 3)),
        )  # fmt: skip

    small = M.with_missing(counts(0), 0.3)
    x = small.simulate(np.zeros((50, 1)), rng())
    assert x.dtype == small.x_dtype == np.float32
    assert np.isnan(x).any()
    assert small.score_kind is None
    with pytest.raises(DtypeError, match="float32"):
        M.with_missing(counts(2**24 + 1), 0.3).simulate(np.zeros((50, 1)), rng())


# --- all laws ---

WRAPPED = {
    "Gaussian, clouds": lambda: M.with_missing(M.GaussianField(shape=(3, 3)), M.clouds(0.3, 2)),
    "Student-t, clouds": lambda: M.with_missing(M.StudentTField(shape=(3, 3)), M.clouds(0.3, 2)),
    "Gaussian, fixed": lambda: M.with_missing(M.GaussianField(shape=SMALL), np.eye(4, 5) > 0),
    "places, rate": lambda: M.with_missing(
        M.GaussianField(locations=rng(1).uniform(-3, 3, (9, 2))), 0.3
    ),
    "rows, n differs": lambda: M.with_missing(normal_rows(), M.missing_rows(1, 6)),
    "rows, rate": lambda: M.with_missing(normal_rows(d=1), 0.3),
    "epidemic, visits": lambda: M.with_missing(epidemic(), M.missing_visits(0.3)),
    "epidemic, imperfect tests": lambda: M.with_missing(
        epidemic(sensitivity=0.9, specificity=0.95), 0.2
    ),
}


def epidemic(**tests):
    """Three people who all meet; 200 draws or more, or the law of information is misled by the
    rare paths of so small a model."""
    return M.SIS(weights=np.ones((3, 3)) - np.eye(3), times=range(5), **tests)


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_models_obey_all_laws(name):
    obeys_all_laws(WRAPPED[name](), draws=200 if "epidemic" in name else 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_models_obey_all_laws_in_many_draws(name):
    obeys_all_laws(WRAPPED[name](), draws=600)


def obeys_all_laws(model, draws):
    report = ks.check_model(model, draws=draws, show=False)
    assert report.passed, str(report)
    laws = {f.law: f.verdict for f in report.findings}
    assert laws["E[score] = 0"] == laws["Cov[score] = -E[Hessian]"] == "holds"


def turned_round(model):
    """The likelihood of the entries that were not observed."""

    def log_prob(theta, x):
        return model.log_prob(theta, np.where(np.isnan(x), 0.0, np.nan))

    return faults.Faulty(model, log_prob=log_prob)


def zero_for_nan(model):
    return faults.Faulty(
        model, log_prob=lambda theta, x: model.base.log_prob(theta, np.nan_to_num(x))
    )


@pytest.mark.parametrize("fault", [turned_round, zero_for_nan, faults.flipped_score])
@pytest.mark.parametrize(
    "name",
    [
        "rows, rate",
        pytest.param("Gaussian, clouds", marks=pytest.mark.slow),
        pytest.param("Student-t, clouds", marks=pytest.mark.slow),
    ],
)
def test_planted_faults_are_convicted(fault, name):
    report = ks.check_model(fault(WRAPPED[name]()), draws=100, show=False)
    assert not report.passed, str(report)


def test_a_wrapped_model_is_rebuilt_from_its_description():
    model = WRAPPED["Student-t, clouds"]()
    again = M.build(json.loads(json.dumps(M.describe(model))))
    theta = model.space.uniform(4, rng(), "test")
    x = model.simulate(theta, rng(7))
    assert np.array_equal(again.simulate(theta, rng(7)), x, equal_nan=True)
    assert np.array_equal(again.log_prob(theta, x), model.log_prob(theta, x))
    assert again.name == "student-t-field-missing"
    with pytest.raises(ks.KeepscoreError):
        M.build({"name": "student-t-field-missing", "settings": {"base": 3, "mask": {}}})
    with pytest.raises(UnknownNameError):
        M.build("nothing-missing")


def test_nan_without_a_declaration_names_the_way_out():
    model = M.GaussianField(shape=SMALL)
    x = np.full((1, *SMALL), np.nan)
    for refused in (lambda: model.log_prob(np.zeros((1, 3)), x), lambda: model.given(x)):
        with pytest.raises(NonFiniteError, match="with_missing"):
            refused()
    wrapped = M.with_missing(model, 0.2)
    with pytest.raises(NonFiniteError):
        wrapped.log_prob(np.zeros((1, 3)), np.full((1, *SMALL), np.inf))


@pytest.mark.parametrize("kind", [list, np.float32, np.float64])
def test_lists_and_short_floats_are_taken(kind):
    wrapped = M.with_missing(M.GaussianField(shape=(2, 2)), 0.5)
    x = np.array([[[1.0, np.nan], [0.5, 2.0]]])
    given = x.tolist() if kind is list else x.astype(kind)
    theta = [[0.0, 0.0, -2.0]]
    assert np.allclose(wrapped.log_prob(theta, given), wrapped.log_prob(theta, x), rtol=1e-12)
    assert np.isclose(wrapped.given(given)(theta[0]), wrapped.log_prob(theta, x)[0])


def test_in_a_smaller_box_nan_is_still_meant():
    model = M.with_missing(M.GaussianField(shape=(3, 3)), 0.3)
    space = model.space
    smaller = Narrowed(model, space)
    x = model.simulate(space.grid(2)[:1], rng())
    assert declares_missing(smaller)
    assert np.isfinite(smaller.given(x)(space.grid(2))).all()
