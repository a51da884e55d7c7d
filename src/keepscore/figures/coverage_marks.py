"""Coverage by method: marks with whiskers of two standard errors, beside the nominal level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from keepscore.errors import MissingError
from keepscore.evaluation.estimate import Estimate
from keepscore.figures.style import EXACT, INK, method_styles, panels_in, plain, styled

# A title, the nominal level, and the coverage of each method.
Rows = Sequence[tuple[str, float, Mapping[str, Estimate]]]


def coverage(rows: Rows, ax: Axes | None = None) -> Figure:
    """Draw coverages by method: marks with whiskers of two standard errors.

    Args:
        rows: Per entry a title, the nominal level, and the coverage of each method with its
            standard error.
        ax: Where to draw. None makes a new figure.

    Returns:
        The figure.

    Raises:
        MissingError: There is no coverage to draw.

    Example:
        >>> import keepscore as ks
        >>> from keepscore.evaluation.estimate import Estimate
        >>> row = ("95% sets", 0.95, {"ASA": Estimate(0.93, 0.01), "exact": Estimate(0.95, 0.01)})
        >>> figure = ks.figures.coverage([row])
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['95% sets', 'ASA', 'Exact']
    """
    shown = [(t, n, {m: e for m, e in v.items() if math.isfinite(e.value)}) for t, n, v in rows]
    methods = [m for _, _, values in shown for m in values]
    if not methods:
        raise MissingError("There is no coverage to draw.")
    styles = method_styles(methods)
    names: list[str] = []
    lowest = min(
        [e.value - 2 * e.error for _, _, v in shown for e in v.values()] + [n for _, n, _ in shown]
    )
    count = len(methods) + len(shown)
    with styled():
        figure, (ax,) = panels_in(ax, 1, width=4.6, height=0.55 + 0.25 * count)
        for title, nominal, values in shown:
            top = len(names)
            names.append(title)
            for method, found in values.items():
                y, mine = len(names), styles[method]
                names.append("Exact" if method == EXACT else plain(method, 30))
                ends = (found.value - 2 * found.error, min(1.0, found.value + 2 * found.error))
                ax.plot(ends, [y, y], color=mine.colour, marker="|", markersize=7)
                ax.plot(found.value, y, mine.marker, color=mine.colour, markersize=7)
            ax.plot([nominal, nominal], [top + 0.4, len(names) - 0.6], color=INK, linestyle="--")
        ax.set_yticks(range(len(names)), names)
        ax.tick_params(axis="y", length=0)
        heads = {title for title, _, _ in shown}
        for label in ax.get_yticklabels():
            if label.get_text() in heads:
                label.set_fontweight("bold")
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.set_xlim(max(0.0, math.floor(20 * (lowest - 0.01)) / 20), 1.005)
        ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        ax.grid(axis="x", color="#e4e8ec")
        ax.set_axisbelow(True)
        ax.spines["left"].set_visible(False)
    return figure
