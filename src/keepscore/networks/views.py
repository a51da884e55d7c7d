"""What a network is shown of a row of x: coordinates in which rows have a density, and a tame one.

    parts of a whole          y_j = log(x_j / x_p),  j < p      (Aitchison 1986)
    directions in the plane   the angle of (x_1, x_2)
    entries between bounds    log((x_j - low) / (high - x_j))   (`numerics/bounded.py`)
    angles                    counted from the direction where there are fewest
    entries that follow       left out: the rest tells them     (`numerics/redundancy.py`)
    groups of these           each as it needs: shares and directions beside other numbers

Rows on a plane or a circle have no density in x: one that is fitted to them grows without bound
across it, and what it says along it is lost beside that. In these coordinates they have one, and
numbers near a bound have one without an edge. Each is one to one, or leaves out what the rest
tells, so ratios of likelihoods are those of x. A row is all of x (p,), or one of x (n, p).

`plain` is what a file holds of a view; `from_plain` reads it and trusts nothing in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from keepscore.errors import FormatError
from keepscore.numerics.bounded import bounds_of, emptiest, period_of
from keepscore.numerics.evenly import evenly
from keepscore.numerics.redundancy import directions_in, following, rule_of, wholes_in

Numbers: TypeAlias = NDArray[Any] | Array  # of NumPy or JAX

MOST_ROWS, MOST_ENTRIES = 20_000, 256  # rows that are looked at; entries of a row
LEAST_PART = 1e-37  # of which float32 still has a logarithm
LEAST_GAP = 2.0**-24  # of the width between bounds, to a bound that is not zero
OFF = 1e-3  # of the whole, or of a standard deviation: rows that are off by more are said to be


@dataclass(frozen=True)
class View:
    """All of x, as it is; and what every view has."""

    def size(self, p: int) -> int:
        """How many numbers are shown of a row of p."""
        return p

    def shape(self, x_shape: Sequence[int]) -> tuple[int, ...]:
        """That of what the network sees of x."""
        return (*x_shape[:-1], self.size(x_shape[-1])) if x_shape else ()

    def shown(self, x: Numbers) -> Any:
        """What the network sees of x (..., p), as x is of NumPy or JAX."""
        return x

    def unlike(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which rows of x lie where no simulation can have been. Missing rows do not."""
        return np.zeros(x.shape[:-1], dtype=bool)

    def what_is_unlike(self, row: NDArray[np.float64], named: Sequence[int]) -> str:
        """What such a row is not like, in words; its entries have these numbers in all of x."""
        return ""

    def plain(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Parts(View):
    """Of parts that add up to `whole`: the logarithms of all but the last, over the last."""

    whole: float

    def size(self, p: int) -> int:
        return p - 1

    def shown(self, x: Numbers) -> Any:
        numpy = _numpy_of(x)
        logs = numpy.log(numpy.maximum(x, LEAST_PART))
        return logs[..., :-1] - logs[..., -1:]

    def unlike(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        off = np.abs(x.sum(axis=-1) - self.whole) > OFF * self.whole
        return np.asarray(off | (x <= 0).any(axis=-1))

    def what_is_unlike(self, row: NDArray[np.float64], named: Sequence[int]) -> str:
        return (
            f"whose parts were above zero and added up to {self.whole:g}: the first adds up to "
            f"{row.sum():g}, its least part is {row.min():g}. What counts here are the ratios of "
            "its parts, with zeros as if they were the smallest number there is. Are the units "
            "the same? Can the model produce zeros?"
        )

    def plain(self) -> dict[str, Any]:
        return {"whole": self.whole}


@dataclass(frozen=True)
class Direction(View):
    """Of (x_1, x_2) at a distance of `radius` from zero: its angle, from -pi to pi, counted so that
    the direction `cut` is where it jumps."""

    radius: float
    cut: float

    def size(self, p: int) -> int:
        return 1

    def shown(self, x: Numbers) -> Any:
        numpy = _numpy_of(x)
        cos, sin = -math.cos(self.cut), -math.sin(self.cut)  # of the opposite direction
        along = cos * x[..., :1] + sin * x[..., 1:]
        across = cos * x[..., 1:] - sin * x[..., :1]
        return numpy.arctan2(across, along)

    def unlike(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.asarray(np.abs(np.hypot(x[..., 0], x[..., 1]) - self.radius) > OFF * self.radius)

    def what_is_unlike(self, row: NDArray[np.float64], named: Sequence[int]) -> str:
        return (
            f"which were directions (x, y) of length {self.radius:g}: the first has length "
            f"{math.hypot(*row):g}. What counts here is its angle."
        )

    def plain(self) -> dict[str, Any]:
        return {"radius": self.radius, "cut": self.cut}


@dataclass(frozen=True)
class Entries(View):
    """Of other rows: the entries `kept`, of which some may be drawn out between bounds or turned.

    rule: per entry that is not kept, in their order, its standard deviation, a constant and
    coefficients of those that are, from which it follows. bounded: entry, low, high. turned: entry,
    the period, the value where it jumps. Both count entries of the row, and are among the kept.
    """

    kept: tuple[int, ...]
    rule: tuple[tuple[float, ...], ...] = ()
    bounded: tuple[tuple[int, float, float], ...] = ()
    turned: tuple[tuple[int, float, float], ...] = ()

    def size(self, p: int) -> int:
        return len(self.kept)

    def shown(self, x: Numbers) -> Any:
        numpy = _numpy_of(x)
        columns = [x[..., j] for j in self.kept]
        for j, low, high in self.bounded:
            least = LEAST_PART if low == 0 else LEAST_GAP * (high - low)
            above = numpy.maximum(x[..., j] - low, least)
            below = numpy.maximum(high - x[..., j], LEAST_GAP * (high - low))
            columns[self.kept.index(j)] = numpy.log(above) - numpy.log(below)
        for j, period, cut in self.turned:
            columns[self.kept.index(j)] = numpy.mod(x[..., j] - cut, period)
        return numpy.stack(columns, axis=-1)

    def unlike(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.asarray(self._do_not_follow(x) | self._beyond(x))

    def _do_not_follow(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        if not self.rule:
            return np.zeros(x.shape[:-1], dtype=bool)
        spread, constant, *slopes = np.array(self.rule).T
        follows = constant + x[..., list(self.kept)] @ np.array(slopes)
        off = np.abs(x[..., self._left_out(x)] - follows)
        return np.asarray((off > OFF * spread).any(axis=-1))

    def _beyond(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        found = np.zeros(x.shape[:-1], dtype=bool)
        for j, low, high in self.bounded:
            found |= _is_beyond(x[..., j], low, high)
        return found

    def _left_out(self, x: NDArray[np.float64]) -> list[int]:
        return [j for j in range(x.shape[-1]) if j not in self.kept]

    def what_is_unlike(self, row: NDArray[np.float64], named: Sequence[int]) -> str:
        if self._do_not_follow(row):
            left_out = [named[j] for j in self._left_out(row)]
            return (
                f"in which the entries {left_out} of a row followed from the others (a "
                "total beside its parts, one length in two units). They are not looked at. Can the "
                "model produce such data?"
            )
        j, low, high = next(
            one for one in self.bounded if _is_beyond(np.asarray(row[one[0]]), *one[1:])
        )
        return (
            f"in which entry {named[j]} of a row lay between {low:g} and {high:g}: the first has "
            f"{row[j]:g}, which is taken for the value next to the bound. Are the units the same?"
        )

    def plain(self) -> dict[str, Any]:
        lists = {
            "rule": [list(one) for one in self.rule],
            "bounded": [list(one) for one in self.bounded],
            "turned": [list(one) for one in self.turned],
        }
        return {"kept": list(self.kept), **{name: value for name, value in lists.items() if value}}


@dataclass(frozen=True)
class Groups(View):
    """Of rows in which groups of entries have views of their own: what these show, in a row.

    groups: the entries of each, and its view; every entry is in one.
    """

    groups: tuple[tuple[tuple[int, ...], View], ...]

    def size(self, p: int) -> int:
        return sum(view.size(len(entries)) for entries, view in self.groups)

    def shown(self, x: Numbers) -> Any:
        shown = [view.shown(x[..., np.array(entries)]) for entries, view in self.groups]
        return _numpy_of(x).concatenate(shown, axis=-1)

    def unlike(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        each = [view.unlike(x[..., list(entries)]) for entries, view in self.groups]
        return np.asarray(np.any(each, axis=0))

    def what_is_unlike(self, row: NDArray[np.float64], named: Sequence[int]) -> str:
        entries, view = next(
            (entries, view) for entries, view in self.groups if view.unlike(row[list(entries)])
        )
        own = [named[j] for j in entries]
        return f"by their entries {own}, {view.what_is_unlike(row[list(entries)], own)}"

    def plain(self) -> dict[str, Any]:
        each = [{"entries": list(entries), **view.plain()} for entries, view in self.groups]
        return {"groups": each}


def _is_beyond(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.bool_]:
    """A zero is, for its logarithm."""
    return np.asarray((values < low) | (values > high) | ((values == 0) & (low == 0)))


AS_IT_IS = View()


def view_of(x: NDArray[Any]) -> View:
    """The view that such x (n, p) or (n, rows, p) need; rows may be missing as a whole."""
    p = x.shape[-1]
    if p < 1 or p > MOST_ENTRIES:
        return AS_IT_IS
    rows = x.reshape(-1, p)
    rows = np.asarray(rows[evenly(len(rows), MOST_ROWS)], np.float64)
    gone = np.isnan(rows)
    if (gone.any(axis=1) != gone.all(axis=1)).any():  # what is missing may follow from what is not
        return AS_IT_IS
    rows = rows[~gone.any(axis=1)]
    groups = _groups_of(rows)
    if len(groups) > 1:
        return Groups(groups)
    return groups[0][1]


def _groups_of(rows: NDArray[np.float64]) -> tuple[tuple[tuple[int, ...], View], ...]:
    """Parts of wholes, directions, and what is left; all in one, if some of that follows from
    groups that it is not in."""
    p = rows.shape[1]
    found: list[tuple[tuple[int, ...], View]] = []
    found += [(parts, Parts(whole)) for parts, whole in wholes_in(rows)]
    taken = {j for entries, _ in found for j in entries}
    for (i, j), radius in directions_in(rows):
        if not taken & {i, j}:
            angle = np.arctan2(rows[:, j], rows[:, i])
            found.append(((i, j), Direction(radius, emptiest(angle))))
            taken |= {i, j}
    rest = tuple(j for j in range(p) if j not in taken)
    if found and (following(rows)[list(rest)] != following(rows[:, list(rest)])).any():
        found, rest = [], tuple(range(p))
    if rest:
        found.append((rest, _entries_of(rows[:, list(rest)])))
    return tuple(found)


def _entries_of(rows: NDArray[np.float64]) -> View:
    left_out = following(rows)
    kept = tuple(int(j) for j in np.flatnonzero(~left_out))
    if not kept:  # nothing varies
        return AS_IT_IS
    rule = rule_of(rows, left_out).tolist() if left_out.any() else []
    turned = [(j, *found) for j in kept if (found := _turn(rows[:, j])) is not None]
    periodic = [j for j, *_ in turned]
    bounded = [
        (j, *found)
        for j in kept
        if j not in periodic and (found := bounds_of(rows[:, j])) is not None
    ]
    if not (rule or turned or bounded):
        return AS_IT_IS
    return Entries(kept, tuple(tuple(one) for one in rule), tuple(bounded), tuple(turned))


def _turn(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """The period of a column of angles, and the value where there are fewest."""
    found = period_of(values)
    if found is None:
        return None
    period = found[1] - found[0]
    return period, emptiest(values * (2 * math.pi / period)) * period / (2 * math.pi)


def from_plain(content: object, x_shape: Sequence[int]) -> View:
    """The view of x of this shape that a file holds."""
    if not isinstance(content, Mapping) or not x_shape:
        raise FormatError("What a network is shown of x is no mapping, or x has no entries.")
    p, names = x_shape[-1], set(content)
    if names == {"whole"} and p > 1 and _is_positive(content["whole"]):
        return Parts(content["whole"])
    if names == {"groups"}:
        return _groups_from_plain(content["groups"], p)
    if names == {"radius", "cut"} and p == 2 and _is_positive(content["radius"]):
        if _are_numbers([content["cut"]], 1):
            return Direction(content["radius"], content["cut"])
    elif "kept" in names and names <= {"kept", "rule", "bounded", "turned"}:
        kept = content["kept"]
        lists = [content.get(name, []) for name in ("rule", "bounded", "turned")]
        if _are_entries(kept, p) and all(isinstance(one, list) for one in lists):
            rule, bounded, turned = lists
            fits = len(rule) == p - len(kept)
            fits = fits and all(_are_numbers(one, len(kept) + 2) for one in rule)
            fits = fits and _are_between(bounded, kept) and _are_turned(turned, kept)
            if fits and not {one[0] for one in bounded} & {one[0] for one in turned}:
                return Entries(tuple(kept), *(tuple(tuple(one) for one in many) for many in lists))
    raise FormatError(f"This is no way to show x {list(x_shape)}: {dict(content)!r:.100}.")


def _groups_from_plain(content: object, p: int) -> Groups:
    """Each entry in one of two or more groups, none of which has groups itself."""
    groups: list[tuple[tuple[int, ...], View]] = []
    for one in content if isinstance(content, list) else []:
        own = dict(one) if isinstance(one, Mapping) else {}
        entries = own.pop("entries", None)
        if not _are_entries(entries, p) or "groups" in own:
            break
        view = from_plain(own, (len(entries),)) if own else AS_IT_IS
        groups.append((tuple(entries), view))
    else:
        if len(groups) > 1 and sorted(j for own, _ in groups for j in own) == list(range(p)):
            return Groups(tuple(groups))
    raise FormatError(f"These are no groups of {p} entries: {content!r:.100}.")


def _is_positive(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and 0 < value < math.inf


def _are_entries(kept: object, p: int) -> TypeGuard[list[int]]:
    if not isinstance(kept, list) or not 0 < len(kept) <= p:
        return False
    return all(type(j) is int and 0 <= j < p for j in kept) and sorted(set(kept)) == kept


def _are_numbers(values: object, count: int) -> TypeGuard[list[float]]:
    if not isinstance(values, list) or len(values) != count:
        return False
    return all(type(a) is float and math.isfinite(a) for a in values)


def _are_of_entries(many: list[Any], kept: list[int]) -> bool:
    """Whether they are lists of an entry and two numbers, no entry twice."""
    if not all(isinstance(one, list) and len(one) == 3 for one in many):
        return False
    named = [one[0] for one in many]
    if not all(type(j) is int and j in kept for j in named) or len(set(named)) < len(named):
        return False
    return all(_are_numbers(one[1:], 2) for one in many)


def _are_between(bounded: list[Any], kept: list[int]) -> bool:
    return _are_of_entries(bounded, kept) and all(low < high for _, low, high in bounded)


def _are_turned(turned: list[Any], kept: list[int]) -> bool:
    return _are_of_entries(turned, kept) and all(period > 0 for _, period, _ in turned)


def _numpy_of(x: Numbers) -> Any:
    return np if isinstance(x, np.ndarray) else jnp
