"""Files that are either whole or absent: atomic writes, checksums, careful JSON.

A write goes to a temporary file in the same folder, is flushed to disk, and then renamed over the
target; a crash at any moment leaves the old file or the new one, never half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from keepscore.errors import FormatError, StorageError

TEMPORARY_PREFIX = ".tmp-"


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder (and its parents); a typed error names the path when that fails."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Cannot create the folder {folder}: {error.strerror}.") from error
    return folder


def write_atomically(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Call `write(file)` on a temporary file beside `path`, sync it, and rename it to `path`."""
    try:
        handle, temporary = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(f"Cannot write {path}: {error.strerror or error}.") from error
        raise


def write_json(path: Path, content: Any) -> None:
    """JSON, readable, atomic; NaN and infinity are refused because they are not JSON."""
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or a typed error that names the file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise StorageError(f"No such file: {path}.") from error
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{path} is not valid JSON ({error}); it is damaged or foreign."
        ) from None
    if not isinstance(content, dict):
        raise FormatError(f"{path} must hold a JSON object; got {type(content).__name__}.")
    return content


def sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    # The rename itself must reach the disk; some file systems refuse to sync a folder.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
