"""How data go missing when they are simulated, whatever their values and whatever theta.

A mask draws which entries of x are not observed (True), for n data sets at once:

    mask.draw(x_shape, n, rng)        -> (n, *x_shape) bool
    mask.keeps(x_index, x_shape)      does a permutation of the entries leave its law as it is?
    mask.settings()                   plain data, from which `mask_from` makes the same mask

    rate          each entry by itself, with one probability
    fixed         the same entries in every data set
    clouds        clumps: where smooth Gaussian noise z, of variance 1 everywhere, is large,
                  z > Phi^-1(1 - share): each entry is missing with probability `share`
    drop_out      after a random time, the first axis, nothing is observed any more
    visits        each time (row) by itself, whole
    rows          the first n rows are observed, n uniform between two numbers
    function      a function of yours
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from keepscore.checks import as_number, as_real, require_count
from keepscore.errors import DomainError, DtypeError, FormatError, ShapeError
from keepscore.models.identity import fingerprint

Flags = NDArray[np.bool_]
MaskFunction = Callable[[tuple[int, ...], int, np.random.Generator], Any]
Shape = tuple[int, ...]

MOST_COMPARED = 2500  # entries of x whose covariances are compared, one by one


class Mask(ABC):
    """Which entries of x are not observed; see the top of this file."""

    kind: ClassVar[str]
    whole_rows: ClassVar[bool] = False  # are rows (first axis) always missing as a whole?

    @abstractmethod
    def draw(self, x_shape: Shape, n: int, rng: np.random.Generator) -> Flags:
        """True where an entry is not observed, (n, *x_shape)."""

    def keeps(self, x_index: NDArray[np.int64], x_shape: Shape) -> bool:
        """Whether the law of the mask is surely the same after this permutation of entries."""
        return np.array_equal(x_index, np.arange(len(x_index))) or self._keeps(x_index, x_shape)

    def _keeps(self, x_index: NDArray[np.int64], x_shape: Shape) -> bool:
        return False

    def require_fits(self, x_shape: Shape) -> None:
        """Refuse a shape that this mask is not made for."""
        if not x_shape:
            raise ShapeError("x is a single number per data set; nothing in it can be missing.")

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@final
@dataclass(frozen=True)
class EntryRate(Mask):
    """Each entry by itself, with probability `rate`."""

    rate: float
    kind: ClassVar[str] = "rate"

    def draw(self, x_shape: Shape, n: int, rng: np.random.Generator) -> Flags:
        return rng.random((n, *x_shape)) < self.rate

    def _keeps(self, x_index: NDArray[np.int64], x_shape: Shape) -> bool:
        return True


@final
@dataclass(frozen=True, eq=False)
class FixedMask(Mask):
    """The same entries in every data set."""

    entries: Flags
    kind: ClassVar[str] = "fixed"

    def draw(self, x_shape: Shape, n: int, rng: np.random.Generator) -> Flags:
        return np.broadcast_to(self.entries, (n, *x_shape)).copy()

    def _keeps(self, x_index: NDArray[np.int64], x_shape: Shape) -> bool:
        flat = self.entries.ravel()
        return np.array_equal(flat[x_index], flat)

    def require_fits(self, x_shape: Shape) -> None:
        if self.entries.shape != x_shape:
            raise ShapeError(
                f"A fixed mask must have the shape of x, {x_shape}; got {self.entries.shape}."
            )

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "entries": self.entries.tolist()}


@final
@dataclass(frozen=True)
class Clouds(Mask):
    """Clumps; made by `clouds`."""

    share: float
    size: int
    kind: ClassVar[str] = "clouds"

    def draw(self, x_shape: Shape, n: int, rng: np.random.Generator) -> Flags:
        smoothers = [self._smoother(side) for side in x_shape]
        z = rng.standard_normal((n, *(s.shape[1] for s in smoothers)))
        for axis, smoother in enumerate(smoothers, start=1):
            z = np.moveaxis(np.tensordot(z, smoother, axes=(axis, 1)), -1, axis)
        return z > ndtri(1.0 - self.share)

    def _smoother(self, side: int) -> NDArray[np.float64]:
        """(side, side + 2 size): each row a Gaussian bump of unit length, so that what it makes of
        white noise has variance 1 at every place, edges too."""
        steps = np.arange(-self.size, self.size + 1)
        bump = np.exp(-0.5 * (steps / (0.5 * self.size)) ** 2)
        bump /= np.linalg.norm(bump)
        rows = np.zeros((side, side + 2 * self.size))
        for i in range(side):
            rows[i, i : i + len(bump)] = bump
        return rows

    def _keeps(self, x_index: NDArray[np.int64], x_shape: Shape) -> bool:
        """The law of z is that of its covariance; nothing is said of x too large to look at."""
        if len(x_index) > MOST_COMPARED:
            return False
        covariance: NDArray[np.floating[Any]] = np.ones((1, 1))
        for side in x_shape:
            smoother = self._smoother(side)
            covariance = np.kron(covariance, smoother @ smoother.T)
        return np.allclose(covariance[np.ix_(x_index, x_index)], covariance, rtol=0, atol=1e-12)


@final
@dataclass(frozen=True)
class DropOut(Mask):
    """Nothing after a random time; made by `drop_out`."""

    rate: float
    kind: ClassVar[str] = "drop_out"
    whole_rows: ClassVar[bool] = True

    def draw(self, x_shape: Shape, n: int, rng: np.random.Generator) -> Flags:
        # The time of the last observation: geometric, the first one is always made.
        last = rng.geometric(self.rate, n) if self.rate > 0 else np.full(n, x_shape[0])
        return _by_rows(np.arange(x_shape[0]) >= last[:, None], x_shape)

    def _keeps(self, x_index: NDArray[np.int64], x_shape: Shape) -> bool:
        return _rows_stay(x_index, x_shape)


@final
@dataclass(frozen=True)
class MissingVisits(Mask):
    """Whole rows, each by itself; made by `missing_visits`."""

    rate: float
    kind: ClassVar[str] = "visits"
    whole_rows: ClassVar[bool] = True

    def draw(self, x_shape: Shape, n: int, rng: np.random.Generator) -> Flags:
        return _by_rows(rng.random((n, x_shape[0])) < self.rate, x_shape)

    def _keeps(self, x_index: NDArray[np.int64], x_shape: Shape) -> bool:
        return _rows_of(x_index, x_shape) is not None


@final
@dataclass(frozen=True)
class MissingRows(Mask):
    """The first n rows are observed; made by `missing_rows`."""

    low: int
    high: int
    kind: ClassVar[str] = "rows"
    whole_rows: ClassVar[bool] = True

    def draw(self, x_shape: Shape, n: int, rng: np.random.Generator) -> Flags:
        count = rng.integers(self.low, self.high, n, endpoint=True)
        return _by_rows(np.arange(x_shape[0]) >= count[:, None], x_shape)

    def _keeps(self, x_index: NDArray[np.int64], x_shape: Shape) -> bool:
        return _rows_stay(x_index, x_shape)

    def require_fits(self, x_shape: Shape) -> None:
        super().require_fits(x_shape)
        if self.high > x_shape[0]:
            raise ShapeError(
                f"x has {x_shape[0]} rows; missing_rows({self.low}, {self.high}) wants up to "
                f"{self.high}. Give the model as many rows as the largest data set has."
            )


@final
@dataclass(frozen=True)
class FunctionMask(Mask):
    """A function (x_shape, n, rng) -> bool (n, *x_shape) of the user."""

    function: MaskFunction
    kind: ClassVar[str] = "function"

    def draw(self, x_shape: Shape, n: int, rng: np.random.Generator) -> Flags:
        found = as_real(self.function(x_shape, n, rng), "What the mask function returns")
        if found.shape != (n, *x_shape) or found.dtype.kind != "b":
            raise ShapeError(
                f"A mask function must return True and False of shape {(n, *x_shape)}; got "
                f"{found.dtype} of shape {found.shape}."
            )
        return found

    def settings(self) -> dict[str, Any]:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return {"kind": self.kind, "name": name, "code": fingerprint(self.function)}


def clouds(share: float = 0.2, size: int = 5) -> Mask:
    """Entries that go missing in clumps, as pixels under clouds do.

    Args:
        share: The probability of each entry to be missing, in (0, 1).
        size: How far a clump reaches, about, in entries along each axis.

    Returns:
        A mask for `ks.models.with_missing`.

    Raises:
        DomainError: A share that is no probability, or no size.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> rng = np.random.default_rng(0)
        >>> flags = ks.models.clouds(share=0.3, size=4).draw((20, 20), 500, rng)
        >>> flags.shape, bool(abs(flags.mean() - 0.3) < 0.02)
        ((500, 20, 20), True)
    """
    share = as_number(share, "share")
    if not 0.0 < share < 1.0:
        raise DomainError(f"share must lie strictly between 0 and 1; got {share:g}.")
    return Clouds(share, require_count(size, "size"))


def drop_out(rate: float) -> Mask:
    """After a random time, the first axis of x, nothing is observed any more.

    Args:
        rate: The probability to be lost between one time and the next, in [0, 1). The first time is
            always observed.

    Returns:
        A mask for `ks.models.with_missing`.

    Raises:
        DomainError: Not such a rate.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> ks.models.drop_out(0.5).draw((4, 1), 2, np.random.default_rng(1))[:, :, 0].tolist()
        [[False, False, True, True], [False, False, False, False]]
    """
    return DropOut(require_rate(rate))


def missing_visits(rate: float) -> Mask:
    """Whole times (or rows: the first axis of x) that were not observed, each by itself.

    Args:
        rate: The probability of each, in [0, 1).

    Returns:
        A mask for `ks.models.with_missing`.

    Raises:
        DomainError: Not such a rate.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> ks.models.missing_visits(0.5).draw((3, 2), 1, np.random.default_rng(0)).tolist()
        [[[False, False], [True, True], [True, True]]]
    """
    return MissingVisits(require_rate(rate))


def missing_rows(low: int, high: int) -> Mask:
    """Data sets of different sizes: the first n rows of x are observed, the others are NaN.

    Args:
        low: The smallest n, at least 0.
        high: The largest n, at most the rows of x. n is uniform between both.

    Returns:
        A mask for `ks.models.with_missing`.

    Raises:
        DomainError: `low` is larger than `high`.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> flags = ks.models.missing_rows(1, 3).draw((3, 2), 4, np.random.default_rng(0))
        >>> (~flags[:, :, 0]).sum(axis=1).tolist()
        [3, 2, 2, 1]
    """
    low, high = require_count(low, "low", minimum=0), require_count(high, "high")
    if low > high:
        raise DomainError(f"low must be at most high; got {low} and {high}.")
    return MissingRows(low, high)


def as_mask(mask: object, whole_rows: bool) -> Mask:
    """A mask from what `with_missing` takes; a rate is one of whole rows where that is asked."""
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, type):
        raise DtypeError(f"mask must be a mask, not a class; got {mask.__name__}.")
    if callable(mask):
        return FunctionMask(mask)
    array = np.asarray(mask) if isinstance(mask, (Sequence, np.ndarray)) else None
    if array is not None and array.ndim > 0:
        if array.dtype.kind != "b":
            raise DtypeError(
                "A fixed mask holds True (not observed) and False; got "
                f"{array.dtype} of shape {array.shape}."
            )
        entries = array.copy()
        entries.flags.writeable = False
        return FixedMask(entries)
    rate = require_rate(mask, "mask")
    return MissingVisits(rate) if whole_rows else EntryRate(rate)


def mask_from(settings: object) -> Mask:
    """The mask with these settings; anything else is a `FormatError`."""
    if not isinstance(settings, Mapping):
        raise FormatError("Not the settings of a mask.")
    values = {key: value for key, value in settings.items() if key != "kind"}
    makers: dict[object, Callable[..., Mask]] = {
        "rate": lambda rate: EntryRate(require_rate(rate)),
        "fixed": lambda entries: as_mask(np.array(entries), False),
        "clouds": clouds,
        "drop_out": drop_out,
        "visits": missing_visits,
        "rows": missing_rows,
    }
    kind = settings.get("kind")
    if not isinstance(kind, str) or kind not in makers:
        raise FormatError(
            f"A mask of the kind {kind!r:.60} cannot be made from its settings: "
            "wrap the model with it again."
        )
    return makers[kind](**values)


def require_rate(rate: object, name: str = "rate") -> float:
    """A probability of going missing, in [0, 1)."""
    value = as_number(rate, name)
    if not 0.0 <= value < 1.0:
        raise DomainError(f"{name} must be a rate in [0, 1); got {value:g}.")
    return value


def _by_rows(flags: Flags, x_shape: Shape) -> Flags:
    """(n, rows) -> (n, *x_shape)."""
    n = len(flags)
    wide = flags.reshape(n, x_shape[0], *(1,) * (len(x_shape) - 1))
    return np.broadcast_to(wide, (n, *x_shape)).copy()


def _rows_of(x_index: NDArray[np.int64], x_shape: Shape) -> NDArray[np.int64] | None:
    """Which row each row is taken from, if rows stay together."""
    from_row = x_index.reshape(x_shape[0], -1) // (len(x_index) // x_shape[0])
    return from_row[:, 0] if (from_row == from_row[:, :1]).all() else None


def _rows_stay(x_index: NDArray[np.int64], x_shape: Shape) -> bool:
    rows = _rows_of(x_index, x_shape)
    return rows is not None and np.array_equal(rows, np.arange(x_shape[0]))
