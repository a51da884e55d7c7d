"""One cell: train, test, write its JSON. What it needs it finds or makes; where it was killed it
goes on, and ends with the same numbers (the times alone differ)."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from keepscore import etest, ltest
from keepscore.data import environment
from keepscore.evaluation import stratified_mean
from reproduction.cases import OURS, Cell, SweepPlan
from reproduction.course import course, epochs_of
from reproduction.examples import example_data
from reproduction.inputs import Workspace, example_group, example_surface
from reproduction.results import EXACT, FORMAT, Result, write_record, write_result

MONITORED = 20_000  # test pairs whose BCE is followed through a training


def run_cell(cell: Cell, plan: SweepPlan, path: Path) -> Result:
    """Train and test one cell; its result is on disk when this returns."""
    from keepscore import ASA, BCE, TrainConfig, train

    ours = cell.network == OURS
    scores = ASA() if ours else ASA.paper()
    if ours:
        config = TrainConfig(seed=cell.seed, **plan.training)
    else:
        config = TrainConfig.paper(cell.case, seed=cell.seed, **plan.training)
    workspace = Workspace(path, cell.case)
    workspace.make()
    model, pairs = workspace.model(), workspace.ltest(plan)
    clock = _Clock()
    surrogate = train(
        workspace.data(cell, plan, "train"),
        workspace.data(cell, plan, "validation"),
        network="auto" if ours else cell.network,
        loss=scores if cell.loss == "asa" else BCE(),
        config=config,
        path=workspace.checkpoints(cell),
        monitor=pairs.data.take(min(MONITORED, len(pairs.data))),
    )
    clock.lap("train")
    losses = ltest(surrogate, model, test_set=pairs)
    clock.lap("ltest")
    inference = etest(surrogate, model, test_set=workspace.etest(plan))
    clock.lap("etest")
    sizes = plan.evaluation
    group = surrogate.given(example_group(cell.case, sizes.size))
    content = {
        "settings": plan.settings(),
        "training": training_summary(surrogate.history),
        "ltest": losses.to_dict(),
        "etest": inference.to_dict(),
        "surface": example_surface(cell.case, group, sizes.surface),
        "seconds": clock.laps,
        "environment": _environment(surrogate.history),
    }
    return write_result(path, cell, content)


def write_exact(case: str, plan: SweepPlan, path: Path) -> None:
    """What the exact likelihood says of the test groups and the example: one file per case."""
    workspace = Workspace(path, case)
    workspace.make()
    clock = _Clock()
    tests = workspace.etest(plan)
    clock.lap("etest")
    workspace.ltest(plan)
    clock.lap("ltest")
    exact, model, sizes = tests.exact, workspace.model(), plan.evaluation
    group = model.given(example_group(case, sizes.size))
    write_record(
        path / case / EXACT,
        {
            "format": FORMAT,
            "case": case,
            "settings": plan.settings(),
            "names": list(model.space.working_names),
            "coverage": stratified_mean(exact.covered.astype(float)).to_dict(),
            "volume": stratified_mean(exact.volume).to_dict(),
            "sets_cut": exact.cut,
            "by_theta": {
                "theta": np.round(tests.theta, 6).tolist(),
                "coverage": np.round(exact.covered.mean(axis=1), 4).tolist(),
                "volume": np.round(exact.volume.mean(axis=1), 6).tolist(),
            },
            "null": np.round(np.sort(exact.statistic, axis=None), 3).tolist(),
            "surface": example_surface(case, group, sizes.surface),
            "examples": example_data(case),
            "seconds": clock.laps,
            "environment": _environment(()),
        },
    )


def training_summary(history: Any) -> dict[str, Any]:
    """The course of a run and its times: all seconds of training, without validation and loading.
    The curve is the BCE of the same test pairs after each epoch."""
    found, epochs = course(history), epochs_of(history)
    best = found["best_epoch"]
    seconds = np.cumsum([r["seconds"] for r in epochs])
    return {
        **found,
        "seconds_total": float(seconds[-1]),
        "seconds_to_best": float(seconds[best - 1]),
        "best_validation_bce": min(r["validation_bce"] for r in epochs),
        "curve": {
            "of": "test",
            "seconds": np.round(seconds, 3).tolist(),
            "bce": [round(float(r["monitor_bce"]), 6) for r in epochs],
            "best": best - 1,
        },
    }


class _Clock:
    """Seconds of each part."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.last = round(now - self.last, 3), now


def _environment(history: Any) -> dict[str, Any]:
    versions = [r["versions"] for r in history if r["event"] == "start"]
    machine = {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}
    return {**environment(), **(versions[0] if versions else {}), **machine}
