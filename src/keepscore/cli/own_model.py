"""A model of one's own, named on the command line.

    package.module:object     what `import package.module` finds, in the current folder first
    path/to/file.py:object    a file

Either way the folder goes to the front of `sys.path` and stays there, as Python itself does with
the folder of a script. Worker processes start with the same `sys.path`, so they import the model
from the same place.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from keepscore.errors import DomainError, StorageError

HELP = "Model name, or one of your own: package.module:object or file.py:object."


def load_object(name: str) -> Any:
    """The object that `module:object` or `file.py:object` names."""
    home, _, attribute = name.rpartition(":")
    if not home or not attribute:
        raise DomainError(
            f"A model of your own is written module:object or file.py:object; got {name!r}."
        )
    module = _from_file(Path(home)) if home.endswith(".py") else _imported(home, Path.cwd())
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise DomainError(f"{home} has no object {attribute!r}.") from None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise StorageError(f"Cannot read {path}: there is no such file.")
    if "." in path.stem:
        raise DomainError(
            f"{path.name} cannot be imported: a dot in the name of a module is not possible. "
            "Rename the file."
        )
    path = path.resolve()
    module = _imported(path.stem, path.parent)
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path:
        raise DomainError(
            f"{path.name} is hidden by another module of the same name"
            f"{'' if found is None else f' ({found})'}. Rename the file."
        )
    return module


def _imported(module: str, folder: Path) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a user's own code: anything may come
        raise DomainError(f"Cannot import {module!r} for the model: {told(error)}.") from None


def told(error: BaseException) -> str:
    """Another's exception in a few words: its kind, its message, and the line it came from."""
    if isinstance(error, ImportError):
        return str(error)
    place = (
        f" ({Path(error.filename or '?').name}, line {error.lineno})"
        if isinstance(error, SyntaxError)
        else ""
    )
    frames = traceback.extract_tb(error.__traceback__)
    if not place and frames:
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}{place}"
