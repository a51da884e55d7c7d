"""The correction of a surrogate: D = exact minus surrogate log-likelihood, and the two together.

D is interpolated (numerics/kriging.py) in coordinates u = a'(theta - origin), centre and factor of
the region when it was fitted: there the confidence set is about a ball. It holds within the
ellipsoid of its `Refinement`. Outside, D is held at its value on the boundary, in the direction of
theta; where D falls outward at the boundary it goes on falling at that rate, so that a surrogate
which rises beyond the region, where the exact likelihood does not, has no maximum there:

    D(theta) = D(h) + min(0, dD/dr(h)) (r - R),    h on the boundary, r = |factor' (theta - centre)|
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from keepscore.checks import Floats
from keepscore.inference.refinement import Refinement
from keepscore.likelihood import Integers, Likelihood, TracedFunction
from keepscore.numerics.kriging import Kriging, powers_up_to
from keepscore.numerics.space_filling import fill_ball

if TYPE_CHECKING:
    from jax import Array

RATE_STEP = 1e-4  # of the radius, for the second derivative of D along a ray
MOST_TERMS = 300  # of a polynomial for samplers
POLYNOMIAL_SHARE = 0.3  # of tolerance or error, whichever is larger: what it may be off by


@dataclass(frozen=True)
class Correction:
    """D of every group: an interpolant in u = a'(theta - origin), and where it holds."""

    kriging: Kriging
    origin: Floats
    a: Floats
    record: Refinement

    def value(self, theta: Floats, group: Integers) -> Floats:
        """D (m,) alone, in a third of the time."""
        r = np.sqrt((self._within(theta, group) ** 2).sum(axis=1))
        outside = r > self.record.radius
        inside = ~outside
        out = np.empty(len(theta))
        out[inside] = self.kriging.value(self._chart(theta[inside], group[inside]), group[inside])
        if outside.any():
            out[outside] = self.at(theta[outside], group[outside])[0]
        return out

    def at(self, theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        """D (m,) and its gradient (m, d) at theta (m, d) of the groups (m,)."""
        record, d = self.record, theta.shape[1]
        factor, offset = record.factor[group], theta - record.centre[group]
        s = self._within(theta, group)
        r = np.sqrt((s**2).sum(axis=1))
        share = np.minimum(1.0, record.radius / np.maximum(r, 1e-300))
        held = record.centre[group] + share[:, None] * offset
        # Outside, h = centre + R offset / r: what moves along the offset changes nothing.
        rise = np.einsum("mij,mj->mi", factor, s) / np.maximum(r, 1e-300)[:, None]  # dr / dtheta
        along = offset[:, :, None] * (rise / np.maximum(r, 1e-300)[:, None])[:, None, :]
        outside = share < 1
        pull = share[:, None, None] * (np.eye(d) - np.where(outside[:, None, None], along, 0.0))
        value, slope = self._interpolated(held, group)
        gradient = np.einsum("mij,mi->mj", pull, slope)
        way = offset / np.maximum(r, 1e-300)[:, None]  # dh / dr
        rate = (slope * way).sum(axis=1)
        i = np.flatnonzero(outside & (rate < 0))
        if len(i):
            beyond = r[i] - record.radius
            value[i] += rate[i] * beyond
            # d rate / dtheta = pull' (Hessian way + slope / R)
            step = RATE_STEP * record.radius * way[i]
            ends = [self._interpolated(held[i] + sign * step, group[i])[1] for sign in (1.0, -1.0)]
            bend = (ends[0] - ends[1]) / (2 * RATE_STEP * record.radius) + slope[i] / record.radius
            turned = np.einsum("mij,mi->mj", pull[i], bend)
            gradient[i] += beyond[:, None] * turned + rate[i, None] * rise[i]
        return value, gradient

    def _within(self, theta: Floats, group: Integers) -> Floats:
        """factor' (theta - centre) (m, d): its length is the radius on the boundary."""
        record = self.record
        return np.einsum("mji,mj->mi", record.factor[group], theta - record.centre[group])

    def _chart(self, theta: Floats, group: Integers) -> Floats:
        """u (m, d) of theta (m, d)."""
        return np.einsum("mji,mj->mi", self.a[group], theta - self.origin[group])

    def _interpolated(self, theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        """The interpolant itself, and its gradient in theta."""
        value, along = self.kriging.at(self._chart(theta, group), group)
        return value, np.einsum("mij,mj->mi", self.a[group], along)

    def copy(self) -> Correction:
        """One that shares no arrays with this."""
        k, record = self.kriging, self.record
        return Correction(
            replace(k, points=k.points.copy(), weights=k.weights.copy(), beta=k.beta.copy(),
                    length=k.length.copy(), scale=k.scale.copy()),
            self.origin.copy(), self.a.copy(),
            replace(record, error=record.error.copy(), reached=record.reached.copy(),
                    before=record.before.copy(), centre=record.centre.copy(),
                    factor=record.factor.copy()),
        )  # fmt: skip

    def put(self, rows: Integers, other: Correction) -> None:
        """Take these groups (r,) from another correction of the same groups."""
        ours, theirs = self.kriging, other.kriging
        n = theirs.points.shape[1]
        if n > ours.points.shape[1]:
            room = [(0, 0), (0, n - ours.points.shape[1]), (0, 0)]
            wider = replace(
                ours, points=np.pad(ours.points, room), weights=np.pad(ours.weights, room)
            )
            object.__setattr__(self, "kriging", wider)
            ours = wider
        ours.weights[rows] = 0.0
        ours.points[rows, :n], ours.weights[rows, :n] = theirs.points[rows], theirs.weights[rows]
        for mine, new in (
            (ours.beta, theirs.beta),
            (ours.length, theirs.length),
            (ours.scale, theirs.scale),
            (self.origin, other.origin),
            (self.a, other.a),
            (self.record.error, other.record.error),
            (self.record.reached, other.record.reached),
            (self.record.before, other.record.before),
            (self.record.centre, other.record.centre),
            (self.record.factor, other.record.factor),
        ):
            mine[rows] = new[rows]

    def traced_data(self) -> tuple[Any, ...] | None:
        """What `TracedSum` needs of D; None if no polynomial comes near enough.

        The interpolant's weights are large and cancel, which float32 cannot hold. A polynomial of
        it over the ellipsoid, scaled to the unit ball, can.
        """
        import jax.numpy as jnp

        found = self._as_polynomial()
        if found is None:
            return None
        powers, beta = found
        centre, factor = self.record.centre, self.record.factor / self.record.radius
        floats = (jnp.asarray(array, jnp.float32) for array in (centre, factor, beta))
        return *floats, jnp.asarray(powers, jnp.int32)

    def _as_polynomial(self) -> tuple[Integers, Floats] | None:
        """Powers (terms, d) and coefficients (g, terms) in s = factor'(theta - centre) / radius."""
        record, (g, d) = self.record, self.origin.shape
        back = np.linalg.inv(record.factor)
        enough = POLYNOMIAL_SHARE * np.maximum(record.tolerance, record.error)
        for degree in range(3, 11):
            powers = powers_up_to(d, degree)
            if len(powers) > MOST_TERMS:
                break
            s = fill_ball(4 * len(powers), d, 1)
            theta = record.centre[:, None] + record.radius * np.einsum("mj,gji->gmi", s, back)
            group = np.repeat(np.arange(g), len(s))
            value = self.value(theta.reshape(-1, d), group).reshape(g, len(s))
            basis = np.prod(s[:, None, :] ** powers, axis=2)
            train = np.arange(len(s)) % 4 != 3
            beta = value[:, train] @ np.linalg.pinv(basis[train]).T
            off = (value - beta @ basis.T)[:, ~train]
            if (np.sqrt((off**2).mean(axis=1)) < enough).all():
                return powers, beta
        return None


@dataclass(frozen=True)
class TracedSum:
    """A traced log-likelihood plus D, a polynomial within the ellipsoid, outside constant or
    falling along rays: (data, (centre, factor, beta, powers)), theta (d,), group -> scalar."""

    function: TracedFunction

    def __call__(self, data: tuple[Any, tuple[Array, ...]], theta: Array, group: Array) -> Array:
        import jax.numpy as jnp

        ours, (*of_group, powers) = data
        centre, factor, beta = (array[group] for array in of_group)
        s = (factor * (theta - centre)[:, None]).sum(axis=0)
        square = (s**2).sum()
        far = square > 1
        r = jnp.sqrt(jnp.where(far, square, 1.0))
        terms = beta * jnp.prod((s / r) ** powers, axis=1)
        # Of a monomial of degree k, k times itself is the derivative in r where r = 1.
        rate = jnp.minimum(0.0, (terms * powers.sum(axis=1)).sum())
        return self.function(ours, theta, group) + terms.sum() + rate * (r - 1)


def corrected(like: Likelihood, correction: Correction) -> Likelihood:
    """l + D, as a likelihood of its own."""
    count = like.group_count

    def pairs(theta: Floats, group: Integers) -> Floats:
        return like.pairs(theta, group) + correction.value(theta, group)

    def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        value, gradient = like.pairs_gradient(theta, group)
        more, slope = correction.at(theta, group)
        return value + more, gradient + slope

    def surface(theta: Floats) -> Floats:
        rows, group = np.tile(theta, (count, 1)), np.repeat(np.arange(count), len(theta))
        return like.surface(theta) + correction.value(rows, group).reshape(count, len(theta))

    return replace(
        like,
        pairs=pairs,
        pairs_gradient=pairs_gradient,
        surface=surface,
        kind="refined",
        traceable=None,
        calibration=None,  # it was made for the surrogate
        refinement=correction.record,
    )


def joined(parts: Sequence[Correction]) -> Correction:
    """Corrections of some groups each as one of all of them."""
    most = max(part.kriging.points.shape[1] for part in parts)

    def padded(array: Floats) -> Floats:
        room = [(0, 0), (0, most - array.shape[1]), *[(0, 0)] * (array.ndim - 2)]
        return np.pad(array, room)

    def all_of(pick: Callable[[Correction], Any]) -> Any:
        return np.concatenate([pick(part) for part in parts])

    first = parts[0]
    together = Kriging(
        points=all_of(lambda c: padded(c.kriging.points)),
        weights=all_of(lambda c: padded(c.kriging.weights)),
        beta=all_of(lambda c: c.kriging.beta),
        powers=first.kriging.powers,
        length=all_of(lambda c: c.kriging.length),
        scale=all_of(lambda c: c.kriging.scale),
    )
    record = replace(
        first.record,
        error=all_of(lambda c: c.record.error),
        evaluations=all_of(lambda c: c.record.evaluations),
        reached=all_of(lambda c: c.record.reached),
        before=all_of(lambda c: c.record.before),
        centre=all_of(lambda c: c.record.centre),
        factor=all_of(lambda c: c.record.factor),
        points=tuple(p for part in parts for p in part.record.points),
    )
    return Correction(together, all_of(lambda c: c.origin), all_of(lambda c: c.a), record)
