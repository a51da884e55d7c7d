"""Does this model fit these data at all? A parametric bootstrap at the estimate.

theta^ maximises the likelihood of xs. B groups of the same size are simulated at theta^, and what
xs show is compared with what they show, summary by summary (see `data_summaries`), and by the
maximised log-likelihood, for which theta is fitted anew to every group. With T_0 the observed value
and T_1, ..., T_B the simulated ones,

    p = 2 min(#{b: T_b <= T_0} + 1, #{b: T_b >= T_0} + 1) / (B + 1), at most 1

and all together by the largest |z|, z_b = (T_b - mean) / sd over all groups but b: the distribution
of the largest |z| comes from the simulated groups, each compared with all the others in the same
way. So the overall p-value keeps its level however many summaries there are, and however skew (a
little on the safe side, since theta^ was fitted to xs).

With a surrogate, xs are also compared with what it was trained on: the distance of the network's
features of each observation from those of simulations over the whole box,

    m(x)^2 = (f(x) - mean f)' (Cov f + ridge)^-1 (f(x) - mean f)

p = the share of simulations as far out as the farthest observation, times the observations. There
are so many simulations that n observations beyond all of them have p at most half the level.

An unknown mean (the `trend` of a model) is taken off xs before all of this, as it is off every
simulation: whatever it is, it is no misfit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import (
    Floats,
    as_floats,
    as_real,
    require_count,
    require_level,
    require_parts,
    require_values,
)
from keepscore.errors import (
    DomainError,
    DtypeError,
    KeepscoreError,
    KeepscoreWarning,
    MissingError,
    ShapeError,
)
from keepscore.evaluation.data_summaries import summaries
from keepscore.inference import invariants, mle
from keepscore.inference.maximise import maximum_of
from keepscore.models.base import Model, build, declares_missing, trend_of
from keepscore.surrogate import Surrogate

LIKELIHOOD = "maximised log-likelihood"
FEATURES = "like the training data"
IN_UNITS_OF_X = ("mean", "sd", "sd of the observations' means")  # other summaries have no unit
ROUNDING = 1e-9
RIDGE = 1e-6
FEWEST = 1_000  # simulations that features are compared with, at least
STREAM = 0xDA7A  # keeps these draws apart from others of the same seed


@dataclass(frozen=True)
class SummaryCheck:
    """One summary: observed, where 90% of the simulated ones lie, its p-value, and how many
    standard deviations it is off."""

    name: str
    observed: float
    low: float
    high: float
    p_value: float
    z: float

    def __str__(self) -> str:
        return (
            f"{self.name:<44}{self.observed:>11.4g}   [{self.low:.4g}, {self.high:.4g}]"
            f"   p = {self.p_value:.3g}"
        )


@dataclass(frozen=True)
class DataCheck:
    """What `check_data` found. print() it, or draw it with `ks.figures.data_check`.

    p_value: of all summaries together; se: its Monte Carlo error. draws: simulated groups.
    novelty: the p-value of "xs look like what the surrogate was trained on", None for a model.
    """

    model: str
    estimate: Floats
    summaries: tuple[SummaryCheck, ...]
    p_value: float
    se: float
    draws: int
    level: float
    novelty: float | None = None

    def __post_init__(self) -> None:
        every = [self.p_value, *(one.p_value for one in self.summaries)]
        every += [] if self.novelty is None else [self.novelty]
        invariants.require_shares(every, "check_data", "a p-value")

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against the model at this level."""
        return self.p_value >= self.level and (self.novelty is None or self.novelty >= self.level)

    @property
    def sentence(self) -> str:
        """The finding in plain words."""
        parts = []
        if self.novelty is not None and self.novelty < self.level:
            parts.append(
                "These data are unlike anything the surrogate was trained on (p = "
                f"{self.novelty:.2g}): its answers about them mean nothing."
            )
        told = f"p = {self.p_value:.2g} ± {self.se:.1g}, {self.draws} simulated groups"
        if self.p_value < self.level:
            worst = max(self.summaries, key=lambda one: abs(one.z))
            parts.append(
                f"{self.model} does not fit these data ({told}): {worst.name} is "
                f"{worst.observed:.4g}, where the fitted model gives {worst.low:.4g} to "
                f"{worst.high:.4g}."
            )
        elif not parts:
            parts.append(f"Nothing here speaks against {self.model} ({told}).")
        return " ".join(parts)

    def __str__(self) -> str:
        head = f"{'':<44}{'observed':>11}   90% of simulations"
        return "\n".join([self.sentence, head, *map(str, self.summaries)])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": self.model,
            "fits": self.fits,
            "sentence": self.sentence,
            "estimate": self.estimate.tolist(),
            "p_value": self.p_value,
            "se": self.se,
            "draws": self.draws,
            "level": self.level,
            "novelty": self.novelty,
            "summaries": [vars(one) for one in self.summaries],
        }


def check_data(
    source: Surrogate | Model,
    xs: ArrayLike,
    model: Model | None = None,
    *,
    draws: int = 200,
    level: float = 0.01,
    seed: int = 0,
    extra: Callable[[NDArray[Any]], dict[str, Floats]] | None = None,
) -> DataCheck:
    """Whether a model fits observations, and whether they are like a surrogate's training data.

    Args:
        source: A surrogate, or a model with a likelihood.
        xs: Observations of one system, (n, *x_shape).
        model: The simulator behind a surrogate. Built-in models are found by themselves.
        draws: Groups simulated at the estimate.
        level: p-values below it count as a misfit.
        seed: Of the simulations.
        extra: Summaries of your own: a function of groups (g, n, *x_shape) that returns arrays (g,)
            by name.

    Returns:
        A `DataCheck`: a p-value for all summaries together with its Monte Carlo error, one for each
        of them, and a sentence.

    Raises:
        ShapeError: xs are not one group of observations.
        DomainError: Too few draws for the level.
        MissingError: A surrogate of a model of your own, and no `model`.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(5, 5))
        >>> x = model.simulate([[0.3, 0.3, -1.0]] * 4, np.random.default_rng(0))
        >>> ks.check_data(model, x, draws=50, level=0.05).fits
        True
        >>> ks.check_data(model, 3 * x + 10, draws=50, level=0.05).fits
        False
    """
    require_parts(source, "source", "space", "given")
    draws, level = require_count(draws, "draws", minimum=20), require_level(level)
    seed = require_count(seed, "seed", minimum=0)
    if level * (draws + 1) < 1:
        raise DomainError(
            f"With {draws} draws no p-value is below {1 / (draws + 1):.2g}, and level {level:g} "
            f"finds no misfit at all. Take {math.ceil(1 / level) - 1} draws or more, or a higher "
            "level."
        )
    simulator = _simulator(source, model)
    if extra is not None and (not callable(extra) or isinstance(extra, type)):
        raise DtypeError(f"extra must be a function of groups of data; got {extra!r:.80}.")
    observed = as_real(xs, "xs")
    if observed.ndim != 1 + len(simulator.x_shape) or not len(observed):
        inner = ", ".join(map(str, simulator.x_shape))
        raise ShapeError(
            f"check_data takes one group of observations, (n, {inner}); got {observed.shape}. "
            "Call it once per group."
        )
    trend = trend_of(simulator)
    require_values(observed, "xs", declares_missing(simulator))
    if trend is not None:  # unknown, so nothing of it can be wrong; simulations are without it
        observed = trend.take_off(observed)
    rng = np.random.default_rng([seed, STREAM])
    novelty = None
    if isinstance(source, Surrogate):
        novelty = _novelty(source, simulator, observed, level, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # estimates on the edge: expected here
        estimate = np.asarray(_estimate(source, observed, novelty))
        n = len(observed)
        theta = np.repeat(estimate[None], draws * n, axis=0)
        if hasattr(simulator, "simulate_at"):  # data with the designs of these
            same = np.tile(observed, (draws, *[1] * len(simulator.x_shape)))
            simulated = simulator.simulate_at(theta, same, rng)
        else:
            simulated = simulator.simulate(theta, rng)
        groups = np.asarray(simulated).reshape(draws, n, *simulator.x_shape)
        every = np.concatenate([observed[None].astype(float), groups.astype(float)])
        found = summaries(every, simulator.structure)
        if trend is not None:
            found = _left_by_a_trend(found, every)
        if extra is not None:
            named = extra(every)
            if not isinstance(named, Mapping):
                raise DtypeError(
                    f"extra must return a dict of summaries by name; got {type(named).__name__}."
                )
            found |= {str(k): _one_per_group(k, v, draws + 1) for k, v in named.items()}
        found[LIKELIHOOD] = _maximised(source, observed, groups)
    kept = {name: values for name, values in found.items() if np.ptp(values) > 0}
    table = np.stack(list(kept.values()))
    p, z = two_sided(table), standardised(table)
    rows = []
    for k, (name, values) in enumerate(kept.items()):
        low, high = (float(q) for q in np.quantile(values[1:], (0.05, 0.95)))
        rows.append(SummaryCheck(name, float(values[0]), low, high, float(p[k, 0]), float(z[k, 0])))
    largest = np.abs(z).max(axis=0)
    overall = (1 + int((largest[1:] >= largest[0]).sum())) / (draws + 1)
    se = math.sqrt(overall * (1 - overall) / draws)
    return DataCheck(simulator.name, estimate, tuple(rows), overall, se, draws, level, novelty)


def _left_by_a_trend(found: dict[str, Floats], every: NDArray[Any]) -> dict[str, Floats]:
    """Summaries without those that are zero once a trend is taken off, but for rounding: its z
    would be as good as any."""
    size = float(np.sqrt(np.nanmean(every**2)))
    units = dict.fromkeys((*IN_UNITS_OF_X,), size)
    return {k: v for k, v in found.items() if np.abs(v).max() > ROUNDING * units.get(k, 1.0)}


def two_sided(table: Floats) -> Floats:
    """p-values of each column of (summaries, groups) among all columns, ties on the safe side."""
    groups = table.shape[1]
    order = np.sort(table, axis=1)
    below = np.stack(
        [np.searchsorted(o, t, side="right") for o, t in zip(order, table, strict=True)]
    )
    above = groups - np.stack(
        [np.searchsorted(o, t, side="left") for o, t in zip(order, table, strict=True)]
    )
    return np.minimum(1.0, 2 * np.minimum(below, above) / groups)


def standardised(table: Floats) -> Floats:
    """z of each column of (summaries, groups), by mean and sd of all the others."""
    others = table.shape[1] - 1
    mean = (table.sum(axis=1, keepdims=True) - table) / others
    centred = table - table.mean(axis=1, keepdims=True)
    square = ((centred**2).sum(axis=1, keepdims=True) - centred**2) / others
    variance = square - (mean - table.mean(axis=1, keepdims=True)) ** 2
    scale = np.abs(table).max(axis=1, keepdims=True)
    floor = (1e-12 * scale) ** 2 + np.finfo(float).tiny  # all the others are equal
    return (table - mean) / np.sqrt(np.maximum(variance, floor))


def _estimate(source: Surrogate | Model, observed: NDArray[Any], novelty: float | None) -> Floats:
    try:
        return np.asarray(mle(source.given(observed)).estimate)
    except KeepscoreError:
        if novelty is None:
            raise
        low, high = source.space.box("base")  # a surrogate refuses data from far outside
        return (low + high) / 2


def _maximised(source: Surrogate | Model, observed: NDArray[Any], groups: NDArray[Any]) -> Floats:
    """l_max of the observed group and of every simulated one."""
    try:
        first = np.atleast_1d(maximum_of(source.given(observed[None])).value)
    except KeepscoreError:
        first = np.array([-np.inf])
    rest = np.atleast_1d(maximum_of(source.given(groups)).value)
    both = np.concatenate([first, rest])
    lowest = both[np.isfinite(both)].min(initial=0.0)
    return np.where(np.isfinite(both), both, lowest - 1)


def compared_with(n: int, level: float) -> int:
    """How many simulations n observations are compared with: the smallest p-value there can be,
    n / (count + 1), is at most half the level."""
    return max(FEWEST, math.ceil(2 * n / level))


def _novelty(
    surrogate: Surrogate,
    simulator: Model,
    observed: NDArray[Any],
    level: float,
    rng: np.random.Generator,
) -> float:
    """How unusual the farthest observation is among simulations over the whole box."""
    count = compared_with(len(observed), level)
    theta = surrogate.space.uniform(FEWEST + count, rng, "train")
    trained = _features(surrogate, simulator.simulate(theta, rng))
    ours = _features(surrogate, observed)
    centre = _means(trained[:FEWEST])
    # A feature that is not there, of an entry that was not observed, tells nothing.
    trained, ours = (np.where(np.isnan(f), centre, f) for f in (trained, ours))
    fitted, others = trained[:FEWEST], trained[FEWEST:]  # of the first, distances are too short
    spread = np.atleast_2d(np.cov(fitted.T))
    scale = max(float(np.trace(spread)) / len(spread), np.finfo(float).tiny)
    half = np.linalg.cholesky(spread + RIDGE * scale * np.eye(len(spread)))

    def distance(features: Floats) -> Floats:
        return np.linalg.norm(np.linalg.solve(half, (features - centre).T), axis=0)

    typical, farthest = distance(others), distance(ours).max()
    law = "distances from the training data must be finite"
    invariants.require(np.isfinite([*typical, farthest]), "check_data", law, farthest)
    p = (1 + int((typical >= farthest).sum())) / (count + 1)
    return min(1.0, p * len(observed))


def _features(surrogate: Surrogate, x: NDArray[Any]) -> Floats:
    """What the network makes of each observation, (n, k), its plain moments, and the share that
    was observed; NaN where there is nothing to tell."""
    rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    there = ~np.isnan(rows)
    mean = _means(rows.T)
    sd = np.sqrt(_means(((rows - mean[:, None]) ** 2).T))
    largest = np.where(there, np.abs(rows), 0.0).max(axis=1)
    moments = np.stack([mean, sd, largest, there.mean(axis=1)], axis=1)
    return np.concatenate([moments, surrogate.features(x)], axis=1)


def _means(values: Floats) -> Floats:
    """Of each column, of what is there; 0 where nothing is."""
    there = ~np.isnan(values)
    return np.where(there, values, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)


def _one_per_group(name: str, values: ArrayLike, groups: int) -> Floats:
    array = as_floats(values, f"extra summary {name!r}")
    if array.shape != (groups,):
        raise ShapeError(f"extra summary {name!r} must have shape ({groups},); got {array.shape}.")
    return array


def _simulator(source: Surrogate | Model, model: Model | None) -> Model:
    if model is not None:
        require_parts(model, "model", "space", "simulate", "x_shape")
        return model
    if isinstance(source, Model):
        return source
    description = source.provenance.get("data", {}).get("model")
    try:
        return build(description or {})
    except (KeepscoreError, ValueError, TypeError) as error:
        raise MissingError(
            f"This surrogate's model cannot be made again by name ({error}): pass it "
            "too, as the third argument."
        ) from None
