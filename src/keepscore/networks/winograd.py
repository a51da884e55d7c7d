"""ConvPool of many channels on a CPU, by Winograd's minimal filtering F(m x m, 3 x 3).

A tile of m x m outputs y of the 3 x 3 kernel g sees an (m + 2) x (m + 2) window d of the input.
Winograd (1980) makes it with (m + 2)^2 multiplications per pair of channels, not 9 m^2: for m = 2
with 16, not 36, for m = 4 with 36, not 144:

    y = A^T [ (G g G^T) * (B^T d B) ] A,   out = means of 2 x 2 of max(y + b, 0)

m = 4 is taken along a side with an even number of pooled places, m = 2 along others. The matrices
belong to polynomials at the points 0, 1, -1, infinity and, for m = 4, 2 and -2.

Over all windows, each of the (m + 2)^2 entries is one product of matrices, M = V U with V (windows,
channels) and U (channels, outputs). Backward the same three matrices act transposed:

    dM = A dy A^T,   dU = V^T dM,   dV = dM U^T

Sums with A and B are written out, since as products with such small matrices they would be slow,
first along one side, then along the other. So is the backward pass: in autodiff's the sums behind
dz are repeated by each of their readers. It can be differentiated again in reverse; forward mode
cannot pass through, and need not: theta enters after the convolutions.

XLA repeats an elementwise sum in each of its readers, unless one of them is a matrix product, which
needs it in memory, or a barrier stands in between. So sums along one side end at a barrier; the
means are products with a matrix, and the gradient of b is (1 ... 1) dY.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

# In dU = V^T dM, rows of V that lie a multiple of 256 bytes apart push each other out of the cache:
# at 128 channels it took twice as long as dV. Then V gets four more channels, of zeros.
CROWDED, SPARE = 64, 4


@dataclass(frozen=True)
class Filtering:
    """F(m, 3) along one side: B^T (m + 2, m + 2), G (m + 2, 3) and A^T (m, m + 2)."""

    window: NDArray[np.float32]
    kernel: NDArray[np.float32]
    outputs: NDArray[np.float32]

    @property
    def m(self) -> int:
        return len(self.outputs)

    def tiles(self, side: int) -> int:
        """Tiles along a side of the input, which has two entries more than there are outputs."""
        return (side - 2) // self.m


F2 = Filtering(
    window=np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float32),
    kernel=np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32),
    outputs=np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float32),
)
F4 = Filtering(
    window=np.array(
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        np.float32,
    ),
    kernel=np.array(
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        np.float32,
    ),
    outputs=np.array(
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
        np.float32,
    ),
)


class Tiling(NamedTuple):
    """How an input (H, b, W, c) is cut: the filtering along each side, and tiles."""

    down: Filtering
    across: Filtering
    rows: int
    columns: int

    @property
    def entries(self) -> int:
        """Of a window."""
        return (self.down.m + 2) * (self.across.m + 2)

    @property
    def kernel(self) -> NDArray[np.float32]:
        """g -> G g G^T, both flattened."""
        return np.kron(self.down.kernel, self.across.kernel)

    @property
    def means(self) -> NDArray[np.float32]:
        """The m x m outputs of a tile -> the means of 2 x 2 of them, both flattened."""
        half = [np.kron(np.eye(f.m // 2), [0.5, 0.5]) for f in (self.down, self.across)]
        return np.kron(*half).astype(np.float32)


def tiling(height: int, width: int) -> Tiling:
    """Tiles of four where they fit."""
    down, across = (F4 if (side - 2) % F4.m == 0 else F2 for side in (height, width))
    return Tiling(down, across, down.tiles(height), across.tiles(width))


class Kept(NamedTuple):
    """V, U and max(y + b, 0) for the backward pass, and an empty array of the input's shape."""

    v: Float[Array, "k n c_and_spare"]
    u: Float[Array, "k c o"]
    y: Float[Array, "mm n o"]
    shape: Float[Array, "H b W 0"]


@jax.custom_vjp
def pooled_channels(
    z: Float[Array, "H b W c"], weight: Float[Array, "3 3 c o"], bias: Float[Array, " o"]
) -> Float[Array, "h b w o"]:
    """3 x 3 convolution, ReLU and 2 x 2 average; H = 2 h + 2, W = 2 w + 2."""
    return _pooled(z, weight, bias, spare=0)[0]


def _forward(
    z: Float[Array, "H b W c"], weight: Float[Array, "3 3 c o"], bias: Float[Array, " o"]
) -> tuple[Float[Array, "h b w o"], Kept]:
    out, v, u, y = _pooled(z, weight, bias, SPARE if z.shape[-1] % CROWDED == 0 else 0)
    return out, Kept(v, u, y, z[..., :0])


def _pooled(
    z: Float[Array, "H b W c"],
    weight: Float[Array, "3 3 c o"],
    bias: Float[Array, " o"],
    spare: int,
) -> tuple[Array, Array, Array, Array]:
    """The means, V, U and max(y + b, 0)."""
    cut = tiling(z.shape[0], z.shape[2])
    c, o = weight.shape[2:]
    v = jnp.pad(_of_windows(z, cut).reshape(cut.entries, -1, c), ((0, 0), (0, 0), (0, spare)))
    u = jnp.matmul(cut.kernel, weight.reshape(9, c * o)).reshape(-1, c, o)
    m = jnp.matmul(v, jnp.pad(u, ((0, 0), (0, spare), (0, 0))))
    m = m.reshape(cut.down.m + 2, cut.across.m + 2, -1, o)
    half = jax.lax.optimization_barrier(_sums(cut.down.outputs, m))
    y = _stacked([jax.nn.relu(e + bias) for row in half for e in _sums(cut.across.outputs, row)])
    means = jnp.matmul(cut.means, y.reshape(len(y), -1))
    return _in_place(means.reshape(len(means), -1, o), z.shape[1], cut), v, u, y


def _backward(kept: Kept, d_out: Float[Array, "h b w o"]) -> tuple[Array, Array, Array]:
    v, u, y, like = kept
    cut = tiling(like.shape[0], like.shape[2])
    c, o = u.shape[1:]
    parts = _by_tile(d_out, cut) / 4
    own = np.argmax(cut.means, axis=0)  # which mean each output of a tile goes into
    dy = _stacked([jnp.where(y[i] > 0, parts[k], 0) for i, k in enumerate(own)])
    rows = dy.reshape(cut.down.m, cut.across.m, -1, o)
    half = [_stacked(_sums(cut.across.outputs.T, row)) for row in rows]
    dm = _stacked(_sums(cut.down.outputs.T, half)).reshape(cut.entries, -1, o)
    du = jnp.einsum("knc,kno->kco", v, dm)[:, :c]
    dv = jnp.einsum("kno,kco->knc", dm, u)
    d_weight = jnp.matmul(cut.kernel.T, du.reshape(cut.entries, c * o)).reshape(3, 3, c, o)
    flat = dy.reshape(-1, o)
    return _to_windows(dv, like.shape, cut), d_weight, jnp.ones(len(flat), dy.dtype) @ flat


def _stacked(parts: list[Array], axis: int = 0) -> Array:
    """Arrays that are computed one by one and then laid side by side."""
    return jnp.stack(jax.lax.optimization_barrier(parts), axis)


def _sums(matrix: NDArray[np.float32], parts: Sequence[Any] | Array) -> list[Any]:
    """The matrix times a column of arrays, written out without its zeros."""
    terms = [[float(a) * part for a, part in zip(row, parts, strict=True) if a] for row in matrix]
    return [sum(rest, first) for first, *rest in terms]


def _of_windows(z: Float[Array, "H b W c"], cut: Tiling) -> Float[Array, "p q h b w c"]:
    """B^T d B of every window: entry i of tile t along a side is its place m t + i."""
    down, across, h, w = cut
    rows = [z[i : i + down.m * (h - 1) + 1 : down.m] for i in range(down.m + 2)]
    along = _stacked(_sums(down.window, rows))
    places = [along[..., j : j + across.m * (w - 1) + 1 : across.m, :] for j in range(across.m + 2)]
    return _stacked(_sums(across.window, places), axis=1)


def _to_windows(
    dv: Float[Array, "k n c"], shape: tuple[int, ...], cut: Tiling
) -> Float[Array, "H b W c"]:
    """Its transpose: windows overlap, and their parts of dz add up."""
    (height, b, width, _), c = shape, dv.shape[-1]
    down, across, h, w = cut
    parts = dv.reshape(down.m + 2, across.m + 2, h, b, w, c)
    beside = _overlapping(_sums(across.window.T, jnp.moveaxis(parts, 1, 0)), 3, across.m)
    beside = beside.reshape(-1, h, b, (w + 1) * across.m, c)[:, :, :, :width]
    rows = _overlapping(_sums(down.window.T, beside), 0, down.m)
    return rows.reshape((h + 1) * down.m, b, width, c)[:height]


def _overlapping(parts: Sequence[Array], axis: int, m: int) -> Array:
    """Windows of m + 2 entries, the last two shared with the next one: blocks of m, one more than
    there are windows, entries on a new axis."""

    def shifted(part: Array, i: int) -> Array:
        return jnp.pad(part, [(i, 1 - i) if k == axis else (0, 0) for k in range(part.ndim)])

    own = [shifted(parts[i], 0) for i in range(m)]
    shared = [own[i] + shifted(parts[m + i], 1) for i in range(2)]
    return _stacked([*shared, *own[2:]], axis=axis + 1)


def _in_place(means: Float[Array, "mm n o"], b: int, cut: Tiling) -> Float[Array, "h b w o"]:
    """Means by tile, laid out as the field."""
    p, q = cut.down.m // 2, cut.across.m // 2
    grid = means.reshape(p, q, cut.rows, b, cut.columns, -1)
    return jnp.transpose(grid, (2, 0, 3, 4, 1, 5)).reshape(cut.rows * p, b, cut.columns * q, -1)


def _by_tile(field: Float[Array, "h b w o"], cut: Tiling) -> Float[Array, "mm n o"]:
    """Its inverse."""
    p, q = cut.down.m // 2, cut.across.m // 2
    grid = field.reshape(cut.rows, p, field.shape[1], cut.columns, q, -1)
    return jnp.transpose(grid, (1, 4, 0, 2, 3, 5)).reshape(p * q, -1, field.shape[-1])


pooled_channels.defvjp(_forward, _backward)
