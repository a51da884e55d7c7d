"""Regression: a normal density whose mean follows theta, and whose covariance does not.

    log q(x | theta) = log N(x; m(theta), (L' L)^-1),    m(theta) = theta D + silu(z_K) C + c

with L lower triangular, its diagonal exp(l), l bounded by 10, and z_K a residual network of theta:

    z_0     = theta A + a
    z_{k+1} = z_k + silu(silu(z_k) A_k + a_k) B_k + b_k

A mixture density (`mixture`) contains it, with a covariance for every theta; from few simulations
without scores that is too much to learn. This one has little to learn, and begins where most of it
is learned: at linear regression. With C = 0, rows (x_i, theta_i) and their residuals e_i,

    (D, c) = least squares,    S = sum_i e_i e_i' / (n - d - 1)
    (L' L)^-1 = (1 - w) S + w diag(S)

and w = p / n, since p numbers from hardly more rows have no covariance worth the name. The evidence
is computed from q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from keepscore.networks.layers import Linear, Source, beginning_small, computed
from keepscore.networks.mixture import LARGEST
from keepscore.networks.residual import Block, through

# The width of z, then that of the inner layer of each block.
SIZES: dict[str, dict[str, tuple[int, ...]]] = {"10k": {"widths": (64, 64)}}
LEAST_SD = 1e-4  # of a residual, in units of x; what theta tells exactly has none
MOST_OF_BOUND = 0.99  # where l may begin


class RegressionNetwork(eqx.Module):
    """log q(x | theta) for x of any shape, taken as a vector."""

    first: Linear
    blocks: tuple[Block, ...]
    last: Linear
    direct: Float[Array, "d p"]
    factor: Float[Array, "p p"]

    def __init__(self, x_shape: Sequence[int], d: int, rng: Source, widths: Sequence[int]) -> None:
        p, (width, *inner) = math.prod(x_shape), widths
        self.first = Linear(d, width, rng)
        self.blocks = tuple(Block(width, size, rng) for size in inner)
        self.last = beginning_small(Linear(width, p, rng), 0.0)
        self.direct = computed(rng, (d, p), lambda: np.zeros((d, p)))
        self.factor = computed(rng, (p, p), lambda: np.zeros((p, p)))

    def fitted_to(self, x: NDArray[np.float64], theta: NDArray[np.float64]) -> RegressionNetwork:
        """The same at linear regression of x (n, ...) on theta (n, d)."""
        rows = x.reshape(len(x), -1)
        n, p, d = *rows.shape, theta.shape[1]
        design = np.column_stack([np.ones(n), theta])
        found = np.linalg.lstsq(design, rows, rcond=None)[0]
        left = rows - design @ found
        covariance = left.T @ left / max(n - d - 1, 1)
        shrunk = min(1.0, p / n)
        own = np.maximum(np.diag(covariance), LEAST_SD**2)
        whole = (1 - shrunk) * covariance + np.diag(own - (1 - shrunk) * np.diag(covariance))
        lower = np.linalg.inv(np.linalg.cholesky(whole))
        share = np.clip(np.log(np.diag(lower)) / LARGEST, -MOST_OF_BOUND, MOST_OF_BOUND)
        factor = np.tril(lower, -1) + np.diag(LARGEST * np.arctanh(share))
        parts = (jnp.asarray(a, jnp.float32) for a in (found[0], found[1:], factor))
        return eqx.tree_at(lambda n: (n.last.bias, n.direct, n.factor), self, tuple(parts))

    def features(self, x: Float[Array, "b ..."]) -> Float[Array, "b f"]:
        return x.reshape(x.shape[0], -1)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """log q(x | theta), up to a constant."""
        mean = theta @ self.direct + self.last(through(self.blocks, self.first(theta)))
        log_diagonal = LARGEST * jnp.tanh(jnp.diagonal(self.factor) / LARGEST)
        below = self.factor * np.tri(len(log_diagonal), k=-1, dtype=np.float32)
        z = features - mean
        e = jnp.exp(log_diagonal) * z + z @ below.T
        return log_diagonal.sum() - 0.5 * (e**2).sum(axis=1)

    def settings(self) -> dict[str, list[int]]:
        """Widths: with x_shape and d, all that is needed to build the same network."""
        inner = [block.inner.bias.shape[-1] for block in self.blocks]
        return {"widths": [self.first.bias.shape[-1], *inner]}
