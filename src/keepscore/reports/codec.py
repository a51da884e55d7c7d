"""Frozen dataclasses to plain JSON data and back, by their type hints.

Covered: numbers, text, booleans, tuples of one kind, mappings by text, optional values, float
arrays, literals, and records of these. NaN and infinity, which JSON lacks, become null; null comes
back as NaN inside an array. Anything unexpected is a `FormatError` that names the place.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from keepscore.errors import FormatError, KeepscoreError


def encode(value: object) -> Any:
    """Plain data: dict, list, str, int, float, bool, None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return encode(value.tolist())
    if isinstance(value, (list, tuple)):
        return [encode(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)  # paths, dates and the like, which settings may hold


def decode(kind: Any, value: Any, place: str) -> Any:
    """`value` as `kind`, checked; `place` says where in the report it stands."""
    origin, arguments = _origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, value, place)
    if origin is typing.Literal:
        return _expect(value in arguments, value, place, f"one of {arguments}")
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        # A list can only be the tuple or array among the alternatives, all else only the other.
        listed = isinstance(value, (list, tuple))
        kinds = [a for a in arguments if a is not type(None)]
        fitting = [a for a in kinds if (_origin(a) in (tuple, np.ndarray)) == listed]
        return decode((fitting or kinds)[0], value, place)
    if origin is tuple:
        _expect(isinstance(value, (list, tuple)), value, place, "a list")
        return tuple(decode(arguments[0], v, f"{place}[{i}]") for i, v in enumerate(value))
    if origin is np.ndarray:
        return _array(value, place)
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(value, Mapping), value, place, "an object")
        return {str(k): decode(arguments[1], v, f"{place}.{k}") for k, v in value.items()}
    return _scalar(kind, value, place)


def _origin(kind: Any) -> Any:
    """What a hint is made from: `tuple` of tuple[int, ...]. `NDArray` is `np.ndarray` up to NumPy
    2.4, and from 2.5 on an alias that holds it."""
    origin = typing.get_origin(kind)
    return typing.get_origin(getattr(origin, "__value__", None)) or origin


def _record(kind: type, value: Any, place: str) -> Any:
    _expect(isinstance(value, Mapping), value, place, "an object")
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    for name in value:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise FormatError(f"{place} has an unknown entry {name!r}.{hint}")
    fields = {name: decode(hints[name], value[name], f"{place}.{name}") for name in value}
    try:
        return kind(**fields)
    except TypeError as error:
        raise FormatError(f"{place} lacks something: {error}.") from None
    except FormatError:
        raise
    except KeepscoreError as error:
        raise FormatError(f"{place} is not valid: {error}") from None


def _array(value: object, place: str) -> Any:
    _expect(isinstance(value, (list, tuple)), value, place, "a list of numbers")
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise FormatError(f"{place} must be a rectangular list of numbers.") from None


def _scalar(kind: Any, value: Any, place: str) -> Any:
    if kind is float:
        if value is None:
            return math.nan
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        number = number and abs(value) <= sys.float_info.max  # a whole number may be longer
        return float(_expect(number, value, place, "a number"))
    if kind is int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return _expect(whole, value, place, "a whole number")
    return _expect(isinstance(value, kind), value, place, kind.__name__)


T = TypeVar("T")


def _expect(right: bool, value: T, place: str, expected: str) -> T:
    if not right:
        raise FormatError(f"{place} must be {expected}; got {str(value)[:80]!r}.")
    return value
