"""Contenders in processes of their own, timed in turns.

torch and JAX each bring a pool of threads; in one process they would fight over the cores. So each
contender lives in a child process on the same two cores, does its warm-up there, and then waits.
The parent asks one child at a time for one round, going round and round: drifts of the machine
(heat, neighbours) meet every contender alike.

Child: `python -m benchmarks.peers.processes '{"module": ..., ...}'`. It imports the module, calls
`start(settings) -> round`, says hello, and answers every line on standard input with the JSON of
`round()`. Whatever libraries print goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine
from keepscore.errors import MissingError

Round = Callable[[], dict[str, Any]]


def threads() -> int:
    """Threads of every contender: two, unless KEEPSCORE_BENCH_THREADS says otherwise."""
    return int(os.environ.get("KEEPSCORE_BENCH_THREADS", "2"))


def peer_python() -> str:
    """The interpreter that has torch, sbi and lampe."""
    chosen = os.environ.get("KEEPSCORE_BENCH_PYTHON")
    path = Path(chosen) if chosen else machine.ROOT / ".venv-bench" / "bin" / "python"
    if not path.exists():
        raise MissingError(
            f"The peers need an environment with torch, sbi and lampe; there is none at {path}. "
            "Run `make bench-setup`, or point KEEPSCORE_BENCH_PYTHON to its interpreter."
        )
    return str(path)


def timed(work: Callable[[], Any], calls: int = 9, seconds: float = 0.5) -> tuple[float, Any]:
    """Median seconds of calls in a row, at least so many and for so long, and the last's result.

    For so long, because a core that was idle takes some tens of milliseconds to come up to speed:
    nine calls of a millisecond would be over by then, nine of the peer's would not.
    """
    taken: list[float] = []
    while len(taken) < calls or sum(taken) < seconds:
        begin = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken), result


class Child:
    """A contender in its process: made warm, then asked for rounds."""

    def __init__(self, python: str, settings: dict[str, Any]) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in close()
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.peers.processes", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=machine.ROOT,
            env=_environment(),
        )
        try:
            self.hello = self._read()
        except RuntimeError:
            self.close()
            raise

    def ask(self) -> dict[str, Any]:
        """One round, timed by the child."""
        assert self.process.stdin is not None
        self.process.stdin.write("round\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End of input ends the child; a child that hangs is killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            last = self.errors.read()[-2000:]
            raise RuntimeError(f"A contender ended before it answered. Its last words:\n{last}")
        return json.loads(line)


def interleaved(
    contenders: dict[str, tuple[str, dict[str, Any]]], rounds: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, Any]]]:
    """Rounds of each contender (interpreter, settings) in turns, and what each said of itself."""
    children: dict[str, Child] = {}
    try:
        for name, (python, settings) in contenders.items():
            children[name] = Child(python, settings)
        answers: dict[str, list[dict[str, Any]]] = {name: [] for name in children}
        names = list(children)
        for k in range(rounds):
            # Another one begins each time, so that no one always follows the same neighbour.
            for name in names[k % len(names) :] + names[: k % len(names)]:
                answers[name].append(children[name].ask())
        return answers, {name: child.hello for name, child in children.items()}
    finally:
        for child in children.values():
            child.close()


def _environment() -> dict[str, str]:
    pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(pools, str(threads())), "JAX_PLATFORMS": "cpu"}


def _serve(settings: dict[str, Any]) -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if hasattr(os, "sched_setaffinity"):
        # JAX sizes its pool by the cores it may run on.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: threads()])
    play: Round = importlib.import_module(settings["module"]).start(settings)
    hello = {"versions": machine.versions(machine.OURS + machine.PEERS)}
    print(json.dumps(hello), file=answers)
    for _ in sys.stdin:
        print(json.dumps(play()), file=answers)


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
