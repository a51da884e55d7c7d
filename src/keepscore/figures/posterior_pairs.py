"""Posterior draws in pairs: marginals on the diagonal, 50% and 90% regions below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter

from keepscore.checks import Floats, as_floats
from keepscore.errors import ShapeError, unknown_name
from keepscore.figures.style import BLUE, RED, panels_in, styled

SHARES = (0.9, 0.5)


class Draws(Protocol):
    """What `ks.posterior` returns: an ArviZ object, of either generation."""

    def __getitem__(self, group: str, /) -> Any: ...


def pairs(
    draws: Draws | Mapping[str, ArrayLike],
    truth: Mapping[str, float] | ArrayLike | None = None,
    names: Sequence[str] | None = None,
    bins: int = 40,
    ax: Axes | None = None,
) -> Figure:
    """Draw a posterior, each parameter and each pair of parameters.

    Args:
        draws: What `ks.posterior` returned, or draws by name.
        truth: The true values by name, or (d,) in the order of the names; raw, as the draws are.
        names: Which variables; by default the model's own (raw) parameters.
        bins: Per side of a histogram.
        ax: Where to draw; the panels take the place of this Axes. None makes a new figure.

    Returns:
        The figure.

    Raises:
        ShapeError: The variables have different numbers of draws.
        UnknownNameError: A name that the draws do not have.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> rng = np.random.default_rng(0)
        >>> draws = {"lambda": rng.gamma(9, 0.1, 500), "mu": rng.gamma(4, 0.2, 500)}
        >>> figure = ks.figures.pairs(draws, truth={"lambda": 0.9, "mu": 0.8})
        >>> len([ax for ax in figure.axes if ax.get_visible()])
        3
    """
    values = _by_name(draws)
    chosen = _raw_names(tuple(values)) if names is None else tuple(names)
    for name in chosen:
        if name not in values:
            raise unknown_name("variable of these draws", name, tuple(values))
    columns = [as_floats(values[name], name).ravel() for name in chosen]
    counts = {name: len(column) for name, column in zip(chosen, columns, strict=True)}
    if len(set(counts.values())) != 1 or min(counts.values()) < 2:
        raise ShapeError(f"Variables need equally many draws, two or more; got {counts}.")
    mark = _marks(truth, chosen)
    d = len(chosen)
    with styled():
        figure, axs = panels_in(ax, d, d, width=2.1 + 1.0 / d, height=1.9 + 1.0 / d)
        for i in range(d):
            for j in range(d):
                _panel(axs[i * d + j], columns, i, j, bins, mark)
        for k in range(d):
            axs[(d - 1) * d + k].set_xlabel(chosen[k])
            if k > 0:
                axs[k * d].set_ylabel(chosen[k])
    return figure


def _panel(
    ax: Axes, columns: list[Floats], i: int, j: int, bins: int, mark: dict[int, float]
) -> None:
    if j > i:
        ax.set_visible(False)
        return
    if i == j:
        ax.hist(columns[i], bins=bins, density=True, color=BLUE, alpha=0.6)
        ax.set_yticks([])
    else:
        _regions(ax, columns[j], columns[i], bins)
    if j in mark:
        ax.axvline(mark[j], color=RED, linewidth=0.9)
    if i != j and i in mark:
        ax.axhline(mark[i], color=RED, linewidth=0.9)


def _regions(ax: Axes, x: Floats, y: Floats, bins: int) -> None:
    counts, x_edges, y_edges = np.histogram2d(x, y, bins=bins)
    smooth = gaussian_filter(counts, 1.0)
    ranked = np.sort(smooth.ravel())[::-1]
    mass = np.cumsum(ranked) / ranked.sum()
    # Lowest density inside the regions that hold 90% and 50% of the draws.
    cuts = [float(ranked[np.searchsorted(mass, share)]) for share in SHARES]
    centres = [(e[1:] + e[:-1]) / 2 for e in (x_edges, y_edges)]
    if cuts[0] < cuts[1]:
        levels = [*cuts, smooth.max() * 1.01]
        ax.contourf(*centres, smooth.T, levels=levels, colors=[BLUE, BLUE], alpha=0.45)
    else:
        ax.plot(x, y, ".", color=BLUE, markersize=1, alpha=0.4)


def _by_name(draws: Draws | Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    if isinstance(draws, Mapping) and "posterior" not in draws:
        return dict(draws)
    try:
        group: Any = draws["posterior"]  # InferenceData and DataTree alike
        return {str(name): np.asarray(group[name]) for name in group.data_vars}
    except (AttributeError, KeyError, TypeError):
        raise ShapeError(
            "draws must be what ks.posterior returned, or draws by name; "
            f"got {type(draws).__name__}."
        ) from None


def _raw_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Without the working parameters, whose names are made from the raw ones ("log lambda")."""

    def made_from(name: str, raw: str) -> bool:
        made = (f"log {raw}", f"log({raw} ", f"{raw} - ", f"{raw} + ")
        return name != raw and name.startswith(made)

    return tuple(n for n in names if not any(made_from(n, raw) for raw in names))


def _marks(
    truth: Mapping[str, float] | ArrayLike | None, names: tuple[str, ...]
) -> dict[int, float]:
    if truth is None:
        return {}
    if isinstance(truth, Mapping):
        for name in truth:
            if name not in names:
                raise unknown_name("variable in truth", name, names)
        return {names.index(name): float(value) for name, value in truth.items()}
    known = as_floats(truth, "truth")
    if known.shape != (len(names),):
        raise ShapeError(f"truth must have shape ({len(names)},); got {known.shape}.")
    return {k: float(value) for k, value in enumerate(known)}
