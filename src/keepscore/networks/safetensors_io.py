"""Trees of arrays as safetensors files: numbers and names, nothing that runs.

A leaf is named by its path in the tree. Reading checks before it allocates: the header must be
small and lie inside the file, the file must have exactly the bytes that the expected arrays take,
and every array must have the name, shape and dtype expected.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import PyTree
from numpy.typing import DTypeLike, NDArray

from keepscore.errors import FormatError, StorageError, TooLargeError
from keepscore.files import open_regular, write_atomically

LARGEST_HEADER = 8 << 20
Tensors = dict[str, NDArray[Any]]


def to_tensors(tree: PyTree, prefix: str = "") -> Tensors:
    """Arrays of a tree by name, on the host."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, _is_array))
    return {
        prefix + jax.tree_util.keystr(path): np.ascontiguousarray(leaf).reshape(np.shape(leaf))
        for path, leaf in leaves
    }


def from_tensors(like: PyTree, tensors: Mapping[str, NDArray[Any]], prefix: str = "") -> PyTree:
    """A tree shaped as `like`, filled; NumPy leaves stay NumPy, all others become JAX arrays."""
    arrays, others = eqx.partition(like, _is_array)
    leaves, structure = jax.tree_util.tree_flatten_with_path(arrays)
    filled = []
    for path, leaf in leaves:
        name = prefix + jax.tree_util.keystr(path)
        if name not in tensors:
            raise FormatError(f"The array {name!r} is missing: another network, or damage.")
        value = tensors[name]
        if value.shape != tuple(leaf.shape) or value.dtype != leaf.dtype:
            raise FormatError(
                f"The array {name!r} should be {leaf.dtype}{tuple(leaf.shape)}; "
                f"got {value.dtype}{value.shape}."
            )
        filled.append(value if isinstance(leaf, np.ndarray) else jnp.asarray(value))
    extra = {n for n in tensors if n.startswith(prefix)} - {
        prefix + jax.tree_util.keystr(path) for path, _ in leaves
    }
    if extra:
        raise FormatError(f"Unexpected array {min(extra)!r}: another network, or damage.")
    return eqx.combine(jax.tree_util.tree_unflatten(structure, filled), others)


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> str:
    """Write arrays to one file, whole or not at all; the SHA-256 of its bytes."""
    content = safetensors.numpy.save(dict(tensors))
    write_atomically(path, lambda file: file.write(content))
    return hashlib.sha256(content).hexdigest()


def digest_of(tensors: Mapping[str, NDArray[Any]]) -> str:
    """One SHA-256 of names, kinds, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def size_of(tree: PyTree) -> int:
    """Bytes of all arrays of a tree."""
    leaves = jax.tree.leaves(eqx.filter(tree, _is_array))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def hollow(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """A NumPy array of this shape that takes no memory: what a file is to fill in."""
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))


def stored_bytes(path: Path) -> int:
    """Bytes of all arrays of a file together, by its real size; nothing of them is read."""
    with open_regular(path) as file:
        return _size(file, path)[1]


def read_tensors(path: Path, size: int, checksum: object) -> Tensors:
    """All arrays of a file, which must be of `size` bytes together, and the file of this SHA-256.

    Or a typed error that names it; before the size is known to be right, nothing is allocated.
    """
    with open_regular(path) as file:
        header, found = _size(file, path)
        if found != size:
            raise FormatError(
                f"{path} holds arrays of {found} bytes; the network needs {size}. It is damaged or "
                "foreign."
            )
        try:
            file.seek(0)
            content = file.read(8 + header + size)
        except OSError as error:
            raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
        except MemoryError:
            raise TooLargeError(f"{path} does not fit in memory ({size} bytes).") from None
    if hashlib.sha256(content).hexdigest() != checksum:
        raise FormatError(f"{path} does not match its checksum; it is damaged.")
    try:
        return safetensors.numpy.load(content)
    except Exception as error:  # a header that lies can fail in any way
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{path} is damaged or foreign: {reason}.") from None


def _size(file: BinaryIO, path: Path) -> tuple[int, int]:
    """Bytes of the header and of the arrays behind it."""
    size = os.fstat(file.fileno()).st_size
    try:
        start = file.read(8)
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    header = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= header <= min(LARGEST_HEADER, size - 8):
        raise FormatError(f"{path} is not a safetensors file, or it is cut short.")
    return header, size - 8 - header


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct))
