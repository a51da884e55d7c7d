"""Your own model from plain functions, in NumPy or JAX.

    model = ks.models.from_functions(space, x_shape, simulate=f, log_prob=g)

All functions work on batches, in working parameters:

    simulate(theta (n, d), rng)              -> (n, *x_shape)
    log_prob(theta (n, d), x (n, *x_shape))  -> (n,)
    score(theta, x)                          -> (n, d)

Row i of the result depends on row i of the inputs only. Where no score is given it comes from
automatic differentiation when `log_prob` can be traced by JAX, and from central differences if not:

    D(h) = [g(theta + h e_k) - g(theta - h e_k)] / 2h

Richardson's combination [4 D(h/2) - D(h)] / 3 removes the h^2 error; |D(h/2) - D(h)| / 3 bounds the
rest.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from keepscore.checks import (
    Floats,
    as_declared,
    as_floats,
    as_theta,
    require_count,
    require_flag,
    require_name,
)
from keepscore.errors import (
    DtypeError,
    KeepscoreWarning,
    MissingError,
    NonFiniteError,
    ShapeError,
    unknown_name,
)
from keepscore.likelihood import Likelihood, as_groups
from keepscore.models.base import ScoreKind, Symmetry, as_pairs, given_by_rows
from keepscore.models.compiled import Compiled
from keepscore.models.identity import fingerprint
from keepscore.models.traced_rows import traced_rows
from keepscore.space import Space

Simulate = Callable[[Floats, np.random.Generator], NDArray[Any]]
SimulateWithScore = Callable[[Floats, np.random.Generator], tuple[NDArray[Any], NDArray[Any]]]
OfPairs = Callable[[Floats, NDArray[Any]], Any]

STRUCTURES = (
    *("markov", "timed-markov", "gaussian-field", "stationary-field", "iid", "series"),
    *("events", "gaussian-sites", "markov-graphs"),
)

# The error of Richardson's combination is about h^4 + 1e-16 / h (in units of the box): least here.
RELATIVE_STEP = 1e-3
# Where the estimated error is above this, relative to the slope, steps become shorter.
GOOD_DIFFERENCE, SHORTER_STEPS = 1e-4, 7


@dataclass(frozen=True, eq=False)
class FunctionModel:
    """A model whose parts are functions of the user; made by `from_functions`."""

    name: str
    space: Space
    x_shape: tuple[int, ...]
    x_dtype: np.dtype[Any]
    simulate_function: Simulate
    log_prob_function: OfPairs | None
    score_function: OfPairs | None
    joint_function: SimulateWithScore | None
    symmetries: tuple[Symmetry, ...]
    structure: str | None
    missing: bool = False
    observed_function: OfPairs | None = None
    observed_score_function: OfPairs | None = None

    @property
    def score_kind(self) -> ScoreKind | None:
        if self.joint_function is not None:
            return "joint"
        return None if self.score_function is None else "exact"

    def settings(self) -> dict[str, Any]:
        functions = {
            "simulate": self.simulate_function,
            "log_prob": self.log_prob_function,
            "score": self.score_function,
            "joint": self.joint_function,
            "log_prob_observed": self.observed_function,
            "score_observed": self.observed_score_function,
        }
        given = {key: f for key, f in functions.items() if f is not None}
        return {
            "functions": {key: _name_of(f) for key, f in given.items()},
            "code": {key: fingerprint(_written(f)) for key, f in given.items()},
            "x_shape": list(self.x_shape),
            "x_dtype": self.x_dtype.str,
            **({"missing": True} if self.missing else {}),
        }

    def simulate(self, theta: ArrayLike, rng: np.random.Generator) -> NDArray[Any]:
        rows = as_theta(theta, self.space.d)
        if len(rows) == 0:
            return np.empty((0, *self.x_shape), self.x_dtype)
        with _in_double():
            x = self.simulate_function(rows.copy(), rng)
        return self._shaped_x(x, len(rows), "simulate")

    def simulate_with_score(
        self, theta: ArrayLike, rng: np.random.Generator
    ) -> tuple[NDArray[Any], Floats]:
        rows = as_theta(theta, self.space.d)
        if self.joint_function is None or len(rows) == 0:
            x = self.simulate(rows, rng)
            return x, self.score(rows, x)
        with _in_double():
            both = self.joint_function(rows.copy(), rng)
        if not isinstance(both, (tuple, list)) or len(both) != 2:
            raise ShapeError(
                f"simulate_with_joint_score of {self.name!r} must return (x, joint score); "
                f"got {type(both).__name__}."
            )
        x = self._shaped_x(both[0], len(rows), "simulate_with_joint_score")
        return x, self._floats(both[1], rows.shape, "simulate_with_joint_score (score)")

    def log_prob(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        rows, data = self._pairs(theta, x)
        if self.log_prob_function is None:
            raise MissingError(
                f"Model {self.name!r} was given no log_prob; only its simulator can be used."
            )
        if len(rows) == 0:
            return np.empty(0)
        return self._floats(_call(self.log_prob_function, rows, data), (len(rows),), "log_prob")

    def score(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        rows, data = self._pairs(theta, x)
        if self.score_function is None:
            raise MissingError(
                f"Model {self.name!r} has no score: give from_functions a log_prob or a score, "
                "or train with BCE, which needs none."
            )
        if len(rows) == 0:
            return np.empty((0, self.space.d))
        found = self._floats(_call(self.score_function, rows, data), rows.shape, "score")
        return self._without_nan(found, "score") if self.missing else found

    def log_prob_and_score(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        return self.log_prob(theta, x), self.score(theta, x)

    def score_error(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """Estimated error (n, d) of a central-difference score at these pairs."""
        rows, data = self._pairs(theta, x)
        return central_differences(self.log_prob, self.space, rows, data)[1]

    def given(self, xs: ArrayLike, *, each: bool = False) -> Likelihood:
        """Likelihood of (n, *x_shape), one theta for all (with each=True, one per observation), or
        of groups (g, n, *x_shape)."""
        groups, single = as_groups(xs, self.x_shape, each, self.missing)
        own = self._observed(groups)  # once, not at every call of log_prob
        like = given_by_rows(self, own[0] if single else own)
        # What is missing makes gradients NaN where a function forgets it, which is said outside.
        if self.log_prob_function is None or self.missing:
            return like
        return replace(
            like, traceable=traced_rows(self.log_prob_function, own.copy(), self.space.d)
        )

    def _observed(self, x: NDArray[Any]) -> NDArray[Any]:
        """Observations as the functions expect them, whatever they were given as: float64 for a
        model of real numbers, x_dtype itself for whole ones, and never another value."""
        wanted = np.dtype(np.float64) if self.x_dtype.kind == "f" else self.x_dtype
        if x.dtype == wanted:
            return x
        with np.errstate(invalid="ignore"):
            cast = x.astype(wanted)
        changed = (cast != x) & ~(np.isnan(cast) & np.isnan(x))
        if changed.any():
            bad = x[changed][0]
            raise DtypeError(
                f"x of {self.name!r} is {self.x_dtype}; got {x.dtype} with {bad.item()!r}, which "
                "is no such number. Give observations of that kind, or the model another x_dtype."
            )
        return cast

    def _pairs(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, NDArray[Any]]:
        rows, data = as_pairs(self, theta, x)
        return rows, self._observed(data)

    def _without_nan(self, score: Floats, source: str) -> Floats:
        if np.isnan(score).any():
            raise NonFiniteError(
                f"{source} of {self.name!r} is NaN in {int(np.isnan(score).any(axis=1).sum())} "
                "row(s) where x has NaN. JAX carries a NaN through jnp.where into the gradient: "
                "replace it first, x = jnp.where(observed, x, 0.0), then leave out the terms."
            )
        return score

    def _shaped_x(self, x: ArrayLike, n: int, source: str) -> NDArray[Any]:
        # No check for NaN here: `ks.simulate` counts and reports invalid simulations itself.
        return as_declared(x, (n, *self.x_shape), self.x_dtype, f"{source} of {self.name!r}")

    def _floats(self, values: ArrayLike, shape: tuple[int, ...], source: str) -> Floats:
        return as_declared(values, shape, np.dtype(np.float64), f"{source} of {self.name!r}")


@dataclass(frozen=True, eq=False)
class ObservedFunctionModel(FunctionModel):
    """The same with a likelihood of what was observed, x with NaN elsewhere."""

    def log_prob_observed(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        rows, data = self._with_holes(theta, x)
        assert self.observed_function is not None
        if len(rows) == 0:
            return np.empty(0)
        found = _call(self.observed_function, rows, data)
        return self._floats(found, (len(rows),), "log_prob_observed")

    def log_prob_and_score_observed(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        rows, data = self._with_holes(theta, x)
        value = self.log_prob_observed(rows, data)
        assert self.observed_score_function is not None
        if len(rows) == 0:
            return value, np.empty((0, self.space.d))
        found = _call(self.observed_score_function, rows, data)
        score = self._floats(found, rows.shape, "score_observed")
        return value, self._without_nan(score, "score_observed")

    def _with_holes(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        rows, data = as_pairs(self, theta, x, missing=True)
        return rows, np.asarray(data, dtype=np.float64)


def from_functions(
    space: Space,
    x_shape: Sequence[int],
    *,
    simulate: Simulate,
    log_prob: OfPairs | None = None,
    score: OfPairs | None = None,
    simulate_with_joint_score: SimulateWithScore | None = None,
    name: str = "custom",
    x_dtype: DTypeLike = np.float64,
    declares: Sequence[Symmetry | str] = (),
    vectorized: bool = True,
    missing: bool = False,
    log_prob_observed: OfPairs | None = None,
    score_observed: OfPairs | None = None,
) -> FunctionModel:
    """A model from plain functions of batches of theta and x, in NumPy or JAX.

    Args:
        space: The parameters. Functions get working values.
        x_shape: The shape of one observation.
        simulate: simulate(theta (n, d), rng) -> x (n, *x_shape).
        log_prob: log_prob(theta, x) -> (n,), up to a constant in theta.
        score: score(theta, x) -> (n, d). Without it, scores come from JAX where `log_prob` can be
            traced, and from central differences if not.
        simulate_with_joint_score: For likelihoods that cannot be computed: (theta, rng) -> (x, the
            score of everything drawn along the simulation), whose mean given x is the score.
        name: What to call the model.
        x_dtype: The dtype of x.
        declares: Symmetries, and at most one structure that networks may rely on ("markov",
            "gaussian-field", "stationary-field", "iid", "series", "events"); `ks.check_model` tests
            both. "series": x is (T, ...), rows in time order. "events": x is (N,), times of at most
            N events in order, NaN after the last one (with missing=True).
        vectorized: False where the functions are of one data set: simulate(theta (d,), rng) -> x,
            log_prob(theta (d,), x) -> a number, score(theta (d,), x) -> (d,). JAX functions are
            then batched by `jax.vmap`, others row by row.
        missing: True where NaN in x means "not observed": `simulate` may give it, and `log_prob`
            (and `score`) understand it. For values that are missing because of what they are; for
            holes that come by chance wrap the model of complete data by `ks.models.with_missing`.
        log_prob_observed: log_prob_observed(theta, x) -> (n,), the likelihood of what was observed,
            x with NaN elsewhere; `with_missing` uses it.
        score_observed: Its score; without it, from JAX or from central differences, as above.

    Returns:
        The model.

    Raises:
        ShapeError, DtypeError: x_shape or x_dtype is none; `declares` is no list.
        UnknownNameError: No such structure.
        MissingError: `score_observed` without `log_prob_observed`.

    Example:
        >>> import keepscore as ks
        >>> space = ks.Space([ks.Parameter("mean", -2, 2, "identity")])
        >>> model = ks.models.from_functions(
        ...     space,
        ...     (3,),
        ...     simulate=lambda theta, rng: theta + rng.standard_normal((len(theta), 3)),
        ...     log_prob=lambda theta, x: -0.5 * ((x - theta) ** 2).sum(axis=1),
        ...     score=lambda theta, x: (x - theta).sum(axis=1, keepdims=True),
        ... )
        >>> model.score([[0.5]], [[1.0, 1.0, 2.0]])
        array([[2.5]])
    """
    functions = {
        "simulate": simulate,
        "log_prob": log_prob,
        "score": score,
        "simulate_with_joint_score": simulate_with_joint_score,
        "log_prob_observed": log_prob_observed,
        "score_observed": score_observed,
    }
    for key, function in functions.items():
        if not callable(function) and (function is not None or key == "simulate"):
            raise DtypeError(f"{key} must be a function; got {function!r}.")
    if not require_flag(vectorized, "vectorized"):
        simulate = EachSimulation(simulate)
        if simulate_with_joint_score is not None:
            simulate_with_joint_score = EachSimulation(simulate_with_joint_score, pair=True)
        log_prob = None if log_prob is None else EachPair(log_prob)
        score = None if score is None else EachPair(score)
        log_prob_observed = None if log_prob_observed is None else EachPair(log_prob_observed)
        score_observed = None if score_observed is None else EachPair(score_observed)
    if score_observed is not None and log_prob_observed is None:
        raise MissingError("score_observed is the score of log_prob_observed: give that too.")
    if not isinstance(space, Space):
        raise DtypeError(f"space must be a keepscore.Space; got {type(space).__name__}.")
    model_class = FunctionModel if log_prob_observed is None else ObservedFunctionModel
    model = model_class(
        name=require_name(name, "The name of a model"),
        space=space,
        x_shape=_shape(x_shape),
        x_dtype=_real_dtype(x_dtype),
        simulate_function=simulate,
        log_prob_function=log_prob,
        score_function=score,
        joint_function=simulate_with_joint_score,
        symmetries=tuple(s for s in declares if isinstance(s, Symmetry)),
        structure=_structure(declares),
        missing=_float_if_missing(missing, x_dtype),
        observed_function=log_prob_observed,
        observed_score_function=score_observed,
    )
    derived: dict[str, OfPairs] = {}
    # What uses JAX has imported it.
    if log_prob is not None and (score is None or "jax" in sys.modules):
        if is_traceable(log_prob, space.d, model.x_shape, model.x_dtype):
            written = getattr(log_prob, "written", log_prob)
            derived["log_prob_function"] = Compiled(log_prob, written)
            if score is None:
                derived["score_function"] = AutodiffScore(log_prob)
        elif score is None:
            derived["score_function"] = DifferenceScore(log_prob, space)
            _warn_of_differences(model)
    if score_observed is None and log_prob_observed is not None:
        traceable = is_traceable(log_prob_observed, space.d, model.x_shape, np.float64)
        derived["observed_score_function"] = (
            AutodiffScore(log_prob_observed)
            if traceable
            else DifferenceScore(log_prob_observed, space)
        )
    return replace(model, **derived) if derived else model  # type: ignore[arg-type]


def _float_if_missing(missing: bool, x_dtype: DTypeLike) -> bool:
    if require_flag(missing, "missing") and _real_dtype(x_dtype).kind != "f":
        raise DtypeError(
            f"missing=True needs x of floating numbers, which can be NaN; x_dtype is {x_dtype}. "
            "np.float32 holds whole numbers up to 2^24 exactly."
        )
    return bool(missing)


def _shape(x_shape: Sequence[int]) -> tuple[int, ...]:
    try:
        sides = tuple(x_shape)
    except TypeError:
        raise ShapeError(f"x_shape is a shape, such as (3,); got {x_shape!r}.") from None
    return tuple(require_count(side, "a side of x_shape", minimum=0) for side in sides)


def _real_dtype(x_dtype: DTypeLike) -> np.dtype[Any]:
    try:
        dtype = np.dtype(x_dtype)
    except (TypeError, ValueError):
        raise DtypeError(f"x_dtype must be a NumPy dtype; got {x_dtype!r}.") from None
    if dtype.kind not in "biuf":
        raise DtypeError(f"x_dtype must be a dtype of real numbers; got {dtype}.")
    return dtype


def _structure(declares: Sequence[Symmetry | str]) -> str | None:
    """The one structure among what is declared."""
    if isinstance(declares, (str, Symmetry)):
        raise DtypeError(f"declares is a list of declarations; got {declares!r} itself.")
    others = [s for s in declares if not isinstance(s, Symmetry)]
    for name in others:
        if not isinstance(name, str) or name not in STRUCTURES:
            raise unknown_name("structure", name, STRUCTURES)
    if len(others) > 1:
        raise DtypeError(f"A model has at most one structure; got {', '.join(others)}.")
    return others[0] if others else None


@dataclass(frozen=True)
class EachSimulation:
    """A simulator of one data set, row by row."""

    function: Callable[..., Any]
    pair: bool = False

    @property
    def written(self) -> Any:
        return self.function

    def __call__(self, theta: Floats, rng: np.random.Generator) -> Any:
        found = [self.function(row, rng) for row in theta]
        if not self.pair:
            return _stacked(found, self.function)
        if not all(isinstance(both, (tuple, list)) and len(both) == 2 for both in found):
            raise ShapeError(f"{_name_of(self.function)} must return (x, joint score).")
        x, score = zip(*found, strict=True)
        return _stacked(x, self.function), _stacked(score, self.function)


@dataclass(frozen=True)
class EachPair:
    """A function of one theta (d,) and one x, on rows of both."""

    function: OfPairs

    @property
    def written(self) -> Any:
        return self.function

    def __call__(self, theta: Floats, x: NDArray[Any]) -> Any:
        import jax

        try:
            return jax.vmap(self.function)(theta, x)
        except Exception:  # not written in JAX; under its tracing that is the answer
            if isinstance(theta, jax.core.Tracer):
                raise
        found = [self.function(t, one) for t, one in zip(theta, x, strict=True)]
        return _stacked(found, self.function)


def _stacked(found: Sequence[Any], function: Callable[..., Any]) -> NDArray[Any]:
    shapes = {np.shape(one) for one in found}
    if len(shapes) > 1:
        raise ShapeError(f"{_name_of(function)} must return one shape; got {sorted(shapes)}.")
    return np.stack([np.asarray(one) for one in found])


@dataclass(frozen=True)
class AutodiffScore:
    """d log_prob / d theta by JAX, in float64: the gradient of the sum, as rows are independent."""

    log_prob: OfPairs
    compiled: Compiled = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        written = getattr(self.log_prob, "written", self.log_prob)
        object.__setattr__(self, "compiled", Compiled(_Gradient(self.log_prob), written))

    def __call__(self, theta: Floats, x: NDArray[Any]) -> Floats:
        import jax

        with jax.enable_x64(True):
            return np.asarray(self.compiled(np.asarray(theta, dtype=np.float64), x))


@dataclass(frozen=True)
class _Gradient:
    """The gradient itself, as JAX makes it."""

    log_prob: OfPairs

    def __call__(self, theta: Floats, x: NDArray[Any]) -> Any:
        import jax

        return jax.grad(lambda t: self.log_prob(t, x).sum())(jax.numpy.asarray(theta))


@dataclass(frozen=True)
class DifferenceScore:
    """d log_prob / d theta by central differences."""

    log_prob: OfPairs
    space: Space

    def __call__(self, theta: Floats, x: NDArray[Any]) -> Floats:
        return central_differences(self.log_prob, self.space, theta, x)[0]


def central_differences(
    function: OfPairs, space: Space, theta: Floats, x: NDArray[Any]
) -> tuple[Floats, Floats]:
    """Gradient (n, d) of `function(theta, x)` in theta, and its estimated error, both (n, d).

    A step that is too long (a sharp likelihood, or the edge of the support) has a large error; such
    rows are done again with steps of a quarter, and of all the best is kept. Where no step gives
    finite values, gradient and error are not finite either.
    """
    low, high = space.box("base")
    gradient, error = np.full_like(theta, np.nan), np.full_like(theta, np.inf)
    for k in range(space.d):
        step = np.zeros(space.d)
        step[k] = RELATIVE_STEP * (high[k] - low[k])

        def values(rows: NDArray[np.int64], h: Floats) -> Floats:
            found = as_floats(function(theta[rows] + h, x[rows].copy()), "log_prob")
            if found.shape != (len(rows),):
                raise ShapeError(f"log_prob must return shape {(len(rows),)}; got {found.shape}.")
            return found

        rows = np.arange(len(theta))
        for _ in range(SHORTER_STEPS):
            if len(rows) == 0:
                break
            ends = [values(rows, h) for h in (step, -step, step / 2, -step / 2)]
            with np.errstate(invalid="ignore"):
                coarse = (ends[0] - ends[1]) / (2 * step[k])
                fine = (ends[2] - ends[3]) / step[k]
                size = np.max(np.abs(ends), axis=0)
                guess = np.abs(fine - coarse) / 3 + np.finfo(float).eps * size / step[k]
            guess[~np.isfinite(guess)] = np.inf
            better = guess < error[rows, k]
            chosen = rows[better]
            gradient[chosen, k] = ((4 * fine - coarse) / 3)[better]
            error[chosen, k] = guess[better]
            rows = rows[error[rows, k] > GOOD_DIFFERENCE * (1 + np.abs(fine))]
            step = step / 4
    return gradient, error


def is_traceable(function: OfPairs, d: int, x_shape: tuple[int, ...], x_dtype: DTypeLike) -> bool:
    """Can JAX differentiate this function? NumPy functions refuse its tracers."""
    import jax

    with jax.enable_x64(True):
        theta = jax.ShapeDtypeStruct((2, d), np.float64)
        x = jax.ShapeDtypeStruct((2, *x_shape), np.dtype(x_dtype))
        try:
            value = jax.eval_shape(function, theta, x)
            slope = jax.eval_shape(jax.grad(lambda t, x: function(t, x).sum()), theta, x)
        except Exception:  # whatever a foreign function raises, the answer is no
            return False
    return bool(getattr(value, "shape", None) == (2,) and slope.shape == (2, d))


def _warn_of_differences(model: FunctionModel) -> None:
    rng = np.random.default_rng(0)
    theta = model.space.uniform(8, rng, region="test")
    x = model.simulate(theta, rng)
    gradient, error = central_differences(model.log_prob, model.space, theta, x)
    scale = float(np.max(np.abs(gradient))) or 1.0
    warnings.warn(
        f"log_prob of {model.name!r} is not written in JAX and no score was given: scores come "
        f"from central differences (estimated error {np.max(error) / scale:.1e} of the largest "
        "score on 8 simulations; `model.score_error` tells it anywhere). Give `score=` for exact "
        "ones.",
        KeepscoreWarning,
        stacklevel=3,
    )


def _call(function: OfPairs, theta: Floats, x: NDArray[Any]) -> Any:
    """A function of the user on copies: working in place, it must not reach arrays of others."""
    with _in_double():
        return function(theta.copy(), x.copy())


def _in_double() -> AbstractContextManager[Any]:
    """Where functions of the user are called: in JAX they compute in float64, simulators too.

    JAX 0.10 keeps a NumPy array that was traced in float64 as such; used in float32 afterwards (a
    grid of times, say, in the likelihood and then in the simulator), it is an error inside XLA.
    """
    if "jax" not in sys.modules:  # a function that uses JAX has imported it
        return nullcontext()
    import jax

    return cast("AbstractContextManager[Any]", jax.enable_x64(True))


def _written(function: object) -> object:
    """The function a user wrote, behind a score that was derived from it."""
    derived = (AutodiffScore, DifferenceScore)
    inner = function.log_prob if isinstance(function, derived) else function
    return getattr(inner, "written", inner)  # what wraps a function of the user names it


def _name_of(function: object) -> str:
    if isinstance(function, (AutodiffScore, DifferenceScore)):
        return f"{type(function).__name__}({_name_of(function.log_prob)})"
    if isinstance(function, Compiled):
        return _name_of(function.function)
    if isinstance(function, (EachPair, EachSimulation)):
        return f"{type(function).__name__}({_name_of(function.function)})"
    kind = type(function)
    module = getattr(function, "__module__", kind.__module__)
    return f"{module}:{getattr(function, '__qualname__', kind.__qualname__)}"
