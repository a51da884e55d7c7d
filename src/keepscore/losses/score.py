"""The network's score s = d h(x, theta) / d theta, three ways, and its loss.

theta enters only the head, so only the head is differentiated; the features are a constant. With
`head(features, theta)` acting row by row:

    autodiff            one reverse pass of the head, whatever d is; exact
    forward             d tangents carried along with the head (jvp); exact
    finite-difference   [h(theta + eps_k e_k) - h(theta)] / eps_k, as the paper does; approximate

All three are differentiated once more, in the weights, by the training step. They are oracles for
each other.

    L_k = mean_i [s_ik - d log p(x_i | theta_i) / d theta_k]^2,    over pairs with Y = 1 only
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

ScoreMethod = Literal["autodiff", "forward", "finite-difference"]
SCORE_METHODS: tuple[ScoreMethod, ...] = ("autodiff", "forward", "finite-difference")
Head = Callable[[Any, Any], Any]
TOLERANCE = 0.01


def network_score(
    head: Head,
    features: Float[Array, "b f"],
    theta: Float[Array, "b d"],
    method: str,
    epsilon: Float[Array, " d"] | None = None,
) -> tuple[Float[Array, " b"], Float[Array, "b d"]]:
    """h and its score at pairs; h is shared between them. `epsilon` for finite differences."""

    def h(t: Array) -> Array:
        return head(features, t)

    if method == "autodiff":
        value, pull = jax.vjp(h, theta)
        (score,) = pull(jnp.ones_like(value))  # rows do not mix, so this is each row's gradient
        return value, score
    directions = jnp.eye(theta.shape[1], dtype=theta.dtype)
    if method == "forward":

        def along(e: Array) -> tuple[Array, Array]:
            return jax.jvp(h, (theta,), (jnp.broadcast_to(e, theta.shape),))

        return jax.vmap(along, out_axes=(None, -1))(directions)
    assert epsilon is not None
    value = h(theta)
    moved = jax.vmap(lambda e, size: h(theta + size * e), out_axes=-1)(directions, epsilon)
    return value, (moved - value[:, None]) / epsilon


def score_loss(network: Float[Array, "b d"], exact: Float[Array, "b d"]) -> Float[Array, " d"]:
    """L_k for each parameter k; their sum is the unweighted score loss."""
    return jnp.mean((network - exact) ** 2, axis=0)


@dataclass(frozen=True)
class Perturbation:
    """What the search for eps_k found: the sizes, and the worst relative error at each."""

    epsilon: tuple[float, ...]
    error: tuple[float, ...]

    @property
    def reached(self) -> bool:
        return max(self.error) <= TOLERANCE


def search_epsilon(
    head: Head, features: Float[Array, "b f"], theta: Float[Array, "b d"]
) -> Perturbation:
    """The eps_k with the smallest worst-case error against the exact score, on one batch.

    The paper starts near 1e-5 and goes down. In float32 the difference of two logits at 1e-5 is
    mostly rounding, so sizes in both directions are tried, 1e-7 to 1, three a decade, and the best
    is taken for each parameter. A score that passes through zero would make any relative error
    infinite; errors are relative to the score or its root mean square, whichever is larger.
    """
    d = theta.shape[1]
    exact = np.asarray(network_score(head, features, theta, "autodiff")[1], np.float64)
    scale = np.maximum(np.abs(exact), np.sqrt((exact**2).mean(axis=0)))
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    sizes = 10.0 ** (-np.arange(0, 22) / 3)

    @jax.jit
    def differences(epsilon: Array) -> Array:
        return network_score(head, features, theta, "finite-difference", epsilon)[1]

    errors = np.empty((len(sizes), d))
    for i, size in enumerate(sizes):
        found = np.asarray(differences(jnp.full(d, size, jnp.float32)), np.float64)
        errors[i] = (np.abs(found - exact) / scale).max(axis=0)
    best = errors.argmin(axis=0)
    return Perturbation(
        tuple(float(sizes[i]) for i in best),
        tuple(float(errors[i, k]) for k, i in enumerate(best)),
    )
