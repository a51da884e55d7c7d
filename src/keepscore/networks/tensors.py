"""Trees of arrays as safetensors files: numbers and names, nothing that runs.

A leaf is named by its path in the tree. Reading checks before it allocates: the header must be
small and lie inside the file, and every array must have the name, shape and dtype expected.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from keepscore.errors import FormatError, StorageError
from keepscore.files import write_atomically

LARGEST_HEADER = 8 << 20
Tensors = dict[str, NDArray[Any]]


def to_tensors(tree: Any, prefix: str = "") -> Tensors:
    """Arrays of a tree by name, on the host."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, _is_array))
    return {
        prefix + jax.tree_util.keystr(path): np.ascontiguousarray(leaf).reshape(np.shape(leaf))
        for path, leaf in leaves
    }


def from_tensors(like: Any, tensors: Mapping[str, NDArray[Any]], prefix: str = "") -> Any:
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


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to one file, whole or not at all."""
    content = safetensors.numpy.save(dict(tensors))
    write_atomically(path, lambda file: file.write(content))


def size_of(tree: Any) -> int:
    """Bytes of all arrays of a tree."""
    leaves = jax.tree.leaves(eqx.filter(tree, _is_array))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def read_tensors(path: Path, most: int | None = None) -> Tensors:
    """All arrays of a file, or a typed error that names it; at most so many bytes of them."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
    except FileNotFoundError:
        raise StorageError(f"No such file: {path}.") from None
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    header = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= header <= min(LARGEST_HEADER, size - 8):
        raise FormatError(f"{path} is not a safetensors file, or it is cut short.")
    if most is not None and size - 8 - header > most:
        raise FormatError(f"{path} is larger than the network it should hold; it is foreign.")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(f"{path} is damaged or foreign: {error}.") from None


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct))
