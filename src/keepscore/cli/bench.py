"""keepscore bench: the benchmarks, from a clone of the repository."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
from typing import Annotated

import typer

from keepscore.errors import MissingError, unknown_name


def bench(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            help="numerics, simulation, training, inference, peers, peers-inference, all of them "
            "by default; or ablation (hours)."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option(help="Tiny sizes: does it run?")] = False,
) -> None:
    """Time the package against its peers on this machine; results go to benchmarks/results.

    Example: keepscore bench numerics training
    """
    sys.path.insert(0, "")
    if importlib.util.find_spec("benchmarks") is None:
        raise MissingError("Benchmarks are not installed: run this in a clone of the repository.")
    known = importlib.import_module("benchmarks.__main__").PARTS
    for part in parts or []:
        if part not in known:
            raise unknown_name("benchmark", part, known)
    arguments = [*(parts or []), *(["--quick"] if quick else [])]
    raise typer.Exit(_run([sys.executable, "-m", "benchmarks", *arguments]))


def _run(words: list[str]) -> int:
    """A process and its children in a group of their own, so that Ctrl-C ends them all quietly."""
    started = subprocess.Popen(words, start_new_session=True)
    try:
        return started.wait()
    except KeyboardInterrupt:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait()
        raise
