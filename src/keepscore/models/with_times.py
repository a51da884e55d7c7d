"""Epidemics seen at times that differ from data set to data set: a row of x is (time, states).

    x = ((t_1, x_t1), ..., (t_m, x_tm), NaN, ...)        x (T, 1 + K), m <= T visits
    log p(x_t | t, theta) = log P(x_t1) + sum_i log exp(Q(theta) (t_i - t_{i-1}))[x_{t_{i-1}}, x_ti]

The times are a context (`context`): drawn whatever theta is, known with the data. The law P of the
first visit is that of the model, whenever the first visit is; only differences of times count. A
visit that did not take place is no row at all, so visits that are missing as a whole need no
filter: the chain goes over them in one longer step.

    "uniform"     the first visit at t_1 of the model, the others anywhere up to its t_T, in order
    "jittered"    each visit but the first within a quarter of a gap of the model's own time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_floats, require_choice, require_count
from keepscore.errors import DomainError, DtypeError, ShapeError
from keepscore.models.base import Model, Symmetry, build, register_wrapper
from keepscore.models.context import (
    Context,
    ContextModel,
    DesignFunction,
    described,
    drawn,
    refuse_function,
    rows_there,
)
from keepscore.models.sis import SIS

UNIFORM, JITTERED = "uniform", "jittered"
LEAST = 2  # visits: with one there is no transition to learn from
JITTER = 0.25  # of the gaps on either side
WORD = "times"


@final
@dataclass(frozen=True, eq=False)
class Times(Context):
    """Observation times that differ; made by `with_times`."""

    base: SIS
    law: str | DesignFunction
    visits: tuple[int, int]
    word: ClassVar[str] = WORD

    @property
    def x_shape(self) -> tuple[int, int]:
        return (len(self.base.times), 1 + self.base.node_count)

    @property
    def structure(self) -> str | None:
        """States in continuous time; what tests that err show is no Markov chain."""
        return "timed-markov" if self.base.perfect else None

    @property
    def weights(self) -> Floats:
        return self.base.weights

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Those of the model, who is who; times stay."""
        steps, columns = self.x_shape
        found = []
        for one in self.base.symmetries:
            row = np.concatenate([[0], 1 + one.x_index[: columns - 1]])
            index = np.arange(steps)[:, None] * columns + row
            found.append(Symmetry(one.name, index.ravel(), one.theta_index))
        return tuple(found)

    def settings(self) -> dict[str, Any]:
        law = self.law if isinstance(self.law, str) else described(self.law)
        return {"times": law, "visits": list(self.visits)}

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Times (n, T), NaN after the last."""
        if not isinstance(self.law, str):
            return _in_order(drawn(self.law, n, (len(self.base.times),), rng, WORD))
        own = self.base.times
        if self.law == UNIFORM:
            later = np.sort(rng.uniform(own[0], own[-1], (n, len(own) - 1)), axis=1)
        else:
            room = JITTER * np.minimum(np.diff(own), np.append(np.diff(own)[1:], np.inf))
            later = own[1:] + room * rng.uniform(-1, 1, (n, len(own) - 1))
        return _in_order(_some(np.column_stack([np.full(n, own[0]), later]), self.visits, rng))

    def of(self, x: Floats) -> Floats:
        there = rows_there(x, LEAST, "visits")
        return _increasing(np.where(there, x[:, :, 0], np.nan))

    def at(self, design: Floats) -> SIS:
        return self.base.at_times(design[~np.isnan(design)])

    def data(self, design: Floats, x: Floats) -> Floats:
        return x[:, ~np.isnan(design), 1:]

    def place(self, design: Floats, data: NDArray[Any]) -> Floats:
        x = np.full((len(data), *self.x_shape), np.nan)
        there = ~np.isnan(design)
        x[:, there, 0] = design[there]
        x[:, there, 1:] = data
        return x

    def join(self, designs: ArrayLike, data: ArrayLike) -> Floats:
        """Times (n, m), or (m,) for all, with states (n, m, K), m <= T."""
        times, states = as_floats(designs, "times"), as_floats(data, "states")
        most, columns = self.x_shape
        if times.ndim == 1 and states.ndim == 3:
            times = np.tile(times, (len(states), 1))
        if states.shape[2:] != (columns - 1,) or times.shape != states.shape[:2]:
            raise ShapeError(
                f"Times (n, m), or (m,) for all, and states (n, m, {columns - 1}) make x; got "
                f"{times.shape} and {states.shape}."
            )
        if states.shape[1] > most:
            raise ShapeError(f"This model has at most {most} visits; got {states.shape[1]}.")
        x = np.full((len(states), *self.x_shape), np.nan)
        x[:, : times.shape[1]] = np.concatenate([times[..., None], states], axis=2)
        return x


def with_times(
    model: SIS,
    times: str | DesignFunction = UNIFORM,
    *,
    visits: int | Sequence[int] | None = None,
) -> ContextModel:
    """The same epidemic, seen at times that differ between data sets: a row of x is (time, states).

    One surrogate then serves data sets with times of their own. Likelihood and score are exact.

    Args:
        model: The epidemic. Its times say how many visits there are at most, when the first one is,
            and by when the last.
        times: The law of the times in simulations: "uniform" (in order, anywhere between the first
            and the last time of `model`), "jittered" (each near its own time in `model`), or a
            function (n, rng) -> (n, T), rows increasing, NaN for visits that do not take place. It
            says where a surrogate will be good, and nothing else.
        visits: How many visits take place: a number, or (low, high), uniform between both; all of
            them by default. Not with a function.

    Returns:
        A model with the same parameters, and x (T, 1 + K): times in the first column, states after
        it, rows of NaN for visits that did not take place. `model.join(times,
        states)` makes such x of your own data.

    Raises:
        DtypeError: `model` is no SIS, or `times` no law.
        UnknownNameError: No law of this name.
        DomainError: A number of visits that cannot be.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> epidemic = ks.models.SIS(weights=np.ones((3, 3)), times=[0, 1, 2, 3])
        >>> model = ks.models.with_times(epidemic, visits=(2, 4))
        >>> x = model.simulate(model.space.grid(2)[:1], np.random.default_rng(0))
        >>> model.name, x.shape, model.structure
        ('sis-times', (1, 4, 4), 'timed-markov')
        >>> model.score(model.space.grid(2)[:1], x).shape
        (1, 2)
    """
    if not isinstance(model, SIS):
        raise DtypeError(
            f"with_times takes a ks.models.SIS; got {type(model).__name__}. Any other model can "
            "carry its times as a column of x: from_functions(..., declares=['timed-markov'])."
        )
    if isinstance(times, str):
        require_choice(times, "law of times", (UNIFORM, JITTERED))
    elif not callable(times) or isinstance(times, type):
        raise DtypeError(
            f"times must be 'uniform', 'jittered' or a function (n, rng) -> (n, T); got {times!r}. "
            "For the same times in every data set: SIS(times=...)."
        )
    elif visits is not None:
        raise DomainError("A function says how many visits there are itself: leave visits= out.")
    return ContextModel(Times(model, times, _visits(visits, len(model.times))))


def _visits(visits: int | Sequence[int] | None, most: int) -> tuple[int, int]:
    pair = (most, most) if visits is None else visits
    low, high = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (pair, pair)
    low, high = require_count(low, "visits", LEAST), require_count(high, "visits", LEAST)  # type: ignore[arg-type]
    if not low <= high <= most:
        raise DomainError(
            f"visits must be at least {LEAST} and at most the {most} times of the model, the "
            f"smaller number first; got {visits!r}."
        )
    return low, high


def _some(times: Floats, visits: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Times with all but a random number of visits NaN; the first one always takes place."""
    n, most = times.shape
    low, high = visits
    if low == most:
        return times
    count = np.asarray(rng.integers(low, high, n, endpoint=True))
    rank = np.argsort(np.argsort(rng.random((n, most - 1)), axis=1), axis=1)
    times[:, 1:][rank >= count[:, None] - 1] = np.nan
    return times


def _in_order(times: Floats) -> Floats:
    """Drawn times (n, T), those that are NaN last."""
    few = np.asarray((~np.isnan(times)).sum(axis=1)) < LEAST
    if few.any() or np.isinf(times).any():
        raise DomainError(
            f"Every data set needs at least {LEAST} visits, at finite times; the law of times gave "
            f"{times[int(few.argmax())].tolist()}."
        )
    last = np.argsort(np.isnan(times), axis=1, kind="stable")
    return _increasing(np.take_along_axis(times, last, axis=1))


def _increasing(times: Floats) -> Floats:
    """The same times, if those that are there increase."""
    filled = np.where(np.isnan(times), -np.inf, times)
    before = np.maximum.accumulate(filled, axis=1)[:, :-1]
    bad = (filled[:, 1:] <= before) & ~np.isnan(times[:, 1:])
    if bad.any():
        i = int(bad.any(axis=1).argmax())
        raise DomainError(
            f"Times must be strictly increasing; those of data set {i} are {times[i].tolist()}."
        )
    return times


def _rebuilt(base: Mapping[str, Any], times: str, visits: Sequence[int]) -> Model:
    refuse_function(times, WORD)
    return with_times(build(base), times, visits=list(visits))  # type: ignore[arg-type]


register_wrapper(f"-{WORD}", _rebuilt)
