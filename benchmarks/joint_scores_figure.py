"""Errors against the number of simulations: no scores, joint scores, exact scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keepscore.figures.style import (
    BLUE,
    DASHES,
    GREEN,
    RED,
    decimal_log,
    panels,
    short,
    styled,
)

WIDE = 2.0  # the ratio of values from which an axis is logarithmic
LOOKS = {
    "bce": ("BCE, no scores", RED, "s", DASHES["bce"]),
    "joint": ("ASA, joint scores", BLUE, "o", "solid"),
    "exact": ("ASA, exact scores", GREEN, "D", DASHES["exact"]),
}


@dataclass(frozen=True)
class Curve:
    """A metric of one kind of training ("bce", "joint" or "exact"): values[i] are those of the
    seeds at sizes[i]."""

    loss: str
    sizes: Sequence[int]
    values: Sequence[Sequence[float]]


def joint_scores(metrics: Mapping[str, Sequence[Curve]]) -> Figure:
    """One panel a metric: means over seeds joined by lines, each seed a point."""
    with styled():
        figure, axes = panels(len(metrics), width=2.5, height=2.6)
        for ax, (title, curves) in zip(axes, metrics.items(), strict=True):
            for curve in curves:
                _draw(ax, curve)
            sizes = sorted({n for curve in curves for n in curve.sizes})
            values = [v for curve in curves for seeds in curve.values for v in seeds]
            if min(values) > 0 and max(values) > WIDE * min(values):
                decimal_log(ax)
            ax.set_xscale("log")
            ax.set_xticks(sizes, [short(n) for n in sizes])
            ax.minorticks_off()
            ax.set(title=title, xlabel="simulations N")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _draw(ax: Axes, curve: Curve) -> None:
    label, colour, marker, dashes = LOOKS[curve.loss]
    for n, values in zip(curve.sizes, curve.values, strict=True):
        ax.plot([n] * len(values), values, marker, color=colour, markersize=2.5, alpha=0.5)
    means = [float(np.mean(values)) for values in curve.values]
    ax.plot(
        curve.sizes,
        means,
        marker=marker,
        color=colour,
        linestyle=dashes,
        label=label,
        markersize=4.5,
    )
