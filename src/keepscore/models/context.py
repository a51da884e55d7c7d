"""Models whose design changes from data set to data set: the design is a part of x.

A context c (observation times, sites, a graph) is drawn whatever theta is, and known with the data:

    x = (c, y),      log p(x | theta) = log p(c) + log p(y | theta, c),
    score            = d log p(y | theta, c) / d theta,
    log p(x | theta) / p(x) = log p(y | theta, c) / p(y | c).

The law of c drops out of the score and of the ratio. So a network of (x, theta) learns the ratio
that is wanted, for every c at once, and nothing else has to know: stores, training, likelihoods of
groups and inference take x as they take any other. `log_prob` leaves log p(c) out, which no answer
depends on; the law that c is drawn from in simulations only says where a surrogate will be good.

A `Context` says how designs are drawn, where in x they stand, and which model the data of one
design come from; `ContextModel` makes a model of it. Rows that a data set does not have (fewer
visits, fewer sites) are NaN as a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_real, as_theta
from keepscore.errors import DomainError, MissingError, ShapeError
from keepscore.likelihood import Integers, Likelihood, as_groups, digests
from keepscore.models.base import Model, ScoreKind, Symmetry, as_pairs, describe
from keepscore.models.identity import fingerprint
from keepscore.models.with_missing import missing_rows_of
from keepscore.space import Space

DesignFunction = Callable[[int, np.random.Generator], Any]


class Context(ABC):
    """How designs of a model are drawn, and how they are a part of x; see the top of this file.

    Designs of n data sets are one array (n, ...); NaN in it stands for rows that are not there.
    """

    word: ClassVar[str]  # what changes, as in "times"
    holes: ClassVar[bool] = True  # may a data set have fewer rows than there can be?
    base: Model

    @property
    @abstractmethod
    def x_shape(self) -> tuple[int, ...]: ...
    @property
    @abstractmethod
    def structure(self) -> str | None: ...
    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return ()

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """How designs are drawn, as plain data."""

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Designs of n data sets."""

    @abstractmethod
    def of(self, x: Floats) -> Floats:
        """The designs in x (n, *x_shape), checked."""

    @abstractmethod
    def at(self, design: Floats) -> Model:
        """The model of data with this design."""

    @abstractmethod
    def data(self, design: Floats, x: Floats) -> Floats:
        """The data in x (m, *x_shape), all with this design, as its model takes them."""

    @abstractmethod
    def place(self, design: Floats, data: NDArray[Any]) -> Floats:
        """x (m, *x_shape) of this design and data of its model."""

    @abstractmethod
    def join(self, designs: ArrayLike, data: ArrayLike) -> Floats:
        """x (n, *x_shape) of designs and data as a user has them, in arrays that fit together."""


@final
@dataclass(frozen=True, eq=False)
class ContextModel:
    """A model whose design changes; made by `with_times`, `with_sites` and `with_graphs`."""

    context: Context

    @property
    def base(self) -> Model:
        return self.context.base

    @property
    def name(self) -> str:
        return f"{self.base.name}-{self.context.word}"

    @property
    def space(self) -> Space:
        return self.base.space

    @property
    def x_shape(self) -> tuple[int, ...]:
        return self.context.x_shape

    @property
    def x_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)

    @property
    def score_kind(self) -> ScoreKind | None:
        return self.base.score_kind

    @property
    def structure(self) -> str | None:
        return self.context.structure

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return self.context.symmetries

    @property
    def missing(self) -> bool:
        """Whether a data set may have fewer rows than there can be, the others NaN."""
        return self.context.holes

    @property
    def weights(self) -> Floats:
        """The graph that all data sets share; an AttributeError if there is none."""
        shared: Floats = self.context.weights  # type: ignore[attr-defined]
        return shared

    def settings(self) -> dict[str, Any]:
        """Plain data that rebuilds this model, where designs are not a function of yours."""
        return {"base": describe(self.base), **self.context.settings()}

    def join(self, designs: ArrayLike, data: ArrayLike) -> Floats:
        """x (n, *x_shape) of designs and the data that came with them, row by row; rows that are
        not there are NaN.

        Args:
            designs: (n, ...), or one for all data sets.
            data: (n, ...).

        Returns:
            x, as `given` takes it.

        Raises:
            ShapeError: Arrays that do not fit together, or that have too many rows.
            DomainError: A design that cannot be.
        """
        x = self.context.join(designs, data)
        self.context.of(x)
        return x

    # --- simulation ---

    def simulate(self, theta: ArrayLike, rng: np.random.Generator) -> Floats:
        """x (n, *x_shape), each with a design of its own."""
        rows = as_theta(theta, self.space.d)
        return self._simulate(rows, self.context.draw(len(rows), rng), rng, False)[0]

    def simulate_with_score(
        self, theta: ArrayLike, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """The same x and its score, exact or joint as that of the model for one design."""
        rows = as_theta(theta, self.space.d)
        return self._simulate(rows, self.context.draw(len(rows), rng), rng, True)

    def simulate_at(self, theta: ArrayLike, x: ArrayLike, rng: np.random.Generator) -> Floats:
        """New data with the designs of x, row by row."""
        rows, seen = as_pairs(self, theta, x)
        return self._simulate(rows, self.context.of(_floats(seen)), rng, False)[0]

    def _simulate(
        self, theta: Floats, designs: Floats, rng: np.random.Generator, with_score: bool
    ) -> tuple[Floats, Floats]:
        x, score = np.empty((len(theta), *self.x_shape)), np.zeros_like(theta)
        for members in alike(designs):
            one = designs[members[0]]
            inner, at = self.context.at(one), theta[members]
            if with_score:
                data, score[members] = inner.simulate_with_score(at, rng)
            else:
                data = inner.simulate(at, rng)
            x[members] = self.context.place(one, data)
        return x, score

    # --- likelihood ---

    def log_prob(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """log p(y | theta, c), row by row."""
        rows, seen = as_pairs(self, theta, x)
        value = np.empty(len(rows))
        for inner, members, data in self._parts(seen):
            value[members] = inner.log_prob(rows[members], data)
        return value

    def score(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """Gradient of `log_prob` in theta, row by row."""
        return self.log_prob_and_score(theta, x)[1]

    def log_prob_and_score(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        rows, seen = as_pairs(self, theta, x)
        value, score = np.empty(len(rows)), np.empty_like(rows)
        for inner, members, data in self._parts(seen):
            value[members], score[members] = inner.log_prob_and_score(rows[members], data)
        return value, score

    def given(self, xs: ArrayLike, *, each: bool = False) -> Likelihood:
        """Likelihood of (n, *x_shape), one theta for all (with each=True, one per data set), or of
        groups (g, n, *x_shape). Data with the same design share their work."""
        groups, single = as_groups(xs, self.x_shape, each, self.missing)
        g, n = groups.shape[:2]
        observed = digests(groups)
        parts = list(self._parts(groups.reshape(-1, *self.x_shape)))
        if len(parts) == 1:
            inner, _, data = parts[0]
            like = inner.given(data.reshape(g, n, *data.shape[1:]))
            return replace(like, single=single, observed=observed)
        mine = [list(self._parts(group)) for group in groups]
        likes = [[inner.given(data) for inner, _, data in one] for one in mine]
        return _sum_of(self.space, likes, n, single, observed)

    def _parts(self, x: NDArray[Any]) -> Iterator[tuple[Model, Integers, Floats]]:
        """Rows of x (n, *x_shape) with one design: its model, their numbers, and their data."""
        values = _floats(x)
        designs = self.context.of(values)
        for members in alike(designs):
            one = designs[members[0]]
            yield self.context.at(one), members, self.context.data(one, values[members])


def _sum_of(
    space: Space,
    likes: list[list[Likelihood]],
    n: int,
    single: bool,
    observed: tuple[bytes, ...],
) -> Likelihood:
    """The likelihood of groups, group k being the sum of likes[k], of one group each."""

    def pairs(theta: Floats, group: Integers) -> Floats:
        value = np.zeros(len(theta))
        for members in alike(group):
            first = np.zeros(len(members), dtype=np.int64)
            for like in likes[group[members[0]]]:
                value[members] += like.pairs(theta[members], first)
        return value

    def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        value, score = np.zeros(len(theta)), np.zeros_like(theta)
        for members in alike(group):
            first = np.zeros(len(members), dtype=np.int64)
            for like in likes[group[members[0]]]:
                v, s = like.pairs_gradient(theta[members], first)
                value[members] += v
                score[members] += s
        return value, score

    def surface(theta: Floats) -> Floats:
        return np.stack([np.sum([like.surface(theta)[0] for like in one], axis=0) for one in likes])

    return Likelihood(
        space, len(likes), n, pairs, pairs_gradient, surface, single, observed=observed
    )


def alike(rows: NDArray[Any]) -> list[Integers]:
    """The numbers of equal rows (n, ...), group by group; NaN is equal to NaN."""
    found: dict[bytes, list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault(row.tobytes(), []).append(i)
    return [np.array(members) for members in found.values()]


def _floats(x: NDArray[Any]) -> Floats:
    """x as float64, with one kind of NaN alone."""
    values = np.array(x, dtype=np.float64)
    values[np.isnan(values)] = np.nan
    values += 0.0  # and one kind of zero
    return values


# --- what contexts share ---


def drawn(
    function: DesignFunction, n: int, shape: tuple[int, ...], rng: np.random.Generator, what: str
) -> Floats:
    """Designs (n, *shape) from a function of the user's."""
    found = np.array(as_real(function(n, rng), f"What the function for {what} returns"), float)
    if found.shape != (n, *shape):
        raise ShapeError(
            f"A function for {what} must return an array of shape {(n, *shape)} for n = {n}; got "
            f"{found.shape}."
        )
    return found


def described(function: DesignFunction) -> dict[str, Any]:
    """A function of the user's as plain data that tells it from others."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return {"function": name, "code": fingerprint(function)}


def rows_there(x: Floats, least: int, what: str) -> NDArray[np.bool_]:
    """Which rows (n, R) of x (n, R, ...) are there; each data set needs so many."""
    there = ~missing_rows_of(x)
    few = np.flatnonzero(there.sum(axis=1) < least)
    if len(few):
        raise DomainError(
            f"Data set {few[0]} has {int(there[few[0]].sum())} {what}; at least {least} are needed."
        )
    return there


def refuse_function(settings: object, what: str) -> None:
    """A function cannot be made from its description."""
    if isinstance(settings, dict) and "function" in settings:
        raise MissingError(
            f"This model draws its {what} by the function {settings['function']!r:.60}, which is "
            "not kept in files. Make the model again."
        )
