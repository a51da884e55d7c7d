"""One cell: a task, a number of simulations, a method and a seed; trained once, ten observations.

    asa     one surrogate for all observations, trained with exact scores, all by default
    bce     the same without scores
    rounds  one surrogate per observation, `ks.focus` with four rounds and exact scores

Simulations are what `ks.simulate(model, n)` makes of the task's prior, the surrogate is what
`ks.train(data)` gives, and its posterior is drawn by particles (`keepscore.inference.smc`). Each
observation's C2ST against 10,000 reference draws is written as soon as it is known; a cell that was
stopped goes on at the next observation. It trains again then, with the same seed; on another kind
of machine rounding may decide for another network, and then all observations are run again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import keepscore as ks
from benchmarks import machine
from benchmarks.sbibm.c2st import c2st
from benchmarks.sbibm.tasks import TASKS, Task
from keepscore.data import Dataset
from keepscore.files import make_folder, read_json, write_json
from keepscore.inference.smc import smc
from keepscore.surrogate import Surrogate

METHODS = ("asa", "bce", "rounds")
DRAWS, ROUNDS = 10_000, 4


def dataset(task: Task, n: int, seed: int) -> Dataset:
    """n simulations with theta from the prior, and their exact scores."""
    return ks.simulate(task.model, n, seed=seed, jobs=1)


def train(task: Task, n: int, method: str, seed: int) -> Surrogate:
    """The surrogate of a cell."""
    loss = ks.BCE() if method == "bce" else None
    return ks.train(dataset(task, n, seed), loss=loss, config=ks.TrainConfig(seed=seed))


def focused(task: Task, n: int, number: int, seed: int) -> Surrogate:
    """The surrogate of one observation, from n simulations in four rounds."""
    observed = task.observation(number)[None]
    config = ks.TrainConfig(seed=seed)
    return ks.focus(task.model, observed, n, ROUNDS, seed=seed, config=config, jobs=1)


def draw(task: Task, surrogate: Surrogate, number: int, seed: int) -> np.ndarray:
    """10,000 draws of the surrogate's posterior in raw parameters."""
    rng = np.random.default_rng([seed, number])
    like = surrogate.given(task.observation(number)[None])
    space = surrogate.space  # that of the task, or what rounds have left of it
    prior = space.unnormalised_log_prior if space.has_prior else None
    found = smc(like, np.zeros(1, int), space.draw(DRAWS, rng)[None], prior, rng)
    return space.to_raw(found.theta[0])


def run(
    name: str, n: int, method: str, seed: int, folder: Path, observations: tuple[int, ...]
) -> dict[str, Any]:
    """The cell's record, from its file where it is complete."""
    file = make_folder(folder) / f"{name}-{method}-n{n}-s{seed}.json"
    record: dict[str, Any] = {
        "task": name, "n": n, "method": method, "seed": seed, "c2st": {}, "seconds": {},
    }  # fmt: skip
    if file.exists():
        record = read_json(file)
    left = [k for k in observations if str(k) not in record["c2st"]]
    if not left:
        return record
    task, start = TASKS[name](), time.perf_counter()
    surrogate = None
    if method != "rounds":
        surrogate = train(task, n, method, seed)
        network = type(surrogate.network.network).__name__
        if record.get("network", network) != network:  # rounding of another machine decided
            print(name, method, n, seed, "keeps another network now: all observations again")
            record, left = {**record, "c2st": {}, "seconds": {}}, list(observations)
        record["seconds"]["train"] = time.perf_counter() - start
        record["network"] = network
    record["machine"] = machine.describe()
    for number in left:
        start = time.perf_counter()
        ours = draw(task, surrogate or focused(task, n, number, seed), number, seed)
        record["seconds"][f"draw {number}"] = time.perf_counter() - start
        record["c2st"][str(number)] = c2st(task.posterior(number), ours)
        write_json(file, record)
        print(name, method, n, seed, number, f"{record['c2st'][str(number)]:.3f}", flush=True)
    return record
