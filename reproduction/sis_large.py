"""A case study where nobody can compute the likelihood: SIS on a contact network of 64 people.

2^64 states are out of reach, but a simulated path gives its own score. Three surrogates with one
network (`graph_network`):

    bce            cross-entropy alone, N simulations
    joint          the same N simulations with their joint scores (ASA)
    bce-more       cross-entropy with half as many simulations again, which takes about as long to
                   simulate and train as `joint`; both times are in the results

There is nothing exact to compare with, so what is reported needs none:

    test BCE       on fresh pairs over the base box
    joint loss     mean (d h / d theta_k - joint score_k)^2 on the same pairs. Its least value is
                   the mean of Var(joint score | x), unknown; differences between surrogates are
                   differences of their mean squared errors against the true score
    coverage       of 95% sets on fresh groups over a grid: Wilks, and calibrated by simulation
    volume         of the sets, working units, mean over the groups
    MLE error      root mean squared difference from the theta simulated, each parameter

Losses are also compared pair by pair (`differences.json`). One JSON file a surrogate; one that is
there is not computed again. Where a run was killed it goes on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepscore import Dataset, simulate
from keepscore.errors import KeepscoreWarning, MismatchError, unknown_name
from keepscore.evaluation import Estimate, mean, pair_losses, root_mean_square, stratified_mean
from keepscore.files import make_folder, read_json
from keepscore.inference import Calibration, calibrate, confidence_set, local_coverage
from keepscore.models import SIS, contact_network
from reproduction.course import course, epochs_of
from reproduction.results import FORMAT, write_record

CASE = "sis-large"
DIFFERENCES = "differences.json"
TEST_SEED = 1000
LEVEL = 0.95
# What we advised when the results in `results/sis-large` were made.
AS_COMMITTED: dict[str, Any] = {
    "length": "paper", "max_epochs": 500, "criterion": "bce", "guard": False
}  # fmt: skip
TRAININGS = {"bce": ("bce", 1.0), "joint": ("asa", 1.0), "bce-more": ("bce", 1.5)}
METRICS = (
    "test BCE",
    "joint loss[lambda]",
    "joint loss[mu]",
    "coverage, wilks",
    "coverage, calibrated",
    "lowest coverage, wilks",
    "lowest coverage, calibrated",
    "volume, wilks",
    "volume, calibrated",
    "MLE error[lambda]",
    "MLE error[mu]",
)
Report = Callable[[str], Any]


@dataclass(frozen=True)
class LargePlan:
    """Sizes of everything. pairs: of the test losses; calibration: simulated groups; points per
    side, groups at each and group size: of the coverage test; epochs: None: training decides."""

    nodes: int
    n: int
    network: str
    pairs: int
    calibration: int
    points: int
    groups: int
    size: int
    seed: int = 0
    epochs: int | None = None


PLANS = {
    # 72 steps: long enough for the first value of alpha.
    "smoke": LargePlan(64, 512, "3k", 200, 100, 2, 3, 2, epochs=9),
    "laptop": LargePlan(64, 30_000, "10k", 20_000, 4_000, 6, 40, 10, epochs=20),
}


def large_model(nodes: int = 64) -> SIS:
    """SIS on a contact network, a tenth of the people infected at first, with joint scores."""
    return SIS(weights=contact_network(nodes).weights, initial=0.1, score="joint")


def reproduce_large(
    profile: str = "laptop",
    path: str | Path = "runs/reproduce",
    report: Report = print,
) -> dict[str, dict[str, Any]]:
    """Run (what is missing of) the case study: results by training."""
    if profile not in PLANS:
        raise unknown_name(f"profile of {CASE}", profile, PLANS)
    plan, folder = PLANS[profile], Path(path).resolve()
    results = {}
    for training in TRAININGS:
        file = folder / CASE / f"{training}.json"
        if not file.exists():
            write_record(file, run_training(training, plan, folder))
        found = read_json(file)
        if found.get("settings") != asdict(plan):
            raise MismatchError(
                f"{file} was computed with other settings. Use another folder for this profile, or "
                "delete the file."
            )
        results[training] = found
        report(f"{CASE}: {training} done")
    file = folder / CASE / DIFFERENCES
    if not file.exists():
        write_record(file, {"format": FORMAT, "differences": paired_differences(plan, folder)})
    report("\n" + summary(results))
    report("\nLosses beyond those of joint, on the same pairs:")
    for training, found in read_json(file)["differences"].items():
        shown = (f"{metric} {Estimate(**found[metric])}" for metric in METRICS[:3])
        report(f"{training}: {', '.join(shown)}")
    return results


def run_training(training: str, plan: LargePlan, folder: Path) -> dict[str, Any]:
    """Simulate, train, calibrate and test one surrogate; plain data."""
    from keepscore import ASA, BCE, TrainConfig, train
    from keepscore.networks import graph_network

    loss, more = TRAININGS[training]
    model, n, work = large_model(plan.nodes), round(plan.n * more), folder / ".work" / CASE
    _make_work(folder)
    data = _data(model, n, plan.seed, "train", work)
    held = _data(model, max(n // 3, 64), plan.seed, "validation", work)
    surrogate = train(
        data,
        held,
        network=graph_network(model, plan.network),
        loss=ASA.paper() if loss == "asa" else BCE(),
        # The network is the same for all automorphisms of the graph: nothing to augment.
        config=TrainConfig(
            **{**AS_COMMITTED, "symmetries": False, "seed": plan.seed, **_epochs(plan)}
        ),
        path=work / training,
    )
    found = course(surrogate.history)
    validation = [round(float(r["validation_bce"]), 5) for r in epochs_of(surrogate.history)]
    rate = _simulation_rate(model)
    return {
        "format": FORMAT,
        "case": CASE,
        "training": training,
        "settings": asdict(plan),
        "n": n,
        "names": list(model.space.working_names),
        "metrics": {
            **_losses(surrogate, model, plan, work),
            **_inference(surrogate, model, plan),
        },
        "course": {**found, "validation_bce": validation},
        "seconds": {
            "simulate": round(n / rate, 2),
            "train": round(found["seconds_per_step"] * found["batches"], 2),
        },
        "paths_per_second": round(rate),
    }


def estimates(result: Mapping[str, Any]) -> dict[str, Estimate]:
    """The metrics of one result, in their order."""
    return {name: Estimate(**result["metrics"][name]) for name in METRICS}


def summary(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The table printed at the end."""
    every = [estimates(result) for result in results.values()]
    rows = [
        ["", *results],
        ["simulations", *(f"{r['n']:,}" for r in results.values())],
        ["seconds", *(f"{sum(r['seconds'].values()):.0f}" for r in results.values())],
        *([name, *(str(found[name]) for found in every)] for name in METRICS),
    ]
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for label, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, others, strict=True)]
        lines.append("  ".join([label.ljust(first), *padded]))
    return "\n".join(lines)


def paired_differences(plan: LargePlan, folder: Path) -> dict[str, dict[str, Any]]:
    """How much more each loss is than that of `joint`, on the same pairs: the error of a paired
    difference is far below that of either mean."""
    from keepscore import load

    work, model = folder / ".work" / CASE, large_model(plan.nodes)
    losses = {name: _pair_losses(load(work / name), model, plan, work) for name in TRAININGS}
    return {
        name: {
            metric: mean(found[:, k] - losses["joint"][:, k]).to_dict()
            for k, metric in enumerate(METRICS[:3])
        }
        for name, found in losses.items()
        if name != "joint"
    }


def _losses(surrogate: Any, model: SIS, plan: LargePlan, work: Path) -> dict[str, Any]:
    found = _pair_losses(surrogate, model, plan, work)
    return {name: mean(found[:, k]).to_dict() for k, name in enumerate(METRICS[:3])}


def _pair_losses(surrogate: Any, model: SIS, plan: LargePlan, work: Path) -> NDArray[np.float64]:
    """BCE of each fresh x with its own theta and another's, and the squared differences from the
    joint score of its path: (pairs, 3)."""
    fresh = simulate(
        model, plan.pairs, seed=TEST_SEED, purpose="test", path=work / "scored", jobs=1
    )
    theta, x, joint = fresh.rows(np.arange(len(fresh)))
    own = surrogate.log_ratio(theta, x)
    other = surrogate.log_ratio(np.roll(theta, 1, axis=0), x)
    bce = pair_losses(own, other)
    error = (surrogate.score(theta, x) - joint) ** 2
    return np.column_stack([bce, error])


def _inference(surrogate: Any, model: SIS, plan: LargePlan) -> dict[str, Any]:
    """Coverage, volumes and estimation error on fresh groups over a grid of the test box."""
    calibration = calibrate(
        surrogate,
        model,
        group_size=plan.size,
        n=plan.calibration,
        level=LEVEL,
        seed=TEST_SEED,
        intervals=False,
    )
    grid = model.space.grid(plan.points, "test")
    covered = local_coverage(
        surrogate, model, LEVEL, calibration, grid, plan.groups, plan.size, seed=TEST_SEED
    )
    found = {}
    for method in ("wilks", "calibrated"):
        found[f"coverage, {method}"] = Estimate(*covered.overall(method))
        lowest = int(np.argmin(covered.coverage(method)))
        found[f"lowest coverage, {method}"] = Estimate(
            float(covered.coverage(method)[lowest]),
            float(covered.standard_error(method)[lowest]),
        )
    found |= _sets(surrogate, model, plan, calibration)
    return {name: value.to_dict() for name, value in found.items()}


def _sets(
    surrogate: Any, model: SIS, plan: LargePlan, calibration: Calibration
) -> dict[str, Estimate]:
    """Volumes of both kinds of set, and the error of the estimates, on a quarter of the groups."""
    grid, groups = model.space.grid(plan.points, "test"), max(2, plan.groups // 4)
    truth = np.repeat(grid, groups, axis=0)
    rng = np.random.default_rng([TEST_SEED, 0x5E75])
    x = model.simulate(np.repeat(truth, plan.size, axis=0), rng)
    like = surrogate.given(x.reshape(len(truth), plan.size, *model.x_shape))
    with warnings.catch_warnings():
        # Hundreds of sets: some reach the boundary of the box, which is no news here.
        warnings.filterwarnings("ignore", category=KeepscoreWarning)
        wilks = confidence_set(like, LEVEL)
        calibrated = confidence_set(like, LEVEL, method="calibrated", calibration=calibration)
        volumes = {"wilks": wilks.volume, "calibrated": calibrated.volume}
    found = {
        f"volume, {method}": stratified_mean(np.asarray(v).reshape(len(grid), groups))
        for method, v in volumes.items()
    }
    error = np.asarray(wilks.maximum.theta) - truth
    for k, name in enumerate(model.space.names):
        found[f"MLE error[{name}]"] = root_mean_square(error[:, k])
    return found


def _data(model: SIS, n: int, seed: int, purpose: str, work: Path) -> Dataset:
    # One process: these are seconds of work, to be compared with other seconds of one process.
    return simulate(model, n, seed=seed, purpose=purpose, path=work / f"{purpose}-n{n}", jobs=1)


def _simulation_rate(model: SIS, rows: int = 500) -> float:
    """Paths with joint scores a second of one processor."""
    rng = np.random.default_rng(TEST_SEED)
    theta = model.space.uniform(rows, rng, "train")
    model.simulate_with_score(theta[:1], rng)  # compiled
    start = time.process_time()
    model.simulate_with_score(theta, rng)
    return rows / (time.process_time() - start)


def _epochs(plan: LargePlan) -> dict[str, Any]:
    return {} if plan.epochs is None else {"min_epochs": plan.epochs, "max_epochs": plan.epochs}


def _make_work(folder: Path) -> None:
    """The working folder; version control ignores it."""
    ignore = make_folder(folder / ".work") / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
