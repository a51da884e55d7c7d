"""Training steps against the peers: same network, batch, data and optimizer, two threads, in turns.

Each contender trains the paper's network (networks.py; ours from keepscore) with Adam on batches of
64 from synthetic data in memory. A round is one epoch; rounds alternate between the contenders'
processes (processes.py). Reported: the median of the rounds, their range, and the median over the
rounds of time(peer) / time(ours), where a peer without scores is compared with our BCE, and one
with scores with our ASA.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benchmarks.peers.cases import FULL, QUICK, Case
from benchmarks.peers.processes import interleaved, peer_python

OURS = "benchmarks.peers.our_training"
TORCH = "benchmarks.peers.torch_training"
SBI = "benchmarks.peers.sbi_training"
# name -> (settings, whom it is compared with, what it is)
CONTENDERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "ours, BCE": ({"module": OURS, "loss": "BCE"}, "ours, BCE", "the loop of ks.train, BCE"),
    "ours, ASA": ({"module": OURS, "loss": "ASA"}, "ours, ASA", "the loop of ks.train, ASA"),
    "sbi": (
        {"module": SBI, "tuned": False},
        "ours, BCE",
        "NRE_A, its own loop",
    ),
    "sbi, tuned": (
        {"module": SBI, "tuned": True},
        "ours, BCE",
        "channels-last images",
    ),
    "LAMPE": (
        {"module": TORCH, "contender": "lampe", "tuned": False},
        "ours, BCE",
        "NRELoss, plain loop, x embedded once",
    ),
    "LAMPE, tuned": (
        {"module": TORCH, "contender": "lampe", "tuned": True},
        "ours, BCE",
        "fused Adam, channels-last images",
    ),
    "double backward": (
        {"module": TORCH, "contender": "double-backward", "tuned": False},
        "ours, ASA",
        "BCE + score as MadMiner",
    ),
    "double backward, tuned": (
        {"module": TORCH, "contender": "double-backward", "tuned": True},
        "ours, ASA",
        "x embedded once, score on Y = 1, fused Adam, channels-last",
    ),
}


def run(quick: bool) -> dict[str, Any]:
    """Median, range and ratios for every case and contender."""
    peer, rounds = peer_python(), 3 if quick else 7
    cases = [time_case(case, rounds, peer) for case in (QUICK if quick else FULL)]
    return {"rounds": rounds, "cases": cases}


def time_case(case: Case, rounds: int, peer: str) -> dict[str, Any]:
    """All contenders on one case."""
    entrants = {}
    for name, (settings, _, _) in CONTENDERS.items():
        if name == "sbi, tuned" and case.family == "sis":
            continue  # nothing to tune: the data are not images
        python = sys.executable if settings["module"] == OURS else peer
        entrants[name] = (python, settings | vars(case))
    answers, hello = interleaved(entrants, rounds)
    times = {name: [answer["ms"] for answer in given] for name, given in answers.items()}
    return {
        "family": case.family,
        "size": case.size,
        "steps": case.steps,
        "contenders": {name: summary(times, name) for name in times},
        "versions": {name: said["versions"] for name, said in hello.items()},
    }


def summary(times: dict[str, list[float]], name: str) -> dict[str, Any]:
    """Milliseconds a step, and times ours in the same round."""
    rival = CONTENDERS[name][1]
    ratios = [theirs / ours for theirs, ours in zip(times[name], times[rival], strict=True)]
    return {
        "ms": statistics.median(times[name]),
        "ms_range": [min(times[name]), max(times[name])],
        "rounds_ms": times[name],
        "compared_with": rival,
        "ratio": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
    }


def table(result: dict[str, Any]) -> str:
    """One block of lines a case."""
    lines = [
        "| case | contender | ms a step (range) | times ours (range) | what |",
        "|---|---|---:|---:|---|",
    ]
    for case in result["cases"]:
        for name, got in case["contenders"].items():
            ratio = f"{got['ratio']:.2f} ({_range(got['ratio_range'])})"
            lines.append(
                f"| {case['family']} {case['size']} | {name} "
                f"| {got['ms']:.2f} ({_range(got['ms_range'])}) "
                f"| {'' if name == got['compared_with'] else ratio} | {CONTENDERS[name][2]} |"
            )
    return "\n".join(lines)


def _range(values: list[float]) -> str:
    return f"{values[0]:.2f} to {values[1]:.2f}"
