"""Exact evaluations behind one data set's answers: exact inference alone, and refined.

An evaluation is a value, or a value with its gradient, at one theta. (a) is `ks.mle`, `ks.lrt` and
`ks.confidence_set` with volume and intervals; (b) is a posterior of 2,000 effective draws: NUTS, as
many evaluations as it asks for, warm-up and all, scaled from the effective draws it got.

With a refined likelihood both need the evaluations of refining and no more. Exact inference is run
where it can be; beyond that (`proxy`) the same functions are run on the refined likelihood, whose
surface is the same within the stated error, and what they ask of *it* is counted: so many exact
evaluations exact inference would take, at most. Where both are there they can be compared: at 25 x
25 the proxy for estimate, test and set is 4,050 and the count 2,190, so it flatters.

Seconds are wall-clock seconds of the same calls, compiled before (a first call to refine one data
set compiles for some seconds more, stated as `first_refine`). Where exact inference was not run
they are the proxy's count times the seconds of one exact evaluation, measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import keepscore as ks
from benchmarks.refinement_surrogates import SEED, some_groups, surrogate_of
from keepscore.likelihood import Likelihood
from keepscore.models import GaussianField

EXACT_ANSWERS = {5: 1, 25: 3, 49: 1}  # data sets, by side, with exact inference
EXACT_POSTERIOR = (5, 25)
DATA_SETS = {5: 1, 25: 3, 49: 2, 75: 1}  # by side; posteriors of the first
EFFECTIVE = 2000  # draws of a posterior
LONG, SHORT = (1000, 500), (250, 250)  # draws and warm-up of a chain


def counted(like: Likelihood) -> tuple[Likelihood, dict[str, int]]:
    """The same likelihood, and how many theta it was asked about."""
    count = {"evaluations": 0}

    def rows(function: Callable[..., Any]) -> Callable[..., Any]:
        def ask(theta: Any, *rest: Any) -> Any:
            count["evaluations"] += len(theta)
            return function(theta, *rest)

        return ask

    asked = replace(
        like,
        pairs=rows(like.pairs),
        pairs_gradient=rows(like.pairs_gradient),
        surface=rows(like.surface),
        traceable=None,
    )
    return asked, count


def cost(side: int, data: Path, quick: bool) -> dict[str, Any]:
    """Exact evaluations of answers and posteriors on Gaussian fields of side x side."""
    model = GaussianField(side)
    surrogate = surrogate_of("gaussian" if side == 25 else f"gaussian-{side}", model, data, quick)
    thetas, groups = some_groups(model, DATA_SETS[side], [SEED, 2])
    found: dict[str, Any] = {"side": side, "simulations": _rows(surrogate), "data_sets": []}
    for i, (theta, xs) in enumerate(zip(thetas, groups, strict=True)):
        one: dict[str, Any] = {}
        if i == 0:
            refine = timed(ks.refine, surrogate.given(xs), model.given(xs))
            answers(refine[0], theta)  # compiles
            found["first_refine"] = refine[1]
            found["exact_evaluation"] = _seconds_each(model.given(xs), theta)
        exact, count = counted(model.given(xs))
        refined, one["refine_seconds"] = timed(ks.refine, surrogate.given(xs), exact)
        record: Any = refined.refinement
        one["refined"] = count["evaluations"]
        one["error"], one["reached"] = float(record.error[0]), bool(record.reached[0])
        one["before"] = float(record.before[0])
        _, one["refined_answers_seconds"] = timed(answers, refined, theta)
        if count["evaluations"] != one["refined"]:
            raise RuntimeError("Answers of a refined likelihood must not ask the exact one.")
        one["answers_proxy"], _ = _answers_of(refined, theta)
        if i < EXACT_ANSWERS.get(side, 0):
            one["answers_exact"], one["exact_answers_seconds"] = _answers_of(model.given(xs), theta)
        if i == 0:
            one |= _posteriors(refined, model.given(xs), side, quick)
        found["data_sets"].append(one)
    return found


def timed(work: Callable[..., Any], *given: Any, **named: Any) -> tuple[Any, float]:
    """What work(...) gives, and its seconds."""
    began = time.perf_counter()
    found = work(*given, **named)
    return found, time.perf_counter() - began


def _rows(surrogate: Any) -> int:
    return int(surrogate.history[0]["rows"])


def _seconds_each(exact: Likelihood, theta: np.ndarray) -> float:
    """Seconds of one exact value with its gradient, the median of three."""
    group = np.zeros(1, dtype=np.int64)
    return float(np.median([timed(exact.pairs_gradient, theta[None], group)[1] for _ in range(3)]))


def _answers_of(like: Likelihood, theta0: np.ndarray) -> tuple[int, float]:
    """Evaluations of estimate, test and set, and their seconds."""
    asked, count = counted(like)
    _, seconds = timed(answers, asked, theta0)
    return count["evaluations"], seconds


def answers(like: Likelihood, theta0: np.ndarray) -> None:
    """Estimate, test, 95% set with its volume and intervals."""
    ks.mle(like)
    ks.lrt(like, theta0)
    chosen = ks.confidence_set(like)
    _ = chosen.volume, chosen.intervals


def _posteriors(refined: Likelihood, exact: Likelihood, side: int, quick: bool) -> dict[str, Any]:
    draws, warmup = (20, 20) if quick else LONG
    drawn, seconds = timed(ks.posterior, refined, draws=draws, warmup=warmup, method="nuts")
    effective = float(drawn.posterior.attrs["smallest_ess"])
    found = {"posterior_effective": effective, "refined_posterior_seconds": seconds}
    found["posterior_proxy"], _ = _posterior_of(refined, quick)
    if side in EXACT_POSTERIOR:
        found["posterior_exact"], found["exact_posterior_seconds"] = _posterior_of(exact, quick)
    return found


def _posterior_of(like: Likelihood, quick: bool) -> tuple[float, float]:
    """Evaluations and seconds for EFFECTIVE draws."""
    asked, count = counted(like)
    draws, warmup = (20, 20) if quick else SHORT
    drawn, seconds = timed(ks.posterior, asked, draws=draws, warmup=warmup, method="nuts")
    more = EFFECTIVE / float(drawn.posterior.attrs["smallest_ess"])
    return more * count["evaluations"], more * seconds


# --- for a reader ---


def table(cells: list[dict[str, Any]]) -> str:
    """One row per size of field."""
    if not cells:
        return ""
    lines = [
        "| Gaussian field | refined: exact evaluations (largest stated error) "
        "| estimate + test + set, exact alone | times fewer "
        "| posterior of 2,000 effective draws, exact alone | times fewer |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for cell in cells:
        sets, side = cell["data_sets"], cell["side"]
        ours = np.mean([one["refined"] for one in sets])
        worst = max(one["error"] for one in sets)
        theirs, how = _mean_of(sets, "answers")
        post, how_post = _mean_of(sets[:1], "posterior")
        plural = "s" if len(sets) > 1 else ""
        lines.append(
            f"| {side} x {side} ({len(sets)} data set{plural}) | {ours:.0f} ({worst:.2g}) "
            f"| {theirs:,.0f}{how} | {theirs / ours:.0f} | {post:,.0f}{how_post} "
            f"| {post / sets[0]['refined']:,.0f} |"
        )
    return "\n".join(lines)


def _mean_of(sets: list[dict[str, Any]], what: str) -> tuple[float, str]:
    """Mean over data sets of what exact inference took, and of what the proxy says of it."""
    proxy = float(np.mean([one[f"{what}_proxy"] for one in sets]))
    run = [one[f"{what}_exact"] for one in sets if f"{what}_exact" in one]
    if not run:
        return proxy, " (proxy, too high)"
    return float(np.mean(run)), f" (of {len(run)}; proxy: {proxy:,.0f})"


def seconds_table(cells: list[dict[str, Any]]) -> str:
    """One row per size of field: seconds of one data set's answers."""
    if not cells:
        return ""
    lines = [
        "| Gaussian field | one exact evaluation | refine (first time, with compilation) | answers "
        "| exact answers | times faster | refined posterior | exact posterior |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for cell in cells:
        sets, side, each = cell["data_sets"], cell["side"], cell["exact_evaluation"]
        refine, after = (
            float(np.mean([one[name] for one in sets]))
            for name in ("refine_seconds", "refined_answers_seconds")
        )
        run = [one["exact_answers_seconds"] for one in sets if "exact_answers_seconds" in one]
        proxy = each * float(np.mean([one["answers_proxy"] for one in sets]))
        exact, how = (float(np.mean(run)), "") if run else (proxy, " (proxy)")
        first = sets[0]
        longer = first.get("exact_posterior_seconds", each * first["posterior_proxy"])
        how_long = "" if "exact_posterior_seconds" in first else " (proxy)"
        lines.append(
            f"| {side} x {side} | {1000 * each:.3g} ms | {refine:.2g} s "
            f"({cell['first_refine']:.2g} s) | {after:.2g} s | {exact:.3g} s{how} "
            f"| {exact / (refine + after):.2g} | {first['refined_posterior_seconds']:.3g} s "
            f"({first['posterior_effective']:,.0f} effective draws) | {longer:,.0f} s{how_long} |"
        )
    return "\n".join(lines)
