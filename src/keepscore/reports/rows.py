"""Results of the package as lines of the report's tables: scorecards, estimates, posteriors."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import as_floats
from keepscore.errors import MissingError, ShapeError
from keepscore.evaluation.estimate import Estimate
from keepscore.evaluation.metrics import METRICS, Metric, title_of
from keepscore.evaluation.scorecard import Scorecard
from keepscore.inference import posterior
from keepscore.inference.confidence import Intervals
from keepscore.inference.draws import chain_quality
from keepscore.inference.mle import MLE
from keepscore.likelihood import Likelihood
from keepscore.reports.content import (
    EXACT,
    Coverage,
    Interval,
    PosteriorRow,
    ScoreRow,
    Surfaces,
)
from keepscore.space import Space, tensor_grid


def ideals(cards: Mapping[str, Scorecard]) -> dict[str, Estimate]:
    """What a perfect surrogate would score, by metric. Of several cards' answers the surest: the
    least cross-entropy, say, is best known from the surrogate that comes nearest to it."""
    found: dict[str, Estimate] = {}
    for card in cards.values():
        for row in card.rows():
            known = found.get(row.metric)
            if row.ideal is not None and (known is None or row.ideal.se < known.se):
                found[row.metric] = row.ideal
    return found


def scorecard_from(
    cards: Mapping[str, Scorecard],
) -> tuple[tuple[ScoreRow, ...], tuple[Coverage, ...]]:
    """Scorecards by method, measured on the same test sets, as the page's rows and coverage."""
    if not cards:
        raise MissingError("A scorecard section needs at least one scorecard.")
    values: dict[str, dict[str, Estimate]] = {}
    for method, card in cards.items():
        for row in card.rows():
            values.setdefault(row.metric, {})[method] = row.found
        for name, test in card.etests(method).items():
            for metric, found in test.rows():
                if metric in values:
                    values[metric][name] = found
    ideal = ideals(cards)
    rows = []
    for metric, by_method in values.items():
        name = metric.partition("[")[0]
        if name == "coverage":  # it has a section of its own
            continue
        known = METRICS.get(name, Metric(name, name, "", "", name, name, name, ""))
        rows.append(
            ScoreRow(
                title_of(metric),
                known.meaning,
                by_method,
                ideal.get(metric),
                known.unit,
                known.better,
            )
        )
    return tuple(rows), _coverage(cards)


def intervals_from(
    method: str,
    found: MLE,
    intervals: Intervals,
    level: float = 0.95,
    truth: ArrayLike | None = None,
    group: str = "",
) -> tuple[Interval, ...]:
    """Estimates and intervals of one data set, in raw parameters; truth (d,) is working."""
    if found.estimate.ndim != 1:
        raise ShapeError(
            f"Estimates of one data set are shown at a time; got {len(found.estimate)}. "
            "Infer each group by itself, or take one of the groups first."
        )
    known = None if truth is None else found.space.to_raw(as_floats(truth, "truth"))
    rows = []
    for j, name in enumerate(intervals.names):
        k = found.space.index(name)
        se = float(found.raw_standard_errors[k])
        rows.append(
            Interval(
                name,
                method,
                float(found.raw[k]),
                se if math.isfinite(se) else None,
                float(intervals.raw[j, 0]),
                float(intervals.raw[j, 1]),
                None if known is None else float(known[k]),
                level,
                bool(found.on_boundary[k]),
                bool(intervals.at_boundary[j].any()),
                group,
            )
        )
    return tuple(rows)


def posterior_rows(
    method: str, like: Likelihood, level: float = 0.95, seed: int = 0
) -> tuple[PosteriorRow, ...]:
    """Posterior of the raw parameters of one group under the prior of its space, by NUTS."""
    names, tail = list(like.space.names), (1 - level) / 2
    draws = posterior(like, seed=seed)
    found = chain_quality(draws, names)
    diverging = int(draws["posterior"].attrs["divergences"])
    rows = []
    for name in names:
        values = np.asarray(draws["posterior"][name]).ravel()
        low, high = np.quantile(values, [tail, 1 - tail])
        moments = (float(values.mean()), float(values.std()), float(low), float(high))
        rhat, size = found[name]
        rows.append(PosteriorRow(name, method, *moments, level, rhat, size, diverging))
    return tuple(rows)


def grid_posterior_rows(
    surfaces: Surfaces, method: str, space: Space, level: float = 0.95
) -> tuple[PosteriorRow, ...]:
    """The same from the first group's surface: an exact likelihood is too slow for a sampler.

    The prior is that of the space, as the sampler's; sums over the grid stand for integrals.
    """
    surface = next(s for s in surfaces.groups[0].surfaces if s.method == method)
    values, tail = np.asarray(surface.values, dtype=np.float64), (1 - level) / 2
    if space.has_prior:
        nodes = tensor_grid([axis.values for axis in surfaces.axes])
        prior = np.asarray(space.unnormalised_log_prior(nodes)).reshape(values.shape)
        values = values + prior
    density = np.exp(values - values.max())
    rows = []
    for k, axis in enumerate(surfaces.axes):
        if axis.raw_values is None:
            raise MissingError(f"The axis {axis.name!r} has no raw values.")
        weight = density.sum(axis=tuple(j for j in range(density.ndim) if j != k))
        weight = weight / weight.sum()
        mean = float(weight @ axis.raw_values)
        sd = float(np.sqrt(weight @ (axis.raw_values - mean) ** 2))
        middle = np.cumsum(weight) - weight / 2  # each node stands for the cell around it
        low, high = np.interp([tail, 1 - tail], middle, axis.raw_values)
        rows.append(PosteriorRow(axis.raw_name, method, mean, sd, float(low), float(high), level))
    return tuple(rows)


def _coverage(cards: Mapping[str, Scorecard]) -> tuple[Coverage, ...]:
    tests = {k: test for method, card in cards.items() for k, test in card.etests(method).items()}
    if not tests:
        return ()
    first = next(iter(tests.values()))
    values = {method: test.coverage for method, test in tests.items()}
    values[EXACT] = first.coverage_exact
    cut = {method: test.surrogate.cut for method, test in tests.items()} | {EXACT: first.exact.cut}
    return (Coverage(first.level, values, "Wilks", int(first.exact.covered.size), cut),)
