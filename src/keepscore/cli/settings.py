"""What the commands share: settings from a TOML file, models by name, JSON output, run records.

Settings come from flags, or from the table of the command in a TOML file (`--config run.toml`):

    [simulate]
    n = 30_000
    seed = 1

A flag wins over the file. A key that no flag answers to is an error with the nearest match.
"""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import keepscore
from keepscore.errors import DomainError, FormatError, StorageError, unknown_name
from keepscore.files import make_folder, write_json
from keepscore.models.base import Model, build, registered

ALIASES = {"gaussian": "gaussian-field", "student-t": "student-t-field"}


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    if path is None:
        return None
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not valid TOML: {error}.") from None
    command = context.info_name or ""
    table = content.get(command, {})
    if not isinstance(table, dict):
        raise FormatError(f"[{command}] in {path} must be a table of settings.")
    known = {p.name: p for p in context.command.params if p.name not in (None, "config")}
    settings = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            raise unknown_name(f"setting in [{command}] of {path}", key, filter(None, known))
        settings[name] = value
    context.default_map = {**(context.default_map or {}), **settings}
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file with a table named after the command; flags win over it.",
        is_eager=True,
        callback=_read_config,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]
Seed = Annotated[int, typer.Option("--seed", help="Root of all randomness.", min=0)]
ModelSettings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A model setting, e.g. --set shape=[15,15]; may be repeated."),
]


def find_model(name: str, settings: list[str] | None = None) -> Model:
    """A built-in model by name, or `package.module:object` (an instance, or what makes one)."""
    arguments = dict(_setting(text) for text in settings or [])
    if ":" not in name:
        name = ALIASES.get(name, name)
        if name not in registered():
            raise unknown_name(
                "model (or write package.module:object)", name, [*registered(), *ALIASES]
            )
        try:
            return build(name, **arguments)
        except TypeError as error:
            raise DomainError(f"Model {name!r} does not take these settings: {error}.") from None
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, "")  # a module in the current folder, as `python -m` would find it
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        raise DomainError(f"Cannot import {module_name!r} for the model: {error}.") from None
    except AttributeError:
        raise DomainError(f"Module {module_name!r} has no object {attribute!r}.") from None
    finally:
        sys.path.remove("")
    if not isinstance(found, Model) and callable(found):
        found = found(**arguments)
    elif arguments:
        raise DomainError(f"{name} is a finished model; --set needs a class or a function.")
    if not isinstance(found, Model):
        raise DomainError(f"{name} is not a model; it has no simulate, log_prob, score, space, ...")
    return found


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip().isidentifier():
        raise DomainError(f"A setting is written key=value; got {text!r}.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def read_observations(path: Path, x_shape: tuple[int, ...]) -> np.ndarray:
    """Observations (n, *x_shape) from .npy, or from .csv: one observation a row, entries in C
    order; a table of exactly x_shape is one observation."""
    try:
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
        elif path.suffix == ".csv":
            array = np.loadtxt(path, delimiter=",", ndmin=2, comments="#")
        else:
            raise FormatError(f"Observations must be .npy or .csv; got {path}.")
    except OSError as error:
        raise StorageError(f"Cannot read {path}: {error.strerror or error}.") from None
    except ValueError as error:
        raise FormatError(f"{path} is not a readable array: {error}.") from None
    if array.shape == x_shape:
        return array[None]
    size = int(np.prod(x_shape))
    if path.suffix == ".csv" and array.shape[1] == size:
        return array.reshape(len(array), *x_shape)
    return array


def show(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print the result for a script, or for a person."""
    typer.echo(json.dumps(result, allow_nan=False) if as_json else text)


def record_command(folder: Path, command: str, settings: dict[str, Any]) -> None:
    """What is needed to repeat this command, beside its results."""
    plain = {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()}
    content = {"command": command, "settings": plain, "keepscore": keepscore.__version__}
    write_json(make_folder(folder) / f"{command}.command.json", content)
