"""The network's score s = d h(x, theta) / d theta, three ways, and its loss.

theta enters only the head, so only the head is differentiated; the features are a constant. With
`head(features, theta)` acting row by row:

    autodiff            one reverse pass of the head, whatever d is; exact
    forward             d tangents carried along with the head (jvp); exact
    finite-difference   [h(theta + eps_k e_k) - h(theta)] / eps_k, as the paper does; approximate

All three are differentiated once more, in the weights, by the training step. They are oracles for
each other.

    L_k = mean_i rho(s_ik - t_ik),    t_ik = d log p(x_i | theta_i) / d theta_k,  Y = 1 pairs only

    squared   rho(e) = e^2                                the paper's
    huber     rho(e) = 2 (sqrt(1 + (e / m_k)^2) - 1)      pseudo-Huber: linear in the tails
    cauchy    rho(e) = log(1 + (e / m_k)^2)               logarithmic in the tails

m_k is the median of |t_ik| over the training rows. All three are least where s = t, so for exact
scores any of them will do; but a few rows whose score is thousands of times the median decide alone
what the squared loss does. Their gradients in e are at most 2 / m_k (huber) and 1 / m_k (cauchy).
Joint scores are only right on average, and least squares alone finds averages: for them, only
squared is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from keepscore.checks import Floats

ScoreMethod = Literal["autodiff", "forward", "finite-difference"]
SCORE_METHODS: tuple[ScoreMethod, ...] = ("autodiff", "forward", "finite-difference")
Residual = Literal["squared", "huber", "cauchy"]
RESIDUALS: tuple[Residual, ...] = ("squared", "huber", "cauchy")
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


def score_loss(
    network: Float[Array, "b d"],
    exact: Float[Array, "b d"],
    residual: str = "squared",
    scale: Float[Array, " d"] | None = None,
) -> Float[Array, " d"]:
    """L_k for each parameter k; their sum is the unweighted score loss. `scale` is m."""
    return jnp.mean(residual_losses(network - exact, residual, scale), axis=0)


def residual_losses(
    error: Float[Array, "b d"], residual: str, scale: Float[Array, " d"] | None
) -> Float[Array, "b d"]:
    """rho of each error; `scale` is m, which the squared loss does not need."""
    if residual == "squared":
        return error**2
    assert scale is not None
    r = error / scale
    if residual == "huber":
        # 2 (sqrt(1 + r^2) - 1), without the difference of nearly equal numbers
        return 2 * r**2 / (1 + jnp.sqrt(1 + r**2))
    return jnp.log1p(r**2)


def score_scale(score: NDArray[np.floating]) -> Floats:
    """m: the median of |score| for each parameter, from rows (n, d); where more than half of them
    are zero, the mean, and 1 where all are."""
    size = np.abs(np.asarray(score, dtype=np.float64))
    median, mean = np.median(size, axis=0), size.mean(axis=0)
    found = np.where(median > 0, median, mean)
    return np.where(found > 0, found, 1.0)


def score_tail(score: NDArray[np.floating]) -> float:
    """How heavy the tails are: the 99% quantile of |score| over its median (3.8 for a normal
    distribution), in the middle over the parameters."""
    size = np.abs(np.asarray(score, dtype=np.float64))
    return float(np.median(np.quantile(size, 0.99, axis=0) / score_scale(score)))


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
