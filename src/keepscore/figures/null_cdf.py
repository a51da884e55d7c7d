"""Null distributions of the likelihood-ratio statistic: surrogates beside the exact likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy import stats

from keepscore.figures.style import (
    DASHES,
    GREY,
    INK,
    LOSS_NAMES,
    colour_of,
    panels,
    short,
    styled,
)


@dataclass(frozen=True)
class NullSample:
    """Statistics simulated under the null; loss "bce", "asa" or "exact" (which has no N)."""

    loss: str
    statistics: ArrayLike
    n: int | None = None


def null_cdf(
    samples: Sequence[NullSample],
    d: int,
    title: str = "",
    level: float = 0.95,
    sizes: Sequence[int] | None = None,
) -> Figure:
    """Empirical distribution functions, the chi-square's with d degrees of freedom, and its
    critical value: what lies right of it are sets that miss the truth. `sizes`: all N of the
    sweep, so that an N has the colour it has elsewhere."""
    known = sorted({s.n for s in samples if s.n is not None} | set(sizes or ()))
    with styled():
        figure, (ax,) = panels(1, width=4.6, height=3.4)
        draw_null(ax, [(s.statistics, _look(s, known)) for s in samples], d, level)
        ax.set_title(title)
    return figure


def draw_null(
    ax: Axes, curves: Sequence[tuple[ArrayLike, dict[str, Any]]], d: int, level: float
) -> None:
    """Into one panel: each curve's statistics with its line's options, beside chi-square."""
    critical = float(stats.chi2.ppf(level, d))
    right = 3.2 * critical
    grid = np.linspace(0, right, 400)
    ax.plot(grid, stats.chi2.cdf(grid, d), color=GREY, linewidth=3, alpha=0.35)
    ax.annotate(
        f"grey: chi-square, {d} d.f.",
        (0.98, 0.04),
        xycoords="axes fraction",
        ha="right",
        fontsize=8,
        color=GREY,
    )
    for statistics, look in curves:
        values = np.sort(np.asarray(statistics, dtype=float), axis=None)
        share = np.arange(1, len(values) + 1) / len(values)
        ax.step(np.append(0.0, values), np.append(0.0, share), where="post", **look)
    ax.axvline(critical, color=INK, linewidth=0.8)
    ax.axhline(level, color=INK, linewidth=0.8)
    ax.annotate(f" {level:.0%}", (right, level), va="bottom", ha="right", fontsize=8)
    ax.set(xlim=(0, right), ylim=(0, 1.02))
    ax.set(xlabel="likelihood-ratio statistic at the true theta", ylabel="share at or below")
    ax.legend(loc="center right")


def _look(sample: NullSample, sizes: Sequence[int]) -> dict[str, Any]:
    """Colour by N, dashes by loss; the exact likelihood has no N and stands out."""
    name, dashes = LOSS_NAMES[sample.loss], DASHES[sample.loss]
    if sample.n is None:
        return {"color": INK, "linestyle": dashes, "linewidth": 1.8, "label": name}
    return {
        "color": colour_of(sample.n, sizes),
        "linestyle": dashes,
        "linewidth": 1.4,
        "label": f"{name}, N = {short(sample.n)}",
    }
