"""Refined likelihoods in the E-test, beside surrogate and exact, and the truth of their error.

Theta, groups and metrics are those of `ks.etest`, with fewer groups of fields at each theta
(GROUPS) than its 30, and volumes of sets, which cost most, at every VOLUME_EVERYth theta alone.
Exact inference is computed once per case and kept, so that all rows of a case are of the same
groups.

A refined likelihood states an error: the standard deviation of refined minus exact log-likelihood
over the exact set at its level, .99. It is true if the real one is below WITHIN times the stated
one. The real one is taken over POINTS places that walked through the exact set by exact values
alone (region.py), so that a tail which refining had missed is seen here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import keepscore as ks
from benchmarks.refinement_surrogates import CASES, SEED, SIZE, surrogate_of
from keepscore.evaluation.estimate import Estimate, stratified_mean
from keepscore.evaluation.set_volumes import wilks_volumes
from keepscore.inference.maximise import maximum_of
from keepscore.inference.placement import cloud_of
from keepscore.inference.region import along_axes, walk
from keepscore.likelihood import Likelihood
from keepscore.numerics.space_filling import fill_ball

GRIDS = {2: (10, 10), 3: (5, 5, 4)}  # those of the E-test
GROUPS = {"sis": 30, "gaussian": 5, "student-t": 5}  # at each theta
CHOSEN_ON, FRESH = 3, 4  # streams of groups: those the method was chosen on, and those of the cells
LEVEL = 0.95
VOLUME_EVERY, VOLUME_POINTS = 4, {2: 24, 3: 8}  # theta; points per side of a grid
POINTS, STEPS = 48, 6  # places in the exact set, and steps they walk
WIDER = 1.15  # than an ellipsoid along the axes of the exact set: where walks begin
WITHIN = 3.0  # times the estimated error
BLOCK = 20  # groups that walk at a time
TARGETS = {("sis", 20): 0.005, ("gaussian", 40): 0.01, ("student-t", 20): 0.005}
NAMES = {"sis": "SIS", "gaussian": "Gaussian field", "student-t": "Student-t field"}


class Inferences(NamedTuple):
    """What a likelihood says of p x G groups at theta (p, d): estimate (p, G, d), statistic
    (p, G), and volumes (q, G) of sets at some of the theta."""

    estimate: np.ndarray
    statistic: np.ndarray
    volume: np.ndarray

    @property
    def covered(self) -> np.ndarray:
        return np.asarray(self.statistic <= stats.chi2.ppf(LEVEL, self.estimate.shape[2]))


def accuracy(case: str, evaluations: int, data: Path, quick: bool) -> dict[str, Any]:
    """The E-test with refined likelihoods, and whether the estimated error is true."""
    model = CASES[case]()
    surrogate = surrogate_of(case, model, data, quick)
    tag = f"{case}{'-quick' if quick else ''}"
    theta, xs = etest_groups(case, model, quick)
    groups = len(xs) // len(theta)
    exact, like = model.given(xs), surrogate.given(xs)
    truth = Inferences(*_kept(data / f"{tag}-exact.npz", lambda: infer(exact, theta)))
    refined = ks.refine(like, exact, evaluations)
    plain, better = infer(like, theta), infer(refined, theta)
    at, value = _kept(data / f"{tag}-places.npz", lambda: places(refined, exact, truth))
    record: Any = refined.refinement
    return {
        "case": case,
        "evaluations": evaluations,
        "groups": len(xs),
        "groups_at_each_theta": groups,
        "groups_with_volumes": truth.volume.size,
        "surrogate": _row(plain, truth),
        "refined": _row(better, truth),
        "exact": _row(truth, truth),
        "largest_lrt_error": float(np.abs(better.statistic - truth.statistic).max()),
        "basis": refined.basis,
        "evaluations_spent": {
            "mean": float(record.evaluations.mean()),
            "largest": int(record.evaluations.max()),
        },
        "reached": float(record.reached.mean()),
        "honesty": honesty(refined, at, value),
    }


def etest_groups(
    case: str, model: Any, quick: bool, stream: int = FRESH
) -> tuple[np.ndarray, np.ndarray]:
    """Theta (p, d) of the E-test, and groups (p * G, SIZE, ...), G consecutive ones at each."""
    d, groups = model.space.d, 2 if quick else GROUPS[case]
    theta = model.space.grid((2,) * d if quick else GRIDS[d], "test")
    rng = np.random.default_rng([SEED, stream])
    flat = model.simulate(np.repeat(theta, groups * SIZE, axis=0), rng)
    return theta, flat.reshape(len(theta) * groups, SIZE, *model.x_shape)


def check(case: str, first: int, last: int, evaluations: int, data: Path) -> dict[str, Any]:
    """Some groups alone, without volumes: what can be seen in a minute. They are those the method
    was chosen on, so that the cells' own stay unseen."""
    model = CASES[case]()
    surrogate = surrogate_of(case, model, data, False)
    theta, xs = etest_groups(case, model, False, CHOSEN_ON)
    at, xs = np.repeat(theta, len(xs) // len(theta), axis=0)[first:last], xs[first:last]
    exact, like = model.given(xs), surrogate.given(xs)
    g, d = at.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ks.KeepscoreWarning)
        refined = ks.refine(like, exact, evaluations)
        tests = [ks.lrt(one, at) for one in (like, refined, exact)]
    found = [
        Inferences(
            np.asarray(t.maximum.theta).reshape(g, 1, d),
            np.asarray(t.statistic).reshape(g, 1),
            np.zeros((1, 1)),
        )
        for t in tests
    ]
    rows = {}
    for name, one in zip(("surrogate", "refined", "exact"), found, strict=True):
        rows[name] = _row(one, found[2])
        del rows[name]["volume"]
    record: Any = refined.refinement
    return {
        **rows,
        "basis": refined.basis,
        "reached": float(record.reached.mean()),
        "honesty": honesty(refined, *places(refined, exact, found[2])),
    }


def infer(like: Likelihood, theta: np.ndarray) -> Inferences:
    """Estimates, null statistics and volumes of groups simulated at theta (p, d)."""
    p, d = theta.shape
    groups = like.group_count // p
    some = np.arange(like.group_count).reshape(p, groups)[::VOLUME_EVERY]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ks.KeepscoreWarning)  # sets cut by the box
        test = ks.lrt(like, np.repeat(theta, groups, axis=0))
        few, top = like[some.ravel()], test.maximum.of(some.ravel())
        volume, _ = wilks_volumes(lambda i: few[i], top, groups, LEVEL, VOLUME_POINTS[d])
    return Inferences(
        np.asarray(test.maximum.theta).reshape(p, groups, d),
        np.asarray(test.statistic).reshape(p, groups),
        volume.reshape(-1, groups),
    )


def _row(found: Inferences, truth: Inferences) -> dict[str, Any]:
    """The metrics, and the share of groups in which one set holds theta and the other does not."""
    squared = (found.estimate - truth.estimate) ** 2
    return {
        "lrt_mse": _plain(stratified_mean((found.statistic - truth.statistic) ** 2)),
        "coverage": _plain(stratified_mean(found.covered.astype(float))),
        "volume": _plain(stratified_mean(found.volume)),
        "mle_mse": [float(np.median(one.mean(axis=1))) for one in np.moveaxis(squared, 2, 0)],
        "decided_otherwise": float((found.covered != truth.covered).mean()),
    }


def _plain(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "se": estimate.se}


def _kept(path: Path, compute: Callable[[], Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Arrays computed once and kept in a file."""
    if not path.exists():
        np.savez(path, *compute())
    with np.load(path, allow_pickle=False) as kept:
        return [kept[name] for name in sorted(kept.files)]


# --- is the stated error true? ---


def places(
    refined: Likelihood, exact: Likelihood, truth: Inferences
) -> tuple[np.ndarray, np.ndarray]:
    """Theta (g, POINTS, d) all over the exact sets at the level of the refined error, and exact
    log-likelihoods there (g, POINTS)."""
    record: Any = refined.refinement
    g, d = refined.group_count, refined.space.d
    cut = stats.chi2.ppf(record.level, d)
    low, high = exact.space.box()
    top, everyone = maximum_of(exact, "base"), np.arange(g)
    own = along_axes(exact.pairs, top, everyone, cut, low, high)
    radius, unit = WIDER * np.sqrt(cut), fill_ball(POINTS, d, 7)
    start = cloud_of(own.centre, own.factor, radius, unit, low, high)
    # Half from the region that was refined, which may reach where the axes do not.
    start[:, 1::2] = cloud_of(record.centre, record.factor, record.radius, unit, low, high)[:, 1::2]
    start[:, 0] = top.theta
    best = np.maximum(top.value, exact.pairs(truth.estimate.reshape(g, d), everyone))
    rng = np.random.default_rng(SEED)
    theta, value = np.empty(start.shape), np.empty(start.shape[:2])
    for begin in range(0, g, BLOCK):
        rows = np.arange(begin, min(begin + BLOCK, g))

        def values(at: np.ndarray, rows: np.ndarray = rows) -> np.ndarray:
            group = np.repeat(rows, at.shape[1])
            return exact.pairs(at.reshape(-1, d), group).reshape(at.shape[:2])

        theta[rows], _ = walk(values, start[rows], best[rows], cut, (low, high), rng, STEPS)
        value[rows] = values(theta[rows])
    return theta, value


def honesty(refined: Likelihood, theta: np.ndarray, value: np.ndarray) -> dict[str, Any]:
    """True error against the estimated one, group by group."""
    g, points, d = theta.shape
    ours = refined.pairs(theta.reshape(-1, d), np.repeat(np.arange(g), points))
    true = (ours.reshape(g, points) - value).std(axis=1)
    record: Any = refined.refinement
    ratio = true / np.maximum(record.error, 1e-6)
    return {
        "groups": g,
        "within": float((ratio <= WITHIN).mean()),
        "beyond": int((ratio > WITHIN).sum()),
        "median_true": float(np.median(true)),
        "largest_true": float(true.max()),
        "median_estimated": float(np.median(record.error)),
        "largest_estimated": float(record.error.max()),
        "median_ratio": float(np.median(ratio)),
        "largest_ratio": float(ratio.max()),
        "largest_true_where_reached": float(np.where(record.reached, true, 0.0).max()),
    }


# --- for a reader ---


def table(cells: list[dict[str, Any]]) -> str:
    """One row per likelihood and case."""
    if not cells:
        return ""
    lines = [
        "| groups of ten | exact evaluations | LRT error² | target | coverage | decided otherwise "
        "than exact | volume | MLE error² |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for case in dict.fromkeys(cell["case"] for cell in cells):
        own = sorted((c for c in cells if c["case"] == case), key=lambda c: int(c["evaluations"]))
        first, name = own[0], NAMES[case]
        lines.append(_line(f"{name} ({first['groups']:,}): surrogate", "0", first, "surrogate", ""))
        for cell in own:
            spent = cell["evaluations_spent"]["mean"]
            most = f"at most {cell['evaluations']}; {spent:.0f} in the mean"
            target = TARGETS.get((case, cell["evaluations"]))
            value = cell["refined"]["lrt_mse"]["value"]
            said = "" if target is None else f"{target:g}, {'' if value < target else 'NOT '}met"
            lines.append(_line("refined", most, cell, "refined", said))
        exact = first["exact"]
        lines.append(
            f"| exact | | 0 | | {exact['coverage']['value']:.4f} | 0 "
            f"| {exact['volume']['value']:.5g} | 0 |"
        )
    return "\n".join(lines)


def _line(name: str, count: str, cell: dict[str, Any], kind: str, target: str) -> str:
    row = cell[kind]
    mle = ", ".join(f"{value:.1g}" for value in row["mle_mse"])
    return (
        f"| {name} | {count} | {row['lrt_mse']['value']:.2g} ± {row['lrt_mse']['se']:.1g} "
        f"| {target} | {row['coverage']['value']:.4f} | {row['decided_otherwise']:.1%} "
        f"| {row['volume']['value']:.5g} | {mle} |"
    )


def honesty_table(cells: list[dict[str, Any]]) -> str:
    """Stated and true errors."""
    if not cells:
        return ""
    lines = [
        "| | at most | within the tolerance of 0.01 | stated error, median (largest) "
        "| true error, median (largest) | true below 3 x stated |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for cell in sorted(cells, key=lambda c: (list(NAMES).index(c["case"]), c["evaluations"])):
        h = cell["honesty"]
        lines.append(
            f"| {NAMES[cell['case']]} | {cell['evaluations']} | {cell['reached']:.1%} "
            f"| {h['median_estimated']:.2g} ({h['largest_estimated']:.2g}) "
            f"| {h['median_true']:.2g} ({h['largest_true']:.2g}) "
            f"| {h['groups'] - h['beyond']:,} of {h['groups']:,} ({h['within']:.1%}) |"
        )
    return "\n".join(lines)
