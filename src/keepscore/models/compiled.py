"""A user's JAX function of pairs, compiled as a whole where that is safe.

Called as it is, each operation of a JAX function is compiled and runs by itself, and a loop
(`lax.scan`, `while_loop`, `fori_loop`) is traced and compiled anew at every call. As a whole both
take a fraction of that: exact tests of 32 groups of SLCP .4 s where they took 14 s, and 3.8 s
where they took 47 s the first time.

Either way JAX compiles once for each number of rows, and a search that closes in asks for ever
fewer of them. So rows are padded to one of few SIZES; MOST at a time.

Not compiled: functions with factorisations, solves or Fourier transforms (two batched ones in one
compiled function can deadlock on CPUs), those that call back to Python, and, without a loop, those
that hold LARGE arrays, which a compiler may work on for long. A compiled function has the values of
globals and closures built in. So it is compiled anew when its fingerprint (`identity.py`) changes,
and not at all where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats
from keepscore.models.identity import UNKNOWN, fingerprint

if TYPE_CHECKING:  # JAX is imported where it is needed
    from jax.extend.core import Jaxpr

SIZES = (1, 4, 16, 64, 256, 512, 1024, 2048, 4096)  # of rows: coarse where they cost nothing
MOST = SIZES[-1]
LARGE = 1 << 20  # bytes of constants
LOOPS = ("scan", "while")
LEFT_ALONE = (
    "cholesky", "triangular_solve", "linear_solve", "lu", "qr", "geqrf", "householder", "eig",
    "svd", "schur", "hessenberg", "tridiagonal", "fft", "callback",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Compiled:
    """function(theta (n, d), x (n, ...)) -> (n, ...), row by row; the same, sooner.

    `written` is what the user wrote, and what its fingerprint is taken of.
    """

    function: Callable[..., Any]
    written: object
    kept: dict[str, Any] = field(default_factory=dict, repr=False)

    def __call__(self, theta: Floats, x: NDArray[Any]) -> Any:
        import jax

        if isinstance(theta, jax.core.Tracer) or isinstance(x, jax.core.Tracer) or len(theta) == 0:
            return self.function(theta, x)
        run = self._run(theta, x) or self.function
        if not self.kept["jax"]:
            return run(theta, x)
        parts = [slice(k, k + MOST) for k in range(0, len(theta), MOST)]
        found = [_padded(run, theta[part], x[part]) for part in parts]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _run(self, theta: Floats, x: NDArray[Any]) -> Callable[..., Any] | None:
        """The function compiled, as its code is now; None where it is not to be."""
        import jax

        if "wanted" not in self.kept:
            found = operations(self.function, theta[:1], x[:1])
            self.kept["jax"], self.kept["wanted"] = found is not None, wants_compiling(found)
        now = fingerprint(self.written) if self.kept["wanted"] else UNKNOWN
        if now == UNKNOWN:
            return None
        if self.kept.get("code") != now:
            self.kept["code"] = now
            # A new function each time: JAX finds what it has compiled by the function's identity.
            self.kept["run"] = jax.jit(lambda t, x: self.function(t, x))
        return self.kept["run"]

    def __getstate__(self) -> dict[str, Any]:
        """For other processes: what was compiled stays here."""
        return {"function": self.function, "written": self.written, "kept": {}}


@dataclass(frozen=True)
class Operations:
    """Of a function of JAX: the names of its operations, and the bytes of the arrays it holds."""

    names: frozenset[str]
    constants: int = 0


def operations(function: Callable[..., Any], theta: Floats, x: NDArray[Any]) -> Operations | None:
    """What a function does; None if it is not one of JAX."""
    import jax

    try:
        traced = jax.make_jaxpr(function)(theta, x)
        held = sum(int(getattr(value, "nbytes", 0)) for value in traced.consts)
        return Operations(frozenset(primitives(traced.jaxpr)), held)
    except Exception:  # whatever a foreign function raises: it is called as it is
        return None


def wants_compiling(found: Operations | None) -> bool:
    """Whether these operations gain by being compiled as a whole, and it does no harm."""
    if found is None or not may_be_compiled(found.names):
        return False
    return found.constants < LARGE or any(loop in found.names for loop in LOOPS)


def may_be_compiled(names: Iterable[str]) -> bool:
    """Whether none of these operations is to be left alone."""
    return not any(part in name for name in names for part in LEFT_ALONE)


def primitives(jaxpr: Jaxpr) -> Iterator[str]:
    """Names of all operations, those inside of others too."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inside: Any = getattr(inner, "jaxpr", inner)
                if hasattr(inside, "eqns"):
                    yield from primitives(inside)


def _padded(run: Callable[..., Any], theta: Floats, x: NDArray[Any]) -> NDArray[Any]:
    """run(theta, x), asked for one of SIZES rows."""
    n = len(theta)
    size = next(size for size in SIZES if size >= n)
    return np.asarray(run(_pad(theta, size), _pad(x, size)))[:n]


def _pad(rows: NDArray[Any], size: int) -> NDArray[Any]:
    short = size - len(rows)
    return rows if short == 0 else np.concatenate([rows, np.repeat(rows[-1:], short, axis=0)])
