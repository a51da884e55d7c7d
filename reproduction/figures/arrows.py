"""Arrow plots: what does the score do to a metric, at every network size and N?

One lane a network size; in it one arrow for each N, from the network trained with BCE (tail) to the
one trained with ASA (head). A point alone is BCE at an N where ASA was not run. Bars are Monte
Carlo standard errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from keepscore.evaluation import Estimate
from keepscore.figures.style import (
    GREY,
    INK,
    colour_of,
    decimal_log,
    marker_of,
    panels,
    short,
    styled,
)


@dataclass(frozen=True)
class Arrow:
    """From BCE to ASA at one network size and N."""

    lane: str
    n: int
    bce: Estimate
    asa: Estimate | None = None


@dataclass(frozen=True)
class ArrowPanel:
    """One metric. `line` is drawn across: a nominal level, or the exact likelihood's value."""

    title: str
    arrows: Sequence[Arrow]
    log: bool = False
    line: float | None = None
    line_label: str = ""


def arrow_plot(metrics: Sequence[ArrowPanel], lanes: Sequence[str], columns: int = 4) -> Figure:
    """A figure of arrow plots with one legend for N; lanes in the order given."""
    sizes = sorted({arrow.n for panel in metrics for arrow in panel.arrows})
    columns = min(columns, len(metrics))
    rows = -(-len(metrics) // columns)
    with styled():
        figure, axes = panels(columns, rows, height=2.7)
        for ax, panel in zip(axes, metrics, strict=False):
            _draw(ax, panel, lanes, sizes)
        for ax in axes[len(metrics) :]:
            ax.set_axis_off()
        wide = {1: 1, 2: 3}.get(columns, 8)  # entries in a row, without running over the edge
        figure.legend(handles=_legend(sizes, metrics), loc="outside lower center", ncols=wide)
    return figure


def _draw(ax: Axes, panel: ArrowPanel, lanes: Sequence[str], sizes: Sequence[int]) -> None:
    step = 0.8 / max(1, len(sizes))
    for k in range(1, len(lanes)):
        ax.axvline(k - 0.5, color=GREY, linewidth=0.5, alpha=0.5)
    for arrow in panel.arrows:
        x = lanes.index(arrow.lane) + step * (sizes.index(arrow.n) - (len(sizes) - 1) / 2)
        colour, marker = colour_of(arrow.n, sizes), marker_of(arrow.n, sizes)
        ends = [arrow.bce] if arrow.asa is None else [arrow.bce, arrow.asa]
        for end in ends:
            ax.errorbar(x, end.value, yerr=end.se or None, color=colour, linewidth=0.8, alpha=0.6)
        if arrow.asa is not None:
            # A line and a triangle: an arrow shorter than its head would seem to point backwards.
            head = "v" if arrow.asa.value < arrow.bce.value else "^"
            ax.plot([x, x], [arrow.bce.value, arrow.asa.value], color=colour)
            ax.plot(x, arrow.asa.value, head, color=colour, markersize=5.5)
        face = colour if arrow.asa is None else "white"
        ax.plot(x, arrow.bce.value, marker, color=colour, markersize=4, markerfacecolor=face)
    if panel.line is not None:
        ax.axhline(panel.line, color=INK, linewidth=0.9, linestyle=(0, (5, 3)))
        ax.annotate(
            panel.line_label,
            (0.01, panel.line),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=7,
        )
    ax.set_xlim(-0.5, len(lanes) - 0.5)
    ax.set_xticks(range(len(lanes)), [lane.upper() for lane in lanes])
    ax.set(xlabel="network size", title=panel.title)
    ax.tick_params(axis="x", length=0)
    if panel.log:
        decimal_log(ax)


def _legend(sizes: Sequence[int], metrics: Sequence[ArrowPanel]) -> list[Line2D]:
    paired = {a.n for panel in metrics for a in panel.arrows if a.asa is not None}
    handles = [
        Line2D(
            [],
            [],
            color=colour_of(n, sizes),
            marker=marker_of(n, sizes),
            linestyle="solid" if n in paired else "none",
            markerfacecolor="white" if n in paired else colour_of(n, sizes),
            label=f"N = {short(n)}" + ("" if n in paired else " (BCE only)"),
        )
        for n in sizes
    ]
    if paired:
        handles.append(Line2D([], [], linestyle="none", label="marker: BCE, arrow head: ASA"))
    return handles
