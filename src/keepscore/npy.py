"""Arrays in `.npy` files: the header must describe exactly the bytes that follow it.

    magic, version, header {descr, fortran_order, shape}, then prod(shape) x itemsize bytes

A header of a few bytes may claim any shape, and NumPy allocates what it claims before it reads. So
the claim is compared with the size of the file first. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from keepscore.errors import FormatError, StorageError
from keepscore.files import open_regular

LARGEST_HEADER = 10_000


@dataclass(frozen=True)
class OpenArray:
    """A `.npy` file that is open: its header has been read and compared with its size."""

    path: Path
    file: BufferedReader
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int  # of the data, in bytes

    def read(self, sha256: str | None = None) -> NDArray[Any]:
        """The whole array; with a checksum of the whole file, only if it has that one."""
        size = self.start + math.prod(self.shape) * self.dtype.itemsize
        data = self._bytes(0, size)
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise FormatError(f"{self.path} does not match its checksum.")
        flat = np.frombuffer(data, self.dtype, offset=self.start)
        if self.fortran:
            return flat.reshape(self.shape[::-1]).transpose()
        return flat.reshape(self.shape)

    def rows(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows, in ascending order; neighbours are read together."""
        if self.fortran or not self.shape:
            return self.read()[index]
        out = np.empty((len(index), *self.shape[1:]), self.dtype)
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        ends = np.flatnonzero(np.diff(index) != 1) + 1
        for first, last in zip([0, *ends], [*ends, len(index)], strict=True):
            data = self._bytes(self.start + int(index[first]) * row, (last - first) * row)
            out[first:last] = np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])
        return out

    def sha256(self) -> str:
        """Checksum of the whole file."""
        self.file.seek(0)
        try:
            return hashlib.file_digest(self.file, "sha256").hexdigest()
        except OSError as error:
            raise StorageError(f"Cannot read {self.path}: {error.strerror}.") from error

    def _bytes(self, start: int, count: int) -> bytes:
        try:
            self.file.seek(start)
            data = self.file.read(count)
        except OSError as error:
            raise StorageError(f"Cannot read {self.path}: {error.strerror}.") from error
        if len(data) != count:
            raise FormatError(f"{self.path} became shorter while it was read.")
        return data


def as_npy(file: BufferedReader, path: Path) -> OpenArray:
    """An open file as an array, to read all or some of it."""
    shape, fortran, dtype = _header(file, path)
    return OpenArray(path, file, shape, dtype, fortran, file.tell())


def read_npy(path: Path) -> NDArray[Any]:
    """The array of a `.npy` file, in memory, whole; or a typed error that names the file."""
    with open_regular(path) as file:
        return as_npy(file, path).read()


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
