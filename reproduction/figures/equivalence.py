"""The headline: how many BCE simulations is ASA worth, for each metric, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from keepscore.evaluation import Equivalence
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

COLUMNS = 2  # panels side by side, at most: more are too small to read on a page


@dataclass(frozen=True)
class EquivalenceRow:
    """One point: a metric's label, the lane it is drawn in, and what was found."""

    metric: str
    lane: str
    found: Equivalence


def equivalence_plot(rows: Sequence[EquivalenceRow], title: str = "") -> Figure:
    """Factors on a log scale, one row per metric, one panel per network size; an arrow to the right
    says "more than the largest run", one to the left "no more than the smallest"."""
    metrics = list(dict.fromkeys(row.metric for row in rows))
    lanes = list(dict.fromkeys(row.lane for row in rows))
    sizes = sorted({row.found.n for row in rows})
    with styled():
        columns = min(COLUMNS, len(lanes))
        names = 1.8 / columns  # inches for the metrics' names, on the left
        figure, axs = panels(
            columns,
            rows=-(-len(lanes) // columns),
            width=3.0 + names,
            height=0.9 + 0.32 * len(metrics),
        )
        for ax in axs[len(lanes) :]:
            ax.set_axis_off()
        ends = [e for row in rows for e in (row.found.factor, *row.found.interval) if e]
        left, right = min(0.7, *ends) * 0.8, max(3.0, *ends) * 1.6
        for k, (ax, lane) in enumerate(zip(axs, lanes, strict=False)):
            ax.axvline(1, color=INK, linewidth=0.8)
            for factor in (3, 10):
                ax.axvline(factor, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
            for row in rows:
                if row.lane == lane:
                    _point(ax, row.found, metrics.index(row.metric), sizes, right, left)
            ax.set_xlim(left, right)
            decimal_log(ax, "x")
            ax.set_ylim(len(metrics) - 0.4, -0.6)
            named = metrics if k % columns == 0 else [""] * len(metrics)
            ax.set_yticks(range(len(metrics)), named)
            ax.tick_params(axis="y", length=0)
            ax.set(title=f"network {lane.upper()}", xlabel="BCE simulations per ASA simulation")
        handles = [
            Line2D(
                [],
                [],
                linestyle="none",
                marker=marker_of(n, sizes),
                color=colour_of(n, sizes),
                label=f"ASA with N = {short(n)}",
            )
            for n in sizes
        ]
        if any(row.found.beyond == "more" for row in rows):
            handles.append(Line2D([], [], color=GREY, marker=">", linewidth=2.2, label="at least"))
        if any(row.found.interval[0] is not None for row in rows):
            handles.append(Line2D([], [], color=GREY, linewidth=1.0, label="95%, over seeds"))
        if any(row.found.sooner is not None for row in rows):
            hollow = Line2D([], [], color=GREY, marker="o", linestyle="none")
            hollow.set(markerfacecolor="white", label="hollow: runs disagree")
            handles.append(hollow)
        dashed = (0, (4, 3))
        handles.append(Line2D([], [], color=GREY, linestyle=dashed, label="3x, 10x (the paper's)"))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        if title:
            figure.suptitle(title, fontsize=9.5)
    return figure


def _point(
    ax: Axes, found: Equivalence, row: int, sizes: Sequence[int], right: float, left: float
) -> None:
    y = row + 0.24 * (sizes.index(found.n) - (len(sizes) - 1) / 2)
    colour = colour_of(found.n, sizes)
    low, high = found.interval
    if low is not None and high is not None:
        ends = (left if found.open_below else low, right if found.open_above else high)
        ax.plot(ends, [y, y], color=colour, linewidth=1.0)
    beyond = {"more": ">", "fewer": "<"}.get(found.beyond or "")
    inside = colour if found.sooner is None else "white"
    marker = beyond or marker_of(found.n, sizes)
    ax.plot(found.factor, y, marker, color=colour, markersize=6, markerfacecolor=inside, zorder=3)
    if beyond == ">":
        ax.plot([found.factor, np.sqrt(found.factor * right)], [y, y], color=colour, linewidth=2.2)
