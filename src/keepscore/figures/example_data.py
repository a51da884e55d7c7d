"""One data set as a picture: rows down and columns across for 2-D, a curve for 1-D."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from keepscore.checks import Floats
from keepscore.errors import ShapeError
from keepscore.figures.style import BLUE, RAMP, panels_in, styled

LIGHT_TO_DARK = LinearSegmentedColormap.from_list("keepscore", list(RAMP))
WIDEST = 2.7  # inches


def example(values: Floats, rows: str = "", columns: str = "", ax: Axes | None = None) -> Figure:
    """Draw one data set: a picture, lowest value light and highest dark, or a curve.

    Args:
        values: A 1-D or 2-D array.
        rows: What its rows are, in words.
        columns: What its columns are, in words.
        ax: Where to draw. None makes a new figure.

    Returns:
        The figure.

    Raises:
        ShapeError: An array of other dimensions.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> ks.figures.example(np.eye(4), rows="time", columns="person").axes[0].get_ylabel()
        'time'
    """
    if values.ndim not in (1, 2) or values.size == 0:
        raise ShapeError(f"A picture needs a 1-D or 2-D array; got shape {values.shape}.")
    with styled():
        if values.ndim == 1:
            figure, (ax,) = panels_in(ax, 1, width=3.1, height=1.6)
            ax.plot(values, color=BLUE, marker="." if len(values) <= 30 else "")
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            ax.yaxis.set_major_locator(MaxNLocator(4))
            ax.set(xlabel=columns, ylabel=rows)
            return figure
        cell = min(0.21, WIDEST / max(values.shape))
        figure, (ax,) = panels_in(
            ax, 1, width=cell * values.shape[1] + 0.5, height=cell * values.shape[0] + 0.4
        )
        ax.imshow(values, cmap=LIGHT_TO_DARK, interpolation="nearest", aspect="equal")
        ax.set(xticks=[], yticks=[], xlabel=columns, ylabel=rows)
        for side in ax.spines.values():
            side.set_visible(True)
    return figure
