"""What must be caught: likelihoods that do not belong together, and exact ones that are not smooth.

    honest          nothing is wrong
    other data      the exact likelihood is of other groups (their digests taken away: with them it
                    is refused at once)
    wrong score     the exact gradients are half as long again as they should be
    kinked          the exact likelihood has folds and jumps
    another model   the surrogate was trained on another process: Student-t fields for Gaussian ones
                    and vice versa, the third parameter taken from box to box; epidemics seen
                    backwards in time

A group is *warned of* if it is called not within the tolerance, or if surrogate and exact
likelihood are said to be far apart. It is *wrong unsaid* if it is not warned of, and the real error
(standard deviation over the set, against the likelihood that should be found) is above 3 times the
stated one and above 0.05. That must not happen. A surrogate of another model may well be mended:
then its answers are right, and nothing needs to be said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import keepscore as ks
from benchmarks.refinement_surrogates import CASES, SEED, some_groups, surrogate_of
from keepscore.inference.placement import cloud_of
from keepscore.inference.refine import FAR
from keepscore.likelihood import Likelihood
from keepscore.numerics.space_filling import fill_ball
from keepscore.space import Space

GROUPS, EVALUATIONS = 60, 20
POINTS = 40
WITHIN, MATTERS = 3.0, 0.05
OTHER_FIELD = {"gaussian": "student-t", "student-t": "gaussian"}
NAMES = {"sis": "SIS", "gaussian": "Gaussian field", "student-t": "Student-t field"}


def control(case: str, data: Path, quick: bool) -> dict[str, Any]:
    """Every control of a case; counts of groups."""
    model = CASES[case]()
    surrogate = surrogate_of(case, model, data, quick)
    count = 4 if quick else GROUPS
    _, xs = some_groups(model, count, [SEED, 1])
    exact, ours = model.given(xs), surrogate.given(xs)
    others = np.roll(xs, 1, axis=0)
    try:
        ks.refine(ours, model.given(others), EVALUATIONS)
        refused = False
    except ks.KeepscoreError:
        refused = True
    other = unmarked(another(case, xs, exact.space, surrogate, data, quick))
    found = {}
    for name, like, truth, right in (
        ("honest", ours, exact, exact),
        ("other data", ours, unmarked(model.given(others)), exact),
        ("wrong score", ours, wrong_score(exact), exact),
        ("kinked", ours, kinked(exact), kinked(exact)),
        ("another model", other, exact, exact),
    ):
        refined = ks.refine(like, truth, EVALUATIONS)
        record: Any = refined.refinement
        said = ~record.reached | (record.before > FAR)
        off = real_error(refined, right)
        wrong = off > np.maximum(WITHIN * record.error, MATTERS)
        found[name] = {
            "warned_of": int(said.sum()),
            "wrong": int(wrong.sum()),
            "wrong_unsaid": int((wrong & ~said).sum()),
            "median_stated": float(np.median(record.error)),
            "median_real": float(np.median(off)),
            "evaluations": float(record.evaluations.mean()),
        }
    return {"case": case, "groups": count, "refused": refused, "controls": found}


def real_error(refined: Likelihood, right: Likelihood) -> np.ndarray:
    """Standard deviation (g,) of refined minus right over places of the refined region that lie in
    the right set at level .95, or over the highest eighth of them if few do."""
    record: Any = refined.refinement
    g, d = refined.group_count, refined.space.d
    unit = fill_ball(POINTS, d, 5)
    theta = cloud_of(record.centre, record.factor, record.radius, unit, *right.space.box())
    flat, group = theta.reshape(-1, d), np.repeat(np.arange(g), POINTS)
    value = right.pairs(flat, group).reshape(g, POINTS)
    off = refined.pairs(flat, group).reshape(g, POINTS) - value
    inside = 2 * (value.max(axis=1, keepdims=True) - value) <= stats.chi2.ppf(0.95, d)
    inside |= np.argsort(np.argsort(-value, axis=1), axis=1) < POINTS // 8
    return np.array([one[those].std() for one, those in zip(off, inside, strict=True)])


def unmarked(like: Likelihood) -> Likelihood:
    """The same, no longer knowing of which data: with that, other data are refused at once."""
    return replace(like, observed=None)


def another(
    case: str, xs: np.ndarray, space: Space, surrogate: Any, data: Path, quick: bool
) -> Likelihood:
    """What a surrogate of another model says of the data."""
    if case not in OTHER_FIELD:
        backwards: Likelihood = surrogate.given(xs[:, :, ::-1].copy())
        return backwards
    name = OTHER_FIELD[case]
    return in_space(surrogate_of(name, CASES[name](), data, quick).given(xs), space)


def in_space(like: Likelihood, space: Space) -> Likelihood:
    """A likelihood with its parameters renamed: their boxes are laid over those of `space`."""
    low, high = space.box()
    there, end = like.space.box()
    scale = (end - there) / (high - low)

    def moved(theta: np.ndarray) -> np.ndarray:
        return there + (theta - low) * scale

    def pairs_gradient(theta: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = like.pairs_gradient(moved(theta), group)
        return value, slope * scale

    return replace(
        like,
        space=space,
        pairs=lambda theta, group: like.pairs(moved(theta), group),
        pairs_gradient=pairs_gradient,
        surface=lambda theta: like.surface(moved(theta)),
        traceable=None,
        calibration=None,
    )


def wrong_score(exact: Likelihood) -> Likelihood:
    """The exact likelihood with gradients half as long again as they should be."""

    def pairs_gradient(theta: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = exact.pairs_gradient(theta, group)
        return value, 1.5 * slope

    return replace(exact, pairs_gradient=pairs_gradient)


def kinked(exact: Likelihood) -> Likelihood:
    """The exact likelihood with folds along the first parameter and jumps along the last."""
    low, high = exact.space.box()
    middle = (low + high) / 2

    def kink(theta: np.ndarray) -> np.ndarray:
        fold = 3 * np.abs(np.sin(40 * (theta - middle)[:, 0]))
        return np.asarray(fold + (np.cos(50 * (theta - middle)[:, -1]) > 0))

    return replace(
        exact,
        pairs=lambda t, g: exact.pairs(t, g) + kink(t),
        pairs_gradient=lambda t, g: (exact.pairs(t, g) + kink(t), exact.pairs_gradient(t, g)[1]),
        surface=lambda t: exact.surface(t) + kink(t),
    )


# --- for a reader ---


def table(cells: list[dict[str, Any]]) -> str:
    """One row per control and case."""
    if not cells:
        return ""
    return "\n".join(
        [
            f"| control, at most {EVALUATIONS} evaluations | groups | warned of | wrong "
            "| wrong unsaid | stated error | real error |",
            "|---|--:|--:|--:|--:|--:|--:|",
            *_lines(cells),
        ]
    )


def _lines(cells: list[dict[str, Any]]) -> Iterator[str]:
    for cell in cells:
        for name, one in cell["controls"].items():
            said = ", marked data refused" if name == "other data" and cell["refused"] else ""
            yield (
                f"| {NAMES[cell['case']]}, {name}{said} | {cell['groups']} | {one['warned_of']} "
                f"| {one['wrong']} | {one['wrong_unsaid']} | {one['median_stated']:.2g} "
                f"| {one['median_real']:.2g} |"
            )
