"""An exact likelihood written in JAX, for samplers: no call back to Python draw by draw.

With log_prob(theta, x) of pairs row by row, that of a group of n observations at one theta is

    l(theta) = sum_i log_prob(theta, x_i),

which a sampler can hold inside its own compiled program. It is computed in float64: the sampler
subtracts its maximum, and what is left may be a millionth of the whole. Where l or its gradient is
not finite (outside the support), l is minus infinity and the gradient zero.

Functions that factorise or transform (Cholesky, solve, eigh, FFT) are left to be called from
outside, as those whose code has no fingerprint: see `compiled.py`, which tells why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from keepscore.likelihood import Traced
from keepscore.models.compiled import may_be_compiled, primitives
from keepscore.models.identity import UNKNOWN, fingerprint

if TYPE_CHECKING:
    from jax import Array

OfRows = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class RowsLogLikelihood:
    """groups (g, n, ...), theta (d,), group -> l; equal for all data sets of one function, as long
    as its code, globals and closures are the same."""

    log_prob: OfRows
    code: str

    def __call__(self, groups: Array, theta: Array, group: Array) -> Array:
        import jax
        import jax.numpy as jnp

        x = groups[group]

        def value(t: Array) -> Array:
            return self.log_prob(jnp.broadcast_to(t, (len(x), len(t))), x).sum()

        @jax.custom_vjp
        def usable(t: Array) -> Array:
            return forward(t)[0]

        def forward(t: Array) -> tuple[Array, Array]:
            v, g = jax.value_and_grad(value)(t)
            finite = jnp.isfinite(v) & jnp.isfinite(g).all()
            return jnp.where(finite, v, -jnp.inf), jnp.where(finite, g, 0.0)

        def backward(g: Array, upstream: Array) -> tuple[Array]:
            return (upstream * g,)

        usable.defvjp(forward, backward)
        return usable(theta)


def traced_rows(log_prob: OfRows, groups: NDArray[Any], d: int) -> Traced | None:
    """The likelihood of groups (g, n, ...) in JAX; None where the function cannot be traced, or
    should not be."""
    written = fingerprint(getattr(log_prob, "written", log_prob))
    if isinstance(written, str):
        assert written == UNKNOWN
        return None
    code = json.dumps(written, sort_keys=True)
    try:
        held = _can_be_held(log_prob, code, d, groups.shape[2:], groups.dtype.str)
    except TypeError:  # a callable that cannot be hashed would be compiled for every data set
        return None
    return Traced(RowsLogLikelihood(log_prob, code), groups, double=True) if held else None


@lru_cache(maxsize=64)
def _can_be_held(
    log_prob: OfRows, code: str, d: int, x_shape: tuple[int, ...], x_dtype: DTypeLike
) -> bool:
    """Whether JAX can trace and differentiate the function, and nothing in it is left alone."""
    import jax

    with jax.enable_x64(True):
        theta = jax.ShapeDtypeStruct((2, d), np.float64)
        x = jax.ShapeDtypeStruct((2, *x_shape), np.dtype(x_dtype))
        try:
            gradient = jax.grad(lambda t, x: log_prob(t, x).sum())
            program = jax.make_jaxpr(gradient)(theta, x)
        except Exception:  # whatever a foreign function raises, the answer is no
            return False
    return may_be_compiled(set(primitives(program.jaxpr)))
