"""ConvPool of many channels on a CPU, by Winograd's minimal filtering F(2 x 2, 3 x 3).

A pooled place sees a 4 x 4 window d of its input and averages 2 x 2 outputs y of the 3 x 3 kernel
g. Winograd (1980) makes these four with 16 multiplications per pair of channels, not 36:

    y = A^T [ (G g G^T) * (B^T d B) ] A,   out = mean of max(y + b, 0)

           [1  0 -1  0]         [ 1    0    0 ]
    B^T =  [0  1  1  0]    G =  [1/2  1/2  1/2]    A^T = [1  1  1  0]
           [0 -1  1  0]         [1/2 -1/2  1/2]          [0  1 -1 -1]
           [0  1  0 -1]         [ 0    0    1 ]

Over all windows, each of the 16 entries is one product of matrices, M = V U with V (windows,
channels) and U (channels, outputs). Backward the same three matrices act transposed:

    dM = A dy A^T,   dU = V^T dM,   dV = dM U^T

The sums are written out, since as products with such small matrices they would be slow. So is the
backward pass: in autodiff's the sums behind dz are repeated by each of their readers. It can be
differentiated again in reverse; forward mode cannot pass through, and need not: theta enters after
the convolutions.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)
KERNEL = np.kron(G, G)  # g -> G g G^T, both flattened
# V, U and y, for the backward pass.
Kept: TypeAlias = tuple[Float[Array, "16 n c"], Float[Array, "16 c o"], list[Float[Array, "n o"]]]


def _window(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
    """B^T."""
    return a - c, b + c, c - b, b - d


def _window_back(p: Array, q: Array, r: Array, s: Array) -> tuple[Array, ...]:
    """B."""
    return p, q - r + s, q + r - p, -s


def _outputs(p: Array, q: Array, r: Array, s: Array) -> tuple[Array, ...]:
    """A^T."""
    return p + q + r, q - r - s


def _outputs_back(a: Array, b: Array) -> tuple[Array, ...]:
    """A."""
    return a, a + b, a - b, -b


@jax.custom_vjp
def pooled_channels(
    z: Float[Array, "H b W c"], weight: Float[Array, "3 3 c o"], bias: Float[Array, " o"]
) -> Float[Array, "h b w o"]:
    """3 x 3 convolution, ReLU and 2 x 2 average; H = 2 h + 2, W = 2 w + 2."""
    return _forward(z, weight, bias)[0]


def _forward(
    z: Float[Array, "H b W c"], weight: Float[Array, "3 3 c o"], bias: Float[Array, " o"]
) -> tuple[Float[Array, "h b w o"], Kept]:
    h, w, (c, o) = z.shape[0] // 2 - 1, z.shape[2] // 2 - 1, weight.shape[2:]
    v = _of_windows(z).reshape(16, -1, c)
    u = jnp.matmul(KERNEL, weight.reshape(9, c * o)).reshape(16, c, o)
    m = jnp.matmul(v, u).reshape(4, 4, -1, o)
    y = [entry + bias for row in _outputs(*m) for entry in _outputs(*row)]
    out = (jax.nn.relu(y[0]) + jax.nn.relu(y[1]) + jax.nn.relu(y[2]) + jax.nn.relu(y[3])) / 4
    return out.reshape(h, -1, w, o), (v, u, y)


def _backward(kept: Kept, d_out: Float[Array, "h b w o"]) -> tuple[Array, Array, Array]:
    v, u, y = kept
    h, b, w, o = d_out.shape
    c = v.shape[2]
    dy = [jnp.where(entry > 0, d_out.reshape(-1, o) / 4, 0) for entry in y]
    rows = [jnp.stack(_outputs_back(*row)) for row in (dy[:2], dy[2:])]
    dm = jnp.stack(_outputs_back(*rows)).reshape(16, -1, o)
    du = jnp.einsum("knc,kno->kco", v, dm)
    dv = jnp.einsum("kno,kco->knc", dm, u)
    d_weight = jnp.matmul(KERNEL.T, du.reshape(16, c * o)).reshape(3, 3, c, o)
    dz = _to_windows(dv.reshape(4, 4, h, b, w, c))
    return dz, d_weight, dy[0].sum(0) + dy[1].sum(0) + dy[2].sum(0) + dy[3].sum(0)


def _of_windows(z: Float[Array, "H b W c"]) -> Float[Array, "4 4 h b w c"]:
    """B^T d B of every window. Entry i of a window is i // 2 pairs on, of parity i % 2."""
    height, b, width, c = z.shape
    rows = z.reshape(height // 2, 2, b, width, c)
    along = jnp.stack(_window(rows[:-1, 0], rows[:-1, 1], rows[1:, 0], rows[1:, 1]))
    cut = along.reshape(4, height // 2 - 1, b, width // 2, 2, c)
    places = (cut[..., :-1, 0, :], cut[..., :-1, 1, :], cut[..., 1:, 0, :], cut[..., 1:, 1, :])
    return jnp.stack(_window(*places), axis=1)


def _to_windows(dv: Float[Array, "4 4 h b w c"]) -> Float[Array, "H b W c"]:
    """Its transpose: windows overlap, and their parts of dz add up, in place."""
    h, b, w, c = dv.shape[2:]
    cut = jnp.zeros((4, h, b, w + 1, 2, c), dv.dtype)
    for j, part in enumerate(_window_back(*jnp.moveaxis(dv, 1, 0))):
        cut = cut.at[..., j // 2 : j // 2 + w, j % 2, :].add(part)
    rows = jnp.zeros((h + 1, 2, b, 2 * w + 2, c), dv.dtype)
    for i, part in enumerate(_window_back(*cut.reshape(4, h, b, 2 * w + 2, c))):
        rows = rows.at[i // 2 : i // 2 + h, i % 2].add(part)
    return rows.reshape(2 * h + 2, b, 2 * w + 2, c)


pooled_channels.defvjp(_forward, _backward)
