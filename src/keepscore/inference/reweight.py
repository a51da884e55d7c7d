"""From draws of an approximate posterior to the exact one: weights, and a chain where they fail.

Draws theta_i come from the posterior of a surrogate (or refined) likelihood l; the prior cancels in

    log w_i = l_exact(theta_i) - l(theta_i)

Pareto-smoothed importance sampling (Vehtari et al. 2024) replaces the largest weights by quantiles
of a generalised Pareto distribution fitted to them; its shape k-hat says whether that is sound: up
to 0.7 means over the weighted draws can be trusted, beyond it no number of draws helps. The draws
are then resampled by their weights (systematic resampling), so that what is returned has equal
weights; the effective number is 1 / sum w_i^2.

Where k-hat is too large, the draws become proposals of a Metropolis chain that accepts theta' after
theta with probability min(1, w' / w): the second stage of delayed acceptance (Christen and Fox
2005), whose first stage, the sampler on l, has run between two proposals. It is right in the limit,
however poor l is; how often it moves shows what it is worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keepscore.checks import Floats
from keepscore.errors import NonFiniteError
from keepscore.inference import invariants
from keepscore.inference.draws import pareto_smoothed
from keepscore.inference.exact_work import ExactWork
from keepscore.likelihood import Integers, Likelihood

LARGEST_K = 0.7  # of k-hat: beyond, importance weights are not to be trusted
NEARLY_ALL = 0.99  # effective draws, as a share of all, that leave no tail to fit
EVEN = 0.05  # the largest log weights: a smaller spread needs no smoothing


@dataclass(frozen=True)
class Weighted:
    """Draws of c chains with exact values: place (c, m) of each in its chain; theta (c, m, d);
    exact (c, m) log-likelihoods; log_weight (c, m), raw; weight (c, m), smoothed, of sum one."""

    place: Integers
    theta: Floats
    exact: Floats
    log_weight: Floats
    weight: Floats
    k_hat: float

    def __post_init__(self) -> None:
        invariants.require_shares(self.weight, "posterior", "a weight")

    @property
    def effective(self) -> float:
        """1 / sum w^2: as many draws of equal weight say as much."""
        return float(1 / (self.weight**2).sum())

    def resampled(self, rng: np.random.Generator) -> Integers:
        """Flat numbers (c * m,) of draws, each as often as its weight says, give or take one."""
        n = self.weight.size
        steps = (np.arange(n) + rng.random()) / n
        return np.minimum(np.searchsorted(np.cumsum(self.weight.ravel()), steps), n - 1)

    def chained(self, rng: np.random.Generator) -> tuple[Integers, float]:
        """Flat numbers (c * m,) of the states of a chain per row, and the share of moves."""
        c, m = self.weight.shape
        states, moves = np.empty((c, m), dtype=np.int64), 0
        for chain in range(c):
            at = int(np.argsort(self.log_weight[chain])[m // 2])  # neither end of the weights
            for i in range(m):
                rise = self.log_weight[chain, i] - self.log_weight[chain, at]
                if np.log(rng.random()) < rise:
                    at, moves = i, moves + 1
                states[chain, i] = chain * m + at
        return states.ravel(), moves / (c * m)


def weigh(like: Likelihood, work: ExactWork, theta: Floats, wanted: int) -> Weighted:
    """Weights of about `wanted` draws, spread evenly over chains theta (c, n, d) of one group."""
    c, n, d = theta.shape
    m = max(2, min(n, wanted // c))
    place = np.tile(np.linspace(0, n - 1, m).round().astype(np.int64), (c, 1))
    chosen = np.take_along_axis(theta, place[..., None], axis=1)
    flat, group = chosen.reshape(-1, d), np.zeros(c * m, dtype=np.int64)
    exact = work(flat, group)[0]
    if np.isnan(exact).any() or (exact == np.inf).any():
        bad = flat[np.flatnonzero(np.isnan(exact) | (exact == np.inf))[0]]
        raise NonFiniteError(
            f"The exact log-likelihood is not a number at theta = {bad.tolist()}, a posterior "
            "draw. What was computed is in `computed` of this error."
        )
    ours = np.asarray(like.pairs(flat, group), dtype=np.float64)
    log_weight = exact - ours
    weight, k_hat = _smoothed(log_weight - log_weight.max())
    shape = (c, m)
    return Weighted(
        place, chosen, exact.reshape(shape), log_weight.reshape(shape), weight.reshape(shape), k_hat
    )


def _smoothed(log_weight: Floats) -> tuple[Floats, float]:
    """Weights of sum one, and k-hat.

    Where the largest weights, those that k-hat is fitted to, are the same within a few per cent, or
    all weights together count as 99% of the draws, there is no tail, and the shape of their
    rounding means nothing.
    """
    n = len(log_weight)
    tail = min(n - 1, int(np.ceil(min(0.2 * n, 3 * np.sqrt(n)))))
    ordered = np.sort(log_weight)
    weight = np.exp(log_weight - ordered[-1])
    weight = weight / weight.sum()
    effective = 1 / (n * (weight**2).sum())
    if ordered[-1] - ordered[-1 - tail] < EVEN or effective > NEARLY_ALL:
        return weight, 0.0
    smoothed, k_hat = pareto_smoothed(log_weight)
    weight = np.exp(smoothed - smoothed.max())
    return np.minimum(weight / weight.sum(), 1.0), k_hat
