"""What the commands share: settings from a TOML file, models by name, JSON output, run records.

Settings come from flags, or from the table of the command in a TOML file (`--config run.toml`):

    [simulate]
    n = 30_000
    seed = 1
    set = ["times=[0,1,2]"]

Keys are the long names of flags. A flag wins over the file. A key that no flag answers to, or a
table that no command answers to, is an error with the nearest match.
"""

from __future__ import annotations

import functools
import inspect
import io
import json
import re
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import keepscore
from keepscore.cli.own_model import HELP, load_object, told
from keepscore.cli.shell_words import shell_words
from keepscore.errors import (
    DomainError,
    FormatError,
    KeepscoreError,
    unknown_name,
)
from keepscore.files import make_folder, read_regular, write_json
from keepscore.models.base import Model, build, registered
from keepscore.npy import read_npy

LARGEST_CSV = 256 << 20
LARGEST_CONFIG = 1 << 20
SHORT_FLOAT = re.compile(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?")  # .9 and 1.: not in TOML
ALIASES = {"gaussian": "gaussian-field", "student-t": "student-t-field"}


class Voice:
    """What a command says on the way: lines on standard error, none with --quiet."""

    quiet = False


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    if path is None:
        return None
    try:
        content = tomllib.loads(read_regular(path, LARGEST_CONFIG).decode("utf-8"))
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or nested without end
        raise FormatError(f"{path} is not valid TOML: {str(error).rstrip('.')}.") from None
    command = context.info_name or ""
    commands = getattr(context.parent and context.parent.command, "commands", {command: None})
    for name in content:
        if name not in commands:
            raise unknown_name(f"table in {path}", name, commands)
    table = content.get(command, {})
    if not isinstance(table, dict):
        raise FormatError(f"[{command}] in {path} must be a table of settings.")
    known = _flags(context)
    settings = {}
    for key, value in table.items():
        flag = key.replace("_", "-")
        if flag not in known:
            raise unknown_name(f"setting in [{command}] of {path}", key, known)
        settings[known[flag]] = value
    context.default_map = {**(context.default_map or {}), **settings}
    return path


def _flags(context: typer.Context) -> dict[str, str]:
    """Long names of a command's flags and arguments, as a file may write them, to its own."""
    found = {}
    for parameter in context.command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if parameter.name and (option.startswith("--") or not option.startswith("-")):
                found[option.removeprefix("--").replace("_", "-")] = parameter.name
    return {flag: name for flag, name in found.items() if name != "config" and flag != "help"}


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


def _known_models(incomplete: str) -> list[str]:
    """For the shell's completion: built-in models, and files that may hold one."""
    names = [*registered(), *ALIASES]
    found = [name for name in names if name.startswith(incomplete)]
    return found + [f"{p}:model" for p in sorted(Path().glob(f"{incomplete}*.py"))]


def _quieten(wanted: bool) -> bool:
    Voice.quiet = Voice.quiet or wanted
    return wanted


Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Say nothing on the way.", callback=_quieten)
]


def with_common_options(function: Callable[..., None], config: bool = True) -> Callable[..., None]:
    """The command with --quiet and, where it has settings for a file, --config. Both act by
    themselves when they are read, so the command never sees them."""

    @functools.wraps(function)
    def command(*arguments: Any, **given: Any) -> None:
        function(*arguments, **{k: v for k, v in given.items() if k not in common})

    common: dict[str, Any] = {"quiet": (Quiet, False)}
    if config:
        common["config"] = (Config, None)
    signature = inspect.signature(function, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in common.items()
    ]
    whole = signature.replace(parameters=[*signature.parameters.values(), *added])
    command.__signature__ = whole  # type: ignore[attr-defined]
    command.__annotations__ = {
        name: parameter.annotation for name, parameter in whole.parameters.items()
    }
    return command


Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes", help="Do no more than fits into this time, and say what was left out."
    ),
]
ModelName = Annotated[str, typer.Argument(help=HELP, autocompletion=_known_models)]
Seed = Annotated[int, typer.Option("--seed", help="Root of all randomness.", min=0)]
TrainedRun = Annotated[Path, typer.Argument(help="Folder of a trained surrogate.")]
TrainedModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="The model, by name, package.module:object or file.py:object; by default the built-in "
        "one it was trained on.",
    ),
]
CardSize = Annotated[
    str, typer.Option("--size", help="Scorecard: small (a minute), medium, or paper.")
]
ModelSettings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A model setting, e.g. --set shape=[15,15]; may be repeated."),
]


def find_model(name: str, settings: list[str] | None = None) -> Model:
    """A built-in model by name, or one's own: `package.module:object` or `file.py:object`, where
    the object is a model or what makes one."""
    arguments = dict(_setting(text) for text in settings or [])
    if ":" not in name:
        name = ALIASES.get(name, name)
        if name not in registered():
            raise unknown_name(
                "model (or write package.module:object or file.py:object)",
                name,
                [*registered(), *ALIASES],
            )
        try:
            return build(name, **arguments)
        except TypeError as error:
            reason = str(error).rstrip(".")
            raise DomainError(f"Model {name!r} does not take these settings: {reason}.") from None
    found = load_object(name)
    if not isinstance(found, Model) and callable(found):
        try:
            found = found(**arguments)
        except KeepscoreError:
            raise
        except Exception as error:
            raise DomainError(f"{name} could not make its model: {told(error)}.") from None
    elif arguments:
        raise DomainError(f"{name} is a finished model; --set needs a class or a function.")
    if not isinstance(found, Model):
        raise DomainError(f"{name} is not a model: simulate, log_prob, score or space is missing.")
    return found


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip().isidentifier():
        raise DomainError(f"A setting is written key=value; got {text!r}.")
    if SHORT_FLOAT.fullmatch(value.strip()):
        return key.strip(), float(value)
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def read_observations(path: Path, x_shape: tuple[int, ...]) -> np.ndarray:
    """Observations (n, *x_shape) from .npy, or from .csv: one observation per row, entries in C
    order; a table of exactly x_shape is one observation. A line of names may come first. A cell of
    .csv that is empty, NA or nan was not observed: NaN."""
    if path.suffix not in (".npy", ".csv"):
        raise FormatError(f"Observations must be .npy or .csv; got {path}.")
    array = read_npy(path).copy() if path.suffix == ".npy" else _read_csv(path)
    if array.shape == x_shape:
        return array[None]
    size = int(np.prod(x_shape))
    if path.suffix == ".csv" and array.shape[1] == size:
        return array.reshape(len(array), *x_shape)
    return array


def _read_csv(path: Path) -> np.ndarray:
    """Numbers separated by commas; a first line without any number holds names and is left out."""
    content = read_regular(path, LARGEST_CSV)
    try:
        text = content.decode("utf-8-sig")
        cells = text.partition("\n")[0].split(",")
        names = bool(cells[0].strip()) and not any(_is_number(cell) for cell in cells)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "no data": said below
            array = np.loadtxt(
                io.StringIO(text), delimiter=",", ndmin=2, comments="#", skiprows=int(names),
                converters=_cell, encoding="utf-8",
            )  # fmt: skip
        if array.size == 0:
            raise ValueError("it holds no numbers")
    except ValueError as error:
        reason = str(error).split("; use `usecols`")[0].rstrip(".")
        raise FormatError(f"{path} is not a readable array: {reason}.") from None
    return array


def _cell(text: str) -> float:
    return float("nan") if text.strip().lower() in ("", "na") else float(text)


def _is_number(cell: str) -> bool:
    if cell.strip().lower() == "na":  # a number that was not observed
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def say(text: str) -> None:
    """One line about a stage of the work."""
    if not Voice.quiet:
        typer.echo(f"keepscore: {text}", err=True)


def show(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print the result for a script, or for a person."""
    typer.echo(json.dumps(result, allow_nan=False) if as_json else shell_words(text))


def record_command(folder: Path, command: str, settings: dict[str, Any]) -> None:
    """What is needed to repeat this command, beside its results."""
    plain = {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()}
    content = {"command": command, "settings": plain, "keepscore": keepscore.__version__}
    write_json(make_folder(folder) / f"{command}.command.json", content)
