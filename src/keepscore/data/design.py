"""Which theta belongs to row i: the stratified design, row by row, from seeds alone.

The design is the paper's: k = ceil(n^(1/d)) cells per side, n of the k^d cells chosen at random
without replacement, one uniform draw in each. Drawn the plain way, the choice of cells is one long
random permutation that has to be held in memory. Here row i asks for its own cell,

    cell(i) = P(i),   P a keyed pseudo-random permutation of {0, ..., k^d - 1},

so any worker computes its rows without the others, and nothing grows with n. P is a Feistel
network (Luby & Rackoff 1988): split a number of 2h bits into halves (L, R) and repeat
(L, R) <- (R, L xor f_key(R)), which is a bijection whatever f is. 2^(2h) is at most four times the
number of cells; results beyond it are sent through again until they fall inside ("cycle walking",
Black & Rogaway 2002), which restricts the bijection to the cells.

Where the space has a prior, the cells are those of the unit cube, and a point u of it becomes
theta by the inverse distribution function of each parameter's prior (a multivariate normal's by its
Cholesky factor), restricted to the box: the design is that of the prior, as evenly spread.

Every random stream is a `SeedSequence` keyed by (root seed; purpose, kind, shard): the same for
any number of workers and any order, and disjoint between purposes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats
from keepscore.space import Region, Space, cells_per_side

Purpose = Literal["train", "validation", "test"]
# The numbers are part of every data set's bytes: add to them, never change them.
PURPOSES: dict[str, int] = {"train": 0, "validation": 1, "test": 2}
KINDS: dict[str, int] = {"cells": 0, "theta": 1, "x": 2}
# Test sets are what a user asks about, plainly: independent draws on the base box.
REGION_OF: dict[str, Region] = {"train": "train", "validation": "train", "test": "base"}

ROUNDS = 8
_UINT = np.uint64
Cells = NDArray[np.uint64]


def seed_key(purpose: str, kind: str, shard: int) -> tuple[int, int, int]:
    """The spawn key of one random stream."""
    return PURPOSES[purpose], KINDS[kind], shard


def stream(root: int, purpose: str, kind: str, shard: int) -> np.random.Generator:
    """The random stream of one kind in one shard."""
    sequence = np.random.SeedSequence(entropy=root, spawn_key=seed_key(purpose, kind, shard))
    return np.random.default_rng(sequence)


def thetas(space: Space, n: int, root: int, purpose: str, shard: int, rows: range) -> Floats:
    """theta (len(rows), d) of the given rows, which are those of one shard of a set of n."""
    rng = stream(root, purpose, "theta", shard)
    region = REGION_OF[purpose]
    low, high = space.box(region)
    within = rng.random((len(rows), space.d))
    side = cells_per_side(n, space.d)
    # With 2^62 cells or more, n draws practically never share one: strata would change nothing.
    if purpose == "test" or side**space.d >= 2**62:
        if space.has_prior:
            return space.draw(len(rows), rng, region, unit=within)
        return low + (high - low) * within
    cells = permuted(rows, side**space.d, round_keys(root, purpose))
    corners = np.stack(np.unravel_index(cells.astype(np.int64), (side,) * space.d), axis=1)
    if space.has_prior:
        return space.draw(len(rows), rng, region, unit=(corners + within) / side)
    return low + (high - low) * (corners + within) / side


def round_keys(root: int, purpose: str) -> Cells:
    """The keys of the permutation of cells, one for each Feistel round."""
    key = seed_key(purpose, "cells", 0)
    sequence = np.random.SeedSequence(entropy=root, spawn_key=key)
    return sequence.generate_state(ROUNDS, np.uint64).astype(np.uint64)


def permuted(positions: range, size: int, keys: Cells) -> Cells:
    """P(i) for positions i < size: distinct numbers below size, in random order."""
    half = _UINT(max(1, (max(size - 1, 1).bit_length() + 1) // 2))
    values = np.arange(positions.start, positions.stop, dtype=_UINT)
    outside = np.ones(len(values), dtype=bool)
    while outside.any():
        values[outside] = _feistel(values[outside], half, keys)
        outside = values >= _UINT(size)
    return values


def _feistel(values: Cells, half: np.uint64, keys: Cells) -> Cells:
    mask = (_UINT(1) << half) - _UINT(1)
    left, right = values >> half, values & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right ^ key) & mask)
    return (left << half) | right


def _mixed(z: Cells) -> Cells:
    # The finaliser of SplitMix64 (Steele, Lea & Flood 2014): any input bit moves all output bits.
    z = (z ^ (z >> _UINT(30))) * _UINT(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> _UINT(27))) * _UINT(0x94D049BB133111EB)
    return z ^ (z >> _UINT(31))
