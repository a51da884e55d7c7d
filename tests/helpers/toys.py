"""A model with everything in closed form: x ~ N(mean, sd^2) in m coordinates.

theta = (mean, log sd). Small, exact, instant; the stand-in wherever a test is not about a model.
"""

from __future__ import annotations

import numpy as np

from keepscore.checks import as_theta
from keepscore.models.base import as_pairs, given_by_rows
from keepscore.space import Parameter, Space


class GaussianToy:
    name = "gaussian-toy"
    x_dtype = np.dtype(np.float64)
    score_kind = "exact"
    symmetries = ()
    structure = None

    def __init__(self, m: int = 4) -> None:
        self.m = m
        self.x_shape = (m,)
        self.space = Space(
            [Parameter("mean", -1, 1, "identity"), Parameter("sd", -0.7, 0.7, "log")]
        )

    def settings(self):
        return {"m": self.m}

    def simulate(self, theta, rng):
        theta = as_theta(theta, 2)
        noise = rng.standard_normal((len(theta), self.m))
        return theta[:, :1] + np.exp(theta[:, 1:]) * noise

    def simulate_with_score(self, theta, rng):
        x = self.simulate(theta, rng)
        return x, self.score(theta, x)

    def log_prob(self, theta, x):
        return self.log_prob_and_score(theta, x)[0]

    def score(self, theta, x):
        return self.log_prob_and_score(theta, x)[1]

    def log_prob_and_score(self, theta, x):
        theta, x = as_pairs(self, theta, x)
        sd = np.exp(theta[:, 1])
        z = (x - theta[:, :1]) / sd[:, None]
        value = -0.5 * (z**2).sum(1) - self.m * (theta[:, 1] + 0.5 * np.log(2 * np.pi))
        score = np.stack([z.sum(1) / sd, (z**2).sum(1) - self.m], axis=1)
        return value, score

    def given(self, xs):
        return given_by_rows(self, xs)
