"""Do scores pay on this model? A pilot: small runs with and without them, and what they cost.

Networks are trained with L_BCE on n/4, n/2 and n simulations and with L_ASA on n/4, a few seeds
each. How many BCE simulations match ASA at n/4 is the equivalence factor f (see equivalence.py), by
the error of log-likelihood differences where the model has a likelihood, by test BCE otherwise.
With c seconds for a simulation, s for its score, b for a step, E(N) epochs and batches of size B,

    T_BCE(N) = N c + E(N) (N / B) b_BCE,        T_ASA(N) = N (c + s) + E(N) (N / B) b_ASA

and within a budget T each loss affords the largest N with T(N) <= T. Scores pay if f N_ASA > N_BCE.
The factor is taken to be the same at the larger N; it is a pilot's, and its interval says how much.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from keepscore.budget import Say
from keepscore.checks import as_number, require_count
from keepscore.data import Dataset, simulate
from keepscore.errors import DomainError, MissingError
from keepscore.evaluation.equivalence import Equivalence, equivalence
from keepscore.evaluation.ltest import LTestSet, ltest, ltest_set
from keepscore.evaluation.metrics import label_of
from keepscore.losses import ASA, BCE
from keepscore.models.base import Model
from keepscore.training import TrainConfig, train
from keepscore.training.train import NetworkChoice

LARGEST = 10_000_000
TIMING_SECONDS = 0.5
HELD_OUT = 0.1


@dataclass(frozen=True)
class Costs:
    """Seconds: of a simulation, of its score on top (one process), of a training step."""

    simulation: float
    score: float
    step_bce: float
    step_asa: float


@dataclass(frozen=True)
class Affordable:
    """What a loss affords within the budget, and how many BCE simulations that is worth."""

    loss: str
    n: int
    worth: float
    seconds: float


@dataclass(frozen=True)
class Pilot:
    """What a pilot found. metric: "rmse_far" or "bce"; curve: loss -> N -> one value per seed."""

    model: str
    network: str
    metric: str
    curve: Mapping[str, Mapping[int, tuple[float, ...]]]
    found: Equivalence
    costs: Costs
    budget: float
    plans: tuple[Affordable, ...]
    seconds: float

    @property
    def recommended(self) -> Affordable:
        """The plan worth most."""
        return max(self.plans, key=lambda plan: plan.worth)

    @property
    def recommendation(self) -> str:
        """N, loss, network and expected time, in one sentence."""
        best = self.recommended
        scores = best.loss == "ASA"
        call = f"ks.simulate(model, {best.n}{'' if scores else ', scores=False'})"
        bound = ""
        if scores and self.found.beyond is not None:
            bound = " or more" if self.found.beyond == "more" else " at most"
        return (
            f"Use {best.loss} with N = {best.n:,} ({call}) and network={self.network!r}: about "
            f"{best.seconds / 60:.0f} min, worth {best.worth:,.0f}{bound} without scores."
        )

    def __str__(self) -> str:
        c = self.costs
        lines = [
            f"{self.model}: is the score worth its cost? (pilot of {self.seconds:.0f} s)",
            f"  per simulation {1e3 * c.simulation:.3g} ms, its score {1e3 * c.score:.3g} ms more; "
            f"per step {1e3 * c.step_bce:.3g} ms (BCE), {1e3 * c.step_asa:.3g} ms (ASA)",
            f"  by {label_of(self.metric)}, ASA at N = {self.found.n:,} is worth {self.found}",
        ]
        for plan in self.plans:
            lines.append(
                f"  {self.budget / 60:.0f} min buy {plan.loss} N = {plan.n:>10,}"
                f"   worth {plan.worth:>12,.0f} without scores"
            )
        return "\n".join([*lines, f"  {self.recommendation}"])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        curve = {loss: {str(n): list(v) for n, v in of.items()} for loss, of in self.curve.items()}
        return {
            **asdict(self),
            "curve": curve,
            "found": self.found.to_dict(),
            "recommendation": self.recommendation,
        }


def worth(
    model: Model,
    n: int = 8_000,
    budget: float = 600.0,
    network: NetworkChoice = "auto",
    seeds: int = 2,
    seed: int = 0,
    config: TrainConfig | None = None,
    progress: Say = lambda text: None,
) -> Pilot:
    """Find out by small runs whether scores pay on a model, and what to do within a budget.

    Args:
        model: A model with a score, exact or joint.
        n: The largest number of simulations to train on; a quarter of it with scores.
        budget: Seconds of simulating and training that the advice is for.
        network: As for `ks.train`.
        seeds: Trainings per loss and size.
        seed: Root of all randomness.
        config: Training settings, as for `ks.train`.
        progress: Told each step in words.

    Returns:
        What was found: costs, the equivalence factor, what the budget buys, a recommendation.

    Raises:
        MissingError: The model has no score.
        DomainError: n or budget is too small.

    Example:
        >>> import keepscore as ks
        >>> found = ks.worth(ks.models.SIS(), budget=600)  # doctest: +SKIP
        >>> print(found.recommendation)  # doctest: +SKIP
        >>> space = ks.Space([ks.Parameter("mean", -2, 2, "identity")])
        >>> def simulate(theta, rng):
        ...     return theta + rng.standard_normal((len(theta), 3))
        >>> ks.worth(ks.models.from_functions(space, (3,), simulate=simulate, name="mine"))
        Traceback (most recent call last):
            ...
        keepscore.errors.MissingError: mine has no score, exact or joint: there is nothing to weigh.
    """
    n, seeds = require_count(n, "n", minimum=400), require_count(seeds, "seeds")
    budget, seed = as_number(budget, "budget"), require_count(seed, "seed", minimum=0)
    if not (math.isfinite(budget) and budget > 0):
        raise DomainError(f"budget must be a positive number of seconds; got {budget!r}.")
    if model.score_kind is None:
        raise MissingError(f"{model.name} has no score, exact or joint: there is nothing to weigh.")
    began = time.perf_counter()
    config = TrainConfig() if config is None else config
    progress("timing the simulator")
    simulation, score = simulation_costs(model, seed)
    progress(f"simulating {n:,}")
    data = simulate(model, n, seed=seed)
    tests = ltest_set(model, 4_000, seed + 1, exact=1_000, evidence=2, intervals=4)
    metric = "rmse_far" if tests.exact else "bce"
    runs = [("BCE", n // 4), ("BCE", n // 2), ("BCE", n), ("ASA", n // 4)]
    curve: dict[str, dict[int, tuple[float, ...]]] = {"BCE": {}, "ASA": {}}
    steps: dict[str, list[float]] = {"BCE": [], "ASA": []}
    for loss, size in runs:
        values = []
        for k in range(seeds):
            progress(f"{loss} on {size:,}, seed {k + 1} of {seeds}")
            value, step = _one(model, data.take(size), tests, loss, network, _seeded(config, k))
            values.append(value)
            steps[loss].append(step)
        curve[loss][size] = tuple(values)
    found = equivalence(
        curve["BCE"], n // 4, curve["ASA"][n // 4], scale="log" if tests.exact else "linear"
    )
    costs = Costs(simulation, score, *(float(np.median(steps[loss])) for loss in ("BCE", "ASA")))
    plans = tuple(_affordable(loss, costs, budget, config, found.factor) for loss in ("BCE", "ASA"))
    spent = time.perf_counter() - began
    label = network if isinstance(network, str) else getattr(network, "__name__", "your own")
    return Pilot(model.name, label, metric, curve, found, costs, budget, plans, spent)


def _seeded(config: TrainConfig, k: int) -> TrainConfig:
    return TrainConfig(**{**config.to_dict(), "seed": config.seed + k})


def _one(
    model: Model,
    data: Dataset,
    tests: LTestSet,
    loss: str,
    network: NetworkChoice,
    config: TrainConfig,
) -> tuple[float, float]:
    """The metric of one small run, and seconds per step."""
    how = ASA() if loss == "ASA" else BCE()
    trained = train(data, None, network, how, config, progress=False)
    result = ltest(trained, model, test_set=tests)
    value = result.bce.value if result.rmse_far is None else result.rmse_far.value
    epochs = [r["ms_per_step"] for r in trained.history if r["event"] == "epoch"]
    return value, 1e-3 * float(np.median(epochs[1:] or epochs))


def simulation_costs(model: Model, seed: int) -> tuple[float, float]:
    """Seconds of a simulation, and of its score on top (0 where the model has none)."""
    rng = np.random.default_rng([seed, 0x30B7])

    def seconds(call: Callable[..., Any]) -> float:
        count, spent, first = 4, 0.0, 0.0
        while spent < TIMING_SECONDS and first < 8 * TIMING_SECONDS:
            count *= 2
            theta = model.space.uniform(count, rng, "train")
            for _ in range(2):  # what is compiled is compiled anew for every shape
                begin = time.perf_counter()
                call(theta, rng)
                first, spent = spent, time.perf_counter() - begin
        return spent / count

    plain = seconds(model.simulate)
    if model.score_kind is None:
        return plain, 0.0
    return plain, max(0.0, seconds(model.simulate_with_score) - plain)


def _affordable(
    loss: str, costs: Costs, budget: float, config: TrainConfig, factor: float
) -> Affordable:
    """The largest N within the budget, by bisection: the time grows with N."""
    each = costs.simulation + (costs.score if loss == "ASA" else 0.0)
    step = costs.step_asa if loss == "ASA" else costs.step_bce

    def seconds(n: int) -> float:
        trained = n * (1 - HELD_OUT)
        return n * each + config.epochs_at_least(max(1, n)) * trained / config.batch_size * step

    low, high = 0, LARGEST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if seconds(middle) <= budget else (low, middle - 1)
    n = _round_down(low)
    return Affordable(loss, n, n * (factor if loss == "ASA" else 1.0), seconds(n))


def _round_down(n: int) -> int:
    """Two digits: a pilot knows no more."""
    if n < 100:
        return n
    unit = 10 ** (int(math.log10(n)) - 1)
    return n // unit * unit
