"""Null distributions of the likelihood-ratio statistic: surrogates beside the exact likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from keepscore.figures import draw_null
from keepscore.figures.style import DASHES, INK, LOSS_NAMES, colour_of, panels, short, styled


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
