"""The last stage of a fit with data: rounds where the likelihood of those data is.

An amortised surrogate that misses its target over the whole box may meet it in the small part of
the box that the data leave. From the best surrogate so far,

    focus      n more simulations in rounds, each where the one before points (`focus`)
    measure    both surrogates on the same groups, of as many observations as the data, simulated
               inside the final box

and the better one is kept. n is what the time allows: with R rounds, c seconds per simulation, b
per update and k to compile, n c + R (U(n, d) b + k).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.fitting.attempts import Rates, rows_within
from keepscore.fitting.yardstick import Measured
from keepscore.likelihood import Likelihood
from keepscore.space import Space
from keepscore.surrogate import Surrogate
from keepscore.training import TrainConfig

ROUNDS = 3
FEWEST = 200  # simulations per round
MOST_GROWTH = 2  # times the simulations of the best round


@dataclass(frozen=True)
class Focus:
    """What focusing came to: n more simulations, the final box, groups of `size` observations, and
    what both surrogates did inside it (loss: what the target compares)."""

    n: int
    size: int
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    before: Measured
    after: Measured
    loss_before: float
    loss_after: float

    @property
    def helped(self) -> bool:
        """Whether the focused surrogate is the better one in its box."""
        return self.loss_after < self.loss_before

    def __str__(self) -> str:
        kept = "" if self.helped else "; it helped nothing, and the one before is kept"
        return (
            f"Focused on your data, {self.n:,} more simulations: {self.after.line()} in the "
            f"smaller box, before: {self.before.line()}{kept}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "n": self.n,
            "size": self.size,
            "lower": list(self.lower),
            "upper": list(self.upper),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "loss_before": self.loss_before,
            "loss_after": self.loss_after,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Focus:
        """What `to_dict` made."""
        return cls(
            int(content["n"]),
            int(content["size"]),
            tuple(map(float, content["lower"])),
            tuple(map(float, content["upper"])),
            Measured.from_dict(content["before"]),
            Measured.from_dict(content["after"]),
            float(content["loss_before"]),
            float(content["loss_after"]),
        )


@dataclass(frozen=True)
class Inside:
    """A surrogate of the whole box, asked inside a smaller one."""

    surrogate: Surrogate
    space: Space

    def given(self, xs: ArrayLike) -> Likelihood:
        return replace(self.surrogate.given(xs), space=self.space)


def simulations_within(
    seconds: float, rates: Rates, d: int, config: TrainConfig, best: int
) -> int | None:
    """n, at most twice as many as the best round had; None where even the fewest do not fit."""
    every = Rates(rates.simulation, ROUNDS * rates.update, ROUNDS * rates.start)
    n = min(rows_within(seconds, every, d, config), MOST_GROWTH * best)
    return None if n < ROUNDS * FEWEST else n


def key_of(rounds: int, xs: NDArray[Any]) -> str:
    """The name of this stage: after so many rounds, with these data."""
    digest = hashlib.sha256(np.ascontiguousarray(xs, dtype=np.float64).tobytes()).hexdigest()
    return f"focus-{rounds}-{digest[:12]}"
