"""A likelihood over two parameters, with its maximum, Wilks' sets and the set that was computed.

    ks.figures.surface(like)                              Lambda = 2 (l_max - l), Wilks' contours
    ks.figures.surface(ks.confidence_set(like))           the same, with that set hatched
    ks.figures.surface({"ASA": like, "exact": exact})     side by side, on one scale

Other parameters are held at the estimate of the first likelihood, in every panel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from keepscore.checks import Floats, as_floats, require_count
from keepscore.errors import DomainError, MismatchError, MissingError, ShapeError
from keepscore.figures.style import EXACT, RED, panels_in, styled
from keepscore.figures.surface_panels import SurfacePanel, draw_statistic, surfaces
from keepscore.inference.confidence import ConfidenceSet
from keepscore.inference.mle import mle
from keepscore.inference.statistic import drop
from keepscore.likelihood import Likelihood
from keepscore.space import tensor_grid

LEVELS = (0.5, 0.8, 0.95)
DEEPEST = 4 * 5.991  # four times the 95% quantile: the far tails say no more than "far"


def surface(
    found: Likelihood | ConfidenceSet | Mapping[str, Likelihood],
    truth: ArrayLike | None = None,
    parameters: Sequence[str] | None = None,
    points: int = 61,
    ax: Axes | None = None,
) -> Figure:
    """Draw the likelihood of one group over two parameters.

    Args:
        found: What `given` returned, what `ks.confidence_set` returned, or several likelihoods
            of the same data by name, which are drawn side by side.
        truth: The true working parameters (d,), where they are known.
        parameters: Names of the two parameters; the first two by default. Others are held at
            their estimates.
        points: Grid points per side.
        ax: Where to draw; several likelihoods take the place of this Axes. None makes a new
            figure.

    Returns:
        The figure.

    Raises:
        DomainError: The likelihood is of many groups, or has one parameter only.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(6, 6))
        >>> theta = np.mean(model.space.box("base"), axis=0)
        >>> xs = model.simulate(np.tile(theta, (5, 1)), np.random.default_rng(0))
        >>> figure = ks.figures.surface(model.given(xs), truth=theta, points=15)
        >>> figure.axes[0].get_xlabel()
        'log l_x'
    """
    points = require_count(points, "points", minimum=3)
    if isinstance(found, Mapping):
        return _side_by_side(found, truth, parameters, points, ax)
    chosen = found if isinstance(found, ConfidenceSet) else None
    like = found.like if isinstance(found, ConfidenceSet) else found
    pair = _pair(like, parameters)
    space, best = like.space, mle(like)
    axes, nodes = _grid(like, pair, best.estimate, points)
    values = np.asarray(like(nodes), dtype=float)
    peak = max(float(best.log_likelihood), float(np.nanmax(values)))
    statistic = drop(peak, values).reshape(points, points)
    raw = ", ".join(f"{name} = {best.raw[k]:.3g}" for k, name in enumerate(space.names))
    with styled():
        figure, (ax,) = panels_in(ax, 1, width=5.6, height=4.4)
        image = draw_statistic(ax, axes[0], axes[1], statistic, LEVELS, DEEPEST)
        figure.colorbar(image, ax=ax, label="2 (max - log-likelihood)", extend="max")
        title = "Lines: Wilks' sets"
        if chosen is not None:
            inside = _members(chosen, nodes).reshape(points, points)
            ax.contourf(*axes, inside.T, levels=[0.5, 1.5], colors="none", hatches=["////"])
            title = f"Hatched: the {100 * chosen.level:g}% set ({chosen.method}). {title}"
        if space.d > 2:
            title += "; other parameters at their estimates"
        mark: Any = {"markersize": 8, "markeredgecolor": "black", "clip_on": False}
        at = best.estimate[list(pair)]
        ax.plot(*at, "o", color="white", label=f"estimate: {raw}", **mark)
        if truth is not None:
            ax.plot(*true_values(truth, space.d)[list(pair)], "X", color=RED, label="truth", **mark)
        ax.legend(loc="best")
        ax.set_title(title, fontsize=9)
        ax.set(xlabel=space.working_names[pair[0]], ylabel=space.working_names[pair[1]])
    return figure


def _side_by_side(
    found: Mapping[str, Likelihood],
    truth: ArrayLike | None,
    parameters: Sequence[str] | None,
    points: int,
    ax: Axes | None,
) -> Figure:
    if not found:
        raise MissingError("At least one likelihood is needed to draw.")
    first = next(iter(found.values()))
    pair, estimates = _pair(first, parameters), {}
    for name, like in found.items():
        _pair(like, parameters)
        if like.space != first.space:
            raise MismatchError(f"The likelihood {name!r} has another space than the first.")
        estimates[name] = mle(like)
    held = estimates[next(iter(found))].estimate
    axes, nodes = _grid(first, pair, held, points)
    chosen = []
    for name, like in found.items():
        values = np.asarray(like(nodes), dtype=float)
        # With other parameters held, the panel is relative to the best it shows.
        peak = np.nanmax(values)
        if first.space.d == 2:
            peak = max(peak, float(estimates[name].log_likelihood))
        at = estimates[name].estimate[list(pair)]
        chosen.append(SurfacePanel(name, (values - peak).reshape(points, points), at))
    others = [k for k in range(first.space.d) if k not in pair]
    fixed = {first.space.working_names[k]: float(held[k]) for k in others}
    names = [first.space.working_names[k] for k in pair]
    known = None if truth is None else true_values(truth, first.space.d)[list(pair)]
    exact = estimates[EXACT].estimate[list(pair)] if EXACT in estimates else None
    return surfaces(chosen, axes, names, known, exact, fixed, held="its estimate", ax=ax)


def _pair(like: Likelihood, parameters: Sequence[str] | None) -> tuple[int, int]:
    """The places of the two parameters, of a likelihood that can be drawn."""
    if not isinstance(like, Likelihood):
        raise DomainError(
            "ks.figures.surface draws a likelihood (surrogate.given(xs), model.given(xs)) or a "
            f"confidence set; got {type(like).__name__}."
        )
    if like.group_count != 1:
        raise DomainError(
            f"One group is drawn at a time; this likelihood has {like.group_count}. Pass the "
            "observations of one group to given(xs)."
        )
    if like.space.d < 2:
        raise DomainError("One parameter makes a curve, not a surface: use ks.figures.profile.")
    names = like.space.names[:2] if parameters is None else tuple(parameters)
    if len(set(names)) != 2:
        raise ShapeError(f"A surface is over two parameters; got {list(names)}.")
    first, second = (like.space.index(name) for name in names)
    return first, second


def _grid(
    like: Likelihood, pair: tuple[int, int], held: Floats, points: int
) -> tuple[list[Floats], Floats]:
    space = like.space
    axes = [np.linspace(space.lower[k], space.upper[k], points) for k in pair]
    nodes = np.tile(held, (points**2, 1))
    nodes[:, pair] = tensor_grid(axes)
    return axes, nodes


def _members(chosen: ConfidenceSet, nodes: Floats) -> Floats:
    """Membership of the nodes, 0 or 1; a set of some parameters looks at those alone."""
    index = [chosen.like.space.index(name) for name in chosen.parameters]
    return np.asarray(chosen.contains(nodes[:, index]), dtype=float)


def true_values(truth: ArrayLike, d: int) -> Floats:
    """The true working parameters, (d,)."""
    known = as_floats(truth, "truth")
    if known.shape != (d,):
        raise ShapeError(f"truth must have shape ({d},), working parameters; got {known.shape}.")
    return known
