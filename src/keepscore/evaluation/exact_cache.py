"""Exact results on disk: they depend on model, seed and sizes alone, never on a network.

One .npz file of plain numeric arrays and the text of what they were computed from. A file that
belongs to something else is refused, not overwritten: two settings must not share a folder.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepscore.differences import differences
from keepscore.errors import FormatError, MismatchError
from keepscore.files import make_folder, write_atomically
from keepscore.npy import read_npz
from keepscore.processes import one_thread

Arrays = dict[str, NDArray[Any]]
IDENTITY = "identity"


def cached(path: Path | None, identity: Mapping[str, Any], compute: Callable[[], Arrays]) -> Arrays:
    """The arrays stored at `path` for this identity; computed, and stored, if there are none."""
    if path is None:
        with one_thread():
            return compute()
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    if path.exists():
        stored, arrays = _read(path)
        if stored != text:
            raise MismatchError(
                f"{path} was computed for {_difference(stored, text)}. "
                "Use another folder, or delete the file."
            )
        return arrays
    with one_thread():  # many small factorisations: threads cost more than they bring
        arrays = compute()
    make_folder(path.parent)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{IDENTITY: np.array(text)}, **arrays)  # type: ignore[arg-type]
    write_atomically(path, lambda file: file.write(buffer.getbuffer()))
    return arrays


def _read(path: Path) -> tuple[str, Arrays]:
    try:
        arrays = read_npz(path)
        text = arrays.pop(IDENTITY)
        if text.dtype.kind != "U" or text.shape != ():
            raise FormatError("it does not say what it was computed from")
    except (FormatError, KeyError) as error:
        raise FormatError(
            f"{path} is damaged or foreign ({error}); delete it to compute it again."
        ) from None
    if any(array.dtype.kind == "U" for array in arrays.values()):
        raise FormatError(f"{path} must hold numbers; delete it to compute it again.")
    return str(text), arrays


def _difference(stored: str, wanted: str) -> str:
    try:
        return "other settings: " + "; ".join(differences(json.loads(stored), json.loads(wanted)))
    except (ValueError, RecursionError):
        return "something else"
