"""Posterior draws of one group, from an exact or a surrogate likelihood.

    nuts    chains that follow the gradient (nuts.py); one mode
    smc     populations of particles led from the box to the posterior (smc.py); several modes

The draws come as an ArviZ object with names, and what they are worth is looked at before they are
handed over: R-hat, effective sample size, divergences and trajectories cut short. Left to itself
("auto") it takes NUTS, and particles where the search for the maximum found several separate
maxima. NUTS begins its chains around each of them in turn, so that R-hat sees what chains around
one of them would not; populations are independent of each other, so that it is honest of them too.

With the exact likelihood at hand (`exact=`), draws of a surrogate are reweighted to the exact
posterior (reweight.py). If the weights are not to be trusted (k-hat above 0.7), the likelihood is
refined (refine.py), sampled and weighted again; if that does not do either, a chain takes the draws
as proposals. What was done is told by a warning and by the attributes of the result.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import chi2

from keepscore.budget import Say, as_minutes, voice
from keepscore.checks import Floats, require_choice, require_count, require_level
from keepscore.errors import DomainError, DtypeError, KeepscoreWarning
from keepscore.inference import invariants
from keepscore.inference.draws import as_arviz, chain_quality
from keepscore.inference.draws_within import (
    chains_within,
    exact_draws_within,
    particles_within,
)
from keepscore.inference.exact_work import ExactWork
from keepscore.inference.maximise import maximum_of
from keepscore.inference.nuts import (
    LARGEST_DEPTH,
    Density,
    Settings,
    SpacePrior,
    prior_of,
    sample,
)
from keepscore.inference.refine import refine_with, require_together
from keepscore.inference.reweight import LARGEST_K, Weighted, weigh
from keepscore.inference.smc import smc
from keepscore.inference.statistic import drop
from keepscore.likelihood import Integers, Likelihood, Maximum, require_likelihood
from keepscore.space import Region, Space

LARGEST_RHAT = 1.01
SMALLEST_ESS, FEWEST_ESS = 400, 100  # usual; below which nothing is put down to chance
# R-hat^2 is 1 + (F - 1) / n for 8 half chains of n draws, F the 99% point 2.64 of chi^2_7 / 7.
RHAT_BY_CHANCE = 8 * (2.64 - 1) / 2
MODES_LEVEL = 0.9999  # maxima outside the set at this level hold no posterior worth a chain
MOST_CUT = 0.01  # share of trajectories that reached their largest length
METHODS = ("auto", "nuts", "smc")
FEWEST_PARTICLES = 1000  # per population


@dataclass(frozen=True)
class _Asked:
    """What the caller asked for."""

    prior: Density | None
    seed: int
    chains: int
    settings: Settings
    region: Region
    method: str
    prior_name: str = "uniform on the box"
    minutes: float | None = None
    say: Say = lambda text: None


@dataclass(frozen=True)
class _Sampled:
    """Draws theta (c, n, d) of the sampler, its statistics, how many maxima chains began at, and
    what did not fit into the time."""

    theta: Floats
    stats: dict[str, np.ndarray]
    modes: int
    library: str = "blackjax"
    cut: str = ""


def posterior(
    like: Likelihood,
    prior: Density | None = None,
    seed: int = 0,
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 500,
    region: Region = "base",
    target_acceptance: float = 0.85,
    exact: Likelihood | None = None,
    exact_draws: int = 1000,
    jobs: int = 1,
    path: str | os.PathLike[str] | None = None,
    method: str = "auto",
    minutes: float | None = None,
    progress: Say | bool | None = None,
) -> Any:
    """Draws from the posterior of one group, as an ArviZ object (InferenceData or DataTree).

    Args:
        like: A likelihood of one group: exact, of a surrogate, or refined.
        prior: Log density of the working parameters theta (d,), up to a constant, written in JAX.
            None is the prior of the space (`Parameter(prior=)`, `Space(prior=)`), restricted to the
            box; uniform if it has none.
        seed: Seed of everything random.
        draws: Draws per chain after warm-up.
        chains: Chains.
        warmup: Steps per chain to tune the sampler.
        region: Box of theta.
        target_acceptance: Acceptance rate the step size is tuned for.
        exact: The exact likelihood of the same data, `model.given(xs)`: the draws of `like` are
            reweighted to its posterior, and k-hat shows whether that could be done.
        exact_draws: How many draws, spread evenly over the chains, are evaluated exactly; the
            result holds so many.
        jobs: Worker processes for exact evaluations.
        path: Folder in which exact evaluations are kept, to go on after an interruption.
        method: "nuts", "smc" (for several modes; `chains` are then independent populations of
            particles, and nothing is compiled), or "auto": particles where the search for the
            maximum met several maxima, else NUTS.
        minutes: Time for evaluations of the likelihood (of `exact` where it is given, else of
            `like`): where all draws do not fit, there are fewer, with a warning, and the attribute
            `cut` of the result says so.
        progress: Told each stage in words; True for standard error, the default on a terminal.

    Returns:
        An object with each parameter raw and working, the group's log-likelihood at every draw, and
        sampler statistics. Attributes of its posterior say what it stands on (`basis`), R-hat,
        effective size, divergences and, with `exact`, `pareto_k`. Poor mixing and weights that
        cannot be trusted are warned about, loudly.

    Raises:
        DomainError: The likelihood has several groups, or the prior is not finite on the box.
        MismatchError: `exact` is of other data.
        NonFiniteError: The exact log-likelihood is not a number at a draw.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.SIS(weights=np.ones((3, 3)), times=[0, 1, 2, 3])  # small
        >>> truth = np.mean(model.space.box(), axis=0)
        >>> xs = model.simulate(np.tile(truth, (20, 1)), np.random.default_rng(0))
        >>> result = ks.posterior(model.given(xs), method="smc")
        >>> result.posterior.attrs["basis"], result.posterior["lambda"].shape
        ('exact', (4, 1000))
    """
    require_likelihood(like)
    if like.group_count != 1:
        raise DomainError(
            f"A posterior is of one group; this likelihood has {like.group_count}. Take one: "
            "ks.posterior(like[0])."
        )
    if prior is not None and not callable(prior):
        raise DtypeError(
            "prior must be None (uniform on the box) or a function: theta (d,) -> log density."
        )
    if prior is not None:
        _require_log_density(prior, like.space.d)
    draws = require_count(draws, "draws", 4)
    chains, warmup = require_count(chains, "chains"), require_count(warmup, "warmup", 20)
    seed = require_count(seed, "seed", minimum=0)
    target_acceptance = require_level(target_acceptance, "target_acceptance")
    method = require_choice(method, "method", METHODS)
    settings = Settings(draws, warmup, target_acceptance)
    named = "given" if prior is not None else _prior_name(like.space)
    prior = prior_of(like.space) if prior is None else prior
    minutes, say = as_minutes(minutes), voice(progress, "posterior")
    asked = _Asked(prior, seed, chains, settings, region, method, named, minutes, say)
    if exact is None:
        sampled = _sample(like, asked)
        value = _values(like, sampled.theta)
        return _to_arviz(like, sampled, sampled.theta, sampled.stats, value, asked, like.basis, {})
    require_together(like, exact)
    exact_draws = require_count(exact_draws, "exact_draws", minimum=2 * chains)
    exact_draws, cut = exact_draws_within(exact, exact_draws, chains, jobs, minutes)
    asked = replace(asked, minutes=None)  # draws of the surrogate cost little
    with ExactWork(exact, jobs, path) as work:
        return _reweighted(like, work, exact_draws, asked, cut)


def _sample(like: Likelihood, asked: _Asked) -> _Sampled:
    asked.say("looking for the maximum")
    found = maximum_of(like, asked.region)
    group = np.zeros(asked.chains, dtype=np.int64)
    starts, modes = _starts(like, found, asked.chains)
    if asked.method == "smc" or (asked.method == "auto" and modes > 1):
        return _particles(like, modes, asked)
    length = chains_within(like, asked.settings, asked.chains, 0, asked.minutes)
    settings = length.settings
    asked.say(f"{asked.chains} chains, {settings.warmup} steps of warm-up, {settings.draws} draws")
    theta, stats = sample(like, asked.prior, found, group, asked.seed, settings, starts)
    invariants.require_estimate(theta, *like.space.box(asked.region), "posterior")
    return _Sampled(theta, stats, modes, cut=length.cut)


def _particles(like: Likelihood, modes: int, asked: _Asked) -> _Sampled:
    """Independent populations, from the box to the posterior; some of each are handed out."""
    rng = np.random.default_rng([asked.seed, 0x53C])
    wanted = asked.settings.draws
    count = max(FEWEST_PARTICLES, wanted + wanted % 2)
    length = particles_within(like, asked.settings, asked.chains, count, asked.minutes)
    wanted, count = length.settings.draws, length.particles
    asked.say(f"{asked.chains} populations of {count} particles")
    low, high = like.space.box(asked.region)
    group, shape = np.zeros(asked.chains, dtype=np.int64), (asked.chains, count, like.space.d)
    if isinstance(asked.prior, SpacePrior):
        start = like.space.draw(asked.chains * count, rng, asked.region).reshape(shape)
        found = smc(like, group, start, like.space.unnormalised_log_prior, rng, asked.region)
    else:
        start = rng.uniform(low, high, shape)
        found = smc(_with_prior(like, asked.prior), group, start, None, rng, asked.region)
    theta = found.theta[:, :wanted]
    invariants.require_estimate(theta, low, high, "posterior")
    shape = theta.shape[:2]
    stats = {
        "acceptance_rate": np.broadcast_to(found.acceptance[:, None], shape),
        "diverging": np.zeros(shape, dtype=bool),
        "tree_depth": np.zeros(shape, dtype=np.int64),
    }
    return _Sampled(theta, stats, modes, "keepscore", length.cut)


def _prior_name(space: Space) -> str:
    return "that of the space" if space.has_prior else "uniform on the box"


def _with_prior(like: Likelihood, prior: Density | None) -> Likelihood:
    """Likelihood times prior, as far as particles ask for it."""
    if prior is None:
        return like
    import jax

    density = jax.jit(jax.vmap(prior))

    def pairs(theta: Floats, group: Integers) -> Floats:
        return like.pairs(theta, group) + np.asarray(density(theta), dtype=np.float64)

    return replace(like, pairs=pairs)


def _starts(like: Likelihood, found: Maximum, chains: int) -> tuple[Maximum | None, int]:
    """A place per chain around which it begins, if the search met several maxima that count."""
    if found.modes is None:
        return None, 1
    low, high = like.space.box(found.region)
    modes = found.modes.distinct(0, high - low)
    reach = drop(found.value[0], modes.value) <= chi2.ppf(MODES_LEVEL, like.space.d)
    rows = np.flatnonzero(reach)
    if len(rows) < 2:
        return None, 1
    of_chain = rows[np.arange(chains) % len(rows)]
    return (
        Maximum(
            modes.theta[of_chain],
            modes.value[of_chain],
            modes.curvature[of_chain],
            np.ones(chains, dtype=bool),
            0,
            found.region,
        ),
        len(rows),
    )


def _reweighted(
    like: Likelihood, work: ExactWork, exact_draws: int, asked: _Asked, cut: str = ""
) -> Any:
    """Sample, weigh, and where weights fail refine, then take the draws as proposals."""
    said = []
    sampled = replace(_sample(like, asked), cut=cut)
    asked.say(f"exact values of {exact_draws:,} draws")
    weighted = weigh(like, work, sampled.theta, exact_draws)
    first = weighted.k_hat
    if first > LARGEST_K and like.refinement is None:
        asked.say(f"weights fail (k-hat {first:.2f}); refining the likelihood")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KeepscoreWarning)  # k-hat tells whether it was enough
            like = refine_with(like, work, region=asked.region, seed=asked.seed)
        sampled = replace(_sample(like, asked), cut=cut)
        weighted = weigh(like, work, sampled.theta, exact_draws)
        said.append(f"the likelihood was {like.basis}; then k-hat was {weighted.k_hat:.2f}")
    rng = np.random.default_rng([asked.seed, 0x9515])
    trusted = weighted.k_hat <= LARGEST_K
    if trusted:
        index, moved = weighted.resampled(rng), 1.0
        how, size = "importance weights", f"{weighted.effective:.0f} effective"
    else:
        index, moved = weighted.chained(rng)
        how, size = "delayed acceptance", f"{moved:.0%} of proposals accepted"
        said.append(f"the draws became proposals of a chain, {moved:.0%} of which it accepted")
    n = len(work.computed().value)
    basis = (
        f"exact by {how}: k-hat {weighted.k_hat:.2f}, {size} of {weighted.weight.size} draws, "
        f"{n} exact evaluations, on {like.basis}"
    )
    if said:
        warnings.warn(
            f"Importance weights of these draws are not to be trusted (k-hat {first:.2f}, above "
            f"{LARGEST_K}): {'; '.join(said)}."
            + ("" if trusted else " Check that both likelihoods are of the same model."),
            KeepscoreWarning,
            stacklevel=4,
        )
    extra = {
        "pareto_k": weighted.k_hat,
        "first_pareto_k": first,
        "exact_evaluations": n,
        "effective_weights": weighted.effective,
        "accepted": moved,
    }
    return _picked(like, sampled, weighted, index, asked, basis, extra)


def _picked(
    like: Likelihood,
    sampled: _Sampled,
    weighted: Weighted,
    index: np.ndarray,
    asked: _Asked,
    basis: str,
    extra: dict[str, Any],
) -> Any:
    """The result made of the draws numbered `index` among the weighted ones."""
    shape, d = weighted.place.shape, like.space.d
    theta = weighted.theta.reshape(-1, d)[index].reshape(*shape, d)
    value = weighted.exact.ravel()[index].reshape(shape)
    chain = np.repeat(np.arange(shape[0]), shape[1])[index]
    place = weighted.place.ravel()[index]
    stats = {name: array[chain, place].reshape(shape) for name, array in sampled.stats.items()}
    return _to_arviz(like, sampled, theta, stats, value, asked, basis, extra)


def _values(like: Likelihood, theta: Floats) -> Floats:
    """Log-likelihoods (c, n) at draws theta (c, n, d)."""
    flat = theta.reshape(-1, like.space.d)
    value = like.pairs(flat, np.zeros(len(flat), dtype=np.int64))
    return np.asarray(value, dtype=np.float64).reshape(theta.shape[:2])


def _require_log_density(prior: Callable[..., Any], d: int) -> None:
    """A prior must give one real number at theta (d,), and JAX must be able to trace it."""
    import jax

    try:
        told = jax.eval_shape(prior, jax.ShapeDtypeStruct((d,), np.float32))
    except Exception as error:  # whatever a foreign function raises
        raise DtypeError(f"prior cannot be traced by JAX: {error}.") from None
    if getattr(told, "shape", None) != () or told.dtype.kind not in "fiu":
        raise DtypeError(
            f"prior must return one number, the log density at theta ({d},); got {told!r:.80}."
        )


def _to_arviz(
    like: Likelihood,
    sampled: _Sampled,
    theta: Floats,
    stats: dict[str, np.ndarray],
    value: Floats,
    asked: _Asked,
    basis: str,
    extra: dict[str, Any],
) -> Any:
    """Draws theta (c, m, d) as an ArviZ object; `sampled` is judged, as the sampler gave it."""
    result = as_arviz(
        {
            "posterior": _named(like, theta),
            "sample_stats": stats,
            "log_likelihood": {"group": value},
        }
    )
    whole = (
        result if theta is sampled.theta else as_arviz({"posterior": _named(like, sampled.theta)})
    )
    found = chain_quality(whole, like.space.working_names).values()
    worst, fewest = max(w.rhat for w in found), min(w.ess for w in found)
    # Weights may leave less than the sampler gave.
    fewest = min(fewest, float(extra.get("effective_weights", np.inf)))
    diverging = int(sampled.stats["diverging"].sum())
    cut = float((sampled.stats["tree_depth"] >= LARGEST_DEPTH).mean())
    result.posterior.attrs.update(
        inference_library=sampled.library,
        likelihood=like.kind,
        basis=basis,
        prior=asked.prior_name,
        seed=asked.seed,
        largest_rhat=worst,
        smallest_ess=fewest,
        divergences=diverging,
        maxima=sampled.modes,
        cut=sampled.cut,
        **extra,
    )
    _warn_poor_mixing(worst if theta.shape[0] > 1 else 1.0, fewest, diverging, cut, sampled.modes)
    return result


def _named(like: Likelihood, theta: Floats) -> dict[str, Floats]:
    raw, parameters = like.space.to_raw(theta), like.space.parameters
    draws = {p.name: raw[..., k] for k, p in enumerate(parameters)}
    return draws | {p.working_name: theta[..., k] for k, p in enumerate(parameters)}


def _warn_poor_mixing(rhat: float, ess: float, diverging: int, cut: float, modes: int) -> None:
    faults = []
    # Of few draws R-hat is larger by chance: beyond this one to three times in a hundred.
    usual = max(LARGEST_RHAT, 1 + RHAT_BY_CHANCE / ess) if ess >= FEWEST_ESS else LARGEST_RHAT
    if not rhat <= usual:
        faults.append(f"R-hat is {rhat:.3f} (above {usual:.3g})")
        if modes > 1:
            faults.append(
                f"chains began at {modes} separate maxima and do not move freely between them, so "
                "how many draws are around each is not its probability"
            )
    if diverging:
        faults.append(f"{diverging} transition(s) diverged")
    if cut > MOST_CUT:
        faults.append(f"{cut:.0%} of the trajectories were cut at {2**LARGEST_DEPTH} steps")
    few = not ess >= SMALLEST_ESS
    if few and (faults or not ess >= FEWEST_ESS):
        faults.append(f"the effective sample size is {ess:.0f} (below {SMALLEST_ESS})")
    elif few:
        warnings.warn(
            f"These draws are few: the effective sample size is {ess:.0f}, so means are known to "
            f"{1 / math.sqrt(ess):.0%} of the posterior's standard deviation, and the ends "
            f"of intervals less well. No other fault was found. Ask for more "
            f"({SMALLEST_ESS} effective ones are usual).",
            KeepscoreWarning,
            stacklevel=4,
        )
    if faults:
        warnings.warn(
            f"DO NOT TRUST these draws yet: {'; '.join(faults)}. Use more draws or warm-up, or "
            "look at the likelihood surface and the prior.",
            KeepscoreWarning,
            stacklevel=4,
        )
