"""Models as a new user brings them, for `quality_line.py` and `fits.py`.

normal        x: three numbers from N(mean, sd^2)
regression    y = X b + sd e: 20 rows, five coefficients, d = 6
wrong         the normal one with a simulator that takes sd^2 for sd
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import keepscore as ks
from benchmarks.ornstein_uhlenbeck import _log_prob, _simulate

ROWS, COEFFICIENTS = 20, 5
U = np.linspace(-1, 1, ROWS)
DESIGN = np.polynomial.legendre.legvander(U, COEFFICIENTS - 1)


def normal(power: float = 1.0, name: str = "normal") -> Any:
    """power = 1 is right: the simulator draws with sd^power, the likelihood has sd."""
    space = ks.Space(
        [ks.Parameter("mean", -2, 2, "identity"), ks.Parameter("sd", -0.7, 0.7, "log")]
    )

    def simulate(theta: Any, rng: np.random.Generator) -> Any:
        return theta[:, :1] + np.exp(power * theta[:, 1:]) * rng.standard_normal((len(theta), 3))

    def log_prob(theta: Any, x: Any) -> Any:
        z = (x - theta[:, :1]) * np.exp(-theta[:, 1:])
        return -0.5 * (z**2).sum(axis=1) - 3 * theta[:, 1]

    def score(theta: Any, x: Any) -> Any:
        z = (x - theta[:, :1]) * np.exp(-theta[:, 1:])
        return np.stack([z.sum(axis=1) * np.exp(-theta[:, 1]), (z**2).sum(axis=1) - 3], axis=1)

    return ks.models.from_functions(
        space, (3,), simulate=simulate, log_prob=log_prob, score=score, name=name
    )


def regression() -> Any:
    """d = 6; x is y alone, since the design is the same for all."""
    names = [f"b{k}" for k in range(COEFFICIENTS)]
    coefficients = [ks.Parameter(name, -2, 2, "identity") for name in names]
    space = ks.Space([*coefficients, ks.Parameter("sd", -0.7, 0.7, "log")])

    def residual(theta: Any, x: Any) -> Any:
        return (x - theta[:, :-1] @ DESIGN.T) * np.exp(-theta[:, -1:])

    def simulate(theta: Any, rng: np.random.Generator) -> Any:
        noise = rng.standard_normal((len(theta), ROWS))
        return theta[:, :-1] @ DESIGN.T + np.exp(theta[:, -1:]) * noise

    def log_prob(theta: Any, x: Any) -> Any:
        return -0.5 * (residual(theta, x) ** 2).sum(axis=1) - ROWS * theta[:, -1]

    def score(theta: Any, x: Any) -> Any:
        z = residual(theta, x)
        slopes = z * np.exp(-theta[:, -1:]) @ DESIGN
        return np.column_stack([slopes, (z**2).sum(axis=1) - ROWS])

    return ks.models.from_functions(
        space, (ROWS,), simulate=simulate, log_prob=log_prob, score=score, name="regression"
    )


def tutorial() -> Any:
    """As the tutorial has it: nothing declared."""
    kappa, sigma = ks.Parameter("kappa", -1.5, 0.5, "log"), ks.Parameter("sigma", -1, 1, "log")
    return ks.models.from_functions(
        ks.Space([kappa, sigma]), (20,), simulate=_simulate, log_prob=_log_prob, name="tutorial"
    )


def slcp() -> Any:
    """Sbibm's, with its signs declared."""
    from benchmarks.sbibm.tasks.slcp import slcp as task

    return task().model


WRONG = "wrong simulator"
FITTED: dict[str, Callable[[], Any]] = {
    WRONG: lambda: normal(2.0, "wrong"),
    "tutorial": tutorial,
    "SIS": ks.models.SIS,
    "regression, d = 6": regression,
    "SLCP": slcp,
    "Gaussian field": ks.models.GaussianField,
    "Student-t field": ks.models.StudentTField,
}
