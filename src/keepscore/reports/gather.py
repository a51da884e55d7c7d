"""From likelihoods and data to the report's records: surfaces over a grid, pictures of examples."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import Floats, as_floats, as_theta
from keepscore.errors import DomainError, MismatchError, MissingError
from keepscore.likelihood import Likelihood
from keepscore.reports.content import Axis, Example, Group, Picture, Surface, Surfaces
from keepscore.space import Space

POINTS = {1: 201, 2: 41, 3: 21}  # per side: a page of a few hundred kilobytes


def grid_axes(space: Space, points: int | None = None) -> tuple[Axis, ...]:
    """The base box of a space of one to three parameters as axes, working and raw."""
    if space.d not in POINTS:
        raise DomainError(f"Surfaces are drawn for 1 to 3 parameters; this space has {space.d}.")
    count = POINTS[space.d] if points is None else points
    axes = np.linspace(space.lower, space.upper, count)
    raw = space.to_raw(axes)
    return tuple(
        Axis(space.working_names[k], axes[:, k], space.names[k], raw[:, k]) for k in range(space.d)
    )


def surfaces_from(
    likelihoods: Mapping[str, Likelihood],
    mles: Mapping[str, ArrayLike] | None = None,
    truths: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    level: float = 0.95,
    points: int | None = None,
    cuts: Mapping[str, float] | None = None,
) -> Surfaces:
    """Every method's log-likelihood of every group over one grid, each relative to its maximum.

    likelihoods: by method, of the same groups. mles: by method, working, (d,) or (g, d); where one
    is given, the maximum is the larger of its value and the grid's. cuts: by method, how far the
    log-likelihood may fall inside the set (calibrated); Wilks' otherwise.
    """
    if not likelihoods:
        raise MissingError("Surfaces need at least one likelihood.")
    first = next(iter(likelihoods.values()))
    for method, like in likelihoods.items():
        if (like.space, like.group_count) != (first.space, first.group_count):
            raise MismatchError(f"The likelihood {method!r} has another space or other groups.")
    d, g = first.space.d, first.group_count
    axes = grid_axes(first.space, points)
    nodes = first.space.grid([len(axis.values) for axis in axes])
    surfaces: list[list[Surface]] = [[] for _ in range(g)]
    for method, like in likelihoods.items():
        values = like.surface(nodes)
        peak = values.max(axis=1)
        found = None
        if mles is not None and method in mles:
            found = as_theta(np.atleast_2d(as_floats(mles[method], "mles")), d, "mles")
            peak = np.maximum(peak, like.paired(found))
        shaped = (values - peak[:, None]).reshape(g, *(len(axis.values) for axis in axes))
        for i in range(g):
            mle = None if found is None else tuple(found[i].tolist())
            surfaces[i].append(Surface(method, shaped[i], mle, (cuts or {}).get(method)))
    known = None if truths is None else np.atleast_2d(as_floats(truths, "truths"))
    groups = tuple(
        Group(
            names[i] if names is not None else f"group {i + 1}",
            tuple(surfaces[i]),
            None if known is None else tuple(known[i].tolist()),
        )
        for i in range(g)
    )
    return Surfaces(axes, groups, level)


def example_from(x: ArrayLike, structure: str | None, title: str, caption: str = "") -> Example:
    """One x as a picture: chains with time running right, fields with s1 right and s2 up."""
    array = as_floats(x, "x")
    if structure == "markov" and array.ndim == 2:
        return Example(title, array.T, "node", "time", caption)
    if structure in ("gaussian-field", "stationary-field") and array.ndim == 2:
        return Example(title, array.T[::-1], "s2", "s1", caption)
    if array.ndim > 2:
        array = array.reshape(len(array), -1)
    return Example(title, array, "", "index", caption)


def picture_from(figure: Any, title: str, alt: str, caption: str = "", dpi: int = 0) -> Picture:
    """A matplotlib Figure as a picture: SVG, or PNG where `dpi` is given (for dense figures)."""
    file = io.BytesIO()
    if dpi:
        figure.savefig(file, format="png", dpi=dpi, bbox_inches="tight")
        return Picture(title, base64.b64encode(file.getvalue()).decode(), "image/png", alt, caption)
    # Without a date the same figure gives the same bytes.
    figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    return Picture(title, file.getvalue().decode(), "image/svg+xml", alt, caption)


def rounded(values: Floats) -> list[Any]:
    """Nested lists for the page: hundredths near the peak, coarser far below, null for -inf."""
    fine = np.where(values > -10, np.round(values, 2), np.round(values, 1))
    coarse = np.where(values > -100, fine, np.round(values))
    return _plain(coarse.tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if not np.isfinite(value):
        return None
    return int(value) if value == int(value) else value
