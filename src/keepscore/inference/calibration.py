"""Calibrating a likelihood: simulate the null, fit its quantiles over theta, correct on held-out.

theta_i is uniform over the box, group_i is simulated there, Lambda_i is the likelihood-ratio
statistic at theta_i of whatever likelihood is being calibrated. One half fits the quantiles (the
degree of the polynomial by pinball loss), the other corrects them; null_distribution.py says what
that buys. On the same groups the profile statistic of each parameter alone is calibrated too, for
intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from keepscore.budget import Say, affordable, as_minutes, seconds_of, voice
from keepscore.checks import (
    Floats,
    as_theta,
    require_count,
    require_flag,
    require_level,
    require_parts,
)
from keepscore.errors import DomainError, DtypeError, SimulationError
from keepscore.inference import invariants
from keepscore.inference.lrt import held_parameters, null_maximum
from keepscore.inference.maximise import maximum_of
from keepscore.inference.null_distribution import Calibration, NullFit, features, monomials
from keepscore.inference.statistic import statistic as checked_statistic
from keepscore.likelihood import LikelihoodSource
from keepscore.numerics.quantile_regression import quantile_regression
from keepscore.space import Region, Space

LEVELS = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
HIGHEST_DEGREE = 4
ROWS_PER_TERM = 40  # of the fitting half, at least
GROUPS_AT_ONCE = 1000
FEWEST, TIMED = 100, 20  # groups: at least, and to find out what one costs
STREAM = 0xCA11  # keeps these draws apart from training data made with the same seed


class Simulator(Protocol):
    """Anything that draws x (n, *x_shape) at theta (n, d)."""

    def simulate(self, theta: ArrayLike, rng: np.random.Generator) -> NDArray[Any]: ...


def calibrate(
    surrogate: LikelihoodSource,
    simulator: Simulator | Any,
    group_size: int = 10,
    n: int = 4000,
    level: float = 0.95,
    parameters: Sequence[str] | None = None,
    region: Region = "base",
    seed: int = 0,
    intervals: bool = True,
    minutes: float | None = None,
    progress: Say | bool | None = None,
) -> Calibration:
    """Null distribution of the likelihood-ratio statistic over the region, for groups of this size.

    Args:
        surrogate: What is calibrated: a surrogate, or a model.
        simulator: A model (or anything with `simulate`), or a data set with `theta` and `x` whose
            consecutive `group_size` rows share one theta (any data set will do for groups of one).
        group_size: Observations per group.
        n: Groups, at most.
        level: Where the held-out check is reported; the result serves every level.
        parameters: With names, the statistic profiles the others out; critical values are then
            taken at the restricted maximum, and cover as well as that stands in for the truth.
        region: Box over which theta is drawn, and in which the sets lie.
        seed: Seed of theta and of the simulations.
        intervals: Whether to calibrate the profile of each parameter too, which calibrated
            intervals and tests of one parameter rest on; about one search more per parameter.
        minutes: Time for it: where n groups do not fit, there are fewer (100 at least), and a
            warning says so.
        progress: Told how far it is; True for standard error, the default on a terminal.

    Returns:
        A calibration; `surrogate.with_calibration(calibration)` keeps it with the surrogate.

    Raises:
        SimulationError: Groups are impossible at the theta they were simulated at.
        DomainError: The data set has too few groups, or groups without a theta of their own.

    Example:
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(3, 3))
        >>> made = ks.calibrate(model, model, group_size=5, n=100, intervals=False)
        >>> made.parameters, len(made.held_out)
        (('l_x', 'l_y', 'eps'), 50)
    """
    require_parts(surrogate, "surrogate", "space", "given")
    group_size = require_count(group_size, "group_size")
    n = require_count(n, "n", minimum=FEWEST)
    level, seed = require_level(level), require_count(seed, "seed", minimum=0)
    intervals = require_flag(intervals, "intervals")
    space = surrogate.space
    held, names = held_parameters(space, parameters)
    alone = [np.arange(space.d) == space.index(name) for name in names]
    if not intervals or len(names) == 1:
        alone = []
    every = np.stack([held, *alone])
    minutes, say = as_minutes(minutes), voice(progress, "calibrate")
    if minutes is not None and hasattr(simulator, "simulate"):
        cost = seconds_of(
            lambda: _simulated(surrogate, simulator, group_size, TIMED, every, region, seed)
        )
        n = affordable(minutes, cost / TIMED, n, FEWEST, "groups", "calibrate")
    theta, statistic = _null_sample(surrogate, simulator, group_size, n, every, region, seed, say)
    impossible = int((~np.isfinite(statistic)).any(axis=1).sum())
    if impossible:
        raise SimulationError(
            f"{impossible} of {len(theta)} simulated groups are impossible, by this likelihood, at "
            "the very theta they were simulated at: simulator and likelihood do not agree."
        )

    def one(column: int, of: tuple[str, ...]) -> Calibration:
        return _calibrated(space, region, theta, statistic[:, column], of, group_size, level)

    profiles = {name: one(1 + k, (name,)) for k, name in enumerate(names[: len(alone)])}
    return replace(one(0, names), profiles=profiles)


def _calibrated(
    space: Space,
    region: Region,
    theta: Floats,
    statistic: Floats,
    names: tuple[str, ...],
    group_size: int,
    level: float,
) -> Calibration:
    """From theta (n, d) and a statistic of each (n,): fit on one half, corrected on the other."""
    half = len(theta) // 2
    fit = _fit_quantiles(space, region, theta[:half], statistic[:half])
    rest, observed = theta[half:], statistic[half:]
    survival = fit.survival(observed, rest)
    calibration = Calibration(fit, names, group_size, np.sort(survival))
    check = _check(calibration, rest, observed, survival, level)
    for name in ("wilks", "fitted", "corrected"):
        invariants.require_shares(check[name], "calibrate", f"coverage ({name})")
    return replace(calibration, check=check)


def null_statistics(
    source: LikelihoodSource,
    simulator: Simulator,
    theta: Floats,
    group_size: int,
    rng: np.random.Generator,
    held: np.ndarray,
    region: Region,
    say: Say = lambda text: None,
) -> Floats:
    """Lambda_i at theta_i (m, d) of a group simulated at theta_i, for each of k null hypotheses
    held (k, d): (m, k)."""
    parts = []
    for i in range(0, len(theta), GROUPS_AT_ONCE):
        rows = theta[i : i + GROUPS_AT_ONCE]
        x = np.asarray(simulator.simulate(np.repeat(rows, group_size, axis=0), rng))
        if len(x) != len(rows) * group_size:
            raise SimulationError(
                f"The simulator returned {len(x)} rows for {len(rows) * group_size} of theta."
            )
        parts.append(_statistics(source, rows, x, group_size, held, region))
        say(f"{i + len(rows):,} of {len(theta):,} groups")
    return np.concatenate(parts)


def _statistics(
    source: LikelihoodSource,
    theta: Floats,
    x: NDArray[Any],
    group_size: int,
    held: np.ndarray,
    region: Region,
) -> Floats:
    like = source.given(x.reshape(len(theta), group_size, *x.shape[1:]))
    found, nulls = maximum_of(like, region), []
    for one in held:
        null, found, _ = null_maximum(like, found, one, theta)
        nulls.append(null.value)
    # Only now: a later null may have shown that the search had missed.
    values = [checked_statistic(found.value, value, "calibrate") for value in nulls]
    return np.stack(values, axis=1)


def _null_sample(
    source: LikelihoodSource,
    simulator: Any,
    group_size: int,
    n: int,
    held: np.ndarray,
    region: Region,
    seed: int,
    say: Say,
) -> tuple[Floats, Floats]:
    if hasattr(simulator, "simulate"):
        return _simulated(source, simulator, group_size, n, held, region, seed, say)
    if not (hasattr(simulator, "theta") and hasattr(simulator, "x")):
        raise DtypeError(
            "Calibration needs a simulator (with .simulate) or a data set (with .theta and .x); "
            f"got {type(simulator).__name__}."
        )
    return _from_dataset(source, simulator, group_size, n, held, region)


def _simulated(
    source: LikelihoodSource,
    simulator: Simulator,
    group_size: int,
    n: int,
    held: np.ndarray,
    region: Region,
    seed: int,
    say: Say = lambda text: None,
) -> tuple[Floats, Floats]:
    """theta (n, d) drawn over the region, and the null statistics of groups simulated there."""
    rng = np.random.default_rng([seed, STREAM])
    theta = source.space.draw(n, rng, region)
    return theta, null_statistics(source, simulator, theta, group_size, rng, held, region, say)


def _from_dataset(
    source: LikelihoodSource, data: Any, group_size: int, n: int, held: np.ndarray, region: Region
) -> tuple[Floats, Floats]:
    rows = as_theta(data.theta, source.space.d)
    count = len(rows) // group_size
    grouped = rows[: count * group_size].reshape(count, group_size, -1)
    same = (grouped == grouped[:, :1]).all(axis=(1, 2))
    if not same.all():
        raise DomainError(
            f"For groups of {group_size}, each {group_size} consecutive rows of the data set must "
            f"share one theta; group {int(np.argmin(same))} does not. Pass a simulator instead, or "
            "use group_size=1."
        )
    inside = np.flatnonzero(source.space.contains(grouped[:, 0], region))[:n]
    if len(inside) < FEWEST:
        raise DomainError(
            f"Calibration needs at least {FEWEST} groups in the {region} box; got {len(inside)}."
        )
    x = np.asarray(data.x)[: count * group_size]
    x = x.reshape(count, group_size, *x.shape[1:])
    # A stored design may be ordered; the halves must be exchangeable.
    inside = np.random.default_rng(STREAM).permutation(inside)
    parts = []
    for i in range(0, len(inside), GROUPS_AT_ONCE):
        j = inside[i : i + GROUPS_AT_ONCE]
        flat = x[j].reshape(-1, *x.shape[2:])
        parts.append(_statistics(source, grouped[j, 0], flat, group_size, held, region))
    return grouped[inside, 0], np.concatenate(parts)


def _fit_quantiles(space: Space, region: Region, theta: Floats, statistic: Floats) -> NullFit:
    """Polynomials for log Lambda at each level; one degree for all, chosen at the 0.9 quantile."""
    target = np.log(np.maximum(statistic, 1e-6))
    cut = (2 * len(theta)) // 3
    losses = []
    for degree in range(HIGHEST_DEGREE + 1):
        powers = monomials(space.d, degree)
        if degree > 0 and len(powers) * ROWS_PER_TERM > cut:
            break
        z = features(space, region, powers, theta)
        fitted = z[cut:] @ quantile_regression(z[:cut], target[:cut], 0.9)
        losses.append(_pinball(target[cut:] - fitted, 0.9))
    powers = monomials(space.d, int(np.argmin(losses)))
    z = features(space, region, powers, theta)
    coefficients = np.stack([quantile_regression(z, target, level) for level in LEVELS])
    return NullFit(space, region, np.array(LEVELS), powers, coefficients)


def _pinball(residual: Floats, level: float) -> float:
    return float(np.maximum(level * residual, (level - 1) * residual).mean())


def _check(
    calibration: Calibration, theta: Floats, statistic: Floats, survival: Floats, level: float
) -> dict[str, Any]:
    """What the held-out half shows at one level, in all and in each half of each parameter."""
    df = len(calibration.parameters)
    covered = statistic <= calibration.critical(theta, level)
    low, high = calibration.space.box(calibration.fit.region)
    parts = {}
    for k, name in enumerate(calibration.space.names):
        upper = theta[:, k] > (low[k] + high[k]) / 2
        for label, part in (("lower", ~upper), ("upper", upper)):
            parts[f"{name}, {label} half"] = float(covered[part].mean()) if part.any() else None
    return {
        "level": float(level),
        "held_out": len(theta),
        "wilks": float((statistic <= stats.chi2.ppf(level, df)).mean()),
        "fitted": float((survival >= 1 - level).mean()),
        "corrected": float(covered.mean()),
        "standard_error": float(np.sqrt(level * (1 - level) / len(theta))),
        "corrected_by_part": parts,
    }
