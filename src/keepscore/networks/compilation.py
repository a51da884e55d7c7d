"""Options for XLA when a network is compiled."""

from __future__ import annotations

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
