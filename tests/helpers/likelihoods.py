"""Likelihoods for tests of inference: the Gaussian toy's in closed form, and wrong ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from toys import GaussianToy

from keepscore.likelihood import Likelihood
from keepscore.space import Parameter, Space


def toy_groups(g, n=10, seed=0, region="test", theta=None):
    """The toy, true theta (g, 2), and observations (g, n, 4)."""
    toy, rng = GaussianToy(), np.random.default_rng(seed)
    theta = toy.space.uniform(g, rng, region) if theta is None else np.tile(theta, (g, 1))
    x = toy.simulate(np.repeat(theta, n, axis=0), rng).reshape(g, n, toy.m)
    return toy, theta, x


class FastToy(GaussianToy):
    """The toy with a likelihood from sufficient statistics: thousands of groups in no time."""

    def given(self, xs):
        slow = super().given(xs)
        groups = np.asarray(xs).reshape(slow.group_count, -1)
        count, mean, spread = groups.shape[1], groups.mean(1), groups.var(1)
        constant = -0.5 * count * np.log(2 * np.pi)

        def formula(m, s, centre, var):
            q = (var + (centre - m) ** 2) * np.exp(-2 * s)
            return constant - count * s - 0.5 * count * q, q

        def pairs(theta, group):
            return formula(theta[:, 0], theta[:, 1], mean[group], spread[group])[0]

        def pairs_gradient(theta, group):
            m, s = theta[:, 0], theta[:, 1]
            value, q = formula(m, s, mean[group], spread[group])
            d_mean = count * (mean[group] - m) * np.exp(-2 * s)
            return value, np.stack([d_mean, count * (q - 1)], axis=1)

        def surface(theta):
            return formula(theta[:, 0], theta[:, 1], mean[:, None], spread[:, None])[0]

        return replace(slow, pairs=pairs, pairs_gradient=pairs_gradient, surface=surface)


class Sharpened:
    """A wrong likelihood, `factor` times too sharp: a stand-in for a poor surrogate."""

    def __init__(self, model, factor=2.0):
        self.model, self.factor, self.space = model, factor, model.space

    def given(self, xs):
        like, k = self.model.given(xs), self.factor
        return replace(
            like,
            pairs=lambda t, g: k * like.pairs(t, g),
            pairs_gradient=lambda t, g: tuple(k * a for a in like.pairs_gradient(t, g)),
            surface=lambda t: k * like.surface(t),
        )


def from_function(value, gradient, d=2, width=1.0, groups=1):
    """A likelihood of `groups` groups from l(theta (m, d), group (m,)) and its gradient."""
    space = Space([Parameter(f"p{k}", -width, width, "identity") for k in range(d)])

    def surface(theta):
        return np.stack([value(theta, np.full(len(theta), i)) for i in range(groups)])

    def both(theta, group):
        return value(theta, group), gradient(theta, group)

    return Likelihood(space, groups, 1, value, both, surface, single=groups == 1)


def in_float32(like):
    """The same likelihood as a network would give it: every result rounded to float32."""

    def rounded(a):
        return np.asarray(a).astype(np.float32).astype(float)

    return replace(
        like,
        pairs=lambda t, g: rounded(like.pairs(t, g)),
        pairs_gradient=lambda t, g: tuple(rounded(a) for a in like.pairs_gradient(t, g)),
        surface=lambda t: rounded(like.surface(t)),
    )


def bent(exact, height=2.0):
    """A surrogate: the exact likelihood plus a smooth error that moves estimates and sets."""

    def error(theta):
        angle = theta @ np.linspace(1.5, 1.0, theta.shape[1])
        return height * (np.sin(angle) + 0.4 * theta[:, 0] ** 3)

    def slope(theta):
        weights = np.linspace(1.5, 1.0, theta.shape[1])
        out = np.cos(theta @ weights)[:, None] * weights
        out[:, 0] += 1.2 * theta[:, 0] ** 2
        return height * out

    def pairs_gradient(theta, group):
        value, gradient = exact.pairs_gradient(theta, group)
        return value + error(theta), gradient + slope(theta)

    return replace(
        exact,
        kind="surrogate",
        pairs=lambda theta, group: exact.pairs(theta, group) + error(theta),
        pairs_gradient=pairs_gradient,
        surface=lambda theta: exact.surface(theta) + error(theta),
    )
