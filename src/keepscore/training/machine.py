"""What of the machine the numbers of a run depend on.

The same settings and data give the same weights to the last bit on the same machine. Sums over many
terms are split among XLA's threads, and compiled for the processor there is: on another number of
cores, another processor or another version of JAX, the last digits differ, and after some hundred
steps the weights do. None of these answers is better; but a run that begins on one and ends on
another is the run of neither, so that is recorded and said.
"""

from __future__ import annotations

import os
import platform
import warnings
from pathlib import Path
from typing import Any

import jax
import jaxlib

from keepscore.differences import differences
from keepscore.errors import KeepscoreWarning
from keepscore.networks.compilation import threads


def machine() -> dict[str, Any]:
    """Threads, processor, versions and switches that numbers depend on."""
    return {
        "threads": threads(),
        "devices": len(jax.devices()),
        "backend": jax.default_backend(),
        "processor": processor(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "x64": bool(jax.config.jax_enable_x64),  # type: ignore[attr-defined]
        "XLA_FLAGS": " ".join(sorted(set(os.environ.get("XLA_FLAGS", "").split()))),
    }


def processor() -> str:
    """Its name, where the system tells it; else its kind."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except (OSError, UnicodeDecodeError):
        pass
    return platform.processor() or platform.machine()


def warn_of_another(now: dict[str, Any], then: dict[str, Any], stacklevel: int) -> bool:
    """Warn if a run goes on elsewhere than it began; whether it does."""
    changed = list(differences(then, now, words=("then", "now")))
    if changed:
        warnings.warn(
            f"This run began on another machine or with other threads ({'; '.join(changed)}). It "
            "goes on, and its result is as good; but its last digits are those of neither. For "
            "bitwise the same weights, resume it where it began.",
            KeepscoreWarning,
            stacklevel=stacklevel + 1,
        )
    return bool(changed)
