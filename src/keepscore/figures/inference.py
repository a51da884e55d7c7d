"""Figures of inference: a likelihood surface with its set, profile curves, a posterior in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy import stats

from keepscore.checks import Floats, as_floats
from keepscore.errors import ShapeError


def likelihood_surface(
    axes: Sequence[ArrayLike],
    log_likelihood: ArrayLike,
    names: Sequence[str],
    points: Mapping[str, ArrayLike] | None = None,
    levels: Sequence[float] = (0.5, 0.8, 0.95),
    inside: ArrayLike | None = None,
) -> Figure:
    """Lambda = 2 (max - l) over two parameters, with Wilks contours, points and a set.

    axes: the grid's two axes; log_likelihood: (n1, n2), first parameter along rows. points: label
    -> (2,), e.g. {"MLE": ..., "truth": ...}. inside: a set's membership on that grid, hatched.
    """
    first, second = (as_floats(a, "axes") for a in axes)
    values = as_floats(log_likelihood, "log_likelihood")
    if values.shape != (len(first), len(second)):
        raise ShapeError(
            f"log_likelihood must have shape ({len(first)}, {len(second)}) for these axes; "
            f"got {values.shape}."
        )
    statistic = 2 * (np.nanmax(values[np.isfinite(values)]) - values)
    figure, ax = plt.subplots(figsize=(5.6, 4.4), layout="constrained")
    # The far tails would use up all colours; they say no more than "far".
    limit = 4 * stats.chi2.ppf(0.95, 2)
    shown = np.where(np.isfinite(statistic), np.minimum(statistic, limit), limit)
    image = ax.pcolormesh(first, second, shown.T, cmap="viridis_r", shading="nearest")
    figure.colorbar(image, ax=ax, label="2 (max log-likelihood - log-likelihood)", extend="max")
    drawn = ax.contour(
        first, second, shown.T, levels=[stats.chi2.ppf(v, 2) for v in levels], colors="black",
        linewidths=0.8,
    )  # fmt: skip
    labels = {value: f"{p:.0%}" for value, p in zip(drawn.levels, levels, strict=True)}
    ax.clabel(drawn, fmt=labels, fontsize=8)
    if inside is not None:
        member = np.asarray(inside, dtype=float)
        if member.shape != values.shape:
            raise ShapeError(f"inside must have shape {values.shape}; got {member.shape}.")
        ax.contourf(first, second, member.T, levels=[0.5, 1.5], colors="none", hatches=["////"])
    for (label, point), marker in zip((points or {}).items(), "o*XPDs", strict=False):
        x, y = as_floats(point, label)
        ax.plot(x, y, marker, label=label, markersize=9, markeredgecolor="white", clip_on=False)
    if points:
        ax.legend(loc="best", fontsize=8)
    ax.set(xlabel=names[0], ylabel=names[1])
    return figure


def profile_curves(
    values: Sequence[ArrayLike],
    statistics: Sequence[ArrayLike],
    names: Sequence[str],
    intervals: ArrayLike | None = None,
    level: float = 0.95,
) -> Figure:
    """Profile statistics Lambda_k(t), one panel a parameter, with the chi-square cut and interval.

    values[k] (m,) and statistics[k] (m,), or (curves, m) for several curves; intervals (k, 2).
    """
    if not len(values) == len(statistics) == len(names):
        raise ShapeError(
            f"One curve a parameter: got {len(values)} values, {len(statistics)} statistics, "
            f"{len(names)} names."
        )
    cut = stats.chi2.ppf(level, 1)
    figure, panels = plt.subplots(
        1, len(names), figsize=(3.2 * len(names), 2.8), squeeze=False, layout="constrained"
    )
    for k, ax in enumerate(panels[0]):
        curves = np.atleast_2d(as_floats(statistics[k], "statistics"))
        for curve in curves:
            ax.plot(as_floats(values[k], "values"), curve, color="C0")
        ax.axhline(cut, color="grey", linestyle="--", linewidth=0.8)
        ax.annotate(f"{level:.0%}", (0.02, cut), (0, 2), ("axes fraction", "data"),
                    textcoords="offset points", fontsize=8, color="grey")  # fmt: skip
        if intervals is not None:
            ax.axvspan(*as_floats(intervals, "intervals")[k], color="C0", alpha=0.15)
        ax.set(xlabel=names[k], ylim=(0, 4 * cut))
    panels[0][0].set_ylabel("profile likelihood ratio")
    return figure


def pair_plot(
    draws: ArrayLike, names: Sequence[str], truth: ArrayLike | None = None, bins: int = 40
) -> Figure:
    """Posterior draws (n, d): marginals on the diagonal, 50% and 90% regions below it."""
    sample = as_floats(draws, "draws")
    d = len(names)
    if sample.ndim != 2 or sample.shape[1] != d or len(sample) < 2:
        raise ShapeError(f"draws must have shape (n, {d}), n at least 2; got {sample.shape}.")
    mark = None if truth is None else as_floats(truth, "truth")
    figure, panels = plt.subplots(
        d, d, figsize=(1.0 + 2.1 * d, 1.0 + 1.9 * d), squeeze=False, layout="constrained"
    )
    for i in range(d):
        for j in range(d):
            ax = panels[i][j]
            if j > i:
                ax.set_visible(False)
                continue
            if i == j:
                ax.hist(sample[:, i], bins=bins, density=True, color="C0", alpha=0.6)
                ax.set_yticks([])
            else:
                _density_pair(ax, sample[:, j], sample[:, i], bins)
            if mark is not None:
                ax.axvline(mark[j], color="C3", linewidth=0.9)
                if i != j:
                    ax.axhline(mark[i], color="C3", linewidth=0.9)
            if i == d - 1:
                ax.set_xlabel(names[j])
            if j == 0 and i > 0:
                ax.set_ylabel(names[i])
    return figure


def _density_pair(ax: Axes, x: Floats, y: Floats, bins: int) -> None:
    from scipy.ndimage import gaussian_filter

    counts, x_edges, y_edges = np.histogram2d(x, y, bins=bins)
    smooth = gaussian_filter(counts, 1.0)
    ranked = np.sort(smooth.ravel())[::-1]
    mass = np.cumsum(ranked) / ranked.sum()
    # Lowest density inside the regions that hold 90% and 50% of the draws.
    cuts = [float(ranked[np.searchsorted(mass, share)]) for share in (0.9, 0.5)]
    centres = [(e[1:] + e[:-1]) / 2 for e in (x_edges, y_edges)]
    if cuts[0] < cuts[1]:
        ax.contourf(*centres, smooth.T, levels=[*cuts, smooth.max() * 1.01],
                    colors=["C0", "C0"], alpha=0.45)  # fmt: skip
    else:
        ax.plot(x, y, ".", markersize=1, alpha=0.4)
