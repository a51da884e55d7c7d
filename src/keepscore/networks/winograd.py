"""ConvPool of many channels on a CPU, by Winograd's minimal filtering F(2 x 2, 3 x 3).

A pooled place sees a 4 x 4 window d of its input and averages 2 x 2 outputs y of the 3 x 3 kernel
g. Winograd (1980) makes these four with 16 multiplications a pair of channels instead of 36:

    y = A^T [ (G g G^T) * (B^T d B) ] A,   out = mean of max(y + b, 0)

           [1  0 -1  0]         [ 1    0    0 ]
    B^T =  [0  1  1  0]    G =  [1/2  1/2  1/2]    A^T = [1  1  1  0]
           [0 -1  1  0]         [1/2 -1/2  1/2]          [0  1 -1 -1]
           [0  1  0 -1]         [ 0    0    1 ]

Over all windows, each of the 16 entries is one product of matrices, M = V U with V (windows,
channels) and U (channels, outputs). Backward the same three matrices act transposed:

    dM = A dy A^T,   dU = V^T dM,   dV = dM U^T

The sums are written out, one array an entry: stacked, XLA would copy them first. So is the backward
pass, since autodiff's is slow here (the sums behind dz are repeated by each of their readers). It
can be differentiated again in reverse; forward mode cannot pass through, and need not: theta enters
after the convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Grid = Sequence[Sequence[Any]]


def _window(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, ...]:
    """B^T."""
    return a - c, b + c, c - b, b - d


def _window_back(p: Any, q: Any, r: Any, s: Any) -> tuple[Any, ...]:
    """B."""
    return p, q - r + s, q + r - p, -s


def _kernel(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    """G."""
    return a, (a + b + c) / 2, (a - b + c) / 2, c


def _kernel_back(p: Any, q: Any, r: Any, s: Any) -> tuple[Any, ...]:
    """G^T."""
    return p + (q + r) / 2, (q - r) / 2, (q + r) / 2 + s


def _outputs(p: Any, q: Any, r: Any, s: Any) -> tuple[Any, ...]:
    """A^T."""
    return p + q + r, q - r - s


def _outputs_back(a: Any, b: Any) -> tuple[Any, ...]:
    """A."""
    return a, a + b, a - b, -b


def _both(transform: Callable[..., tuple[Any, ...]], grid: Grid) -> Grid:
    """T X T^T: along the columns, then along the rows of a small matrix of arrays."""
    by_row = [transform(*row) for row in grid]
    by_column = [transform(*column) for column in zip(*by_row, strict=True)]
    return list(zip(*by_column, strict=True))


def _each(function: Callable[..., Any], *grids: Grid) -> Grid:
    """A function of the entries in the same place."""
    return [
        [function(*entries) for entries in zip(*rows, strict=True)]
        for rows in zip(*grids, strict=True)
    ]


def _total(grid: Grid) -> Any:
    return sum(entry for row in grid for entry in row)


def _place(parity: Array, h: int, w: int, i: int, j: int) -> Any:
    """Entry (i, j) of every window: rows and columns i // 2, j // 2 on, of parity i % 2, j % 2."""
    (di, pi), (dj, pj) = divmod(i, 2), divmod(j, 2)
    return parity.at[di : di + h, pi, :, dj : dj + w, pj]


@jax.custom_vjp
def pooled_channels(
    z: Float[Array, "H b W c"], weight: Float[Array, "3 3 c o"], bias: Float[Array, " o"]
) -> Float[Array, "h b w o"]:
    """3 x 3 convolution, ReLU and 2 x 2 average; H = 2 h + 2, W = 2 w + 2."""
    return _forward(z, weight, bias)[0]


def _forward(z: Any, weight: Any, bias: Any) -> Any:
    height, b, width, c = z.shape
    h, w = height // 2 - 1, width // 2 - 1
    parity = z.reshape(h + 1, 2, b, w + 1, 2, c)
    window = [[_place(parity, h, w, i, j).get() for j in range(4)] for i in range(4)]
    v = _each(lambda entry: entry.reshape(-1, c), _both(_window, window))
    u = _both(_kernel, [[weight[i, j] for j in range(3)] for i in range(3)])
    y = _each(lambda entry: entry + bias, _both(_outputs, _each(jnp.matmul, v, u)))
    out = _total(_each(jax.nn.relu, y)) / 4
    return out.reshape(h, b, w, -1), (v, u, y)


def _backward(kept: Any, d_out: Any) -> Any:
    v, u, y = kept
    h, b, w, o = d_out.shape
    c = v[0][0].shape[-1]
    of_window = d_out.reshape(-1, o) / 4
    dy = _each(lambda entry: jnp.where(entry > 0, of_window, 0), y)
    dm = _both(_outputs_back, dy)
    du = _each(lambda one, other: one.T @ other, v, dm)
    dv = _each(lambda one, other: (one @ other.T).reshape(h, b, w, c), dm, u)
    d_window = _both(_window_back, dv)
    dz = jnp.zeros((h + 1, 2, b, w + 1, 2, c), d_out.dtype)
    for i in range(4):
        for j in range(4):
            dz = _place(dz, h, w, i, j).add(d_window[i][j])
    d_weight = jnp.stack([jnp.stack(row) for row in _both(_kernel_back, du)])
    d_bias = _total(_each(lambda entry: entry.sum(axis=0), dy))
    return dz.reshape(2 * h + 2, b, 2 * w + 2, c), d_weight, d_bias


pooled_channels.defvjp(_forward, _backward)
