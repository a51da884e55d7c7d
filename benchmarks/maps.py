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
from typing import Any

import numpy as np

import keepscore as ks
from benchmarks import machine
from keepscore.errors import KeepscoreWarning
from keepscore.files import make_folder, read_json, write_json

N, FRESH, LEVEL = 5_000, 300, 0.95
RESULTS = machine.ROOT / "benchmarks" / "results" / "maps"
Theta, X, Rng = np.ndarray, np.ndarray, np.random.Generator


def _positive(name: str, low: float, high: float) -> ks.Parameter:
    return ks.Parameter(name, np.log(low), np.log(high), "log")


def clusters() -> Any:
    side, frame = 16, 3.0
    space = ks.Space(
        [
            _positive("parents", 0.02, 0.2),
            _positive("offspring", 2, 20),
            _positive("spread", 0.3, 2),
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
    space = ks.Space(
        [_positive("mean", 0.5, 5), _positive("sd", 0.3, 1.5), _positive("range", 1, 6)]
    )

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
    space = ks.Space([_positive("reach", 0.7, 4), _positive("shape", 0.5, 3)])

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
    space = ks.Space([_positive("infection", 0.1, 1), _positive("recovery", 0.05, 0.5)])

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
            _positive("sd", 0.5, 2),
        ]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        east, north, sd = theta.T[:, :, None, None]
        noise = np.exp(sd) * rng.standard_normal((len(theta), side, side))
        return east * across[:, None] + north * across + noise

    return ks.models.from_functions(space, (side, side), simulate=simulate, name="gradient")


MODELS: dict[str, Callable[[], Any]] = {
    make.__name__: make for make in (clusters, intensity, spins, storms, outbreak, gradient)
}


def _judged(surrogate: Any, theta: Theta, x: X) -> dict[str, Any]:
    """Errors of estimates, and coverage, each map a data set of its own."""
    like = surrogate.given(x[:, None])
    found = ks.mle(like).estimate
    test = ks.lrt(like, theta)
    return {
        "rmse": np.sqrt(np.mean((found - theta) ** 2, axis=0)).tolist(),
        "coverage": float(np.mean(np.asarray(test.p_value) > 1 - LEVEL)),
    }


def one(name: str, n: int, fresh: int) -> dict[str, Any]:
    """Simulate, train both, judge both."""
    model = MODELS[name]()
    data = ks.simulate(model, n, seed=1, jobs=1)
    rng = np.random.default_rng(99)
    low, high = model.space.lower, model.space.upper
    theta = rng.uniform(low, high, (fresh, len(low)))
    x = model.simulate(theta, rng)
    record: dict[str, Any] = {"model": name, "names": list(model.space.names)}
    record["sd"] = theta.std(axis=0).tolist()
    for key, compare in (("all places", False), ("auto", True)):
        begin = time.perf_counter()
        config = ks.TrainConfig(compare=compare)
        surrogate = ks.train(data, loss=ks.BCE(), config=config, progress=False)
        record[key] = {"seconds": time.perf_counter() - begin, **_judged(surrogate, theta, x)}
    record["kept"] = surrogate.provenance.get("kept")
    record["candidates"] = surrogate.provenance.get("candidates")
    return record


def run(quick: bool = False) -> dict[str, Any]:
    """All models that are not there yet; one of them, small, if quick."""
    if quick:
        return {"gradient": _quietly("gradient", 200, 20)}
    records = {}
    for name in MODELS:
        file = make_folder(RESULTS) / f"{name}.json"
        if not file.exists():
            write_json(file, _quietly(name, N, FRESH))
        records[name] = read_json(file)
        print(name, records[name]["kept"], flush=True)
    return records


def _quietly(name: str, n: int, fresh: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)
        return one(name, n, fresh)


def table(result: dict[str, Any]) -> str:
    """One row per model."""
    lines = [
        "| model | kept | errors of estimates: all places | auto | knowing nothing | coverage: all "
        "places | auto |",
        "|---|---|---|---|---|--:|--:|",
    ]
    for name, r in result.items():
        first, auto = r["all places"], r["auto"]
        errors = [
            ", ".join(f"{k} {v:.2f}" for k, v in zip(r["names"], first["rmse"], strict=True)),
            *(", ".join(f"{v:.2f}" for v in values) for values in (auto["rmse"], r["sd"])),
        ]
        kept = r["kept"] or "first"
        lines.append(
            f"| {name} | `{kept}` | {' | '.join(errors)} | {first['coverage']:.3f} | "
            f"{auto['coverage']:.3f} |"
        )
    return "\n".join(lines)
