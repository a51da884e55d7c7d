"""Files that are either whole or absent: atomic writes, checksums, careful JSON.

A write goes to a temporary file in the same folder, is flushed to disk, and then renamed over the
target; a crash at any moment leaves the old file or the new one, never half of one. The name of a
temporary file says which process on which host writes it, so that a later run can tell what a dead
writer left behind from what a live one is writing.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from keepscore.errors import FormatError, StorageError

TEMPORARY_PREFIX = ".tmp-"
# Of a writer on another host we cannot know whether it lives; after a day nothing takes that long.
ABANDONED_SECONDS = 24 * 3600.0

# Temporary files are private; what they become is as readable as any file of this user.
_UMASK = os.umask(0)
os.umask(_UMASK)
MODE = 0o666 & ~_UMASK


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder (and its parents); a typed error names the path when that fails."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Cannot create the folder {folder}: {error.strerror}.") from error
    return folder


def write_atomically(
    path: Path, write: Callable[[BinaryIO], Any], *, exclusive: bool = False
) -> None:
    """Call `write(file)` on a temporary file beside `path`, sync it, and rename it to `path`.

    With `exclusive`, a `path` that exists is left alone and `FileExistsError` is raised: of several
    processes that write at once, exactly one succeeds.
    """
    prefix = f"{TEMPORARY_PREFIX}{socket.gethostname()}-{os.getpid()}-"
    try:
        handle, temporary = tempfile.mkstemp(prefix=prefix, dir=path.parent)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, MODE)
        if exclusive:
            _rename_if_free(temporary, path)
        else:
            os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and not (exclusive and isinstance(error, FileExistsError)):
            raise StorageError(f"Cannot write {path}: {error.strerror or error}.") from error
        raise


def remove_leftovers(folder: Path) -> int:
    """Delete temporary files of writers that no longer run; how many there were."""
    removed = 0
    for file in folder.glob(f"{TEMPORARY_PREFIX}*"):
        try:
            if not _writer_may_live(file):
                file.unlink()
                removed += 1
        except OSError:
            continue  # gone in the meantime, or not ours to delete
    return removed


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


def _rename_if_free(temporary: str, path: Path) -> None:
    try:
        os.link(temporary, path)  # unlike a rename, fails if the name is taken
        os.unlink(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: check and rename is the best there is
        if path.exists():
            raise FileExistsError(f"{path} exists.") from None
        os.replace(temporary, path)


def _writer_may_live(file: Path) -> bool:
    host, _, pid = file.name.removeprefix(TEMPORARY_PREFIX).rpartition("-")[0].rpartition("-")
    if os.name == "posix" and host == socket.gethostname() and pid.isdigit():
        try:
            os.kill(int(pid), 0)  # signal 0 only asks whether the process exists
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True
    return time.time() - file.stat().st_mtime < ABANDONED_SECONDS
