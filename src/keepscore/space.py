"""The parameter space: names, transforms, bounds, margins, designs and grids.

A model is written in *raw* parameters (a rate, a length); everything else here works in *working*
parameters, in which the space is a box (their logarithms, say). The *base* box is what a user asks
about. Training draws from a slightly larger box and the E-test from a smaller one, to keep boundary
effects out of both: a margin m scales the half-width by 1 + m/2 (train) or 1 - m/2 (test), so that
[-1, 1] with a train margin of 20% is [-1.1, 1.1]. Where no train margin is named, it is 20% for up
to three parameters and less for more (`default_margin`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import (
    Floats,
    as_counts,
    as_floats,
    as_number,
    as_theta,
    require_choice,
    require_count,
    require_name,
    require_rng,
)
from keepscore.errors import DomainError, DtypeError, FormatError, ShapeError

Region = Literal["base", "train", "test"]
REGIONS: tuple[Region, ...] = ("base", "train", "test")
TRANSFORMS = ("identity", "log")
MOST_POINTS = 2**31  # of a grid
MOST_NUMBERS = 2**36  # of one array
LARGEST_LOG = 300.0  # exp of it, and of its negative, is a number with room to compute


@dataclass(frozen=True)
class Parameter:
    """One free parameter: working = log(raw - shift) or raw - shift, between lower and upper.

    Args:
        name: What to call it.
        lower: Lower bound of the working value (a logarithm where transform is "log").
        upper: Upper bound of the working value.
        transform: "log" or "identity".
        shift: Subtracted from the raw value before the transform.
        train_margin: Training uses an interval wider by this share, half of it on either side; None
            is the space's default, 20% for up to three parameters.
        test_margin: The E-test uses an interval narrower by this share.

    Raises:
        DomainError: Bounds that are not finite or not in order, or a margin out of range.
        DtypeError: A bound that is no real number.
        UnknownNameError: No such transform.

    Example:
        >>> import math
        >>> import keepscore as ks
        >>> rate = ks.Parameter("rate", math.log(0.1), math.log(10))
        >>> rate.working_name, round(float(rate.to_raw(rate.lower)), 3)
        ('log rate', 0.1)
    """

    name: str
    lower: float
    upper: float
    transform: str = "log"
    shift: float = 0.0
    train_margin: float | None = None
    test_margin: float = 0.4

    def __post_init__(self) -> None:
        require_name(self.name, "The name of a parameter")
        require_choice(self.transform, "transform", TRANSFORMS)
        # Python floats from here on: whatever a box is made of, it is float64.
        margins = ("test_margin",) if self.train_margin is None else ("train_margin", "test_margin")
        for field_name in ("lower", "upper", "shift", *margins):
            number = as_number(getattr(self, field_name), f"{field_name} of {self.name!r}")
            object.__setattr__(self, field_name, number)
        train_margin = 0.0 if self.train_margin is None else self.train_margin
        numbers = (self.lower, self.upper, self.shift, train_margin, self.test_margin)
        if not all(math.isfinite(v) for v in numbers):
            raise DomainError(f"Bounds, shift and margins of {self.name!r} must be finite.")
        if not self.lower < self.upper:
            raise DomainError(
                f"Bounds of {self.name!r}: lower must be below upper; "
                f"got [{self.lower}, {self.upper}]."
            )
        if self.transform == "log" and max(abs(self.lower), abs(self.upper)) > LARGEST_LOG:
            raise DomainError(
                f"Bounds of {self.name!r} are logarithms, of which exp is taken; they must lie in "
                f"[-{LARGEST_LOG:g}, {LARGEST_LOG:g}]; got [{self.lower:g}, {self.upper:g}]."
            )
        if train_margin < 0 or not 0 <= self.test_margin < 2:
            raise DomainError(
                f"Margins of {self.name!r}: train >= 0 and 0 <= test < 2; "
                f"got {self.train_margin} and {self.test_margin}."
            )

    @property
    def working_name(self) -> str:
        inner = self.name if self.shift == 0 else f"{self.name} - {self.shift:g}"
        if self.transform == "log":
            return f"log {inner}" if self.shift == 0 else f"log({inner})"
        return inner

    def to_raw(self, working: Floats) -> Floats:
        return (np.exp(working) if self.transform == "log" else working) + self.shift

    def to_working(self, raw: Floats) -> Floats:
        moved = raw - self.shift
        if self.transform == "identity":
            return moved
        if np.any(moved <= 0):
            raise DomainError(
                f"{self.name} must be greater than {self.shift:g}; got {float(np.min(raw)):g}."
            )
        return np.log(moved)


@dataclass(frozen=True)
class Space:
    """A box of free parameters, and the fixed ones beside it.

    Args:
        parameters: The free parameters, in the order of theta's entries.
        fixed: Values of parameters that are not free, by name.

    Raises:
        DomainError: No free parameter, or a name twice.
        DtypeError: Anything else than a list of `ks.Parameter`.

    Example:
        >>> import keepscore as ks
        >>> space = ks.Space([ks.Parameter("mean", -2, 2, "identity"), ks.Parameter("sd", -1, 1)])
        >>> space.d, space.working_names
        (2, ('mean', 'log sd'))
        >>> space.to_raw([0.5, 0.0]).tolist()
        [0.5, 1.0]
        >>> low, high = space.box("train")  # 20% wider
        >>> [round(float(v), 3) for v in high]
        [2.2, 1.1]
    """

    parameters: tuple[Parameter, ...]
    fixed: Mapping[str, float] = field(default_factory=dict)

    def __init__(
        self, parameters: Sequence[Parameter], fixed: Mapping[str, float] | None = None
    ) -> None:
        listed = isinstance(parameters, (list, tuple))
        if not listed or not all(isinstance(p, Parameter) for p in parameters):
            raise DtypeError(f"parameters must be a list of ks.Parameter; got {parameters!r:.80}.")
        if fixed is not None and not isinstance(fixed, Mapping):
            raise DtypeError(f"fixed must be a dictionary of numbers by name; got {fixed!r:.80}.")
        margin = default_margin(len(parameters))
        filled = (
            replace(p, train_margin=margin) if p.train_margin is None else p for p in parameters
        )
        object.__setattr__(self, "parameters", tuple(filled))
        values = {k: as_number(v, f"fixed value of {k!r}") for k, v in dict(fixed or {}).items()}
        object.__setattr__(self, "fixed", values)
        if not self.parameters:
            raise DomainError("A space needs at least one free parameter.")
        for name in self.fixed:
            require_name(name, "The name of a fixed parameter")
        names = [*self.names, *self.fixed]
        if len(set(names)) != len(names):
            raise DomainError(f"Parameter names must be unique; got {', '.join(names)}.")

    def __hash__(self) -> int:
        return hash((self.parameters, tuple(sorted(self.fixed.items()))))

    @property
    def d(self) -> int:
        """Number of free parameters."""
        return len(self.parameters)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    @property
    def working_names(self) -> tuple[str, ...]:
        return tuple(p.working_name for p in self.parameters)

    @property
    def lower(self) -> Floats:
        return self.box("base")[0]

    @property
    def upper(self) -> Floats:
        return self.box("base")[1]

    def box(self, region: Region = "base") -> tuple[Floats, Floats]:
        """Lower and upper working bounds, each (d,), of the base, train or test region."""
        require_choice(region, "region", REGIONS)
        low = np.array([p.lower for p in self.parameters], dtype=np.float64)
        high = np.array([p.upper for p in self.parameters], dtype=np.float64)
        if region == "base":
            return low, high
        if region == "train":
            scale = np.array([1 + (p.train_margin or 0.0) / 2 for p in self.parameters])
        else:
            scale = np.array([1 - p.test_margin / 2 for p in self.parameters])
        centre, half = (low + high) / 2, (high - low) / 2
        return centre - half * scale, centre + half * scale

    def index(self, name: str) -> int:
        """Position of a free parameter by name."""
        require_choice(name, "parameter", self.names)
        return self.names.index(name)

    def to_raw(self, theta: ArrayLike) -> Floats:
        """Working (..., d) to raw (..., d)."""
        array = self._last_axis(theta, "theta")
        columns = [p.to_raw(array[..., k]) for k, p in enumerate(self.parameters)]
        return np.stack(columns, axis=-1)

    def to_working(self, raw: ArrayLike) -> Floats:
        """Raw (..., d) to working (..., d); a raw value outside its domain is an error."""
        array = self._last_axis(raw, "raw parameters")
        columns = [p.to_working(array[..., k]) for k, p in enumerate(self.parameters)]
        return np.stack(columns, axis=-1)

    def contains(self, theta: ArrayLike, region: Region = "base", tolerance: float = 1e-9) -> Any:
        """Which rows of theta (n, d) lie in the region, boundary included: (n,) of bool."""
        array = as_theta(theta, self.d)
        low, high = self.box(region)
        slack = tolerance * (high - low)
        return ((array >= low - slack) & (array <= high + slack)).all(axis=1)

    def clip(self, theta: ArrayLike, region: Region = "base") -> Floats:
        """Move theta (n, d) to the nearest point of the region."""
        low, high = self.box(region)
        return np.clip(as_theta(theta, self.d), low, high)

    def uniform(self, n: int, rng: np.random.Generator, region: Region = "base") -> Floats:
        """n independent uniform draws: (n, d)."""
        n, rng = self._many(n), require_rng(rng)
        low, high = self.box(region)
        return low + (high - low) * rng.random((n, self.d))

    def grid(self, shape: int | Sequence[int], region: Region = "base") -> Floats:
        """An even grid, bounds included: (prod(shape), d), last parameter varying fastest."""
        counts = as_counts(shape, self.d, "points per side of a grid", minimum=2)
        if math.prod(counts) > MOST_POINTS:
            raise DomainError(
                f"A grid of {' x '.join(map(str, counts))} has {math.prod(counts):.3g} points; at "
                f"most {MOST_POINTS:.3g} are made. Ask for fewer per side."
            )
        low, high = self.box(region)
        return tensor_grid([np.linspace(low[k], high[k], counts[k]) for k in range(self.d)])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` turns it back."""
        return {"parameters": [vars(p).copy() for p in self.parameters], "fixed": dict(self.fixed)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Space:
        try:
            parameters = [Parameter(**entry) for entry in content["parameters"]]
            return cls(parameters, content.get("fixed"))
        except Exception as error:  # what is forged can fail in any way
            raise FormatError(
                f"Not the description of a parameter space: {str(error).rstrip('.')}."
            ) from None

    def _many(self, n: int) -> int:
        """A number of points, of which an array can be made."""
        n = require_count(n, "n", minimum=0)
        if n * self.d > MOST_NUMBERS:
            raise DomainError(f"n is too large: {n:.3g} points of {self.d} parameters.")
        return n

    def _last_axis(self, values: ArrayLike, name: str) -> Floats:
        array = as_floats(values, name)
        if array.ndim == 0 or array.shape[-1] != self.d:
            raise ShapeError(
                f"{name} must have {self.d} values ({', '.join(self.names)}) on its last axis; "
                f"got shape {array.shape}."
            )
        return array


def tensor_grid(axes: Sequence[Floats]) -> Floats:
    """Every combination of the values along each axis: (m_1 ... m_d, d), last axis fastest."""
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)


def default_margin(d: int) -> float:
    """The train margin of d parameters for which none is named: 20%, and from four parameters on
    less, so that the share of the larger box outside the base box stays that of three, a quarter
    (20% on each of ten parameters would put 61% of all simulations outside)."""
    return 0.2 if d <= 3 else 2 * (1.1 ** (3 / d) - 1)


def cells_per_side(n: int, d: int) -> int:
    """ceil(n^(1/d)) in exact integer arithmetic (1000^(1/3) is not quite 10 in floating point)."""
    side = max(1, round(n ** (1.0 / d)))
    while side**d >= n and side > 1:
        side -= 1
    while side**d < n:
        side += 1
    return side
