"""Binary cross-entropy of the classifier behind the ratio.

Pairs (x_i, theta_i) have Y = 1, pairs (x_i, theta_pi(i)) have Y = 0, and h is the logit:

    L_BCE = 1/2 [ mean_i softplus(-h(x_i, theta_i)) + mean_ij softplus(h(x_i, theta_pi(i,j))) ]

the mean over all pairs when there is one Y = 0 pair for each x. With k of them (j = 1..k) each has
the weight 1/k, so both classes weigh the same and the minimiser stays log p(x | theta) / p(x).
"""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float

from keepscore.checks import Floats

Logits = TypeVar("Logits", Array, Floats)


def cross_entropy(own: Float[Array, " b"], other: Float[Array, "k b"]) -> Float[Array, ""]:
    """L_BCE from the logits of the Y = 1 pairs and of k Y = 0 pairs for each x."""
    return 0.5 * (jax.nn.softplus(-own).mean() + jax.nn.softplus(other).mean())


def pair_losses(own: Logits, other: Logits) -> Logits:
    """The two losses of each x, their mean: softplus(-h) with its own theta, softplus(h) with
    another's. In JAX for its arrays, and in float64 for NumPy's."""
    if isinstance(own, jax.Array):
        return 0.5 * (jax.nn.softplus(-own) + jax.nn.softplus(other))
    return 0.5 * (np.logaddexp(0.0, -own) + np.logaddexp(0.0, other))
