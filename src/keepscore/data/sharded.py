"""One array that lies in many files: rows are fetched from memory-mapped shards when asked for.

A `ShardedArray` looks like a read-only NumPy array of shape (n, ...): it has a shape and a dtype,
takes integers, slices and index arrays, joins arithmetic, and `np.asarray` loads all of it.
Gathering rows touches only the shards that hold them. An open map keeps a file descriptor, of
which a process has few (often 1024), so only the most recently used maps stay open.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from keepscore.errors import DtypeError, FormatError

OPEN_MAPS = 128

Rows = NDArray[Any]


class ShardedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Rows of several arrays, end to end; `load(k)` gives the k-th as a (memory-mapped) array."""

    def __init__(
        self,
        load: Callable[[int], Rows],
        rows: Sequence[int],
        row_shape: tuple[int, ...],
        dtype: DTypeLike,
        n: int | None = None,
    ) -> None:
        self._load = load
        self._rows = tuple(rows)
        # Row r lies in the shard k with ends[k-1] <= r < ends[k].
        self._ends = np.cumsum(np.asarray(self._rows, dtype=np.int64))
        total = int(self._ends[-1]) if len(self._ends) else 0
        self.dtype = np.dtype(dtype)
        self.shape: tuple[int, ...] = (total if n is None else min(n, total), *row_shape)
        self._open: OrderedDict[int, Rows] = OrderedDict()

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
        return ShardedArray(self._load, self._rows, self.shape[1:], self.dtype, min(n, len(self)))

    def gather(self, index: ArrayLike) -> Rows:
        """Rows at integer positions (m,), in the order asked for: (m, ...), in memory."""
        rows = self._positions(index)
        out = np.empty((len(rows), *self.shape[1:]), dtype=self.dtype)
        order = np.argsort(rows, kind="stable")  # each shard is visited once, front to back
        shard_of = np.searchsorted(self._ends, rows[order], side="right")
        shards, first = np.unique(shard_of, return_index=True)
        for k, places in zip(shards.tolist(), np.split(order, first[1:]), strict=False):
            out[places] = self._shard(k)[rows[places] - self._start(k)]
        return out

    def __getitem__(self, key: Any) -> Any:
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
        whole = self._slice(0, len(self))
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [np.asarray(v) if isinstance(v, ShardedArray) else v for v in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def _slice(self, start: int, stop: int) -> Rows:
        stop = max(start, stop)
        out = np.empty((stop - start, *self.shape[1:]), dtype=self.dtype)
        k, filled = int(np.searchsorted(self._ends, start, side="right")), 0
        while filled < len(out):
            offset = start + filled - self._start(k)
            part = self._shard(k)[offset : offset + len(out) - filled]
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

    def _shard(self, k: int) -> Rows:
        if k in self._open:
            self._open.move_to_end(k)
            return self._open[k]
        # The view as a plain array: indexing a np.memmap subclass is several times slower.
        array = np.asarray(self._load(k))
        if array.shape != (self._rows[k], *self.shape[1:]) or array.dtype != self.dtype:
            raise FormatError(
                f"Shard {k} must hold {self.dtype} of shape {(self._rows[k], *self.shape[1:])}; "
                f"got {array.dtype} of shape {array.shape}."
            )
        self._open[k] = array
        if len(self._open) > OPEN_MAPS:
            self._open.popitem(last=False)
        return array
