"""Surrogates beside each other and beside the exact likelihood: the parts of a report."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

import keepscore
from keepscore.evaluation import Scorecard, title_of
from keepscore.inference import confidence_set, mle
from keepscore.likelihood import Likelihood
from keepscore.reports import (
    EXACT,
    Interval,
    Surfaces,
    ideals,
    intervals_from,
    surfaces_from,
)
from keepscore.surrogate import Surrogate


def now() -> str:
    """The moment a report was made, for people."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine() -> dict[str, str]:
    """Where the numbers were made."""
    return {
        "keepscore": keepscore.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
    }


def likelihoods(
    surrogates: Mapping[str, Surrogate], model: Any, xs: np.ndarray
) -> dict[str, Likelihood]:
    """The same observations seen by each surrogate and, last, by the exact model."""
    seen = {name: surrogate.given(xs) for name, surrogate in surrogates.items()}
    return {**seen, EXACT: model.given(xs)}


def surfaces_of(likes: Mapping[str, Likelihood], truths: np.ndarray, names: list[str]) -> Surfaces:
    """Likelihood surfaces of several groups with everybody's estimates."""
    return surfaces_from(likes, {m: mle(like).estimate for m, like in likes.items()}, truths, names)


def intervals_of(
    likes: Mapping[str, Likelihood], truth: np.ndarray | None, level: float, group: str = ""
) -> tuple[Interval, ...]:
    """Estimates and Wilks intervals of one group by every method, parameter by parameter."""
    rows: tuple[Interval, ...] = ()
    for method, like in likes.items():
        chosen = confidence_set(like, level)
        rows += intervals_from(method, mle(like), chosen.intervals, level, truth, group)
    order = {name: k for k, name in enumerate(dict.fromkeys(row.parameter for row in rows))}
    return tuple(sorted(rows, key=lambda row: order[row.parameter]))


def comparison(cards: Mapping[str, Scorecard], seconds: Mapping[str, float | None]) -> str:
    """Scorecards side by side, and the exact likelihood: the table a terminal shows."""
    rows: dict[str, dict[str, str]] = {}
    for method, card in cards.items():
        for row in card.rows():
            rows.setdefault(title_of(row.metric), {})[method] = str(row.found)
    for metric, ideal in ideals(cards).items():
        rows[title_of(metric)][EXACT] = str(ideal) if ideal.value else "0"
    rows["Training time, seconds"] = {name: f"{s:.0f}" for name, s in seconds.items() if s}
    columns = [*cards, EXACT]
    widths = [max(len(name), *(len(r.get(name, "")) for r in rows.values())) for name in columns]
    first = max(map(len, rows))
    lines = [("", dict(zip(columns, columns, strict=True))), *rows.items()]
    return "\n".join(
        f"{title:<{first}}"
        + "".join(f"  {r.get(c, ''):>{w}}" for c, w in zip(columns, widths, strict=True))
        for title, r in lines
    )
