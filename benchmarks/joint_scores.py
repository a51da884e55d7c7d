"""Joint scores against exact scores against none, as simulations grow: SIS with 8 people.

    python -m benchmarks.joint_scores [--quick]

    bce      no scores
    joint    ASA with the score of the simulated path, which any K can give; its mean given x is
             the score of x
    exact    ASA with the score of x itself, from all 2^8 states

One network (`graph_network`, "10k"), the same x for all three, three seeds (one at the largest N).
The L-test against the exact likelihood: test BCE, RMSE of log-ratio differences, score MSE. One
JSON file a cell in benchmarks/results/joint_scores; what is there is not computed again. Data and
checkpoints lie in benchmarks/results/runs. About twenty minutes on one core.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import keepscore as ks
from benchmarks import machine
from benchmarks.joint_scores_figure import Curve, joint_scores
from keepscore import networks
from keepscore.evaluation.ltest import LTestSet, ltest, ltest_set
from keepscore.files import make_folder, read_json, write_atomically, write_json
from keepscore.models import SIS

LOSSES = ("bce", "joint", "exact")
SIZES = {3_000: (0, 1, 2), 10_000: (0, 1, 2), 30_000: (0, 1, 2), 100_000: (0,)}
NETWORK = "10k"
METRICS = ("bce", "bce_excess", "rmse_far", "rmse_near", "score_mse[lambda]", "score_mse[mu]")


def run(quick: bool = False, folder: Path | None = None) -> list[dict[str, Any]]:
    """Every cell, computed or found; plain data."""
    results = folder or machine.ROOT / "benchmarks" / "results" / "joint_scores"
    work = machine.ROOT / "benchmarks" / "results" / "runs" / "joint_scores"
    if quick:
        results, work = work / "quick" / "results", work / "quick"
    sizes = {300: (0,), 600: (0,)} if quick else SIZES
    count, exact, evidence = (200, 50, 10) if quick else (20_000, 5_000, 1_000)
    pairs = ltest_set(SIS(), count, 99, exact, evidence, path=work / "ltest")
    cells = []
    # All sizes with one seed first: a curve, then its error bars.
    every = sorted((seed, n) for n, seeds in sizes.items() for seed in seeds)
    for seed, n in every:
        for loss in LOSSES:
            file = make_folder(results) / f"{loss}-n{n}-s{seed}.json"
            if not file.exists():
                found = one(loss, n, seed, pairs, work, quick)
                write_json(file, {"loss": loss, "n": n, "seed": seed, **found})
            cells.append(read_json(file))
            print(cells[-1], flush=True)
    return cells


def one(
    loss: str, n: int, seed: int, pairs: LTestSet, work: Path, quick: bool = False
) -> dict[str, Any]:
    """Train one surrogate (or take up where it was) and test it."""
    kind = "exact" if loss == "exact" else "joint"
    model = SIS(score=kind)
    data = ks.simulate(model, n, seed=seed, path=work / f"train-{kind}-n{n}-s{seed}")
    held = ks.simulate(
        SIS(),
        max(n // 3, min(n, 3_000)),
        seed=seed,
        purpose="validation",
        scores=False,
        path=work / f"validation-n{n}-s{seed}",
    )
    short: dict[str, Any] = {"min_epochs": 2, "max_epochs": 2} if quick else {}
    surrogate = ks.train(
        data,
        held,
        networks.graph_network(model, NETWORK),
        ks.BCE() if loss == "bce" else ks.ASA.paper(),
        # The network is the same for all automorphisms of the graph: nothing to augment.
        ks.TrainConfig(symmetries=False, seed=seed, **short),
        path=work / "cells" / f"{loss}-n{n}-s{seed}",
    )
    tested = dict(ltest(surrogate, SIS(), test_set=pairs).rows())
    epochs = [record for record in surrogate.history if record["event"] == "epoch"]
    return {
        **{metric: round(tested[metric].value, 6) for metric in METRICS},
        "network": f"graph-{NETWORK}",
        "weights": surrogate.history[0]["weights"],
        "epochs": len(epochs),
        "best_epoch": epochs[-1]["best_epoch"],
    }


def curves(cells: list[dict[str, Any]], metric: str) -> list[Curve]:
    """The metric against N, one curve a loss, all seeds."""
    found = []
    for loss in LOSSES:
        sizes = sorted({cell["n"] for cell in cells})
        values = [[c[metric] for c in cells if (c["loss"], c["n"]) == (loss, n)] for n in sizes]
        found.append(Curve(loss, sizes, values))
    return found


def table(cells: list[dict[str, Any]]) -> str:
    """Means over seeds, and their standard errors where there are several."""
    lines = [
        "| N | loss | seeds | test BCE | far RMSE | score MSE, lambda | score MSE, mu |",
        "|---|---|---|---|---|---|---|",
    ]
    for n in sorted({cell["n"] for cell in cells}):
        for loss in LOSSES:
            rows = [c for c in cells if (c["loss"], c["n"]) == (loss, n)]
            shown = [_mean(rows, m) for m in METRICS if m not in ("bce_excess", "rmse_near")]
            lines.append(f"| {n:,} | {loss} | {len(rows)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _mean(rows: list[dict[str, Any]], key: str) -> str:
    values = [row[key] for row in rows]
    if len(values) < 2:
        return f"{values[0]:.4f}"
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values) / len(values) ** 0.5:.4f}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joint_scores")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    quick = parser.parse_args(arguments).quick
    cells = run(quick)
    print(table(cells))
    panels = {
        "test BCE": curves(cells, "bce"),
        "far RMSE of log-ratios": curves(cells, "rmse_far"),
        "score error², lambda": curves(cells, "score_mse[lambda]"),
        "score error², mu": curves(cells, "score_mse[mu]"),
    }
    if not quick:
        figure = joint_scores(panels)
        file = machine.ROOT / "docs" / "images" / "joint_scores.svg"
        make_folder(file.parent)
        write_atomically(
            file, lambda stream: figure.savefig(stream, format="svg", metadata={"Date": None})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
