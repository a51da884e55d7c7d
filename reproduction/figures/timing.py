"""Training times as arrow plots: per batch, in all, and to the epoch that was best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from keepscore.evaluation import Estimate
from reproduction.figures.arrows import Arrow, ArrowPanel, arrow_plot

TITLES = {
    "seconds_per_step": "milliseconds per batch",
    "seconds_total": "total training, seconds",
    "seconds_to_best": "to the best epoch, seconds",
}


def timing(arrows: Mapping[str, Sequence[Arrow]], lanes: Sequence[str]) -> Figure:
    """One panel a kind of time, in the order of TITLES; validation and loading are not in it."""
    shown = {k: arrows[k] for k in TITLES if k in arrows}
    if "seconds_per_step" in shown:
        shown["seconds_per_step"] = [_milliseconds(a) for a in shown["seconds_per_step"]]
    chosen = [ArrowPanel(TITLES[k], every, log=True) for k, every in shown.items()]
    return arrow_plot(chosen, lanes, columns=3)


def _milliseconds(arrow: Arrow) -> Arrow:
    def scaled(time: Estimate | None) -> Estimate | None:
        return None if time is None else Estimate(1e3 * time.value, 1e3 * time.se)

    tail = scaled(arrow.bce)
    assert tail is not None
    return replace(arrow, bce=tail, asa=scaled(arrow.asa))
