"""Laws that every result obeys, checked when the result is made.

    an interval    lower <= estimate <= upper, float64
    a set          holds its maximum; its volume is not negative
    a statistic    Lambda = 2 (l_max - l_0) is not negative: a null that beats the maximum shows
                   that the search missed, and the search starts again there
    a p-value      in [0, 1];  coverage: the mean of at least one yes or no, in [0, 1]
    an estimate    inside its box;  a standard error: positive and finite, or NaN for a reason told

No data and no likelihood, however poor, can break them. A result that does is our fault: it
raises an `InvariantError` that names the function, and its numbers are not returned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import Floats
from keepscore.errors import InvariantError

BOX = 1e-9  # of a box's width: what rounding may move an estimate or an end


def rounding(value: ArrayLike) -> Floats:
    """What float32 may lose of a sum of log-ratios, and of the terms that cancel in it."""
    return 1e-3 + 1e-6 * np.abs(np.asarray(value, dtype=np.float64))


def require(held: ArrayLike, function: str, law: str, shown: ArrayLike | None = None) -> None:
    """Raise unless `held` is true everywhere; `shown` holds the offending numbers, row by row."""
    held = np.asarray(held)
    if held.all():
        return
    first = tuple(int(i) for i in np.argwhere(~held)[0]) if held.ndim else ()
    came = "" if shown is None else f"; got {np.asarray(shown)[first].tolist()}"
    many = f" in {int((~held).sum())} of {held.size} places, the first {first}" if held.ndim else ""
    raise InvariantError(
        f"{function}: {law}{many}{came}. This is a fault of keepscore, not of your data: please "
        "report it with this message, the call, and the shapes and dtypes of what you passed."
    )


def require_float64(values: ArrayLike, function: str, name: str) -> None:
    """Numbers are carried in double precision, whatever they were given as."""
    kind = np.asarray(values).dtype
    require(kind == np.float64, function, f"{name} must be float64, and came as {kind}")


def require_estimate(theta: Floats, low: Floats, high: Floats, function: str) -> None:
    """Estimates (..., d) are finite, float64 and inside the box."""
    require_float64(theta, function, "an estimate")
    slack = BOX * (high - low)
    inside = (theta >= low - slack) & (theta <= high + slack)  # NaN is not inside
    require(inside.all(axis=-1), function, "an estimate must lie inside its box", theta)


def require_standard_errors(errors: Floats, explained: ArrayLike, function: str) -> None:
    """Positive and finite, or NaN with a reason."""
    explained = np.asarray(explained)
    sound = np.isfinite(errors) & (errors > 0)
    law = "a standard error must be positive and finite, or NaN for a stated reason"
    require(np.where(explained, np.isnan(errors), sound), function, law, errors)


def require_ordered(ends: Floats, function: str) -> None:
    """Intervals (..., 2) are float64, and the lower end is not above the upper one."""
    require_float64(ends, function, "an interval")
    law = "an interval's lower end must not lie above its upper end"
    require(ends[..., 0] <= ends[..., 1], function, law, ends)


def require_holds(ends: Floats, estimate: Floats, width: Floats, function: str) -> None:
    """Intervals (..., k, 2) hold their estimates (..., k); widths of the box (k,)."""
    require_ordered(ends, function)
    slack = BOX * width
    inside = (ends[..., 0] <= estimate + slack) & (ends[..., 1] >= estimate - slack)
    shown = np.concatenate([ends, estimate[..., None]], axis=-1)
    law = "an interval must hold its estimate (lower, upper, estimate)"
    require(inside, function, law, shown)


def require_not_negative(values: ArrayLike, function: str, name: str) -> None:
    """Not negative and not NaN."""
    values = np.asarray(values)
    require(values >= 0, function, f"{name} must not be negative", values)


def require_shares(values: ArrayLike, function: str, name: str = "a p-value") -> None:
    """Probabilities and shares: in [0, 1], and there is at least one."""
    values = np.asarray(values, dtype=np.float64)
    require(values.size > 0, function, f"{name} must be there")
    require((values >= 0) & (values <= 1), function, f"{name} must lie in [0, 1]", values)


def require_counted(hits: ArrayLike, function: str) -> None:
    """What a coverage is the mean of: yes or no, at least one of each group counted."""
    array = np.asarray(hits)
    law = "coverage must be the mean of at least one yes or no"
    require(array.dtype == np.bool_ and array.size > 0, function, law)
