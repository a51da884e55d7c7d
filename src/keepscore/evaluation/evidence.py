"""The evidence p(x) = mean of p(x | theta) over the training box, by quadrature.

The mean is under the distribution of theta in training: uniform, or the prior of the space, whose
density (normalised on the box) then multiplies the weights below.

Clenshaw-Curtis: on [-1, 1] with N + 1 nodes t_k = cos(k pi / N), N even,

    w_k = c_k / N * [1 - sum_{j=1}^{N/2} b_j cos(2 j k pi / N) / (4 j^2 - 1)],
    c_k = 1 at both ends, else 2;  b_j = 1 for j = N/2, else 2;

its tensor product over the box, normalised to total weight 1. For a smooth peak it converges as
fast as Gauss-Legendre once nodes are closer than the peak is wide, and every other node is the rule
with N/2: the difference of the two costs nothing and, where the rule is any good, is far above the
error of the finer one.

    log p(x) = log sum_k w_k exp l(theta_k; x)

`given(x).surface(nodes)` has every x at every node: one factorisation or propagation per node.

From four parameters on a tensor rule has too many nodes, and p(x) is a mean over draws theta_k of a
density q_x made for each x: a mixture of two Student t densities around the maximum of p(x | theta)
over the box, one of them twice as wide, and the uniform density,

    log p(x) = log mean_k p(x | theta_k) p(theta_k) / q_x(theta_k)

with p(theta) = 1 / volume of the box where there is no prior,

and the standard error of that mean takes the place of the difference of two rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from keepscore.checks import Floats, require_count
from keepscore.errors import DomainError
from keepscore.inference.maximise import maximise
from keepscore.likelihood import Likelihood
from keepscore.models.base import Model
from keepscore.space import Region, Space, tensor_grid

# Intervals per side, by number of parameters; a multiple of four, so that halves are even too.
INTERVALS = {1: 64, 2: 32, 3: 24}
DRAWS = 1024  # per x, from four parameters on
FREEDOM, WIDER = 5.0, 2.0
WEIGHTS = (0.5, 0.3, 0.2)  # of the two t densities and of the uniform one
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

    def product(weights: Floats) -> Floats:
        return np.asarray(np.prod(tensor_grid([weights] * space.d), axis=1))

    nodes = tensor_grid(axes)
    if not space.has_prior:
        return nodes, product(fine), product(coarse)
    density = np.exp(space.log_prior(nodes, region))
    weighted = [product(weights) * density for weights in (fine, coarse)]
    return nodes, *(weights / weights.sum() for weights in weighted)


def log_evidence(
    model: Model, x: NDArray[Any], intervals: int | None = None, region: Region = "train"
) -> tuple[Floats, Floats]:
    """log p(x) for each row of x, and how far the coarser rule is off: (n,) each.

    With four parameters or more, unless `intervals` is named: by sampling, and its standard error.
    """
    space = model.space
    like = model.given(np.asarray(x)[:, None])
    if intervals is None and space.d not in INTERVALS:
        value, error = _sampled(like, region)
        return value + _constant(model, like, x), error
    nodes, fine, coarse = tensor_rule(space, intervals or INTERVALS[space.d], region)
    with np.errstate(divide="ignore"):
        logs = np.log(np.stack([fine, coarse]))
    total = np.full((2, len(x)), -np.inf)
    size = max(1, BLOCK_ENTRIES // max(1, len(x)))
    for start in range(0, len(nodes), size):
        block = slice(start, start + size)
        surface = like.surface(nodes[block])
        for row in range(2):
            total[row] = np.logaddexp(total[row], _log_sum(surface + logs[row, block]))
    return total[0] + _constant(model, like, x), np.abs(total[0] - total[1])


def _constant(model: Model, like: Likelihood, x: NDArray[Any]) -> Floats:
    """A likelihood is known up to a constant for each x; one exact value fixes it: (n,).

    Taken at the centre of the box, and where that is impossible at the maximum.
    """
    theta = np.tile(np.mean(model.space.box("base"), axis=0), (len(x), 1))
    group = np.arange(len(x))
    found = model.log_prob(theta, x) - like.pairs(theta, group)
    lost = ~np.isfinite(found)
    if lost.any():
        best = maximise(like[np.flatnonzero(lost)], "base").theta
        exact = model.log_prob(best, x[lost])
        found[lost] = exact - like.pairs(best, group[lost])
    return found


def _sampled(like: Likelihood, region: Region) -> tuple[Floats, Floats]:
    """log of the mean of exp l over the region, per group (g,), and its standard error (g,)."""
    low, high = like.space.box(region)
    width, d = high - low, like.space.d
    found = maximise(like, region)
    rng = np.random.default_rng(0xE71D)
    # Where l is flat the box is what bounds it: a curvature of 3 / width^2 at least.
    inverse = np.linalg.inv(found.curvature + np.diag(3 / width**2))
    factor = np.linalg.cholesky((inverse + np.swapaxes(inverse, 1, 2)) / 2)
    value, error = np.empty(like.group_count), np.empty(like.group_count)
    for i in range(like.group_count):
        which = rng.choice(3, size=DRAWS, p=WEIGHTS)
        z = rng.standard_normal((DRAWS, d)) / np.sqrt(rng.chisquare(FREEDOM, (DRAWS, 1)) / FREEDOM)
        z *= np.where(which == 1, WIDER, 1.0)[:, None]
        theta = found.theta[i] + z @ factor[i].T
        flat = low + width * rng.random((DRAWS, d))
        theta = np.where((which == 2)[:, None], flat, theta)
        inside = ((theta >= low) & (theta <= high)).all(axis=1)
        theta = theta[inside]
        prior = like.space.log_prior(theta, region)
        logs = (
            like.pairs(theta, np.full(len(theta), i))
            + prior
            - _log_density(
                np.linalg.solve(factor[i], (theta - found.theta[i]).T).T,
                float(np.log(np.diagonal(factor[i])).sum()),
                float(np.log(width).sum()),
            )
        )
        logs = np.where(np.isnan(logs), -np.inf, logs)
        top = logs.max()
        weight = np.zeros(DRAWS)
        weight[inside] = np.exp(logs - top)
        mean = weight.mean()
        value[i] = top + np.log(mean)
        error[i] = weight.std(ddof=1) / np.sqrt(DRAWS) / mean
    return value, error


def _log_density(z: Floats, log_size: float, log_volume: float) -> Floats:
    """log q at centre + factor z, for z (m, d); log_size: log det of the factor."""
    d = z.shape[1]
    shape = stats.multivariate_t(np.zeros(d), np.eye(d), FREEDOM)
    parts = [
        np.log(WEIGHTS[0]) + shape.logpdf(z) - log_size,
        np.log(WEIGHTS[1]) + shape.logpdf(z / WIDER) - d * np.log(WIDER) - log_size,
        np.full(len(z), np.log(WEIGHTS[2]) - log_volume),
    ]
    return np.asarray(np.logaddexp.reduce([np.atleast_1d(part) for part in parts], axis=0))


def _log_sum(values: Floats) -> Floats:
    top = values.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - top).sum(axis=1)) + top[:, 0]
