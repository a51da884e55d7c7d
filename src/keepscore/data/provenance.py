"""Where this runs: versions, the commit when the package runs from a checkout, free memory."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path

import numpy as np

import keepscore


def environment() -> dict[str, str | None]:
    """What could change the bytes of a simulation besides its arguments."""
    return {
        "keepscore": keepscore.__version__,
        "commit": commit(),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def available_memory() -> int:
    """Bytes that can be allocated without swapping, as far as the system tells."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        return 2**62


@functools.cache
def commit() -> str | None:
    """The commit of this package's own repository, or None for an installed copy."""
    source = Path(keepscore.__file__).resolve()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(source.parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        # Installed inside another repository, the file is not tracked there.
        git("ls-files", "--error-unmatch", source.name)
        return git("rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return None
