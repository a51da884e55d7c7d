"""C2ST against the number of simulations, one panel per task, ours beside the published."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from keepscore.figures.style import BLUE, GREEN, RED, panels, short, styled

OURS = {
    "asa": ("ours, scores", BLUE, "o"),
    "bce": ("ours, BCE", RED, "s"),
    "rounds": ("ours, scores, four rounds", GREEN, "D"),
}
PUBLISHED = {
    "NRE": "dotted", "NPE": "dashed", "NLE": "dashdot",
    "SNRE": "dotted", "SNPE": "dashed", "SNLE": "dashdot",
}  # fmt: skip
GREYS = {"N": "0.45", "S": "0.75"}
COLUMNS = 5


def against_simulations(
    ours: Mapping[tuple[str, int, str], tuple[float, int]],
    published: Mapping[tuple[str, int, str], float],
) -> Figure:
    """ours: mean C2ST and number of values by (task, N, method); published: by (task, N,
    algorithm)."""
    tasks = sorted({task for task, _, _ in published})
    with styled():
        figure, axes = panels(COLUMNS, -(-len(tasks) // COLUMNS), width=2.1, height=1.9)
        for ax, task in zip(axes, tasks, strict=False):
            sizes = sorted({n for t, n, _ in published if t == task})
            for algorithm, dashes in PUBLISHED.items():
                known = [n for n in sizes if (task, n, algorithm) in published]
                values = [published[task, n, algorithm] for n in known]
                grey = GREYS["S" if algorithm.startswith("SN") else "N"]
                ax.plot(known, values, color=grey, linestyle=dashes, label=algorithm)
            for method, (label, colour, marker) in OURS.items():
                known = sorted(n for t, n, m in ours if (t, m) == (task, method))
                values = [ours[task, n, method][0] for n in known]
                ax.plot(known, values, marker=marker, color=colour, label=label, markersize=4.5)
            ax.axhline(0.5, color="0.9", zorder=0)
            ax.set_xscale("log")
            ax.set_xticks(sizes, [short(n) for n in sizes])
            ax.minorticks_off()
            ax.set(title=task.replace("_", " "), ylim=(0.45, 1.02), xlabel="simulations N")
        axes[0].set_ylabel("C2ST")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure
