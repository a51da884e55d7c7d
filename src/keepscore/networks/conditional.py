"""Rows with choices, counts or answers in them: each entry given those before it.

    log q(x | theta) = sum_i sum_j log q_j(x_ij | x_i1 ... x_i,j-1, theta)

for x of n rows x_i that are independent and alike given theta (structure "iid"; any n), entries
with few values before continuous ones. An entry with few values (detected or not, a choice, a small
count) has a probability for each of them, a continuous one (the time until the choice) a mixture of
K normals:

    q_j(v | .) = exp(l_jv) / sum_w exp(l_jw),    q_j(z | .) = sum_k w_jk N(z; m_jk, s_jk^2)

with l, or w, m and log s, the outputs of a network of their own for each j, z the entries as
numbers of mean 0 and standard deviation 1 (the logarithm, all but, of those that lean on zero):

    u_j   = theta T_j + z_1 X_j1 + ... + z_{j-1} X_j,j-1 + a_j
    out_j = silu(silu(u_j) A_j + b_j) C_j + theta D_j + c_j

An entry that is continuous but for a few values that come again and again (a time that is censored
at the end of the study, rain that is often 0) has a probability for each of those and one for any
other number, which then has the mixture:

    q_j(z | .) = q_j(other | .) sum_k w_jk N(z; m_jk, s_jk^2)

Every law of a row can be written like this, so entries may depend on each other in any way: three
counts at a site share the animals that are there. log q sums to 1 over values by itself, where
a normal density of counts does so only nearly (`counts`), and a ratio has to learn it (`residual`).
c begins at the shares of the values. A value that no simulation had counts as the nearest that one
had, and the surrogate warns of it. The evidence is computed from q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats
from keepscore.errors import DomainError
from keepscore.networks import tails
from keepscore.networks.categories import NEVER
from keepscore.networks.counts import CONTINUOUS
from keepscore.networks.layers import Source, computed, scattered, silu, uniform
from keepscore.networks.masking import require_rows
from keepscore.networks.mixture import APART, LARGEST, SMALL
from keepscore.numerics.alike import all_alike

MOST_VALUES = 64  # of an entry that is not continuous
MOST_ATOMS, LEAST_SHARE = 8, 0.005  # values that come again in an entry that is, and how often
OTHER = np.inf  # stands among its values for any other number
# The widths of u and of the layer after it.
SIZES: dict[str, dict[str, Any]] = {
    "3k": {"widths": (16, 16), "components": 2, "values": MOST_VALUES},
    "10k": {"widths": (48, 48), "components": 4, "values": MOST_VALUES},
    "30k": {"widths": (96, 96), "components": 8, "values": MOST_VALUES},
}
AT_ONCE = 4096  # rows of x with a theta each: the layers' arrays stay in the cache


class ConditionalSetNetwork(eqx.Module):
    """log q(x | theta) for x (n, ...), any n; whole rows may be missing, and add nothing.

    Of each entry of a row: values (p, most), in order, NaN where it has fewer, or none because it
    is continuous, infinity where any other number may come too; order, its place in the product;
    z = (asinh(x / lean) - mean) / sd, or without the arsinh where lean is 0."""

    of_theta: Float[Array, "p d h"]
    of_entries: Float[Array, "p p h"]
    first_bias: Float[Array, "p h"]
    inner: Float[Array, "p h k"]
    inner_bias: Float[Array, "p k"]
    last: Float[Array, "p k outputs"]
    direct: Float[Array, "p d outputs"]
    last_bias: Float[Array, "p outputs"]
    values: NDArray[np.float32]
    order: NDArray[np.float32]
    lean: NDArray[np.float32]
    mean: NDArray[np.float32]
    sd: NDArray[np.float32]
    constants: ClassVar = ("values", "order", "lean", "mean", "sd")
    takes_missing: ClassVar = True
    whole_rows: ClassVar = True
    x_scale: ClassVar = "none"

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        widths: Sequence[int],
        components: int,
        values: int,
    ) -> None:
        require_rows(x_shape)
        p, (h, k) = math.prod(x_shape[1:]), widths
        outputs = values + 3 * components
        self.of_theta = uniform(rng, (p, d, h), d)
        self.of_entries = uniform(rng, (p, p, h), p)
        self.first_bias = uniform(rng, (p, h), d)
        self.inner = uniform(rng, (p, h, k), h)
        self.inner_bias = uniform(rng, (p, k), h)
        self.last = SMALL * uniform(rng, (p, k, outputs), k)
        self.direct = computed(rng, (p, d, outputs), lambda: np.zeros((p, d, outputs)))
        # Weights, means and log s of the normals; the means begin apart.
        means = jnp.zeros((p, outputs), jnp.float32)
        places = slice(values + components, values + 2 * components)
        self.last_bias = means.at[:, places].set(scattered(rng, (p, components), APART))
        self.values = np.broadcast_to(np.arange(values, dtype=np.float32), (p, values)).copy()
        self.order = np.arange(p, dtype=np.float32)
        self.lean, self.mean = np.zeros(p, np.float32), np.zeros(p, np.float32)
        self.sd = np.ones(p, np.float32)

    def scaled_to(
        self, x: NDArray[Any], x_mean: ArrayLike = 0.0, x_sd: ArrayLike = 1.0
    ) -> ConditionalSetNetwork:
        """The same for data like x (b, n, ...), which come as they are (`x_scale`): no more logits
        than there are values, and the shares of all values to begin with."""
        rows: Floats = np.asarray(x, np.float64).reshape(-1, len(self.order))
        rows = rows[~np.isnan(rows).all(axis=1)]
        kinds = [_values_of(column) for column in rows.T]
        if any(kind is None for kind in kinds) or not np.isfinite(rows).all():
            raise DomainError(
                "A conditional-set network needs rows whose entries are continuous numbers, but "
                f"for at most {MOST_ATOMS} values that come again, or have at most {MOST_VALUES} "
                "different values, none missing in part. Use network='auto'."
            )
        found = [kind for kind in kinds if kind is not None]
        most = max(1, *(len(values) for values, _ in found))
        own = np.full((len(found), most), np.nan, np.float32)
        shares = np.zeros((len(found), most), np.float32)
        for j, (values, counts) in enumerate(found):
            own[j, : len(values)] = values
            shares[j, : len(values)] = np.log(counts / max(counts.sum(), 1))
        other = (own == OTHER).any(axis=1)
        continuous = np.isnan(own).all(axis=1) | other
        again = (rows[:, :, None].astype(np.float32) == own).any(axis=2) & other
        rows = np.where(again, np.nan, rows)  # the scale is that of all other numbers
        leaning = continuous & tails.lean_on_zero(rows, (0,))
        lean = np.where(leaning, tails.small_values(rows, (0,)), 0.0)
        z = np.where(leaning, np.arcsinh(rows / np.where(leaning, lean, 1.0)), rows)
        mean, sd = np.nanmean(z, axis=0), np.nanstd(z, axis=0)
        outputs, most_before = self.last.shape[-1], self.values.shape[1]
        used = np.r_[:most, most_before:outputs]
        logits = self.last_bias[:, used].at[:, :most].set(shares)
        constants = own, np.argsort(np.argsort(continuous, kind="stable")), lean, mean
        parts = (
            self.last[..., used],
            self.direct[..., used],
            logits,
            *(np.asarray(a, np.float32) for a in (*constants, np.where(all_alike(z), np.inf, sd))),
        )
        return eqx.tree_at(
            lambda n: (
                *(n.last, n.direct, n.last_bias),
                *(n.values, n.order, n.lean, n.mean, n.sd),
            ),
            self,
            parts,
        )

    def features(self, x: Float[Array, "b n ..."]) -> Float[Array, "b f"]:
        """z, the number of the value (0 of continuous entries) and 1 or 0, there or not, of all
        rows."""
        b, n = x.shape[:2]
        rows = x.reshape(b, n, -1)
        there = (~jnp.isnan(rows)).any(axis=2, keepdims=True)
        rows = jnp.where(there, rows, self.mean)
        drawn_in = jnp.arcsinh(rows / jnp.where(self.lean > 0, self.lean, 1.0))
        z = (jnp.where(self.lean > 0, drawn_in, rows) - self.mean) / self.sd
        away = jnp.abs(rows[..., None] - self.values)
        nearest = jnp.argmin(jnp.where(jnp.isnan(self.values), jnp.inf, away), axis=3)
        has_other, place = self._other()
        new = has_other & (rows[..., None] != self.values).all(axis=3)
        number = jnp.where(new, place, nearest)
        parts = z, number.astype(z.dtype), there.astype(z.dtype)
        return jnp.concatenate([part.reshape(b, -1) for part in parts], axis=1)

    def _other(self) -> tuple[Array | NDArray[np.bool_], Array | NDArray[np.int64]]:
        """Which entries may be any other number than their values, and where that stands."""
        other = self.values == OTHER
        return other.any(axis=1), other.argmax(axis=1)

    def unseen(self, x: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of x (..., *x_shape) are values that the data it was made for did not have, as rows
        of entries; any number can be one of a continuous entry."""
        rows = np.asarray(x, np.float32).reshape(-1, len(self.order), 1)
        new = (rows != self.values).all(axis=2) & ~np.isnan(rows[..., 0])
        return np.asarray(new & ~np.isnan(self.values).all(axis=1) & ~self._other()[0])

    def far(self, x: NDArray[Any], most: float, most_of_logarithm: float) -> NDArray[np.bool_]:
        """Which of x (..., *x_shape) are more standard deviations than this from the data it was
        made for, as rows of continuous entries; of those that lean on zero, in both scales."""
        rows: Floats = np.asarray(x, np.float64).reshape(-1, len(self.order))
        leaning = self.lean > 0
        drawn_in = np.arcsinh(rows / np.where(leaning, self.lean, 1.0))
        z = np.abs((np.where(leaning, drawn_in, rows) - self.mean) / self.sd)
        beyond = z > np.where(leaning, most_of_logarithm, most)
        beyond &= (rows[..., None].astype(np.float32) != self.values).all(axis=2)
        return np.asarray(beyond & (np.isnan(self.values).all(axis=1) | self._other()[0]))

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """sum_i log q(x_i | theta), up to a constant."""
        rows = features.shape[1] // (2 * len(self.order) + 1)
        size = max(1, AT_ONCE // (rows * len(self.order)))
        if len(features) <= max(size, 64):
            return self._log_density(features, theta)
        return jax.lax.map(
            lambda pair: self._log_density(pair[0][None], pair[1][None])[0],
            (features, theta),
            batch_size=size,
        )

    def _log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        b, p = len(features), len(self.order)
        n = features.shape[1] // (2 * p + 1)
        z, value = (features[:, i * n * p :][:, : n * p].reshape(b, n, p) for i in range(2))
        there = features[:, 2 * n * p :]
        out = self._outputs(z, theta)  # (p, b, n, outputs)
        most = self.values.shape[1]
        logits = jnp.where(jnp.isnan(self.values)[:, None, None], NEVER, out[..., :most])
        logits = jax.nn.log_softmax(logits, axis=3)
        number = jnp.moveaxis(value, 2, 0)[..., None].astype(jnp.int32)
        of_value = jnp.take_along_axis(logits, number, axis=3)[..., 0]
        log_weight, mean, log_sd = jnp.split(out[..., most:], 3, axis=3)
        log_sd = LARGEST * jnp.tanh(log_sd / LARGEST)
        e = (jnp.moveaxis(z, 2, 0)[..., None] - mean) * jnp.exp(-log_sd)
        parts = jax.nn.log_softmax(log_weight, axis=3) - log_sd - 0.5 * e**2
        of_number = jax.nn.logsumexp(parts, axis=3)
        continuous = jnp.isnan(self.values).all(axis=1)[:, None, None]
        has_other, place = (a[:, None, None] for a in self._other())
        is_other = has_other & (number[..., 0] == place)
        of_value = of_value + jnp.where(is_other, of_number, 0.0)
        each = jnp.where(continuous, of_number, of_value)
        return (there * each.sum(axis=0)).sum(axis=1)

    def _outputs(
        self, z: Float[Array, "b n p"], theta: Float[Array, "b d"]
    ) -> Float[Array, "p b n outputs"]:
        """out_j of each row, one network for each entry."""
        b, n, p = z.shape
        before = (self.order[None, :] < self.order[:, None]).astype(np.float32)
        of_row = jnp.matmul(z.reshape(b * n, p), self.of_entries * before[..., None])
        of_theta = jnp.matmul(theta, self.of_theta) + self.first_bias[:, None]
        u = of_row.reshape(p, b, n, -1) + of_theta[:, :, None]
        inner = jnp.matmul(silu(u).reshape(p, b * n, -1), self.inner) + self.inner_bias[:, None]
        curved = jnp.matmul(silu(inner), self.last).reshape(p, b, n, -1)
        direct = jnp.matmul(theta, self.direct) + self.last_bias[:, None]
        return curved + direct[:, :, None]

    def settings(self) -> dict[str, int | list[int]]:
        """With x_shape and d, all that is needed to build the same network."""
        widths = [self.inner.shape[1], self.inner.shape[2]]
        most = self.values.shape[1]
        return {
            "widths": widths,
            "components": (self.last.shape[-1] - most) // 3,
            "values": most,
        }


def _values_of(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Values of an entry and how often it has them; none of a continuous entry; OTHER after those
    that come again in one that is continuous but for them; None of what is nothing of this."""
    values, counts = np.unique(column, return_counts=True)
    if len(values) >= CONTINUOUS * len(column):
        return values[:0], counts[:0]
    if len(values) <= MOST_VALUES:
        return values, counts
    again = counts >= max(2, LEAST_SHARE * len(column))
    others = counts[~again].sum()
    if again.sum() > MOST_ATOMS or (~again).sum() < CONTINUOUS * others:
        return None
    return np.append(values[again], OTHER), np.append(counts[again], others)


def has_discrete_rows(x: NDArray[Any]) -> bool:
    """Whether rows of x (b, n, ...) have entries with few values, or a few that come again and
    again, and all others are continuous; rows may be missing as a whole."""
    if x.dtype.kind not in "biuf" or x.ndim < 3 or x.size == 0:
        return False
    rows = np.asarray(x, np.float64).reshape(-1, math.prod(x.shape[2:]))
    rows = rows[~np.isnan(rows).all(axis=1)]
    if not len(rows) or not np.isfinite(rows).all():
        return False
    kinds = [_values_of(column) for column in rows.T]
    return all(kind is not None for kind in kinds) and any(
        kind is not None and len(kind[0]) > 0 for kind in kinds
    )
