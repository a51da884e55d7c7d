"""Figures into files: whole or not at all, and the same figure to the same bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

from matplotlib.figure import Figure

from keepscore.errors import unknown_name
from keepscore.figures.style import styled
from keepscore.files import write_atomically

# No date and no version in a file.
METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}
FORMATS = tuple(METADATA)


def save_figure(figure: Figure, file: str | os.PathLike[str], dpi: int = 160) -> Path:
    """Write a figure in the format its file's name ends in: .svg, .png or .pdf.

    The file is written whole or not at all, and the same figure gives the same bytes.

    Args:
        figure: What a function of `ks.figures` returned.
        file: Where to.
        dpi: Dots per inch of a .png.

    Returns:
        The file.

    Raises:
        UnknownNameError: Another ending.
        StorageError: The file cannot be written.

    Example:
        >>> import keepscore as ks
        >>> figure = ks.figures.pairs({"a": [1.0, 2.0, 2.5], "b": [0.0, 1.0, 0.5]})
        >>> ks.figures.save_figure(figure, "pairs.png").name
        'pairs.png'
    """
    file = Path(file)
    form = file.suffix.removeprefix(".")
    if form not in FORMATS:
        raise unknown_name("figure format", form, FORMATS)

    def write(stream: BinaryIO) -> None:
        figure.savefig(stream, format=form, dpi=dpi, metadata=METADATA[form])

    with styled():
        write_atomically(file, write)
    return file
