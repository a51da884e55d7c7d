"""Gaussian fields with anisotropic covariance and nugget:  x ~ N(0, Sigma(l_x, l_y, eps, sigma2)).

    log p(x | theta) = -(S log(2 pi) + log det Sigma + q)/2,     q = x' Sigma^-1 x,
so h(q) = -(S log(2 pi) + q)/2 and the weight is w = 1 in the terms of `fields`.
Sigma = sigma2 rho(distance) + eps^2 I: eps is a standard deviation, sigma2 a variance. By default
theta = (log l_x, log l_y, log eps) and sigma2 is fixed at 1; a space may free or fix any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import final

import numpy as np

from keepscore.checks import Floats
from keepscore.models.base import register
from keepscore.models.fields import Field
from keepscore.space import Parameter, Space


@final
class GaussianField(Field):
    """A Gaussian field on a regular grid (25 x 25 on [-3, 3]^2 by default) or at locations (S, 2).

    x[i, j] is at (s1[i], s2[j]): l_x acts along the first axis.
    The covariance is sigma2 rho(distance), plus eps^2 at distance zero: `eps` is the **standard
    deviation** of the nugget, `sigma2` the **variance** of the smooth part, fixed at 1 by default.

    Args:
        side: Points per side of a square grid.
        shape: Points along the first and the second axis, instead of `side`.
        extent: Half the width of the grid, one number or one per axis.
        kernel: "exponential", "matern32" or "matern52".
        locations: (S, 2), places anywhere instead of a grid; x is then (S,).
        space: Another space than the paper's; it may free or fix any of l_x, l_y, eps and sigma2.
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
        >>> model = ks.models.GaussianField(shape=(4, 5), kernel="matern32")
        >>> x = model.simulate(model.space.grid(2)[:3], np.random.default_rng(0))
        >>> x.shape, model.space.names
        ((3, 4, 5), ('l_x', 'l_y', 'eps'))
    """

    name = "gaussian-field"
    _parameter_names = ("l_x", "l_y", "eps", "sigma2")
    _structure = "gaussian-field"

    @classmethod
    def _default_space(cls) -> Space:
        parameter = partial(Parameter, train_margin=0.1, test_margin=0.4)
        return Space(
            [
                parameter("l_x", -1.0, 1.0),
                parameter("l_y", -1.0, 1.0),
                parameter("eps", -4.0, -1.0),
            ],
            fixed={"sigma2": 1.0},
        )

    def _radial(
        self, values: Mapping[str, float], q: Floats, size: int
    ) -> tuple[Floats, Floats, Floats]:
        return -0.5 * (size * np.log(2.0 * np.pi) + q), np.ones_like(q), np.zeros_like(q)

    def _amplitude(self, values: Mapping[str, Floats], rng: np.random.Generator) -> Floats:
        return np.ones_like(values["l_x"])


register(GaussianField.name, GaussianField)
