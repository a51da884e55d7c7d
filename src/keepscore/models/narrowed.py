"""A model seen in a smaller box: the same process, simulator and likelihood, fewer theta.

What is measured or calibrated over "the box" is then measured over the smaller one: a surrogate
focused on one data set is compared with the exact likelihood where it was trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats
from keepscore.errors import MismatchError
from keepscore.likelihood import Likelihood
from keepscore.models.base import Model, ScoreKind, Symmetry, declares_missing, trend_of
from keepscore.models.trend import Trend
from keepscore.space import Space


@dataclass(frozen=True)
class Narrowed:
    """`model` with `space`, whose parameters are the same and whose box is smaller. It declares no
    symmetries: they need not map the box onto itself."""

    model: Model
    space: Space

    def __post_init__(self) -> None:
        if self.space.names != self.model.space.names:
            raise MismatchError(
                f"The smaller box has parameters {', '.join(self.space.names)}; the model has "
                f"{', '.join(self.model.space.names)}. They must be the same."
            )

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def x_shape(self) -> tuple[int, ...]:
        return self.model.x_shape

    @property
    def x_dtype(self) -> np.dtype[Any]:
        return self.model.x_dtype

    @property
    def score_kind(self) -> ScoreKind | None:
        return self.model.score_kind

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return ()

    @property
    def structure(self) -> str | None:
        return self.model.structure

    @property
    def missing(self) -> bool:
        return declares_missing(self.model)

    @property
    def trend(self) -> Trend | None:
        return trend_of(self.model)

    def settings(self) -> dict[str, Any]:
        return self.model.settings()

    def simulate(self, theta: ArrayLike, rng: np.random.Generator) -> NDArray[Any]:
        return self.model.simulate(theta, rng)

    def simulate_with_score(
        self, theta: ArrayLike, rng: np.random.Generator
    ) -> tuple[NDArray[Any], Floats]:
        return self.model.simulate_with_score(theta, rng)

    def log_prob(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        return self.model.log_prob(theta, x)

    def score(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        return self.model.score(theta, x)

    def log_prob_and_score(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        return self.model.log_prob_and_score(theta, x)

    def given(self, xs: ArrayLike, *, each: bool = False) -> Likelihood:
        """The model's likelihood, searched in the smaller box."""
        return replace(self.model.given(xs, each=each), space=self.space)
