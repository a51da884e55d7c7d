"""Designs that change: one surrogate, data sets with times, sites or graphs of their own.

    python -m benchmarks designs [--quick]

For each kind, simulations with exact scores, each with a design of its own (10,000; sites 5,000),
and the default network ("auto"), trained as advised (sites: 25 epochs, a quarter of the updates
that are advised). Then, beside the exact likelihood, on designs that no simulation
had: the share of the variance of the scores that is explained, per parameter, and likelihood-ratio
statistics at the truth with the coverage of 95% sets, for groups of ten data sets (theta uniform
over the test region; every data set of a group has a design of its own).

    times      SIS, 13 visits, uniform over [0, 12]; asked there, at every whole time, and with 4 to
               13 visits near whole times
    sites      Gaussian fields at 15 to 40 uniform sites; asked there, and on jittered 6 x 6 grids
    graphs     SIS with 8 people on random graphs; asked on other ones, on the paper's, and on rings

Each cell is one small file in results/designs; what is there is not computed again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import keepscore as ks
from benchmarks import machine
from benchmarks.cloudy_fields import groups_summary
from keepscore.files import make_folder, read_json, write_json

SEED, GROUP, PAIRS = 0, 10, 1_000
ROWS = {"times": 10_000, "sites": 5_000, "graphs": 10_000}
EPOCHS = {"sites": 25}  # None: as advised
GROUPS = {"times": 100, "sites": 40, "graphs": 100}
AT_ONCE = 10
RESULTS = machine.ROOT / "benchmarks" / "results"


def every_whole_time(n: int, rng: np.random.Generator) -> Any:
    return np.tile(np.arange(13.0), (n, 1))


def times() -> tuple[Any, dict[str, Any]]:
    """The model of the training data, and those of the test data by name."""
    epidemic = ks.models.SIS()
    uniform = ks.models.with_times(epidemic)
    return uniform, {
        "uniform": uniform,
        "whole times": ks.models.with_times(epidemic, every_whole_time),
        "few visits": ks.models.with_times(epidemic, "jittered", visits=(4, 13)),
    }


def jittered_grid(n: int, rng: np.random.Generator) -> Any:
    """6 x 6 places, each somewhere in the middle of its cell, and no others."""
    one = -3.0 + np.arange(6) + 0.5
    grid = np.stack(np.meshgrid(one, one, indexing="ij"), axis=-1).reshape(36, 2)
    places = np.full((n, 40, 2), np.nan)
    places[:, :36] = grid + rng.uniform(-0.3, 0.3, (n, 36, 2))
    return places


def sites() -> tuple[Any, dict[str, Any]]:
    """The same for fields."""
    field = ks.models.GaussianField()
    uniform = ks.models.with_sites(field, sites=(15, 40))
    return uniform, {
        "uniform": uniform,
        "jittered grid": ks.models.with_sites(field, jittered_grid, sites=40),
    }


def random_graphs(n: int, rng: np.random.Generator) -> Any:
    """Half of all pairs of 8 people meet, with weights of mean .35."""
    meet = np.triu(rng.exponential(0.35, (n, 8, 8)) * (rng.random((n, 8, 8)) < 0.5), 1)
    return meet + meet.swapaxes(1, 2)


def rings(n: int, rng: np.random.Generator) -> Any:
    """Everybody meets two others, with weight .5."""
    ring = ks.models.edge_weights(8, [[k, (k + 1) % 8, 0.5] for k in range(8)])
    return np.tile(ring, (n, 1, 1))


def graphs() -> tuple[Any, dict[str, Any]]:
    """The same for graphs."""
    epidemic = ks.models.SIS()
    trained_on = ks.models.with_graphs(epidemic, random_graphs)
    return trained_on, {
        "random": trained_on,
        "the paper's": ks.models.with_graphs(epidemic, epidemic.weights[None]),
        "rings": ks.models.with_graphs(epidemic, rings),
    }


KINDS = {"times": times, "graphs": graphs, "sites": sites}


def trained(kind: str, model: Any, quick: bool) -> Any:
    """The surrogate; made once, resumed where it was interrupted."""
    folder = machine.ROOT / "runs" / "benchmarks" / f"designs_{kind}{'_quick' if quick else ''}"
    data = ks.simulate(model, 200 if quick else ROWS[kind], seed=SEED, path=folder / "train")
    epochs = 1 if quick else EPOCHS.get(kind)
    config = ks.TrainConfig(seed=SEED, min_epochs=epochs, max_epochs=epochs)
    return ks.train(data, config=config, path=folder / "surrogate", progress=False)


def explained(surrogate: Any, model: Any, pairs: int) -> list[float]:
    """R^2 of the scores, one per parameter."""
    rng = np.random.default_rng([SEED, 0xDE51])
    theta = model.space.uniform(pairs, rng)
    x, exact = model.simulate_with_score(theta, rng)
    left = surrogate.score(theta, x) - exact
    return [float(r) for r in 1 - (left**2).mean(axis=0) / exact.var(axis=0)]


def statistics(surrogate: Any, model: Any, numbers: range) -> list[dict[str, float]]:
    """The likelihood-ratio statistic at the truth, exact and by the surrogate, of each group."""
    rows = []
    for k in numbers:
        rng = np.random.default_rng([SEED, 0xDE52, k])
        theta = model.space.uniform(1, rng, "test")
        xs = model.simulate(np.repeat(theta, GROUP, axis=0), rng)
        found: dict[str, float] = {"number": k}
        for name, source in (("exact", model), ("surrogate", surrogate)):
            found[name] = float(np.squeeze(ks.lrt(source.given(xs), theta[0]).statistic))
        rows.append(found)
    return rows


def run(quick: bool = False, folder: Path | None = None) -> dict[str, Any]:
    """Every cell that is not there yet; plain data."""
    kept = make_folder((folder or RESULTS) / ("designs_quick" if quick else "designs"))
    results = {}
    for kind, make in KINDS.items():
        model, tested = make()
        surrogate = trained(kind, model, quick)
        for name, source in tested.items():
            path = kept / f"{kind}-{name.replace(' ', '_').replace(chr(39), '')}.json"
            done = read_json(path) if path.exists() else {"rows": [], "seconds": 0.0}
            done.setdefault("r2", explained(surrogate, source, 50 if quick else PAIRS))
            wanted = 2 if quick else GROUPS[kind]
            while len(done["rows"]) < wanted:
                start, began = len(done["rows"]), time.perf_counter()
                more = range(start, min(start + AT_ONCE, wanted))
                done["rows"] += statistics(surrogate, source, more)
                done["seconds"] += round(time.perf_counter() - began, 1)
                write_json(path, done)
            results[f"{kind}, {name}"] = {**groups_summary(done, model.space.d), "r2": done["r2"]}
    return results


def table(result: dict[str, Any]) -> str:
    """The same for a reader."""
    lines = [
        "| trained on, asked at | R² of scores | groups | LRT error² | coverage | exact | gap |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in result.items():
        lines.append(
            f"| {name} | {', '.join(f'{r:.3f}' for r in row['r2'])} | {row['groups']} | "
            f"{row['lrt_mse']:.3f} ± {row['lrt_mse_se']:.3f} | {row['coverage']:.3f} | "
            f"{row['coverage_exact']:.3f} | {row['coverage'] - row['coverage_exact']:+.3f} ± "
            f"{row['gap_se']:.3f} |"
        )
    return "\n".join(lines)
