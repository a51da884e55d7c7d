"""Surrogates beside each other and beside the exact likelihood, as one page.

    surrogates, model  ->  scorecards on the same test sets        (the exact side computed once)
                       ->  surfaces of a few groups, everybody's estimates
    observations xs    ->  estimates, intervals, posteriors of those, by every method
                       ->  ReportContent  ->  one HTML page

`ks.report`, `keepscore report` and the demo are this composition with other data.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import keepscore
from keepscore.budget import Say
from keepscore.checks import Floats, as_floats, require_count, require_level
from keepscore.errors import (
    DomainError,
    KeepscoreWarning,
    MismatchError,
    MissingError,
    ShapeError,
    unknown_name,
)
from keepscore.evaluation.metrics import title_of
from keepscore.evaluation.scorecard import Scorecard, scorecards, with_exact
from keepscore.evaluation.training_run import Run, run_of
from keepscore.files import make_folder
from keepscore.inference import confidence_set, mle
from keepscore.inference import refine as refined_by
from keepscore.likelihood import Likelihood
from keepscore.models.base import Model
from keepscore.quality import POOR
from keepscore.reports.content import (
    EXACT,
    DataFit,
    Interval,
    Notice,
    ReportContent,
    Surfaces,
)
from keepscore.reports.data_fits import data_fits
from keepscore.reports.notices import warnings_for
from keepscore.reports.page import write
from keepscore.reports.pictures import example_from
from keepscore.reports.rows import (
    grid_posterior_rows,
    ideals,
    intervals_from,
    posterior_rows,
    scorecard_from,
)
from keepscore.reports.surface_grids import POINTS, surfaces_from
from keepscore.reports.words import join
from keepscore.surrogate import Surrogate

GROUPS, GROUP_SIZE = 4, 10  # test groups whose surfaces are shown
EXAMPLES = 3  # pictures of data
STREAM = 0xAE  # keeps the test groups apart from other draws of the same seed
OBSERVED = "observed data"


@dataclass(frozen=True)
class ShownGroups:
    """Groups of observations to show: names, xs (g, n, *x_shape), truths (g, d) where known."""

    names: tuple[str, ...]
    xs: NDArray[Any]
    truths: Floats | None = None


@dataclass(frozen=True)
class Report:
    """A report that was made. print() it for the comparison and the warnings in words."""

    content: ReportContent
    scorecards: Mapping[str, Scorecard]
    path: Path | None = None

    def __str__(self) -> str:
        seconds = {run.name: run.seconds for run in self.content.runs}
        lines = [comparison(self.scorecards, seconds), "", *self.content.findings]
        lines += [f"{n.severity}: {n.text}" for n in warnings_for(self.content)]
        return "\n".join([*lines, *([f"Report: {self.path}"] if self.path else [])])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: where the page is, every scorecard, and whether the model fits the
        observed data."""
        cards = {name: card.to_dict() for name, card in self.scorecards.items()}
        fits = [
            {name: value for name, value in vars(one).items() if name != "picture"}
            for one in self.content.data_fit
        ]
        path = None if self.path is None else str(self.path)
        return {"report": path, "scorecards": cards, "data_fit": fits}


def report(
    surrogates: Mapping[str, Surrogate] | Surrogate,
    model: Model,
    path: str | os.PathLike[str] | None = "report.html",
    xs: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    size: str = "small",
    level: float = 0.95,
    posterior: Sequence[str] = (),
    title: str | None = None,
    commands: Sequence[str] = (),
    seed: int = 0,
    progress: Say | None = None,
    refine: Mapping[str, int] | None = None,
    check: bool | None = None,
) -> Report:
    """Write one HTML page about surrogates: scorecards, surfaces, training, warnings.

    The page needs no network and no other file. Surrogates stand beside each other and, where the
    model has a likelihood, beside the exact one, all on the same data.

    Args:
        surrogates: By the names the page shall use, or one alone.
        model: The model they were trained on.
        path: The page. None makes no file: the content is in the result.
        xs: Your observations, (n, *x_shape): their estimates and intervals by every method.
        truth: The working parameters (d,) behind xs, where they are known.
        size: Of the scorecards: "small", "medium" or "paper" (see `ks.scorecard`).
        level: Of intervals and sets of xs.
        posterior: Names of the surrogates whose posterior given xs is sampled.
        title: Of the page.
        commands: Lines that repeat the work, for the page's last section.
        seed: Root of all randomness.
        progress: Told each stage in words, e.g. `print`.
        refine: Exact evaluations per group, by the names of surrogates: `{"ASA": 20}` adds a column
            "ASA + 20 exact evaluations" (`ks.refine`) to everything on the page.
        check: Whether the page says if the model fits xs (`ks.check_data`). None: where the
            simulations for that take seconds; a note says so where it was left out.

    Returns:
        The report: `content` (plain data), `scorecards` by name, `path`.

    Raises:
        MismatchError: A surrogate has another space or x_shape than the model.
        DomainError: `path` is a folder.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.SIS(weights=np.ones((3, 3)), times=[0, 1, 2, 3])  # small
        >>> rng = np.random.default_rng(0)
        >>> network = ks.networks.MLP((4, 3), 2, rng, embedding=(8,), hidden=(8,))  # not trained
        >>> untrained = ks.Surrogate(network, model.space, model.x_shape)
        >>> made = ks.report({"untrained": untrained}, model, path="report.html")
        >>> made.path.name, list(made.scorecards)
        ('report.html', ['untrained'])
    """
    named = {"surrogate": surrogates} if isinstance(surrogates, Surrogate) else dict(surrogates)
    say = progress or (lambda text: None)
    seed, level = require_count(seed, "seed", minimum=0), require_level(level)
    _require_same(named, model)
    target = None if path is None else _page(path)
    for name in posterior:
        if name not in named:
            raise unknown_name("surrogate", name, named)
    if xs is None and (truth is not None or posterior or check):
        raise MissingError("truth, posterior and check are about observations: pass xs too.")
    observed = None if xs is None else observed_group(model, xs, truth)
    fits: tuple[DataFit, ...] = ()
    left_out: tuple[Notice, ...] = ()
    if observed is not None:
        say("does the model fit the observed data?")
        fits, left_out = data_fits(named, model, observed.xs[0], check, seed)
    cards = measured(named, model, size, seed, say, refine)
    say("surfaces of test groups")
    shown = [group for group in (observed, drawn_groups(model, seed)) if group is not None]
    content = compose(
        named, model, cards, shown, level=level, observed=xs is not None, posterior=posterior,
        seed=seed, say=say, refine=refine,
    )  # fmt: skip
    content = replace(
        content,
        data_fit=fits,
        warnings=(*content.warnings, *left_out),
        title=f"Surrogates of {model.name}" if title is None else title,
        subtitle=", ".join(named),
        commands=tuple(commands),
    )
    written = None if target is None else write(content, target)
    return Report(content, cards, written)


def measured(
    surrogates: Mapping[str, Surrogate],
    model: Model,
    size: str,
    seed: int,
    say: Say,
    refine: Mapping[str, int] | None = None,
) -> dict[str, Scorecard]:
    """A scorecard of every surrogate, on the same test sets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # sets cut by the box: the page counts
        return scorecards(surrogates, model, size, seed, say, refine)


def observed_group(model: Model, xs: ArrayLike, truth: ArrayLike | None = None) -> ShownGroups:
    """One group of observations, as it came."""
    array = np.asarray(xs)
    if array.ndim != 1 + len(model.x_shape):
        inner = ", ".join(map(str, model.x_shape))
        raise ShapeError(
            f"A report is about one group of observations, (n, {inner}); got {array.shape}. "
            "Make one report per group."
        )
    known = None if truth is None else as_floats(truth, "truth")
    if known is not None and known.shape != (model.space.d,):
        raise ShapeError(f"truth must have shape ({model.space.d},); got {known.shape}.")
    return ShownGroups((OBSERVED,), array[None], None if known is None else known[None])


def drawn_groups(model: Model, seed: int) -> ShownGroups:
    """Groups at parameters drawn over the test region."""
    rng = np.random.default_rng([seed, STREAM])
    truths = model.space.draw(GROUPS, rng, "test")
    xs = model.simulate(np.repeat(truths, GROUP_SIZE, axis=0), rng)
    names = tuple(f"test group {k + 1}" for k in range(GROUPS))
    return ShownGroups(names, xs.reshape(GROUPS, GROUP_SIZE, *model.x_shape), truths)


def compose(
    surrogates: Mapping[str, Surrogate],
    model: Model,
    cards: Mapping[str, Scorecard],
    shown: Sequence[ShownGroups],
    level: float = 0.95,
    observed: bool = False,
    posterior: Sequence[str] = (),
    seed: int = 0,
    say: Say = lambda text: None,
    refine: Mapping[str, int] | None = None,
) -> ReportContent:
    """Everything a page says; `observed`: the first group shown is what was observed."""
    refine = refine or {}
    exact = all(card.etest is not None for card in cards.values())
    rows, coverage = scorecard_from(cards)
    runs = tuple(run_of(name, s) for name, s in surrogates.items())
    likes: dict[str, Likelihood] = {}
    intervals: tuple[Interval, ...] = ()
    draws: tuple[Any, ...] = ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # the page has notices of its own
        surfaces = _surfaces(surrogates, model, shown, exact, refine)
        if observed:
            first = shown[0]
            likes = likelihoods(surrogates, model, first.xs[0], exact, refine)
            truth = None if first.truths is None else first.truths[0]
            say("estimates and intervals of the observed data")
            intervals = intervals_of(likes, truth, level, first.names[0])
            for name in posterior:
                say(f"posterior by {name}")
                draws += posterior_rows(name, likes[name], level, seed)
            if posterior and exact and surfaces is not None:
                draws += grid_posterior_rows(surfaces, EXACT, model.space, level)
    return ReportContent(
        title=f"Surrogates of {model.name}",
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        methods=_methods(surrogates, exact, refine),
        findings=(*findings(cards, runs), *quality_lines(surrogates), *_stands_on(likes)),
        warnings=(*poor_scores(surrogates), *false_sureness(surrogates)),
        runs=runs,
        scorecard=rows,
        coverage=coverage,
        surfaces=surfaces,
        intervals=intervals,
        posterior=draws,
        examples=_examples(model, shown, observed),
        provenance={**_machine(), "seed": seed, "model": model.settings()},
    )


def likelihoods(
    surrogates: Mapping[str, Surrogate],
    model: Model,
    xs: NDArray[Any],
    exact: bool = True,
    refine: Mapping[str, int] | None = None,
) -> dict[str, Likelihood]:
    """The same observations seen by each surrogate, refined after it, and last by the exact
    model."""
    truth = model.given(xs) if exact else None
    seen: dict[str, Likelihood] = {}
    for name, surrogate in surrogates.items():
        seen[name] = surrogate.given(xs)
        if truth is not None and refine and name in refine:
            seen[with_exact(name, refine[name])] = refined_by(seen[name], truth, refine[name])
    return seen if truth is None else {**seen, EXACT: truth}


def _methods(
    surrogates: Mapping[str, Surrogate], exact: bool, refine: Mapping[str, int]
) -> tuple[str, ...]:
    """Names of everybody on the page, in order."""
    if not exact:
        return tuple(surrogates)
    names = [
        method
        for name in surrogates
        for method in (name, *([with_exact(name, refine[name])] if name in refine else []))
    ]
    return (*names, EXACT)


def _stands_on(likes: Mapping[str, Likelihood]) -> tuple[str, ...]:
    """What answers about the observed data stand on, where that is more than a name tells."""
    return tuple(
        f"The observed data by {name}: {like.basis}."
        for name, like in likes.items()
        if like.refinement is not None
    )


def intervals_of(
    likes: Mapping[str, Likelihood], truth: Floats | None, level: float, group: str = ""
) -> tuple[Interval, ...]:
    """Estimates and Wilks intervals of one group by every method, parameter by parameter."""
    rows: tuple[Interval, ...] = ()
    for method, like in likes.items():
        chosen = confidence_set(like, level)
        rows += intervals_from(method, mle(like), chosen.intervals, level, truth, group)
    order = {name: k for k, name in enumerate(dict.fromkeys(row.parameter for row in rows))}
    return tuple(sorted(rows, key=lambda row: order[row.parameter]))


def findings(cards: Mapping[str, Scorecard], runs: Sequence[Run]) -> tuple[str, ...]:
    """What the scorecards say, in sentences."""
    sizes = {run.settings.get("simulations") for run in runs}
    (n,) = sizes if len(sizes) == 1 else (None,)
    begin = f"From {n:,} simulations, differences" if isinstance(n, int) else "Differences"
    far = {k: c.ltest.rmse_far for k, c in cards.items() if c.ltest.rmse_far is not None}
    tests = {k: test for name, card in cards.items() for k, test in card.etests(name).items()}
    told = []
    if far:
        off = join([f"{found.value:.2g} ({name})" for name, found in far.items()])
        told.append(
            f"{begin} of the log-likelihood are off by {off}, root mean square; the exact "
            "likelihood has 0."
        )
    if tests:
        level = next(iter(tests.values())).level
        held = join([f"{test.coverage.value:.1%} ({name})" for name, test in tests.items()])
        told.append(f"Wilks' {level:.0%} sets held the truth in {held} of the test groups.")
    return tuple(told)


def quality_lines(surrogates: Mapping[str, Surrogate]) -> tuple[str, ...]:
    """What training measured of each surrogate, on held-out pairs."""
    return tuple(
        f"{name}: {surrogate.quality.line(surrogate.space.names)}."
        for name, surrogate in surrogates.items()
        if surrogate.quality is not None
    )


def false_sureness(surrogates: Mapping[str, Surrogate]) -> tuple[Notice, ...]:
    """A notice for every surrogate that is surer of a parameter than it may be."""
    told = []
    for name, surrogate in surrogates.items():
        sure = [] if surrogate.quality is None else surrogate.quality.too_sure()
        if sure and surrogate.quality is not None:
            each = surrogate.quality.ratios(surrogate.space.names, sure)
            told.append(
                Notice(
                    "serious",
                    f"{name} is surer than it may be on held-out pairs (information ratio, 1 is "
                    f"right: {each}). Without calibration its intervals are too short, by about "
                    "the root of that, and its tests reject too often; simulate more.",
                )
            )
    return tuple(told)


def poor_scores(surrogates: Mapping[str, Surrogate]) -> tuple[Notice, ...]:
    """A notice for every surrogate that follows the score of a parameter badly."""
    told = []
    for name, surrogate in surrogates.items():
        poor = [] if surrogate.quality is None else surrogate.quality.poor()
        if poor:
            which = join([surrogate.space.names[k] for k in poor])
            told.append(
                Notice(
                    "serious",
                    f"{name} follows the score of {which} badly: R² below {POOR} on held-out "
                    "pairs. Tests and intervals of it are not to be trusted without calibration; "
                    "simulate more, or narrow the box.",
                )
            )
    return tuple(told)


def comparison(cards: Mapping[str, Scorecard], seconds: Mapping[str, float | None]) -> str:
    """Scorecards side by side, and the exact likelihood: the table a terminal shows."""
    rows: dict[str, dict[str, str]] = {}
    for method, card in cards.items():
        for row in card.rows():
            rows.setdefault(title_of(row.metric), {})[method] = str(row.found)
            if row.refined is not None:
                rows[title_of(row.metric)][_refined_column(method, card)] = str(row.refined)
    for metric, ideal in ideals(cards).items():
        rows[title_of(metric)][EXACT] = str(ideal) if ideal.value else "0"
    rows["Training time, seconds"] = {name: f"{s:.0f}" for name, s in seconds.items() if s}
    columns = []
    for method, card in cards.items():
        columns.append(method)
        if any(row.refined is not None for row in card.rows()):
            columns.append(_refined_column(method, card))
    columns.append(EXACT)
    widths = [max(len(name), *(len(r.get(name, "")) for r in rows.values())) for name in columns]
    first = max(map(len, rows))
    lines = [("", dict(zip(columns, columns, strict=True))), *rows.items()]
    return "\n".join(
        f"{title:<{first}}"
        + "".join(f"  {r.get(c, ''):>{w}}" for c, w in zip(columns, widths, strict=True))
        for title, r in lines
    )


def _refined_column(method: str, card: Scorecard) -> str:
    """The refined surrogate in a terminal's table, where there is little room."""
    assert card.etest is not None
    assert card.etest.refined is not None
    return f"{method} {with_exact('', card.etest.refined.evaluations, short=True)}"


def _surfaces(
    surrogates: Mapping[str, Surrogate],
    model: Model,
    shown: Sequence[ShownGroups],
    exact: bool,
    refine: Mapping[str, int],
) -> Surfaces | None:
    """Surfaces of every group shown, with everybody's estimates; None beyond three parameters."""
    if model.space.d not in POINTS:
        return None
    parts = []
    for part in shown:
        likes = likelihoods(surrogates, model, part.xs, exact, refine)
        estimates = {m: mle(like).estimate for m, like in likes.items()}
        parts.append(surfaces_from(likes, estimates, part.truths, part.names))
    return replace(parts[0], groups=tuple(g for part in parts for g in part.groups))


def _examples(model: Model, shown: Sequence[ShownGroups], observed: bool) -> tuple[Any, ...]:
    """The first observations: of the observed data, or of the first test groups."""
    first = shown[0]
    if observed:
        named = [(f"{first.names[0]}, {k + 1}", x) for k, x in enumerate(first.xs[0][:EXAMPLES])]
    else:
        named = [
            (f"{name}, first observation", xs[0])
            for name, xs in zip(first.names[:EXAMPLES], first.xs, strict=False)
        ]
    binary = all(set(np.unique(x).tolist()) <= {0, 1} for _, x in named)
    caption = "Dark: 1." if binary else ""
    return tuple(
        example_from(x, model.structure, name[:1].upper() + name[1:], caption) for name, x in named
    )


def _require_same(surrogates: Mapping[str, Surrogate], model: Model) -> None:
    if not surrogates:
        raise MissingError('A report needs at least one surrogate: {"ASA": surrogate}.')
    for name, surrogate in surrogates.items():
        if name == EXACT:
            raise DomainError(f"{EXACT!r} is the exact likelihood's name; call yours another way.")
        if (surrogate.space, surrogate.x_shape) != (model.space, model.x_shape):
            raise MismatchError(
                f"{name} was trained on another space or x_shape than {model.name} has. "
                "Build the model with the settings the surrogate was trained with."
            )


def _page(path: str | os.PathLike[str]) -> Path:
    """Where the page goes; asked before the work, so that hours of it are not lost."""
    target = Path(path)
    make_folder(target.parent)
    if target.is_dir():
        raise DomainError(f"{target} is a folder; name the page, e.g. {target / 'report.html'}.")
    return target


def _machine() -> dict[str, str]:
    """Where the numbers were made."""
    return {
        "keepscore": keepscore.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
    }
