"""Options for XLA when a network is compiled, and what it computes with."""

from __future__ import annotations

import os
from functools import cache

import jax


@cache
def compiler_options() -> dict[str, str] | None:
    """XLA on CPU may hand matrix products to a library of its own (YNNPACK); for products as small
    as these its plain kernels are faster. An XLA that does not know the option goes without."""
    if jax.default_backend() != "cpu":
        return None
    options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    try:
        jax.jit(lambda x: x + 1, compiler_options=options).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return options


def threads() -> int:
    """How many threads XLA computes with on the CPU: the cores this process may use."""
    stated = os.environ.get("NPROC", "")  # XLA's own variable
    if stated.isdecimal() and int(stated) > 0:
        return int(stated)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
