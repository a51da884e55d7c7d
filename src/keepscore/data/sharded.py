"""One array that lies in many files: rows are read from its shards when asked for.

A `ShardedArray` looks like a read-only NumPy array of shape (n, ...): it has a shape and a dtype,
takes integers, slices and index arrays, joins arithmetic, and `np.asarray` loads all of it.

Files are opened for one reading and closed again, never mapped: a process has few file descriptors
(often 1024), and a mapped file that is cut short kills the process. An array that fits into
the cache is kept there shard by shard as it is used; of a larger one only the rows asked for are
read. What is handed out is always a copy.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from keepscore.errors import DtypeError

Rows = NDArray[Any]
Index: TypeAlias = int | slice | EllipsisType | NDArray[Any] | list[int] | tuple[Any, ...] | None
CACHE_BYTES = 256 << 20  # for all arrays of the process together
MOST_OF_IT = 8  # from an eighth of a shard on, reading it whole is no slower than row by row


class Shards(Protocol):
    """Where the rows come from; what is read has been checked."""

    def whole(self, k: int, anew: bool = False) -> Rows:
        """All rows of shard k; with `anew`, checked once more even if they were before."""
        ...

    def some(self, k: int, rows: NDArray[np.int64]) -> Rows:
        """These rows of shard k, which come in ascending order."""
        ...

    def stamp(self, k: int) -> tuple[int, ...]:
        """What changes when shard k is written to."""
        ...


class _Cache:
    """The shards used last, by (array, shard), up to a number of bytes in all."""

    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self._held: OrderedDict[tuple[object, int], Rows] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[object, int]) -> Rows | None:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: tuple[object, int], rows: Rows) -> None:
        with self._lock:
            if key in self._held:
                return
            self._held[key] = rows
            self.size += rows.nbytes
            while self.size > self.most:
                self.size -= self._held.popitem(last=False)[1].nbytes


_cache = _Cache(CACHE_BYTES)


class ShardedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Rows of several shards, end to end; of the last one or more, `n` may leave some out."""

    def __init__(
        self,
        shards: Shards,
        rows: Sequence[int],
        row_shape: tuple[int, ...],
        dtype: DTypeLike,
        n: int | None = None,
    ) -> None:
        self._shards = shards
        self._rows = tuple(rows)
        # Row r lies in the shard k with ends[k-1] <= r < ends[k].
        self._ends = np.cumsum(np.asarray(self._rows, dtype=np.int64))
        total = int(self._ends[-1]) if len(self._ends) else 0
        self.dtype = np.dtype(dtype)
        self.shape: tuple[int, ...] = (total if n is None else min(n, total), *row_shape)
        self._identity = object()  # a key in the cache that no other array has

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"ShardedArray(shape={self.shape}, dtype={self.dtype}, shards={len(self._rows)})"

    def head(self, n: int) -> ShardedArray:
        """The first n rows, still on disk."""
        part = ShardedArray(self._shards, self._rows, self.shape[1:], self.dtype, min(n, len(self)))
        part._identity = self._identity
        return part

    def parts(self) -> Iterator[Rows]:
        """The rows shard by shard, every shard read from its file anew and checked."""
        for k in range(self._used()):
            yield self._shards.whole(k, anew=True)[: len(self) - self._start(k)]

    def stamps(self) -> tuple[tuple[int, ...], ...]:
        """What changes when one of the files is written to."""
        return tuple(self._shards.stamp(k) for k in range(self._used()))

    def gather(self, index: ArrayLike) -> Rows:
        """Rows at integer positions (m,), in the order asked for: (m, ...), in memory."""
        rows = self._positions(index)
        out = np.empty((len(rows), *self.shape[1:]), dtype=self.dtype)
        order = np.argsort(rows, kind="stable")  # each shard is visited once, front to back
        shard_of = np.searchsorted(self._ends, rows[order], side="right")
        shards, first = np.unique(shard_of, return_index=True)
        for k, places in zip(shards.tolist(), np.split(order, first[1:]), strict=False):
            out[places] = self._from_shard(k, rows[places] - self._start(k))
        return out

    def __getitem__(self, key: Index) -> Any:
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if isinstance(first, (int, np.integer)):
            row = self.gather([int(first)])[0]
            return row[rest] if rest else row
        if isinstance(first, slice):
            start, stop, step = first.indices(len(self))
            rows = self._slice(start, stop) if step == 1 else self.gather(range(start, stop, step))
        elif first is Ellipsis or first is None:
            return np.asarray(self)[key]
        else:
            mask = np.asarray(first)
            if mask.dtype == bool and mask.shape != (len(self),):
                raise IndexError(f"A mask must have shape ({len(self)},); got {mask.shape}.")
            if mask.dtype != bool and mask.ndim != 1:
                return np.asarray(self)[key]
            rows = self.gather(np.flatnonzero(mask) if mask.dtype == bool else mask)
        return rows[(slice(None), *rest)] if rest else rows

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Rows:
        if copy is False:
            raise ValueError("The rows lie in several files; an array of them is always a copy.")
        whole = np.empty(self.shape, self.dtype)
        for k in range(self._used()):  # past the cache, which it would sweep clean
            start = self._start(k)
            whole[start : start + self._rows[k]] = self._shards.whole(k)[: len(self) - start]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [np.asarray(v) if isinstance(v, ShardedArray) else v for v in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def _slice(self, start: int, stop: int) -> Rows:
        stop = max(start, stop)
        out = np.empty((stop - start, *self.shape[1:]), dtype=self.dtype)
        k, filled = int(np.searchsorted(self._ends, start, side="right")), 0
        while filled < len(out):
            offset = start + filled - self._start(k)
            end = min(offset + len(out) - filled, self._rows[k])
            part = self._from_shard(k, np.arange(offset, end))
            out[filled : filled + len(part)] = part
            filled, k = filled + len(part), k + 1
        return out

    def _positions(self, index: ArrayLike) -> NDArray[np.int64]:
        rows = np.asarray(index)
        if rows.size == 0:
            return np.zeros(0, dtype=np.int64)
        if rows.dtype.kind not in "iu" or rows.ndim != 1:
            raise DtypeError(
                f"Rows are chosen by whole numbers (m,); got {rows.dtype} of shape {rows.shape}."
            )
        rows = rows.astype(np.int64)
        n = len(self)
        if rows.min() < -n or rows.max() >= n:
            raise IndexError(f"Row {int(rows.max())} asked for; there are {n}.")
        return np.where(rows < 0, rows + n, rows)

    def _start(self, k: int) -> int:
        return int(self._ends[k]) - self._rows[k]

    def _used(self) -> int:
        """How many shards hold the rows of this array."""
        return int(np.searchsorted(self._ends, len(self))) + 1 if len(self) else 0

    def _from_shard(self, k: int, rows: NDArray[np.int64]) -> Rows:
        """Rows of shard k, counted from its start and in ascending order."""
        held = _cache.get((self._identity, k))
        if held is not None:
            return held[rows]
        fits = self.nbytes <= _cache.most
        if not fits and MOST_OF_IT * len(rows) < self._rows[k]:
            return self._shards.some(k, rows)
        held = self._shards.whole(k)
        if fits:
            _cache.put((self._identity, k), held)
        return held[rows]
