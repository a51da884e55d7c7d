"""Maximum likelihood: the estimate, its observed information, and what to know before using it.

    theta_hat = argmax l(theta) over the box        I = -Hessian of l at theta_hat
    standard errors = sqrt(diag(I^-1)), working;  raw ones by the delta method, |d raw/d theta| se

The information is a central difference of the gradient with a step of a twentieth of a standard
error: long enough for float32 gradients, short enough that the third derivative does not matter. A
parameter on the boundary of the box has no standard error (NaN), and the others' are given it; an
information that is not positive definite gives NaN and `regular = False`; where the search did not
converge the curvature is not that of a maximum, and all are NaN. `reasons` says which it was.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import Floats
from keepscore.errors import KeepscoreWarning
from keepscore.inference import invariants
from keepscore.inference.maximise import maximum_of
from keepscore.inference.plain_data import plain
from keepscore.likelihood import Likelihood, Maximum, require_likelihood
from keepscore.space import Region, Space

STEP = 0.05  # of a standard error
BOUNDARY = 1e-6  # of the width of the box

ON_BOUNDARY = "on the boundary"
NOT_REGULAR = "the information is not positive definite"
NOT_CONVERGED = "the search did not converge"


@dataclass(frozen=True)
class MLE:
    """Maximum likelihood estimates. One group: arrays as named; g groups: a first axis of g.

    estimate, raw: (d,). log_likelihood: (). information: (d, d), in working parameters.
    standard_errors, raw_standard_errors: (d,), NaN for one of `reasons`. on_boundary: (d,) bool.
    converged: the search met its tolerance. regular: the information is positive definite in the
    parameters off the boundary. evaluations: calls of the log-likelihood with gradient, all groups
    together. fitted: what one theta was fitted to, in words. basis: what the likelihood stands on,
    "exact", "surrogate" or "refined: ...".
    """

    space: Space
    region: Region
    estimate: Floats
    raw: Floats
    log_likelihood: Any
    information: Floats
    standard_errors: Floats
    raw_standard_errors: Floats
    on_boundary: Any
    converged: Any
    regular: Any
    evaluations: int
    maximum: Maximum = field(repr=False, compare=False)
    fitted: str = ""
    basis: str = ""

    def __post_init__(self) -> None:
        low, high = self.space.box(self.region)
        invariants.require_estimate(self.estimate, low, high, "mle")
        law = "the log-likelihood at an estimate must be finite"
        invariants.require(np.isfinite(self.log_likelihood), "mle", law, self.log_likelihood)
        explained = self.reasons != ""
        for errors in (self.standard_errors, self.raw_standard_errors):
            invariants.require_standard_errors(errors, explained, "mle")

    @property
    def reasons(self) -> Any:
        """Why a parameter has no standard error, in words, "" where it has one: (d,), (g, d)."""
        edge = np.asarray(self.on_boundary)
        why = np.where(edge, ON_BOUNDARY, "")
        why = np.where(np.asarray(self.regular)[..., None] | edge, why, NOT_REGULAR)
        return np.where(np.asarray(self.converged)[..., None], why, NOT_CONVERGED)

    def __str__(self) -> str:
        if self.estimate.ndim == 2:
            return _many_text(self)
        lines = [self.fitted] if self.fitted else []
        lines.append(
            f"{'parameter':<14}{'raw':>12}{'s.e.':>10}   {'working':<14}{'value':>10}{'s.e.':>10}"
        )
        for k, p in enumerate(self.space.parameters):
            why = self.reasons[k]
            edge = f"   no s.e.: {why}" if why else ""
            if self.on_boundary[k]:
                edge = "   on the boundary" + (edge if why != ON_BOUNDARY else "")
            lines.append(
                f"{p.name:<14}{self.raw[k]:>12.5g}{self.raw_standard_errors[k]:>10.3g}   "
                f"{p.working_name:<14}{self.estimate[k]:>10.5g}{self.standard_errors[k]:>10.3g}{edge}"
            )
        notes = [] if self.converged else [NOT_CONVERGED]
        notes += [] if self.regular else [NOT_REGULAR]
        tail = f"; {'; '.join(notes)}" if notes else ""
        on = f" ({self.basis})" if self.basis else ""
        return "\n".join([*lines, f"log-likelihood {self.log_likelihood:.6g}{on}{tail}"])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; NaN (no standard error, for one of `reasons`) is None."""
        return {
            "names": list(self.space.names),
            "region": self.region,
            "estimate": plain(self.estimate),
            "raw": plain(self.raw),
            "log_likelihood": plain(self.log_likelihood),
            "standard_errors": plain(self.standard_errors),
            "raw_standard_errors": plain(self.raw_standard_errors),
            "reasons": np.asarray(self.reasons).tolist(),
            "on_boundary": plain(self.on_boundary),
            "converged": plain(self.converged),
            "regular": plain(self.regular),
            "evaluations": self.evaluations,
            "fitted": self.fitted,
            "basis": self.basis,
        }


def mle(
    like: Likelihood,
    region: Region = "base",
    starts: int | None = None,
    grid: int | None = None,
) -> MLE:
    """Maximum likelihood estimate of every group, inside the region's box.

    The maximum is remembered by `like`: tests, sets and posteriors of the same object do not search
    again. Naming `starts` or `grid` searches anew, and the higher maximum is kept.

    Args:
        like: A likelihood, from `model.given(xs)`, `surrogate.given(xs)` or `ks.refine`.
        region: Box of theta: "base", "train" or "test".
        starts: How many local maxima of the first look are climbed (3; 8 from five parameters on).
        grid: Points per side of the coarse grid the search starts from (11 for two parameters).
            From five parameters on the first look is a scattered design instead; 6 doubles it.

    Returns:
        Estimates with standard errors, what is wrong with them if anything is, and their `basis`.

    Raises:
        DtypeError: `like` is no likelihood.
        ConvergenceError: The log-likelihood is finite nowhere on the first look.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(6, 6))
        >>> truth = model.space.grid(3)[13]  # the centre of the box
        >>> xs = model.simulate(np.tile(truth, (20, 1)), np.random.default_rng(0))
        >>> found = ks.mle(model.given(xs))
        >>> found.converged, found.basis
        (True, 'exact')
        >>> z = (found.estimate - truth) / found.standard_errors
        >>> bool(abs(z[0]) < 3), bool(abs(z[1]) < 3)
        (True, True)
    """
    require_likelihood(like)
    found = maximum_of(like, region, starts, grid)
    warn_unconverged(found)
    low, high = like.space.box(region)
    slack = BOUNDARY * (high - low)
    edge = (found.theta <= low + slack) | (found.theta >= high - slack)
    information = observed_information(like, found)
    errors, regular = standard_errors(information, edge)
    # Away from a maximum, curvature says nothing about the spread of an estimate.
    errors = np.where(found.converged[:, None], errors, np.nan)
    raw = like.space.to_raw(found.theta)
    count = found.evaluations + 2 * like.space.d * like.group_count

    def one(values: ArrayLike) -> Any:
        return like.squeezed(np.array(values))

    return MLE(
        space=like.space,
        region=region,
        estimate=one(found.theta),
        raw=one(raw),
        log_likelihood=one(found.value),
        information=one(information),
        standard_errors=one(errors),
        raw_standard_errors=one(errors * _raw_slope(like.space, raw)),
        on_boundary=one(edge),
        converged=one(found.converged),
        regular=one(regular),
        evaluations=count,
        maximum=found,
        fitted=like.grouping,
        basis=like.basis,
    )


def observed_information(like: Likelihood, found: Maximum) -> Floats:
    """-Hessian at the maximum of every group, (g, d, d), by central differences of the gradient."""
    g, d = found.theta.shape
    low, high = like.space.box(found.region)
    width = high - low
    variance = np.diagonal(np.linalg.inv(found.curvature), axis1=1, axis2=2)
    step = np.clip(STEP * np.sqrt(np.maximum(variance, 0)), 1e-5 * width, 0.02 * width)
    # Both ends inside the box: at its boundary the difference becomes one-sided.
    centre = np.clip(found.theta, low + step, high - step)
    ends = np.repeat(found.theta[:, None, None, :], 2 * d, axis=1).reshape(g, d, 2, d)
    for k in range(d):
        ends[:, k, 0, k] = centre[:, k] - step[:, k]
        ends[:, k, 1, k] = centre[:, k] + step[:, k]
    group = np.repeat(np.arange(g), 2 * d)
    gradient = like.pairs_gradient(ends.reshape(-1, d), group)[1].reshape(g, d, 2, d)
    information = (gradient[:, :, 0] - gradient[:, :, 1]) / (2 * step[:, :, None])
    return (information + np.swapaxes(information, 1, 2)) / 2


def standard_errors(information: Floats, edge: np.ndarray) -> tuple[Floats, np.ndarray]:
    """sqrt(diag(I_FF^-1)) over the parameters F off the boundary, and whether I_FF > 0."""
    both = ~edge[:, :, None] & ~edge[:, None, :]
    free = np.where(both, information, np.eye(edge.shape[1]))
    finite = np.asarray(np.isfinite(free).all(axis=(1, 2)))
    free = np.where(finite[:, None, None], free, np.eye(edge.shape[1]))
    values, vectors = np.linalg.eigh(free)
    regular = finite & (values.min(axis=1) > 1e-10 * np.abs(values).max(axis=1))
    inverse = np.where(regular[:, None], values, 1.0) ** -1.0
    errors = np.sqrt(np.einsum("gik,gk->gi", vectors**2, inverse))
    return np.where(regular[:, None] & ~edge, errors, np.nan), regular


def warn_unconverged(found: Maximum) -> None:
    """One warning, with a count, if any search stopped before its tolerance was met."""
    lost = int((~found.converged).sum())
    if lost:
        warnings.warn(
            f"The search for the maximum did not converge for {lost} of {len(found.converged)} "
            "group(s); see `converged`. Their standard errors are NaN. A finer grid or more "
            "starts may help.",
            KeepscoreWarning,
            stacklevel=3,
        )


def _raw_slope(space: Space, raw: Floats) -> Floats:
    """d raw / d working: raw - shift for a logarithm, one for the identity."""
    log = np.array([p.transform == "log" for p in space.parameters])
    shift = np.array([p.shift for p in space.parameters])
    return np.where(log, raw - shift, 1.0)


def _many_text(result: MLE) -> str:
    mean, sd = result.raw.mean(axis=0), result.raw.std(axis=0)
    lines = [f"{result.fitted or f'{len(result.raw)} groups'}; estimates, raw:"]
    for k, name in enumerate(result.space.names):
        without = int((result.reasons[:, k] != "").sum())
        lines.append(
            f"  {name:<14}mean {mean[k]:.5g}, spread {sd[k]:.3g}, on the boundary in "
            f"{int(result.on_boundary[:, k].sum())}, without a standard error in {without}"
        )
    lost, odd = int((~result.converged).sum()), int((~result.regular).sum())
    lines.append(f"  not converged: {lost}; information not positive definite: {odd}")
    return "\n".join([*lines, f"  {result.basis}"] if result.basis else lines)
