"""The record of a simulated data set: rows (theta, x, score) and where they came from.

Row i holds theta[i] drawn from the design, x[i] ~ p(x | theta[i]), and, where the model has them,
score[i] = d log p(x[i] | theta[i]) / d theta (exact), or its unbiased stand-in (joint).
The arrays are in memory or, for a data set on disk, a view of its shards that fetches rows when
asked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from keepscore.checks import (
    Floats,
    as_real,
    require_choice,
    require_count,
    require_flag,
    require_name,
    require_values,
)
from keepscore.data.sharded import ShardedArray
from keepscore.errors import DomainError, DtypeError, MissingError, ShapeError
from keepscore.models.base import ScoreKind, Symmetry
from keepscore.models.graphs import as_weights
from keepscore.models.trend import Trend, as_trend
from keepscore.space import Space

Array = NDArray[Any] | ShardedArray
Batch = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Simulations: parameters, data and, where there are any, scores.

    `ks.simulate`, `ks.open_dataset` and `ks.dataset` make one. Arrays are finite, copied and
    read-only, so that what was checked stays as it is.

    Args:
        theta: (n, d) float64, working parameters.
        x: (n, *x_shape) in the model's dtype.
        score: (n, d) float64, or None.
        space: What the columns of theta are.
        score_kind: "exact" or "joint"; None without scores.
        structure: What networks may rely on, as a model declares it.
        symmetries: Maps under which the likelihood stays the same, as a model declares them.
        provenance: Where the rows come from, as plain data.
        contacts: Where x (T, K) are states of K people on a graph, its weights (K, K): entry
            [k, j] is the weight of j on k.
        missing: Whether NaN in x means "not observed". Elsewhere NaN is an error.
        trend: An unknown mean, as a model declares it. It was taken off x, and a surrogate takes it
            off the data that it is given.

    Raises:
        ShapeError, DtypeError, NonFiniteError: The arrays do not fit together.
        MissingError: Scores without a kind, or a kind without scores.

    Example:
        >>> import keepscore as ks
        >>> data = ks.simulate(ks.models.GaussianField(shape=(4, 4)), 100)
        >>> data
        Dataset(gaussian-field, n=100, x_shape=(4, 4), d=3, score_kind='exact')
        >>> theta, x, score = data.rows([0, 5, 7])
        >>> theta.shape, x.shape, score.shape
        ((3, 3), (3, 4, 4), (3, 3))
    """

    theta: Array
    x: Array
    score: Array | None
    space: Space
    score_kind: ScoreKind | None = None
    structure: str | None = None
    symmetries: tuple[Symmetry, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    contacts: Floats | None = None
    missing: bool = False
    trend: Trend | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space):
            raise DtypeError(f"space must be a keepscore.Space; got {type(self.space).__name__}.")
        require_flag(self.missing, "missing")
        for name, kind in (("theta", np.float64), ("x", None), ("score", np.float64)):
            given = getattr(self, name)
            if given is not None or name != "score":
                holes = name == "x" and self.missing
                object.__setattr__(self, name, _own(given, name, kind, holes))
        n, d = len(self.theta), self.space.d
        if self.theta.shape != (n, d):
            raise ShapeError(f"theta must have shape (n, {d}); got {self.theta.shape}.")
        if len(self.x) != n:
            raise ShapeError(f"theta and x need as many rows each; got {n} and {len(self.x)}.")
        if self.score is not None and self.score.shape != (n, d):
            raise ShapeError(f"score must have shape ({n}, {d}); got {self.score.shape}.")
        if (self.score is None) != (self.score_kind is None):
            raise MissingError(
                "Scores and score_kind ('exact' or 'joint') go together: give both or neither."
            )
        if self.score_kind is not None:
            require_choice(self.score_kind, "score_kind", ("exact", "joint"))
        if not isinstance(self.provenance, Mapping):
            raise DtypeError(f"provenance must be a dictionary; got {self.provenance!r}.")
        if self.trend is not None:
            if not isinstance(self.trend, Trend):
                raise DtypeError(f"trend must be that of a model; got {self.trend!r:.80}.")
            self.trend.basis(self.x.shape[1:])
        if self.contacts is not None:
            weights = as_weights(self.contacts)
            weights.flags.writeable = False
            timed = self.structure == "timed-markov"
            if len(self.x.shape) != 3 or self.x.shape[2] != len(weights) + timed:
                raise ShapeError(
                    f"contacts of {len(weights)} people need x of shape "
                    f"(n, T, {len(weights) + timed}); got {self.x.shape}."
                )
            object.__setattr__(self, "contacts", weights)

    def __len__(self) -> int:
        return len(self.theta)

    def __repr__(self) -> str:
        model = self.provenance.get("model")
        name = model.get("name") if isinstance(model, Mapping) else None
        name = name or "unnamed model"
        return (
            f"Dataset({name}, n={len(self)}, x_shape={self.x_shape}, d={self.space.d}, "
            f"score_kind={self.score_kind!r})"
        )

    @property
    def x_shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    def rows(self, index: ArrayLike) -> Batch:
        """(theta, x, score) at the rows of an index array, in its order, copied into memory."""
        index = as_real(index, "index")
        if index.size == 0:
            index = index.astype(np.int64)
        if index.ndim != 1 or index.dtype.kind not in "iub":
            raise DtypeError(
                f"index must be a list of row numbers, or a mask; got {index.dtype} of shape "
                f"{index.shape}."
            )
        whole = index.dtype.kind != "b"
        inside = ((index >= -len(self)) & (index < len(self))) if whole else len(index) == len(self)
        if not np.all(inside):
            raise DomainError(f"index must name rows of {len(self)}; got {index!r:.80}.")
        return self.theta[index], self.x[index], None if self.score is None else self.score[index]

    def take(self, n: int) -> Dataset:
        """The first n rows as a data set of their own; nothing is copied."""
        require_count(n, "n", minimum=0)
        if n > len(self):
            raise ShapeError(f"Cannot take {n} rows of {len(self)}; simulate more.")

        def head(array: Array) -> Array:
            return array.head(n) if isinstance(array, ShardedArray) else array[:n]

        score = None if self.score is None else head(self.score)
        return replace(self, theta=head(self.theta), x=head(self.x), score=score)

    def blocks(self, rows_per_block: int = 8192) -> Iterator[Batch]:
        """The rows in order, as blocks (theta, x, score) of at most `rows_per_block`, in memory."""
        require_count(rows_per_block, "rows_per_block")
        for start in range(0, len(self), rows_per_block):
            part = slice(start, start + rows_per_block)
            yield self.theta[part], self.x[part], None if self.score is None else self.score[part]

    def fingerprint(self) -> str:
        """SHA-256 of all that training uses: rows, space, kind of score, structure, symmetries.

        The same for a set in memory and on disk. On disk, every byte is compared with the
        checksums recorded when it was written; what was damaged is named in a `FormatError`.
        Computed once for a set on disk: again only when the files have been written to. Arrays
        in memory may be changed by anyone, and are hashed each time.
        """
        arrays = list(self._arrays().values())
        stamps = tuple(a.stamps() for a in arrays if isinstance(a, ShardedArray))
        known = self.__dict__.get("_fingerprint")
        if known is None or known[0] != stamps or len(stamps) < len(arrays):
            known = stamps, fingerprint_of(self._arrays(), self._declared())
            object.__setattr__(self, "_fingerprint", known)
        return str(known[1])

    def in_memory(self) -> Dataset:
        """The same data set with its arrays loaded."""
        score = None if self.score is None else _loaded(self.score)
        return replace(self, theta=_loaded(self.theta), x=_loaded(self.x), score=score)

    def _arrays(self) -> dict[str, Array]:
        kept = {"theta": self.theta, "x": self.x}
        return kept if self.score is None else {**kept, "score": self.score}

    def _declared(self) -> dict[str, Any]:
        declared: dict[str, Any] = {
            "space": self.space.to_dict(),
            "score_kind": self.score_kind,
            "structure": self.structure,
            "symmetries": [s.to_dict() for s in self.symmetries],
        }
        # Only where it says something: older fingerprints stay as they are.
        if self.missing:
            declared["missing"] = True
        if self.trend is not None:
            declared["trend"] = self.trend.settings()
        return declared


def dataset(
    theta: ArrayLike,
    x: ArrayLike,
    score: ArrayLike | None = None,
    *,
    space: Space,
    score_kind: ScoreKind = "exact",
    structure: str | None = None,
    symmetries: Sequence[Symmetry] = (),
    contacts: ArrayLike | None = None,
    name: str = "arrays",
    missing: bool = False,
    trend: str | ArrayLike | Trend | None = None,
) -> Dataset:
    """A data set of simulations that were made elsewhere, ready for `ks.train`.

    Args:
        theta: (n, d), the working parameters of each row, inside the train box of `space`. They
            should be spread over all of it: what the surrogate learns is log p(x | theta) / p(x)
            with p(x) under the distribution of these theta. Raw values become working ones by
            `space.to_working(raw)`.
        x: (n, *x_shape), one simulation per row.
        score: (n, d), d log p(x | theta) / d theta of the working parameters, if known.
        space: What the columns of theta are.
        score_kind: "exact", or "joint" for the gradient of the log density of all that was drawn
            on the way to x.
        structure, symmetries, contacts: What networks may rely on, as a model declares it.
        name: What to call the source of the rows.
        missing: Whether NaN in x means "not observed". Elsewhere NaN is an error.
        trend: The mean of x, if it is unknown: "constant", "linear" (a constant and a slope along
            each axis) or covariates (*x_shape, p), to which a constant is added; for x at scattered
            places their coordinates (S, 2) are the covariates of a plane. It is taken off x here,
            and a surrogate takes it off the data that it is given. Scores must then be those of
            what is left, the error contrasts.

    Returns:
        A `Dataset` with read-only copies of the arrays.

    Raises:
        ShapeError, DtypeError, NonFiniteError: arrays that do not fit together.
        DomainError: a theta outside the train box.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> space = ks.Space([ks.Parameter("mean", -2, 2, "identity")])
        >>> rng = np.random.default_rng(0)
        >>> theta = space.uniform(500, rng, "train")
        >>> x = theta + rng.standard_normal((500, 3))
        >>> score = (x - theta).sum(axis=1, keepdims=True)
        >>> ks.dataset(theta, x, score, space=space)
        Dataset(arrays, n=500, x_shape=(3,), d=1, score_kind='exact')
    """
    require_name(name, "The name of a data set")
    kind = None if score is None else score_kind
    provenance = {"model": {"name": name}}
    made = Dataset(
        theta,  # type: ignore[arg-type]
        x,  # type: ignore[arg-type]
        score,  # type: ignore[arg-type]
        space,
        kind,
        structure,
        tuple(symmetries),
        provenance,
        contacts,  # type: ignore[arg-type]
        missing,
    )
    if trend is not None:
        made = _without(made, trend)
    values = np.asarray(made.theta)
    outside = np.flatnonzero(~space.contains(values, "train"))
    if len(outside):
        low, high = space.box("train")
        raise DomainError(
            f"{len(outside)} of {len(made)} theta lie outside the train box of the space, "
            f"{low.tolist()} to {high.tolist()} in working parameters; the first is row "
            f"{outside[0]}, {values[outside[0]].tolist()}. Widen the space, or turn raw values "
            "into working ones by space.to_working(raw)."
        )
    return made


def _without(data: Dataset, trend: str | ArrayLike | Trend) -> Dataset:
    """The same rows with an unknown mean taken off x; x keeps its dtype where it can."""
    declared = as_trend(trend, data.x.shape[1:])
    assert declared is not None
    x = np.asarray(data.x)
    left = declared.take_off(x).astype(x.dtype if x.dtype.kind == "f" else np.float64)
    return replace(data, x=left, trend=declared)


def _loaded(array: Array) -> NDArray[Any]:
    loaded = np.array(array) if isinstance(array, np.memmap) else np.asarray(array)
    loaded.flags.writeable = False
    return loaded


def _own(
    values: ArrayLike | ShardedArray, name: str, dtype: DTypeLike | None, missing: bool
) -> Array:
    """An array of ours: on disk, or in memory, read-only, and out of anybody else's reach."""
    if isinstance(values, ShardedArray):
        return values
    array = as_real(values, name)
    if array.ndim == 0:
        raise ShapeError(f"{name} needs one row per simulation; got a single number.")
    if isinstance(values, np.memmap):  # a file of the caller's: read when asked for
        return values
    require_values(array, name, missing)
    dtype = array.dtype if dtype is None else np.dtype(dtype)
    if not _is_fixed(array) or array.dtype != dtype:
        array = np.array(array, dtype=dtype, order="C")
        array.flags.writeable = False
    return array


def _is_fixed(array: NDArray[Any]) -> bool:
    """Whether an array, and each array that it is a view of, is read-only."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        if array.base is None:
            return True
        array = array.base
    return isinstance(array, bytes)


def fingerprint_of(arrays: Mapping[str, Array], declared: Mapping[str, Any]) -> str:
    """SHA-256 of arrays (names, dtypes, shapes, values) and of plain data beside them."""
    text = json.dumps(declared, sort_keys=True, allow_nan=False)
    total = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        kind = array.dtype.newbyteorder("<")
        total.update(f"\n{name} {kind.str} {tuple(array.shape)}\n".encode())
        parts = array.parts() if isinstance(array, ShardedArray) else _pieces(array)
        for part in parts:
            total.update(np.ascontiguousarray(part, dtype=kind).data.cast("B"))
    return total.hexdigest()


def _pieces(array: NDArray[Any], rows: int = 8192) -> Iterator[NDArray[Any]]:
    for start in range(0, len(array), rows):
        yield array[start : start + rows]
