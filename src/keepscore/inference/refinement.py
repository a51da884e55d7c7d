"""What refining did, group by group: the error, what it cost, and the region where it holds.

The region of a group is an ellipsoid, |factor' (theta - centre)| <= radius: about REACH times the
radius of its confidence set at a level, in the metric of the refined likelihood's curvature.
Nothing is claimed outside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from keepscore.checks import Floats
from keepscore.likelihood import Integers


@dataclass(frozen=True)
class Refinement:
    """What `refine` did, per group: estimated error (g,) of the log-likelihood over the set at
    `level`, exact evaluations (g,), and whether the tolerance was reached (g,). before (g,): the
    error of the surrogate alone, the standard deviation of what was added to it over that set.

    centre (g, d), factor (g, d, d), radius: the ellipsoid |factor' (theta - centre)| <= radius that
    was refined. points: one (n, d) array of theta per group.
    """

    error: Floats
    evaluations: Integers
    reached: np.ndarray
    before: Floats
    tolerance: float
    level: float
    centre: Floats
    factor: Floats
    radius: float
    points: tuple[Floats, ...]

    def contains(self, theta: Floats, group: Integers) -> np.ndarray:
        """Whether theta (m, d) lies where the likelihood of its group (m,) was refined."""
        s = np.einsum("mji,mj->mi", self.factor[group], theta - self.centre[group])
        return np.asarray((s**2).sum(axis=1) <= self.radius**2 * (1 + 1e-9))

    def of(self, group: Integers) -> Refinement:
        """That of some groups, (k,), in the order given."""
        return replace(
            self,
            error=self.error[group],
            evaluations=self.evaluations[group],
            reached=self.reached[group],
            before=self.before[group],
            centre=self.centre[group],
            factor=self.factor[group],
            points=tuple(self.points[i] for i in group),
        )

    def basis(self) -> str:
        """The error and what it cost, as results carry it."""
        return str(self)

    def __str__(self) -> str:
        count, reached = len(self.error), int(self.reached.sum())
        if count == 1:
            state = "within" if reached else "NOT within"
            return (
                f"refined: error {self.error[0]:.2g} by {int(self.evaluations[0])} exact "
                f"evaluations (the surrogate's was {self.before[0]:.2g}), {state} the tolerance of "
                f"{self.tolerance:g}"
            )
        return (
            f"refined: median error {np.median(self.error):.2g} (largest {self.error.max():.2g}) "
            f"by {np.mean(self.evaluations):.0f} exact evaluations per group (the surrogate's was "
            f"{np.median(self.before):.2g}); {reached} of {count} groups within the tolerance of "
            f"{self.tolerance:g}"
        )
