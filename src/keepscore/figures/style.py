"""One look for all figures: colours told apart by colour-blind readers and in grey, print sizes.

The palette is Okabe and Ito's (2008), ordered so that neighbours also differ in lightness. Colour
never carries meaning alone: N also has a marker, the loss a line style.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from keepscore.errors import MissingError

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY, INK = "#CC79A7", "#56B4E9", "#767676", "#222222"
BY_SIZE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
MARKERS = ("o", "s", "D", "P", "h", "X")  # no triangles: arrow heads are
DASHES = {"bce": (0, (4, 2)), "asa": "solid", "exact": (0, (1, 1.2))}
LOSS_NAMES = {"bce": "BCE", "asa": "ASA", "exact": "exact"}
EXACT = "exact"  # how the exact likelihood is called among methods
# From low to high: light to dark, so that order survives without colour.
RAMP = ("#f6f9fb", "#d3e3ef", "#97bdd9", "#508bb8", "#215c8c", "#0a2c4d")
# Of methods side by side: the exact likelihood is always the first, and only it.
_METHODS = (
    ("#111111", "solid", "o"),
    ("#0072b2", "solid", "^"),
    ("#d55e00", (0, (5, 2)), "s"),
    ("#00795a", (0, (1.5, 2)), "D"),
    ("#a3457f", (0, (6, 2, 1.5, 2)), "P"),
    ("#7a5c00", (0, (3, 1.5)), "v"),
    ("#4a4a9c", (0, (1, 1.5)), "X"),
)

_SETTINGS: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",  # text stays text: searchable, and the file small
    "svg.hashsalt": "keepscore",  # the same figure gives the same bytes
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw within these settings; the caller's own are left as they were."""
    with mpl.rc_context(_SETTINGS):
        yield


class MethodStyle(NamedTuple):
    """Colour, dash and marker of one method: told apart without colour too."""

    colour: str
    dash: Any
    marker: str


def method_styles(names: Iterable[str]) -> dict[str, MethodStyle]:
    """The style of each method: the exact likelihood its own, the others in their order."""
    others = [name for name in dict.fromkeys(names) if name != EXACT]
    styles = {EXACT: MethodStyle(*_METHODS[0])}
    for k, name in enumerate(others):
        styles[name] = MethodStyle(*_METHODS[1 + k % (len(_METHODS) - 1)])
    return styles


def panels(
    columns: int, rows: int = 1, width: float = 2.6, height: float = 2.5
) -> tuple[Figure, list[Axes]]:
    """A figure of rows x columns panels, in inches per panel, and its axes row by row."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [ax for row in axes for ax in row]


def panels_in(
    ax: Axes | None, columns: int, rows: int = 1, width: float = 2.6, height: float = 2.5
) -> tuple[Figure, list[Axes]]:
    """Panels as `panels` makes them, or, where an Axes is given, panels that take its place."""
    if ax is None:
        return panels(columns, rows, width, height)
    figure = figure_of(ax)
    if columns == rows == 1:
        return figure, [ax]
    ax.set_axis_off()
    spec = ax.get_subplotspec()
    if spec is not None:
        inner = spec.subgridspec(rows, columns)
        return figure, [
            figure.add_subplot(inner[i, j]) for i in range(rows) for j in range(columns)
        ]
    # An Axes placed by hand: divide its own square, with room for labels between the panels.
    w, h = 1 / columns, 1 / rows
    boxes = [
        (j * w, 1 - (i + 1) * h, 0.8 * w, 0.75 * h) for i in range(rows) for j in range(columns)
    ]
    return figure, [ax.inset_axes(box) for box in boxes]


def figure_of(ax: Axes) -> Figure:
    """The Figure an Axes belongs to, also through subfigures."""
    figure = ax.get_figure()
    while figure is not None and not isinstance(figure, Figure):
        figure = figure.figure
    if figure is None:
        raise MissingError("This Axes was removed from its figure; make a new one.")
    return figure


def colour_of(n: int, sizes: Sequence[int]) -> str:
    """The colour of a number of simulations among those shown."""
    return BY_SIZE[sorted(sizes).index(n) % len(BY_SIZE)]


def marker_of(n: int, sizes: Sequence[int]) -> str:
    return MARKERS[sorted(sizes).index(n) % len(MARKERS)]


def short(n: float) -> str:
    """30000 as 30K, 1000000 as 1M."""
    for unit, name in ((1e6, "M"), (1e3, "K")):
        if n >= unit:
            return f"{n / unit:g}{name}"
    return f"{n:g}"


def plain(text: str, length: int = 40) -> str:
    """A user's words as words: cut to `length` letters, and a dollar sign is only that."""
    short_text = text if len(text) <= length else text[: length - 1] + "…"
    return short_text.replace("$", r"\$")


def decimal_log(ax: Axes, axis: str = "y") -> None:
    """A logarithmic axis labelled 0.1, 0.2, 0.5 rather than by powers of ten."""
    (ax.set_yscale if axis == "y" else ax.set_xscale)("log")
    target: Any = ax.yaxis if axis == "y" else ax.xaxis
    ends = ax.get_ylim() if axis == "y" else ax.get_xlim()
    span = np.inf if ends[0] <= 0 else ends[1] / ends[0]
    # Enough labels to read a value between two of them, whatever the span.
    subs = (1.0,) if span > 200 else (1.0, 2.0, 5.0) if span > 3 else tuple(np.arange(1.0, 10.0))
    short = MaxNLocator(5, steps=[1, 2, 5, 10])  # less than a factor of two: as on a plain axis
    target.set_major_locator(short if span < 2 else LogLocator(base=10, subs=subs))
    target.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    target.set_minor_formatter(NullFormatter())
