"""Profile likelihood-ratio statistics, one panel per parameter.

    Lambda_k(t) = 2 (l_max - max of l with theta_k = t)

with the level's chi-square quantile (1 degree of freedom) and the interval that lies below it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy import stats

from keepscore.checks import Floats, require_count
from keepscore.errors import DomainError
from keepscore.figures.likelihood_surface import true_values
from keepscore.figures.style import BLUE, GREY, RED, panels_in, styled
from keepscore.inference import confidence_set, lrt
from keepscore.inference.confidence import ConfidenceSet
from keepscore.likelihood import Likelihood

COLUMNS = 3  # panels side by side, at most


def profile(
    found: Likelihood | ConfidenceSet,
    level: float = 0.95,
    truth: ArrayLike | None = None,
    parameters: Sequence[str] | None = None,
    points: int = 25,
    ax: Axes | None = None,
) -> Figure:
    """Draw the profile statistic of each parameter with its interval.

    Args:
        found: What `given` returned, or what `ks.confidence_set` returned; then its level and
            its intervals are drawn.
        level: Of the intervals, where a likelihood is given.
        truth: The true working parameters (d,), where they are known.
        parameters: Names of the parameters to draw; all by default.
        points: Profiles computed per parameter.
        ax: Where to draw; several panels take the place of this Axes. None makes a new figure.

    Returns:
        The figure.

    Raises:
        DomainError: The likelihood is of many groups.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(6, 6))
        >>> theta = np.mean(model.space.box("base"), axis=0)
        >>> xs = model.simulate(np.tile(theta, (5, 1)), np.random.default_rng(0))
        >>> figure = ks.figures.profile(model.given(xs), parameters=["eps"], points=7)
        >>> figure.axes[0].get_xlabel()
        'log eps'
    """
    points = require_count(points, "points", minimum=3)
    like = found.like if isinstance(found, ConfidenceSet) else found
    if not isinstance(like, Likelihood) or like.group_count != 1:
        what = f"{like.group_count} groups" if isinstance(like, Likelihood) else type(like).__name__
        raise DomainError(
            f"ks.figures.profile draws a likelihood or a confidence set of one group; got {what}."
        )
    chosen = found if isinstance(found, ConfidenceSet) else confidence_set(like, level)
    intervals, space = chosen.intervals, like.space
    names = intervals.names if parameters is None else tuple(parameters)
    known = None if truth is None else true_values(truth, space.d)
    cut = float(stats.chi2.ppf(chosen.level, 1))
    columns = min(COLUMNS, len(names))
    with styled():
        figure, axs = panels_in(ax, columns, -(-len(names) // columns), width=3.2, height=2.8)
        for empty in axs[len(names) :]:
            empty.set_axis_off()
        for k, (place, name) in enumerate(zip(axs, names, strict=False)):
            j = space.index(name)
            ends = intervals.working[intervals.names.index(name)]
            values = _around(ends, space.lower[j], space.upper[j], points)
            place.plot(values, profile_statistics(like, name, values), color=BLUE)
            place.axvspan(*ends, color=BLUE, alpha=0.15, linewidth=0)
            place.axhline(cut, color=GREY, linestyle="--", linewidth=0.8)
            place.annotate(
                f"{100 * chosen.level:g}%", (0.02, cut), (0, 2), ("axes fraction", "data"),
                textcoords="offset points", fontsize=8, color=GREY,
            )  # fmt: skip
            if known is not None:
                place.axvline(known[j], color=RED, linewidth=1.0)
            place.set(xlabel=space.working_names[j], ylim=(0, 4 * cut))
            if k % columns == 0:
                place.set_ylabel("profile likelihood ratio")
            if k == 0:
                kind = f"shaded: {intervals.kind} interval, {chosen.method}"
                place.set_title(kind + ("; red: truth" if known is not None else ""), fontsize=8)
    return figure


def profile_statistics(like: Likelihood, name: str, values: Floats) -> Floats:
    """Lambda_k at working values (m,) of one parameter, the others maximised over."""
    found = [lrt(like, {name: float(value)}, parameters=[name]).statistic for value in values]
    return np.asarray(found, dtype=float)


def _around(ends: Floats, low: float, high: float, points: int) -> Floats:
    """Values over the interval and half its width on either side, within the box."""
    width = max(float(ends[1] - ends[0]), 1e-3 * (high - low))
    return np.linspace(max(low, ends[0] - width / 2), min(high, ends[1] + width / 2), points)
