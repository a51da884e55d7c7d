"""A mean that is not known: x = X beta + (a field of mean zero), beta any vector.

What is left of x once beta is unknown are its error contrasts, the part that is orthogonal to the
columns of X. With an orthonormal basis U (S, p) of those columns,

    r(x) = x - U U' x          the residuals of ordinary least squares, the same for x and x + X b

carries all of them, and so stands for x: the simulators of models with a trend draw r, surrogates
are trained on r, and take r of whatever data they are given. Where entries are not observed (NaN),
U is the part of the basis at the observed ones, made orthonormal again (`observed_basis`); columns
that cannot be told apart there count once.

    "constant"     X = 1
    "linear"       X = 1 and the coordinates of the places (of a grid: row and column numbers, which
                   span the same)
    covariates     X = 1 and these; a constant is always part of it

Only the span of X matters, neither its scale nor the choice of columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_floats, require_choice, require_finite
from keepscore.errors import DomainError, DtypeError, FormatError, KeepscoreError, ShapeError

KINDS = ("constant", "linear", "covariates")
NAMED = ("constant", "linear")
# Of singular values, relative to the largest: columns closer to dependence than this are dependent.
TOLERANCE = 1e-9
MOST_NUMBERS = 1_000_000  # of covariates, which go into descriptions as plain numbers
AT_ONCE = 2_000_000  # numbers of bases in memory


@final
@dataclass(frozen=True, eq=False)
class Trend:
    """An unknown mean in the span of some columns; made by `as_trend`."""

    kind: str
    covariates: Floats | None = None  # (*x_shape, p)
    _bases: dict[tuple[int, ...], Floats] = field(default_factory=dict, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trend) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash(self.kind)

    @property
    def any_shape(self) -> bool:
        """Whether it is defined for grids of every shape."""
        return self.covariates is None

    def basis(self, x_shape: Sequence[int]) -> Floats:
        """U (S, p): orthonormal columns with the span of X, at all places."""
        shape = tuple(int(side) for side in x_shape)
        if shape not in self._bases:
            self._bases[shape] = contrast_basis(self._columns(shape))
        return self._bases[shape]

    def take_off(self, x: NDArray[Any]) -> Floats:
        """r(x) for each x (n, *x_shape), in float64; NaN, "not observed", stays."""
        values = np.asarray(x, dtype=np.float64)
        basis = self.basis(values.shape[1:])
        flat = values.reshape(len(values), len(basis)).copy()
        gone = np.isnan(flat)
        whole = ~gone.any(axis=1)
        for _ in range(2):  # a second time takes off what rounding left of a mean far from zero
            flat[whole] -= (flat[whole] @ basis) @ basis.T
        holes = np.flatnonzero(~whole)
        step = max(1, AT_ONCE // max(1, basis.size))
        for start in range(0, len(holes), step):
            rows = holes[start : start + step]
            flat[rows] = _take_off_observed(flat[rows], ~gone[rows], basis)
        return flat.reshape(values.shape)

    def keeps(self, x_index: NDArray[np.int64], x_shape: Sequence[int]) -> bool:
        """Whether a permutation of the entries of x maps the span of X onto itself."""
        basis = self.basis(x_shape)
        moved = basis[x_index]
        return bool(np.abs(moved - basis @ (basis.T @ moved)).max() < 1e-9)

    def settings(self) -> dict[str, Any]:
        """Plain data; `trend_from` makes the same trend of it."""
        if self.covariates is None:
            return {"kind": self.kind}
        return {"kind": self.kind, "covariates": self.covariates.tolist()}

    def plain(self) -> str | list[Any]:
        """The same as an argument of a model."""
        return self.kind if self.covariates is None else self.covariates.tolist()

    def _columns(self, shape: tuple[int, ...]) -> Floats:
        size = int(np.prod(shape))
        constant = np.ones((size, 1))
        if self.kind == "constant":
            return constant
        if self.covariates is not None:
            if self.covariates.shape[:-1] != shape:
                raise ShapeError(
                    f"The trend has covariates for x of shape {self.covariates.shape[:-1]}; got "
                    f"{shape}."
                )
            return np.concatenate([constant, self.covariates.reshape(size, -1)], axis=1)
        numbers = np.indices(shape, dtype=np.float64).reshape(len(shape), size).T
        return np.concatenate([constant, numbers], axis=1)


def as_trend(
    trend: str | ArrayLike | Trend | None,
    x_shape: Sequence[int],
    locations: Floats | None = None,
) -> Trend | None:
    """A trend for x of this shape, from what a user may give; None is a mean of zero, known."""
    shape = tuple(int(side) for side in x_shape)
    if trend is None or isinstance(trend, Trend):
        made = trend
    elif isinstance(trend, str):
        require_choice(trend, "trend", NAMED)
        if trend == "linear" and locations is not None:
            made = Trend("covariates", locations.copy())
        else:
            made = Trend(trend)
    else:
        made = Trend("covariates", _as_covariates(trend, shape))
    if made is not None:
        size, rank = made.basis(shape).shape
        if rank >= size:
            raise DomainError(
                f"x has {size} numbers and the trend {rank} unknown coefficients: nothing is left "
                "to learn from. Take a larger grid or a simpler trend."
            )
    return made


def trend_from(content: object) -> Trend:
    """A trend from what `settings` gave, checked as if a stranger had written it."""
    try:
        assert isinstance(content, Mapping)
        kind = content["kind"]
        require_choice(kind, "trend", KINDS)
        if (kind == "covariates") != ("covariates" in content):
            raise ValueError("covariates and their kind go together")
        if kind != "covariates":
            return Trend(kind)
        values = np.array(content["covariates"], dtype=np.float64)
        return Trend(kind, _as_covariates(values, values.shape[:-1]))
    except (KeepscoreError, ValueError, TypeError, KeyError, AssertionError, IndexError) as error:
        raise FormatError(f"Not the description of a trend: {str(error)[:200]}.") from None


def contrast_basis(columns: Floats) -> Floats:
    """An orthonormal basis (m, r) of the span of columns (m, p); each column counts by its
    direction, not by its size."""
    size = np.sqrt((columns**2).sum(axis=0))
    scaled = columns[:, size > 0] / size[size > 0]
    if scaled.size == 0:
        return np.zeros((len(columns), 0))
    # Twice, since columns such as years (2001, 2002, ...) are nearly a constant.
    first = scaled[:, :1]
    rest = scaled[:, 1:]
    for _ in range(2):
        rest = rest - first @ (first.T @ rest)
    left = np.sqrt((rest**2).sum(axis=0))
    rest = rest[:, left > TOLERANCE] / left[left > TOLERANCE]
    u, s, _ = np.linalg.svd(np.concatenate([first, rest], axis=1), full_matrices=False)
    return np.ascontiguousarray(u[:, s > TOLERANCE * s[0]])


def observed_basis(rows: Floats) -> Floats:
    """An orthonormal basis (m, r) of the span of some rows (m, p) of an orthonormal basis."""
    u, s, _ = np.linalg.svd(rows, full_matrices=False)
    return np.ascontiguousarray(u[:, s > TOLERANCE])  # s is at most 1


def _take_off_observed(flat: Floats, there: NDArray[np.bool_], basis: Floats) -> Floats:
    """Residuals of rows (b, S), each with holes of its own, NaN in them again."""
    at = basis[None] * there[:, :, None]
    u, s, _ = np.linalg.svd(at, full_matrices=False)
    u = u * (s > TOLERANCE)[:, None, :]  # as in `observed_basis`
    values = np.where(there, flat, 0.0)
    for _ in range(2):
        values = values - (u @ (values[:, None] @ u).transpose(0, 2, 1))[..., 0]
    return np.where(there, values, np.nan)


def _as_covariates(values: object, shape: tuple[int, ...]) -> Floats:
    """(*x_shape, p) from that or, for one covariate, from x_shape."""
    if isinstance(values, (bool, bytes)) or callable(values) or isinstance(values, Mapping):
        raise DtypeError(
            "trend must be None, 'constant', 'linear' or covariates (*x_shape, p); got "
            f"{values!r:.80}."
        )
    array = as_floats(values, "covariates of the trend").copy()  # type: ignore[arg-type]
    if array.shape == shape:
        array = array[..., None]
    if array.ndim != len(shape) + 1 or array.shape[:-1] != shape or array.shape[-1] == 0:
        inner = ", ".join(map(str, shape))
        raise ShapeError(
            f"Covariates of the trend must have shape ({inner}, p), p for each place of x; got "
            f"{array.shape}."
        )
    if array.size > MOST_NUMBERS:
        raise DomainError(f"Covariates may hold {MOST_NUMBERS} numbers; got {array.size}.")
    require_finite(array, "covariates of the trend")
    array.flags.writeable = False
    return array
