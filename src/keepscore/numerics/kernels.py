"""Stationary, anisotropic correlation functions of the plane, and their slopes in the log scales.

With lags h_1, h_2 and length scales l_1, l_2 the scaled distance is
    r = sqrt((h_1/l_1)^2 + (h_2/l_2)^2),
and the correlation rho(r) is one of
    exponential   exp(-r)
    matern32      (1 + a) exp(-a),             a = sqrt(3) r
    matern52      (1 + a + a^2/3) exp(-a),     a = sqrt(5) r.
Because d r / d log l_k = -(h_k/l_k)^2 / r, both slopes share one factor:
    d rho / d log l_k = (h_k/l_k)^2 f(r),      f(r) = -rho'(r) / r,
which is exp(-r)/r, 3 exp(-a) and (5/3)(1 + a) exp(-a) in turn. At lag zero the slope is zero.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float

from keepscore.checks import require_choice
from keepscore.numerics.jit import compiled

KERNELS = ("exponential", "matern32", "matern52")
FAR = 1e4
Array = np.ndarray
Table = Float[Array, "a b"]


def require_kernel(kernel: str) -> str:
    """The name of a kernel, or an error that lists them."""
    require_choice(kernel, "kernel", KERNELS)
    return kernel


def correlation_and_slopes(
    kernel: str, lag_1: Float[Array, "#a #b"], lag_2: Float[Array, "#a #b"], l_1: float, l_2: float
) -> tuple[Table, Table, Table]:
    """rho, d rho / d log l_1 and d rho / d log l_2 at every pair of lags, broadcast together."""
    return _fill(KERNELS.index(kernel), lag_1, lag_2, float(l_1), float(l_2))


# Compiled; `no_type_check` keeps the type checks of the tests out of it.


@compiled(error_model="numpy")
@no_type_check
def _fill(kernel, lag_1, lag_2, l_1, l_2):
    # Broadcasting by hand: an axis of length one keeps its only index.
    a_1, b_1 = lag_1.shape
    a_2, b_2 = lag_2.shape
    shape = (max(a_1, a_2), max(b_1, b_2))
    rho, slope_1, slope_2 = np.empty(shape), np.empty(shape), np.empty(shape)
    for i in range(shape[0]):
        for j in range(shape[1]):
            # exp(-FAR) is exactly zero: the cap changes nothing but keeps inf * 0 out.
            u = min(lag_1[min(i, a_1 - 1), min(j, b_1 - 1)] / l_1, FAR) ** 2
            v = min(lag_2[min(i, a_2 - 1), min(j, b_2 - 1)] / l_2, FAR) ** 2
            r = np.sqrt(u + v)
            if kernel == 0:
                rho[i, j] = np.exp(-r)
                # At lag zero u = v = 0, and any finite number serves in place of 1/0.
                factor = rho[i, j] / r if r > 0.0 else 0.0
            elif kernel == 1:
                a = np.sqrt(3.0) * r
                decay = np.exp(-a)
                rho[i, j] = (1.0 + a) * decay
                factor = 3.0 * decay
            else:
                a = np.sqrt(5.0) * r
                decay = np.exp(-a)
                rho[i, j] = (1.0 + a + a * a / 3.0) * decay
                factor = (5.0 / 3.0) * (1.0 + a) * decay
            slope_1[i, j] = u * factor
            slope_2[i, j] = v * factor
    return rho, slope_1, slope_2
