"""Rows for training: what is where, and which rows make which batch.

Orders and draws are functions of (seed, member, epoch) alone: a fresh permutation of the rows for
each epoch, cut into batches (rows that fill no whole batch are left out of it), and uniform draws
of theta for the Y = 0 pairs. So a run can start again anywhere.

theta is small and always lies on the device. x and the scores lie there too when they fit (or when
the data set is in memory anyway); if not, the rows of the next few steps are gathered from disk
while the device works on the current ones. Both ways compute the same numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from keepscore.checks import Floats, require_finite, require_values
from keepscore.data.dataset import Dataset, fingerprint_of
from keepscore.errors import DomainError, MissingError, ShapeError
from keepscore.models.base import declares_missing
from keepscore.networks.evaluator import pad, padded
from keepscore.numerics.evenly import evenly
from keepscore.training.compiled_epoch import BatchRows, Tables

FILLED_UP = 1 << 14  # rows up to which a table is filled up: few programs are compiled
BLOCK = 1024  # steps whose Y = 0 draws share one generator; also the most per call
SAMPLE = 10_000  # rows of x that its scale is taken from
STREAMED_BYTES = 64 << 20  # of x on its way to the device at a time
Index = NDArray[np.int64]
Place: TypeAlias = Callable[[NDArray[Any]], Array]  # puts an array on the device


@dataclass(frozen=True, eq=False)
class Rows:
    """A data set, or some rows of it, as training sees it."""

    data: Dataset
    index: Index | None
    theta: NDArray[np.float32]
    scores: bool
    streamed: bool

    def __len__(self) -> int:
        return len(self.theta)

    def fetch(self, rows: Index) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
        """x and score at these rows, checked, x in float32 unless it is whole numbers."""
        chosen = rows if self.index is None else self.index[rows]
        _, x, score = self.data.rows(chosen)
        x = _compact(np.asarray(x))
        require_values(x, "x of the training data", declares_missing(self.data))
        if not self.scores:
            return x, None
        score = np.asarray(score)
        require_finite(score, "scores of the training data")
        return x, score.astype(np.float32)


def open_rows(data: Dataset, index: Index | None, scores: bool, budget: int) -> Rows:
    """Check a data set and decide whether it is streamed."""
    missing = [a for a in ("theta", "x", "score", "space", "rows") if not hasattr(data, a)]
    if missing:
        raise MissingError(
            f"Training needs a Dataset (ks.simulate, ks.open_dataset); "
            f"{type(data).__name__} has no {missing[0]}."
        )
    if scores and data.score is None:
        raise MissingError(
            "ASA needs scores and this data set has none. Simulate with scores=True from a model "
            "that has a score, or train with loss=ks.BCE()."
        )
    theta = np.asarray(data.theta)
    if theta.ndim != 2 or theta.shape[1] != data.space.d or len(data.x) != len(theta):
        raise ShapeError(
            f"theta must be (n, {data.space.d}) with as many rows of x; "
            f"got {theta.shape} and {data.x.shape}."
        )
    require_finite(theta, "theta of the training data")
    rows = theta if index is None else theta[index]
    on_disk = not isinstance(data.x, np.ndarray) or isinstance(data.x, np.memmap)
    bytes_of_x = data.x.dtype.itemsize * int(np.prod(data.x.shape))
    streamed = on_disk and bytes_of_x > budget
    return Rows(data, index, rows.astype(np.float32), scores, streamed)


def hold_out(n: int, fraction: float, seed: int) -> tuple[Index, Index]:
    """Rows to train on and rows to validate on, at random."""
    order = generator(seed, "hold out").permutation(n)
    held = max(1, round(n * fraction))
    return np.sort(order[held:]), np.sort(order[:held])


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Independent randomness for each purpose, member, epoch and block of a run."""
    words = [int(b) for b in purpose.encode()]
    return np.random.default_rng(np.random.SeedSequence([seed, len(words), *words, *key]))


@dataclass(frozen=True, eq=False)
class Feed:
    """Batches of one run: plans of steps, and the tables their rows lie in."""

    rows: Rows
    batch_size: int
    negatives: int
    members: int
    seed: int
    symmetries: int  # number of maps to choose from; 0: none are applied

    def __post_init__(self) -> None:
        if len(self.rows) < self.batch_size:
            raise DomainError(
                f"Training needs at least one batch of {self.batch_size} rows; got "
                f"{len(self.rows)}. Simulate more, or lower batch_size."
            )

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return len(self.rows) // self.batch_size

    @property
    def longest(self) -> int:
        """The most steps in one call: a block, fewer if streamed rows would take much memory."""
        if not self.rows.streamed:
            return padded(self.steps, BLOCK)
        x = self.rows.data.x
        row = 4 * int(np.prod(x.shape[1:])) * self.members * self.batch_size
        return int(min(BLOCK, self.steps, max(1, STREAMED_BYTES // row)))

    def orders(self, epoch: int) -> NDArray[np.int32]:
        """The rows of each batch of an epoch: (members, steps, b)."""
        n, used = len(self.rows), self.steps * self.batch_size
        orders = [
            generator(self.seed, "order", m, epoch).permutation(n)[:used]
            for m in range(self.members)
        ]
        shape = (self.members, self.steps, self.batch_size)
        return np.stack(orders).reshape(shape).astype(np.int32)

    def draws(self, epoch: int, block: int) -> tuple[NDArray[np.int32], NDArray[np.int32] | None]:
        """For the steps of one block: rows of theta for Y = 0, and maps to apply."""
        b, k = self.batch_size, self.negatives
        # Of a short epoch only those it uses, unless maps are drawn after them.
        length = BLOCK if self.symmetries else min(BLOCK, self.steps)
        other, maps = [], []
        for m in range(self.members):
            rng = generator(self.seed, "draws", m, epoch, block)
            other.append(rng.integers(0, len(self.rows), (length, k, b), dtype=np.int32))
            if self.symmetries:
                maps.append(rng.integers(0, self.symmetries, (BLOCK, b), dtype=np.int32))
        return np.stack(other), np.stack(maps) if maps else None


class EpochBatches:
    """The steps of one epoch, handed out from any position on."""

    def __init__(self, feed: Feed, epoch: int, place: Place = jnp.asarray) -> None:
        self.feed, self.epoch, self.place = feed, epoch, place
        self.order = feed.orders(epoch)
        self._block: tuple[int, Any] | None = None

    def plan(self, start: int, stop: int) -> tuple[BatchRows, tuple[Any, Any] | None]:
        """Rows of the steps [start, stop), padded to `feed.longest`; x and score if streamed."""
        length = self.feed.longest
        index = np.zeros((*self.order.shape[:1], length, self.order.shape[2]), np.int32)
        index[:, : stop - start] = self.order[:, start:stop]
        other, maps = self._drawn(start, stop, length)
        row, gathered = index, None
        if self.feed.rows.streamed:
            x, score = self.feed.rows.fetch(index.reshape(-1).astype(np.int64))
            row = np.arange(index.size, dtype=np.int32).reshape(index.shape)
            gathered = (self.place(x), None if score is None else self.place(score))
        symmetry = None if maps is None else self.place(maps)
        return BatchRows(self.place(index), self.place(row), self.place(other), symmetry), gathered

    def cut(self, start: int, wanted: int) -> int:
        """Where a call that starts here ends: no later than its block, the epoch or the tables."""
        block_end = (start // BLOCK + 1) * BLOCK
        return min(start + min(wanted, self.feed.longest), block_end, self.feed.steps)

    def _drawn(self, start: int, stop: int, length: int) -> tuple[Any, Any]:
        block = start // BLOCK
        if self._block is None or self._block[0] != block:
            self._block = (block, self.feed.draws(self.epoch, block))
        offset = start - block * BLOCK

        def part(array: NDArray[np.int32] | None) -> NDArray[np.int32] | None:
            if array is None:
                return None
            out = np.zeros((array.shape[0], length, *array.shape[2:]), np.int32)
            out[:, : stop - start] = array[:, offset : offset + stop - start]
            return out

        other, maps = self._block[1]
        return part(other), part(maps)


def resident_tables(rows: Rows, place: Place = jnp.asarray) -> Tables:
    """Tables with every row on the device; when streaming, theta only (x comes with each plan).
    Small tables are filled up, with rows that no plan names, to one of few lengths."""
    if rows.streamed:
        return Tables(place(rows.theta), place(np.zeros(0, np.float32)), None)
    x, score = rows.fetch(np.arange(len(rows)))

    def filled(a: NDArray[Any]) -> Any:
        return place(pad(a, max(len(a), padded(len(a), FILLED_UP))))

    return Tables(filled(rows.theta), filled(x), None if score is None else filled(score))


def x_sample(rows: Rows) -> NDArray[Any]:
    """Some rows of x, evenly spread, for its moments."""
    return rows.fetch(evenly(len(rows), SAMPLE))[0]


def raw_sample(rows: Rows, most: int) -> NDArray[Any]:
    """At most so many rows of x, evenly spread, as they are in the data."""
    chosen = evenly(len(rows), most)
    index = chosen if rows.index is None else rows.index[chosen]
    return np.asarray(rows.data.rows(index)[1])


def theta_sample(rows: Rows) -> Floats:
    """The theta of the same rows."""
    return np.asarray(rows.theta[evenly(len(rows), SAMPLE)], np.float64)


def fingerprint(rows: Rows) -> dict[str, Any]:
    """What a run remembers of its data: any change of what is trained on changes this.

    A `Dataset` fingerprints itself (rows, space, kind of score, structure, symmetries), and one on
    disk compares its bytes with their checksums on the way. Anything else is hashed here.
    """
    data = rows.data
    own = data.fingerprint() if hasattr(data, "fingerprint") else _hashed(data)
    return {
        "rows": len(rows),
        "x_shape": [int(side) for side in data.x.shape[1:]],
        "chosen": None if rows.index is None else _digest(rows.index.tobytes()),
        "sha256": str(own),
    }


def _hashed(data: Dataset) -> str:
    """The fingerprint of a data set that is not a `Dataset`."""
    arrays = {"theta": data.theta, "x": data.x}
    if data.score is not None:
        arrays["score"] = data.score
    declared = {
        "space": data.space.to_dict(),
        "score_kind": getattr(data, "score_kind", None),
        "structure": getattr(data, "structure", None),
        "symmetries": [s.to_dict() for s in getattr(data, "symmetries", ())],
    }
    return fingerprint_of(arrays, declared)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _compact(x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype.kind == "b":
        return x.astype(np.uint8)
    if x.dtype.kind == "f" or x.dtype.itemsize > 4:
        return x.astype(np.float32)
    return x
