"""A scorecard as a picture: how inference with a surrogate differs from the exact likelihood's.

    ks.figures.scorecard(ks.scorecard(surrogate, model)).savefig("scorecard.png")

First row, over all groups: the null distribution of the likelihood-ratio statistic, and each
group's statistic beside its exact one. Then per parameter: how often 95% sets hold the truth along
it, and each group's estimate beside its exact one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from keepscore.errors import MissingError
from keepscore.evaluation.etest import ETest
from keepscore.evaluation.scorecard import Scorecard
from keepscore.figures.null_distribution import draw_null
from keepscore.figures.style import BLUE, DASHES, GREY, INK, panels_in, styled

EXACT: Any = {"color": INK, "linestyle": DASHES["exact"]}


def scorecard(card: Scorecard, ax: Axes | None = None) -> Figure:
    """Draw the E-test of a scorecard; the L-test is numbers only (`print(card)`).

    Args:
        card: What `ks.scorecard` returned.
        ax: Where to draw. The panels take the place of this Axes. None makes a new figure.

    Returns:
        The figure: null distribution and statistics; coverage; estimates.

    Raises:
        MissingError: The model has no likelihood, so there is no E-test.

    Example:
        >>> from types import SimpleNamespace
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.SIS(weights=np.ones((3, 3)), times=[0, 1, 2, 3])  # small
        >>> perfect = SimpleNamespace(  # stands for a trained surrogate here
        ...     space=model.space, log_ratio=model.log_prob, score=model.score, given=model.given
        ... )
        >>> figure = ks.figures.scorecard(ks.scorecard(perfect, model))
        >>> len(figure.axes) >= 3
        True
    """
    test = card.etest
    if test is None:
        raise MissingError(
            f"{card.model} has no likelihood, so its scorecard has no E-test to draw. "
            "Use ks.calibrate and ks.local_coverage, which need only the simulator."
        )
    d, names = test.space.d, test.space.working_names
    columns = max(2, d)
    with styled():
        figure, axs = panels_in(ax, columns, rows=3, width=2.9, height=2.6)
        for empty in (*axs[2:columns], *axs[columns + d : 2 * columns], *axs[2 * columns + d :]):
            empty.set_axis_off()
        _null(axs[0], test)
        _statistics(axs[1], test)
        for k in range(d):
            _coverage(axs[columns + k], test, k, names[k])
            _estimates(axs[2 * columns + k], test, k, names[k])
        coverage = axs[columns : columns + d]
        lowest = min(panel.get_ylim()[0] for panel in coverage)
        for panel in coverage:
            panel.set_ylim(lowest, 1.01)
        axs[columns].set_ylabel(f"coverage of {test.level:.0%} sets")
        axs[2 * columns].set_ylabel("estimate, surrogate")
        groups, points = test.surrogate.statistic.shape[1], len(test.theta)
        title = f"{card.model}: {groups} groups of {test.size} at each of {points} theta"
        if ax is None:
            figure.suptitle(title, fontsize=9.5)
        else:
            ax.set_title(title)
    return figure


def _null(ax: Axes, test: ETest) -> None:
    """Distributions of the statistic at the truth; chi-square is what Wilks' sets assume."""
    curves = [
        (test.exact.statistic, {**EXACT, "label": "exact"}),
        (test.surrogate.statistic, {"color": BLUE, "label": "surrogate"}),
    ]
    draw_null(ax, curves, test.space.d, test.level)
    ax.set(title="null distribution", xlabel="likelihood-ratio statistic")  # a narrow panel


def _statistics(ax: Axes, test: ETest) -> None:
    """Each group's statistic, surrogate against exact. Few that are far off do not set the axes."""
    exact, found = test.exact.statistic.ravel(), test.surrogate.statistic.ravel()
    critical = float(stats.chi2.ppf(test.level, test.space.d))
    limit = max(2 * critical, float(np.quantile(np.concatenate([exact, found]), 0.99)))
    beyond = int(((exact > limit) | (found > limit)).sum())
    ax.plot([0, limit], [0, limit], color=GREY, linewidth=0.8)
    ax.plot(exact, found, ".", color=BLUE, markersize=3, alpha=0.5)
    ax.axvline(critical, color=INK, linewidth=0.8)
    ax.axhline(critical, color=INK, linewidth=0.8)
    hidden = f" ({beyond} not shown)" if beyond else ""
    ax.set(xlim=(0, limit), ylim=(0, limit), title="statistic of each group")
    ax.set(xlabel=f"exact{hidden}", ylabel="surrogate")
    ax.locator_params(nbins=6)


def _coverage(ax: Axes, test: ETest, k: int, name: str) -> None:
    """Coverage at each grid value of one parameter, with one standard error."""
    raw = test.space.names[k]
    for exact, options in ((True, EXACT), (False, {"color": BLUE, "marker": "o"})):
        along = test.coverage_along(raw, exact=exact)
        values, estimates = [v for v, _ in along], [e for _, e in along]
        ax.errorbar(
            values,
            [e.value for e in estimates],
            [e.se for e in estimates],
            markersize=3.5,
            elinewidth=0.8,
            **options,
        )
    ax.axhline(test.level, color=GREY, linewidth=0.8)
    ax.set_xlabel(name)


def _estimates(ax: Axes, test: ETest, k: int, name: str) -> None:
    """Each group's estimate, surrogate against exact."""
    exact, found = test.exact.estimate[..., k].ravel(), test.surrogate.estimate[..., k].ravel()
    ends = [min(exact.min(), found.min()), max(exact.max(), found.max())]
    ax.plot(ends, ends, color=GREY, linewidth=0.8)
    ax.plot(exact, found, ".", color=BLUE, markersize=3, alpha=0.5)
    ax.set_xlabel(f"{name}, exact")
