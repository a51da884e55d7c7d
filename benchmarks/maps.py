"""Maps without a likelihood: what the map network brings, and what is kept where places differ.

    python -m benchmarks maps [--quick]

Six simulators, 5,000 maps each, no scores. "all places" is the network that `ks.train` takes first
(`compare=False`), "auto" what it keeps after trying others. Both are judged on 300 fresh maps, one
by one: root mean squared error of maximum-likelihood estimates in working units beside the standard
deviation of the true ones (what knowing nothing would give), and the share of 95% Wilks sets
that hold the truth. One small file per model in results/maps; a finished one is not run again.

    clusters   trees in 16 x 16 squares: parents, offspring around them (Thomas process); chosen on
               this one
    intensity  counts in 16 x 16 squares, log-intensity a Gaussian field (log-Gaussian Cox process)
    spins      20 x 20 sites, present or absent, neighbours alike (Ising model, 80 Gibbs sweeps)
    storms     24 x 24 maxima of storms with heavy tails (moving maxima)
    outbreak   a control: an epidemic on 12 x 12 sites that starts in a corner; places differ
    gradient   a control: noise around a plane on 12 x 12 sites; places differ
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import keepscore as ks
from benchmarks import machine
from keepscore.errors import KeepscoreWarning
from keepscore.files import make_folder, read_json, write_json

N, FRESH, LEVEL = 5_000, 300, 0.95
RESULTS = machine.ROOT / "benchmarks" / "results" / "maps"
FIRST = "all places"  # the first choice of "auto" in words
Theta, X, Rng = np.ndarray, np.ndarray, np.random.Generator
Estimate = Callable[[Any, X], Theta]  # surrogate, data sets of one x each -> one theta each
Makers = dict[str, Callable[[], Any]]


def positive(name: str, low: float, high: float) -> ks.Parameter:
    """A parameter that works by its logarithm."""
    return ks.Parameter(name, np.log(low), np.log(high), "log")


def clusters() -> Any:
    side, frame = 16, 3.0
    space = ks.Space(
        [
            positive("parents", 0.02, 0.2),
            positive("offspring", 2, 20),
            positive("spread", 0.3, 2),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        density, mean, sd = np.exp(theta)
        parents = rng.poisson(density * (side + 2 * frame) ** 2)
        places = rng.uniform(-frame, side + frame, (parents, 2))
        trees = np.repeat(places, rng.poisson(mean, parents), axis=0)
        trees = trees + sd * rng.standard_normal(trees.shape)
        box = [[0, side], [0, side]]
        return np.histogram2d(trees[:, 0], trees[:, 1], bins=side, range=box)[0]

    return ks.models.from_functions(
        space, (side, side), simulate=simulate, vectorized=False, name="clusters"
    )


def intensity() -> Any:
    side = 16
    sites = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    apart = np.linalg.norm(sites[:, None] - sites, axis=-1)
    space = ks.Space([positive("mean", 0.5, 5), positive("sd", 0.3, 1.5), positive("range", 1, 6)])

    def simulate(theta: Theta, rng: Rng) -> X:
        mean, sd, reach = np.exp(theta)
        root = np.linalg.cholesky(np.exp(-apart / reach) + 1e-8 * np.eye(side**2))
        field = sd * (root @ rng.standard_normal(side**2))
        return rng.poisson(mean * np.exp(field - sd**2 / 2)).reshape(side, side)

    return ks.models.from_functions(
        space, (side, side), simulate=simulate, vectorized=False, name="intensity"
    )


def spins() -> Any:
    side, sweeps = 20, 80
    space = ks.Space(
        [
            ks.Parameter("coupling", 0.0, 0.42, "identity"),
            ks.Parameter("field", -0.3, 0.3, "identity"),
        ]
    )
    colour = np.add.outer(np.arange(side), np.arange(side)) % 2

    def simulate(theta: Theta, rng: Rng) -> X:
        coupling, field = theta[:, 0, None, None], theta[:, 1, None, None]
        x = np.where(rng.random((len(theta), side, side)) < 0.5, 1, -1)
        for _ in range(sweeps):
            for own in (0, 1):
                near = sum(np.roll(x, by, axis) for by in (1, -1) for axis in (1, 2))
                up = rng.random(x.shape) < 1 / (1 + np.exp(-2 * (coupling * near + field)))
                x = np.where(colour == own, np.where(up, 1, -1), x)
        return (x + 1) // 2

    return ks.models.from_functions(space, (side, side), simulate=simulate, name="spins")


def storms() -> Any:
    side, frame = 24, 6
    space = ks.Space([positive("reach", 0.7, 4), positive("shape", 0.5, 3)])

    def simulate(theta: Theta, rng: Rng) -> X:
        reach, shape = np.exp(theta)
        strength = -1 / np.log(rng.random((side + 2 * frame, side + 2 * frame)))
        x = np.zeros((side, side))
        for i in range(2 * frame + 1):
            for j in range(2 * frame + 1):
                left = np.exp(-((np.hypot(i - frame, j - frame) / reach) ** shape))
                x = np.maximum(x, left * strength[i : i + side, j : j + side])
        return x

    return ks.models.from_functions(
        space, (side, side), simulate=simulate, vectorized=False, name="storms"
    )


def outbreak() -> Any:
    side, times = 12, 12
    space = ks.Space([positive("infection", 0.1, 1), positive("recovery", 0.05, 0.5)])

    def simulate(theta: Theta, rng: Rng) -> X:
        infection, recovery = np.exp(theta)[:, :, None, None].swapaxes(0, 1)
        well = np.ones((len(theta), side, side))
        well[:, 0, 0] = 0
        ill = 1 - well
        for _ in range(times):
            around = np.pad(ill, ((0, 0), (1, 1), (1, 1)))
            near = around[:, 2:, 1:-1] + around[:, :-2, 1:-1]
            near = near + around[:, 1:-1, 2:] + around[:, 1:-1, :-2]
            caught = well * (rng.random(well.shape) < 1 - np.exp(-infection * near))
            healed = ill * (rng.random(well.shape) < 1 - np.exp(-recovery))
            well, ill = well - caught, ill + caught - healed
        return (ill + 2 * (1 - well - ill)).astype(int)

    return ks.models.from_functions(space, (side, side), simulate=simulate, name="outbreak")


def gradient() -> Any:
    side = 12
    across = np.linspace(-1, 1, side)
    space = ks.Space(
        [
            ks.Parameter("east", -1.0, 1.0, "identity"),
            ks.Parameter("north", -1.0, 1.0, "identity"),
            positive("sd", 0.5, 2),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        east, north, sd = theta.T[:, :, None, None]
        noise = np.exp(sd) * rng.standard_normal((len(theta), side, side))
        return east * across[:, None] + north * across + noise

    return ks.models.from_functions(space, (side, side), simulate=simulate, name="gradient")


MODELS: Makers = {
    make.__name__: make for make in (clusters, intensity, spins, storms, outbreak, gradient)
}


def maxima(surrogate: Any, x: X) -> Theta:
    """Maximum-likelihood estimates, each x a data set of its own."""
    return ks.mle(surrogate.given(x[:, None])).estimate


def judged(surrogate: Any, theta: Theta, x: X, estimate: Estimate) -> dict[str, Any]:
    """Errors of estimates, and coverage, each x a data set of its own."""
    test = ks.lrt(surrogate.given(x[:, None]), theta)
    error = estimate(surrogate, x) - theta
    return {
        "rmse": np.sqrt(np.mean(error**2, axis=0)).tolist(),
        "coverage": float(np.mean(np.asarray(test.p_value) > 1 - LEVEL)),
    }


def one(model: Any, n: int, fresh: int, first: str, estimate: Estimate) -> dict[str, Any]:
    """Simulate, train both, judge both. `first`: what the first choice of "auto" is called."""
    data = ks.simulate(model, n, seed=1, jobs=1)
    rng = np.random.default_rng(99)
    low, high = model.space.lower, model.space.upper
    theta = rng.uniform(low, high, (fresh, len(low)))
    x = model.simulate(theta, rng)
    record: dict[str, Any] = {"model": model.name, "names": list(model.space.names)}
    record["sd"] = theta.std(axis=0).tolist()
    for key, compare in ((first, False), ("auto", True)):
        begin = time.perf_counter()
        config = ks.TrainConfig(compare=compare)
        surrogate = ks.train(data, loss=ks.BCE(), config=config, progress=False)
        seconds = time.perf_counter() - begin
        record[key] = {"seconds": seconds, **judged(surrogate, theta, x, estimate)}
    record["kept"] = surrogate.provenance.get("kept")
    record["candidates"] = surrogate.provenance.get("candidates")
    return record


def run(quick: bool = False) -> dict[str, Any]:
    """All models that are not there yet; one of them, small, if quick."""
    if quick:
        return {"gradient": quietly(gradient(), 200, 20, FIRST, maxima)}
    return every(MODELS, RESULTS, FIRST, maxima)


def every(models: Makers, folder: Path, first: str, estimate: Estimate) -> dict[str, Any]:
    """The records of all these models, computed or found."""
    records = {}
    for name, make in models.items():
        file = make_folder(folder) / f"{name}.json"
        if not file.exists():
            write_json(file, quietly(make(), N, FRESH, first, estimate))
        records[name] = read_json(file)
        print(name, records[name]["kept"], flush=True)
    return records


def quietly(model: Any, n: int, fresh: int, first: str, estimate: Estimate) -> dict[str, Any]:
    """`one`, without warnings of poor surrogates: here they are the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)
        return one(model, n, fresh, first, estimate)


def table(result: dict[str, Any], first: str = FIRST) -> str:
    """One row per model."""
    lines = [
        f"| model | kept | errors of estimates: {first} | auto | knowing nothing | coverage: "
        f"{first} | auto |",
        "|---|---|---|---|---|--:|--:|",
    ]
    for name, r in result.items():
        alone, auto = r[first], r["auto"]
        errors = [
            ", ".join(f"{k} {v:.2f}" for k, v in zip(r["names"], alone["rmse"], strict=True)),
            *(", ".join(f"{v:.2f}" for v in values) for values in (auto["rmse"], r["sd"])),
        ]
        kept = r["kept"] or "first"
        lines.append(
            f"| {name} | `{kept}` | {' | '.join(errors)} | {alone['coverage']:.3f} | "
            f"{auto['coverage']:.3f} |"
        )
    return "\n".join(lines)
