"""What scores are worth on SIS: the paper's 30K network, ASA at N = 30,000 against BCE at 100,000.

Three seeds each (data, start and order), the paper's settings, a validation set as large as the
training set. The L-test of each surrogate: test BCE, and the RMSE of log-ratio differences against
the exact likelihood between theta and theta' = theta + N(0, s^2), s = 0.3 (far) and 0.1 (near).

Data and runs are kept in a folder and continued if interrupted: by default benchmarks/results/runs,
about an hour on two cores.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import keepscore as ks
from benchmarks import machine
from keepscore.evaluation.ltest import LTestSet, ltest, ltest_set
from keepscore.models import SIS

METRICS = ("bce", "rmse_far", "rmse_near", "score_mse[lambda]", "score_mse[mu]")
CASES = (("ASA", 30_000), ("BCE", 30_000), ("BCE", 100_000))


def run(quick: bool = False, folder: Path | None = None) -> dict[str, Any]:
    """Metrics by case and seed; plain data."""
    folder = folder or machine.ROOT / "benchmarks" / "results" / "runs" / "quality_sis"
    folder = folder / "quick" if quick else folder
    seeds = (0,) if quick else (0, 1, 2)
    model = SIS()
    pairs = ltest_set(model, 500 if quick else 20_000, 99, 100 if quick else 5_000, 20)
    results = []
    for name, n in CASES:
        rows = n // 100 if quick else n
        for seed in seeds:
            found = one(model, name, rows, seed, pairs, folder, quick)
            results.append({"loss": name, "n": rows, "seed": seed, **found})
    return {"quick": quick, "network": "30k", "runs": results}


def one(
    model: SIS, name: str, n: int, seed: int, pairs: LTestSet, folder: Path, quick: bool
) -> dict[str, Any]:
    """Train one surrogate (or take up where it was) and test it."""
    train, validation = (
        ks.simulate(model, n, seed=seed, purpose=purpose, path=folder / f"{purpose}-{n}-{seed}")
        for purpose in ("train", "validation")
    )
    short: dict[str, Any] = {"min_epochs": 2, "max_epochs": 2} if quick else {}
    surrogate = ks.train(
        train,
        validation,
        "30k",
        ks.ASA() if name == "ASA" else ks.BCE(),
        ks.TrainConfig.paper("sis", seed=seed, **short),
        path=folder / f"{name.lower()}-{n}-{seed}",
    )
    tested = dict(ltest(surrogate, model, test_set=pairs).rows())
    end = surrogate.history[-1]
    return {
        **{metric: tested[metric].value for metric in METRICS if metric in tested},
        "epochs": end["epochs"],
        "seconds": end["seconds"],
    }


def table(result: dict[str, Any]) -> str:
    """Means and standard errors over seeds."""
    lines = [
        "| loss, N | test BCE | RMSE far | RMSE near | epochs | training s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    cases = dict.fromkeys((r["loss"], r["n"]) for r in result["runs"])
    for loss, n in cases:
        rows = [r for r in result["runs"] if (r["loss"], r["n"]) == (loss, n)]
        cells = [_mean(rows, key) for key in ("bce", "rmse_far", "rmse_near")]
        epochs, seconds = (statistics.mean(r[key] for r in rows) for key in ("epochs", "seconds"))
        lines.append(f"| {loss}, {n:,} | {' | '.join(cells)} | {epochs:.0f} | {seconds:.0f} |")
    return "\n".join(lines)


def _mean(rows: list[dict[str, Any]], key: str) -> str:
    values = [r[key] for r in rows]
    if len(values) < 2:
        return f"{values[0]:.4f}"
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.4f} ± {error:.4f}"
