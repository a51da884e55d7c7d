"""A check of data as a picture: what was observed, against what the fitted model gives."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keepscore.evaluation.data_check import DataCheck
from keepscore.figures.style import BLUE, INK, RED, panels_in, plain, styled

WIDEST = 4.0  # strips beyond which a mark is drawn at the edge


def data_check(found: DataCheck, ax: Axes | None = None) -> Figure:
    """Draw a check of data: a strip per summary, where the fitted model's 90% lie, and the mark.

    Every summary has a scale of its own: the strip reaches from -1 to 1, and what was observed is
    put where it lies on that scale. Marks far outside stand at the edge of the picture.

    Args:
        found: What `ks.check_data` returned.
        ax: Where to draw. None makes a new figure.

    Returns:
        The figure.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(4, 4))
        >>> x = model.simulate([[0.3, 0.3, -1.0]] * 3, np.random.default_rng(0))
        >>> figure = ks.figures.data_check(ks.check_data(model, x, draws=30, level=0.05))
    """
    rows = found.summaries[::-1]
    with styled():
        figure, (ax,) = panels_in(ax, 1, width=6.4, height=1.2 + 0.26 * len(rows))
        for k, row in enumerate(rows):
            middle, half = (row.low + row.high) / 2, max((row.high - row.low) / 2, 1e-300)
            place = min(max((row.observed - middle) / half, -WIDEST), WIDEST)
            misfit = row.p_value < found.level
            ax.plot([-1, 1], [k, k], color=BLUE, alpha=0.35, linewidth=7, solid_capstyle="butt")
            ax.plot([place], [k], "D" if misfit else "o", color=RED if misfit else INK)
        names = [f"{plain(row.name)}  (p = {row.p_value:.2g})" for row in rows]
        ax.set_yticks(range(len(rows)), names)
        ax.set_xticks([-1, 0, 1], ["5%", "50%", "95%"])
        ax.set(xlim=(-WIDEST - 0.3, WIDEST + 0.3), ylim=(-0.7, len(rows) - 0.3))
        ax.set(xlabel="quantiles of the fitted model", title=f"p = {found.p_value:.2g}")
    return figure
