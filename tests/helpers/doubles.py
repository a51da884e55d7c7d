"""Surrogates without training: the exact log-ratio of a model, as it is or bent in a known way."""

import numpy as np

from keepscore.evaluation.evidence import log_evidence
from keepscore.likelihood import Likelihood

_known = {}


def _evidence(model, x):
    key = (type(model), x.tobytes())
    if key not in _known:
        _known[key] = log_evidence(model, x)[0]
    return _known[key]


class Bent:
    """h(x, theta) = power * log p(x|theta) - log p(x) + tilt . theta; 1 and 0 are exact."""

    def __init__(self, model, tilt=0.0, power=1.0):
        self.model, self.space, self.x_shape = model, model.space, model.x_shape
        self.tilt, self.power = np.broadcast_to(float(tilt), model.space.d), power

    def log_ratio(self, theta, x):
        value = self.power * self.model.log_prob(theta, x) + np.asarray(theta) @ self.tilt
        return value - _evidence(self.model, np.asarray(x))

    def score(self, theta, x):
        return self.power * self.model.score(theta, x) + self.tilt

    def given(self, xs):
        exact = self.model.given(xs)
        bend = self.tilt * exact.group_size

        def pairs(theta, group):
            return self.power * exact.pairs(theta, group) + theta @ bend

        def pairs_gradient(theta, group):
            value, gradient = exact.pairs_gradient(theta, group)
            return self.power * value + theta @ bend, self.power * gradient + bend

        def surface(theta):
            return self.power * exact.surface(theta) + theta @ bend

        return Likelihood(
            self.space,
            exact.group_count,
            exact.group_size,
            pairs,
            pairs_gradient,
            surface,
            exact.single,
            kind="surrogate",
        )
