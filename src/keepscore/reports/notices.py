"""What a reader must know before trusting the numbers, derived from the numbers themselves.

Each check looks at one part of the content and speaks in plain words: what was seen, what it means,
what to do. The most serious come first. A check without data says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from scipy.stats import chi2

from keepscore.evaluation.estimate import Estimate
from keepscore.evaluation.training_run import Run
from keepscore.reports.content import (
    EXACT,
    SEVERITIES,
    Coverage,
    Notice,
    ReportContent,
    Surface,
    Surfaces,
)
from keepscore.reports.words import join, method_label, number, percent

FEW_EPOCHS = 5
CHANCE = math.log(2)  # BCE of a classifier that says 1/2 to everything
R_HAT_LIMIT, R_HAT_BAD = 1.01, 1.05
ESS_LIMIT = 400
SERIOUS_GAP = 0.02  # of coverage
NOISY = 0.03  # standard error of a coverage that says little
FEW_CUT = 0.01  # share of test sets cut off by the box
AT_EDGE = 1e-6  # of the box's width
MOST_NAMED = 6  # groups named in one sentence


def warnings_for(content: ReportContent) -> tuple[Notice, ...]:
    """The caller's warnings and the derived ones, most serious first."""
    derived = [
        *_data_fit(content),
        *_boundary(content),
        *_coverage(content),
        *_cut_test_sets(content),
        *_training(content),
        *_posterior(content),
        *_surface_edges(content),
    ]
    every = dict.fromkeys((*content.warnings, *derived))
    return tuple(sorted(every, key=lambda notice: SEVERITIES.index(notice.severity)))


def checked(content: ReportContent) -> list[str]:
    """Which checks had anything to look at, for the page to say so."""
    rows = content.posterior
    found = {
        "data that the model does not fit, or unlike the training data": content.data_fit,
        "estimates and intervals at the edge of the parameter box": content.intervals,
        "surfaces whose maximum lies on that edge, or whose set is cut off there": content.surfaces,
        "coverage below its nominal level": content.coverage,
        "test sets cut off by the box": [c for c in content.coverage if c.cut and c.groups],
        "training that stopped too early": [run for run in content.runs if run.history],
        "chains that have not mixed": [r for r in rows if (r.r_hat, r.ess) != (None, None)],
        "divergent transitions": [r for r in rows if r.divergences is not None],
    }
    return [name for name, part in found.items() if part]


def wilks_cut(level: float, d: int) -> float:
    """Half the chi-squared quantile: how far the log-likelihood may fall inside the set."""
    return float(chi2.ppf(level, d)) / 2


def surface_cut(surfaces: Surfaces, surface: Surface) -> float:
    """The surface's own cut (calibrated), or Wilks'."""
    return wilks_cut(surfaces.level, len(surfaces.axes)) if surface.cut is None else surface.cut


def _data_fit(content: ReportContent) -> Iterator[Notice]:
    for one in content.data_fit:
        if not one.fits:
            yield Notice("serious", f"The observed data, by {one.method}: {one.sentence}")


def _boundary(content: ReportContent) -> Iterator[Notice]:
    edge = [
        f"{i.parameter} ({_who(i.method, i.group)})" for i in content.intervals if i.on_boundary
    ]
    if edge:
        yield Notice(
            "serious",
            f"The estimate of {join(edge)} lies on the edge of the parameter box. Standard errors "
            "and chi-squared levels do not hold there. Widen the box and simulate again, or "
            "collect more data.",
        )
    cut = [
        f"{i.parameter} ({_who(i.method, i.group)})"
        for i in content.intervals
        if i.cut and not i.on_boundary
    ]
    if cut:
        yield Notice(
            "caution",
            f"The interval for {join(cut)} ends at the edge of the parameter box: the data allow "
            "values outside, which the surrogate never saw.",
        )


def _coverage(content: ReportContent) -> Iterator[Notice]:
    for coverage in content.coverage:
        known = {m: e for m, e in coverage.values.items() if math.isfinite(e.value)}
        low = {m: e for m, e in known.items() if e.value + 2 * e.error < coverage.nominal}
        sets = f"{percent(coverage.nominal)} sets ({coverage.sets})"
        surrogates = {m: e for m, e in low.items() if m != EXACT}
        if surrogates:
            gap = coverage.nominal - min(e.value for e in surrogates.values())
            told = [f"{percent(e)} of the time with {m}" for m, e in surrogates.items()]
            yield Notice(
                "serious" if gap > SERIOUS_GAP else "caution",
                f"{sets} hold the truth too rarely: {'; '.join(told)}. They are too small, or in "
                "the wrong place. Use calibrated sets (keepscore calibrate), or train with more "
                "simulations.",
            )
        if EXACT in low:
            yield Notice(
                "caution",
                f"{sets} of the exact likelihood hold the truth only {percent(low[EXACT])} of the "
                "time. Nothing is wrong with the likelihood: the groups are too small for the "
                "chi-squared approximation. Calibrated sets repair this.",
            )
        yield from _coverage_notes(coverage, sets, {m: known[m] for m in known if m not in low})


def _coverage_notes(coverage: Coverage, sets: str, rest: dict[str, Estimate]) -> Iterator[Notice]:
    noisy = [e for e in rest.values() if e.error > NOISY]
    if noisy:
        yield Notice(
            "caution",
            f"Coverage of the {sets} is known only to ± {100 * max(e.error for e in noisy):.1f} "
            "percentage points (one standard error). Evaluate on more groups before relying on it.",
        )
    wide = [m for m, e in rest.items() if e.value - 2 * e.error > coverage.nominal + SERIOUS_GAP]
    if wide:
        names = join([f"{method_label(m)} ({percent(rest[m])})" for m in wide])
        yield Notice("note", f"{sets} are larger than they need be with {names}.")


def _training(content: ReportContent) -> Iterator[Notice]:
    for run in content.runs:
        if run.history:
            yield from _one_training(run)


def _one_training(run: Run) -> Iterator[Notice]:
    last, best = run.history[-1], run.best
    if not math.isfinite(last.train_bce):
        yield Notice("serious", f"Training of {run.name} ended with a loss that is not a number.")
        return
    if best is None or best.validation_bce is None:
        yield Notice(
            "note", f"{run.name} was trained without validation data: over-fitting goes unseen."
        )
        return
    if best.validation_bce > 0.98 * CHANCE:
        yield Notice(
            "serious",
            f"{run.name} has hardly learned anything: its validation loss is "
            f"{number(best.validation_bce)}, and guessing gives {number(CHANCE)}. Check the model, "
            "the scale of the data and the learning rate.",
        )
    elif best.epoch == last.epoch and not _rate_fell_to_zero(run):
        yield Notice(
            "caution",
            f"{run.name} was still improving when training stopped: its best epoch is the last "
            f"({last.epoch}). More epochs would probably help.",
        )
    elif len(run.history) < FEW_EPOCHS:
        yield Notice(
            "caution",
            f"{run.name} was trained for {len(run.history)} epochs only: enough for a trial, "
            "not for a result.",
        )


def _rate_fell_to_zero(run: Run) -> bool:
    """Under a cosine schedule the last epochs are meant to be the best: nothing was cut short."""
    training = run.settings.get("training")
    return isinstance(training, Mapping) and training.get("schedule") == "cosine"


def _posterior(content: ReportContent) -> Iterator[Notice]:
    for row in content.posterior:
        where = f"the posterior of {row.parameter} ({method_label(row.method)})"
        if row.r_hat is not None and row.r_hat > R_HAT_LIMIT:
            yield Notice(
                "serious" if row.r_hat > R_HAT_BAD else "caution",
                f"The chains for {where} have not mixed: R-hat is {number(row.r_hat, 4)} and "
                f"should be below {R_HAT_LIMIT}. Run longer chains.",
            )
        elif row.ess is not None and row.ess < ESS_LIMIT:
            yield Notice(
                "caution",
                f"Only {number(round(row.ess))} effective draws for {where}: its interval's ends "
                f"are noisy. Aim for {ESS_LIMIT} or more.",
            )
    divergent = {r.method: r.divergences for r in content.posterior if r.divergences}
    for method, count in divergent.items():
        yield Notice(
            "caution",
            f"{count} divergent transitions while sampling with {method_label(method)}: parts of "
            "the posterior may have been missed. Use a smaller step size.",
        )


def _cut_test_sets(content: ReportContent) -> Iterator[Notice]:
    for coverage in content.coverage:
        groups = coverage.groups or 0
        shares = {m: cut / groups for m, cut in coverage.cut.items() if cut and groups}
        if shares:
            told = join([f"{percent(share)} with {method_label(m)}" for m, share in shares.items()])
            yield Notice(
                "caution" if max(shares.values()) > FEW_CUT else "note",
                f"Some {percent(coverage.nominal)} sets of the {groups:,} test groups reach the "
                f"edge of the parameter box and are cut off there: {told}. Their volumes are those "
                "of what is left.",
            )


def _surface_edges(content: ReportContent) -> Iterator[Notice]:
    """Maxima on the edge of the box, then sets that reach it, by group and method."""
    surfaces = content.surfaces
    if surfaces is None:
        return
    told = {(i.group, i.method) for i in content.intervals if i.on_boundary}  # said already
    maxima, sets = {}, {}
    for group in surfaces.groups:
        on_edge = [s.method for s in group.surfaces if _peaks_on_edge(surfaces, s)]
        maxima[group.name] = [m for m in on_edge if (group.name, m) not in told]
        sets[group.name] = [s.method for s in group.surfaces if _reaches_edge(surfaces, s)]
    counts = {group.name: len(group.surfaces) for group in surfaces.groups}
    if any(maxima.values()):
        yield Notice(
            "caution",
            f"The likelihood is largest on the edge of the parameter box in "
            f"{_where(maxima, counts)}: its true maximum may lie outside, and chi-squared levels "
            "do not hold there.",
        )
    if any(sets.values()):
        yield Notice(
            "caution",
            f"The {percent(surfaces.level)} set reaches the edge of the parameter box in "
            f"{_where(sets, counts)}: the set shown there is cut off.",
        )


def _where(methods: Mapping[str, list[str]], counts: Mapping[str, int]) -> str:
    """Groups with the methods concerned: "site 1 (every method) and site 2 (ASA)"."""
    named = [f"{group} ({_by(found, counts[group])})" for group, found in methods.items() if found]
    shown = named if len(named) <= MOST_NAMED else named[:MOST_NAMED]
    more = len(named) - len(shown)
    return join([*shown, f"{more} more"] if more else shown)


def _by(methods: list[str], count: int) -> str:
    if len(methods) == count and count > 1:
        return "every method"
    return ", ".join(method_label(m) for m in methods)


def _peaks_on_edge(surfaces: Surfaces, surface: Surface) -> bool:
    """By the estimate where there is one, else by the largest value of the grid."""
    low = np.array([axis.values[0] for axis in surfaces.axes])
    high = np.array([axis.values[-1] for axis in surfaces.axes])
    if surface.mle is not None:
        at = np.asarray(surface.mle)
    else:
        best = np.unravel_index(int(np.argmax(surface.values)), surface.values.shape)
        at = np.array([axis.values[k] for axis, k in zip(surfaces.axes, best, strict=True)])
    return bool((np.minimum(at - low, high - at) <= AT_EDGE * (high - low)).any())


def _reaches_edge(surfaces: Surfaces, surface: Surface) -> bool:
    inside = surface.values >= -surface_cut(surfaces, surface)
    return any(bool(np.take(inside, [0, -1], axis=k).any()) for k in range(inside.ndim))


def _who(method: str, group: str) -> str:
    return f"{method_label(method)}, {group}" if group else method_label(method)
