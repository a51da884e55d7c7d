"""Arrays in `.npy` files: the header must describe exactly the bytes that follow it.

    magic, version, header {descr, fortran_order, shape}, then prod(shape) x itemsize bytes

A header of a few bytes may claim any shape, and NumPy allocates what it claims before it reads. So
the claim is compared with the size of the file first. Nothing is unpickled.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from keepscore.errors import FormatError, StorageError
from keepscore.files import open_regular

LARGEST_HEADER = 10_000


def read_npy(path: Path) -> NDArray[Any]:
    """The array of a `.npy` file, in memory, whole; or a typed error that names the file."""
    with open_regular(path) as file:
        shape, fortran, dtype = _header(file, path)
        count = math.prod(shape)
        try:
            data = file.read(count * dtype.itemsize)
        except OSError as error:
            raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    if len(data) != count * dtype.itemsize:
        raise FormatError(f"{path} became shorter while it was read.")
    flat = np.frombuffer(data, dtype)
    if fortran:
        return flat.reshape(shape[::-1]).transpose()
    return flat.reshape(shape)


def map_npy(path: Path) -> NDArray[Any]:
    """The same, memory-mapped and read-only."""
    with open_regular(path) as file:
        shape, fortran, dtype = _header(file, path)
        if math.prod(shape) == 0:  # an empty file region cannot be mapped
            return np.zeros(shape, dtype)
        order = "F" if fortran else "C"
        return np.memmap(file, dtype, "r", file.tell(), shape, order)  # type: ignore[call-overload]


def _header(file: BinaryIO, path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and dtype; the file stands at its data, which has the size they need."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(file)
        if version not in readers:
            raise ValueError(f"format version {version} is not known")
        found = readers[version](file, max_header_size=LARGEST_HEADER)
    except Exception as error:  # a damaged header can fail in any way
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{path} cannot be read as an array: {reason}.") from None
    shape, fortran, dtype = found
    if dtype.hasobject or dtype.kind not in "biuf":
        raise FormatError(f"{path} must hold real numbers; it holds {dtype}.")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise FormatError(f"{path} has no valid shape: {shape}.")
    size = os.fstat(file.fileno()).st_size - file.tell()
    if math.prod(shape) * dtype.itemsize != size:
        raise FormatError(
            f"{path} claims {dtype} of shape {shape}, which needs "
            f"{math.prod(shape) * dtype.itemsize} bytes; it holds {size}."
        )
    return tuple(shape), bool(fortran), dtype
