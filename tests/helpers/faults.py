"""Models with one planted fault each; `check_model` must convict every one.

Each fault keeps log_prob and score consistent with each other (by central differences if need be),
except the flipped sign, so that only the laws between simulator and likelihood can find it.
"""

import numpy as np

from keepscore.models.from_functions import central_differences


class Faulty:
    """A model with some parts replaced; everything else is the honest model's."""

    def __init__(self, model, log_prob=None, score=None, simulate=None):
        self._model, self._log_prob, self._score, self._simulate = model, log_prob, score, simulate
        self.symmetries, self.structure = (), None

    def __getattr__(self, name):
        return getattr(self._model, name)

    def simulate(self, theta, rng):
        return (self._simulate or self._model.simulate)(theta, rng)

    def log_prob(self, theta, x):
        return (self._log_prob or self._model.log_prob)(theta, x)

    def score(self, theta, x):
        if self._score is not None:
            return self._score(theta, x)
        if self._log_prob is None:
            return self._model.score(theta, x)
        return central_differences(self._log_prob, self.space, theta, x)[0]

    def log_prob_and_score(self, theta, x):
        return self.log_prob(theta, x), self.score(theta, x)


def flipped_score(model):
    return Faulty(model, score=lambda theta, x: -model.score(theta, x))


def no_log_determinant(gaussian):
    """log p(0) holds the log-determinant and the constant; only the quadratic is left."""
    return Faulty(
        gaussian,
        log_prob=lambda theta, x: gaussian.log_prob(theta, x) - gaussian.log_prob(theta, 0 * x),
    )


def no_trend_determinant(field):
    """The contrasts' density without log det(X' Sigma^-1 X): a profile likelihood, not REML."""
    plain = type(field)(shape=field.x_shape, space=field.space)

    def log_prob(theta, x):
        return plain.log_prob(theta, x - field.fitted_trend(theta, x))

    return Faulty(field, log_prob=log_prob)


def trend_ignored(field):
    """The density of a mean-zero field, for data whose trend was taken off."""
    plain = type(field)(shape=field.x_shape, space=field.space)
    return Faulty(field, log_prob=plain.log_prob)


def rate_off(model, parameter, factor=1.05):
    """The likelihood uses one rate times 1.05; the simulator does not."""
    shift = np.eye(model.space.d)[parameter] * np.log(factor)
    return Faulty(
        model,
        log_prob=lambda theta, x: model.log_prob(theta + shift, x),
        score=lambda theta, x: model.score(theta + shift, x),
    )


def transposed(field):
    return Faulty(field, log_prob=lambda theta, x: field.log_prob(theta, x.swapaxes(1, 2)))


def nu_for_nu_minus_two(student):
    """The density is scaled by nu where the simulator scales by nu - 2."""
    size = int(np.prod(student.x_shape))

    def log_prob(theta, x):
        nu = 2 + np.exp(theta[:, 2])
        scale = np.sqrt((nu - 2) / nu)
        return student.log_prob(theta, x * scale[:, None, None]) + size * np.log(scale)

    return Faulty(student, log_prob=log_prob)


def wrong_chi_square_scale(student):
    """The simulator scales by sqrt(nu / R), as for the usual t, instead of sqrt((nu - 2) / R)."""

    def simulate(theta, rng):
        nu = 2 + np.exp(np.asarray(theta)[:, 2])
        return student.simulate(theta, rng) * np.sqrt(nu / (nu - 2))[:, None, None]

    return Faulty(student, simulate=simulate)
