"""The still pictures of a page: training curves, coverage, example data, and ready figures.

They are drawn by `keepscore.figures` and stand in the page as SVG images, each at about the size it
is read (a phone's width); panels wrap. Letters are outlines, so that they fit wherever the page is
opened, and every picture says in words what it shows.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from keepscore.checks import Floats, as_floats
from keepscore.figures.coverage_marks import coverage
from keepscore.figures.example_data import example
from keepscore.figures.style import method_styles, panels, plain, styled
from keepscore.figures.training_curves import training_panels
from keepscore.reports.content import Example, Picture, ReportContent
from keepscore.reports.words import method_label, number, percent

# Letters as outlines; the same figure gives the same bytes.
_SVG: Any = {"svg.fonttype": "path", "svg.hashsalt": "keepscore"}
WIDTH, HEIGHT = 3.45, 2.75  # inches of one panel
LONGEST = 30  # letters of a name within a picture


def picture_from(figure: Figure, title: str, alt: str, caption: str = "", dpi: int = 0) -> Picture:
    """A matplotlib Figure as a picture: SVG, or PNG where `dpi` is given (for dense figures)."""
    file = io.BytesIO()
    if dpi:
        figure.savefig(file, format="png", dpi=dpi, bbox_inches="tight")
        return Picture(title, base64.b64encode(file.getvalue()).decode(), "image/png", alt, caption)
    with mpl.rc_context(_SVG):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return Picture(title, file.getvalue().decode(), "image/svg+xml", alt, caption)


def picture_address(picture: Picture) -> str:
    """A ready picture as a data address."""
    data = picture.data
    if picture.media == "image/svg+xml":
        data = base64.b64encode(data.encode()).decode()
    return f"data:{picture.media};base64,{data}"


def training_pictures(content: ReportContent) -> Iterator[Picture]:
    """A panel of cross-entropy per run (one scale for all), then score loss, then alpha."""
    names = (*content.all_methods, *(run.name for run in content.runs))
    for panel in training_panels(content.runs, method_styles(names)):
        with styled():
            figure, (ax,) = panels(1, width=WIDTH, height=HEIGHT)
            panel.draw(ax)
        yield picture_from(figure, panel.title, panel.words())


def coverage_picture(content: ReportContent) -> Picture | None:
    """Coverage by method beside its nominal level; None where none is known."""
    rows = []
    for c in content.coverage:
        known = {m: e for m, e in c.values.items() if np.isfinite(e.value)}
        if known:
            rows.append((plain(f"{percent(c.nominal)} sets, {c.sets}", LONGEST), c.nominal, known))
    if not rows:
        return None
    words = "; ".join(
        f"{method_label(m)} {percent(e)} (nominal {percent(c.nominal)}, {c.sets})"
        for c in content.coverage
        for m, e in c.values.items()
    )
    return picture_from(coverage(rows), "Coverage", f"Coverage: {words}.")


def example_picture(shown: Example) -> Picture:
    """One data set."""
    values = shown.values
    size = " by ".join(map(str, values.shape))
    words = f"{shown.title}: {size} values, {_range(values)}."
    rows, columns = plain(shown.rows, 16), plain(shown.columns, 24)
    return picture_from(example(values, rows, columns), shown.title, words)


def scale_note(shown: Example) -> str:
    """What light and dark stand for in a picture of numbers; 0/1 data need no such words."""
    values = shown.values
    if values.ndim == 1 or set(values.ravel().tolist()) <= {0.0, 1.0}:
        return ""
    return f"Light {number(float(values.min()), 3)}, dark {number(float(values.max()), 3)}."


def example_from(x: ArrayLike, structure: str | None, title: str, caption: str = "") -> Example:
    """One x as a picture: chains with time running right, fields with s1 right and s2 up."""
    array = as_floats(x, "x")
    if structure == "markov" and array.ndim == 2:
        return Example(title, array.T, "node", "time", caption)
    if structure in ("gaussian-field", "stationary-field", "field") and array.ndim == 2:
        return Example(title, array.T[::-1], "s2", "s1", caption)
    if array.ndim > 2:
        array = array.reshape(len(array), -1)
    return Example(title, array, "", "index", caption)


def _range(values: Floats) -> str:
    return f"from {number(float(values.min()), 3)} to {number(float(values.max()), 3)}"
