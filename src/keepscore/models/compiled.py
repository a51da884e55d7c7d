"""A user's JAX function of pairs, compiled as a whole where that is needed and safe.

Called as it is, each operation of a JAX function runs by itself, which is fine; but a loop
(`lax.scan`, `while_loop`, `fori_loop`) is traced and compiled anew at every call: half a second for
a likelihood that takes a millisecond. So functions with a loop are compiled whole.

Either way JAX compiles once for each number of rows, the whole or every operation, and a search
that closes in asks for ever fewer of them. So rows are padded: to a power of two, and from MANY on
to a multiple of MANY.

Not compiled, whatever they hold: functions with factorisations, solves or Fourier transforms (two
batched ones in one compiled function can deadlock on CPUs) and those that call back to Python.
A compiled function has the values of globals and closures built in. So it is compiled anew when
its fingerprint (`identity.py`) changes, and not at all where there is none.
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

MANY = 256
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
        n = len(theta)
        size = 1 << (n - 1).bit_length() if n < MANY else -(-n // MANY) * MANY
        return np.asarray(run(_pad(theta, size), _pad(x, size)))[:n]

    def _run(self, theta: Floats, x: NDArray[Any]) -> Callable[..., Any] | None:
        """The function compiled, as its code is now; None where it is not to be."""
        import jax

        if "wanted" not in self.kept:
            names = operations(self.function, theta[:1], x[:1])
            self.kept["jax"], self.kept["wanted"] = names is not None, wants_compiling(names)
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


def operations(function: Callable[..., Any], theta: Floats, x: NDArray[Any]) -> set[str] | None:
    """Names of all operations of a function; None if it is not one of JAX."""
    import jax

    try:
        return set(primitives(jax.make_jaxpr(function)(theta, x).jaxpr))
    except Exception:  # whatever a foreign function raises: it is called as it is
        return None


def wants_compiling(names: Iterable[str] | None) -> bool:
    """Whether there is a loop among these operations, and nothing that must not be compiled."""
    return names is not None and any(loop in names for loop in LOOPS) and may_be_compiled(names)


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


def _pad(rows: NDArray[Any], size: int) -> NDArray[Any]:
    short = size - len(rows)
    return rows if short == 0 else np.concatenate([rows, np.repeat(rows[-1:], short, axis=0)])
