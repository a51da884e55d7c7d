"""Priors as plain records: what a parameter is believed to be before any data.

    Uniform(low, high)            constant between low and high
    Normal(mean, sd)              exp(-z^2 / 2) / (sd sqrt(2 pi)),            z = (v - mean) / sd
    LogNormal(mean, sd)           log v is Normal(mean, sd):                  Normal(log v) / v
    Beta(a, b, low, high)         u^(a-1) (1-u)^(b-1) / (B(a, b) (high - low)),
                                  u = (v - low) / (high - low)
    MultivariateNormal(mean, covariance)     all parameters together

The first four belong to one parameter, `Parameter(..., prior=)`, and v is its raw value. The last
belongs to a space, `Space(..., prior=)`, and is a density of the working parameters (so for
parameters that are logarithms it is a correlated log-normal of the raw ones).

Each has its exact log density, written once for NumPy and JAX; those of one parameter also have
their distribution function F and its inverse, by which a stratified design of the unit cube becomes
one of the prior. A record holds numbers only, and is saved as plain data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from keepscore.checks import Floats, as_floats, as_number
from keepscore.errors import DomainError, DtypeError, FormatError, ShapeError

__all__ = ["Beta", "LogNormal", "MultivariateNormal", "Normal", "Uniform"]

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
LARGEST_D = 4096  # parameters of one multivariate normal

Numbers: TypeAlias = Any  # an array of NumPy's or JAX's


@dataclass(frozen=True)
class Uniform:
    """Constant between low and high, in the raw parameter.

    Args:
        low: The smallest value.
        high: The largest value.

    Raises:
        DomainError: low is not below high.

    Example:
        >>> import keepscore as ks
        >>> float(ks.priors.Uniform(0, 4).quantile(0.25))
        1.0
    """

    low: float
    high: float
    family: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        _keep_numbers(self)
        _require(self.low < self.high, self, "low must be below high")

    @property
    def support(self) -> tuple[float, float]:
        return self.low, self.high

    def log_density(self, raw: Numbers, xp: ModuleType = np) -> Numbers:
        """log p(raw); -inf outside."""
        inside = (raw >= self.low) & (raw <= self.high)
        return xp.where(inside, -math.log(self.high - self.low), -xp.inf)

    def cdf(self, raw: Floats) -> Floats:
        return np.clip((raw - self.low) / (self.high - self.low), 0.0, 1.0)

    def quantile(self, share: Floats) -> Floats:
        return self.low + (self.high - self.low) * np.asarray(share, dtype=np.float64)


@dataclass(frozen=True)
class Normal:
    """Normal with this mean and standard deviation, in the raw parameter.

    Args:
        mean: Of the raw parameter.
        sd: Of the raw parameter.

    Raises:
        DomainError: sd is not positive.

    Example:
        >>> import keepscore as ks
        >>> space = ks.Space([ks.Parameter("shift", transform="identity",
        ...                                prior=ks.priors.Normal(0, 2))])
        >>> space.lower.round(2).tolist(), space.upper.round(2).tolist()
        ([-7.78], [7.78])
    """

    mean: float
    sd: float
    family: ClassVar[str] = "normal"

    def __post_init__(self) -> None:
        _keep_numbers(self)
        _require(self.sd > 0, self, "sd must be positive")

    @property
    def support(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def log_density(self, raw: Numbers, xp: ModuleType = np) -> Numbers:
        """log p(raw)."""
        return -0.5 * ((raw - self.mean) / self.sd) ** 2 - math.log(self.sd) - LOG_ROOT_2PI

    def cdf(self, raw: Floats) -> Floats:
        return np.asarray(special.ndtr((raw - self.mean) / self.sd))

    def quantile(self, share: Floats) -> Floats:
        return self.mean + self.sd * np.asarray(special.ndtri(share))


@dataclass(frozen=True)
class LogNormal:
    """The logarithm of the raw parameter is normal, with this mean and standard deviation.

    Args:
        mean: Of the logarithm.
        sd: Of the logarithm.

    Raises:
        DomainError: sd is not positive.

    Example:
        >>> import keepscore as ks
        >>> rate = ks.Parameter("rate", prior=ks.priors.LogNormal(-1, 0.5))
        >>> rate.working_name, round(rate.lower, 2), round(rate.upper, 2)
        ('log rate', -2.95, 0.95)
    """

    mean: float
    sd: float
    family: ClassVar[str] = "log-normal"

    def __post_init__(self) -> None:
        _keep_numbers(self)
        _require(self.sd > 0, self, "sd must be positive")

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    def log_density(self, raw: Numbers, xp: ModuleType = np) -> Numbers:
        """log p(raw); -inf at 0 and below."""
        positive = raw > 0
        log = xp.log(xp.where(positive, raw, 1.0))
        value = -0.5 * ((log - self.mean) / self.sd) ** 2 - math.log(self.sd) - LOG_ROOT_2PI - log
        return xp.where(positive, value, -xp.inf)

    def cdf(self, raw: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            log = np.log(np.maximum(raw, 0.0))
        return np.asarray(special.ndtr((log - self.mean) / self.sd))

    def quantile(self, share: Floats) -> Floats:
        return np.exp(self.mean + self.sd * np.asarray(special.ndtri(share)))


@dataclass(frozen=True)
class Beta:
    """A beta distribution between low and high, in the raw parameter.

    Args:
        a: The first shape, positive.
        b: The second shape, positive.
        low: The smallest value.
        high: The largest value.

    Raises:
        DomainError: A shape that is not positive, or low not below high.

    Example:
        >>> import keepscore as ks
        >>> float(ks.priors.Beta(2, 2).quantile(0.5))
        0.5
    """

    a: float
    b: float
    low: float = 0.0
    high: float = 1.0
    family: ClassVar[str] = "beta"

    def __post_init__(self) -> None:
        _keep_numbers(self)
        _require(self.a > 0 and self.b > 0, self, "a and b must be positive")
        _require(self.low < self.high, self, "low must be below high")

    @property
    def support(self) -> tuple[float, float]:
        return self.low, self.high

    def log_density(self, raw: Numbers, xp: ModuleType = np) -> Numbers:
        """log p(raw); -inf outside."""
        width = self.high - self.low
        u = (raw - self.low) / width
        inside = (u >= 0) & (u <= 1)
        safe = xp.where(inside, u, 0.5)
        value = _power(safe, self.a, xp) + _power(1 - safe, self.b, xp)
        constant = float(special.betaln(self.a, self.b)) + math.log(width)
        return xp.where(inside, value - constant, -xp.inf)

    def cdf(self, raw: Floats) -> Floats:
        u = np.clip((raw - self.low) / (self.high - self.low), 0.0, 1.0)
        return np.asarray(special.betainc(self.a, self.b, u))

    def quantile(self, share: Floats) -> Floats:
        u = np.asarray(special.betaincinv(self.a, self.b, share))
        return self.low + (self.high - self.low) * u


Prior: TypeAlias = Uniform | Normal | LogNormal | Beta
FAMILIES: dict[str, type[Prior]] = {
    kind.family: kind for kind in (Uniform, Normal, LogNormal, Beta)
}


@dataclass(frozen=True)
class MultivariateNormal:
    """All working parameters together: a normal with this mean (d,) and covariance (d, d).

    Args:
        mean: (d,), of the working parameters.
        covariance: (d, d), of the working parameters.

    Raises:
        ShapeError: The two do not fit together.
        DomainError: The covariance is not symmetric and positive definite.

    Example:
        >>> import keepscore as ks
        >>> prior = ks.priors.MultivariateNormal([0, 1], [[1, 0.5], [0.5, 2]])
        >>> names = ("slope", "height")
        >>> space = ks.Space([ks.Parameter(n, transform="identity") for n in names], prior=prior)
        >>> space.upper.round(2).tolist()
        [3.89, 6.5]
    """

    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    family: ClassVar[str] = "multivariate normal"

    def __init__(self, mean: ArrayLike, covariance: ArrayLike) -> None:
        centre, spread = as_floats(mean, "mean of a prior"), as_floats(covariance, "covariance")
        d = len(centre) if centre.ndim == 1 else 0
        if not 0 < d <= LARGEST_D or spread.shape != (d, d):
            raise ShapeError(
                "A multivariate normal needs a mean (d,) and a covariance (d, d); got shapes "
                f"{centre.shape} and {spread.shape}."
            )
        if not (np.isfinite(centre).all() and np.isfinite(spread).all()):
            raise DomainError("Mean and covariance of a prior must be finite.")
        if not np.allclose(spread, spread.T, rtol=1e-8, atol=0):
            raise DomainError("The covariance of a prior must be symmetric.")
        try:
            np.linalg.cholesky(spread)
        except np.linalg.LinAlgError:
            raise DomainError("The covariance of a prior must be positive definite.") from None
        object.__setattr__(self, "mean", tuple(centre.tolist()))
        object.__setattr__(self, "covariance", tuple(tuple(row) for row in spread.tolist()))

    @property
    def d(self) -> int:
        return len(self.mean)

    @property
    def sd(self) -> Floats:
        """Standard deviations (d,)."""
        return np.sqrt(np.diagonal(np.array(self.covariance)))

    def marginal(self, k: int) -> Normal:
        """What it says of one working parameter by itself."""
        return Normal(self.mean[k], math.sqrt(self.covariance[k][k]))

    def log_density(self, working: Numbers, xp: ModuleType = np) -> Numbers:
        """log p(working), for working parameters (..., d)."""
        covariance = np.array(self.covariance)
        precision = np.linalg.inv(covariance)
        log_size = 0.5 * float(np.linalg.slogdet(covariance)[1])
        offset = working - xp.asarray(self.mean)
        square = (offset * (offset @ xp.asarray((precision + precision.T) / 2))).sum(axis=-1)
        return -0.5 * square - log_size - self.d * LOG_ROOT_2PI

    def from_unit(self, unit: Floats) -> Floats:
        """Points of the open unit cube (n, d) as draws (n, d): uniform ones become normal ones."""
        z = special.ndtri(np.clip(unit, 1e-16, 1 - 1e-16))
        factor = np.linalg.cholesky(np.array(self.covariance))
        return np.array(self.mean) + np.asarray(z) @ factor.T


def require_prior(prior: object) -> Prior:
    """A prior of one parameter, or an error that names them."""
    if not isinstance(prior, tuple(FAMILIES.values())):
        raise DtypeError(
            "prior of a parameter must be ks.priors.Uniform, Normal, LogNormal or Beta; a "
            f"MultivariateNormal belongs to the space: Space(..., prior=). Got {prior!r:.80}."
        )
    return prior  # type: ignore[return-value]


def to_dict(prior: Prior | MultivariateNormal) -> dict[str, Any]:
    """Plain data for JSON; `from_dict` turns it back."""
    content = asdict(prior)
    if isinstance(prior, MultivariateNormal):
        content = {"mean": list(prior.mean), "covariance": [list(r) for r in prior.covariance]}
    return {"family": prior.family, **content}


def from_dict(content: Mapping[str, Any]) -> Prior | MultivariateNormal:
    """A prior from plain data, checked."""
    try:
        values = dict(content)
        family = values.pop("family")
        if family == MultivariateNormal.family:
            return MultivariateNormal(**values)
        return FAMILIES[family](**values)
    except Exception as error:  # what is forged can fail in any way
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
        raise FormatError(f"Not the description of a prior: {reason}.") from None


def _power(u: Numbers, exponent: float, xp: ModuleType) -> Numbers:
    """(exponent - 1) log u, and 0 for an exponent of 1 also at u = 0."""
    if exponent == 1:
        return xp.zeros_like(u)
    if xp is np:
        with np.errstate(divide="ignore"):
            return (exponent - 1) * np.log(u)
    return (exponent - 1) * xp.log(u)


def _keep_numbers(prior: Prior) -> None:
    """Python floats, finite."""
    for name in asdict(prior):
        number = as_number(getattr(prior, name), f"{name} of a {prior.family} prior")
        if not math.isfinite(number):
            raise DomainError(f"{name} of a {prior.family} prior must be finite; got {number}.")
        object.__setattr__(prior, name, number)


def _require(holds: bool, prior: Prior, law: str) -> None:
    if not holds:
        raise DomainError(f"A {prior.family} prior: {law}; got {asdict(prior)}.")
