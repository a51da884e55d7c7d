"""`ks.check_data`: how often it accuses the right model, and how often it sees a wrong one.

    python -m benchmarks data-check [--quick]

Level .05, 99 simulated groups per check, exact likelihoods. Each cell is one small file in
results/data_check, and a finished one is not run again; a cell that was interrupted goes on after
the last 50 data sets.

false alarms   500 data sets of the right model, theta uniform over the inner half of the box. The
               share of p < .05 is at most .05 in theory (a little less, since theta is fitted to
               the same data); more than .05 + 3 sqrt(.05 .95 / 500) = .079 is a fault.

    iid          20 normal numbers, mean and sd unknown
    field        four Gaussian fields on a 9 x 9 grid, d = 3
    SIS          ten epidemics among six people on a ring, 13 times

power          100 data sets of each planted misfit; the size of the misfit stands beside it.

    trend        a slope along the second axis of the fields, from -a to a at the ends
    kernel       fields with the Matern 5/2 kernel, checked as exponential ones
    tails        each field with a scale of its own, x sqrt((nu - 2) / chi2_nu): a Student-t field
    rate         epidemics whose infection rate is multiplied half way
    graph        epidemics among everybody, checked as epidemics on a ring
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import keepscore as ks
from benchmarks import machine
from keepscore.files import make_folder, read_json, write_json

LEVEL, DRAWS = 0.05, 99
RIGHT, WRONG = 500, 100  # data sets per cell
AT_ONCE = 50
NODES, TIMES = 6, tuple(range(13))
FIELD_SHAPE, FIELDS, EPIDEMICS, NUMBERS = (9, 9), 4, 10, 20
RESULTS = machine.ROOT / "benchmarks" / "results"
Data = Callable[[np.random.Generator], NDArray[Any]]


@dataclass(frozen=True)
class Cell:
    """What is checked against which model, and what is wrong with it in words."""

    model: Any
    data: Data
    misfit: str = "none"


def ring(nodes: int = NODES) -> NDArray[np.float64]:
    """Everybody has two neighbours."""
    step = np.eye(nodes, k=1) + np.eye(nodes, k=1 - nodes)
    return step + step.T


def everybody(nodes: int = NODES) -> NDArray[np.float64]:
    """The complete graph, weighted so that a person has as many contacts as on the ring."""
    return (np.ones((nodes, nodes)) - np.eye(nodes)) * 2 / (nodes - 1)


def numbers() -> Any:
    """Normal numbers, in NumPy with the score written out."""
    space = ks.Space([ks.Parameter("mean", -3, 3, "identity"), ks.Parameter("sd", -1, 1, "log")])

    def simulate(theta: Any, rng: np.random.Generator) -> Any:
        return theta[:, :1] + np.exp(theta[:, 1:]) * rng.standard_normal((len(theta), 1))

    def log_prob(theta: Any, x: Any) -> Any:
        z = (x - theta[:, :1]) / np.exp(theta[:, 1:])
        return -0.5 * (z**2).sum(1) - theta[:, 1]

    def score(theta: Any, x: Any) -> Any:
        z = (x - theta[:, :1]) / np.exp(theta[:, 1:])
        return np.stack([z[:, 0] / np.exp(theta[:, 1]), (z**2).sum(1) - 1], axis=1)

    return ks.models.from_functions(
        space, (1,), simulate=simulate, log_prob=log_prob, score=score, name="normal"
    )


def field(kernel: str = "exponential") -> Any:
    return ks.models.GaussianField(shape=FIELD_SHAPE, kernel=kernel)


def epidemic(weights: NDArray[np.float64], times: tuple[int, ...] = TIMES, **more: Any) -> Any:
    return ks.models.SIS(weights=weights, times=times, **more)


def theta_of(model: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    """(1, d), uniform over the inner half of the box."""
    low, high = model.space.box()
    return (low + high) / 2 + (high - low) / 4 * rng.uniform(-1, 1, (1, len(low)))


def from_model(model: Any, n: int) -> Data:
    """n observations at one theta."""
    return lambda rng: model.simulate(np.repeat(theta_of(model, rng), n, axis=0), rng)


def with_trend(height: float) -> Data:
    draw, slope = from_model(field(), FIELDS), np.linspace(-height, height, FIELD_SHAPE[1])
    return lambda rng: draw(rng) + slope


def with_tails(nu: float) -> Data:
    draw = from_model(field(), FIELDS)

    def data(rng: np.random.Generator) -> NDArray[Any]:
        scale = np.sqrt((nu - 2) / rng.chisquare(nu, (FIELDS, 1, 1)))
        return np.asarray(draw(rng) * scale)

    return data


@lru_cache(maxsize=2**NODES)
def second_half(state: tuple[int, ...]) -> Any:
    """The epidemic that begins in this state, over the later times."""
    return epidemic(ring(), TIMES[len(TIMES) // 2 :], initial=np.array(state, dtype=float))


def with_changing_rate(factor: float) -> Data:
    """Rates for the first half, an infection rate times `factor` from there on, state by state."""
    whole = epidemic(ring())
    first = epidemic(ring(), TIMES[: len(TIMES) // 2 + 1])

    def data(rng: np.random.Generator) -> NDArray[Any]:
        theta = theta_of(whole, rng)
        early = first.simulate(np.repeat(theta, EPIDEMICS, axis=0), rng)
        later = theta + np.array([[math.log(factor), 0.0]])
        parts = []
        for x in early:
            more = second_half(tuple(int(v) for v in x[-1])).simulate(later, rng)[0]
            parts.append(np.concatenate([x, more[1:]]))
        return np.stack(parts)

    return data


def cells() -> dict[str, Callable[[], Cell]]:
    """Every cell by name; built when its turn comes."""
    crowd = epidemic(everybody())
    return {
        "right-iid": lambda: Cell(numbers(), from_model(numbers(), NUMBERS)),
        "right-field": lambda: Cell(field(), from_model(field(), FIELDS)),
        "right-sis": lambda: Cell(epidemic(ring()), from_model(epidemic(ring()), EPIDEMICS)),
        "trend": lambda: Cell(field(), with_trend(1.5), "slope from -1.5 to 1.5"),
        "kernel": lambda: Cell(
            field(), from_model(field("matern52"), FIELDS), "Matern 5/2, not exponential"
        ),
        "tails": lambda: Cell(field(), with_tails(4.0), "Student-t fields, 4 degrees of freedom"),
        "rate": lambda: Cell(epidemic(ring()), with_changing_rate(3.0), "tripled half way"),
        "graph": lambda: Cell(
            epidemic(ring()), from_model(crowd, EPIDEMICS), "everybody, not a ring"
        ),
    }


def p_values(cell: Cell, numbers: range) -> Iterator[dict[str, Any]]:
    """One check per number; the same number gives the same data set."""
    for k in numbers:
        xs = cell.data(np.random.default_rng([k, 0xDA7A5E7]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ks.KeepscoreWarning)
            found = ks.check_data(cell.model, xs, draws=DRAWS, level=LEVEL, seed=k)
        worst = max(found.summaries, key=lambda one: abs(one.z))
        yield {"p": found.p_value, "worst": worst.name}


def run(quick: bool = False, folder: Path | None = None) -> dict[str, Any]:
    """Every cell that is not there yet; plain data."""
    kept = make_folder((folder or RESULTS) / ("data_check_quick" if quick else "data_check"))
    results = {}
    for name, build in cells().items():
        wanted = 3 if quick else RIGHT if name.startswith("right") else WRONG
        path = kept / f"{name}.json"
        done = read_json(path) if path.exists() else {"rows": [], "seconds": 0.0}
        cell = build()
        while len(done["rows"]) < wanted:
            start = len(done["rows"])
            began = time.perf_counter()
            done["rows"] += p_values(cell, range(start, min(start + AT_ONCE, wanted)))
            done["seconds"] += round(time.perf_counter() - began, 1)
            write_json(path, done)
        results[name] = summary(done, cell.misfit)
    return results


def summary(done: dict[str, Any], misfit: str) -> dict[str, Any]:
    """Alarms at the level, with a binomial error, and the summary most often accused."""
    p = np.array([row["p"] for row in done["rows"]])
    alarms = p < LEVEL
    share = float(alarms.mean())
    accused = [row["worst"] for row, alarm in zip(done["rows"], alarms, strict=True) if alarm]
    return {
        "misfit": misfit,
        "data_sets": len(p),
        "alarms": int(alarms.sum()),
        "share": share,
        "standard_error": math.sqrt(max(share * (1 - share), LEVEL * (1 - LEVEL)) / len(p)),
        "accused": max(set(accused), key=accused.count) if accused else None,
        "seconds": done["seconds"],
    }


def table(result: dict[str, Any]) -> str:
    """The same for a reader."""
    lines = [
        f"| cell | misfit | data sets | p < {LEVEL:g} | most often accused |",
        "|---|---|---:|---:|---|",
    ]
    for name, row in result.items():
        lines.append(
            f"| {name} | {row['misfit']} | {row['data_sets']} | {row['share']:.3f} ± "
            f"{row['standard_error']:.3f} | {row['accused'] or '-'} |"
        )
    return "\n".join(lines)
