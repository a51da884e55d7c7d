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

XLA repeats an elementwise sum in each of its readers, unless one of them is a matrix product, which
needs it in memory. So where max(y + b, 0) and dy have several readers, one is written as a product:
the mean of four as (1/4 1/4 1/4 1/4) Y, the gradient of b as (1 ... 1) dY.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)
KERNEL = np.kron(G, G)  # g -> G g G^T, both flattened
# In dU = V^T dM, rows of V that lie a multiple of 256 bytes apart push each other out of the cache:
# at 128 channels it took twice as long as dV. Then V gets four more channels, of zeros.
CROWDED, SPARE = 64, 4
# V, U and max(y + b, 0), for the backward pass.
Kept: TypeAlias = tuple[
    Float[Array, "16 n c_and_spare"], Float[Array, "16 c o"], Float[Array, "4 n o"]
]


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
    places, _, _ = _before_pooling(z, weight, bias)
    out = (places[0] + places[1] + places[2] + places[3]) / 4
    return out.reshape(z.shape[0] // 2 - 1, z.shape[1], z.shape[2] // 2 - 1, -1)


def _before_pooling(
    z: Float[Array, "H b W c"],
    weight: Float[Array, "3 3 c o"],
    bias: Float[Array, " o"],
    spare: int = 0,
) -> tuple[list[Float[Array, "n o"]], Float[Array, "16 n c_and_spare"], Float[Array, "16 c o"]]:
    """max(y + b, 0) at the four places, V and U."""
    c, o = weight.shape[2:]
    v = jnp.pad(_of_windows(z).reshape(16, -1, c), ((0, 0), (0, 0), (0, spare)))
    u = jnp.matmul(KERNEL, weight.reshape(9, c * o)).reshape(16, c, o)
    m = jnp.matmul(v, jnp.pad(u, ((0, 0), (0, spare), (0, 0)))).reshape(4, 4, -1, o)
    y = [entry + bias for row in _outputs(*m) for entry in _outputs(*row)]
    return [jax.nn.relu(entry) for entry in y], v, u


def _forward(
    z: Float[Array, "H b W c"], weight: Float[Array, "3 3 c o"], bias: Float[Array, " o"]
) -> tuple[Float[Array, "h b w o"], Kept]:
    spare = SPARE if z.shape[-1] % CROWDED == 0 else 0
    places, v, u = _before_pooling(z, weight, bias, spare)
    y = jnp.stack(places)
    out = jnp.full(4, 0.25, y.dtype) @ y.reshape(4, -1)
    return out.reshape(z.shape[0] // 2 - 1, z.shape[1], z.shape[2] // 2 - 1, -1), (v, u, y)


def _backward(kept: Kept, d_out: Float[Array, "h b w o"]) -> tuple[Array, Array, Array]:
    v, u, y = kept
    h, b, w, o = d_out.shape
    c = u.shape[1]
    dy = jnp.where(y > 0, d_out.reshape(-1, o) / 4, 0)
    rows = [jnp.stack(_outputs_back(*row)) for row in (dy[:2], dy[2:])]
    dm = jnp.stack(_outputs_back(*rows)).reshape(16, -1, o)
    du = jnp.einsum("knc,kno->kco", v, dm)[:, :c]
    dv = jnp.einsum("kno,kco->knc", dm, u)
    d_weight = jnp.matmul(KERNEL.T, du.reshape(16, c * o)).reshape(3, 3, c, o)
    dz = _to_windows(dv.reshape(4, 4, h, b, w, c))
    flat = dy.reshape(-1, o)
    return dz, d_weight, jnp.ones(len(flat), dy.dtype) @ flat


def _of_windows(z: Float[Array, "H b W c"]) -> Float[Array, "4 4 h b w c"]:
    """B^T d B of every window. Entry i of a window is i // 2 pairs on, of parity i % 2."""
    height, b, width, c = z.shape
    rows = z.reshape(height // 2, 2, b, width, c)
    along = jnp.stack(_window(rows[:-1, 0], rows[:-1, 1], rows[1:, 0], rows[1:, 1]))
    cut = along.reshape(4, height // 2 - 1, b, width // 2, 2, c)
    places = (cut[..., :-1, 0, :], cut[..., :-1, 1, :], cut[..., 1:, 0, :], cut[..., 1:, 1, :])
    return jnp.stack(_window(*places), axis=1)


def _to_windows(dv: Float[Array, "4 4 h b w c"]) -> Float[Array, "H b W c"]:
    """Its transpose: windows overlap, and their parts of dz add up."""
    h, b, w, c = dv.shape[2:]
    cut = _overlapping(_window_back(*jnp.moveaxis(dv, 1, 0)), axis=3)
    rows = _overlapping(_window_back(*cut.reshape(4, h, b, 2 * w + 2, c)), axis=0)
    return rows.reshape(2 * h + 2, b, 2 * w + 2, c)


def _overlapping(parts: tuple[Array, ...], axis: int) -> Array:
    """n windows of four entries, two of them shared with the next: n + 1 pairs, on a new axis."""

    def shifted(part: Array, i: int) -> Array:
        return jnp.pad(part, [(i, 1 - i) if k == axis else (0, 0) for k in range(part.ndim)])

    pairs = [shifted(parts[i], 0) + shifted(parts[i + 2], 1) for i in range(2)]
    return jnp.stack(pairs, axis=axis + 1)


pooled_channels.defvjp(_forward, _backward)
