"""Trained networks at many pairs: compiled once for each padded size, in pieces that fit the cache.

A network here may be an ensemble: its weights then have a leading axis of members, and its
log-ratio is the mean of theirs (the geometric mean of their ratios). Features are
(members, n, f).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats
from keepscore.networks.base import split

X_ROWS = 256  # rows of x embedded at a time
HEAD_ROWS = 8192  # pairs through the head at a time


def padded(n: int, most: int) -> int:
    """The next power of two, at most `most`: few sizes, few compilations."""
    return min(most, 1 << max(0, n - 1).bit_length())


def pieces(n: int, most: int) -> Iterator[tuple[slice, int]]:
    """Consecutive parts of range(n) and the padded size of each."""
    for start in range(0, n, most):
        stop = min(start + most, n)
        yield slice(start, stop), padded(stop - start, most)


def pad(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Repeat the last row until there are `size`."""
    short = size - len(array)
    return array if short == 0 else np.concatenate([array, np.repeat(array[-1:], short, axis=0)])


def each_member(
    weights: Any, rest: Any, members: int, function: Callable[..., Any], *arrays: Any
) -> Any:
    """function(one network, its part of each array) for every member, on a leading axis."""
    if members == 1:
        network = eqx.combine(weights, rest)
        return jax.tree.map(lambda a: a[None], function(network, *(a[0] for a in arrays)))
    return jax.vmap(lambda w, *a: function(eqx.combine(w, rest), *a))(weights, *arrays)


@eqx.filter_jit
def _features(weights: Any, rest: Any, members: int, x: Any) -> Any:
    return each_member(weights, rest, members, lambda one: one.features(x.astype(jnp.float32)))


@eqx.filter_jit
def _logits(weights: Any, rest: Any, members: int, features: Any, rows: Any, theta: Any) -> Any:
    def one_member(one: Any, f: Any) -> Any:
        return one.head(f[rows], theta)

    return each_member(weights, rest, members, one_member, features)


@eqx.filter_jit
def _logits_and_scores(
    weights: Any, rest: Any, members: int, features: Any, rows: Any, theta: Any
) -> Any:
    def one_member(one: Any, f: Any) -> Any:
        value, pull = jax.vjp(lambda t: one.head(f[rows], t), theta)
        return value, pull(jnp.ones_like(value))[0]

    return each_member(weights, rest, members, one_member, features)


@eqx.filter_jit
def _surface(weights: Any, rest: Any, members: int, features: Any, theta: Any) -> Any:
    def one_member(one: Any, f: Any) -> Any:
        n = f.shape[0]
        return jax.vmap(lambda t: one.head(f, jnp.broadcast_to(t, (n, *t.shape))))(theta)

    return each_member(weights, rest, members, one_member, features).mean(axis=0)


def features(network: Any, members: int, x: NDArray[Any]) -> Any:
    """Features of all rows of x, on the device: (members, n, f)."""
    parts = []
    for part, size in pieces(len(x), X_ROWS):
        embedded = _features(*split(network), members, pad(_compact(x[part]), size))
        parts.append(embedded[:, : part.stop - part.start])
    return jnp.concatenate(parts, axis=1)


def logits(network: Any, members: int, features: Any, rows: NDArray[Any], theta: Any) -> Floats:
    """Each member's log-ratio of (x of rows[i], theta[i]): (members, n) float64."""
    out = np.empty((members, len(rows)))
    for part, size in pieces(len(rows), HEAD_ROWS):
        found = _logits(*split(network), members, features, *_padded_pairs(rows, theta, part, size))
        out[:, part] = np.asarray(found)[:, : part.stop - part.start]
    return out


def logits_and_scores(
    network: Any, members: int, features: Any, rows: NDArray[Any], theta: Any
) -> tuple[Floats, Floats]:
    """Means over members of the log-ratio (n,) and of its gradient in theta (n, d), float64."""
    value, score = np.empty(len(rows)), np.empty(theta.shape)
    for part, size in pieces(len(rows), HEAD_ROWS):
        found = _logits_and_scores(
            *split(network), members, features, *_padded_pairs(rows, theta, part, size)
        )
        v, s = (np.asarray(a, np.float64).mean(axis=0)[: part.stop - part.start] for a in found)
        value[part], score[part] = v, s
    return value, score


def surface(network: Any, members: int, features: Any, theta: Floats) -> Iterator[tuple[Any, ...]]:
    """Log-ratios of every x at every theta, in tiles: (slice of theta, slice of x, values)."""
    n = features.shape[1]
    for of_x, x_size in pieces(n, HEAD_ROWS):
        # A last short tile of x starts earlier instead of being padded.
        first = max(0, min(of_x.start, n - x_size))
        tile = features[:, first : first + x_size]
        skip, count = of_x.start - first, of_x.stop - of_x.start
        for of_theta, size in pieces(len(theta), max(1, HEAD_ROWS // x_size)):
            rows = pad(np.asarray(theta[of_theta], np.float32), size)
            found = np.asarray(_surface(*split(network), members, tile, rows), np.float64)
            yield of_theta, of_x, found[: of_theta.stop - of_theta.start, skip : skip + count]


def _padded_pairs(rows: NDArray[Any], theta: Any, part: slice, size: int) -> tuple[Any, Any]:
    return (
        pad(np.asarray(rows[part], np.int32), size),
        pad(np.asarray(theta[part], np.float32), size),
    )


def _compact(x: NDArray[Any]) -> NDArray[Any]:
    return x if x.dtype.itemsize <= 4 else x.astype(np.float32)
