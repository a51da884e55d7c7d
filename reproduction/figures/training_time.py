"""BCE on fresh pairs against training time: is the score cheaper than more data?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from keepscore.figures.style import (
    DASHES,
    INK,
    LOSS_NAMES,
    colour_of,
    decimal_log,
    panels,
    short,
    styled,
)


@dataclass(frozen=True)
class TrainingCurve:
    """BCE after each epoch on pairs not trained on, and the training seconds up to then."""

    loss: str
    n: int
    seconds: ArrayLike
    bce: ArrayLike
    best: int | None = None


def training_time(
    curves: Sequence[TrainingCurve],
    title: str = "",
    limit: float | None = None,
    of: str = "test",
) -> Figure:
    """One line a run, with the epoch whose weights were kept; `limit` is the exact ratio's BCE."""
    sizes = sorted({c.n for c in curves})
    with styled():
        figure, (ax,) = panels(1, width=5.6, height=3.8)
        for curve in curves:
            seconds, bce = np.asarray(curve.seconds), np.asarray(curve.bce)
            colour = colour_of(curve.n, sizes)
            label = f"{LOSS_NAMES[curve.loss]}, N = {short(curve.n)}"
            ax.plot(seconds, bce, color=colour, linestyle=DASHES[curve.loss], label=label)
            if curve.best is not None:
                ax.plot(seconds[curve.best], bce[curve.best], "o", color=colour, markersize=5)
        if limit is not None:
            ax.axhline(
                limit, color=INK, linewidth=0.9, linestyle=DASHES["exact"], label="exact ratio"
            )
        values = np.concatenate([np.asarray(c.bce, dtype=float) for c in curves])
        # The first epochs are far above; the interesting part is near the end.
        low = min(values.min(), limit if limit is not None else np.inf)
        top = np.quantile(values, 0.9)
        ax.set_ylim(low - 0.05 * (top - low), top + 0.3 * (top - low))
        decimal_log(ax, "x")
        ax.set(xlabel="training time, seconds", ylabel=f"{of} BCE", title=title)
        figure.legend(loc="outside lower center", ncols=4)
    return figure
