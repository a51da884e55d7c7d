"""Models of five parameters and more, in closed form."""

from __future__ import annotations

import numpy as np

from keepscore.likelihood import Likelihood, as_groups
from keepscore.space import Parameter, Space


class SLCP:
    """Simple likelihood, complex posterior (Papamakarios et al. 2019): four points in the plane,
    mean (t1, t2), standard deviations t3^2, t4^2, correlation tanh t5. Singular at t3 = 0 and
    t4 = 0, four modes."""

    name = "slcp"

    def __init__(self):
        self.space = Space([Parameter(f"t{k}", -3, 3, "identity") for k in range(1, 6)])
        self.x_shape = (8,)

    def simulate(self, theta, rng):
        mean, s1, s2, rho = self._parts(theta)
        z = rng.standard_normal((len(theta), 4, 2))
        first = s1[:, None] * z[..., 0]
        second = s2[:, None] * (rho[:, None] * z[..., 0] + np.sqrt(1 - rho**2)[:, None] * z[..., 1])
        return (mean[:, None] + np.stack([first, second], axis=2)).reshape(len(theta), 8)

    @staticmethod
    def _parts(theta):
        theta = np.asarray(theta, dtype=float)
        return theta[:, :2], theta[:, 2] ** 2, theta[:, 3] ** 2, np.tanh(theta[:, 4])

    def _log_prob(self, theta, x):
        mean, s1, s2, rho = (part[:, None] for part in self._parts(theta))
        left = np.maximum(1 - rho**2, 1e-12)
        y = x.reshape(-1, 4, 2) - mean
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            a, b = y[..., 0] / s1, y[..., 1] / s2
            square = a**2 - 2 * rho * a * b + b**2
            value = -0.5 * square / left - np.log(s1 * s2) - 0.5 * np.log(left)
            slope = [
                (a - rho * b) / (left * s1),
                (b - rho * a) / (left * s2),
                ((a**2 - rho * a * b) / left - 1) / s1 * 2 * theta[:, 2, None],
                ((b**2 - rho * a * b) / left - 1) / s2 * 2 * theta[:, 3, None],
                a * b - rho * square / left + rho,
            ]
        return value.sum(axis=1), np.stack([one.sum(axis=1) for one in slope], axis=1)

    def given(self, xs):
        groups, single = as_groups(xs, self.x_shape)

        def both(theta, group):
            value, gradient = self._log_prob(theta, groups[group, 0])
            return np.where(np.isnan(value), -np.inf, value), gradient

        def surface(theta):
            return np.stack([both(theta, np.full(len(theta), i))[0] for i in range(len(groups))])

        return Likelihood(
            self.space, len(groups), 1, lambda t, g: both(t, g)[0], both, surface, single
        )


class Linear:
    """Gaussian linear regression with six coefficients of known design: everything in closed form;
    `factor` times too sharp a likelihood stands for a poor surrogate."""

    name = "linear"

    def __init__(self, d=6, factor=1.0, n=30, sd=0.5):
        rng = np.random.default_rng(0)
        self.design, self.sd, self.factor = rng.standard_normal((n, d)), sd, factor
        self.space = Space([Parameter(f"b{k}", -2, 2, "identity") for k in range(d)])
        self.x_shape = (n,)
        self.x_dtype = np.dtype(np.float64)
        self.score_kind, self.symmetries, self.structure = "exact", (), None

    def settings(self):
        return {}

    def simulate(self, theta, rng):
        return theta @ self.design.T + self.sd * rng.standard_normal((len(theta), *self.x_shape))

    def log_prob_and_score(self, theta, x):
        residual = x - theta @ self.design.T
        value = -0.5 * (residual**2).sum(axis=1) / self.sd**2
        value = value - len(self.design) * (np.log(self.sd) + 0.5 * np.log(2 * np.pi))
        return self.factor * value, self.factor * residual @ self.design / self.sd**2

    def log_prob(self, theta, x):
        return self.log_prob_and_score(theta, x)[0]

    log_ratio = log_prob

    def score(self, theta, x):
        return self.log_prob_and_score(theta, x)[1]

    def given(self, xs):
        groups, single = as_groups(xs, self.x_shape)
        g, n = groups.shape[:2]
        mean = groups.mean(axis=1)

        def both(theta, group):
            residual = mean[group] - theta @ self.design.T
            scale = self.factor * n / self.sd**2
            return -0.5 * scale * (residual**2).sum(axis=1), scale * residual @ self.design

        def surface(theta):
            fitted = theta @ self.design.T
            square = (mean**2).sum(axis=1)[:, None] - 2 * mean @ fitted.T + (fitted**2).sum(axis=1)
            return -0.5 * self.factor * n / self.sd**2 * square

        return Likelihood(self.space, g, n, lambda t, h: both(t, h)[0], both, surface, single)
