"""Training times as arrow plots: per batch, in all, and to the epoch that was best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from keepscore.figures.arrows import Arrow, ArrowPanel, arrow_plot

TITLES = {
    "seconds_per_step": "seconds a batch",
    "seconds_total": "total training, seconds",
    "seconds_to_best": "to the best epoch, seconds",
}


def timing(arrows: Mapping[str, Sequence[Arrow]], lanes: Sequence[str]) -> Figure:
    """One panel a kind of time, in the order of TITLES; validation and loading are not in it."""
    chosen = [ArrowPanel(TITLES[k], arrows[k], log=True) for k in TITLES if k in arrows]
    return arrow_plot(chosen, lanes, columns=3)
