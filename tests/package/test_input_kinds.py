"""The same numbers give the same result, whatever they are held in.

A property over the public functions: bounds, theta, x, times, weights, levels and counts as int,
float32, lists, NumPy scalars, 0-d, read-only, strided, Fortran-ordered or byte-swapped arrays give
bit for bit what float64 arrays give. All values here are exact in float32, most are whole numbers.
"""

import functools
import json

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from training_helpers import Tiny
from typer.testing import CliRunner

import keepscore as ks
from keepscore.cli.app import app
from keepscore.errors import DomainError, DtypeError, KeepscoreError, ShapeError
from keepscore.inference import profile_curve
from keepscore.likelihood import Likelihood
from keepscore.space import Parameter, Space
from keepscore.surrogate import Surrogate

pytestmark = pytest.mark.filterwarnings("ignore::keepscore.errors.KeepscoreWarning")


def read_only(values):
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


def strided(values):
    array = np.asarray(values, dtype=np.float64)
    return np.repeat(array, 2, axis=0)[::2] if array.ndim else array


def whole(kind):
    """As integers where all values are, else as they were."""

    def held(values):
        array = np.asarray(values, dtype=np.float64)
        cast = array.astype(kind)
        return cast if np.array_equal(cast, array) else array

    return held


ARRAYS = {
    "float64": lambda v: np.array(v, dtype=np.float64),
    "float32": lambda v: np.array(v, dtype=np.float32),
    "int64": whole(np.int64),
    "int8": whole(np.int8),
    "list": lambda v: np.asarray(whole(np.int64)(v)).tolist(),
    "scalars": lambda v: [np.float32(a) for a in v] if np.ndim(v) == 1 else np.float32(v).tolist(),
    "read-only": read_only,
    "strided": strided,
    "fortran": lambda v: np.asfortranarray(np.array(v, dtype=np.float64)),
    "byte-swapped": lambda v: np.array(v, dtype=np.dtype(np.float64).newbyteorder("S")),
}
NUMBERS = {
    "float": float,
    "int": lambda v: int(v) if float(v).is_integer() else float(v),
    "float64": np.float64,
    "float32": np.float32,
    "int64": lambda v: np.int64(v) if float(v).is_integer() else np.float16(v),
    "0-d": lambda v: np.array(v),
    "0-d float32": lambda v: np.array(v, dtype=np.float32),
}
COUNTS = {"int": int, "int64": np.int64, "uint8": np.uint8, "0-d": np.array}
PLAIN = {"bounds": "float", "theta": "float64", "x": "float64", "number": "float", "count": "int"}

kinds = st.fixed_dictionaries(
    {
        "bounds": st.sampled_from(sorted(NUMBERS)),
        "theta": st.sampled_from(sorted(ARRAYS)),
        "x": st.sampled_from(sorted(ARRAYS)),
        "number": st.sampled_from(sorted(NUMBERS)),
        "count": st.sampled_from(sorted(COUNTS)),
    }
)
quickly = functools.partial(
    settings, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


class As:
    """How the numbers of one example are held: as_.theta(values), as_.x(values), ..."""

    def __init__(self, kind):
        number, count = NUMBERS[kind["number"]], COUNTS[kind["count"]]
        self.bounds, self.number, self.count = NUMBERS[kind["bounds"]], number, count
        self.theta, self.x = ARRAYS[kind["theta"]], ARRAYS[kind["x"]]

    def parameter(self, name, low, high, transform="identity", shift=0):
        b = self.bounds
        return Parameter(name, b(low), b(high), transform, b(shift), b(0.5), b(0.5))


def mean_model(as_):
    """d = 1: the mean of four numbers with variance one."""
    space = Space([as_.parameter("mean", -2, 2)])

    def log_prob(theta, x):  # in x's own dtype first: int8 or float32 would show
        total, squares = x.sum(axis=1), (x * x * 100).sum(axis=1) / 100
        return -0.5 * (squares - 2 * theta[:, 0] * total + 4 * theta[:, 0] ** 2)

    return ks.models.from_functions(
        space,
        (4,),
        simulate=lambda t, rng: t + rng.standard_normal((len(t), 4)),
        log_prob=log_prob,
        score=lambda t, x: x.sum(axis=1, keepdims=True) - 4 * t,
    )


def docs_model(as_):
    """d = 2: the example of docs/adding_a_model.md."""
    space = Space([as_.parameter("mean", -1, 1), as_.parameter("sd", -1, 1, "log")])

    def log_prob(theta, x):
        z = (x - theta[:, :1]) / np.exp(theta[:, 1:])
        return -0.5 * (z**2).sum(1) - 4 * theta[:, 1]

    def score(theta, x):
        z = (x - theta[:, :1]) / np.exp(theta[:, 1:])
        return np.stack([z.sum(1) / np.exp(theta[:, 1]), (z**2).sum(1) - 4], axis=1)

    return ks.models.from_functions(
        space,
        (4,),
        simulate=lambda t, rng: t[:, :1] + np.exp(t[:, 1:]) * rng.standard_normal((len(t), 4)),
        log_prob=log_prob,
        score=score,
    )


DESIGN = np.array(
    [[1, a, b, c, d] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1) for d in (-1, 1)]
)


def regression(as_):
    """d = 6: five coefficients of a factorial design and the log of the noise."""
    names = [f"b{k}" for k in range(5)]
    space = Space([*(as_.parameter(n, -2, 2) for n in names), as_.parameter("sd", -2, 1, "log")])

    def parts(theta, x):
        return (x - theta[:, :5] @ DESIGN.T) / np.exp(theta[:, 5:])

    def score(theta, x):
        z = parts(theta, x)
        return np.column_stack([z @ DESIGN / np.exp(theta[:, 5:]), (z**2).sum(1) - 16])

    return ks.models.from_functions(
        space,
        (16,),
        simulate=lambda t, rng: (
            t[:, :5] @ DESIGN.T + np.exp(t[:, 5:]) * rng.standard_normal((len(t), 16))
        ),
        log_prob=lambda t, x: -0.5 * (parts(t, x) ** 2).sum(1) - 16 * t[:, 5],
        score=score,
    )


def small_epidemic(as_):
    weights = as_.theta([[0, 1, 0.5], [1, 0, 2], [0.5, 2, 0]])
    space = Space([as_.parameter(n, -1, 1, "log") for n in ("lambda", "mu")], {"eta": 0.125})
    return ks.models.SIS(
        weights=weights,
        times=as_.theta([0, 1, 3, 4]),
        self_infection=as_.number(0.125),
        initial=as_.theta([0.5, 0.25, 0.5]),
        space=space,
    )


def small_field(as_):
    space = Space(
        [as_.parameter("l_x", -1, 1, "log"), as_.parameter("l_y", -1, 1, "log")],
        {"eps": as_.number(0.5), "sigma2": as_.number(1)},
    )
    return ks.models.GaussianField(as_.count(3), extent=as_.number(2), space=space)


def scattered_field(as_):
    space = Space(
        [as_.parameter("l_x", -1, 1, "log"), as_.parameter("l_y", -1, 1, "log")],
        {"eps": as_.number(0.5)},
    )
    places = as_.theta([[0, 0], [1, 0], [0, 2], [2, 2], [3, 1]])
    return ks.models.GaussianField(locations=places, space=space)


@functools.cache
def _network(size, d):
    return Tiny(jax.random.key(0), size, d)


def surrogate_of(build):
    """A surrogate (an untrained network) of the same space and shape."""

    def of(as_):
        model = build(as_)
        size = int(np.prod(model.x_shape))
        return Surrogate(_network(size, model.space.d), model.space, model.x_shape)

    return of


MODELS = {
    "mean": mean_model,
    "docs": docs_model,
    "regression": regression,
    "sis": small_epidemic,
    "field": small_field,
    "scattered field": scattered_field,
    "surrogate, d = 1": surrogate_of(mean_model),
    "surrogate, d = 2": surrogate_of(docs_model),
    "surrogate, d = 6": surrogate_of(regression),
}


@functools.cache
def observations(name, groups):
    """Exact in float32 and, half of them, whole: (n, *x_shape) or (3, n, *x_shape)."""
    shape = MODELS[name](As(PLAIN)).x_shape
    rng = np.random.default_rng(len(name))
    x = rng.integers(0, 2, (3, 3, *shape)) if name == "sis" else rng.integers(-2, 3, (3, 3, *shape))
    return (x if groups else x[0]).astype(np.float64)


def numbers(result):
    """A flat dictionary of what a result holds."""
    out = {}
    for key, value in vars(result).items():
        if isinstance(value, (np.ndarray, float, int, bool, np.generic)):
            out[key] = np.asarray(value)
        elif key == "maximum":
            out |= {f"maximum.{k}": v for k, v in numbers(value).items()}
    return out


def inferences(name, groups, kind):
    """Everything inference says of one likelihood, with all numbers held as told."""
    as_ = As(kind)
    source = MODELS[name](as_)
    like = source.given(as_.x(observations(name, groups)))
    d = like.space.d
    theta0 = np.full((3, d) if groups else d, 0.25)
    some = np.stack([np.full(d, v) for v in (-0.5, 0.0, 1.0)])
    found = ks.mle(like, grid=as_.count(5 if d < 3 else 3))
    grid = None if d > 3 else as_.count(9 if d < 3 else 4)
    chosen = ks.confidence_set(like, as_.number(0.875), grid=grid)
    first = like.space.names[0]
    out = {
        "value": like(as_.theta(some)),
        "gradient": like.gradient(as_.theta(some)),
        "raw": like.space.to_raw(as_.theta(some)),
        "box": np.concatenate(like.space.box("train")),
        "grid": like.space.grid(as_.count(2)),
        "intervals": chosen.intervals.working,
        "raw intervals": chosen.intervals.raw,
        "contains": chosen.contains(as_.theta(some)),
        "profile": profile_curve(like, first, as_.theta([-0.5, 0, 0.5])),
        "one": like.select(as_.count(0))(as_.theta(some)),
        **{f"mle {k}": v for k, v in numbers(found).items()},
    }
    test = ks.lrt(like, as_.theta(theta0))
    one = ks.lrt(like, {first: as_.number(0.25)}, parameters=[first])
    out |= {f"lrt {k}": v for k, v in numbers(test).items()}
    out |= {f"one {k}": v for k, v in numbers(one).items()}
    if d < 3 and not name.endswith("field"):
        out |= {"volume": chosen.volume, "mask": chosen.mask(as_.count(5))}
        out |= {"mask of two": chosen.mask([as_.count(4)] * d)}
    return {k: np.asarray(v) for k, v in out.items()}


@functools.cache
def expected(function, *arguments):
    return function(*arguments, PLAIN)


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype, key
        np.testing.assert_array_equal(found[key], value, err_msg=key)


@pytest.mark.parametrize("name", MODELS)
@quickly(max_examples=2)
@given(groups=st.booleans(), kind=kinds)
def test_inference(name, groups, kind):
    assert_same(inferences(name, groups, kind), expected(inferences, name, groups))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@quickly(max_examples=60)
@given(groups=st.booleans(), kind=kinds)
def test_inference_at_length(name, groups, kind):
    assert_same(inferences(name, groups, kind), expected(inferences, name, groups))


@pytest.mark.parametrize("kind", sorted(NUMBERS))
@pytest.mark.parametrize("name", ["mean", "docs", "regression"])
def test_every_kind_of_bound(name, kind):
    """Each by itself: the fault of integer bounds hid in one kind of one argument."""
    found = inferences(name, True, {**PLAIN, "bounds": kind})
    assert_same(found, expected(inferences, name, True))
    space = MODELS[name](As({**PLAIN, "bounds": kind})).space
    assert all(bound.dtype == np.float64 for region in ("base", "train", "test")
               for bound in space.box(region))  # fmt: skip
    assert all(type(v) is float for p in space.parameters for k, v in vars(p).items()
               if k not in ("name", "transform", "prior"))  # fmt: skip


@pytest.mark.parametrize("kind", sorted(ARRAYS))
@pytest.mark.parametrize("name", ["mean", "surrogate, d = 2"])
def test_every_kind_of_array(name, kind):
    found = inferences(name, True, {**PLAIN, "x": kind, "theta": kind})
    assert_same(found, expected(inferences, name, True))


def studies(kind):
    """Calibration, coverage, simulation-based calibration and both tests of a surrogate."""
    as_ = As(kind)
    model = docs_model(as_)
    count, level = as_.count, as_.number(0.75)
    calibration = ks.calibrate(
        model, model, group_size=count(2), n=count(120), level=level, seed=count(3)
    )
    local = ks.local_coverage(
        model,
        model,
        level=level,
        theta=as_.theta([[0, 0], [0.5, -0.5]]),
        groups=count(5),
        group_size=count(2),
        calibration=calibration,
        seed=count(1),
    )
    ranks = ks.sbc(model, model, n=count(50), group_size=count(2), draws=count(9), seed=count(4))
    other = surrogate_of(docs_model)(as_)
    test = ks.etest(other, model, [count(2), count(2)], count(3), count(2), count(5))
    loss = ks.ltest(other, model, count(40), count(6), count(20), count(10))
    theta = as_.theta([[0, 0.5], [0.5, 0]])
    like = model.given(as_.x(observations("docs", True)[:, :2]))
    sets = ks.confidence_set(like, level, calibration=calibration, grid=as_.count(12))
    out = {
        "check": json.dumps(calibration.to_dict()),
        "critical": calibration.critical(theta, level),
        "p": calibration.p_value(as_.theta([1, 2.5]), theta),
        "local": local.statistics,
        "local covered": local.covered["calibrated"],
        "ranks": ranks.ranks,
        "ranks p": ranks.p_values,
        "etest": json.dumps(test.to_dict()),
        "ltest": json.dumps(loss.to_dict()),
        "projection": sets.intervals.raw,
    }
    return {k: np.asarray(v) for k, v in out.items()}


@quickly(max_examples=3)
@given(kind=kinds)
def test_calibration_coverage_sbc_and_the_tests_of_a_surrogate(kind):
    assert_same(studies(kind), expected(studies))


@quickly(max_examples=60)
@given(kind=kinds, region=st.sampled_from(["base", "train", "test"]))
def test_spaces(kind, region):
    def of(kind):
        as_ = As(kind)
        parameters = [as_.parameter("a", -1, 2), as_.parameter("b", 0, 4, "log", 2)]
        space = Space(parameters, {"c": as_.number(3)})
        rng = np.random.default_rng(0)
        theta = as_.theta([[0, 1], [1.5, 3]])
        assert json.dumps(space.to_dict()) == json.dumps(Space.from_dict(space.to_dict()).to_dict())
        return {
            "box": np.array(space.box(region)),
            "grid": space.grid((as_.count(3), as_.count(2)), region),
            "uniform": space.uniform(as_.count(5), rng, region),
            "raw": space.to_raw(theta),
            "working": space.to_working(as_.theta([[0, 4], [1, 6]])),
            "clip": space.clip(theta, region),
            "contains": space.contains(theta, region),
            "json": np.array(json.dumps(space.to_dict())),
        }

    assert_same(of(kind), of(PLAIN))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (True, DtypeError),
        ("1", DtypeError),
        (1j, DtypeError),
        (None, DtypeError),
        (np.bool_(True), DtypeError),
        (np.array([1.0]), ShapeError),
        ([1.0], ShapeError),
        ([1.0, [2.0]], ShapeError),
        (2**53 + 1, DomainError),
        (10**400, DomainError),
        (float("nan"), DomainError),
    ],
)
@pytest.mark.parametrize("place", ["lower", "upper", "shift", "train_margin", "test_margin"])
def test_what_is_no_number_is_refused(place, bad, error):
    if place == "train_margin" and bad is None:  # left to the space, which knows how many there are
        assert Space([Parameter("a", -1, 1, train_margin=None)]).parameters[0].train_margin == 0.2
        return
    if place in ("lower", "upper") and bad is None:  # a prior may stand for it, but there is none
        error = DomainError
    with pytest.raises(error, match="of 'a'"):
        Parameter(**{"name": "a", "lower": -1, "upper": 1, place: bad})
    if error is not DomainError:
        with pytest.raises(KeepscoreError):
            Space([Parameter("a", -1, 1)], {"b": bad})


def test_observations_are_never_changed_into_others():
    space = Space([Parameter("p", -1, 1, "identity")])
    model = ks.models.from_functions(
        space,
        (2,),
        simulate=lambda t, rng: np.zeros((len(t), 2), np.uint8),
        log_prob=lambda t, x: -(t[:, 0] ** 2) * x.sum(axis=1),
        score=lambda t, x: -2 * t * x.sum(axis=1, keepdims=True),
        x_dtype=np.uint8,
    )
    for bad in (300, -1, 0.5):
        with pytest.raises(DtypeError, match="uint8"):
            model.given([[bad, 1]])
        with pytest.raises(DtypeError, match="uint8"):
            model.log_prob([[0.0]], [[bad, 1]])
    assert model.given([[200.0, 100.0]])([1.0]) == model.given(np.array([[200, 100]]))([1.0])


def test_a_likelihood_keeps_its_own_observations():
    """`given` is asked again and again; what the caller does to xs meanwhile does not matter."""
    for name in MODELS:
        as_, x = As(PLAIN), observations(name, True).copy()
        like = MODELS[name](as_).given(x)
        theta = np.zeros(like.space.d)
        before = like(theta)
        x[:] = 1 - x
        np.testing.assert_array_equal(like(theta), before, err_msg=name)


def test_float32_values_of_a_likelihood_are_carried_in_float64():
    """A likelihood of one's own may answer in float32; brackets and sums here do not."""
    space = Space([Parameter("a", -1, 1, "identity")])

    def value(theta, group):
        return np.float32(-8 * (theta[:, 0] - 0.25) ** 2)

    def gradient(theta, group):
        return value(theta, group), np.float32(-16 * (theta - 0.25))

    like = Likelihood(space, 1, 1, value, gradient, lambda t: value(t, None)[None])
    sets = ks.confidence_set(like)
    low, high = sets.intervals.working[0]
    half = np.sqrt(3.841458820694124 / 16)
    np.testing.assert_allclose([low, high], [0.25 - half, 0.25 + half], atol=1e-4)
    assert sets.intervals.working.dtype == np.float64
    assert like(np.array([[0.25]])).dtype == np.float64
    assert sets.volume == pytest.approx(2 * half, rel=1e-3)


@pytest.mark.parametrize("kind", ["int64", "float32", "fortran", "byte-swapped"])
def test_the_command_line_reads_any_kind_of_array(tmp_path, kind):
    model = docs_model(As(PLAIN))
    network = ks.networks.resolve("1k", model.x_shape, 2, None, jax.random.key(0))
    Surrogate(network, model.space, model.x_shape).save(tmp_path / "run")
    x = observations("docs", False)
    answers = []
    for name in ("float64", kind):
        np.save(tmp_path / f"{name}.npy", ARRAYS[name](x))
        words = ["infer", str(tmp_path / "run"), str(tmp_path / f"{name}.npy"), "--json"]
        done = CliRunner().invoke(app, [*words, "--test", "mean=0.25"])
        assert done.exit_code == 0, done.output
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]
