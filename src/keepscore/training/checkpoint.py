"""The whole state of a run on disk, so that kill -9 at any moment costs minutes and no digits.

    checkpoint.json                        position, history, settings; names the array file
    checkpoint-<epoch>-<step>.safetensors  weights, optimizer, alpha and its history, best weights

The array file is written first, under a new name; then the JSON that points to it replaces the old
one in one step; then the old array file goes. Orders and draws of the data need no saving: they are
functions of the seed and the epoch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from keepscore.errors import FormatError, MismatchError
from keepscore.files import read_json, sha256, write_json
from keepscore.networks.tensors import from_tensors, read_tensors, to_tensors, write_tensors

FORMAT, VERSION = "keepscore checkpoint", 1
NAME = "checkpoint.json"


@dataclass
class Position:
    """Where a run is: epochs done, steps done in the current one, and what they summed to."""

    epoch: int = 0
    step: int = 0
    batches: int = 0
    bce_sum: list[float] = field(default_factory=list)  # by member
    score_sum: list[list[float]] = field(default_factory=list)  # by member and parameter
    epoch_seconds: float = 0.0
    best_bce: list[float] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False


def write_checkpoint(
    folder: Path, state: Any, best: Any, position: Position, settings: dict[str, Any]
) -> None:
    """Replace the folder's checkpoint by this state."""
    arrays = folder / f"checkpoint-{position.epoch}-{position.step}.safetensors"
    write_tensors(arrays, {**to_tensors(state, "state"), **to_tensors(best, "best")})
    content = {
        "format": FORMAT,
        "version": VERSION,
        "arrays": arrays.name,
        "sha256": sha256(arrays),
        "position": asdict(position),
        "settings": settings,
    }
    write_json(folder / NAME, content)
    for old in folder.glob("checkpoint-*.safetensors"):
        if old.name != arrays.name:
            old.unlink(missing_ok=True)


def read_checkpoint(
    folder: Path, state: Any, best: Any, settings: dict[str, Any]
) -> tuple[Any, Any, Position] | None:
    """(state, best weights, position) of an earlier run here, None if there is none.

    `state` and `best` give the shapes to expect. Other settings than the run had are an error.
    """
    path = folder / NAME
    if not path.exists():
        return None
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise FormatError(f"{path} is not a checkpoint of keepscore.")
    if content.get("version") != VERSION:
        raise FormatError(
            f"{path} has format version {content.get('version')!r}; this keepscore reads {VERSION}."
        )
    _require_same(settings, content.get("settings"), folder)
    name = content.get("arrays")
    if not isinstance(name, str) or Path(name).name != name:
        raise FormatError(f"{path} names no array file in its folder.")
    arrays = folder / name
    tensors = read_tensors(arrays)
    if sha256(arrays) != content.get("sha256"):
        raise FormatError(f"{arrays} does not match its checksum; it is damaged.")
    try:
        position = Position(**content["position"])
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path} has no valid position: {error}.") from None
    return from_tensors(state, tensors, "state"), from_tensors(best, tensors, "best"), position


def _require_same(now: dict[str, Any], then: Any, folder: Path) -> None:
    here, there = _flat(now), _flat(then)
    differ = sorted(k for k in here.keys() | there.keys() if here.get(k) != there.get(k))
    if differ:
        listed = "; ".join(
            f"{k}: {there.get(k, 'nothing')!r} then, {here.get(k, 'nothing')!r} now" for k in differ
        )
        raise MismatchError(
            f"{folder} holds a run with other settings ({listed}). Use the same settings to resume "
            "it, another path, or resume=False to start it anew."
        )


def _flat(content: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(content, dict):
        return {prefix: content}
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat.update(_flat(value, f"{prefix}.{key}" if prefix else str(key)))
    return flat
