"""Inference against sbi: a 40 x 40 likelihood surface and an estimate for ten observed epidemics.

Both sides hold the paper's 30K network for SIS, trained on the same simulations (ours to the end,
theirs for a few epochs, which changes nothing in their times), and the same ten observations. The
networks are not the same function (each side trained its own), the work is: 1,600 theta times 10 x
for the surface, a maximum over the box for the estimate. Beside it, the network `ks.train` takes by
default ("default"), whose features of a group add up. Each task is done over and over in every
round, at least nine times and for half a second, on both sides, and the median call counts;
compilation is done in the warm-up and reported apart.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benchmarks.peers.processes import interleaved, peer_python

# (ours, peer's, what the peer does)
COMPARED = (
    ("surface", "surface", "sbi RatioBasedPotential, x embedded again at every theta"),
    ("surface, default network", "surface", "the same"),
    ("surface, every theta", "surface", "the same"),
    ("surface", "surface by hand", "PyTorch, x embedded once"),
    ("surface, every theta", "surface by hand", "the same"),
    ("mle", "mle", "SciPy L-BFGS-B on sbi's potential"),
    ("mle, default network", "mle", "the same"),
    ("mle", "map", "sbi posterior.map(), default settings"),
)


def run(quick: bool) -> dict[str, Any]:
    """Seconds for each task on each side, and ratios."""
    python, rounds = peer_python(), 2 if quick else 7
    settings = {
        "n": 640 if quick else 20_000,
        "epochs": 1 if quick else 5,
        "our_epochs": 1 if quick else 40,
        "side": 40,
        "map_iterations": 20 if quick else None,
    }
    ours = settings | {"module": "benchmarks.peers.our_inference"}
    theirs = settings | {"module": "benchmarks.peers.torch_inference"}
    answers, hello = interleaved({"ours": (sys.executable, ours), "sbi": (python, theirs)}, rounds)
    tasks = [
        {"ours": mine, "peer": peer} | compare(answers, theirs, mine)
        for mine, theirs, peer in COMPARED
    ]
    last = answers["ours"][-1]
    return {
        "settings": settings,
        "rounds": rounds,
        "tasks": tasks,
        "first_call_seconds": last["first_call_seconds"],
        "interpolation_error": last["interpolation_error"],
        "largest_value": last["largest_value"],
        "estimates": {side: given[-1]["estimates"] for side, given in answers.items()},
        "versions": {side: said["versions"] for side, said in hello.items()},
    }


def compare(answers: dict[str, list[dict[str, Any]]], theirs: str, ours: str) -> dict[str, Any]:
    """Medians in milliseconds, and the ratio round by round."""
    peer = [answer["seconds"][theirs] for answer in answers["sbi"]]
    mine = [answer["seconds"][ours] for answer in answers["ours"]]
    ratios = [a / b for a, b in zip(peer, mine, strict=True)]
    return {
        "peer_ms": 1e3 * statistics.median(peer),
        "ours_ms": 1e3 * statistics.median(mine),
        "ratio": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
    }


def table(result: dict[str, Any]) -> str:
    """One line a task, and what compiling cost."""
    lines = [
        "| task | peer | peer, ms | ours, ms | times ours (range) |",
        "|---|---|---:|---:|---:|",
    ]
    for got in result["tasks"]:
        low, high = got["ratio_range"]
        lines.append(
            f"| {got['ours']} | {got['peer']} | {got['peer_ms']:.1f} | {got['ours_ms']:.2f} "
            f"| {got['ratio']:.1f} ({low:.1f} to {high:.1f}) |"
        )
    first = result["first_call_seconds"]
    lines.append(
        f"\nOurs, first call with compilation: surface {first['surface']:.2f} s, "
        f"estimate {first['mle']:.2f} s. Surfaces are interpolated (Chebyshev), off by "
        f"at most {result['interpolation_error']:.1e}, values up to {result['largest_value']:.0f}; "
        '"every theta" is without.'
    )
    return "\n".join(lines)
