"""The parameter space: names, transforms, bounds, margins, designs and grids.

A model is written in *raw* parameters (a rate, a length); everything else here works in *working*
parameters, in which the space is a box (their logarithms, say). The *base* box is what a user asks
about. Training draws from a slightly larger box and the E-test from a smaller one, to keep boundary
effects out of both: a margin m scales the half-width by 1 + m/2 (train) or 1 - m/2 (test), so that
[-1, 1] with a train margin of 20% is [-1.1, 1.1]. Where no train margin is named, it is 20% for up
to three parameters and less for more (`default_margin`).

A space may have a prior (`priors`): of single parameters, stated for their raw value v, or one of
all working parameters together. With v(w) the raw value of a working one,

    p(w) = p(v(w)) dv/dw,    restricted to a region's box

and a parameter without a prior is uniform in the working parameter. Where no bounds are named, the
base box is where the prior is: from its quantile 5e-5 to 1 - 5e-5, parameter by parameter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from keepscore import priors
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
from keepscore.priors import MultivariateNormal, Numbers, Prior, require_prior

Region = Literal["base", "train", "test"]
REGIONS: tuple[Region, ...] = ("base", "train", "test")
TRANSFORMS = ("identity", "log")
MOST_POINTS = 2**31  # of a grid
MOST_NUMBERS = 2**36  # of one array
TAIL = 5e-5  # of the prior, on either side of a box that it makes
LEAST_MASS = 1e-6  # of the prior, in a box
MASS_POINTS = 2**16
MOST_REDRAWS = 10_000
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
        prior: Of the raw value, one of `ks.priors`; None is uniform in the working value. With a
            prior (or one of the space) the bounds may be left out.

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
    lower: float = None  # type: ignore[assignment]  # a space has them all
    upper: float = None  # type: ignore[assignment]
    transform: str = "log"
    shift: float = 0.0
    train_margin: float | None = None
    test_margin: float = 0.4
    prior: Prior | None = None

    def __post_init__(self) -> None:
        require_name(self.name, "The name of a parameter")
        require_choice(self.transform, "transform", TRANSFORMS)
        object.__setattr__(self, "shift", as_number(self.shift, f"shift of {self.name!r}"))
        if self.prior is not None:
            self._require_support(require_prior(self.prior))
        elif self.lower is None and self.upper is None:
            return  # the space's prior knows
        for bound, share in (("lower", TAIL), ("upper", 1 - TAIL)):
            if getattr(self, bound) is None:
                if self.prior is None:
                    raise DomainError(f"{bound} of {self.name!r} is missing: give it, or a prior.")
                object.__setattr__(self, bound, float(self.from_share(np.array(share))))
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
        if self.prior is not None:
            self._require_prior_on_box()

    def _require_support(self, prior: Prior) -> None:
        """A prior must lie where the transform is defined."""
        if self.transform == "log" and prior.support[0] < self.shift:
            raise DomainError(
                f"The prior of {self.name!r} begins at {prior.support[0]:g}, but its logarithm "
                f"needs raw values above {self.shift:g}. Use transform='identity', or another "
                "prior, such as LogNormal."
            )

    def _require_prior_on_box(self) -> None:
        mass = float(np.diff(self.share(np.array([self.lower, self.upper])))[0])
        if not mass >= LEAST_MASS:
            raise DomainError(
                f"The box [{self.lower:g}, {self.upper:g}] of {self.name!r} (working values) holds "
                f"{mass:.2g} of its prior. Move the bounds to where the prior is, or leave them "
                "out."
            )
        ends = np.asarray(self.log_prior(np.array([self.lower, self.upper])))
        if np.any(ends == np.inf):
            raise DomainError(
                f"The prior of {self.name!r} is infinite at an end of its box. Leave the bounds "
                "out: they are then quantiles of the prior, inside."
            )

    def log_prior(self, working: Numbers, xp: ModuleType = np) -> Numbers:
        """log density of the working parameter under its own prior, not restricted to the box."""
        if self.prior is None:
            raise DomainError(f"{self.name!r} has no prior of its own.")
        if self.transform == "log":
            return self.prior.log_density(xp.exp(working) + self.shift, xp) + working
        return self.prior.log_density(working + self.shift, xp)

    def share(self, working: Floats) -> Floats:
        """F(working): how much of the prior lies below."""
        assert self.prior is not None
        return self.prior.cdf(self.to_raw(working))

    def from_share(self, share: Floats) -> Floats:
        """The working value below which this share of the prior lies."""
        assert self.prior is not None
        return self.to_working(self.prior.quantile(share))

    @property
    def working_name(self) -> str:
        """The name of the working value, "log rate" for a rate."""
        inner = self.name if self.shift == 0 else f"{self.name} - {self.shift:g}"
        if self.transform == "log":
            return f"log {inner}" if self.shift == 0 else f"log({inner})"
        return inner

    def to_raw(self, working: Floats) -> Floats:
        """Working values to raw ones."""
        return (np.exp(working) if self.transform == "log" else working) + self.shift

    def to_working(self, raw: Floats) -> Floats:
        """Raw values to working ones; one outside the domain is an error."""
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
    """A box of free parameters, the fixed ones beside it, and a prior of all of them, if any.

    Args:
        parameters: The free parameters, in the order of theta's entries.
        fixed: Values of parameters that are not free, by name.
        prior: A `ks.priors.MultivariateNormal` of the working parameters; then no parameter has one
            of its own, and their bounds may be left out.

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
    prior: MultivariateNormal | None = None

    def __init__(
        self,
        parameters: Sequence[Parameter],
        fixed: Mapping[str, float] | None = None,
        prior: MultivariateNormal | None = None,
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
        object.__setattr__(self, "parameters", _with_bounds(tuple(filled), prior))
        object.__setattr__(self, "prior", prior)
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
        return hash((self.parameters, tuple(sorted(self.fixed.items())), self.prior))

    @property
    def d(self) -> int:
        """Number of free parameters."""
        return len(self.parameters)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the free parameters."""
        return tuple(p.name for p in self.parameters)

    @property
    def working_names(self) -> tuple[str, ...]:
        """Of their working values."""
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

    # --- its prior ---

    @property
    def has_prior(self) -> bool:
        """Whether it is anything but uniform on the box."""
        return self.prior is not None or any(p.prior is not None for p in self.parameters)

    def log_prior(self, theta: ArrayLike, region: Region = "base") -> Floats:
        """log density of the prior at theta (n, d), restricted to a region's box: (n,).

        Normalised there (a multivariate normal's share of the box is estimated from 65,536
        quasi-random points); -inf outside.
        """
        rows = as_theta(theta, self.d)
        return np.where(
            self.contains(rows, region, tolerance=0.0),
            self._log_prior(np.clip(rows, *self.box(region))) - _log_mass(self, region),
            -np.inf,
        )

    def unnormalised_log_prior(self, theta: Numbers, xp: ModuleType = np) -> Numbers:
        """The same up to a constant, for theta (..., d) inside the box, in NumPy or JAX."""
        if self.prior is not None:
            return self.prior.log_density(theta, xp)
        zero = xp.zeros(theta.shape[:-1])
        parts = [
            p.log_prior(theta[..., k], xp)
            for k, p in enumerate(self.parameters)
            if p.prior is not None
        ]
        return sum(parts, zero)

    def _log_prior(self, theta: Floats) -> Floats:
        return np.asarray(self.unnormalised_log_prior(theta), dtype=np.float64)

    def draw(
        self,
        n: int,
        rng: np.random.Generator,
        region: Region = "base",
        unit: Floats | None = None,
    ) -> Floats:
        """n independent draws (n, d) of the prior, restricted to a region's box.

        Args:
            n: How many.
            rng: The source of randomness.
            region: Of which box.
            unit: Points of the unit cube (n, d) to be turned into the draws, for designs that are
                more even than independent draws.
        """
        n, rng = self._many(n), require_rng(rng)
        share = rng.random((n, self.d)) if unit is None else unit
        low, high = self.box(region)
        if self.prior is not None:
            return _redrawn(self.prior, share, low, high, rng)
        theta = low + (high - low) * share
        for k, p in enumerate(self.parameters):
            if p.prior is not None:
                first, last = p.share(np.array([low[k], high[k]]))
                value = p.from_share(first + (last - first) * share[:, k])
                theta[:, k] = np.clip(value, low[k], high[k])  # rounding of F and its inverse
        return theta

    def spread(self, region: Region = "base") -> tuple[Floats, Floats]:
        """Mean and standard deviation (d,) of each working parameter under the prior, restricted to
        a region's box (of a multivariate normal: as it is)."""
        if self.prior is not None:
            return np.array(self.prior.mean), self.prior.sd
        low, high = self.box(region)
        mean, sd = (low + high) / 2, (high - low) / np.sqrt(12)
        even = (np.arange(1000) + 0.5) / 1000
        for k, p in enumerate(self.parameters):
            if p.prior is not None:
                first, last = p.share(np.array([low[k], high[k]]))
                values = p.from_share(first + (last - first) * even)
                mean[k], sd[k] = values.mean(), values.std()
        return mean, sd

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
        content: dict[str, Any] = {
            "parameters": [_plain(p) for p in self.parameters],
            "fixed": dict(self.fixed),
        }
        # A space without a prior is written as it always was.
        return content if self.prior is None else {**content, "prior": priors.to_dict(self.prior)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Space:
        try:
            parameters = [_parameter(entry) for entry in content["parameters"]]
            prior = content.get("prior")
            joint = None if prior is None else priors.from_dict(prior)
            return cls(parameters, content.get("fixed"), joint)  # type: ignore[arg-type]
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


def _with_bounds(
    parameters: tuple[Parameter, ...], prior: MultivariateNormal | None
) -> tuple[Parameter, ...]:
    """Parameters with bounds, those that have none by the prior of the space."""
    if prior is not None:
        if not isinstance(prior, MultivariateNormal):
            raise DtypeError(
                "prior of a space must be a ks.priors.MultivariateNormal of its working "
                "parameters; that of one parameter belongs to it: Parameter(..., prior=). Got "
                f"{prior!r:.80}."
            )
        if prior.d != len(parameters):
            raise ShapeError(f"The prior has {prior.d} parameters, the space {len(parameters)}.")
        if any(p.prior is not None for p in parameters):
            raise DomainError("Either the space has a prior, or its parameters have; not both.")
    filled = []
    for k, p in enumerate(parameters):
        if p.lower is None or p.upper is None:
            if prior is None:
                raise DomainError(
                    f"{p.name!r} needs bounds (lower and upper, in working units) or a prior."
                )
            low, high = prior.marginal(k).quantile(np.array([TAIL, 1 - TAIL])).tolist()
            p = replace(p, lower=low, upper=high)
        filled.append(p)
    return tuple(filled)


def _redrawn(
    prior: MultivariateNormal,
    unit: Floats,
    low: Floats,
    high: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Draws inside a box: those of the given points of the unit cube, the few of them that fall
    outside drawn again."""
    theta = prior.from_unit(unit)
    for _ in range(MOST_REDRAWS):
        outside = np.flatnonzero(((theta < low) | (theta > high)).any(axis=1))
        if len(outside) == 0:
            return theta
        theta[outside] = prior.from_unit(rng.random((len(outside), prior.d)))
    raise DomainError(
        "The box holds too little of the prior to draw from it. Leave the bounds of the parameters "
        "out, or move them to where the prior is."
    )


@cache
def _log_mass(space: Space, region: Region) -> float:
    """log of the share of the prior inside a region's box; of parameters without a prior, of their
    width (their density is 1 up to this)."""
    low, high = space.box(region)
    if space.prior is not None:
        from scipy.stats import qmc  # a second to import, for a prior of this kind alone

        points = qmc.Sobol(space.d, seed=0).random(MASS_POINTS)
        theta = space.prior.from_unit(points)
        inside = ((theta >= low) & (theta <= high)).all(axis=1).mean()
        return float(np.log(max(inside, 1 / MASS_POINTS)))
    parts = [
        high[k] - low[k] if p.prior is None else np.diff(p.share(np.array([low[k], high[k]])))[0]
        for k, p in enumerate(space.parameters)
    ]
    return float(np.log(parts).sum())


def _plain(parameter: Parameter) -> dict[str, Any]:
    """A parameter as plain data."""
    content = vars(parameter).copy()
    prior = content.pop("prior")
    return content if prior is None else {**content, "prior": priors.to_dict(prior)}


def _parameter(content: Mapping[str, Any]) -> Parameter:
    """A parameter from plain data."""
    values = dict(content)
    if values.get("prior") is not None:
        values["prior"] = priors.from_dict(values["prior"])
    return Parameter(**values)


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
