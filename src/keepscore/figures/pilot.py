"""A pilot as a picture: the error without scores as N grows, and where the score puts it."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from keepscore.evaluation.pilot import Pilot
from keepscore.figures.style import DASHES, INK, colour_of, decimal_log, panels, styled

AXIS = {"rmse_far": "error of log-likelihood differences (RMSE)", "bce": "test BCE"}


def worth(pilot: Pilot) -> Figure:
    """BCE's curve over N with each seed's run, ASA's runs, and the step between them."""
    with styled():
        figure, (ax,) = panels(1, width=5.2, height=3.6)
        for k, (loss, marker) in enumerate((("BCE", "o"), ("ASA", "s"))):
            sizes = sorted(pilot.curve[loss])
            colour = colour_of(k, [0, 1])
            means = [float(np.mean(pilot.curve[loss][n])) for n in sizes]
            ax.plot(
                sizes, means, color=colour, linestyle=DASHES[loss.lower()], marker=marker,
                label="with scores (ASA)" if loss == "ASA" else "without (BCE)",
            )  # fmt: skip
            for n in sizes:
                values = pilot.curve[loss][n]
                ax.plot([n] * len(values), values, ".", color=colour, markersize=4)
        found = pilot.found
        if found.beyond is None and found.factor > 1:
            tail, tip = (found.n, found.value), (found.simulations, found.value)
            ax.annotate("", tip, tail, arrowprops={"arrowstyle": "->", "color": INK})
        decimal_log(ax, "x")
        if pilot.metric == "rmse_far":
            decimal_log(ax, "y")
        sign = {"more": "more than ", "fewer": "at most ", None: ""}[found.beyond]
        title = f"{pilot.model}: a score is worth {sign}{found.factor:.2g} simulations"
        ax.set(xlabel="simulations N", ylabel=AXIS[pilot.metric], title=title)
        ax.legend()
    return figure
