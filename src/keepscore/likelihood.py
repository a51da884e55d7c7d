"""The seam of the package: a log-likelihood of groups of iid observations as a function of theta.

`model.given(xs)` and `surrogate.given(xs)` both return a `Likelihood`; estimates, tests, sets and
posteriors work on it and never ask what is behind it. Values are up to a constant in theta (for a
surrogate, minus the log evidence of each observation), one constant per group.

Whoever builds one gives three functions, having computed beforehand all that depends on x alone:

    pairs(theta, group)           (m, d), (m,) int  ->  (m,)         group[i] at theta[i]
    pairs_gradient(theta, group)  (m, d), (m,) int  ->  (m,), (m, d) the same, with the gradient
    surface(theta)                (m, d)            ->  (g, m)       every group at every theta

A likelihood remembers its maximum over each region once it has been searched for
(`inference.maximise`), so that estimates, tests, sets and posteriors of one object search once.
What is remembered is never changed in place, only replaced by something at least as high, and a
selection of groups takes its part of what the whole knows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced_fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_data, as_floats, as_real, as_theta, require_choice
from keepscore.errors import DomainError, DtypeError, MismatchError, ShapeError
from keepscore.space import REGIONS, Region, Space

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import PyTree

Integers = NDArray[np.int64]
# data, theta (d,), group -> log-likelihood, all in JAX.
TracedFunction: TypeAlias = "Callable[[PyTree[Array], Array, Array], Array]"

# Observations times theta in one call of `surface`: 64 MB, should it hold them all in float64.
BLOCK_ENTRIES = 8_000_000
SAME_MODE = 1e-2  # of the box: two climbs that end nearer have found the same maximum
_REMEMBERING = threading.Lock()


class LikelihoodSource(Protocol):
    """A model or a surrogate: anything with a space that turns observations into a likelihood."""

    @property
    def space(self) -> Space: ...
    def given(self, xs: ArrayLike) -> Likelihood: ...


class SourceOfShape(LikelihoodSource, Protocol):
    """The same, with the shape of one observation."""

    @property
    def x_shape(self) -> tuple[int, ...]: ...


class RefinementRecord(Protocol):
    """What `inference.refine` writes down: printable, and of some groups as of all."""

    @property
    def error(self) -> Floats: ...
    @property
    def evaluations(self) -> Integers: ...
    def of(self, group: Integers) -> RefinementRecord: ...
    def basis(self) -> str: ...
    def contains(self, theta: Floats, group: Integers) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class Maximum:
    """The maximum of every group over a region's box, read-only.

    theta (g, d), value (g,), curvature (g, d, d) about -Hessian there, converged (g,). evaluations:
    calls with gradient that the search took, all groups together. modes: all places where the
    search ended, the maximum among them.
    """

    theta: Floats
    value: Floats
    curvature: Floats
    converged: NDArray[np.bool_]
    evaluations: int
    region: Region
    modes: Modes | None = None

    def __post_init__(self) -> None:
        _freeze(self, "theta", "value", "curvature", "converged")

    def of(self, group: Integers) -> Maximum:
        """That of some groups, (k,), in the order given."""
        return Maximum(
            self.theta[group],
            self.value[group],
            self.curvature[group],
            self.converged[group],
            self.evaluations,
            self.region,
            None if self.modes is None else self.modes.of(group),
        )

    def higher_of(self, other: Maximum) -> Maximum:
        """The higher one for every group; of two equal ones, one that converged."""
        take = (other.value > self.value) | (
            (other.value >= self.value) & other.converged & ~self.converged
        )
        if not take.any():
            return self
        if take.all():
            return other
        return Maximum(
            np.where(take[:, None], other.theta, self.theta),
            np.where(take, other.value, self.value),
            np.where(take[:, None, None], other.curvature, self.curvature),
            np.where(take, other.converged, self.converged),
            self.evaluations + other.evaluations,
            self.region,
            other.modes or self.modes,
        )


@dataclass(frozen=True)
class Modes:
    """Where climbs from several starts ended: group (p,), theta (p, d), value (p,), curvature
    (p, d, d)."""

    group: Integers
    theta: Floats
    value: Floats
    curvature: Floats

    def __post_init__(self) -> None:
        _freeze(self, "group", "theta", "value", "curvature")

    def of(self, group: Integers) -> Modes:
        """Those of some groups, renumbered in the order given."""
        index = [np.flatnonzero(self.group == g) for g in group]
        number = np.repeat(np.arange(len(index)), [len(i) for i in index])
        rows = np.concatenate(index) if index else np.zeros(0, dtype=np.int64)
        return Modes(number, self.theta[rows], self.value[rows], self.curvature[rows])

    def distinct(self, group: int, width: Floats) -> Modes:
        """The different ones of a group, highest first; width (d,): of the box."""
        rows = np.flatnonzero((self.group == group) & np.isfinite(self.value))
        kept: list[int] = []
        for i in rows[np.argsort(-self.value[rows], kind="stable")]:
            gaps = np.abs(self.theta[kept] - self.theta[i]) / width
            if not (gaps < SAME_MODE).all(axis=1).any():
                kept.append(int(i))
        return Modes(
            np.zeros(len(kept), dtype=np.int64),
            self.theta[kept],
            self.value[kept],
            self.curvature[kept],
        )


def _freeze(record: Maximum | Modes, *names: str) -> None:
    """The named arrays as read-only copies."""
    for name in names:
        array = np.array(getattr(record, name))
        array.flags.writeable = False
        object.__setattr__(record, name, array)


@dataclass(frozen=True)
class Traced:
    """A log-likelihood written in JAX, for samplers: function(data, theta (d,), group) -> scalar.

    `function` can be hashed and is equal for all data sets of one surrogate, so that what is
    compiled for one serves the next; all that belongs to the observations is in `data`. double:
    whether it is to be traced in float64.
    """

    function: TracedFunction
    data: PyTree[Array]
    double: bool = False

    def __call__(self, theta: Array, group: Array) -> Array:
        return self.function(self.data, theta, group)


@dataclass(frozen=True)
class Likelihood:
    """Log-likelihood of one group of observations, or of many groups at once.

    `model.given(xs)`, `surrogate.given(xs)` and `ks.refine` make one. `like(theta)` evaluates it,
    `like[3]` and `like.select([0, 2])` are those of some groups, and iterating gives one likelihood
    per group.

    Args:
        space: The parameters.
        group_count: Number of groups, g.
        group_size: Observations per group.
        pairs: (m, d), (m,) of group numbers -> (m,): row i of theta with group number i.
        pairs_gradient: The same -> (m,), (m, d).
        surface: (m, d) -> (g, m).
        single: Whether results leave out the axis of groups.
        kind: "exact", "surrogate" or "refined".
        traceable: The same written in JAX, for samplers; None: they call the functions above.
        calibration: Plain data of a calibration saved with a surrogate.
        refinement: Of a refined likelihood: its error, what it cost and where it holds.
        observed: Per group a digest of its observations, where the maker computed one.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(4, 4))
        >>> rng = np.random.default_rng(0)
        >>> like = model.given(rng.standard_normal((3, 2, 4, 4)))
        >>> like.grouping
        '3 groups of 2 observations each, one theta per group'
        >>> theta = model.space.lower
        >>> like(theta).shape, bool(np.isclose(like[0](theta), like(theta)[0]))
        ((3,), True)
    """

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
    refinement: RefinementRecord | None = None
    # A digest of each group's observations, to tell whether two likelihoods are of the same data.
    observed: tuple[bytes, ...] | None = None
    # Not copied by `dataclasses.replace`: other functions have another maximum.
    _maxima: dict[Region, Maximum] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _whole: tuple[Likelihood, Integers] | None = field(
        default=None, init=False, repr=False, compare=False
    )

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

    @property
    def basis(self) -> str:
        """What its values stand on: "exact", "surrogate", or "refined: error ... by ..."."""
        return self.kind if self.refinement is None else self.refinement.basis()

    def __call__(self, theta: ArrayLike) -> Any:
        """Values at theta (d,) or (m, d): () or (m,) for one group, (g,) or (g, m) for many."""
        array = as_floats(theta, "theta")
        rows = as_theta(array[None] if array.ndim == 1 else array, self.space.d)
        values = self.surface_in_blocks(rows)
        if array.ndim == 1:
            return float(values[0, 0]) if self.single else values[:, 0]
        return values[0] if self.single else values

    def surface_in_blocks(self, theta: Floats) -> Floats:
        """Every group at every theta (m, d) as float64, (g, m), in blocks of theta that keep
        memory flat."""
        size = max(1, BLOCK_ENTRIES // (self.group_count * self.group_size))
        blocks = [self.surface(theta[i : i + size]) for i in range(0, max(1, len(theta)), size)]
        whole = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
        # A likelihood may compute in float32; what is done with its values here is float64.
        return np.asarray(whole, dtype=np.float64)

    def gradient(self, theta: ArrayLike) -> Floats:
        """Gradients at theta, shaped as the values with a last axis of d."""
        array = as_floats(theta, "theta")
        rows = as_theta(array[None] if array.ndim == 1 else array, self.space.d)
        group = np.repeat(np.arange(self.group_count), len(rows))
        _, gradient = self.pairs_gradient(np.tile(rows, (self.group_count, 1)), group)
        shaped = np.asarray(gradient, dtype=np.float64)
        shaped = shaped.reshape(self.group_count, len(rows), self.space.d)
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

    def squeezed(self, values: ArrayLike) -> Any:
        """Values with a first axis of groups, without it if this is of one single group."""
        if not self.single:
            return values
        one = np.asarray(values)[0]
        return one.item() if one.ndim == 0 else one

    # --- groups ---

    def __getitem__(self, index: int | slice | ArrayLike) -> Likelihood:
        return self.select(index)

    def __iter__(self) -> Iterator[Likelihood]:
        return (self.select(i) for i in range(self.group_count))

    def select(self, index: int | slice | ArrayLike) -> Likelihood:
        """The likelihood of some groups; `like[index]` is the same.

        Args:
            index: A group's number (the result is single), a slice, or a flat list of numbers or
                of True and False.

        Returns:
            A likelihood that knows the part of the maximum that the whole one knows.

        Raises:
            DomainError: There is no such group.
            ShapeError: Nothing is selected, or the index is not flat.
        """
        chosen, single = self._chosen(index)
        traced, refinement, observed = self.traceable, self.refinement, self.observed

        def surface(theta: Floats) -> Floats:
            if 4 * len(chosen) >= self.group_count:
                return self.surface(theta)[chosen]
            # A few groups of many: pairs ask for these alone.
            values = self.pairs(np.tile(theta, (len(chosen), 1)), np.repeat(chosen, len(theta)))
            return values.reshape(len(chosen), len(theta))

        part = replaced_fields(
            self,
            group_count=len(chosen),
            single=single,
            pairs=lambda theta, group: self.pairs(theta, chosen[group]),
            pairs_gradient=lambda theta, group: self.pairs_gradient(theta, chosen[group]),
            surface=surface,
            traceable=None
            if traced is None
            else Traced(OfChosen(traced.function), (traced.data, chosen), traced.double),
            refinement=None if refinement is None else refinement.of(chosen),
            observed=None if observed is None else tuple(observed[i] for i in chosen),
        )
        object.__setattr__(part, "_whole", (self, chosen))
        return part

    def _chosen(self, index: int | slice | ArrayLike) -> tuple[Integers, bool]:
        """Numbers of the groups selected, and whether the selection is one single group."""
        everyone = np.arange(self.group_count)
        if isinstance(index, (bool, np.bool_)):
            raise DtypeError(f"Select a group by its number; got {index!r}.")
        if isinstance(index, np.ndarray) and index.shape == ():
            index = index[()]
        if isinstance(index, (int, np.integer)):
            if not -self.group_count <= index < self.group_count:
                raise DomainError(f"There are {self.group_count} group(s); got index {index}.")
            return everyone[[int(index)]], True
        try:
            chosen = everyone[index if isinstance(index, slice) else np.asarray(index)]
        except IndexError as error:
            raise DomainError(f"Cannot select from {self.group_count} group(s): {error}.") from None
        if chosen.ndim != 1 or len(chosen) == 0:
            raise ShapeError(f"Select at least one group, by a flat index; got {chosen.shape}.")
        return chosen, False

    # --- its maximum ---

    def known_maximum(self, region: Region = "base") -> Maximum | None:
        """The maximum over a region, if it has been searched for, here or in the whole that this
        is a selection of. `inference.maximise.maximum_of` searches where it has not."""
        require_choice(region, "region", REGIONS)
        known = self._maxima.get(region)
        if self._whole is None:
            return known
        whole, chosen = self._whole
        there = whole.known_maximum(region)
        if there is None:
            return known
        return there.of(chosen) if known is None else known.higher_of(there.of(chosen))

    def remember(self, maximum: Maximum) -> Maximum:
        """Keep a maximum that a search found, unless a higher one is known; returns what is known.

        Raises:
            DtypeError: It is no `Maximum`.
            MismatchError: It is not of this many groups and parameters.
        """
        if not isinstance(maximum, Maximum):
            raise DtypeError(f"Expected a Maximum; got {type(maximum).__name__}.")
        if maximum.theta.shape != (self.group_count, self.space.d):
            raise MismatchError(
                f"The maximum has shape {maximum.theta.shape}; this likelihood needs "
                f"{(self.group_count, self.space.d)}."
            )
        with _REMEMBERING:
            known = self.known_maximum(maximum.region)
            best = maximum if known is None else known.higher_of(maximum)
            self._maxima[maximum.region] = best
        return best


@dataclass(frozen=True)
class OfChosen:
    """A traced log-likelihood of some groups: (data, chosen (k,)), theta (d,), group -> scalar."""

    function: TracedFunction

    def __call__(self, data: tuple[PyTree[Array], Integers], theta: Array, group: Array) -> Array:
        import jax.numpy as jnp

        return self.function(data[0], theta, jnp.asarray(data[1])[group])


def require_likelihood(like: object) -> Likelihood:
    """The likelihood itself, or an error that says where one comes from."""
    if not isinstance(like, Likelihood):
        raise DtypeError(
            f"Expected a Likelihood, from model.given(xs) or surrogate.given(xs); "
            f"got {type(like).__name__}."
        )
    return like


def digests(groups: NDArray[Any]) -> tuple[bytes, ...]:
    """One digest per group of observations (g, n, *x_shape): the same for the same numbers,
    whatever their dtype."""
    return tuple(blake2b(_plain_bytes(group), digest_size=8).digest() for group in groups)


def _plain_bytes(group: NDArray[Any]) -> bytes:
    values = np.asarray(group, dtype=np.float64) + 0.0  # a negative zero is a zero
    values[np.isnan(values)] = np.nan  # and one NaN, not observed, is like another
    return values.tobytes()


def as_groups(
    xs: ArrayLike, x_shape: tuple[int, ...], each: bool = False, missing: bool = False
) -> tuple[NDArray[Any], bool]:
    """Observations as (g, n, *x_shape), and whether they are one single group (n, *x_shape).

    With `each`, every one of (n, *x_shape) is a group of its own: (n, 1, *x_shape). With `missing`,
    NaN is accepted and means "not observed".
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
    flat = as_data(groups.reshape(-1, *x_shape), x_shape, "observations", missing)
    return flat.reshape(groups.shape), single
