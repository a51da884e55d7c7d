"""Example data: an epidemic on its graph, and fields at several length scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from keepscore.figures.style import GREY, INK, RED, panels, styled


def epidemic(example: Mapping[str, Any], shown: Sequence[int] = (0, 4, 8, 12)) -> Figure:
    """Graphs at some observation times above; below, who was infected when, and when we looked.

    example: positions (K, 2), weights (K, K), times (T,), observed (T, K), and for each node its
    first state and the times it changed.
    """
    positions = np.asarray(example["positions"], dtype=float)
    weights = np.asarray(example["weights"], dtype=float)
    times = np.asarray(example["times"], dtype=float)
    observed = np.asarray(example["observed"])
    places = [i for i in shown if i < len(times)]
    with styled():
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        grid = figure.add_gridspec(2, len(places), height_ratios=(1.1, 1.3))
        for k, i in enumerate(places):
            ax = figure.add_subplot(grid[0, k])
            _graph(ax, positions, weights, observed[i])
            ax.set_title(f"seen at t = {times[i]:g}")
        ax = figure.add_subplot(grid[1, :])
        _paths(ax, example["nodes"], times, observed)
    return figure


def _graph(ax: Axes, positions: Any, weights: Any, state: Any) -> None:
    largest = weights.max()
    for a in range(len(positions)):
        for b in range(a):
            share = weights[a, b] / largest
            ax.plot(
                *positions[[a, b]].T, color=GREY, linewidth=2.2 * share, alpha=0.25 + 0.6 * share
            )
    for node, (x, y) in enumerate(positions):
        ill = bool(state[node])
        ax.plot(x, y, "o", markersize=14, color=RED if ill else "white", markeredgecolor=INK)
        ax.annotate(
            str(node + 1),
            (x, y),
            ha="center",
            va="center",
            fontsize=7,
            color="white" if ill else INK,
            fontweight="bold" if ill else "normal",
        )
    ax.set_aspect("equal")
    ax.margins(0.15)
    ax.set_axis_off()


def _paths(ax: Axes, nodes: Sequence[Mapping[str, Any]], times: Any, observed: Any) -> None:
    end = float(times[-1])
    for row, node in enumerate(nodes):
        ax.plot([times[0], end], [row, row], color=GREY, linewidth=0.6)
        marks = [float(times[0]), *node["times"], end]
        state = int(node["start"])
        for a, b in pairwise(marks):
            if state:
                ax.plot([a, b], [row, row], color=RED, linewidth=5, solid_capstyle="butt")
            state = 1 - state
    for i, t in enumerate(times):
        ax.axvline(t, color=INK, linewidth=0.5, alpha=0.5)
        for row, ill in enumerate(observed[i]):
            face = RED if ill else "white"
            ax.plot(t, row, "o", color=face, markersize=4, markeredgecolor=INK)
    ax.set_yticks(range(len(nodes)), [str(k + 1) for k in range(len(nodes))])
    ax.set(xlabel="time; dots: what is observed, bars: infected, unseen in between", ylabel="node")
    ax.set_xlim(float(times[0]) - 0.2, end + 0.2)


def fields(images: Sequence[ArrayLike], titles: Sequence[str]) -> Figure:
    """Realisations side by side on one scale; x[i, j] is drawn at (s1[i], s2[j])."""
    arrays = [np.asarray(image, dtype=float) for image in images]
    reach = float(np.max([np.abs(a).max() for a in arrays]))
    with styled():
        figure, axs = panels(len(arrays), width=2.5, height=2.6)
        image: Any = None
        for ax, array, title in zip(axs, arrays, titles, strict=True):
            image = ax.imshow(
                array.T,
                origin="lower",
                extent=(-3, 3, -3, 3),
                cmap="PuOr",
                vmin=-reach,
                vmax=reach,
                interpolation="nearest",
            )
            ax.set(title=title, xlabel="$s_1$", xticks=(-3, 0, 3), yticks=(-3, 0, 3))
        axs[0].set_ylabel("$s_2$")
        figure.colorbar(image, ax=axs, shrink=0.85)
    return figure
