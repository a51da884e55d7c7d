"""Results of the package as the report's records: scorecards, estimates with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping

from numpy.typing import ArrayLike

from keepscore.checks import as_floats
from keepscore.errors import MissingError, ShapeError
from keepscore.evaluation.estimate import Estimate
from keepscore.evaluation.metrics import METRICS, Metric, title_of
from keepscore.evaluation.scorecard import Scorecard
from keepscore.inference.confidence import Intervals
from keepscore.inference.mle import MLE
from keepscore.reports.content import EXACT, Coverage, Interval, ScoreRow


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
    ideal = ideals(cards)
    rows = []
    for metric, found in values.items():
        name = metric.partition("[")[0]
        if name == "coverage":  # it has a section of its own
            continue
        known = METRICS.get(name, Metric(name, name, "", "", ""))
        rows.append(
            ScoreRow(
                title_of(metric), known.meaning, found, ideal.get(metric), known.unit, known.better
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


def _coverage(cards: Mapping[str, Scorecard]) -> tuple[Coverage, ...]:
    tests = {method: card.etest for method, card in cards.items() if card.etest is not None}
    if not tests:
        return ()
    first = next(iter(tests.values()))
    values = {method: test.coverage for method, test in tests.items()}
    values[EXACT] = first.coverage_exact
    cut = {method: test.surrogate.cut for method, test in tests.items()} | {EXACT: first.exact.cut}
    return (Coverage(first.level, values, "Wilks", int(first.exact.covered.size), cut),)
