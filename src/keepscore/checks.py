"""Checks at the public boundary: arrays of a known shape and kind come out, or a typed error."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.errors import (
    DomainError,
    DtypeError,
    MissingError,
    NonFiniteError,
    ShapeError,
    unknown_name,
)

Floats = NDArray[np.float64]
LARGEST_COUNT = 2**63  # of seeds and counts: beyond it no array can go


def as_real(values: ArrayLike, name: str) -> NDArray[Any]:
    """Any array-like of real numbers as an array of its own dtype.

    Text, objects, complex numbers, ragged lists and arrays with masked entries are refused.
    """
    if np.ma.is_masked(values):
        raise DtypeError(f"{name} must hold real numbers; got an array with masked entries.")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:  # rows of different lengths, or no array at all
        raise ShapeError(f"{name} must be an array of numbers: {error}.") from None
    if array.dtype.kind not in "biuf":
        raise DtypeError(f"{name} must hold real numbers; got dtype {array.dtype}.")
    return array


def as_declared(
    values: ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any], source: str
) -> NDArray[Any]:
    """A copy of what a function returned, in its declared shape and dtype.

    Rounding to a shorter float is allowed; any other change of a value (overflow, a fraction or
    NaN in a whole number, a whole number too long for a float) is an error that shows the value.
    """
    array = as_real(values, f"What {source} returns")
    if array.shape != shape:
        raise ShapeError(f"{source} must return shape {shape}; got {array.shape}.")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = np.array(array, dtype=dtype, order="C")
        changed = _changed(array, cast)
    if changed.any():
        place = tuple(int(i) for i in np.argwhere(changed)[0])
        raise DtypeError(
            f"{source} returned {array.dtype} values that its declared {dtype} cannot hold: "
            f"{int(changed.sum())} in all, the first {array[place]} at index {place}. Return "
            f"values that {dtype} holds, or declare another dtype."
        )
    return cast


def _changed(array: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values the cast has changed."""
    same = np.zeros(array.shape, bool)
    if array.dtype == cast.dtype or array.dtype.kind == "b":
        return same
    if array.dtype.kind == "f" and cast.dtype.kind == "f":
        return np.isfinite(array) & ~np.isfinite(cast)
    if cast.dtype.kind == "b":
        return (array != 0) & (array != 1)
    if array.dtype.kind == "f":
        return ~(_holds(cast.dtype, array) & (np.floor(array) == array))
    if cast.dtype.kind == "f":
        back = np.where(_holds(array.dtype, cast), cast, 0).astype(array.dtype)
        return back != array
    return (cast.astype(array.dtype) != array) | ((cast < 0) != (array < 0))


def _holds(whole: np.dtype[Any], floats: NDArray[Any]) -> NDArray[np.bool_]:
    """Which floats lie within the range of a whole-number dtype (NaN does not)."""
    limits = np.iinfo(whole)
    # Both ends are powers of two (or zero), which floats hold exactly; the upper one is excluded.
    wide = np.asarray(floats, np.promote_types(floats.dtype, np.float64))
    return (wide >= float(limits.min)) & (wide < float(limits.max + 1))


def as_floats(values: ArrayLike, name: str) -> Floats:
    """Any real numeric array-like as float64; text, objects and complex numbers are refused."""
    array = as_real(values, name)
    return np.asarray(array, dtype=np.float64, order="C")


def as_number(value: object, name: str) -> float:
    """One real number as a Python float: int, float, a NumPy scalar or a 0-d array.

    Text, bool, complex, None and arrays with axes are refused, and so is an integer that has no
    float of its value: nothing is parsed, counted as 0 or 1, or rounded.
    """
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # a ragged list
        raise ShapeError(f"{name} must be one number; got {value!r:.80}.") from None
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


def require_choice(value: object, what: str, known: Iterable[str]) -> str:
    """One of the known names; anything else is an error with the nearest match."""
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise unknown_name(what, value, names)
    return value


def require_parts(value: object, what: str, *parts: str) -> None:
    """An object with these attributes: a model, a surrogate, whatever has them. Not a class."""
    missing = [part for part in parts if not hasattr(value, part)]
    if missing or isinstance(value, type):
        raise DtypeError(
            f"{what} must have {', '.join(parts)}, as a model has; got {type(value).__name__}."
        )


def require_rng(rng: object, name: str = "rng") -> np.random.Generator:
    """A NumPy random generator; a seed alone is not one."""
    if not isinstance(rng, np.random.Generator):
        raise DtypeError(
            f"{name} must be a numpy.random.Generator, such as np.random.default_rng(0); "
            f"got {type(rng).__name__}."
        )
    return rng


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


def as_data(
    x: ArrayLike, x_shape: tuple[int, ...], name: str = "x", missing: bool = False
) -> NDArray[Any]:
    """Data of shape (n, *x_shape), finite; the dtype is kept (each model knows its own), in C order
    and in this machine's byte order, so that the same numbers give the same result.

    With `missing`, NaN is accepted too: it means "not observed".
    """
    array = native(np.asarray(as_real(x, name), order="C"))
    if array.ndim != 1 + len(x_shape) or array.shape[1:] != tuple(x_shape):
        inner = ", ".join(str(s) for s in x_shape)
        hint = f" For one data set pass {name}[None]." if array.shape == tuple(x_shape) else ""
        raise ShapeError(f"{name} must have shape (n, {inner}); got {array.shape}.{hint}")
    require_values(array, name, missing)
    return array


def require_values(array: NDArray[Any], name: str, missing: bool) -> None:
    """Refuse infinity, and NaN too unless `missing` says that it means "not observed"."""
    if array.dtype.kind != "f":
        return
    nan = np.isnan(array)
    if missing:
        require_finite(np.where(nan, 0.0, array) if nan.any() else array, name)
    elif nan.any():
        first = tuple(int(i) for i in np.argwhere(nan)[0])
        raise NonFiniteError(
            f"{name} must be finite; got {int(nan.sum())} NaN, the first at index {first}. If NaN "
            "means 'not observed', tell the model so: ks.models.with_missing(model, mask=...)."
        )
    else:
        require_finite(array, name)


def native(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in this machine's byte order; files may hold the other one."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def require_pairs(theta: NDArray[Any], x: NDArray[Any]) -> None:
    """theta and x go together row by row; nothing is broadcast."""
    if len(theta) != len(x):
        raise ShapeError(
            f"theta and x pair up row by row; got {len(theta)} row(s) of theta and {len(x)} of x. "
            "Repeat rows yourself if one is meant for all."
        )


def require_name(name: object, what: str) -> str:
    """A name that can be printed: text, not empty, on one line, without control characters."""
    if not isinstance(name, str) or not name:
        raise DomainError(f"{what} must be text, and not empty; got {name!r}.")
    if not name.isprintable():
        raise DomainError(f"{what} must not hold control characters; got {name!r}.")
    return name


def require_level(level: float, name: str = "level") -> float:
    """A probability strictly between 0 and 1."""
    value = as_number(level, name)
    if not 0.0 < value < 1.0:
        raise DomainError(f"{name} must lie strictly between 0 and 1; got {level!r}.")
    return value


def as_counts(counts: int | Sequence[int], length: int, name: str, minimum: int = 1) -> list[int]:
    """One whole number for all of `length` axes, or one per axis, as Python ints."""
    array = isinstance(counts, np.ndarray)
    if (
        isinstance(counts, (str, bytes))
        or not hasattr(counts, "__len__")
        or (array and np.shape(counts) == ())
    ):
        return [require_count(counts, name, minimum)] * length  # type: ignore[arg-type]
    try:
        given = list(counts)  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"{name}: one count per parameter ({length}); got {counts!r}.") from None
    each = [require_count(count, name, minimum) for count in given]
    if len(each) != length:
        raise ShapeError(f"{name}: one count per parameter ({length}); got {each}.")
    return each


def require_count(n: int, name: str, minimum: int = 1) -> int:
    """A whole number of at least `minimum`: an int, a NumPy integer or a 0-d array of one."""
    if isinstance(n, np.ndarray) and n.shape == ():
        n = n[()]
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise DtypeError(f"{name} must be a whole number; got {n!r}.")
    if n < minimum:
        raise DomainError(f"{name} must be at least {minimum}; got {n}.")
    if n > LARGEST_COUNT:
        raise DomainError(f"{name} must be at most {LARGEST_COUNT}; got {str(n)[:40]}.")
    return int(n)


def require_flag(value: bool, name: str) -> bool:
    """True or False, as Python's own."""
    if not isinstance(value, (bool, np.bool_)):
        raise DtypeError(f"{name} must be True or False; got {value!r}.")
    return bool(value)


def require_package(module: str, what: str, extra: str) -> ModuleType:
    """A module of a package that comes with one of our extras; an error names the extra.

    An import that fails for another reason, inside that package, is shown as it is.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingError(
            f"{what} needs {package}, which is not installed: pip install 'keepscore[{extra}]'."
        ) from None
