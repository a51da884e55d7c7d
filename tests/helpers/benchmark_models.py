"""Two right models that are hard to check, after Lueckmann et al. (2021), appendix T.

SLCP        x: four points of a Gaussian in the plane, mean (t1, t2), standard deviations t3^2 and
            t4^2, correlation tanh(t5). Sharp where t3 or t4 is small, singular at zero, and the
            same for -t3 and -t4.
two moons   x = (r cos a + .25 - |t1 + t2| / sqrt 2, r sin a + (t2 - t1) / sqrt 2), with
            a ~ U(-pi/2, pi/2), r ~ N(.1, .01^2): x lies on one side of a line that moves with
            theta.
            The same for (t1, t2) and (-t2, -t1).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import keepscore as ks
from keepscore.models.base import Symmetry

ROOT2 = np.sqrt(2.0)


def slcp_space():
    names = [f"t{k}" for k in range(1, 6)]
    return ks.Space([ks.Parameter(name, -3, 3, "identity") for name in names])


def simulate_slcp(theta, rng):
    z = rng.standard_normal((len(theta), 4, 2))
    first, second, rho = theta[:, 2:3] ** 2, theta[:, 3:4] ** 2, np.tanh(theta[:, 4:5])
    one = theta[:, :1] + first * z[..., 0]
    two = theta[:, 1:2] + second * (rho * z[..., 0] + np.sqrt(1 - rho**2) * z[..., 1])
    return np.stack([one, two], axis=2)


def slcp_log_prob(theta, x):
    first, second, rho = theta[:, 2:3] ** 2, theta[:, 3:4] ** 2, jnp.tanh(theta[:, 4:5])
    a, b = (x[..., 0] - theta[:, :1]) / first, (x[..., 1] - theta[:, 1:2]) / second
    rest = 1 - rho**2
    quadratic = (a**2 - 2 * rho * a * b + b**2) / rest
    log_det = 2 * jnp.log(first) + 2 * jnp.log(second) + jnp.log(rest)
    return (-0.5 * (quadratic + log_det) - np.log(2 * np.pi)).sum(axis=1)


def flipped(name, *signs):
    return Symmetry(name, np.arange(8), tuple(range(5)), theta_sign=signs)


def slcp(log_prob=slcp_log_prob, simulate=simulate_slcp, declares=None):
    if declares is None:
        declares = [flipped("-t3", 1, 1, -1, 1, 1), flipped("-t4", 1, 1, 1, -1, 1), "iid"]
    return ks.models.from_functions(
        slcp_space(), (4, 2), simulate=simulate, log_prob=log_prob, name="slcp", declares=declares
    )


def moons_space():
    return ks.Space([ks.Parameter(name, -1, 1, "identity") for name in ("t1", "t2")])


def simulate_moons(theta, rng):
    a = rng.uniform(-np.pi / 2, np.pi / 2, len(theta))
    r = rng.normal(0.1, 0.01, len(theta))
    shift = np.stack([-np.abs(theta.sum(axis=1)), theta[:, 1] - theta[:, 0]], axis=1) / ROOT2
    return np.stack([r * np.cos(a) + 0.25, r * np.sin(a)], axis=1) + shift


def moons_log_prob(theta, x):
    p = x[:, 0] + jnp.abs(theta.sum(axis=1)) / ROOT2 - 0.25
    q = x[:, 1] - (theta[:, 1] - theta[:, 0]) / ROOT2
    r = jnp.sqrt(p**2 + q**2)
    z = (r - 0.1) / 0.01
    inside = -0.5 * z**2 - jnp.log(0.01 * np.sqrt(2 * np.pi)) - jnp.log(np.pi * r)
    return jnp.where(p > 0, inside, -jnp.inf)


def two_moons(log_prob=moons_log_prob, simulate=simulate_moons):
    mirror = Symmetry("(t1, t2) to (-t2, -t1)", np.arange(2), (1, 0), theta_sign=(-1, -1))
    return ks.models.from_functions(
        moons_space(), (2,), simulate=simulate, log_prob=log_prob, name="two moons",
        declares=[mirror],
    )  # fmt: skip
