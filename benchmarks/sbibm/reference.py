"""Observations and reference posteriors of sbibm, read from its wheel.

The wheel is taken from the package index without its dependencies and opened as an archive; its
code is never imported. Only its tables are read (.csv, .csv.bz2). What it keeps as pickled arrays
(a stimulus, a permutation) is made again from its seeds in `tasks`; nothing is unpickled.
"""

from __future__ import annotations

import bz2
import csv
import io
import os
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import numpy as np

from keepscore.checks import Floats

VERSION = "1.1.0"
WHEEL = f"sbibm-{VERSION}-py2.py3-none-any.whl"
OBSERVATIONS = tuple(range(1, 11))


def wheel() -> Path:
    """The wheel in the benchmark's folder of downloads; fetched if it is not there."""
    folder = Path(os.environ.get("KEEPSCORE_SBIBM", Path("runs") / "sbibm" / "download"))
    found = folder / WHEEL
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*command, "--dest", str(folder), f"sbibm=={VERSION}"], check=True)
    return found


@cache
def _archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(wheel())


def _bytes(folder: str, name: str) -> bytes:
    return _archive().read(f"sbibm/tasks/{folder}/files/{name}")


def _table(text: bytes) -> Floats:
    rows = list(csv.reader(io.StringIO(text.decode())))
    return np.array([[float(entry) for entry in row] for row in rows[1:]])


def observation(folder: str, number: int, name: str = "observation.csv") -> Floats:
    """One observation, as a flat vector."""
    return _table(_bytes(folder, f"num_observation_{number}/{name}"))[0]


def posterior(folder: str, number: int) -> Floats:
    """Reference draws (10,000, d) in the task's own parameters."""
    packed = _bytes(folder, f"num_observation_{number}/reference_posterior_samples.csv.bz2")
    return _table(bz2.decompress(packed))
