"""ConvPool on a CPU: 3 x 3 convolution, ReLU and 2 x 2 average as matrix products, forth and back.

Rows lead: z is (H, b, W, c), so a shift by a row is one contiguous block. The three columns of a
patch are put side by side, Q; one product makes what each row of Q gives to the three rows of
outputs it touches, and these are added:

    Y = Q W,   y_h = Y_h,0 + Y_h+1,1 + Y_h+2,2 + b,   out = mean over the window of max(y, 0)
    dW = Q^T dY,   dQ = dY W^T,   dY_h,i = dy_h-i,   dy = d out / 4 where y > 0

What autodiff makes of this is right but slow here: XLA transposes dy before the product for dW, and
merges the overlapping sum behind dz into each of its readers, which then repeat it. So the backward
pass is written out, and that sum is made in place. It can be differentiated again in reverse;
forward mode cannot pass through, and need not: theta enters after the convolutions.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_vjp
def pooled_patches(
    z: Float[Array, "H b W c"], weight: Float[Array, "3 3 c o"], bias: Float[Array, " o"]
) -> Float[Array, "h b w o"]:
    """ConvPool of many channels."""
    return _patches_forward(z, weight, bias)[0]


def _as_matrix(weight: Float[Array, "3 3 c o"]) -> Float[Array, "3*c 3*o"]:
    """From (column of the patch, channel) to (row of the patch, output)."""
    c, o = weight.shape[2:]
    return weight.transpose(1, 2, 0, 3).reshape(3 * c, 3 * o)


def _patches_forward(z: Any, weight: Any, bias: Any) -> Any:
    height, b, width, c = z.shape
    h, w, o = height - 2, width - 2, weight.shape[3]
    rows = jnp.concatenate([z[:, :, j : j + w] for j in range(3)], axis=-1).reshape(-1, 3 * c)
    parts = (rows @ _as_matrix(weight)).reshape(height, b, w, 3, o)
    y = parts[:h, :, :, 0] + parts[1 : h + 1, :, :, 1] + parts[2:, :, :, 2] + bias
    on = jax.nn.relu(y).reshape(h // 2, 2, b, w // 2, 2, o)
    out = (on[:, 0, :, :, 0] + on[:, 0, :, :, 1] + on[:, 1, :, :, 0] + on[:, 1, :, :, 1]) / 4
    return out, (rows, y, weight)


def _patches_backward(kept: Any, d_out: Any) -> Any:
    rows, y, weight = kept
    h, b, w, o = d_out.shape
    c = weight.shape[2]
    of_window = d_out[:, None, :, :, None] / 4
    dy = jnp.where(y.reshape(h, 2, b, w, 2, o) > 0, of_window, 0).reshape(2 * h, b, 2 * w, o)
    shifted = [jnp.pad(dy, ((i, 2 - i), (0, 0), (0, 0), (0, 0))) for i in range(3)]
    d_parts = jnp.concatenate(shifted, axis=-1).reshape(-1, 3 * o)
    d_matrix = (rows.T @ d_parts).reshape(3, c, 3, o).transpose(2, 0, 1, 3)
    d_rows = (d_parts @ _as_matrix(weight).T).reshape(2 * h + 2, b, 2 * w, 3, c)
    dz = jnp.zeros((2 * h + 2, b, 2 * w + 2, c), dy.dtype)
    for j in range(3):
        dz = dz.at[:, :, j : j + 2 * w].add(d_rows[:, :, :, j])
    return dz, d_matrix, dy.sum(axis=(0, 1, 2))


pooled_patches.defvjp(_patches_forward, _patches_backward)


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


def _windows_forward(z: Any, weight: Any, bias: Any) -> Any:
    h, b, w = z.shape[0] // 2 - 1, z.shape[1], z.shape[2] // 2 - 1
    rows = windows(z).reshape(h * b * w, 16)
    y = rows @ in_windows(weight) + jnp.tile(bias, 4)
    out = jax.nn.relu(y).reshape(h, b, w, 4, -1).sum(axis=3) / 4
    return out, (rows, y, weight, z)


def _windows_backward(kept: Any, d_out: Any) -> Any:
    rows, y, weight, z = kept
    o = d_out.shape[-1]
    dy = jnp.where(y.reshape(-1, 4, o) > 0, d_out.reshape(-1, 1, o) / 4, 0).reshape(-1, 4 * o)
    (d_weight,) = jax.linear_transpose(in_windows, weight)(rows.T @ dy)
    # Computed only where someone asks for it: in training the field itself is data.
    d_rows = (dy @ in_windows(weight).T).reshape(*d_out.shape[:3], 16)
    (dz,) = jax.linear_transpose(windows, z)(d_rows)
    return dz, d_weight, dy.sum(axis=0).reshape(4, o).sum(axis=0)


pooled_windows.defvjp(_windows_forward, _windows_backward)
