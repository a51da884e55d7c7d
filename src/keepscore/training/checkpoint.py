"""The whole state of a run on disk, so that kill -9 at any moment costs minutes and no digits.

    checkpoint.json                        position, history, settings; names the array file
    checkpoint-previous.json               the same of the checkpoint before
    checkpoint-<epoch>-<step>.safetensors  weights, optimizer, alpha and its history, best weights

The array file is written first, under a new name; then the JSON of the last checkpoint is copied
aside; then the JSON that points to the new arrays replaces it in one step; then array files that
neither JSON names go. Both JSON files carry a checksum of themselves. If the newest checkpoint is
damaged, the run goes on from the one before, and says so. Orders and draws of the data need no
saving: they are functions of the seed and the epoch.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

from keepscore.differences import differences
from keepscore.errors import FormatError, KeepscoreWarning, MismatchError, StorageError
from keepscore.files import LARGEST_JSON, read_regular, read_sealed, write_atomically, write_sealed
from keepscore.networks import Tree, Weights
from keepscore.networks.safetensors_io import (
    from_tensors,
    read_tensors,
    size_of,
    to_tensors,
    write_tensors,
)
from keepscore.training.config import BEFORE
from keepscore.training.progress_record import Plain, Position, RunBounds, read_position

FORMAT, VERSION = "keepscore checkpoint", 3
NAME, PREVIOUS = "checkpoint.json", "checkpoint-previous.json"
ARRAYS = "checkpoint-*.safetensors"

Settings = dict[str, Any]  # all that a run depends on, as plain data


class Checkpoint(NamedTuple):
    """What a run left behind: state, best weights, position, and the machine it ran on."""

    state: Tree
    best: Weights
    position: Position
    machine: dict[str, Any]


def write_checkpoint(
    folder: Path,
    state: Tree,
    best: Weights,
    position: Position,
    settings: Settings,
    machine: dict[str, Any] | None = None,
) -> None:
    """Make this state the folder's newest checkpoint, and keep the one before."""
    arrays = folder / f"checkpoint-{position.epoch}-{position.step}.safetensors"
    checksum = write_tensors(arrays, {**to_tensors(state, "state"), **to_tensors(best, "best")})
    content = {
        "arrays": arrays.name,
        "sha256": checksum,
        "position": position.to_dict(),
        "settings": settings,
        "machine": machine or {},
    }
    before = _set_aside(folder)
    write_sealed(folder / NAME, FORMAT, VERSION, content)
    for old in folder.glob(ARRAYS):
        if old.name not in (arrays.name, before):
            old.unlink(missing_ok=True)


def read_checkpoint(
    folder: Path, state: Tree, best: Weights, settings: Settings, extent: RunBounds
) -> Checkpoint | None:
    """What an earlier run left here, None if there was none.

    `state` and `best` give the shapes to expect. Other settings than the run had are an error. A
    damaged checkpoint is one too, unless the one before it is good: then that, with a warning.
    """
    if not any((folder / name).exists() for name in (NAME, PREVIOUS)):
        return None
    try:
        return _read(folder, NAME, state, best, settings, extent)
    except (FormatError, StorageError) as error:
        damage = error
    try:
        earlier = _read(folder, PREVIOUS, state, best, settings, extent)
    except (FormatError, StorageError):
        raise damage from None
    _put_back(folder)
    warnings.warn(
        f"The newest checkpoint cannot be used ({str(damage).rstrip('.')}). The run goes on from "
        f"the one before, after epoch {earlier.position.epoch} and {earlier.position.step} steps; "
        "the result is the same.",
        KeepscoreWarning,
        stacklevel=4,
    )
    return earlier


def remove_checkpoints(folder: Path) -> None:
    """Forget the run in this folder; after a crash in between, all of its newest or nothing."""
    for file in (folder / PREVIOUS, folder / NAME, *folder.glob(ARRAYS)):
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"Cannot remove {file}: {error.strerror}.") from error


def _set_aside(folder: Path) -> str | None:
    """Copy the description of the last checkpoint, if it is good; the name of its arrays."""
    try:
        arrays = read_sealed(folder / NAME, FORMAT, VERSION).get("arrays")
    except (FormatError, StorageError):
        return None
    _copy(folder / NAME, folder / PREVIOUS)
    return arrays if isinstance(arrays, str) else None


def _put_back(folder: Path) -> None:
    """Make the checkpoint before the newest one again; the damaged one is not kept."""
    _copy(folder / PREVIOUS, folder / NAME)


def _copy(source: Path, target: Path) -> None:
    text = read_regular(source, LARGEST_JSON)
    write_atomically(target, lambda file: file.write(text))


def _read(
    folder: Path, name: str, state: Tree, best: Weights, settings: Settings, extent: RunBounds
) -> Checkpoint:
    path = folder / name
    content = read_sealed(path, FORMAT, VERSION)
    _require_same(settings, content.get("settings"), folder)
    arrays, machine = content.get("arrays"), content.get("machine")
    if not isinstance(arrays, str) or Path(arrays).name != arrays:
        raise FormatError(f"{path} names no array file in its folder.")
    if not isinstance(machine, dict):
        raise FormatError(f"{path} does not say where the run ran.")
    try:
        position = read_position(content.get("position"), extent)
    except FormatError as error:
        raise FormatError(f"{path} is damaged or foreign. {error}") from None
    size = size_of(state) + size_of(best)
    tensors = read_tensors(folder / arrays, size, content.get("sha256"))
    return Checkpoint(
        from_tensors(state, tensors, "state"),
        from_tensors(best, tensors, "best"),
        position,
        machine,
    )


def _require_same(now: Settings, then: Plain, folder: Path) -> None:
    if differ := list(differences(_completed(then), now, words=("then", "now"))):
        raise MismatchError(
            f"{folder} holds a run with other settings ({'; '.join(differ)}). Use the same "
            "settings to resume it, another path, or resume=False to start it anew."
        )


def same_settings(now: Settings, then: Plain) -> bool:
    """Whether a record of settings, read from a file, is that of a run with these."""
    return not any(differences(_completed(then), now))


def _completed(then: Plain) -> Plain:
    """A record of an earlier version, with what it did where it had no setting for it."""
    if not isinstance(then, dict):
        return then
    config, loss = then.get("config"), then.get("loss")
    if isinstance(config, dict):
        then = {**then, "config": {**BEFORE, **config}}
    if isinstance(loss, dict) and loss.get("name") == "ASA":
        then = {**then, "loss": {"residual": "squared", **loss}}
    return then
