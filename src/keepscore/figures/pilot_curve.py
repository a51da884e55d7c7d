"""A pilot as a picture: the error without scores as N grows, and where the score puts it."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keepscore.evaluation.metrics import axis_of
from keepscore.evaluation.pilot import Pilot
from keepscore.figures.style import DASHES, INK, colour_of, decimal_log, panels_in, styled


def pilot(found: Pilot, ax: Axes | None = None) -> Figure:
    """Draw a pilot: the error over N without scores and with, every run, and the step between.

    Args:
        found: What `ks.worth` returned.
        ax: Where to draw. None makes a new figure.

    Returns:
        The figure.

    Example:
        >>> import keepscore as ks
        >>> from keepscore.evaluation.pilot import Costs, Pilot
        >>> errors = {500: (0.8, 0.9), 1000: (0.5, 0.6), 2000: (0.3, 0.4)}
        >>> curve = {"BCE": errors, "ASA": {500: (0.45, 0.5)}}
        >>> match = ks.equivalence(errors, 500, curve["ASA"][500])
        >>> costs = Costs(1e-3, 1e-3, 1e-3, 2e-3)
        >>> found = Pilot("mine", "auto", "rmse_far", curve, match, costs, 600.0, (), 60.0)
        >>> ks.figures.pilot(found).axes[0].get_title()  # found = ks.worth(model) makes one
        'mine: a score is worth 2.5 simulations'
    """
    with styled():
        figure, (ax,) = panels_in(ax, 1, width=5.2, height=3.6)
        for k, (loss, marker) in enumerate((("BCE", "o"), ("ASA", "s"))):
            sizes = sorted(found.curve[loss])
            colour = colour_of(k, [0, 1])
            means = [float(np.mean(found.curve[loss][n])) for n in sizes]
            ax.plot(
                sizes, means, color=colour, linestyle=DASHES[loss.lower()], marker=marker,
                label="with scores (ASA)" if loss == "ASA" else "without (BCE)",
            )  # fmt: skip
            for n in sizes:
                values = found.curve[loss][n]
                ax.plot([n] * len(values), values, ".", color=colour, markersize=4)
        match = found.found
        if match.beyond is None and match.factor > 1:
            tail, tip = (match.n, match.value), (match.simulations, match.value)
            ax.annotate("", tip, tail, arrowprops={"arrowstyle": "->", "color": INK})
        decimal_log(ax, "x")
        if found.metric == "rmse_far":
            decimal_log(ax, "y")
        sign = {"more": "more than ", "fewer": "at most ", None: ""}[match.beyond]
        title = f"{found.model}: a score is worth {sign}{match.factor:.2g} simulations"
        ax.set(xlabel="simulations N", ylabel=axis_of(found.metric), title=title)
        ax.legend()
    return figure
