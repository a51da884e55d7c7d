"""One process that runs the cases of a campaign, one line of JSON for each."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from attack.arguments import Arguments
from attack.loaders import loaders
from keepscore.errors import KeepscoreError

MOST_MEMORY = 2 << 30  # beyond what the process has when the cases begin
GROWTH = 600 << 10  # of the largest resident size in one case, in KiB
SECONDS = float(os.environ.get("ATTACK_SECONDS", 20))  # more on a busy machine


class Hang(BaseException):
    """A case did not end in time."""


def campaign(name: str) -> Any:
    if name == Arguments.name:
        return Arguments()
    return {loader.name: loader for loader in loaders()}[name]


def outcome(call: Any) -> tuple[str, str]:
    """How a case ended, and in which words."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            kind, words = ("accepted" if call() else "silent"), ""
    except KeepscoreError as error:
        kind, words = "typed", f"{type(error).__name__}: {error}"
    except MemoryError as error:
        kind, words = "memory", str(error)
    except Hang:
        kind, words = "hang", ""
    except BaseException as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        own = [f for f in traceback.extract_tb(error.__traceback__) if "keepscore" in f.filename]
        if own:
            place += f", in {Path(own[-1].filename).name}:{own[-1].lineno}"
        kind, words = "raw", f"{type(error).__name__}: {error} ({place})"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before > GROWTH:
        kind = "memory"
    return kind, words


def _late(*_: Any) -> None:
    raise Hang


def main(name: str, seed: int, first: int, last: int) -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    attacked = campaign(name)
    with tempfile.TemporaryDirectory(prefix="keepscore-attack-") as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attacked.start(Path(folder))
        os.chdir(folder)
        signal.signal(signal.SIGALRM, _late)
        here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (here + MOST_MEMORY, resource.RLIM_INFINITY))
        print(
            json.dumps({"ready": len(attacked) if isinstance(attacked, Arguments) else last}),
            file=out,
        )
        for number in range(first, last):
            if isinstance(attacked, Arguments):
                if number >= len(attacked):
                    break
                what, call = attacked.numbered(number)
            else:
                rng = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
                what, call = attacked.case(rng)
            print(json.dumps({"begin": number, "what": what}, default=str), file=out)
            kind, words = outcome(call)
            print(json.dumps({"end": number, "kind": kind, "words": words[:300]}), file=out)


if __name__ == "__main__":
    main(sys.argv[1], *(int(word) for word in sys.argv[2:5]))
