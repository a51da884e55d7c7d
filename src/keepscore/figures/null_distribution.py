"""The null distribution of the likelihood-ratio statistic beside the chi-square one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy import stats

from keepscore.figures.style import GREY, INK


def draw_null(
    ax: Axes, curves: Sequence[tuple[ArrayLike, dict[str, Any]]], d: int, level: float
) -> None:
    """Draw distributions of the likelihood-ratio statistic into one panel, beside chi-square.

    Args:
        ax: Where to draw.
        curves: Per curve the statistics, and its line's options (label, color, ...).
        d: Degrees of freedom.
        level: Of the sets; its quantile is marked.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> from matplotlib.figure import Figure
        >>> ax = Figure().add_subplot()
        >>> statistics = np.random.default_rng(0).chisquare(2, 200)
        >>> ks.figures.draw_null(ax, [(statistics, {"label": "ASA"})], d=2, level=0.95)
        >>> ax.get_xlabel()
        'likelihood-ratio statistic at the true theta'
    """
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
