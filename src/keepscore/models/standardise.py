"""Raw fields in units that a model is written in, and the way back.

A raw field y (H, W), in metres, say, becomes x = r(y) / c: r takes a trend off by least squares
(`trend`), c is the root mean square of what is left. Both are undone exactly:

    y = c x + (the trend that was taken off)
    sigma2 of y = c^2 sigma2 of x,     eps of y = c eps of x,     lengths of y: in units of pixels

Dividing by c is a change of units. With sigma2 and eps both free, the likelihood of y at
(l, c^2 sigma2, c eps) is that of x at (l, sigma2, eps) up to a constant, whatever c is; so c may
be taken from the data. With sigma2 fixed it may not: c would pretend to know the variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import (
    Floats,
    as_floats,
    as_number,
    as_real,
    require_choice,
    require_parts,
    require_values,
)
from keepscore.errors import DomainError, ShapeError
from keepscore.models.base import Model
from keepscore.models.trend import Trend, as_trend

SCALES = ("all", "each")
# Of the spread of the raw values: what is left after the trend must be more than rounding.
FLAT = 1e-10


@final
@dataclass(frozen=True, eq=False)
class Standardised:
    """What `ks.standardise` made of raw fields, and how to read results in raw units.

    Args:
        x: (n, H, W), for `surrogate.given`, `model.given` and `ks.check_data`.
        scale: (n,), what each field was divided by.
        removed: (n, H, W), the trend that was taken off, in raw units.
        trend: As a model takes it: `GaussianField(..., trend=standardised.trend)`; None if nothing
            was taken off.
        spacing: Distance between two pixels along each axis, in the units of the user.
    """

    x: Floats
    scale: Floats
    removed: Floats
    trend: str | Floats | None
    spacing: tuple[float, float]

    def restore(self, x: ArrayLike | None = None) -> Floats:
        """Raw fields again: of these x, or of others in their places (n, H, W)."""
        values = self.x if x is None else as_floats(x, "x")
        if values.shape != self.x.shape:
            raise ShapeError(f"x must have the shape {self.x.shape}; got {values.shape}.")
        return values * self.scale[:, None, None] + self.removed

    def raw_parameters(self, model: Model, theta: ArrayLike) -> dict[str, Floats]:
        """Parameters of a field in raw units, by name, (n,) each.

        Args:
            model: The field model, on the grid of x.
            theta: (n, d) or (d,), working parameters, one row per field or one for all.

        Returns:
            l_x and l_y in the units of `spacing`, eps in those of the data, sigma2 in their square,
            nu as it is; free and fixed ones alike.
        """
        require_parts(model, "model", "space", "x_shape", "extent")
        if tuple(model.x_shape) != self.x.shape[1:]:
            raise ShapeError(
                f"The model has fields {tuple(model.x_shape)}; these are {self.x.shape[1:]}."
            )
        n, d = len(self.x), model.space.d
        rows = as_floats(theta, "theta")
        if rows.shape not in ((d,), (n, d)):
            raise ShapeError(f"theta must be ({d},) or ({n}, {d}); got {rows.shape}.")
        raw = model.space.to_raw(np.broadcast_to(rows, (n, d)))
        values = {name: np.full(n, float(v)) for name, v in model.space.fixed.items()}
        values |= {name: raw[:, k].copy() for k, name in enumerate(model.space.names)}
        extents = model.extent  # type: ignore[attr-defined]
        for name, extent, side, step in zip(
            ("l_x", "l_y"), extents, model.x_shape, self.spacing, strict=True
        ):
            if name in values and side > 1:
                values[name] *= step * (side - 1) / (2.0 * extent)
        for name, power in (("eps", 1), ("sigma2", 2)):
            if name in values:
                values[name] *= self.scale**power
        return values


def standardise(
    raw: ArrayLike,
    trend: str | ArrayLike | None = "linear",
    *,
    scale: str | float = "all",
    spacing: float | tuple[float, float] = 1.0,
) -> Standardised:
    """Raw fields with a trend taken off and divided by their scale, ready for a field model.

    Use it with a model that knows what was done: the same `trend`, and sigma2 (and eps) among its
    free parameters.

    Args:
        raw: (H, W) or (n, H, W), in any units; NaN where nothing was observed.
        trend: What to take off each field by least squares: "constant", "linear", covariates
            (H, W, p), or None.
        scale: "all": one number for all fields, the root mean square of what is left (they are then
            comparable, as observations of one system must be); "each": one per field (each with
            parameters of its own); or a number of yours.
        spacing: Distance between pixels, one number or one per axis, for lengths in raw units.

    Returns:
        A `Standardised`: `x`, what was done, and the way back (`restore`, `raw_parameters`).

    Raises:
        ShapeError: Not fields.
        DomainError: A field that is flat, infinite or nowhere observed, or that the trend explains.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> rows, columns = np.indices((6, 6))
        >>> raw = 300 + 4 * rows + np.random.default_rng(0).normal(0, 50, (6, 6))
        >>> fields = ks.standardise(raw, spacing=30)
        >>> fields.x.shape, bool(np.isclose(fields.x.std(), 1))
        ((1, 6, 6), True)
        >>> np.allclose(fields.restore()[0], raw)
        True
        >>> parameter = ks.Parameter
        >>> space = ks.Space([parameter("l_x", -1, 1), parameter("l_y", -1, 1),
        ...                   parameter("eps", -3, 0), parameter("sigma2", -2, 2)])
        >>> model = ks.models.GaussianField(shape=(6, 6), trend=fields.trend, space=space)
        >>> found = fields.raw_parameters(model, np.zeros(4))
        >>> round(float(found["l_x"][0]), 6)  # 1 of 6 units over 5 steps of 30
        25.0
    """
    values = as_real(raw, "raw fields")
    if values.ndim == 2:
        values = values[None]
    if values.ndim != 3 or 0 in values.shape:
        raise ShapeError(f"Raw fields must be (H, W) or (n, H, W); got {np.shape(raw)}.")
    fields = values.astype(np.float64)
    require_values(fields, "raw fields", missing=True)
    there = ~np.isnan(fields)
    if not there.any(axis=(1, 2)).all():
        k = int(np.argmin(there.any(axis=(1, 2))))
        raise DomainError(f"Field {k} has no observed pixel.")
    steps = _spacing(spacing)
    found = as_trend(trend, fields.shape[1:])
    left = fields if found is None else found.take_off(fields)
    each = np.sqrt(_mean_square(left, there))
    _require_more_than_trend(fields, there, each, found)
    scales = _scales(scale, left, there, each)
    return Standardised(
        left / scales[:, None, None],
        scales,
        np.where(there, fields - left, _filled_trend(found, fields, left)),
        None if found is None else found.kind if found.covariates is None else found.covariates,
        steps,
    )


def _mean_square(left: Floats, there: np.ndarray) -> Floats:
    return np.asarray(np.where(there, left, 0.0) ** 2).sum(axis=(1, 2)) / there.sum(axis=(1, 2))


def _require_more_than_trend(
    fields: Floats, there: np.ndarray, each: Floats, trend: Trend | None
) -> None:
    largest = np.abs(np.where(there, fields, 0.0)).max(axis=(1, 2))
    flat = np.flatnonzero(~(each > FLAT * np.maximum(largest, np.finfo(float).tiny)))
    if len(flat):
        what = "all zero" if trend is None else f"nothing but its {trend.kind} trend"
        raise DomainError(
            f"Field {flat[0]} is {what}: there is nothing left to scale. Leave such fields out "
            f"({len(flat)} of {len(fields)})."
        )


def _scales(scale: object, left: Floats, there: np.ndarray, each: Floats) -> Floats:
    if isinstance(scale, str):
        if require_choice(scale, "scale", SCALES) == "each":
            return each
        total = np.asarray(np.where(there, left, 0.0) ** 2).sum() / there.sum()
        return np.full(len(left), float(np.sqrt(total)))
    number = as_number(scale, "scale")
    if not (0.0 < number < np.inf):
        raise DomainError(f"scale must be positive and finite; got {number:g}.")
    return np.full(len(left), number)


def _filled_trend(trend: Trend | None, fields: Floats, left: Floats) -> Floats:
    """The trend everywhere, from where it was seen; NaN where observed pixels do not tell it."""
    if trend is None:
        return np.zeros_like(fields)
    basis = trend.basis(fields.shape[1:])
    out = np.full((len(fields), len(basis)), np.nan)
    taken = (fields - left).reshape(len(fields), -1)
    for k, row in enumerate(taken):
        seen = ~np.isnan(row)
        if np.linalg.matrix_rank(basis[seen]) == basis.shape[1]:
            out[k] = basis @ np.linalg.lstsq(basis[seen], row[seen], rcond=None)[0]
    return out.reshape(fields.shape)


def _spacing(spacing: float | tuple[float, float]) -> tuple[float, float]:
    try:
        steps = np.broadcast_to(as_floats(spacing, "spacing"), (2,))
    except ValueError:
        raise ShapeError(f"spacing must be one number or one per axis; got {spacing!r}.") from None
    if not (np.isfinite(steps).all() and (steps > 0).all()):
        raise DomainError(f"spacing must be positive and finite; got {spacing!r}.")
    return float(steps[0]), float(steps[1])
