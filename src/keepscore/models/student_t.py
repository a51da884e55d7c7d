"""Student-t fields:  x = z sqrt((nu - 2)/R),  z ~ N(0, Sigma),  R ~ chi^2_nu.

The scaling by nu - 2, not nu, makes Sigma the covariance of x, for every nu > 2. With v = nu - 2,
    log p(x | theta) = log Gamma((nu + S)/2) - log Gamma(nu/2) - S log(pi v)/2 - log det(Sigma)/2
                       - (nu + S)/2 log(1 + q/v),              q = x' Sigma^-1 x,
so in the terms of `fields` the weight is w = (nu + S)/(v + q), and the slope in nu is
    (psi((nu + S)/2) - psi(nu/2) - S/v - log(1 + q/v) + w q/v)/2.
Sigma = sigma2 rho(distance) + eps^2 I: eps is a standard deviation, sigma2 a variance. By default
theta = (log l_x, log l_y, log(nu - 2)), and sigma2 is fixed at 1, eps at 0; a space may free or fix
any of the five.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import final

import numpy as np
from scipy.special import betaln, digamma, gammaln

from keepscore.checks import Floats
from keepscore.models.base import register
from keepscore.models.fields import Field
from keepscore.space import Parameter, Space


@final
class StudentTField(Field):
    """A Student-t field on a regular grid (25 x 25 on [-3, 3]^2 by default) or at locations (S, 2).

    x[i, j] is at (s1[i], s2[j]): l_x acts along the first axis.
    The covariance is sigma2 rho(distance), plus eps^2 at distance zero: `eps` is the **standard
    deviation** of the nugget, `sigma2` the **variance** of the smooth part; they are fixed at 0
    and 1 by default.

    Args:
        side: Points per side of a square grid.
        shape: Points along the first and the second axis, instead of `side`.
        extent: Half the width of the grid, one number or one per axis.
        kernel: "exponential", "matern32" or "matern52".
        locations: (S, 2), places anywhere instead of a grid; x is then (S,).
        space: Another space than the paper's; it may free or fix any of l_x, l_y, nu, eps and
            sigma2.
        trend: The mean. None: zero. Otherwise unknown and integrated out (REML): "constant",
            "linear" (a constant and a slope along each axis), or covariates (*x_shape, p), to which
            a constant is added. The likelihood is then that of the error contrasts: adding any such
            mean to x changes nothing.

    Raises:
        DomainError: A grid and locations both given, or a value out of range.
        UnknownNameError: No such kernel.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.StudentTField(shape=(4, 4))
        >>> x = model.simulate(model.space.grid(2)[:3], np.random.default_rng(0))
        >>> x.shape, model.space.working_names
        ((3, 4, 4), ('log l_x', 'log l_y', 'log(nu - 2)'))
    """

    name = "student-t-field"
    _parameter_names = ("l_x", "l_y", "nu", "eps", "sigma2")

    @classmethod
    def _default_space(cls) -> Space:
        parameter = partial(Parameter, train_margin=0.1, test_margin=0.4)
        return Space(
            [
                parameter("l_x", -1.0, 1.0),
                parameter("l_y", -1.0, 1.0),
                parameter("nu", -2.0, 3.0, shift=2.0),
            ],
            fixed={"sigma2": 1.0, "eps": 0.0},
        )

    def _radial(
        self, values: Mapping[str, float], q: Floats, size: int
    ) -> tuple[Floats, Floats, Floats]:
        v, S = values["nu"], size
        nu = v + 2.0
        # log Gamma((nu+S)/2) - log Gamma(nu/2), without cancellation when nu is large.
        gammas = gammaln(0.5 * S) - betaln(0.5 * nu, 0.5 * S)
        tail = np.log1p(q / v)
        h = gammas - 0.5 * S * np.log(np.pi * v) - 0.5 * (nu + S) * tail
        weight = (nu + S) / (v + q)
        digammas = digamma(0.5 * (nu + S)) - digamma(0.5 * nu)
        return h, weight, 0.5 * (digammas - S / v - tail + weight * q / v)

    def _amplitude(self, values: Mapping[str, Floats], rng: np.random.Generator) -> Floats:
        return np.sqrt(values["nu"] / rng.chisquare(values["nu"] + 2.0))


register(StudentTField.name, StudentTField)
