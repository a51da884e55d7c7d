"""A trained network made ready for many evaluations: compiled once per size, little to do per call.

    features   x (g, n, *x_shape)              -> groups (members, g, n, f), on the device
    group_features  the same, summed over n where the head is linear: (members, g, 1, f)
    pairs      groups, theta (p, d), group (p,) -> log-ratios (members, p, n)
    scores     the same                        -> log-ratios (p, n), gradients (p, n, d)
    surface    groups, theta (m, d)            -> log-likelihoods (g, m), summed over n

A network may be an ensemble: its weights then have a leading axis of members, and its log-ratio is
the mean of theirs (the geometric mean of their ratios). Logits are float32, as the network computes
them; means and sums are taken in float64.

A call should cost what the arithmetic costs. So the network is taken apart once, into a plain tuple
of arrays and a `Structure`, the same object for all networks built alike: JAX then finds the
compiled program without walking through modules. Sizes are padded, so that few are compiled, and
work is cut into tiles that fit the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped
from numpy.typing import NDArray

from keepscore.checks import Floats
from keepscore.likelihood import Traced
from keepscore.networks.base import Network, every_pair, has_linear_head, has_table, is_weight
from keepscore.networks.compilation import compiler_options, is_known

X_ROWS = 256  # rows of x embedded at a time
HEAD_ROWS = 8192  # pairs of x and theta through the head at a time
TABLE_ROWS, TABLE_ENTRIES = 1024, 1 << 17  # the same for a table: theta, and pairs
# (weights, constants) of a network, in the order in which JAX flattens it.
Arrays: TypeAlias = tuple[tuple[Array, ...], tuple[Array, ...]]
Features: TypeAlias = Float[Array, "members g n f"]
T = TypeVar("T")


class Structure:
    """A network without its arrays. Compared by identity: `cache` keeps one for each kind."""

    def __init__(
        self, treedef: jax.tree_util.PyTreeDef, others: tuple[tuple[str, object], ...], members: int
    ) -> None:
        self.treedef, self.others, self.members = treedef, others, members

    def each_member(self, arrays: Arrays, function: Callable[..., T], *features: Array) -> T:
        """function(one network, its part of each of `features`), on a leading axis of members."""
        weights, constants = arrays

        def one_member(w: tuple[Array, ...], *own: Array) -> T:
            leaves, pools = [], {"weight": iter(w), "constant": iter(constants)}
            for kind, leaf in self.others:
                leaves.append(next(pools[kind]) if kind in pools else leaf)
            return function(jax.tree.unflatten(self.treedef, leaves), *own)

        if self.members > 1:
            return jax.vmap(one_member)(weights, *features)
        return jax.tree.map(lambda a: a[None], one_member(weights, *(f[0] for f in features)))


_structure = cache(Structure)


def take_apart(network: Network, members: int) -> tuple[Structure, Arrays]:
    """(structure, (weights, constants)) of a network; the arrays are on the device."""
    leaves, treedef = jax.tree.flatten(network)
    kinds = [
        "weight" if is_weight(leaf) else "constant" if eqx.is_array(leaf) else "other"
        for leaf in leaves
    ]
    zipped = list(zip(kinds, leaves, strict=True))
    others = tuple((kind, leaf if kind == "other" else None) for kind, leaf in zipped)

    def placed(wanted: str) -> tuple[Array, ...]:
        return tuple(jax.device_put(leaf) for kind, leaf in zipped if kind == wanted)

    arrays = placed("weight"), placed("constant")
    try:
        if is_known(treedef):
            return _structure(treedef, others, members), arrays
    except TypeError:  # something in the network has no hash
        pass
    return Structure(treedef, others, members), arrays  # of its own


class Evaluator:
    """A network with its arrays in place; see the top of this file."""

    def __init__(self, network: Network, members: int) -> None:
        self.structure, self.arrays = take_apart(network, members)
        self.members, self.linear = members, has_linear_head(network)
        self.most = (TABLE_ROWS, TABLE_ENTRIES) if has_table(network) else (HEAD_ROWS, HEAD_ROWS)

    def features(self, x: NDArray[Any]) -> Features:
        """Features of x (g, n, *x_shape): (members, g, n, f)."""
        if _in_one_piece(x):
            return _features(self.structure, self.arrays, _compact(x))
        return _placed(self._embed(x))

    def group_features(self, x: NDArray[Any]) -> Features:
        """Features that give a group's log-likelihood when logits are summed over n: those of its
        observations, or, for a head linear in them, their sum."""
        if not self.linear:
            return self.features(x)
        if _in_one_piece(x):
            return _summed_features(self.structure, self.arrays, _compact(x))
        found = self._embed(x).sum(axis=2, keepdims=True, dtype=np.float64)
        return _placed(found.astype(np.float32))

    def _embed(self, x: NDArray[Any]) -> NDArray[np.float32]:
        g, n = x.shape[:2]
        flat = _compact(x.reshape(g * n, *x.shape[2:]))
        parts = []
        for part, size in pieces(len(flat), X_ROWS, fine=True):
            embedded = _features(self.structure, self.arrays, pad(flat[part], size)[None])
            parts.append(np.asarray(embedded)[:, 0, : part.stop - part.start])
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return whole.reshape(self.members, g, n, -1)

    def pairs(self, groups: Features, theta: Floats, group: NDArray[Any]) -> NDArray[np.float32]:
        """Each member's log-ratios of the observations of group[i] at theta[i]: (members, p, n)."""
        n = groups.shape[2]
        out = np.empty((self.members, len(theta), n), np.float32)
        for part, size in pieces(len(theta), max(1, HEAD_ROWS // n)):
            found = _pairs(self.structure, self.arrays, groups, *_rows(theta, group, part, size))
            out[:, part] = np.asarray(found)[:, : part.stop - part.start]
        return out

    def scores(
        self, groups: Features, theta: Floats, group: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The same log-ratios and their gradients in theta, means over members."""
        n = groups.shape[2]
        value = np.empty((len(theta), n), np.float32)
        score = np.empty((len(theta), n, theta.shape[1]), np.float32)
        for part, size in pieces(len(theta), max(1, HEAD_ROWS // n)):
            found = _scores(self.structure, self.arrays, groups, *_rows(theta, group, part, size))
            v, s = (np.asarray(a)[: part.stop - part.start] for a in found)
            value[part], score[part] = v, s
        return value, score

    def surface(self, groups: Features, theta: Floats) -> Floats:
        """Every group at every theta: (g, m)."""
        g, n = groups.shape[1:3]
        out = np.empty((g, len(theta)))
        most_theta, most_pairs = self.most
        at_once = max(1, most_pairs // n)
        for of_group, size in pieces(g, at_once):
            # A last short tile of groups starts earlier instead of being padded.
            first = max(0, min(of_group.start, g - size))
            tile = groups if size >= g else groups[:, first : first + size]
            used = slice(of_group.start - first, of_group.stop - first)
            thetas = min(most_theta, max(1, at_once // min(size, g)))
            for of_theta, count in pieces(len(theta), thetas, fine=True):
                rows = pad(np.asarray(theta[of_theta], np.float32), count)
                found = np.asarray(_surface(self.structure, self.arrays, tile, rows))
                kept = found[: of_theta.stop - of_theta.start, used]
                out[of_group, of_theta] = kept.astype(np.float64).sum(axis=2).T
        return out

    def every(self, groups: Features, theta: Floats) -> NDArray[np.float32]:
        """Each member's log-ratios of every group's first observation at every theta: (members, g,
        m)."""
        one = groups[:, :, :1]
        parts = [
            np.asarray(_each(self.structure, self.arrays, one, np.asarray(theta[part], np.float32)))
            for part, _ in pieces(len(theta), max(1, min(self.most[1] // one.shape[1], 1024)))
        ]
        return np.concatenate(parts, axis=1).swapaxes(1, 2)

    def traced(self, groups: Features) -> Traced:
        """The log-likelihood of one group at one theta (d,), as a scalar in JAX, for samplers."""
        return Traced(GroupLogLikelihood(self.structure), (self.arrays, groups))


@dataclass(frozen=True)
class GroupLogLikelihood:
    """((weights, constants), groups), theta (d,), group -> log-likelihood; equal for all networks
    of one structure."""

    structure: Structure

    def __call__(
        self, data: tuple[Arrays, Features], theta: Array, group: Array | int
    ) -> Float[Array, ""]:
        arrays, groups = data

        def one_member(one: Network, f: Float[Array, "n f"]) -> Any:
            return _at_one_theta(one, jnp.asarray(theta, jnp.float32), f).sum()

        return self.structure.each_member(arrays, one_member, groups[:, group]).mean()


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """jax.jit for function(structure, ...), when it is first called: a backend starts only then."""

    @cache
    def program() -> Any:
        return jax.jit(function, static_argnums=0, compiler_options=compiler_options())

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return program()(*arguments)

    return call


@jax.jit
def _placed(array: Features) -> Features:
    """The array on the device: for a small one in a quarter of `device_put`'s time."""
    return array


@partial(jax.jit, static_argnums=0)
def _features(structure: Structure, arrays: Arrays, x: Shaped[Array, "g n ..."]) -> Features:
    flat = x.reshape(-1, *x.shape[2:]).astype(jnp.float32)
    found = structure.each_member(arrays, lambda one: one.features(flat))
    return found.reshape(found.shape[0], *x.shape[:2], -1)


@partial(jax.jit, static_argnums=0)
def _summed_features(
    structure: Structure, arrays: Arrays, x: Shaped[Array, "g n ..."]
) -> Float[Array, "members g 1 f"]:
    """Features summed over n two by two: rounded log2(n) times instead of n."""
    found = _features(structure, arrays, x)
    while found.shape[2] > 1:
        if found.shape[2] % 2:
            found = jnp.pad(found, ((0, 0), (0, 0), (0, 1), (0, 0)))
        found = found[:, :, ::2] + found[:, :, 1::2]
    return found


@_compiled
def _pairs(
    structure: Structure,
    arrays: Arrays,
    groups: Features,
    theta: Float[Array, "p d"],
    group: Int[Array, " p"],
) -> Float[Array, "members p n"]:
    def one_member(one: Network, f: Float[Array, "g n f"]) -> Any:
        if has_table(one):  # one pass for theta, whatever n
            return jax.vmap(partial(_at_one_theta, one))(theta, f[group])
        return _head(one, f[group], theta[:, None])

    return structure.each_member(arrays, one_member, groups)


@_compiled
def _scores(
    structure: Structure,
    arrays: Arrays,
    groups: Features,
    theta: Float[Array, "p d"],
    group: Int[Array, " p"],
) -> tuple[Float[Array, "p n"], Float[Array, "p n d"]]:
    """Gradients observation by observation: sums over n are left to float64."""

    def one_member(one: Network, f: Float[Array, "g n f"]) -> Any:
        if has_table(one):
            at = partial(_at_one_theta, one)
            return jax.vmap(at)(theta, f[group]), jax.vmap(jax.jacfwd(at))(theta, f[group])
        rows = jnp.broadcast_to(theta[:, None], (*theta.shape[:1], f.shape[1], theta.shape[1]))
        value, pull = jax.vjp(lambda t: _head(one, f[group], t), rows)
        return value, pull(jnp.ones_like(value))[0]

    value, score = structure.each_member(arrays, one_member, groups)
    return value.mean(axis=0), score.mean(axis=0)


def _at_one_theta(
    one: Network, theta: Float[Array, " d"], features: Float[Array, "n f"]
) -> Float[Array, " n"]:
    """theta (d,) with features (n, f): (n,)."""
    return every_pair(one, features, theta[None])[0]


@_compiled
def _each(
    structure: Structure, arrays: Arrays, groups: Features, theta: Float[Array, "m d"]
) -> Float[Array, "members m g"]:
    def one_member(one: Network, f: Float[Array, "g 1 f"]) -> Any:
        return every_pair(one, f[:, 0], theta)

    return structure.each_member(arrays, one_member, groups)


@_compiled
def _surface(
    structure: Structure, arrays: Arrays, groups: Features, theta: Float[Array, "m d"]
) -> Float[Array, "m g n"]:
    def one_member(one: Network, f: Float[Array, "g n f"]) -> Any:
        g, n, width = f.shape
        return every_pair(one, f.reshape(g * n, width), theta).reshape(len(theta), g, n)

    return structure.each_member(arrays, one_member, groups).mean(axis=0)


def _in_one_piece(x: NDArray[Any]) -> bool:
    """Whether x (g, n, ...) is embedded as it is; its features then need not leave the device."""
    rows = x.shape[0] * x.shape[1]
    return padded(rows, X_ROWS, fine=True) == rows


def _compact(x: NDArray[Any]) -> NDArray[Any]:
    """x in no more bytes than float32 takes."""
    return x if x.dtype.itemsize <= 4 else x.astype(np.float32)


def _head(
    one: Network, f: Float[Array, "*rows f"], theta: Float[Array, "*others d"]
) -> Float[Array, "*all"]:
    """The head on features (..., f) and theta (..., d) with leading axes that broadcast."""
    lead = jnp.broadcast_shapes(f.shape[:-1], theta.shape[:-1])
    f = jnp.broadcast_to(f, (*lead, f.shape[-1])).reshape(-1, f.shape[-1])
    theta = jnp.broadcast_to(theta, (*lead, theta.shape[-1])).reshape(-1, theta.shape[-1])
    return one.head(f, theta).reshape(lead)


def padded(n: int, most: int, fine: bool = False) -> int:
    """The next power of two (fine: or one of three between), at most `most`: few compilations."""
    power = 1 << max(0, n - 1).bit_length()
    if fine and power >= 8:
        power = next(size for size in (5, 6, 7, 8) if size * power // 8 >= n) * power // 8
    return min(most, power)


def pieces(n: int, most: int, fine: bool = False) -> Iterator[tuple[slice, int]]:
    """Consecutive parts of range(n) and the padded size of each."""
    for start in range(0, n, most):
        stop = min(start + most, n)
        yield slice(start, stop), padded(stop - start, most, fine)


def pad(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Repeat the last row until there are `size`."""
    short = size - len(array)
    return array if short == 0 else np.concatenate([array, np.repeat(array[-1:], short, axis=0)])


def _rows(
    theta: Floats, group: NDArray[Any], part: slice, size: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    return (
        pad(np.asarray(theta[part], np.float32), size),
        pad(np.asarray(group[part], np.int32), size),
    )
