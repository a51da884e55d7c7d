"""What `ks.fit` says of seven models, all defaults: the verdict, the time, N and the quality.

    python -m benchmarks fits [--quick]

Five minutes each, groups of ten observations. The first model has a wrong simulator and must be
refused before anything is simulated for training. Each model is one small file in results/fits,
and a finished one is not run again; an interrupted fit goes on where it was (runs/benchmarks/fits).
Times mean little beside other work: run it alone.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import keepscore as ks
from benchmarks import machine
from benchmarks.front_models import FITTED
from keepscore.errors import ModelError
from keepscore.files import make_folder, read_json, write_json

MINUTES, GROUP_SIZE = 5.0, 10
QUICK = ("wrong simulator", "tutorial")
QUICK_MINUTES = 0.7
RESULTS = machine.ROOT / "benchmarks" / "results"
RUNS = machine.ROOT / "runs" / "benchmarks" / "fits"


def run(
    quick: bool = False, folder: Path | None = None, runs: Path | None = None
) -> dict[str, Any]:
    """Every model that is not there yet; plain data."""
    kept = make_folder((folder or RESULTS) / ("fits_quick" if quick else "fits"))
    results = {}
    for name, build in FITTED.items():
        if quick and name not in QUICK:
            continue
        path = kept / f"{name.replace(' ', '-').replace(',', '').replace('=', '')}.json"
        if not path.exists():
            where = (runs or RUNS) / f"{path.stem}{'-quick' if quick else ''}"
            write_json(path, fitted(build(), QUICK_MINUTES if quick else MINUTES, where))
        results[name] = read_json(path)
    return results


def fitted(model: Any, minutes: float, where: Path) -> dict[str, Any]:
    """One model from nothing to its verdict, or to the refusal."""
    told: list[str] = []
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ks.KeepscoreWarning)  # what they say is in the verdict
            made = ks.fit(model, minutes, where, group_size=GROUP_SIZE, progress=told.append)
    except ModelError as error:
        stages = len(told)
        return {
            "grade": "refused",
            "reasons": str(error),
            "stages": stages,
            "minutes": (time.perf_counter() - began) / 60,
        }
    rounds = [one.to_dict() for one in made.rounds]
    best = min(rounds, key=lambda one: one["loss"])
    return {
        "grade": made.verdict.grade,
        "reasons": made.verdict.reasons,
        "stages": len(told),
        "minutes": made.seconds / 60,
        "rounds": [[one["attempt"]["n"], one["attempt"]["network"], one["loss"]] for one in rounds],
        "n": best["attempt"]["n"],
        "network": best["attempt"]["network"],
        "quality": best["quality"],
        "measured": best["measured"],
    }


def table(result: dict[str, Any]) -> str:
    """The same for a reader."""
    lines = [
        "| model | verdict | simulations | network | squared LRT error | coverage (exact) "
        "| minutes |",
        "|---|---|---:|---|---:|---:|---:|",
    ]
    for name, found in result.items():
        if found["grade"] == "refused":
            lines.append(f"| {name} | **refused** | 0 | | | | {found['minutes']:.1f} |")
            continue
        measured = found["measured"]
        error, exact = measured["lrt_error"], measured["coverage_exact"]
        told = "" if error is None else f"{error[0]:.3g} ± {error[1]:.1g}"
        beside = "" if exact is None else f" ({exact[0]:.3f})"
        lines.append(
            f"| {name} | **{found['grade']}** | {found['n']:,} | {found['network']} | {told} | "
            f"{measured['coverage'][0]:.3f}{beside} | {found['minutes']:.1f} |"
        )
    return "\n".join(lines)
