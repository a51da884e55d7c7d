"""ConvPool of one channel on a CPU: convolution, ReLU and average as matrix products.

With one channel, writing and averaging the large output is the work, not the multiplications. So a
row of Q is the 4 x 4 window that a pooled place sees, and W_1 ... W_4 hold the 3 x 3 kernel at the
four places of that window:

    y_k = Q W_k + b,   out = mean over the four of max(y_k, 0)
    dW_k = Q^T dy_k,   dy_k = d out / 4 where y_k > 0

On one core both passes go through the rows in blocks, so that the four y stay in the cache; several
cores share the rows of one block. The backward pass computes the four y again: with only 16
products for each number, that is faster than reading what was kept. It is written out, because what
autodiff makes of it is right but slow here. It can be differentiated again in reverse; forward mode
cannot pass through, and need not: theta enters after the convolutions. Many channels:
`winograd.py`.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from keepscore.networks.compilation import threads

# z, the kernel and the bias, for the backward pass.
Kept: TypeAlias = tuple[Float[Array, "H b W 1"], Float[Array, "3 3 1 o"], Float[Array, " o"]]
Sums: TypeAlias = tuple[list[Float[Array, "16 o"]], Float[Array, " o"]]
# Rows in a block: at 128 channels the four y of 320 rows take 640 kB. Fewer than 64 would be slow.
MOST_ROWS, FEWEST_ROWS = 320, 64


def rows_in_block(n: int) -> int:
    """The largest divisor of n within these bounds; n itself if there is none, or several cores."""
    if threads() > 1:
        return n
    return next((k for k in range(MOST_ROWS, FEWEST_ROWS - 1, -1) if n % k == 0), n)


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


def in_windows(weight: Float[Array, "3 3 1 o"]) -> list[Float[Array, "16 o"]]:
    """The kernel at each of the four places of a 4 x 4 window."""
    kernel = weight[:, :, 0]
    shifts = [((p, 1 - p), (q, 1 - q), (0, 0)) for p in range(2) for q in range(2)]
    return [jnp.pad(kernel, shift).reshape(16, -1) for shift in shifts]


def _blocks(z: Float[Array, "H b W 1"]) -> Float[Array, "blocks n 16"]:
    """Q, cut into blocks of rows."""
    rows = windows(z).reshape(-1, 16)
    return rows.reshape(-1, rows_in_block(len(rows)), 16)


@jax.custom_vjp
def pooled_windows(
    z: Float[Array, "H b W 1"], weight: Float[Array, "3 3 1 o"], bias: Float[Array, " o"]
) -> Float[Array, "h b w o"]:
    """ConvPool of one channel: a row is a 4 x 4 window, four products make all that it pools."""
    kernels = in_windows(weight)

    def pooled(rows: Float[Array, "n 16"]) -> Float[Array, "n o"]:
        y = [jax.nn.relu(rows @ kernel + bias) for kernel in kernels]
        return (y[0] + y[1] + y[2] + y[3]) / 4

    out = jax.lax.map(pooled, _blocks(z))
    return out.reshape(z.shape[0] // 2 - 1, z.shape[1], z.shape[2] // 2 - 1, -1)


def _windows_forward(
    z: Float[Array, "H b W 1"], weight: Float[Array, "3 3 1 o"], bias: Float[Array, " o"]
) -> tuple[Float[Array, "h b w o"], Kept]:
    return pooled_windows(z, weight, bias), (z, weight, bias)


def _windows_backward(kept: Kept, d_out: Float[Array, "h b w o"]) -> tuple[Array, Array, Array]:
    z, weight, bias = kept
    kernels = in_windows(weight)
    blocks = _blocks(z)
    parts = d_out.reshape(*blocks.shape[:2], -1)

    def d_four(rows: Float[Array, "n 16"], part: Float[Array, "n o"]) -> list[Float[Array, "n o"]]:
        """4 dy. The division by 4 comes last, on fewer numbers."""
        return [jnp.where(rows @ kernel + bias > 0, part, 0) for kernel in kernels]

    def add(sums: Sums, block: tuple[Array, Array]) -> tuple[Sums, None]:
        rows, dy = block[0], d_four(*block)
        d_kernels = [total + rows.T @ one for total, one in zip(sums[0], dy, strict=True)]
        d_bias = sums[1] + (dy[0] + dy[1] + dy[2] + dy[3]).sum(axis=0)
        return (d_kernels, d_bias), None

    def d_window(block: tuple[Array, Array]) -> Float[Array, "n 16"]:
        dy = d_four(*block)
        return sum((dy[k] @ kernels[k].T for k in range(1, 4)), dy[0] @ kernels[0].T) / 4

    nothing = ([jnp.zeros_like(kernel) for kernel in kernels], jnp.zeros_like(bias))
    (d_kernels, d_bias), _ = jax.lax.scan(add, nothing, (blocks, parts))
    (d_weight,) = jax.linear_transpose(in_windows, weight)(d_kernels)
    # Computed only where someone asks for it: in training the field itself is data.
    (dz,) = jax.linear_transpose(_blocks, z)(jax.lax.map(d_window, (blocks, parts)))
    return dz, d_weight / 4, d_bias / 4


pooled_windows.defvjp(_windows_forward, _windows_backward)
