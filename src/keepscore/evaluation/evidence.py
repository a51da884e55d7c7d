"""The evidence p(x) = mean of p(x | theta) over the training box, by quadrature.

Clenshaw-Curtis: on [-1, 1] with N + 1 nodes t_k = cos(k pi / N), N even,

    w_k = c_k / N * [1 - sum_{j=1}^{N/2} b_j cos(2 j k pi / N) / (4 j^2 - 1)],
    c_k = 1 at both ends, else 2;  b_j = 1 for j = N/2, else 2;

its tensor product over the box, normalised to total weight 1. For a smooth peak it converges as
fast as Gauss-Legendre once nodes are closer than the peak is wide, and every other node is the rule
with N/2: the difference of the two costs nothing and, where the rule is any good, is far above the
error of the finer one.

    log p(x) = log sum_k w_k exp l(theta_k; x)

`given(x).surface(nodes)` has every x at every node: one factorisation or propagation a node.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats, require_count
from keepscore.errors import DomainError
from keepscore.models.base import Model
from keepscore.space import Region, Space

# Intervals a side, by number of parameters; a multiple of four, so that halves are even too.
INTERVALS = {1: 64, 2: 32, 3: 24}
BLOCK_ENTRIES = 2_000_000


def clenshaw_curtis(intervals: int) -> tuple[Floats, Floats]:
    """Nodes in [-1, 1], descending, and weights that sum to 1: (intervals + 1,) each."""
    n = require_count(intervals, "intervals", minimum=2)
    if n % 2:
        raise DomainError(f"intervals must be even; got {n}.")
    k, j = np.arange(n + 1), np.arange(1, n // 2 + 1)
    b = np.where(j == n // 2, 1.0, 2.0) / (4.0 * j**2 - 1)
    c = np.where((k == 0) | (k == n), 1.0, 2.0)
    weights = c / n * (1 - np.cos(2 * np.pi / n * np.outer(k, j)) @ b)
    return np.cos(np.pi * k / n), weights / 2


def tensor_rule(
    space: Space, intervals: int, region: Region = "train"
) -> tuple[Floats, Floats, Floats]:
    """Nodes (m, d) over the region's box, weights (m,), and the coarser rule's weights (m,),
    which are zero at the nodes it does not have."""
    if intervals % 4:
        raise DomainError(f"intervals must be a multiple of four; got {intervals}.")
    low, high = space.box(region)
    points, fine = clenshaw_curtis(intervals)
    coarse = np.zeros_like(fine)
    coarse[::2] = clenshaw_curtis(intervals // 2)[1]
    axes = [(low[k] + high[k]) / 2 + (high[k] - low[k]) / 2 * points for k in range(space.d)]
    nodes = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)

    def product(weights: Floats) -> Floats:
        grids = np.meshgrid(*[weights] * space.d, indexing="ij")
        return np.prod([g.ravel() for g in grids], axis=0)

    return nodes, product(fine), product(coarse)


def log_evidence(
    model: Model, x: NDArray[Any], intervals: int | None = None, region: Region = "train"
) -> tuple[Floats, Floats]:
    """log p(x) for each row of x, and how far the coarser rule is off: (n,) each."""
    space = model.space
    count = INTERVALS.get(space.d, 16) if intervals is None else intervals
    nodes, fine, coarse = tensor_rule(space, count, region)
    like = model.given(np.asarray(x)[:, None])
    with np.errstate(divide="ignore"):
        logs = np.log(np.stack([fine, coarse]))
    # A likelihood is known up to a constant for each x; one exact value at the centre fixes it.
    centre = np.mean(space.box("base"), axis=0)[None]
    constant = model.log_prob(np.tile(centre, (len(x), 1)), x) - like.surface(centre)[:, 0]
    total = np.full((2, len(x)), -np.inf)
    size = max(1, BLOCK_ENTRIES // max(1, len(x)))
    for start in range(0, len(nodes), size):
        block = slice(start, start + size)
        surface = like.surface(nodes[block])
        for row in range(2):
            total[row] = np.logaddexp(total[row], _log_sum(surface + logs[row, block]))
    return total[0] + constant, np.abs(total[0] - total[1])


def _log_sum(values: Floats) -> Floats:
    top = values.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - top).sum(axis=1)) + top[:, 0]
