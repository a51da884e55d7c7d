"""Simulation-based calibration: is the posterior of this likelihood the posterior?

Draw theta from the prior (that of the space; uniform on the box if it has none), data given theta,
and L draws from the posterior of those data; then the rank of theta among the L draws is uniform on
{0, ..., L}, parameter by parameter, if and only if likelihood, simulator and sampler agree (Talts
et al. 2018). Too sharp a likelihood piles ranks up at both ends, too flat a one in the middle, a
biased one at one side.

method="grid" draws directly from the posterior on a grid of the box (its log density interpolated
by a cubic spline, then uniform within the fine cells), for all data sets with one `surface` call:
hundreds of data sets in seconds, for up to three parameters. method="nuts" runs the sampler itself,
all chains of many data sets together.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.interpolate import make_interp_spline

from keepscore.checks import Floats, require_choice, require_count, require_parts
from keepscore.errors import DomainError, KeepscoreWarning
from keepscore.inference import invariants
from keepscore.inference.calibration import Simulator
from keepscore.inference.draws import effective_sizes
from keepscore.inference.maximise import maximum_of
from keepscore.inference.nuts import Settings, prior_of, sample
from keepscore.likelihood import Likelihood, LikelihoodSource
from keepscore.space import Region, Space

METHODS = ("grid", "nuts")
POINTS_PER_SIDE = {1: 201, 2: 41, 3: 17}
FINE = {1: 4, 2: 4, 3: 3}
BINS = 10
CHAINS, GROUPS_AT_ONCE = 4, 64  # of NUTS
STREAM = 0x5BC


@dataclass(frozen=True)
class SBC:
    """Ranks (n, d) of the true theta among `draws` posterior draws, and a test of uniformity.

    p_values (d,): chi-square over ten bins, a parameter each.
    """

    space: Space
    ranks: np.ndarray
    draws: int
    p_values: Floats

    def __post_init__(self) -> None:
        law = "a rank must lie between 0 and the number of draws"
        inside = (self.ranks >= 0) & (self.ranks <= self.draws)
        invariants.require(inside, "sbc", law, self.ranks)
        invariants.require_shares(self.p_values, "sbc")

    def uniform(self, false_alarm: float = 0.01) -> bool:
        """Are all parameters' ranks consistent with uniform? (Bonferroni over parameters.)"""
        return bool(self.p_values.min() * len(self.p_values) > false_alarm)

    def __str__(self) -> str:
        lines = [f"Simulation-based calibration: {len(self.ranks)} data sets, {self.draws} draws"]
        for k, name in enumerate(self.space.names):
            mean = self.ranks[:, k].mean() / self.draws
            lines.append(
                f"  {name:<14}p = {self.p_values[k]:.3g}, mean rank {mean:.3f} (expected 0.5)"
            )
        return "\n".join(lines)


def sbc(
    source: LikelihoodSource,
    simulator: Simulator,
    n: int = 300,
    group_size: int = 10,
    draws: int = 99,
    method: str = "grid",
    region: Region = "base",
    seed: int = 0,
) -> SBC:
    """Simulation-based calibration: ranks of the truth in n posteriors.

    The prior is that of the space (`Parameter(prior=)`, `Space(prior=)`), uniform if it has none.
    Where a posterior is right, the rank of the truth among its draws is uniform. A surrogate that
    is too sure of itself puts ranks at both ends.

    Args:
        source: What is judged: a surrogate, or a model.
        simulator: A model, or anything with `simulate`.
        n: Data sets, 50 or more.
        group_size: Observations per data set.
        draws: Draws per posterior, 9 or more.
        method: "grid" (independent draws, up to three parameters) or "nuts".
        region: Box of theta, and of the prior.
        seed: Root of all randomness.

    Returns:
        Ranks (n, d), and per parameter the p-value of a chi-square test of uniformity.

    Raises:
        DomainError: "grid" for more than three parameters, or a log-likelihood that is not finite
            on the whole box; n or draws too small.

    Example:
        >>> import keepscore as ks
        >>> model = ks.models.GaussianField(shape=(3, 3))
        >>> found = ks.sbc(model, model, n=50, group_size=5)
        >>> found.ranks.shape, found.uniform()
        ((50, 3), True)
    """
    require_choice(method, "method", METHODS)
    require_parts(source, "source", "space", "given")
    require_parts(simulator, "simulator", "simulate")
    n, draws = require_count(n, "n", 50), require_count(draws, "draws", 9)
    group_size = require_count(group_size, "group_size")
    seed = require_count(seed, "seed", minimum=0)
    if method == "grid" and source.space.d not in POINTS_PER_SIDE:
        raise DomainError(
            f"method='grid' is for up to three parameters; got {source.space.d}. Use method='nuts'."
        )
    rng = np.random.default_rng([seed, STREAM])
    theta = source.space.draw(n, rng, region)
    x = np.asarray(simulator.simulate(np.repeat(theta, group_size, axis=0), rng))
    like = source.given(x.reshape(n, group_size, *x.shape[1:]))
    posterior_draws = _grid_draws if method == "grid" else _nuts_draws
    ranks = (posterior_draws(like, draws, region, rng) < theta[:, None, :]).sum(axis=1)
    return SBC(source.space, ranks, draws, _uniformity(ranks, draws))


def _uniformity(ranks: np.ndarray, draws: int) -> Floats:
    """Chi-square p-values of ranks (n, d) against uniform on {0, ..., draws}, in ten bins."""
    bins = np.arange(draws + 1) * BINS // (draws + 1)
    expected = np.bincount(bins, minlength=BINS) * len(ranks) / (draws + 1)
    counts = [np.bincount(bins[column], minlength=BINS) for column in ranks.T]
    return np.array([stats.chisquare(c, expected).pvalue for c in counts])


def _grid_draws(like: Likelihood, draws: int, region: Region, rng: np.random.Generator) -> Floats:
    """Independent draws (g, draws, d) from each group's posterior on the box."""
    d, g = like.space.d, like.group_count
    side = POINTS_PER_SIDE[d]
    low, high = like.space.box(region)
    nodes = like.space.grid(side, region)
    values = like.surface_in_blocks(nodes)
    if like.space.has_prior:
        values = values + like.space.log_prior(nodes, region)
    values = values.reshape(g, *(side,) * d)
    if not np.isfinite(values).all():
        raise DomainError(
            "method='grid' interpolates the log-likelihood and needs it finite on the whole box; "
            "here it is not. Use method='nuts'."
        )
    cells = (side - 1) * FINE[d]
    centres = (np.arange(cells) + 0.5) * (side - 1) / cells
    spline = make_interp_spline(np.arange(side), np.eye(side), k=3)(centres)
    result = np.empty((g, draws, d))
    for i in range(g):
        fine = values[i] - values[i].max()
        for axis in range(d):
            fine = np.moveaxis(np.tensordot(spline, fine, axes=(1, axis)), 0, axis)
        mass = np.exp(fine - fine.max()).ravel()
        total = np.cumsum(mass)
        # An index past the end can only come from rounding of the last sum.
        chosen = np.minimum(np.searchsorted(total, rng.random(draws) * total[-1]), len(total) - 1)
        corner = np.stack(np.unravel_index(chosen, fine.shape), axis=1)
        result[i] = low + (high - low) * (corner + rng.random((draws, d))) / cells
    return result


def _nuts_draws(like: Likelihood, draws: int, region: Region, rng: np.random.Generator) -> Floats:
    """Draws (g, draws, d) by NUTS, all groups' chains together, thinned so that autocorrelation
    does not show in the ranks."""
    g, d = like.group_count, like.space.d
    found = maximum_of(like, region)
    # Four draws or more for each one kept.
    settings = Settings(draws=max(250, draws), warmup=500)
    result, poor = np.empty((g, draws, d)), 0
    for i in range(0, g, GROUPS_AT_ONCE):
        chosen = np.arange(i, min(i + GROUPS_AT_ONCE, g))
        group = np.repeat(chosen, CHAINS)
        prior = prior_of(like.space)
        theta, _ = sample(like, prior, found, group, int(rng.integers(2**31)), settings)
        chains = theta.reshape(len(chosen), CHAINS, settings.draws, d)
        poor += int((effective_sizes(chains) < draws).any(axis=1).sum())
        flat = chains.reshape(len(chosen), -1, d)
        keep = np.linspace(0, flat.shape[1] - 1, draws).round().astype(int)
        result[chosen] = flat[:, keep]
    if poor:
        warnings.warn(
            f"In {poor} of {g} posteriors the sampler gave fewer than {draws} effective draws; "
            "their ranks are not quite independent.",
            KeepscoreWarning,
            stacklevel=3,
        )
    return result
