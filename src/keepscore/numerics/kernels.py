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

import numpy as np
from jaxtyping import Float

from keepscore.errors import unknown_name

KERNELS = ("exponential", "matern32", "matern52")
FAR = 1e4
Array = np.ndarray


def require_kernel(kernel: str) -> str:
    """The name of a kernel, or an error that lists them."""
    if kernel not in KERNELS:
        raise unknown_name("kernel", kernel, KERNELS)
    return kernel


def correlation(
    kernel: str, lag_1: Float[Array, "#a #b"], lag_2: Float[Array, "#a #b"], l_1: float, l_2: float
) -> Float[Array, "a b"]:
    """rho at every pair of lags; the two lag arrays are broadcast against each other."""
    return _rho(kernel, _distance(lag_1, lag_2, l_1, l_2)[2])


def slopes(
    kernel: str, lag_1: Float[Array, "#a #b"], lag_2: Float[Array, "#a #b"], l_1: float, l_2: float
) -> tuple[Float[Array, "a b"], Float[Array, "a b"]]:
    """d rho / d log l_1 and d rho / d log l_2 at every pair of lags."""
    square_1, square_2, r = _distance(lag_1, lag_2, l_1, l_2)
    factor = _slope_factor(kernel, r)
    return square_1 * factor, square_2 * factor


def _distance(lag_1: Array, lag_2: Array, l_1: float, l_2: float) -> tuple[Array, Array, Array]:
    # exp(-1e4) is exactly zero, so the cap changes nothing, and keeps inf * 0 out of the slopes.
    with np.errstate(over="ignore"):
        square_1 = np.minimum((lag_1 / l_1) ** 2, FAR**2)
        square_2 = np.minimum((lag_2 / l_2) ** 2, FAR**2)
    return square_1, square_2, np.sqrt(square_1 + square_2)


def _rho(kernel: str, r: Array) -> Array:
    if kernel == "exponential":
        return np.exp(-r)
    if kernel == "matern32":
        a = np.sqrt(3.0) * r
        return (1.0 + a) * np.exp(-a)
    a = np.sqrt(5.0) * r
    return (1.0 + a + a * a / 3.0) * np.exp(-a)


def _slope_factor(kernel: str, r: Array) -> Array:
    if kernel == "exponential":
        # 0/0 at lag zero, where the squares that multiply it vanish: any finite number serves.
        return np.exp(-r) / np.where(r > 0.0, r, 1.0)
    if kernel == "matern32":
        return 3.0 * np.exp(-np.sqrt(3.0) * r)
    a = np.sqrt(5.0) * r
    return (5.0 / 3.0) * (1.0 + a) * np.exp(-a)
