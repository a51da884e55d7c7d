"""Likelihood surfaces side by side: BCE, ASA, exact, with the truth and every maximum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from keepscore.checks import Floats
from keepscore.figures.style import INK, RED, SKY, panels_in, styled

LEVELS = (0.5, 0.8, 0.95, 0.999)


@dataclass(frozen=True)
class SurfacePanel:
    """One likelihood for `ks.figures.surfaces`.

    Args:
        title: Of the panel.
        values: (n1, n2), the log-likelihood relative to its maximum.
        mle: (2,), where the maximum is.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> ks.figures.SurfacePanel("exact", np.zeros((3, 3)), (0.0, 0.0)).title
        'exact'
    """

    title: str
    values: ArrayLike
    mle: ArrayLike


def surfaces(
    panels_: Sequence[SurfacePanel],
    axes: Sequence[ArrayLike],
    names: Sequence[str],
    truth: ArrayLike | None = None,
    exact_mle: ArrayLike | None = None,
    fixed: Mapping[str, float] | None = None,
    held: str = "its true value",
    ax: Axes | None = None,
) -> Figure:
    """Draw one panel per likelihood on the same axes and the same scale; contours bound Wilks sets.

    Args:
        panels_: The likelihoods.
        axes: The grid along the first and the second parameter.
        names: Of the two parameters.
        truth: The true values (2,), where they are known.
        exact_mle: The maximum of the exact likelihood (2,), marked in every panel.
        fixed: Working values of parameters that are not on the axes, by name.
        held: What those values are, in words.
        ax: Where to draw; the panels take the place of this Axes. None makes a new figure.

    Returns:
        The figure.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> axis = np.linspace(-1, 1, 21)
        >>> values = -5 * (axis[:, None] ** 2 + axis**2)
        >>> panel = ks.figures.SurfacePanel("exact", values, (0.0, 0.0))
        >>> figure = ks.figures.surfaces([panel], (axis, axis), ("a", "b"), truth=(0.1, 0.0))
        >>> figure.axes[0].get_title()
        'exact'
    """
    first, second = (np.asarray(a, dtype=float) for a in axes)
    deepest = 3 * float(stats.chi2.ppf(LEVELS[-1], 2))
    near = np.min([-2 * np.asarray(p.values, dtype=float).T for p in panels_], axis=0) < deepest
    with styled():
        figure, axs = panels_in(ax, len(panels_), width=2.9, height=3.1)
        image: Any = None
        for place, panel in zip(axs, panels_, strict=True):
            statistic = -2 * np.asarray(panel.values, dtype=float)
            image = draw_statistic(place, first, second, statistic, LEVELS, deepest)
            if exact_mle is not None:
                star: Any = {"color": SKY, "markersize": 13, "markeredgecolor": INK}
                place.plot(*np.asarray(exact_mle), "*", **star)
            at = np.asarray(panel.mle)
            place.plot(*at, "o", color="white", markersize=6, markeredgecolor=INK)
            if truth is not None:
                cross: Any = {"color": RED, "markersize": 8, "markeredgecolor": "white"}
                place.plot(*np.asarray(truth), "X", **cross)
            place.set(title=panel.title, xlabel=names[0])
            place.set(xlim=_of_interest(first, near.any(axis=0)))
            place.set(ylim=_of_interest(second, near.any(axis=1)))
        axs[0].set_ylabel(names[1])
        figure.colorbar(image, ax=axs, label="2 (max - log-likelihood)", extend="max", shrink=0.9)
        if ax is None:
            figure.legend(handles=_markers(truth, exact_mle), loc="outside lower center", ncols=3)
        else:
            axs[0].legend(handles=_markers(truth, exact_mle), loc="best")
        if fixed:
            values = ", ".join(f"{name} = {value:g}" for name, value in fixed.items())
            title = f"held at {held}: {values}"
            if ax is None:
                figure.suptitle(title, fontsize=8)
            else:
                ax.set_title(title, fontsize=8)
    return figure


def draw_statistic(
    ax: Axes,
    first: Floats,
    second: Floats,
    statistic: Floats,
    levels: Sequence[float],
    deepest: float,
) -> Any:
    """Into one panel: 2 (max - l) on a grid (n1, n2) with Wilks' contours; returns the image.

    Beyond `deepest` the depth says nothing more; what is not finite is as deep as that.
    """
    cuts = [float(stats.chi2.ppf(p, 2)) for p in levels]
    known = np.where(np.isfinite(statistic), statistic, deepest)
    shown = np.clip(known, 0, deepest).T
    image = ax.pcolormesh(
        first, second, shown, cmap="cividis_r", shading="nearest", vmin=0, vmax=deepest,
        rasterized=True,
    )  # fmt: skip
    if shown.min() < cuts[-1] and shown.max() > cuts[0]:
        lines = ax.contour(first, second, shown, levels=cuts, colors=INK, linewidths=0.7)
        labels = {c: f"{p:.1%}".replace(".0%", "%") for c, p in zip(cuts, levels, strict=True)}
        ax.clabel(lines, fmt=labels, fontsize=6)
    return image


def _of_interest(axis: Floats, near: NDArray[np.bool_]) -> tuple[float, float]:
    """The part of an axis where some surface is not at its deepest colour, with a little room."""
    places = np.flatnonzero(near)
    step = (axis[-1] - axis[0]) / (len(axis) - 1)
    low, high = axis[places[[0, -1]]] if len(places) else axis[[0, -1]]
    return max(axis[0], low - 2 * step) - step / 2, min(axis[-1], high + 2 * step) + step / 2


def _markers(truth: ArrayLike | None, exact_mle: ArrayLike | None) -> list[object]:
    from matplotlib.lines import Line2D

    def mark(symbol: str, colour: str, size: float, label: str) -> Line2D:
        return Line2D(
            [],
            [],
            linestyle="none",
            marker=symbol,
            color=colour,
            markersize=size,
            markeredgecolor=INK,
            label=label,
        )

    handles: list[object] = [mark("o", "white", 6, "maximum of this surface")]
    if exact_mle is not None:
        handles.append(mark("*", SKY, 11, "maximum of the exact likelihood"))
    if truth is not None:
        handles.append(mark("X", RED, 8, "truth"))
    return handles
