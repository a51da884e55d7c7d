"""Data and parameters that float32, in which networks compute, would round away.

A number of size a is known to about 1e-7 a in float32: times in seconds since 1970 (1.7e9) in steps
of 128 s. A network of such numbers learns less than they tell, or nothing, and nobody would know.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats
from keepscore.errors import DomainError
from keepscore.numerics.alike import all_alike
from keepscore.space import Space

MOST_LOST = 0.1  # of the standard deviation of an entry of x
LEAST_STEPS = 200  # of float32 between the bounds of a parameter


def require_resolved_x(x: NDArray[np.generic]) -> None:
    """That rounding x (n, ...) to float32 leaves what varies in each entry."""
    if x.dtype.kind in "bc" or (x.dtype.kind == "f" and x.dtype.itemsize <= 4) or not len(x):
        return
    values = np.asarray(x, np.float64).reshape(len(x), -1)
    rounded = values.astype(np.float32).astype(np.float64)
    lost, own = _sd(values - rounded), _sd(values)
    unseen = (lost > MOST_LOST * own) & ~all_alike(values)
    if not unseen.any():
        return
    entry = int(np.flatnonzero(unseen)[0])
    origin = float(np.nanmedian(values[:, entry]))
    raise DomainError(
        f"Entry {_place(entry, x.shape[1:])} of x varies by {own[entry]:.3g} around {origin:.6g}. "
        f"Networks compute in float32, which has steps of {_step(origin):.3g} there, and would not "
        f"see it. Give x from an origin that is near, e.g. less {origin:.6g}, in the simulator and "
        "in the data alike."
    )


def require_resolved_theta(space: Space) -> None:
    """That float32 has steps enough between the bounds of each parameter."""
    low, high = space.box("train")
    for name, a, b in zip(space.names, low, high, strict=True):
        step = _step(max(abs(a), abs(b)))
        if b - a < LEAST_STEPS * step:
            raise DomainError(
                f"Parameter {name!r} lies between {a:.10g} and {b:.10g} (working parameter). "
                f"Networks compute in float32, which has steps of {step:.3g} there: too few to "
                f"tell values apart. Measure it from an origin that is near, e.g. {a:.6g}."
            )


def _step(size: float) -> float:
    return float(np.spacing(np.float32(abs(size))))


def _sd(values: Floats) -> Floats:
    """Standard deviation of each column, of what is there."""
    there = ~np.isnan(values)
    count = np.maximum(there.sum(axis=0), 1)
    mean = values.sum(axis=0, where=there) / count
    return np.asarray(np.sqrt(((values - mean) ** 2).sum(axis=0, where=there) / count))


def _place(entry: int, shape: tuple[int, ...]) -> str:
    if len(shape) < 2:
        return str(entry)
    return str(tuple(int(i) for i in np.unravel_index(entry, shape)))
