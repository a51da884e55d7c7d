"""keepscore new-model: a commented file to start a model of one's own from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from keepscore.cli.settings import Json, show
from keepscore.errors import DomainError
from keepscore.files import make_folder, write_atomically

TEMPLATE = "my_model.py.txt"


def new_model(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("my_model.py"),
    json: Json = False,
) -> None:
    """Write a commented model that works, to be changed into your own.

    Example: keepscore new-model my_model.py
    """
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise DomainError(
            f"A model's file is named like a Python module, e.g. my_model.py; got {file.name!r}."
        )
    if file.exists():
        raise DomainError(f"{file} is there already; name another file, or move it away.")
    make_folder(file.parent)
    write_atomically(file, lambda stream: stream.write(template(file).encode()))
    file.chmod(0o644)  # a temporary file is private; this one is to be read and changed
    name = f"{file}:model"
    text = (
        f"Written to {file}. It is a whole model; try it, then change it:\n\n"
        f"  keepscore check-model {name}\n"
        f"  keepscore fit {name} --minutes 10 --out runs/{file.stem}"
    )
    show({"path": str(file), "model": name}, text, json)


def template(file: Path) -> str:
    """The text of a new model, in the words of its file's name."""
    text = (files("keepscore.cli") / "templates" / TEMPLATE).read_text("utf-8")
    return text.replace("{file}", str(file)).replace("{name}", file.stem.replace("_", "-"))
