"""Surrogate speed, exact answers: what `ks.refine` reaches, what it costs, and is it honest?

Three kinds of cells; each is one small file in results/refinement, and a finished one is not run
again.

accuracy   The E-test of a case with its surrogate, with the surrogate refined by 20 and by 40 exact
           evaluations per group, and with the exact likelihood: squared error of the likelihood-
           ratio statistic, coverage, volume of sets, error of estimates. And the honesty of the
           estimated error: on a subset of the groups, the standard deviation of refined minus
           exact log-likelihood over the exact 95% set, against three times what was estimated.
cost       Exact evaluations (a value, or a value with its gradient, at one theta) and seconds of
           one data set's estimate, test and 95% set, and of a posterior, with the exact likelihood
           and with the refined one; Gaussian fields of 25, 49 and 75 per side. The exact posterior
           is run at 25 only, and scaled to 2,000 effective draws.
control    What must be caught: an exact likelihood of other data, a kinked one, a surrogate of
           another model. The share of groups that are not called within the tolerance, or are.

Exact evaluations are kept in results/runs/refinement and survive an interruption.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import keepscore as ks
from benchmarks import machine
from keepscore.evaluation.etest import ETest, etest, etest_set
from keepscore.files import make_folder, read_json, write_json
from keepscore.inference.refine import FAR
from keepscore.likelihood import Likelihood
from keepscore.models import SIS, GaussianField, StudentTField
from keepscore.numerics.space_filling import fill_ball

RESULTS = machine.ROOT / "benchmarks" / "results"
CASES: dict[str, Callable[[], Any]] = {
    "sis": SIS,
    "gaussian": lambda: GaussianField(25),
    "student-t": lambda: StudentTField(25),
}
EVALUATIONS = (20, 40)
SIDES = (25, 49, 75)
SIMULATIONS = {"gaussian-49": 2_000, "gaussian-75": 600}  # 30,000 elsewhere
# Theta of the E-test, and groups at each: few, since sets by the exact likelihood cost minutes.
GRIDS = {"sis": (10, 10), "gaussian": (4, 4, 3), "student-t": (4, 4, 3)}
GROUPS = 1
SIZE = 10  # observations per group
SEED = 77
HONEST_POINTS = 40
WITHIN = 3.0  # times the estimated error
EFFECTIVE = 2000  # draws of a posterior


def run(quick: bool = False, folder: Path | None = None) -> dict[str, Any]:
    """Every cell that is not there yet."""
    data = make_folder((folder or RESULTS / "runs") / "refinement")
    kept = make_folder(data / "cells" if quick else RESULTS / "refinement")
    cases, sides = (("sis",), (5,)) if quick else (tuple(CASES), SIDES)
    cells: dict[str, Callable[[], dict[str, Any]]] = {}
    for n in EVALUATIONS[:1] if quick else EVALUATIONS[::-1]:
        for case in cases:
            cells[f"accuracy-{case}-{n}"] = lambda case=case, n=n: accuracy(case, n, data, quick)
    for side in sides:
        cells[f"cost-{side}"] = lambda side=side: cost(side, data, quick)
    for case in cases:
        cells[f"control-{case}"] = lambda case=case: control(case, data, quick)
    found = {}
    for name, compute in cells.items():
        path = kept / f"{name}.json"
        if not path.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ks.KeepscoreWarning)  # counted in the results
                write_json(path, compute())
        found[name] = read_json(path)
    return {"quick": quick, "cells": found}


def surrogate_of(case: str, model: Any, data: Path, quick: bool) -> Any:
    """The case's surrogate: the paper's 30K network for SIS, the default one for fields."""
    folder = data / f"{case}-surrogate{'-quick' if quick else ''}"
    if (folder / "surrogate.json").exists():
        return ks.load(folder)
    n = 2_000 if quick else SIMULATIONS.get(case, 30_000)
    train = ks.simulate(
        model, n, seed=SEED, path=data / f"{case}-train-{n}", jobs=1 if quick else None
    )
    short: dict[str, Any] = {"min_epochs": 2, "max_epochs": 2} if quick else {}
    if case == "sis":
        config = ks.TrainConfig.paper("sis", **short)
        made = ks.train(train, None, "30k", ks.ASA.paper(), config)
    elif short:
        made = ks.train(train, config=ks.TrainConfig(**short))
    else:
        made = ks.train(train)  # the best we know
    made.save(folder)
    return made


# --- accuracy ------------------------------------------------------------------------------------


def accuracy(case: str, evaluations: int, data: Path, quick: bool) -> dict[str, Any]:
    """The E-test with refined likelihoods, and whether the estimated error is true."""
    model = CASES[case]()
    surrogate = surrogate_of(case, model, data, quick)
    groups, thetas = (2, 3) if quick else (GROUPS, None)
    grid = None if quick else GRIDS[case]
    tag = f"{case}{'-quick' if quick else ''}"
    truth = etest_set(
        model, grid, groups, SIZE, SEED, points=6 if quick or model.space.d > 2 else None,
        path=data / f"{tag}-exact", thetas=thetas,
    )  # fmt: skip
    xs = truth.xs
    exact = model.given(xs)
    began = time.perf_counter()
    refined = ks.refine(surrogate.given(xs), exact, evaluations, path=data / f"{tag}-evaluations")
    seconds = time.perf_counter() - began
    plain = etest(surrogate, model, test_set=truth)
    better = etest(Ready(refined), model, test_set=truth)
    return {
        "case": case,
        "evaluations": evaluations,
        "groups": len(xs),
        "surrogate": _row(plain),
        "refined": _row(better),
        "exact": {
            "coverage": plain.coverage_exact.to_dict(),
            "volume": plain.volume_exact.to_dict(),
        },
        "otherwise_covered": float((better.surrogate.covered != better.exact.covered).mean()),
        "basis": refined.basis,
        "seconds_refining": seconds,
        "honesty": honesty(refined, exact),
    }


@dataclass(frozen=True)
class Ready:
    """A likelihood that is there already, as the source that an E-test takes."""

    like: Likelihood

    @property
    def space(self) -> Any:
        return self.like.space

    def given(self, xs: Any) -> Likelihood:
        return self.like


def _row(found: ETest) -> dict[str, Any]:
    return {name: value.to_dict() for name, value in found.rows() if "exact" not in name}


def honesty(refined: Likelihood, exact: Likelihood) -> dict[str, Any]:
    """True error over the exact 95% set against the estimated one, group by group.

    The set is about the ellipsoid of the curvature; points of it that are not in the set, which
    may have a long tail, do not count.
    """
    top = ks.mle(exact)
    d = exact.space.d
    cut = stats.chi2.ppf(0.95, d)
    ball = np.sqrt(stats.chi2.ppf(0.95, d)) * fill_ball(HONEST_POINTS, d)
    low, high = exact.space.box()
    true = np.empty(exact.group_count)
    for i in range(exact.group_count):
        spread = np.linalg.inv(np.linalg.cholesky(_positive(top.information[i]))).T
        theta = np.clip(top.estimate[i] + ball @ spread.T, low, high)
        group = np.full(len(theta), i)
        value = exact.pairs(theta, group)
        inside = 2 * (value.max() - value) <= cut
        true[i] = (refined.pairs(theta, group) - value)[inside].std()
    record: Any = refined.refinement
    within = true <= WITHIN * np.maximum(record.error, 1e-6)
    return {
        "groups": exact.group_count,
        "within": float(within.mean()),
        "median_true": float(np.median(true)),
        "largest_true": float(true.max()),
        "median_estimated": float(np.median(record.error)),
        "reached": float(record.reached.mean()),
        "evaluations": float(record.evaluations.mean()),
    }


def _positive(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-3 * max(float(values.max()), 1e-3))
    return np.asarray((vectors * values) @ vectors.T)


# --- cost ----------------------------------------------------------------------------------------


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
    )
    return asked, count


def cost(side: int, data: Path, quick: bool) -> dict[str, Any]:
    """Exact evaluations and seconds of one data set's answers on a Gaussian field."""
    model = GaussianField(side)
    name = "gaussian" if side == SIDES[0] else f"gaussian-{side}"
    surrogate = surrogate_of(name, model, data, quick)
    rng = np.random.default_rng(SEED)
    truth = model.space.uniform(1, rng, "test")[0]
    xs = model.simulate(np.tile(truth, (SIZE, 1)), rng)
    found: dict[str, Any] = {"side": side}
    if side != SIDES[-1]:  # hours there
        exact, count = counted(model.given(xs))
        began = time.perf_counter()
        _answers(exact, truth)
        found["exact"] = {**count, "seconds": time.perf_counter() - began}
    exact, count = counted(model.given(xs))
    began = time.perf_counter()
    refined = ks.refine(surrogate.given(xs), exact)
    _answers(refined, truth)
    found["refined"] = {
        **count, "seconds": time.perf_counter() - began, "basis": refined.basis
    }  # fmt: skip
    draws, warmup = (20, 20) if quick else (1000, 500)
    began = time.perf_counter()
    drawn = ks.posterior(refined, draws=draws, warmup=warmup)
    ess = float(drawn.posterior.attrs["smallest_ess"])
    found["posterior_refined"] = {
        **count, "seconds": time.perf_counter() - began, "effective": ess
    }  # fmt: skip
    if side == SIDES[0] or quick:
        exact, count = counted(model.given(xs))
        began = time.perf_counter()
        drawn = ks.posterior(exact, draws=draws // 4, warmup=warmup // 2)
        seconds = time.perf_counter() - began
        ess = float(drawn.posterior.attrs["smallest_ess"])
        per_draw = count["evaluations"] / ess
        found["posterior_exact"] = {
            **count, "seconds": seconds, "effective": ess, "for_2000": EFFECTIVE * per_draw
        }  # fmt: skip
    return found


def _answers(like: Likelihood, theta0: np.ndarray) -> None:
    """Estimate, test, 95% set with its volume and intervals."""
    ks.mle(like)
    ks.lrt(like, theta0)
    chosen = ks.confidence_set(like)
    _ = chosen.volume, chosen.intervals


# --- controls ------------------------------------------------------------------------------------


def control(case: str, data: Path, quick: bool) -> dict[str, Any]:
    """Shares of groups called within the tolerance where they must not be, and the honest one."""
    model = CASES[case]()
    surrogate = surrogate_of(case, model, data, quick)
    rng = np.random.default_rng([SEED, 1])
    count = 4 if quick else 60
    theta = model.space.uniform(count, rng, "test")
    xs = model.simulate(np.repeat(theta, SIZE, axis=0), rng).reshape(count, SIZE, *model.x_shape)
    exact, ours = model.given(xs), surrogate.given(xs)
    wrong = {
        "honest": (ours, exact),
        "other data": (ours, unmarked(model.given(np.roll(xs, 1, axis=0)))),
        "kinked": (ours, _kinked(exact)),
        "another model": (unmarked(surrogate.given(xs[:, :, ::-1].copy())), exact),
    }
    try:
        ks.refine(ours, model.given(np.roll(xs, 1, axis=0)), EVALUATIONS[0])
        refused = False
    except ks.KeepscoreError:
        refused = True
    found = {}
    for name, (like, truth) in wrong.items():
        refined = ks.refine(like, truth, EVALUATIONS[0])
        record: Any = refined.refinement
        said = ~record.reached | (record.before > FAR)
        top = ks.mle(exact)
        off = np.abs(ks.mle(refined).estimate - top.estimate) / np.where(
            np.isfinite(top.standard_errors), top.standard_errors, np.inf
        )
        found[name] = {
            "reached": float(record.reached.mean()),
            "warned_of": float(said.mean()),
            "median_error": float(np.median(record.error)),
            "median_estimate_off": float(np.median(off.max(axis=1))),
        }
    return {"case": case, "groups": count, "refused": refused, "controls": found}


def unmarked(like: Likelihood) -> Likelihood:
    """The same, no longer knowing of which data: with that, other data are refused at once."""
    return replace(like, observed=None)


def _kinked(exact: Likelihood) -> Likelihood:
    """The exact likelihood with a fold through the middle of the box and a jump beside it."""
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


# --- for a reader --------------------------------------------------------------------------------


def table(result: dict[str, Any]) -> str:
    """Accuracy, honesty, cost and controls."""
    cells = result["cells"]
    lines = [
        "| case | exact evaluations | LRT error² | coverage | volume | error < 3 x estimate |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, cell in cells.items():
        if not name.startswith("accuracy"):
            continue
        if f"surrogate {cell['case']}" not in "".join(lines):
            lines.append(_accuracy_row(f"surrogate {cell['case']}", 0, cell["surrogate"], ""))
        honest = f"{cell['honesty']['within']:.1%} of {cell['honesty']['groups']}"
        row = _accuracy_row(f"refined {cell['case']}", cell["evaluations"], cell["refined"], honest)
        exact = cell["exact"]
        lines += [row, f"| exact {cell['case']} | | 0 | {exact['coverage']['value']:.4f} "
                       f"| {exact['volume']['value']:.4g} | |"]  # fmt: skip
    lines += [
        "",
        "| field | exact: evaluations, s | refined: evaluations, s | posterior, refined |",
        "|---|--:|--:|--:|",
    ]
    for name, cell in cells.items():
        if name.startswith("cost"):
            a, b, c = cell.get("exact"), cell["refined"], cell["posterior_refined"]
            alone = "" if a is None else f"{a['evaluations']}, {a['seconds']:.1f}"
            lines.append(
                f"| {cell['side']} x {cell['side']} | {alone} | {b['evaluations']}, "
                f"{b['seconds']:.1f} | {c['evaluations']}, {c['seconds']:.1f} |"
            )
    lines += ["", "| control | warned of | called within the tolerance | median estimated error |",
              "|---|--:|--:|--:|"]  # fmt: skip
    for name, cell in cells.items():
        if name.startswith("control"):
            lines += [
                f"| {cell['case']}, {kind} | {one['warned_of']:.0%} | {one['reached']:.0%} "
                f"| {one['median_error']:.2g} |"
                for kind, one in cell["controls"].items()
            ]
    return "\n".join(lines)


def _accuracy_row(name: str, evaluations: int, row: dict[str, Any], honest: str) -> str:
    return (
        f"| {name} | {evaluations} | {row['lrt_mse']['value']:.4g} ± {row['lrt_mse']['se']:.2g} "
        f"| {row['coverage']['value']:.4f} | {row['volume']['value']:.4g} | {honest} |"
    )


if __name__ == "__main__":
    print(table(run(quick=True)))
