"""The seam of the package: a log-likelihood of groups of iid observations as a function of theta.

`model.given(xs)` and `surrogate.given(xs)` both return a `Likelihood`; estimates, tests, sets and
posteriors work on it and never ask what is behind it. Values are up to a constant in theta (for a
surrogate, minus the log evidence of each observation), one constant a group.

Whoever builds one gives three functions, having computed beforehand all that depends on x alone:

    pairs(theta, group)           (m, d), (m,) int  ->  (m,)         group[i] at theta[i]
    pairs_gradient(theta, group)  (m, d), (m,) int  ->  (m,), (m, d) the same, with the gradient
    surface(theta)                (m, d)            ->  (g, m)       every group at every theta
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_data, as_floats, as_real, as_theta
from keepscore.errors import DomainError, DtypeError, ShapeError
from keepscore.space import Space

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Traced:
    """A log-likelihood written in JAX, for samplers: function(data, theta (d,), group) -> scalar.

    `function` can be hashed and is equal for all data sets of one surrogate, so that what is
    compiled for one serves the next; all that belongs to the observations is in `data`.
    """

    function: Callable[[Any, Any, Any], Any]
    data: Any

    def __call__(self, theta: Any, group: Any) -> Any:
        return self.function(self.data, theta, group)


@dataclass(frozen=True)
class Likelihood:
    """Log-likelihood of one group of observations, or of many groups at once."""

    space: Space
    group_count: int
    group_size: int
    pairs: Callable[[Floats, Integers], Floats]
    pairs_gradient: Callable[[Floats, Integers], tuple[Floats, Floats]]
    surface: Callable[[Floats], Floats]
    single: bool = True
    kind: str = "exact"
    traceable: Traced | None = None  # None: samplers call the functions above from JAX
    # Plain data of a calibration saved with a surrogate; `inference.calibration` reads it.
    calibration: Mapping[str, Any] | None = None
    # Of a refined likelihood: its error, what it cost and where it holds (`inference.refine`).
    refinement: Any = None

    @property
    def grouping(self) -> str:
        """How observations were put together, in words: what one theta is fitted to."""
        n, g = self.group_size, self.group_count
        if self.single:
            if n == 1:
                return "one observation"
            return f"one theta for all {n} observations (given(X, each=True): one per observation)"
        each = "1 observation" if n == 1 else f"{n} observations"
        if g == 1:
            return f"1 group of {each}"
        return f"{g} groups of {each} each, one theta per group"

    def __str__(self) -> str:
        names = ", ".join(self.space.names)
        return f"Log-likelihood ({self.kind}) of {names}: {self.grouping}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def __call__(self, theta: ArrayLike) -> Any:
        """Values at theta (d,) or (m, d): () or (m,) for one group, (g,) or (g, m) for many."""
        array = as_floats(theta, "theta")
        rows = as_theta(array[None] if array.ndim == 1 else array, self.space.d)
        values = np.asarray(self.surface(rows), dtype=np.float64)
        if array.ndim == 1:
            return float(values[0, 0]) if self.single else values[:, 0]
        return values[0] if self.single else values

    def gradient(self, theta: ArrayLike) -> Floats:
        """Gradients at theta, shaped as the values with a last axis of d."""
        array = as_floats(theta, "theta")
        rows = as_theta(array[None] if array.ndim == 1 else array, self.space.d)
        group = np.repeat(np.arange(self.group_count), len(rows))
        _, gradient = self.pairs_gradient(np.tile(rows, (self.group_count, 1)), group)
        shaped = gradient.reshape(self.group_count, len(rows), self.space.d)
        if array.ndim == 1:
            shaped = shaped[:, 0]
        return shaped[0] if self.single else shaped

    def paired(self, theta: ArrayLike) -> Floats:
        """Each group at its own theta: theta (g, d), values (g,)."""
        rows = as_theta(theta, self.space.d)
        if len(rows) != self.group_count:
            raise ShapeError(
                f"One theta per group is needed: {self.group_count} row(s); got {len(rows)}."
            )
        return self.pairs(rows, np.arange(self.group_count))


def as_groups(
    xs: ArrayLike, x_shape: tuple[int, ...], each: bool = False
) -> tuple[NDArray[Any], bool]:
    """Observations as (g, n, *x_shape), and whether they are one single group (n, *x_shape).

    With `each`, every one of (n, *x_shape) is a group of its own: (n, 1, *x_shape).
    """
    if not isinstance(each, (bool, np.bool_)):
        raise DtypeError(f"each must be True or False; got {each!r}.")
    array = np.asarray(as_real(xs, "observations"), order="C")
    inner = ", ".join(str(s) for s in x_shape)
    if array.ndim not in (1 + len(x_shape), 2 + len(x_shape)) or (
        array.shape[array.ndim - len(x_shape) :] != tuple(x_shape)
    ):
        hint = " For one observation pass xs[None]." if array.shape == tuple(x_shape) else ""
        raise ShapeError(
            f"Observations must have shape (n, {inner}), or (g, n, {inner}) for g groups; "
            f"got {array.shape}.{hint}"
        )
    single = array.ndim == 1 + len(x_shape)
    if each and not single:
        raise ShapeError(
            f"each=True makes a group of every observation of (n, {inner}); these have shape "
            f"{array.shape} and are in groups already. Leave each=True out, or pass the "
            f"observations without their group axis."
        )
    if each:
        single, array = False, array[:, None]
    groups = array[None] if single else array
    if groups.shape[0] == 0 or groups.shape[1] == 0:
        raise DomainError(f"A group needs at least one observation; got shape {array.shape}.")
    flat = as_data(groups.reshape(-1, *x_shape), x_shape, "observations")
    return flat.reshape(groups.shape), single
