"""ConvPool of one channel on a CPU: convolution, ReLU and average as one matrix product.

With one channel, writing and averaging the large output is the work, not the multiplications. So a
row of Q is the 4 x 4 window that a pooled place sees, and W holds the 3 x 3 kernel at the four
places of that window, side by side:

    y = Q W + b,   out = mean over the four of max(y, 0)
    dW = Q^T dy,   dy = d out / 4 where y > 0

The backward pass is written out, because what autodiff makes of it is right but slow here. It can
be differentiated again in reverse; forward mode cannot pass through, and need not: theta enters
after the convolutions. Many channels: `winograd.py`.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Q, y, the kernel and z, for the backward pass.
Kept: TypeAlias = tuple[
    Float[Array, "n 16"], Float[Array, "n four_o"], Float[Array, "3 3 1 o"], Float[Array, "H b W 1"]
]


def windows(z: Float[Array, "H b W 1"]) -> Float[Array, "h b w 16"]:
    """The 4 x 4 places that each pooled place sees."""
    height, b, width, _ = z.shape
    h, w = height // 2 - 1, width // 2 - 1
    # Rows and columns by parity: place i of a window is row i // 2 on, of parity i % 2.
    parity = z.reshape(h + 1, 2, b, w + 1, 2)

    def place(i: int, j: int) -> Array:
        (di, pi), (dj, pj) = divmod(i, 2), divmod(j, 2)
        return parity[di : di + h, pi, :, dj : dj + w, pj]

    return jnp.stack([place(i, j) for i in range(4) for j in range(4)], axis=-1)


def in_windows(weight: Float[Array, "3 3 1 o"]) -> Float[Array, "16 4*o"]:
    """The kernel at the four places of a 4 x 4 window, side by side."""
    kernel = weight[:, :, 0]
    shifts = [((p, 1 - p), (q, 1 - q), (0, 0)) for p in range(2) for q in range(2)]
    return jnp.concatenate([jnp.pad(kernel, s).reshape(16, -1) for s in shifts], axis=-1)


@jax.custom_vjp
def pooled_windows(
    z: Float[Array, "H b W 1"], weight: Float[Array, "3 3 1 o"], bias: Float[Array, " o"]
) -> Float[Array, "h b w o"]:
    """ConvPool of one channel: a row is a 4 x 4 window, one product makes all that it pools."""
    return _windows_forward(z, weight, bias)[0]


def _windows_forward(
    z: Float[Array, "H b W 1"], weight: Float[Array, "3 3 1 o"], bias: Float[Array, " o"]
) -> tuple[Float[Array, "h b w o"], Kept]:
    h, b, w = z.shape[0] // 2 - 1, z.shape[1], z.shape[2] // 2 - 1
    rows = windows(z).reshape(h * b * w, 16)
    y = rows @ in_windows(weight) + jnp.tile(bias, 4)
    out = jax.nn.relu(y).reshape(h, b, w, 4, -1).sum(axis=3) / 4
    return out, (rows, y, weight, z)


def _windows_backward(kept: Kept, d_out: Float[Array, "h b w o"]) -> tuple[Array, Array, Array]:
    rows, y, weight, z = kept
    o = d_out.shape[-1]
    dy = jnp.where(y.reshape(-1, 4, o) > 0, d_out.reshape(-1, 1, o) / 4, 0).reshape(-1, 4 * o)
    (d_weight,) = jax.linear_transpose(in_windows, weight)(rows.T @ dy)
    # Computed only where someone asks for it: in training the field itself is data.
    d_rows = (dy @ in_windows(weight).T).reshape(*d_out.shape[:3], 16)
    (dz,) = jax.linear_transpose(windows, z)(d_rows)
    return dz, d_weight, dy.sum(axis=0).reshape(4, o).sum(axis=0)


pooled_windows.defvjp(_windows_forward, _windows_backward)
