"""Files that are either whole or absent, and that are checked before they are used.

*Writing.* A write goes to a temporary file in the same folder, is flushed to disk, and then renamed
over the target; a crash at any moment leaves the old file or the new one, never half of one. The
writer holds a lock on its temporary file until the rename. The lock is the kernel's and dies with
its process, so a later run can tell what a dead writer left behind from what a live one is writing,
also between containers on one machine.

*Reading.* Only regular files are opened (a pipe or a device would hang), and only up to a size. A
sealed JSON file carries a checksum of its own content: one changed bit anywhere is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from keepscore.errors import DomainError, FormatError, StorageError
from keepscore.locks import lock_file, remove_unless_locked

TEMPORARY_PREFIX = ".tmp-"
# Of a writer on another machine we cannot know whether it lives; after a day nothing takes so long.
ABANDONED_SECONDS = 24 * 3600.0
LARGEST_JSON = 64 << 20
LARGEST_INTEGER = 2**63  # in JSON: beyond it no count, seed or size of ours lies

# Temporary files are private; what they become is as readable as any file of this user.
_UMASK = os.umask(0)
os.umask(_UMASK)
MODE = 0o666 & ~_UMASK


# --- folders -------------------------------------------------------------------------------------


def as_path(path: str | os.PathLike[str]) -> Path:
    """What a caller gave as a path, as one; nothing, or something else, is a typed error."""
    try:
        text = os.fspath(path)
    except TypeError:
        raise DomainError(f"A path must be text or a Path; got {path!r}.") from None
    if not isinstance(text, str) or "\0" in text:
        raise DomainError(f"{path!r} is not a path.")
    if text == "":
        raise DomainError("The path is empty. Name a folder, or '.' for the current one.")
    return Path(text)


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder (and its parents); a typed error names the path when that fails."""
    folder = as_path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Cannot create the folder {folder}: {error.strerror}.") from error
    return folder


def remove_leftovers(folder: Path) -> int:
    """Delete temporary files of writers that no longer run; how many there were."""
    removed = 0
    for file in folder.glob(f"{TEMPORARY_PREFIX}*"):
        try:
            removed += _remove_abandoned(file)
        except OSError:
            continue  # gone in the meantime, or not ours to delete
    return removed


# --- writing -------------------------------------------------------------------------------------


def write_atomically(
    path: Path, write: Callable[[BinaryIO], Any], *, exclusive: bool = False
) -> None:
    """Call `write(file)` on a temporary file beside `path`, sync it, and rename it to `path`.

    With `exclusive`, a `path` that exists is left alone and `FileExistsError` is raised: of several
    processes that write at once, exactly one succeeds.
    """
    try:
        handle, temporary = _locked_temporary(path.parent)
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, MODE)
            # The file stays open, and so locked, until it has its name.
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


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """JSON, readable, atomic; NaN and infinity are refused because they are not JSON."""
    text = json_bytes(content)
    write_atomically(path, lambda file: file.write(text))


def write_sealed(
    path: Path, format: str, version: int, content: dict[str, Any], exclusive: bool = False
) -> None:
    """Write a JSON object with its format, version and a checksum of all of it.

    What `read_sealed` would refuse (no plain data, numbers that JSON cannot hold, too much of it)
    is not written.
    """
    text = sealed_bytes(path, format, version, content)
    write_atomically(path, lambda file: file.write(text), exclusive=exclusive)


def sealed_bytes(path: Path, format: str, version: int, content: dict[str, Any]) -> bytes:
    """The very bytes that `write_sealed` writes."""
    try:
        text = json_bytes(_sealed(format, version, content))
        _unsealed(text, path, format, version)
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).rstrip(".")
        raise DomainError(
            f"Cannot write {path}: its content is not plain data that can be read back ({reason})."
        ) from None
    if len(text) > LARGEST_JSON:
        raise DomainError(
            f"Cannot write {path}: its content takes {len(text)} bytes, and at most {LARGEST_JSON} "
            "are read back."
        )
    return text


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """The very bytes of a JSON file of ours."""
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


# --- reading -------------------------------------------------------------------------------------


@contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """A regular file, open for reading in binary; anything else is a typed error, never a hang."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise StorageError(f"No such file: {path}.") from None
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:  # a NUL byte in the name
        raise StorageError(f"Cannot read {str(path)!r}: {error}.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FormatError(f"{path} is not a regular file.")
    with os.fdopen(handle, "rb") as file:
        yield file


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise FormatError(f"{path} has {size} bytes; at most {most} are expected there.")
        try:
            return file.read(most + 1)[:most]
        except OSError as error:
            raise StorageError(f"Cannot read {path}: {error.strerror}.") from error


def read_json(path: Path, most: int = LARGEST_JSON) -> dict[str, Any]:
    """A JSON object from a file, or a typed error that names the file."""
    return _object(read_regular(path, most), path)


def read_sealed(path: Path, format: str, version: int, most: int = LARGEST_JSON) -> dict[str, Any]:
    """Read what `write_sealed` wrote; one changed bit anywhere is an error."""
    return _unsealed(read_regular(path, most), path, format, version)


def as_plain(path: Path, format: str, version: int, content: dict[str, Any]) -> dict[str, Any]:
    """What `read_sealed` will give of this content; refuses what `write_sealed` would refuse."""
    return _unsealed(sealed_bytes(path, format, version, content), path, format, version)


def sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with open_regular(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise StorageError(f"Cannot read {path}: {error.strerror}.") from error


# --- parts ---------------------------------------------------------------------------------------


def _unsealed(text: bytes, path: Path, format: str, version: int) -> dict[str, Any]:
    content = _object(text, path)
    if content.get("format") != format:
        raise FormatError(f"{path} is not a {format} file; it is damaged or foreign.")
    stated = content.get("version")
    if stated != version or type(stated) is not int:
        raise FormatError(
            f"{path} has format version {stated!r}; this keepscore reads version {version}. "
            "Use the keepscore that wrote it, or make the file anew."
        )
    inner = {k: v for k, v in content.items() if k not in ("format", "version", "checksum")}
    try:
        same = json_bytes(_sealed(format, version, inner)) == text
    except (ValueError, RecursionError):  # text that UTF-8 cannot hold, or nested too deeply
        same = False
    if not same:
        raise FormatError(f"{path} is damaged: its content does not match its checksum.")
    return inner


def _sealed(format: str, version: int, content: dict[str, Any]) -> dict[str, Any]:
    body = {**content, "format": format, "version": version}
    return {**body, "checksum": hashlib.sha256(json_bytes(body)).hexdigest()}


def _object(text: bytes, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(text, parse_int=_whole_number, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = str(error).rstrip(".")
        raise FormatError(
            f"{path} is not valid JSON ({reason}); it is damaged or foreign."
        ) from None
    if not isinstance(content, dict):
        raise FormatError(f"{path} must hold a JSON object; got {type(content).__name__}.")
    return content


def _whole_number(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > LARGEST_INTEGER:
        raise ValueError(f"the whole number {digits[:20]}... is too large")
    return int(digits)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


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


def _locked_temporary(folder: Path) -> tuple[int, str]:
    """A new temporary file, open and locked: its descriptor and its path."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f"{TEMPORARY_PREFIX}{_machine()}-", dir=folder)
        lock_file(handle)
        # Between the two calls another process may have taken the file for a leftover.
        if os.fstat(handle).st_nlink > 0:
            return handle, name
        os.close(handle)


def _machine() -> str:
    """The running kernel: one name for all containers on a machine, another for each machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _remove_abandoned(file: Path) -> bool:
    """Delete a temporary file if its writer no longer runs; whether it was."""
    if file.name.startswith(f"{TEMPORARY_PREFIX}{_machine()}-"):
        removed = remove_unless_locked(file)
        if removed is not None:
            return removed
    if time.time() - file.stat().st_mtime < ABANDONED_SECONDS:
        return False
    file.unlink()
    return True
