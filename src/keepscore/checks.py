"""Checks at the public boundary: arrays of a known shape and kind come out, or a typed error."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.errors import DomainError, DtypeError, NonFiniteError, ShapeError

Floats = NDArray[np.float64]


def as_floats(values: ArrayLike, name: str) -> Floats:
    """Any real numeric array-like as float64; text, objects and complex numbers are refused."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise DtypeError(f"{name} must hold real numbers; got dtype {array.dtype}.")
    return np.asarray(array, dtype=np.float64, order="C")


def as_number(value: Any, name: str) -> float:
    """One real number as a Python float: int, float, a NumPy scalar or a 0-d array.

    Text, bool, complex, None and arrays with axes are refused, and so is an integer that has no
    float of its value: nothing is parsed, counted as 0 or 1, or rounded.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        raise ShapeError(f"{name} must be one number; got {value!r}.") from None
    if array.shape != ():
        raise ShapeError(f"{name} must be one number; got shape {array.shape}.")
    if array.dtype.kind not in "iuf":
        if isinstance(value, int) and not isinstance(value, bool):  # beyond 64 bits
            raise DomainError(f"{name} is too large a whole number; got {value!r:.40}.")
        raise DtypeError(f"{name} must be a real number; got {value!r} ({type(value).__name__}).")
    number = float(array)
    if array.dtype.kind != "f" and int(number) != int(array):
        raise DomainError(f"{name} must be exact as a float; got the whole number {value!r}.")
    return number


def require_finite(array: NDArray[Any], name: str) -> None:
    """Refuse NaN and infinity, with a count and the first offending row."""
    if array.dtype.kind != "f":
        return
    finite = np.isfinite(array)
    if not finite.all():
        bad = np.argwhere(~finite)
        raise NonFiniteError(
            f"{name} must be finite; got {len(bad)} NaN or infinite value(s), "
            f"the first at index {tuple(int(i) for i in bad[0])}."
        )


def as_theta(theta: ArrayLike, d: int, name: str = "theta") -> Floats:
    """Working parameters of shape (n, d), finite float64."""
    array = as_floats(theta, name)
    if array.ndim != 2 or array.shape[1] != d:
        hint = " For one parameter vector pass theta[None, :]." if array.shape == (d,) else ""
        raise ShapeError(f"{name} must have shape (n, {d}); got {array.shape}.{hint}")
    require_finite(array, name)
    return array


def as_data(x: ArrayLike, x_shape: tuple[int, ...], name: str = "x") -> NDArray[Any]:
    """Data of shape (n, *x_shape), finite; the dtype is kept (each model knows its own)."""
    array = np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise DtypeError(f"{name} must hold real numbers; got dtype {array.dtype}.")
    if array.ndim != 1 + len(x_shape) or array.shape[1:] != tuple(x_shape):
        inner = ", ".join(str(s) for s in x_shape)
        hint = f" For one data set pass {name}[None]." if array.shape == tuple(x_shape) else ""
        raise ShapeError(f"{name} must have shape (n, {inner}); got {array.shape}.{hint}")
    require_finite(array, name)
    return array


def require_pairs(theta: NDArray[Any], x: NDArray[Any]) -> None:
    """theta and x go together row by row; nothing is broadcast."""
    if len(theta) != len(x):
        raise ShapeError(
            f"theta and x pair up row by row; got {len(theta)} row(s) of theta and {len(x)} of x. "
            "Repeat rows yourself if one is meant for all."
        )


def require_level(level: float, name: str = "level") -> float:
    """A probability strictly between 0 and 1."""
    value = float(level)
    if not 0.0 < value < 1.0:
        raise DomainError(f"{name} must lie strictly between 0 and 1; got {level!r}.")
    return value


def require_count(n: int, name: str, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise DtypeError(f"{name} must be a whole number; got {n!r}.")
    if n < minimum:
        raise DomainError(f"{name} must be at least {minimum}; got {n}.")
    return int(n)


def require_flag(value: bool, name: str) -> bool:
    """True or False, as Python's own."""
    if not isinstance(value, (bool, np.bool_)):
        raise DtypeError(f"{name} must be True or False; got {value!r}.")
    return bool(value)
