"""What a timing was taken on: machine, versions and commit, written beside every result."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OURS = ("keepscore", "numpy", "scipy", "numba", "jax", "jaxlib", "equinox", "optax")
PEERS = ("torch", "sbi", "lampe", "zuko")


def versions(packages: tuple[str, ...] = OURS) -> dict[str, str]:
    """Version of Python and of each installed package."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_gib() -> float | None:
    """Memory of the machine, where the system says."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def commit() -> str:
    """The commit measured, marked when the work tree differs from it."""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}{' with changes' if changed else ''}"


def describe() -> dict[str, Any]:
    """Everything a reader needs to judge a timing."""
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "memory_gib": memory_gib(),
        "system": platform.system(),
        "interpreter": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "versions": versions(),
        # Above the number of cores at the start, other work was running: do not trust the times.
        "load_at_start": [round(v, 2) for v in os.getloadavg()],
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    )
    return done.stdout.strip()
