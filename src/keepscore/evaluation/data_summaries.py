"""Summaries of observations that a misfit would show in: moments, steps, trends, patches, pairs.

Each is a number per group of xs (g, n, *x_shape), computed over all its n observations. Which ones
there are follows from the shape of x and from what the model declares:

    every x            mean, sd, skewness, kurtosis, largest |x - mean| / sd
    0/1 only           mean alone of these
    n > 1              sd over the observations of their means
    each ordered axis  correlation of neighbours (lag 1), correlation with the place (trend)
    markov, 0/1        rates of 0 -> 1 and of 1 -> 0, and how much they change half way
    two axes           variance of means over 2 x 2 and 4 x 4 patches, as a share of the variance
    columns            spread of the correlations between columns (who goes with whom)
    few numbers        mean and sd of each entry

An axis whose rows are exchangeable ("iid") has no order: it gets neither lag nor trend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats

FEW = 8  # entries of x that are looked at one by one
TINY = 1e-300


def summaries(xs: NDArray[Any], structure: str | None) -> dict[str, Floats]:
    """Every summary that makes sense, by name: (g,) each. xs: (g, n, *x_shape)."""
    x = np.asarray(xs, dtype=np.float64)
    if np.isnan(x).any():
        return _with_holes(x, structure)
    axes = tuple(range(1, x.ndim))
    binary = bool(np.isin(x, (0.0, 1.0)).all())
    mean = x.mean(axis=axes)
    centred = x - mean.reshape(-1, *[1] * len(axes))
    sd = np.sqrt((centred**2).mean(axis=axes))
    found = {"mean": mean}
    if not binary:
        found["sd"] = sd
        found["skewness"] = (centred**3).mean(axis=axes) / np.maximum(sd**3, TINY)
        found["kurtosis"] = (centred**4).mean(axis=axes) / np.maximum(sd**4, TINY)
        found["largest deviation"] = np.abs(centred).max(axis=axes) / np.maximum(sd, TINY)
    inner = axes[1:]
    if x.shape[1] > 1:
        found["sd of the observations' means"] = x.mean(axis=inner).std(axis=1) if inner else sd
    for k, axis in enumerate(inner):
        ordered = not (structure == "iid" and k == 0)
        if ordered and x.shape[axis] > 2:
            where = f" along axis {k}" if len(inner) > 1 else ""
            found[f"correlation of neighbours{where}"] = _lag(centred, axis)
            found[f"trend{where}"] = _trend(centred, sd, axis)
    if structure == "markov" and binary and x.ndim == 4 and x.shape[2] > 3:
        found |= _rates(x)
    if x.ndim == 4 and structure != "markov":
        for side in (2, 4):
            if min(x.shape[2:]) >= 2 * side:
                found[f"variance of {side} x {side} patches"] = _patches(centred, sd, side)
    if x.ndim == 4 and structure in ("markov", None) and 2 < x.shape[3] <= 64:
        found["spread of correlations between columns"] = _pairs(x)
    if int(np.prod(x.shape[2:])) <= FEW and structure != "iid" and inner:
        for index in np.ndindex(*x.shape[2:]):
            entry = x[(slice(None), slice(None), *index)]
            name = f"x[{', '.join(map(str, index))}]"
            found[f"mean of {name}"] = entry.mean(axis=1)
            if x.shape[1] > 1 and not binary:
                found[f"sd of {name}"] = entry.std(axis=1)
    return found


def _with_holes(x: Floats, structure: str | None) -> dict[str, Floats]:
    """Summaries of what was observed: those that say the same whatever is missing."""
    axes = tuple(range(1, x.ndim))
    there = ~np.isnan(x)
    count = np.maximum(there.sum(axis=axes), 1)
    mean = np.where(there, x, 0.0).sum(axis=axes) / count
    centred = np.where(there, x - mean.reshape(-1, *[1] * len(axes)), 0.0)
    sd = np.sqrt((centred**2).sum(axis=axes) / count)
    found = {"mean": mean}
    if not np.isin(x[there], (0.0, 1.0)).all():
        found["sd"] = sd
        for name, power in (("skewness", 3), ("kurtosis", 4)):
            found[name] = (centred**power).sum(axis=axes) / count / np.maximum(sd**power, TINY)
    for k, axis in enumerate(axes[1:]):
        if x.shape[axis] > 2 and not (structure == "iid" and k == 0):
            where = f" along axis {k}" if x.ndim > 3 else ""
            before, after = slice(None, -1), slice(1, None)
            both = (_ends(there, axis, before) & _ends(there, axis, after)).sum(axis=axes)
            products = _ends(centred, axis, before) * _ends(centred, axis, after)
            mean_product = products.sum(axis=axes) / np.maximum(both, 1)
            found[f"correlation of neighbours{where}"] = mean_product / np.maximum(sd**2, TINY)
    return found


def _lag(centred: Floats, axis: int) -> Floats:
    """Correlation of neighbours along an axis, about the group's mean."""
    a, b = _ends(centred, axis, slice(None, -1)), _ends(centred, axis, slice(1, None))
    over = tuple(range(1, centred.ndim))
    return (a * b).sum(axis=over) / np.maximum((centred**2).sum(axis=over), TINY)


def _trend(centred: Floats, sd: Floats, axis: int) -> Floats:
    """Correlation of x with the place along an axis; its size, since trends of several observations
    may point either way."""
    place = np.linspace(-1, 1, centred.shape[axis])
    place = place / np.sqrt((place**2).mean())
    shape = [1] * centred.ndim
    shape[axis] = -1
    over = tuple(range(2, centred.ndim))
    slopes = (centred * place.reshape(shape)).mean(axis=over)  # one per observation
    return np.sqrt((slopes**2).mean(axis=1)) / np.maximum(sd, TINY)


def _rates(x: Floats) -> dict[str, Floats]:
    """Of 0/1 chains x (g, n, T, K): steps per step and person at risk, and their change."""
    now, then = x[:, :, :-1], x[:, :, 1:]
    over = (1, 2, 3)
    half = now.shape[2] // 2
    up, down = (1 - now) * then, now * (1 - then)

    def rate(steps: Floats, risk: Floats) -> Floats:
        return steps.sum(axis=over) / np.maximum(risk.sum(axis=over), 1.0)

    change_up = rate(up[:, :, half:], (1 - now)[:, :, half:]) - rate(
        up[:, :, :half], (1 - now)[:, :, :half]
    )
    change_down = rate(down[:, :, half:], now[:, :, half:]) - rate(
        down[:, :, :half], now[:, :, :half]
    )
    return {
        "rate of 0 to 1": rate(up, 1 - now),
        "rate of 1 to 0": rate(down, now),
        "change of the rate of 0 to 1": change_up,
        "change of the rate of 1 to 0": change_down,
    }


def _patches(centred: Floats, sd: Floats, side: int) -> Floats:
    """Variance of means over side x side patches of fields (g, n, a, b), over that of x."""
    g, n, a, b = centred.shape
    whole = centred[:, :, : a // side * side, : b // side * side]
    means = whole.reshape(g, n, a // side, side, b // side, side).mean(axis=(3, 5))
    return means.var(axis=(1, 2, 3)) / np.maximum(sd**2, TINY)


def _pairs(x: Floats) -> Floats:
    """Standard deviation, over pairs of columns of x (g, n, T, K), of their correlations."""
    columns = x.reshape(len(x), -1, x.shape[3])
    columns = columns - columns.mean(axis=1, keepdims=True)
    scale = np.sqrt((columns**2).sum(axis=1))
    products = np.einsum("gtk,gtj->gkj", columns, columns)
    correlations = products / np.maximum(scale[:, :, None] * scale[:, None, :], TINY)
    upper = np.triu_indices(x.shape[3], 1)
    return correlations[:, upper[0], upper[1]].std(axis=1)


def _ends(array: NDArray[Any], axis: int, part: slice) -> NDArray[Any]:
    index = [slice(None)] * array.ndim
    index[axis] = part
    return array[tuple(index)]
