"""The scorecard: a surrogate beside the exact likelihood, at a size the user chooses.

The L-test asks how close the log-ratio is, the E-test whether inference comes out the same. Every
number has its Monte Carlo standard error; what a perfect surrogate would score stands beside it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from numpy.typing import ArrayLike

from keepscore.budget import Say, as_minutes, voice
from keepscore.checks import require_choice, require_package, require_parts
from keepscore.errors import KeepscoreWarning
from keepscore.evaluation.estimate import Estimate
from keepscore.evaluation.etest import (
    GRID,
    THETAS,
    ETest,
    ETestSet,
    etest,
    etest_set,
    seconds_per_group,
)
from keepscore.evaluation.ltest import (
    LogRatio,
    LTest,
    LTestSet,
    ltest,
    ltest_set,
    require_same_space,
    seconds_per_pair,
)
from keepscore.evaluation.metrics import label_of
from keepscore.likelihood import Likelihood
from keepscore.models.base import Model

if TYPE_CHECKING:
    import pandas as pd


class Measurable(LogRatio, Protocol):
    """What a scorecard asks of a surrogate."""

    def given(self, xs: ArrayLike) -> Likelihood: ...


class Size(NamedTuple):
    """Pairs; pairs with exact values; with the evidence; grid points per side (None: the paper's);
    groups at each theta."""

    n: int
    exact: int
    evidence: int
    side: int | None
    groups: int


SIZES = {
    "least": Size(200, 20, 10, 2, 2),
    "quick": Size(500, 100, 40, 3, 4),
    "small": Size(2_000, 500, 200, 4, 10),
    "medium": Size(20_000, 5_000, 1_000, 7, 20),
    "paper": Size(1_000_000, 20_000, 5_000, None, 30),
}
GROUP_SIZE = 10


@dataclass(frozen=True)
class Row:
    """One line: a metric (with its parameter), the surrogate's value, the ideal one, and that of
    the refined surrogate where there is one."""

    test: str
    metric: str
    found: Estimate
    ideal: Estimate | None
    refined: Estimate | None = None


@dataclass(frozen=True)
class Scorecard:
    """Both tests of one surrogate. print() it, or take to_dict (JSON) or to_frame (pandas)."""

    model: str
    size: str
    seed: int
    ltest: LTest
    etest: ETest | None

    def rows(self) -> list[Row]:
        """Every metric with its ideal value: zero for errors, the exact one's where that exists."""
        zero = Estimate(0.0, 0.0)
        l_found = dict(self.ltest.rows())
        rows = []
        for metric, found in l_found.items():
            if metric == "bce_limit":
                continue
            ideal = self._least_bce() if metric == "bce" else zero
            rows.append(Row("L-test", metric, found, ideal))
        e_found = {} if self.etest is None else dict(self.etest.rows())
        better = self.etest.refined if self.etest is not None else None
        refined = {} if better is None else dict(better.rows())
        for metric, found in e_found.items():
            if not metric.endswith("_exact"):
                ideal = e_found.get(f"{metric}_exact", zero)
                rows.append(Row("E-test", metric, found, ideal, refined.get(metric)))
        return rows

    def etests(self, name: str) -> dict[str, ETest]:
        """The E-test of the surrogate under its name and, if it was refined, of "name + 20 exact
        evaluations"."""
        if self.etest is None:
            return {}
        refined = self.etest.refined
        more = {} if refined is None else {with_exact(name, refined.evaluations): refined}
        return {name: self.etest, **more}

    def _least_bce(self) -> Estimate | None:
        """What the exact ratio would score on all pairs: the surrogate's, less the excess found on
        those with an evidence; the bare mean over those few pairs is noisier."""
        found, excess = self.ltest.bce, self.ltest.bce_excess
        if excess is None:
            return None
        return Estimate(found.value - excess.value, math.hypot(found.se, excess.se))

    def __str__(self) -> str:
        refined = None if self.etest is None else self.etest.refined
        middle = "" if refined is None else f"{with_exact('', refined.evaluations, True):>22}"
        head = f"{'':<44}{'surrogate':>22}{middle}{'exact':>22}"
        lines = [f"Scorecard of {self.model} ({self.size}, seed {self.seed})", head]
        test = ""
        for row in self.rows():
            if row.test != test:
                test = row.test
                lines.append(_heading(self, test))
            label = label_of(row.metric) or row.metric
            ideal = "" if row.ideal is None else str(row.ideal)
            between = "" if row.refined is None else str(row.refined)
            if refined is not None:
                between = f"{between:>22}"
            lines.append(f"  {label:<42}{row.found!s:>22}{between}{ideal:>22}")
        if refined is not None:
            lines.append(f"  {refined.basis}")
        if self.etest is None:
            lines.append("E-test: not possible, the model has no likelihood to compare with")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": self.model,
            "size": self.size,
            "seed": self.seed,
            "ltest": self.ltest.to_dict(),
            "etest": None if self.etest is None else self.etest.to_dict(),
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per metric: test, metric, value, se, ideal, and refined where there is one.
        Needs pandas (extra `pandas`)."""
        pd = require_package("pandas", "to_frame", "pandas")
        return pd.DataFrame(
            [
                {
                    "test": row.test,
                    "metric": row.metric,
                    "value": row.found.value,
                    "se": row.found.se,
                    "ideal": None if row.ideal is None else row.ideal.value,
                    "refined": None if row.refined is None else row.refined.value,
                }
                for row in self.rows()
            ]
        )


@dataclass(frozen=True)
class ExactSide:
    """Test sets with all that is exact about them: one serves every surrogate of a model."""

    size: str
    seed: int
    ltest: LTestSet
    etest: ETestSet | None


def exact_side(
    model: Model,
    size: str = "small",
    seed: int = 0,
    say: Say = lambda text: None,
    minutes: float | None = None,
    surrogate: Measurable | None = None,
) -> ExactSide:
    """Draw the test sets of a scorecard and compute the exact likelihood's side of it.

    Args:
        model: The model whose surrogates will be measured.
        size: "least", "quick", "small", "medium" or "paper"; see `scorecard`.
        seed: Root of all randomness.
        say: Told each stage in words.
        minutes: Time for it; where the size does not fit, a smaller one is taken, with a warning.
        surrogate: One whose own side must fit into the time too.

    Returns:
        The test sets, for `scorecard(..., exact=...)`.
    """
    require_choice(size, "scorecard size", SIZES)
    if (minutes := as_minutes(minutes)) is not None:
        say("timing the exact likelihood")
        size = size_within(model, size, seed, minutes, surrogate)
    chosen = SIZES[size]
    say("exact values on test pairs")
    pairs = ltest_set(model, chosen.n, seed, chosen.exact, chosen.evidence)
    groups = None
    if pairs.exact:
        say("exact inference on test groups")
        grid, thetas = _design(model.space.d, chosen.side)
        groups = etest_set(model, grid, chosen.groups, GROUP_SIZE, seed, thetas=thetas)
    return ExactSide(size, seed, pairs, groups)


def scorecard(
    surrogate: Measurable,
    model: Model,
    size: str = "small",
    seed: int = 0,
    exact: ExactSide | None = None,
    refine: int | None = None,
    minutes: float | None = None,
    progress: Say | bool | None = None,
) -> Scorecard:
    """L-test and E-test of a surrogate against the model it was trained on.

    Args:
        surrogate: What `ks.train` or `ks.load` returned.
        model: The model it was trained on. One without a likelihood gets the cross-entropy alone.
        size: "least" and "quick" (a first look), "small" (a minute or so), "medium", or "paper"
            (10^6 pairs, 3,000 groups of 10).
        seed: Root of all randomness.
        exact: The exact side made beforehand by `exact_side`, which several surrogates share;
            size and seed are then its own.
        refine: With a number, the E-test of the surrogate refined by at most so many exact
            evaluations per group (`ks.refine`) stands beside both.
        minutes: Time for it, by what both sides cost on a few groups: where the size does not fit,
            a smaller one is taken, with a warning.
        progress: Told each stage in words; True for standard error, the default on a terminal.

    Returns:
        The scorecard. print() it, or draw it with `ks.figures.scorecard`.

    Raises:
        MismatchError: Surrogate and model have different parameter spaces.
        UnknownNameError: No such size.

    Example:
        >>> from types import SimpleNamespace
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.SIS(weights=np.ones((3, 3)), times=[0, 1, 2, 3])  # small
        >>> perfect = SimpleNamespace(  # stands for a trained surrogate here
        ...     space=model.space, log_ratio=model.log_prob, score=model.score, given=model.given
        ... )
        >>> card = ks.scorecard(perfect, model)
        >>> card.etest.lrt_mse.value, card.ltest.rmse_far.value
        (0.0, 0.0)
    """
    require_parts(surrogate, "surrogate", "space", "log_ratio")
    require_parts(model, "model", "name", "space", "simulate")
    require_same_space(surrogate.space, model.space)
    say = voice(progress, "scorecard")
    sets = exact_side(model, size, seed, say, minutes, surrogate) if exact is None else exact
    say("measuring the surrogate")
    loss = ltest(surrogate, model, test_set=sets.ltest)
    inference = None
    if sets.etest is not None:
        inference = etest(surrogate, model, test_set=sets.etest, refine=refine)
    return Scorecard(model.name, sets.size, sets.seed, loss, inference)


def scorecards(
    surrogates: Mapping[str, Measurable],
    model: Model,
    size: str = "small",
    seed: int = 0,
    say: Say = lambda text: None,
    refine: Mapping[str, int] | None = None,
) -> dict[str, Scorecard]:
    """A scorecard per surrogate, on the same test sets; the exact side is computed once. refine:
    exact evaluations per group, by the names of those surrogates to be refined too."""
    refine = refine or {}
    for name in refine:
        require_choice(name, "surrogate", surrogates)
    for surrogate in surrogates.values():
        require_same_space(surrogate.space, model.space)
    exact = exact_side(model, size, seed, say)
    cards = {}
    for name, surrogate in surrogates.items():
        say(f"measuring {name}")
        cards[name] = scorecard(surrogate, model, exact=exact, refine=refine.get(name))
    return cards


def with_exact(name: str, evaluations: int | None, short: bool = False) -> str:
    """What a surrogate refined by so many exact evaluations is called."""
    if short:
        return f"+ {evaluations} exact"
    return f"{name} + {evaluations} exact evaluations"


def size_within(
    model: Model, size: str, seed: int, minutes: float, surrogate: Measurable | None = None
) -> str:
    """The size asked for, or the largest below it that fits into the time: its exact side, and that
    of a surrogate, if there is one."""
    per_pair, per_evidence = seconds_per_pair(model, seed)
    exact = bool(ltest_set(model, 2, seed, 2, 2).exact)
    per_group = seconds_per_group(model, GROUP_SIZE, seed) if exact else 0.0
    if exact and surrogate is not None:
        per_group += seconds_per_group(model, GROUP_SIZE, seed, surrogate)

    def seconds(one: Size) -> float:
        pairs = one.exact * per_pair + one.evidence * per_evidence
        return pairs + groups_of(one, model.space.d) * per_group

    names = list(SIZES)[: list(SIZES).index(size) + 1]
    fitting = [name for name in names if seconds(SIZES[name]) <= 60 * minutes]
    chosen = fitting[-1] if fitting else names[0]
    if chosen != size:
        warnings.warn(
            f"scorecard: size {chosen!r} (about {seconds(SIZES[chosen]) / 60:.1f} min) instead of "
            f"{size!r} (about {seconds(SIZES[size]) / 60:.1f} min) fits into {minutes:g} min.",
            KeepscoreWarning,
            stacklevel=4,
        )
    return chosen


def groups_of(size: Size, d: int) -> int:
    """How many groups the E-test of such a scorecard has."""
    grid, thetas = _design(d, size.side)
    return size.groups * (math.prod(grid) if grid is not None else thetas or THETAS)


def _design(d: int, side: int | None) -> tuple[tuple[int, ...] | None, int | None]:
    """Grid of the E-test, or, where no grid is small enough, how many scattered theta."""
    if d not in GRID:
        return None, None if side is None else side**2
    # About side^2 points whatever the dimension.
    return GRID[d] if side is None else (max(2, round(side ** (2 / d))),) * d, None


def _heading(card: Scorecard, test: str) -> str:
    if test == "L-test":
        found = card.ltest
        parts = f"exact values on {found.exact:,}, evidence on {found.evidence:,}"
        return f"L-test: {found.n:,} pairs, {parts}"
    assert card.etest is not None
    p, groups = card.etest.surrogate.statistic.shape
    return f"E-test: {p} theta, {groups} groups of {card.etest.size} at each"
