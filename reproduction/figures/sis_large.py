"""Surrogates of a likelihood nobody can compute, side by side: losses, coverage, size, error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keepscore.evaluation import Estimate
from keepscore.figures.style import BLUE, GREY, INK, RED, panels, styled

# Panel title, metrics in it with their labels, and where a line belongs.
Panel = tuple[str, Mapping[str, str], float | None]
SETS = ("wilks", "calibrated")
PANELS: tuple[Panel, ...] = (
    ("test BCE", {"test BCE": ""}, None),
    ("joint-score loss", {"joint loss[lambda]": "λ"}, None),
    ("joint-score loss", {"joint loss[mu]": "μ"}, None),
    ("coverage of 95% sets", {f"coverage, {kind}": kind for kind in SETS}, 0.95),
    ("mean volume of sets", {f"volume, {kind}": kind for kind in SETS}, None),
    ("RMSE of the MLE", {"MLE error[lambda]": "λ", "MLE error[mu]": "μ"}, None),
)
LOOKS = {
    "bce": ("BCE", RED, "s"),
    "joint": ("ASA, joint scores", BLUE, "o"),
    "bce-more": ("BCE, 1.5 N (as much time)", GREY, "D"),
}


def sis_large(results: Mapping[str, Mapping[str, Estimate]]) -> Figure:
    """One panel per question, one mark per training ("bce", "joint", "bce-more"), with two standard
    errors."""
    with styled():
        figure, axes = panels(len(PANELS), width=1.75, height=2.7)
        for ax, (title, metrics, line) in zip(axes, PANELS, strict=True):
            _draw(ax, results, list(metrics.items()))
            ax.set_title(title)
            if line is not None:
                ax.axhline(line, color=INK, linewidth=0.8, linestyle=(0, (1, 1.2)))
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _draw(
    ax: Axes, results: Mapping[str, Mapping[str, Estimate]], metrics: Sequence[tuple[str, str]]
) -> None:
    for k, (training, found) in enumerate(results.items()):
        label, colour, marker = LOOKS[training]
        shift = 0.22 * (k - (len(results) - 1) / 2)
        values = [found[name] for name, _ in metrics]
        ax.errorbar(
            [place + shift for place in range(len(values))],
            [v.value for v in values],
            yerr=[2 * v.se for v in values],
            fmt=marker,
            color=colour,
            markersize=5,
            capsize=2,
            linewidth=1.0,
            label=label,
        )
    ax.set_xticks(range(len(metrics)), [short for _, short in metrics])
    ax.set_xlim(-0.6, len(metrics) - 0.4)
    ax.margins(y=0.15)
