"""Several processes that train one surrogate, on one host or on many.

After `jax.distributed.initialize()` in each of them, all take every step together: each holds the
whole data and the same weights, and works on its share of a batch. So what decides how the run goes
on must be the same everywhere, and only the first process writes:

    first       process 0: it alone locks the folder, writes checkpoints, history and surrogate
    agree       the first one's number, and whether anybody was asked to stop
    same        the settings, with the fingerprints of the data, or an error in all of them
    meet        nobody goes on before all are here

With one process all of this is nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from keepscore.errors import MismatchError


def several() -> bool:
    """Whether other processes take part."""
    return jax.process_count() > 1


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return jax.process_index() == 0


def agree(number: int, stop: bool) -> tuple[int, bool]:
    """The first process's number, and whether any process is to stop."""
    if not several():
        return number, stop
    every = _gathered(np.array([number, int(stop)], np.int64))
    return int(every[0, 0]), bool(every[:, 1].any())


def require_same(settings: Mapping[str, Any]) -> None:
    """All processes have these settings, or each raises a `MismatchError`."""
    if not several():
        return
    names = sorted(settings)
    every = _gathered(np.stack([_digest(settings[name]) for name in names]))
    differ = [name for k, name in enumerate(names) if (every[:, k] != every[0, k]).any()]
    if differ:
        raise MismatchError(
            f"The {jax.process_count()} processes that train together differ in "
            f"{', '.join(differ)}. All must call ks.train with the same data, network, loss and "
            "settings."
        )


def meet(where: str) -> None:
    """Wait for all processes."""
    if several():
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(where)


def _digest(value: object) -> np.ndarray:
    text = json.dumps(value, sort_keys=True)
    return np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8).astype(np.int32)


def _gathered(array: np.ndarray) -> np.ndarray:
    """(processes, ...)"""
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array))
