"""One round of our training steps: the compiled loop `ks.train` runs, one epoch at a time.

Like the peers' plain loops it draws the epoch's order and the thetas of Y = 0 inside the clock, and
does no validation and no checkpoint. The data are the same float32 arrays in memory.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.cases import BATCH, LEARNING_RATE, WEIGHT_DECAY, synthetic
from benchmarks.peers.processes import Round
from keepscore.losses import ASA, BCE
from keepscore.networks.base import split
from keepscore.networks.catalogue import resolve
from keepscore.training.compiled_epoch import BatchRows, Tables, runner
from keepscore.training.config import TrainConfig
from keepscore.training.step import adam
from keepscore.training.step import start as first_state

STRUCTURE = {"sis": "markov", "field": "stationary-field"}


def short_config(epochs: int) -> TrainConfig:
    """The paper's settings, for so many epochs and no more."""
    return TrainConfig.paper("sis", min_epochs=epochs, max_epochs=epochs)


def start(settings: dict[str, Any]) -> Round:
    """Settings: loss ("BCE" or "ASA"), family, size, steps. A round answers {"ms": per step}."""
    family, steps = settings["family"], settings["steps"]
    theta, x, score = synthetic(family, steps * BATCH)
    n, d = theta.shape
    loss = ASA.paper() if settings["loss"] == "ASA" else BCE()
    network = resolve(settings["size"], x.shape[1:], d, STRUCTURE[family], jax.random.key(0))
    weights, rest = split(network)
    optimizer = adam(LEARNING_RATE, WEIGHT_DECAY)
    run = runner(rest, loss, optimizer, members=1)
    tables = Tables(
        jnp.asarray(theta), jnp.asarray(x), jnp.asarray(score) if loss.uses_scores else None
    )
    rng = np.random.default_rng(0)
    state, done = first_state(weights, optimizer, loss, d), 0

    def play() -> dict[str, Any]:
        nonlocal state, done
        begin = time.perf_counter()
        index = jnp.asarray(rng.permutation(n).reshape(1, steps, BATCH).astype(np.int32))
        other = jnp.asarray(rng.integers(n, size=(1, steps, 1, BATCH), dtype=np.int32))
        plan = BatchRows(index, index, other, None)
        state, _, finite = run(state, tables, plan, jnp.int32(done), jnp.int32(steps))
        jax.block_until_ready(state)
        seconds = time.perf_counter() - begin
        if not finite:
            raise RuntimeError("The weights are no longer finite.")
        done += steps
        return {"ms": 1e3 * seconds / steps}

    play()  # compiles
    return play
