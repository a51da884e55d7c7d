"""What Gaussian and Student-t fields share: an elliptical law with a stationary covariance.

Both densities depend on x through the quadratic form q = x' Sigma^-1 x alone,
    log p(x | theta) = h(q) - log det(Sigma)/2,
with Sigma = sigma^2 rho(r) + eps^2 I (see `numerics.kernels`). With alpha = Sigma^-1 x and the
weight w = -2 h'(q) the slope in any parameter of Sigma is
    d log p / d theta_k = tr(A dSigma_k) / 2,     A = w alpha alpha' - Sigma^-1,
and parameters of h have their own slope. On a regular grid Sigma is handled in the exact block
form of `numerics.reflection`: one factorisation of four small blocks serves the draw (x = L z,
alpha = L^-T z), the log-density and the score, and A is folded once onto the table of lags, against
which every dSigma_k is a table too. Scattered locations take the same route with one dense block,
and so do the observed sites of a field with missing values (`numerics.some_places`).

With a `trend` the mean is not zero but unknown, X beta (`trend`), and beta is integrated out: the
likelihood is that of the error contrasts, S - p numbers that do not depend on beta. Contrasts of an
elliptical law have the same law with K' Sigma K, so that q, log det and A above are those of
`numerics.contrasts`, and S is S - p. The likelihood of x + X b is that of x, for every b;
`simulate` draws the residuals of least squares, which carry all contrasts.

`Field` is abstract: `GaussianField` and `StudentTField` give h, w and the slope of h.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import (
    Floats,
    as_floats,
    as_theta,
    require_choice,
    require_count,
    require_finite,
)
from keepscore.errors import (
    DomainError,
    MissingError,
    NotPositiveDefiniteError,
    ShapeError,
)
from keepscore.likelihood import Integers, Likelihood, as_groups, digests
from keepscore.models.base import ScoreKind, Symmetry, as_pairs
from keepscore.models.trend import Trend, as_trend, observed_basis
from keepscore.numerics.contrasts import Contrasts, without
from keepscore.numerics.covariance import StationaryCovariance
from keepscore.numerics.dense import DenseBlocks
from keepscore.numerics.kernels import require_kernel
from keepscore.numerics.reflection import GridBlocks
from keepscore.numerics.some_places import SomePlaces
from keepscore.numerics.threads import one_blas_thread
from keepscore.space import Space

Blocks = GridBlocks | DenseBlocks | SomePlaces
DEFAULT_SIDE = 25
# Fixed at these unless the space says otherwise: unit variance, no nugget.
DEFAULT_FIXED = {"sigma2": 1.0, "eps": 0.0}


class _Density(NamedTuple):
    """log p (g, n) at one theta, and what its gradient needs: whitened x, w, the slope of h, and
    the rows that went to a trend."""

    value: Floats
    z: list[Floats]
    weight: Floats
    slope: Floats
    spent: list[Floats] | None


class Field(ABC):
    """An elliptical field on a regular grid over [-extent, extent]^2, or at locations; its mean is
    zero or unknown."""

    name: ClassVar[str]
    _parameter_names: ClassVar[tuple[str, ...]]
    _structure: ClassVar[str] = "stationary-field"  # of a grid
    x_dtype: np.dtype[Any] = np.dtype(np.float64)
    score_kind: ScoreKind | None = "exact"

    def __init__(
        self,
        side: int | None = None,
        *,
        shape: Sequence[int] | None = None,
        extent: float | Sequence[float] = 3.0,
        kernel: str = "exponential",
        locations: ArrayLike | None = None,
        space: Space | Mapping[str, Any] | None = None,
        trend: str | ArrayLike | None = None,
    ) -> None:
        self.kernel = require_kernel(kernel)
        if space is None:
            space = self._default_space()
        self.space = space if isinstance(space, Space) else Space.from_dict(space)
        self._fixed = self._check_parameters()
        self.extent = _pair_of_extents(extent)
        self.locations: Floats | None = None
        self.blocks: Blocks
        if locations is None:
            self.x_shape: tuple[int, ...] = _grid_shape(side, shape)
            # Of linspace(-extent, extent, n); an axis of one point has no spacing.
            step_1, step_2 = (
                2.0 * e / max(n - 1, 1) for e, n in zip(self.extent, self.x_shape, strict=True)
            )
            self.blocks = GridBlocks((self.x_shape[0], self.x_shape[1]), (step_1, step_2))
        elif side is not None or shape is not None:
            raise DomainError("Give either a grid (side or shape) or locations, not both.")
        else:
            self.locations = _as_locations(locations)
            self.x_shape = (len(self.locations),)
            self.blocks = DenseBlocks(self.locations)
        self.size = int(np.prod(self.x_shape))
        self.trend: Trend | None = as_trend(trend, self.x_shape, self.locations)
        self._contrasts: Contrasts | None = None
        if self.trend is not None:
            columns = self.trend.basis(self.x_shape).T.reshape(-1, *self.x_shape)
            self._contrasts = Contrasts(self.blocks.to_blocks(columns))

    @classmethod
    @abstractmethod
    def _default_space(cls) -> Space:
        """The paper's parameter space."""

    @abstractmethod
    def _radial(
        self, values: Mapping[str, float], q: Floats, size: int
    ) -> tuple[Floats, Floats, Floats]:
        """h(q) of so many numbers, the weight -2 h'(q), and the slope of h in nu (zero where there
        is none)."""

    @abstractmethod
    def _amplitude(self, values: Mapping[str, Floats], rng: np.random.Generator) -> Floats:
        """A random factor per field, (n,), that turns a Gaussian draw into a draw of this law."""

    def at_locations(self, locations: ArrayLike) -> Field:
        """The same field, of mean zero, at places anywhere.

        Args:
            locations: (S, 2).

        Returns:
            The model.
        """
        other = object.__new__(type(self))
        vars(other).update(vars(self), trend=None, _contrasts=None)
        vars(other).pop("symmetries", None)
        other.locations = _as_locations(locations)
        other.x_shape = (len(other.locations),)
        other.size = len(other.locations)
        other.blocks = DenseBlocks(other.locations)
        return other

    # What the model declares ----------------------------------------------------------------

    @property
    def structure(self) -> str | None:
        """What kind of field x is; a trend that mirror images change leaves it a "field" only."""
        if self.locations is not None:
            return None
        index = np.arange(self.size).reshape(self.x_shape)
        if self.trend is not None and not all(
            self.trend.keeps(np.flip(index, axis).ravel(), self.x_shape) for axis in (0, 1)
        ):
            return "field"
        return self._structure

    def settings(self) -> dict[str, Any]:
        """Plain data that rebuilds this model."""
        common: dict[str, Any] = {"kernel": self.kernel, "space": self.space.to_dict()}
        if self.trend is not None:  # only where it says something: older descriptions have none
            common["trend"] = self.trend.plain()
        if self.locations is not None:
            return {"locations": self.locations.tolist(), **common}
        return {"shape": list(self.x_shape), "extent": list(self.extent), **common}

    @cached_property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Mirror images, the transpose (with l_x and l_y exchanged), the sign, and all products;
        of these, what leaves the trend as it is."""
        keep = tuple(range(self.space.d))
        moves = [("", np.arange(self.size).reshape(self.x_shape), keep)]
        if self.locations is None:
            for axis, label in ((0, "mirror x"), (1, "mirror y")):
                if self.x_shape[axis] > 1:
                    moves += [(_and(name, label), np.flip(i, axis), t) for name, i, t in moves]
            swap = self._exchange_of_scales()
            if swap is not None:
                moves += [(_and(name, "transpose"), i.T, swap) for name, i, _ in moves]
        signed = [(name, i, t, 1) for name, i, t in moves]
        signed += [(_and(name, "sign"), i, t, -1) for name, i, t in moves]
        kept = [(name, i.ravel(), t, s) for name, i, t, s in signed if name]
        if self.trend is not None:
            kept = [one for one in kept if self.trend.keeps(one[1], self.x_shape)]
        return tuple(Symmetry(*one) for one in kept)

    def _exchange_of_scales(self) -> tuple[int, ...] | None:
        square = len(set(self.x_shape)) == 1 and len(set(self.extent)) == 1 and self.size > 1
        if not square or not {"l_x", "l_y"} <= set(self.space.names):
            return None
        k, m = self.space.index("l_x"), self.space.index("l_y")
        p, r = self.space.parameters[k], self.space.parameters[m]
        if (p.transform, p.shift) != (r.transform, r.shift):
            return None
        exchanged = {k: m, m: k}
        return tuple(exchanged.get(i, i) for i in range(self.space.d))

    # Simulation, log-likelihood and score ---------------------------------------------------

    def simulate(self, theta: ArrayLike, rng: np.random.Generator) -> Floats:
        """One field per row of theta, (n, *x_shape)."""
        return self._draw(as_theta(theta, self.space.d), rng, with_score=False)[0]

    def simulate_with_score(
        self, theta: ArrayLike, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """The same fields as `simulate`, and their scores from the same factorisations."""
        x, _, score = self.simulate_with_log_prob_and_score(theta, rng)
        return x, score

    def simulate_with_log_prob_and_score(
        self, theta: ArrayLike, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats]:
        """The same fields once more, their log-likelihoods and scores, from one factorisation."""
        return self._draw(as_theta(theta, self.space.d), rng, with_score=True)

    def log_prob(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """log p(x | theta), row by row."""
        rows, data = as_pairs(self, theta, x)
        return self._evaluate(rows, self._coordinates(data), np.arange(len(rows)), False)[0]

    def score(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """Gradient of `log_prob` in theta, row by row."""
        return self.log_prob_and_score(theta, x)[1]

    def log_prob_and_score(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        """Both, from one factorisation per theta."""
        rows, data = as_pairs(self, theta, x)
        return self._evaluate(rows, self._coordinates(data), np.arange(len(rows)), True)

    # With sites that were not observed ---------------------------------------------------------

    def log_prob_observed(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """log p of the observed sites (x with NaN elsewhere), row by row: the density of the
        sub-vector, whose law is of the same kind with the covariance of those sites."""
        return self._observed(theta, x, with_score=False)[0]

    def log_prob_and_score_observed(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        """The same and its gradient; one factorisation per theta and pattern of NaN."""
        return self._observed(theta, x, with_score=True)

    def _observed(self, theta: ArrayLike, x: ArrayLike, with_score: bool) -> tuple[Floats, Floats]:
        rows, data = as_pairs(self, theta, x, missing=True)
        flat = np.asarray(data, dtype=np.float64).reshape(len(data), self.size)
        value, score = np.zeros(len(rows)), np.zeros_like(rows)
        for observed, members in patterns(~np.isnan(flat)):
            contrasts = self._contrasts_at(observed)
            if observed.sum() == (0 if contrasts is None else contrasts.spent):
                self._values(rows[members])  # theta is checked all the same
                continue
            blocks, coordinates = self._sites(observed, flat[members])
            value[members], score[members] = self._evaluate(
                rows[members], coordinates, np.arange(len(members)), with_score, blocks, contrasts
            )
        return value, score

    def _contrasts_at(self, observed: NDArray[np.bool_]) -> Contrasts | None:
        """What is left at the observed sites once the trend is unknown; None: all."""
        if self.trend is None or observed.all():
            return self._contrasts
        return Contrasts([observed_basis(self.trend.basis(self.x_shape)[observed]).T])

    def _sites(self, observed: NDArray[np.bool_], flat: Floats) -> tuple[Blocks, list[Floats]]:
        """The covariance of the observed sites, and x there."""
        if observed.all():
            return self.blocks, self._coordinates(flat.reshape(-1, *self.x_shape))
        if self.trend is not None:
            flat = self.trend.take_off(flat.reshape(-1, *self.x_shape)).reshape(flat.shape)
        blocks: Blocks
        if isinstance(self.blocks, GridBlocks):
            blocks = SomePlaces(self.blocks, np.argwhere(observed.reshape(self.x_shape)))
        else:
            blocks = DenseBlocks(self.blocks.places[observed])
        return blocks, [np.ascontiguousarray(flat[:, observed])[:, None, :]]

    def given(self, xs: ArrayLike, *, each: bool = False) -> Likelihood:
        """Likelihood of fields (n, *x_shape), one theta for all (with each=True, one per field), or
        of groups (g, n, *x_shape); all groups share one factorisation per theta."""
        groups, single = as_groups(xs, self.x_shape, each)
        g, n = groups.shape[:2]
        flat = self._coordinates(groups.reshape(-1, *self.x_shape).copy())
        coordinates = [u.reshape(g, n, -1) for u in flat]

        def pairs(theta: Floats, group: Integers) -> Floats:
            return self._evaluate(theta, coordinates, group, False)[0]

        def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
            return self._evaluate(theta, coordinates, group, True)

        def surface(theta: Floats) -> Floats:
            return self._surface(theta, coordinates)

        return Likelihood(
            self.space, g, n, pairs, pairs_gradient, surface, single, observed=digests(groups)
        )

    def fitted_trend(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """The mean that fits x best at theta (generalised least squares), (n, *x_shape), row by
        row: X beta^ with beta^ = (X' Sigma^-1 X)^-1 X' Sigma^-1 x. Only for models with a trend.

        Raises:
            MissingError: The mean of this model is zero.
        """
        rows, data = as_pairs(self, theta, x)
        if self._contrasts is None:
            raise MissingError("This field has no trend: its mean is zero, and known to be.")
        coordinates = [u[:, None] for u in self.blocks.to_blocks(np.asarray(data, np.float64))]
        fitted = [np.empty_like(u) for u in coordinates]
        values, _ = self._values(rows)
        with one_blas_thread(max(self.blocks.sizes)):
            for covariance, _, members in self._factorised(rows, values):
                spent, _ = self._contrasts.whitened(covariance)
                here = [u[members] for u in coordinates]
                left = covariance.colour(without(covariance.whiten(here), spent))
                for target, u, residual in zip(fitted, here, left, strict=True):
                    target[members] = u - residual
        return self.blocks.from_blocks([u[:, 0] for u in fitted])

    def _coordinates(self, x: NDArray[Any]) -> list[Floats]:
        """x in each block, as groups of one observation: (n, 1, m_b). A trend is taken off: that
        changes no contrast, and a mean far from zero would cost digits."""
        values = np.asarray(x, dtype=np.float64)
        if self.trend is not None:
            values = self.trend.take_off(values)
        return [u[:, None, :] for u in self.blocks.to_blocks(values)]

    def _draw(
        self, theta: Floats, rng: np.random.Generator, with_score: bool
    ) -> tuple[Floats, Floats, Floats]:
        values, steps = self._values(theta)
        white = rng.standard_normal((len(theta), self.size))
        white *= self._amplitude(values, rng)[:, None]
        # In the block form as in the plain one: the change of coordinates is a rotation.
        z = [u[:, None, :] for u in np.split(white, np.cumsum(self.blocks.sizes)[:-1], axis=1)]
        coloured = [np.empty_like(u) for u in z]
        value, score = np.zeros(len(theta)), np.zeros_like(theta)
        with one_blas_thread(max(self.blocks.sizes)):
            for covariance, one, members in self._factorised(theta, values):
                whitened = [u[members] for u in z]
                for target, part in zip(coloured, covariance.colour(whitened), strict=True):
                    target[members] = part
                if with_score:
                    found = self._at(covariance, one, whitened, self._contrasts)
                    value[members] = found.value[:, 0]
                    score[members] = self._gradient(covariance, found)
        if self._contrasts is not None:
            coloured = self._contrasts.residuals(coloured)
        return self.blocks.from_blocks([u[:, 0] for u in coloured]), value, score * steps

    def _evaluate(
        self,
        theta: Floats,
        coordinates: list[Floats],
        group: Integers,
        with_score: bool,
        blocks: Blocks | None = None,
        contrasts: Contrasts | None = None,
    ) -> tuple[Floats, Floats]:
        """log-likelihood (n,) and score (n, d) of group[i] at theta[i]; groups are (g, n, m_b), of
        the whole field or of the sites that `blocks` and `contrasts` are of."""
        if blocks is None:
            blocks, contrasts = self.blocks, self._contrasts
        values, steps = self._values(theta)
        value, score = np.empty(len(theta)), np.zeros_like(theta)
        with one_blas_thread(max(blocks.sizes)):
            for covariance, one, members in self._factorised(theta, values, blocks):
                z = covariance.whiten([u[group[members]] for u in coordinates])
                found = self._at(covariance, one, z, contrasts)
                value[members] = found.value.sum(axis=1)
                if with_score:
                    score[members] = self._gradient(covariance, found)
        return value, score * steps

    def _surface(self, theta: Floats, coordinates: list[Floats]) -> Floats:
        """Every group at every theta, (g, n of theta)."""
        values, _ = self._values(theta)
        surface = np.empty((len(coordinates[0]), len(theta)))
        with one_blas_thread(max(self.blocks.sizes)):
            for covariance, one, members in self._factorised(theta, values):
                found = self._at(covariance, one, covariance.whiten(coordinates), self._contrasts)
                surface[:, members] = found.value.sum(axis=1)[:, None]
        return surface

    def _at(
        self,
        covariance: StationaryCovariance,
        one: Mapping[str, float],
        z: list[Floats],
        contrasts: Contrasts | None,
    ) -> _Density:
        """The density of whitened x = L z (g, n, m_b), or of its contrasts."""
        size, log_determinant = sum(v.shape[-1] for v in z), covariance.log_determinant
        spent = None
        if contrasts is not None:
            spent, more = contrasts.whitened(covariance)
            z, size, log_determinant = (
                without(z, spent),
                size - contrasts.spent,
                log_determinant + more,
            )
        h, weight, slope = self._radial(one, _squared_norm(z), size)
        return _Density(h - 0.5 * log_determinant, z, weight, slope, spent)

    def _gradient(self, covariance: StationaryCovariance, found: _Density) -> Floats:
        """Slopes in the raw values of the free parameters, (g, d)."""
        slopes = covariance.gradient(found.z, found.weight, found.spent)
        slopes["nu"] = found.slope.sum(axis=1)
        return np.stack([slopes[name] for name in self.space.names], axis=1)

    def _factorised(
        self, theta: Floats, values: Mapping[str, Floats], blocks: Blocks | None = None
    ) -> Iterator[tuple[StationaryCovariance, dict[str, float], Integers]]:
        """Each distinct theta once: factorised covariance, raw values, and its rows."""
        if len(theta) == 0:
            return
        covariance = StationaryCovariance(self.kernel, self.blocks if blocks is None else blocks)
        _, first, inverse = np.unique(theta, axis=0, return_index=True, return_inverse=True)
        inverse = inverse.ravel()  # NumPy 2.0 gives it a second axis
        order = np.argsort(inverse, kind="stable")
        counts = np.bincount(inverse)
        for row, members in zip(first, np.split(order, np.cumsum(counts)[:-1]), strict=True):
            one = {name: float(column[row]) for name, column in values.items()}
            try:
                covariance.factorise(one["l_x"], one["l_y"], one["eps"], one["sigma2"])
            except (NotPositiveDefiniteError, DomainError) as error:
                raise type(error)(f"{error} At {self._named(theta[row])}.") from None
            yield covariance, one, members

    # Parameters -----------------------------------------------------------------------------

    def _values(self, theta: Floats) -> tuple[dict[str, Floats], Floats]:
        """Values of all parameters, (n,) each, and d value / d theta, (n, d). For nu the value is
        nu - 2, the number the law is written in: taking 2 from a rounded nu would lose digits."""
        values = {name: np.full(len(theta), v) for name, v in self._fixed.items()}
        steps = np.ones_like(theta)
        for k, p in enumerate(self.space.parameters):
            moved = theta[:, k]
            if p.transform == "log":
                with np.errstate(over="ignore", under="ignore"):
                    moved = steps[:, k] = np.exp(theta[:, k])
            values[p.name] = moved + (p.shift - _origin(p.name))
        for name, value in values.items():
            bad = ~_in_domain(name, value)
            if bad.any():
                row = int(np.argmax(bad))
                raise DomainError(
                    f"{_domain(name)}; got {name} = {value[row] + _origin(name):g} "
                    f"at {self._named(theta[row])}."
                )
        return values, steps

    def _named(self, row: Floats) -> str:
        pairs = zip(self.space.working_names, row, strict=True)
        return "theta = (" + ", ".join(f"{name} = {value:.6g}" for name, value in pairs) + ")"

    def _check_parameters(self) -> dict[str, float]:
        """Values of the fixed parameters; free and fixed ones together are all the model has."""
        known = self._parameter_names
        for name in (*self.space.names, *self.space.fixed):
            require_choice(name, f"parameter of {type(self).__name__}", known)
        fixed = {name: v - _origin(name) for name, v in self.space.fixed.items()}
        for name in known:
            if name not in fixed and name not in self.space.names:
                if name not in DEFAULT_FIXED:
                    raise MissingError(
                        f"The space must have {name}, free or fixed; it has "
                        f"{', '.join((*self.space.names, *self.space.fixed))}."
                    )
                fixed[name] = DEFAULT_FIXED[name]
        for name, value in fixed.items():
            if not _in_domain(name, np.array([value]))[0]:
                raise DomainError(f"{_domain(name)}; got {name} = {value + _origin(name):g}.")
        return fixed


def patterns(flags: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], Integers]]:
    """Each distinct row of flags (n, m) once, with the numbers of the rows that are like it."""
    if len(flags) == 0:
        return
    _, first, inverse = np.unique(
        np.packbits(flags, axis=1), axis=0, return_index=True, return_inverse=True
    )
    for k, row in enumerate(first):
        yield flags[row], np.flatnonzero(inverse.ravel() == k)


def _squared_norm(z: list[Floats]) -> Floats:
    """q = |z|^2 over all blocks, (g, n)."""
    return np.sum([np.einsum("gnm,gnm->gn", u, u) for u in z], axis=0)


def _origin(name: str) -> float:
    return 2.0 if name == "nu" else 0.0


def _in_domain(name: str, value: Floats) -> NDArray[np.bool_]:
    return np.isfinite(value) & ((value >= 0.0) if name == "eps" else (value > 0.0))


def _domain(name: str) -> str:
    relation = "at least 0" if name == "eps" else f"greater than {_origin(name):g}"
    return f"{name} must be finite and {relation}"


def _and(name: str, label: str) -> str:
    return f"{name}, {label}" if name else label


def _grid_shape(side: int | None, shape: Sequence[int] | None) -> tuple[int, int]:
    if shape is None:
        n = require_count(DEFAULT_SIDE if side is None else side, "side")
        return n, n
    if side is not None:
        raise DomainError("Give either side (a square grid) or shape, not both.")
    if not isinstance(shape, (list, tuple, np.ndarray)) or len(shape) != 2:
        raise ShapeError(f"shape must be (n_1, n_2); got {shape!r}.")
    return require_count(shape[0], "shape[0]"), require_count(shape[1], "shape[1]")


def _pair_of_extents(extent: float | Sequence[float]) -> tuple[float, float]:
    extents = as_floats(extent, "extent")
    if extents.shape not in ((), (2,)):
        raise ShapeError(f"extent must be one number or one per axis; got {extent!r}.")
    first, second = (float(e) for e in np.broadcast_to(extents, (2,)))
    if not (0.0 < first < np.inf and 0.0 < second < np.inf):
        raise DomainError(f"extent must be finite and positive; got {extent!r}.")
    return first, second


def _as_locations(locations: ArrayLike) -> Floats:
    array = as_floats(locations, "locations").copy()  # the caller's own may change later
    if array.ndim != 2 or array.shape[1] != 2 or len(array) == 0:
        raise ShapeError(f"locations must have shape (S, 2), S >= 1; got {array.shape}.")
    require_finite(array, "locations")
    return array
