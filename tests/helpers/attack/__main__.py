"""Run the campaigns, each in a process of its own, and count how cases end."""

from __future__ import annotations

import argparse
import collections
import json
import os
import selectors
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
KINDS = ("accepted", "typed", "silent", "raw", "hang", "memory", "crash")
BAD = KINDS[2:]
START_SECONDS, CASE_SECONDS = 600, 2 * float(os.environ.get("ATTACK_SECONDS", 20))


def run(name: str, seed: int, cases: int, first: int = 0) -> list[dict[str, object]]:
    """All cases of a campaign; after a death the next process goes on behind it."""
    ended: list[dict[str, object]] = []
    while first < cases:
        command = [sys.executable, "-m", "attack.child", name, str(seed), str(first), str(cases)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=TESTS
        )
        begun, last, late = None, first - 1, False
        for line in _lines(process):
            if line is None:
                late = True
                process.kill()
                break
            if "ready" in line:
                cases = min(cases, int(line["ready"]))
            elif "begin" in line:
                begun = line
            else:
                last = int(line["end"])
                what = begun["what"] if begun else ""
                ended.append({"campaign": name, "number": last, "what": what, **line})
                begun = None
        errors = process.stderr.read().decode(errors="replace")[-600:] if process.stderr else ""
        process.wait()
        if begun is not None:
            last = int(begun["begin"])
            kind = "hang" if late else "crash"
            ended.append(
                {"campaign": name, "number": last, "what": begun["what"], "kind": kind,
                 "words": errors}
            )  # fmt: skip
        elif process.returncode or late:
            raise SystemExit(f"The campaign {name!r} could not start or ended oddly:\n{errors}")
        first = last + 1
        if begun is None:
            break
    return ended


def _lines(process):
    """Lines of a child as JSON; None when it has been silent for too long."""
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    seconds, rest = START_SECONDS, b""
    while True:
        if not selector.select(seconds):
            yield None
            return
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield json.loads(line)
        seconds = CASE_SECONDS


def main() -> int:
    from attack.arguments import Arguments
    from attack.loaders import loaders

    times = {loader.name: loader.times for loader in loaders()}
    names = [*times, Arguments.name]
    parser = argparse.ArgumentParser(description="Attack keepscore with bad files and arguments.")
    parser.add_argument("--cases", type=int, default=300, help="cases per loader")
    parser.add_argument("--only", help="names of campaigns, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for every case")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else names
    print(f"{'campaign':<20}" + "".join(f"{kind:>10}" for kind in KINDS), flush=True)
    every: list[dict[str, object]] = []
    for name in chosen:
        cases = 10**6 if name == Arguments.name else options.cases * times[name]
        ended = run(name, options.seed, cases)
        every += ended
        counts = collections.Counter(str(case["kind"]) for case in ended)
        print(f"{name:<20}" + "".join(f"{counts[kind]:>10}" for kind in KINDS), flush=True)
    bad = [case for case in every if case["kind"] in BAD]
    for case in bad[:2000]:
        print(f"  {case['kind']}: {case['campaign']} {case['number']}: {case['what']}: "
              f"{case['words']}")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(every, indent=0))
    print(f"{len(every)} cases, {len(bad)} that must not happen")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
