"""Two moons: a half circle whose place depends on theta through an absolute value.

    a ~ U(-pi/2, pi/2),  r ~ N(0.1, 0.01^2),  p = (r cos a + 1/4, r sin a)
    x = p + (-|theta1 + theta2|, -theta1 + theta2) / sqrt(2),   theta uniform on [-1, 1]^2

With (u, v) = x - shift - (1/4, 0) and r^2 = u^2 + v^2, the density of x is that of r and a over the
Jacobian r: N(r; 0.1, 0.01^2) / (pi r) where u > 0, and 0 elsewhere (r < 0 is ten standard
deviations away and left out). The benchmark's reference draws come from the simulator itself.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import keepscore as ks
from benchmarks.sbibm.tasks.base import Rng, Task, box, names
from keepscore.checks import Floats
from keepscore.models.base import Symmetry

OFFSET, RADIUS, WIDTH = 0.25, 0.1, 0.01


def shift(theta: Floats) -> tuple[Floats, Floats]:
    return -abs(theta[:, 0] + theta[:, 1]) / np.sqrt(2), (theta[:, 1] - theta[:, 0]) / np.sqrt(2)


def simulate(theta: Floats, rng: Rng) -> Floats:
    a = rng.uniform(-np.pi / 2, np.pi / 2, len(theta))
    r = RADIUS + WIDTH * rng.standard_normal(len(theta))
    first, second = shift(theta)
    return np.stack([r * np.cos(a) + OFFSET + first, r * np.sin(a) + second], axis=1)


def log_prob(theta: Floats, x: Floats) -> Floats:
    first, second = shift(theta)
    u, v = x[:, 0] - first - OFFSET, x[:, 1] - second
    r = jnp.sqrt(u**2 + v**2)
    gaussian = -0.5 * ((r - RADIUS) / WIDTH) ** 2 - jnp.log(WIDTH * jnp.sqrt(2 * jnp.pi))
    return jnp.where(u > 0, gaussian - jnp.log(jnp.pi * r), -jnp.inf)


def two_moons() -> Task:
    space = box(names(2), -1.0, 1.0)
    # |theta1 + theta2| and theta2 - theta1 stay the same.
    mirrored = Symmetry("mirrored", np.arange(2), (1, 0), 1, (-1, -1))
    model = ks.models.from_functions(
        space, (2,), simulate=simulate, log_prob=log_prob, name="two_moons", declares=[mirrored]
    )
    return Task("two_moons", "two_moons", model)
