"""Where the likelihood of the data is, by a surrogate that may be wrong: regions and their boxes.

With l the log-likelihood of the data by a surrogate,

    R = { theta in B : l(theta) >= max l - c }

is sampled from the prior restricted to it, whatever its shape: the draws come from particles
(`inference.smc`) led from the prior on the box B to

    prior(theta) exp( S min(0, l(theta) - max l + c) ),     S = 4,

flat inside R, so that several modes and curved regions keep their share; what is left outside is
dropped. The next box is the bounding box of the draws, a little wider.

A surrogate of few simulations may put the truth below max l - c, and everything after would be
about another place. Two things are looked at, since neither sees all:

    before a cut    simulations i that were held out know their theta. D_i = max l(. | x_i) -
                    l(theta_i | x_i) is the drop that they would have needed. If l were right, 2 D
                    would be about chi-square with d degrees of freedom, and c covers all but 1e-4
                    of it. What n of them need beyond c is added, m times for m observations, whose
                    errors may add up:

                        c' = c + m max(0, max_i D_i - c)

                    Asked are those of the latest round, all drawn from where the truth is thought
                    to be: one observation is another such row, and a cut at max_i D_i loses its
                    theta in one case of n + 1, whatever the surrogate.
    after a cut     where rounds cut the box, the likelihood of the next surrogate must have fallen
                    off. A face on which its maximum is not below the overall one by more than
                    chance (chi-square, one degree of freedom, level 1e-3) was cut too near.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from keepscore.checks import Floats
from keepscore.data.dataset import Dataset
from keepscore.errors import ConvergenceError, KeepscoreWarning
from keepscore.inference.maximise import maximise, maximum_of
from keepscore.inference.profile import faces_reached
from keepscore.inference.smc import smc
from keepscore.likelihood import Likelihood
from keepscore.models.base import Model
from keepscore.numerics.evenly import evenly
from keepscore.space import Space
from keepscore.surrogate import Surrogate

LEAST_DROP, DROP_LEVEL = 12.0, 1e-4
MOST_DROP = 1e6  # and where a surrogate calls the own theta impossible
MOST_HELD_OUT = 100  # rows that are asked
FACE_LEVEL = 1e-3
STEEPNESS = 4.0
WIDER = 0.05  # of the box of the draws, on either side
FEWEST_PARTICLES = 2000
MOST_POPULATIONS = 50
MOST_IMAGES = 100  # of a box under symmetries, until it is mapped onto itself
STREAM = 0xF0C


@dataclass(frozen=True)
class Region:
    """Where a round found the likelihood: draws of the prior in it (m, d), how much of the region
    before lies in it, and the drop c it was cut at."""

    theta: Floats
    share: float
    drop: float


def usual_drop(d: int) -> float:
    """c for a surrogate that is right: max(12, q / 2), q the 1 - 1e-4 quantile of chi-square with
    d degrees of freedom."""
    return max(LEAST_DROP, float(chi2.isf(DROP_LEVEL, d)) / 2)


def needed_drop(
    surrogate: Surrogate, data: Dataset, held: NDArray[np.int64], observations: int, usual: float
) -> float:
    """c': the usual drop, and what held-out rows of the data need beyond it per observation."""
    some = evenly(len(held), MOST_HELD_OUT)
    theta, x, _ = data.rows(held[some])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # far from all others: that is the point
        like = surrogate.given(np.asarray(x)[:, None])
    own = like.pairs(np.asarray(theta, np.float64), np.arange(len(some)))
    if not np.isfinite(own).all():
        return MOST_DROP
    most = float((maximise(like, "train").value - own).max())
    return min(MOST_DROP, usual + observations * max(0.0, most - usual))


def find_region(
    like: Likelihood, c: float, count: int, latest: Dataset, seed: Sequence[int]
) -> Region:
    """`count` draws of the prior in { l >= max l - c }, and the share of the latest simulations
    that lie in it (those inside the likelihood's box)."""
    rng = np.random.default_rng([STREAM, *seed])
    space = like.space
    best = float(maximum_of(like).value[0])
    prior = space.unnormalised_log_prior if space.has_prior else None
    particles = max(FEWEST_PARTICLES, 2 * -(-count * 3 // 4))
    # The search may have missed the highest mode; particles then find something higher.
    for _ in range(3):
        level = best - c
        start = space.draw(particles, rng)[None]
        found = smc(_flat_top(like, level), np.zeros(1, dtype=np.int64), start, prior, rng)
        theta = found.theta[0]
        value = like(theta)
        if value.max() <= best + 1e-3 * c:
            break
        best = float(value.max())
    inside = theta[value >= best - c]
    kept = [inside]
    while sum(len(part) for part in kept) < count:
        if len(kept) > MOST_POPULATIONS:
            raise ConvergenceError(
                f"Only {sum(len(part) for part in kept)} of {count} draws were found where the "
                "likelihood of the data is. Is it finite on the box?"
            )
        start = space.draw(particles, rng)[None]
        found = smc(_flat_top(like, best - c), np.zeros(1, dtype=np.int64), start, prior, rng)
        kept.append(found.theta[0][like(found.theta[0]) >= best - c])
    draws = np.concatenate(kept)
    draws = draws[rng.permutation(len(draws))][:count]
    before = np.asarray(latest.theta)
    before = before[space.contains(before)]
    share = float(np.mean(like(before) >= best - c)) if len(before) else 0.0
    return Region(draws, share, c)


def _flat_top(like: Likelihood, level: float) -> Likelihood:
    """S min(0, l - level), as far as particles ask for it."""

    def pairs(theta: Floats, group: NDArray[np.int64]) -> Floats:
        return STEEPNESS * np.minimum(0.0, like.pairs(theta, group) - level)

    return replace(like, pairs=pairs)


def shrunken(model: Model, before: Space, theta: Floats) -> Space:
    """The space whose box is around these draws, a little wider, inside the box before."""
    low, high = theta.min(axis=0), theta.max(axis=0)
    room = WIDER * (high - low)
    lower, upper = np.maximum(low - room, before.lower), np.minimum(high + room, before.upper)
    return _with_box(model, lower, upper)


def faces_cut(model: Model, like: Likelihood) -> NDArray[np.bool_]:
    """Which sides (d, 2) of the likelihood's box rounds have cut where it has not fallen off."""
    space, whole = like.space, model.space
    cut = np.stack([space.lower > whole.lower, space.upper < whole.upper], axis=1)
    if not cut.any():
        return cut
    level = float(chi2.isf(FACE_LEVEL, 1))
    found = maximum_of(like)
    every = list(range(space.d))
    reached = faces_reached(like, found, every, lambda theta, which: np.full(len(theta), level))
    return np.asarray(reached[0] & cut)


def reopened(model: Model, boxes: Sequence[Space], faces: NDArray[np.bool_]) -> Space:
    """The last of these boxes, its `faces` (d, 2) back to where they were before they were cut."""
    lower, upper = boxes[-1].lower.copy(), boxes[-1].upper.copy()
    for k, side in np.argwhere(faces):
        if side == 0:
            lower[k] = next(b.lower[k] for b in reversed(boxes) if b.lower[k] < lower[k])
        else:
            upper[k] = next(b.upper[k] for b in reversed(boxes) if b.upper[k] > upper[k])
    return _with_box(model, lower, upper)


def _with_box(model: Model, lower: Floats, upper: Floats) -> Space:
    """The model's space with this box, and its images by symmetries that move theta alone: these
    are the likelihood's own."""
    ends: Any = np.stack([lower, upper])
    alone = [s for s in model.symmetries if s.sign == 1 and _keeps(s.x_index)]
    for _ in range(MOST_IMAGES):
        images = [ends, *(symmetry.of_theta(ends) for symmetry in alone)]
        wider = np.stack([np.min(images, axis=(0, 1)), np.max(images, axis=(0, 1))])
        if np.array_equal(wider, ends):
            break
        ends = wider
    parameters = [
        replace(p, lower=float(a), upper=float(b), train_margin=0.0)
        for p, a, b in zip(model.space.parameters, *ends, strict=True)
    ]
    return Space(parameters, model.space.fixed, model.space.prior)


def _keeps(index: NDArray[np.int64]) -> bool:
    return bool(np.array_equal(index, np.arange(len(index))))
