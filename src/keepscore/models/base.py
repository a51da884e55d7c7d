"""The contract of a model: simulator, log-likelihood and score that agree, and what it declares.

    simulate(theta, rng)            (n, d)            -> x (n, *x_shape)
    log_prob(theta, x)              pairs row by row  -> (n,)    float64, exact
    score(theta, x)                 pairs row by row  -> (n, d)  float64, d log p(x|theta) / d theta
    log_prob_and_score(theta, x)    both, sharing work
    simulate_with_score(theta, rng) x and its score, sharing work
    given(xs, each=False)           Likelihood of groups of iid observations

theta is always the working parameter of `model.space`. Rows are never broadcast, an empty batch
gives empty arrays, and randomness is the argument `rng`. `score_kind` says what
`simulate_with_score` returns: "exact" (the score itself), "joint" (an unbiased stand-in:
E[joint score | x] = score), or None. `settings()` is plain data from which the
registry rebuilds the same model.

A model may have more. `missing = True` says that NaN in x means "not observed". And the likelihood
of what was observed, x (n, *x_shape) with NaN, serves `with_missing`:

    log_prob_observed(theta, x)             -> (n,)
    log_prob_and_score_observed(theta, x)   -> (n,), (n, d)

`context` says that a part of x is a design, drawn whatever theta is and known with the data
(`context.py`): log_prob is that of the rest given the design, and

    simulate_at(theta, x, rng)      new data with the designs of x

`trend` says that the mean of x is unknown, in the span of some columns (`trend.py`): log_prob is
the same whatever of it is added to x, and `simulate` draws x with it taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_data, as_real, as_theta, require_name, require_pairs
from keepscore.errors import DomainError, FormatError, KeepscoreError, unknown_name
from keepscore.likelihood import Integers, Likelihood, as_groups, digests
from keepscore.models.trend import Trend
from keepscore.space import Space

ScoreKind = Literal["exact", "joint"]


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A map with p(S x | T theta) = p(x | theta); the score transforms as theta does.

    S is a signed permutation of the entries of x, flattened: (S x)[i] = sign * x[x_index[i]].
    T is one of the parameters: (T theta)[k] = theta_sign[k] * theta[theta_index[k]].

    Args:
        name: What to call it.
        x_index: A permutation of the entries of x.
        theta_index: A permutation of the parameters.
        sign: 1 or -1.
        theta_sign: One 1 or -1 per parameter; None: all 1.

    Raises:
        DomainError: No permutation, or another sign.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> mirror = ks.models.Symmetry("mirror", np.array([2, 1, 0]), (0,))
        >>> mirror.of_x(np.array([[1.0, 2.0, 5.0]])).tolist()
        [[5.0, 2.0, 1.0]]
    """

    name: str
    x_index: NDArray[np.int64]
    theta_index: tuple[int, ...]
    sign: int = 1
    theta_sign: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        require_name(self.name, "The name of a symmetry")
        for what in ("x_index", "theta_index"):
            values = as_real(getattr(self, what), f"{what} of symmetry {self.name!r}")
            if values.ndim != 1 or not np.array_equal(np.sort(values), np.arange(len(values))):
                raise DomainError(f"{what} of symmetry {self.name!r} must be a permutation.")
        object.__setattr__(self, "x_index", np.array(self.x_index, dtype=np.int64))
        object.__setattr__(self, "theta_index", tuple(int(k) for k in self.theta_index))
        if self.sign not in (1, -1):
            raise DomainError(f"sign of symmetry {self.name!r} must be 1 or -1; got {self.sign}.")
        if self.theta_sign is not None:
            signs = as_real(self.theta_sign, f"theta_sign of symmetry {self.name!r}")
            if signs.shape != (len(self.theta_index),) or not np.isin(signs, (1, -1)).all():
                raise DomainError(
                    f"theta_sign of symmetry {self.name!r} must hold one 1 or -1 per parameter "
                    f"({len(self.theta_index)}); got {self.theta_sign!r}."
                )
            plain = tuple(int(s) for s in signs)
            object.__setattr__(self, "theta_sign", None if min(plain) == 1 else plain)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        content = {
            "name": self.name,
            "x_index": self.x_index.tolist(),
            "theta_index": list(self.theta_index),
            "sign": int(self.sign),
        }
        # Only where it says something: older files have no such entry.
        return content if self.theta_sign is None else {**content, "theta_sign": [*self.theta_sign]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Symmetry:
        """What `to_dict` made; anything else is a `FormatError`."""
        try:
            name, sign = content["name"], content["sign"]
            x_index, theta_index = content["x_index"], content["theta_index"]
            if not isinstance(name, str) or not name.isprintable():
                raise ValueError("its name is not text")
            theta_sign = content.get("theta_sign")
            if not all(type(k) is int for k in (*x_index, *theta_index, sign, *(theta_sign or ()))):
                raise ValueError("its entries are not whole numbers")
            index = np.array(x_index, dtype=np.int64)
            return cls(name, index, tuple(theta_index), sign, theta_sign)
        except Exception as error:  # what is forged can fail in any way
            raise FormatError(f"Not the description of a symmetry: {error}.") from None

    def of_x(self, x: NDArray[Any]) -> NDArray[Any]:
        """S applied to each row of x (n, *x_shape)."""
        moved = x.reshape(len(x), -1)[:, self.x_index].reshape(x.shape)
        return moved if self.sign == 1 else -moved

    def of_theta(self, theta: Floats) -> Floats:
        """T applied to each row of theta, or of the score, (n, d)."""
        moved = theta[:, list(self.theta_index)]
        return moved if self.theta_sign is None else moved * np.array(self.theta_sign, float)


@runtime_checkable
class Model(Protocol):
    """What the rest of the package asks of a model.

    Classes of your own may have these methods and attributes, or come from
    `ks.models.from_functions`. `ks.check_model` tests whether they agree with each other. theta is
    always the working parameter, (n, d); x is (n, *x_shape); rows pair up and are never broadcast.

    Example:
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(3, 3))
        >>> isinstance(model, ks.models.Model)
        True
        >>> model.x_shape, model.score_kind, model.structure
        ((3, 3), 'exact', 'gaussian-field')
    """

    @property
    def name(self) -> str:
        """What to call it."""
        ...

    @property
    def space(self) -> Space:
        """Its parameters."""
        ...

    @property
    def x_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        ...

    @property
    def x_dtype(self) -> np.dtype[Any]:
        """The dtype of x."""
        ...

    @property
    def score_kind(self) -> ScoreKind | None:
        """What `simulate_with_score` gives: "exact", the score itself, "joint", an unbiased
        stand-in (its mean given x is the score), or None."""
        ...

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Maps under which the likelihood stays the same."""
        ...

    @property
    def structure(self) -> str | None:
        """What networks may rely on: "markov" (x is (T, K), a time-homogeneous chain),
        "timed-markov" (x is (T, 1 + K): the same in continuous time, seen at the times in the first
        column, rows of NaN for visits that did not take place), "stationary-field" (x is a regular
        grid, the likelihood a function of a quadratic form of x, the same for its mirror images),
        "gaussian-field" (the same, and the log-likelihood itself quadratic in x), "field" (x is a
        regular grid, and no more is said), "markov-graphs" (x is (T + K, K): T states of K people,
        and the weights (K, K) of the graph they live on, whoever is who), "gaussian-sites" (x is
        (S, 3), rows of two coordinates and a value in any order, NaN where there are fewer: a
        stationary Gaussian field of mean zero given its sites), "iid" (x is (n, ...), its rows
        independent and alike given theta), "series" (x is (T, ...), rows in time order), "events"
        (x is (N,), times of events in order, from 0 on, NaN after the last), or None."""
        ...

    def settings(self) -> dict[str, Any]:
        """Plain data that makes the same model again."""
        ...

    def simulate(self, theta: ArrayLike, rng: np.random.Generator) -> NDArray[Any]:
        """x (n, *x_shape), one draw for each row of theta (n, d)."""
        ...

    def simulate_with_score(
        self, theta: ArrayLike, rng: np.random.Generator
    ) -> tuple[NDArray[Any], Floats]:
        """x and its score (n, d), sharing work."""
        ...

    def log_prob(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """log p(x | theta), pairs row by row: (n,)."""
        ...

    def score(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """d log p(x | theta) / d theta, pairs row by row: (n, d)."""
        ...

    def log_prob_and_score(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        """Both, sharing work."""
        ...

    def given(self, xs: ArrayLike, *, each: bool = False) -> Likelihood:
        """The likelihood of iid observations xs (n, *x_shape) of one system, or with each=True of
        every observation by itself; (g, n, *x_shape) are g groups."""
        ...


def declares_missing(source: object) -> bool:
    """Whether NaN in x means "not observed" to this model or data set: its `missing` says so."""
    return bool(getattr(source, "missing", False))


def trend_of(source: object) -> Trend | None:
    """The unknown mean that this model or data set declares, if it does: its `trend`."""
    found = getattr(source, "trend", None)
    return found if isinstance(found, Trend) else None


def as_pairs(
    model: Model, theta: ArrayLike, x: ArrayLike, missing: bool | None = None
) -> tuple[Floats, NDArray[Any]]:
    """theta (n, d) and x (n, *x_shape), checked, with as many rows each. NaN in x is accepted where
    the model declares it, or with missing=True."""
    allowed = declares_missing(model) if missing is None else missing
    rows, data = as_theta(theta, model.space.d), as_data(x, model.x_shape, missing=allowed)
    require_pairs(rows, data)
    return rows, data


def given_by_rows(model: Model, xs: ArrayLike, each: bool = False) -> Likelihood:
    """A Likelihood from `log_prob` alone: every observation of a group repeated at every theta.

    Correct for any model; models that can compute something once per x do better themselves.
    """
    observed, single = as_groups(xs, model.x_shape, each, declares_missing(model))
    groups = observed.copy()  # what the caller does to its own array later must not reach us
    g, n = groups.shape[:2]

    def rows(theta: Floats, group: Integers) -> tuple[Floats, NDArray[Any]]:
        return np.repeat(theta, n, axis=0), groups[group].reshape(-1, *model.x_shape)

    def pairs(theta: Floats, group: Integers) -> Floats:
        return model.log_prob(*rows(theta, group)).reshape(-1, n).sum(axis=1)

    def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        value, score = model.log_prob_and_score(*rows(theta, group))
        return value.reshape(-1, n).sum(axis=1), score.reshape(-1, n, model.space.d).sum(axis=1)

    def surface(theta: Floats) -> Floats:
        return np.stack([pairs(theta, np.full(len(theta), i)) for i in range(g)])

    return Likelihood(
        model.space, g, n, pairs, pairs_gradient, surface, single, observed=digests(groups)
    )


_BUILDERS: dict[str, Callable[..., Model]] = {}
# By the end of a name: models made of another model, which is in their settings.
_WRAPPERS: dict[str, Callable[..., Model]] = {}


def register(name: str, build: Callable[..., Model]) -> None:
    """Make `build(**settings)` the way to rebuild the model called `name` from a description."""
    _BUILDERS[name] = build


def register_wrapper(suffix: str, build: Callable[..., Model]) -> None:
    """The same for every model called "<name of a registered model><suffix>"."""
    _WRAPPERS[suffix] = build


def _builder(name: object) -> Callable[..., Model] | None:
    """How to build the model of this name, if it is known."""
    if not isinstance(name, str):
        return None
    if name in _BUILDERS:
        return _BUILDERS[name]
    for suffix, wrap in _WRAPPERS.items():
        if name.endswith(suffix) and _builder(name.removesuffix(suffix)) is not None:
            return wrap
    return None


def registered() -> tuple[str, ...]:
    """Names of the models that can be built by name.

    Returns:
        The names, sorted.

    Example:
        >>> import keepscore as ks
        >>> ks.models.registered()
        ('gaussian-field', 'sis', 'student-t-field')
    """
    return tuple(sorted(_BUILDERS))


def describe(model: Model) -> dict[str, Any]:
    """Plain data that identifies a model; it goes into every run.

    Args:
        model: The model.

    Returns:
        Its name, settings and space, as JSON can hold them. `ks.models.build` turns it back.

    Example:
        >>> import keepscore as ks
        >>> sorted(ks.models.describe(ks.models.SIS()))
        ['name', 'settings', 'space']
    """
    return {"name": model.name, "settings": model.settings(), "space": model.space.to_dict()}


def build(description: Mapping[str, Any] | str, **settings: Any) -> Model:
    """A registered model by name, or from what `ks.models.describe` gave.

    Args:
        description: A name, or the description of a model.
        **settings: With a name, the settings of the model.

    Returns:
        The model.

    Raises:
        UnknownNameError: No such model.
        FormatError: Not the description of a model.

    Example:
        >>> import keepscore as ks
        >>> model = ks.models.build("gaussian-field", shape=(4, 4))
        >>> ks.models.build(ks.models.describe(model)).x_shape
        (4, 4)
    """
    if isinstance(description, str):
        name = description
    else:
        if not isinstance(description, Mapping) or not isinstance(
            description.get("settings"), Mapping
        ):
            raise FormatError("Not the description of a model: no settings.")
        name, settings = description.get("name", ""), dict(description["settings"])
    builder = _builder(name)
    if builder is None:
        raise unknown_name("model", name, _BUILDERS)
    if isinstance(description, str):
        return builder(**settings)
    try:
        return builder(**settings)
    except KeepscoreError:
        raise
    except Exception as error:  # a forged description can fail in any way
        raise FormatError(f"Not the description of a model {name!r}: {error}.") from None
