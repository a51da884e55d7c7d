"""How fast data sets are made: samples a second with one process and with two, written to disk.

Each row is one whole call of `simulate` into an empty folder: design, simulation, scores where
asked for, checksums, flushing, and the start of worker processes. The ratio is the rate with two
processes over the rate with one.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from keepscore.data import simulate
from keepscore.models import SIS, GaussianField, StudentTField

JOBS = (1, 2)
# model, rows, rows in the quick version, with scores
CASES: tuple[tuple[Any, int, int, bool], ...] = (
    (SIS, 1_000_000, 2_000, False),
    (SIS, 30_000, 200, True),
    (GaussianField, 30_000, 200, True),
    (StudentTField, 30_000, 200, True),
)


def run(quick: bool = False) -> dict[str, Any]:
    """Time every case; plain data, ready for JSON."""
    rows = []
    for build, full, few, scores in CASES:
        model, n = build(), few if quick else full
        simulate(model, 64, scores=scores, jobs=1)  # compile before the clock starts
        seconds = {jobs: _seconds(model, n, scores, jobs) for jobs in JOBS}
        rate = {str(jobs): n / seconds[jobs] for jobs in JOBS}
        ratio = rate[str(JOBS[1])] / rate[str(JOBS[0])]
        rows.append({"model": model.name, "n": n, "scores": scores, "rate": rate, "ratio": ratio})
    return {"quick": quick, "cores": os.cpu_count(), "rows": rows}


def _seconds(model: Any, n: int, scores: bool, jobs: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        data = simulate(model, n, path=Path(folder) / "set", scores=scores, jobs=jobs)
        seconds = time.perf_counter() - start
        assert len(data) == n
    return seconds


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown table."""
    lines = [
        "| model | rows | scores | samples/s, 1 process | samples/s, 2 processes | ratio |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for row in result["rows"]:
        one, two = (row["rate"][str(jobs)] for jobs in JOBS)
        lines.append(
            f"| {row['model']} | {row['n']:,} | {'yes' if row['scores'] else 'no'} "
            f"| {one:,.0f} | {two:,.0f} | {row['ratio']:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(run(quick=True)))
