"""Options for XLA when a network is compiled, what it computes with, programs that networks built
alike share, and room for more of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

KNOWN = ("keepscore", "equinox", "builtins")  # packages whose classes do not change
MAPPED, MOST_MAPPED = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


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


def make_room() -> bool:
    """Forget all compiled programs if half of the room for them is taken; whether that was so.

    JAX keeps every program it compiles, and each takes a dozen and more regions of memory, a new
    kind of training some 700. Linux gives a process 65,530 regions: after some dozens of trainings
    of different kinds the next compilation would fail, and with it the process.
    """
    try:
        most = int(MOST_MAPPED.read_text())
        with MAPPED.open("rb") as file:
            taken = sum(1 for _ in file)
    except (OSError, ValueError):  # another system
        return False
    if taken <= most / 2:
        return False
    _made.cache_clear()
    jax.clear_caches()
    return True


@dataclass(frozen=True)
class _Program:
    """What a program is made for, by which it is found again, and how it is made."""

    key: Hashable
    make: Callable[[], Any] = field(compare=False)


@lru_cache(maxsize=64)
def _made(program: _Program) -> Any:
    return program.make()


def shared(key: Hashable | None, make: Callable[[], Any]) -> Any:
    """make(), or what it gave for an equal key before. JAX keeps compiled programs with
    their function: called again, it compiles nothing for shapes it has seen. All that `make`
    depends on must be in the key; without one, or one without a hash, it is made anew."""
    try:
        hash(key)
    except TypeError:
        key = None
    return make() if key is None else _made(_Program(key, make))


def without_arrays(tree: object) -> tuple[Any, Any, Hashable | None]:
    """(arrays, others, key of the others): `eqx.combine(arrays, others)` is the tree again. Arrays
    go into a compiled program as arguments, so that it serves a network with other numbers. A
    network with a class that is not ours has no key: what it computes may change with
    functions that nobody sees from here."""
    arrays, others = eqx.partition(tree, eqx.is_array)
    structure = jax.tree.structure(others)
    leaves = tuple((type(leaf), leaf) for leaf in jax.tree.leaves(others))
    return arrays, others, (structure, leaves) if is_known(structure) else None


def is_known(structure: jax.tree_util.PyTreeDef) -> bool:
    """Whether all classes in a tree are of this package or of the libraries below it."""
    node = structure.node_data()
    if node is not None and node[0].__module__.split(".")[0] not in KNOWN:
        return False
    return all(is_known(child) for child in structure.children())
