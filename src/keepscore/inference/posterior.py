"""Posterior draws of one group by NUTS (nuts.py), from an exact or a surrogate likelihood.

The draws come as an ArviZ object with names, and what they are worth is looked at before they are
handed over: R-hat, effective sample size, divergences and trajectories cut short.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from keepscore.checks import Floats, require_count, require_level
from keepscore.errors import DomainError, DtypeError, KeepscoreWarning
from keepscore.inference import invariants
from keepscore.inference.draws import as_arviz, chain_quality
from keepscore.inference.maximise import maximum_of
from keepscore.inference.nuts import LARGEST_DEPTH, Density, Settings, sample
from keepscore.likelihood import Likelihood, require_likelihood
from keepscore.space import Region

LARGEST_RHAT = 1.01
SMALLEST_ESS = 400
MOST_CUT = 0.01  # share of trajectories that reached their largest length


def posterior(
    like: Likelihood,
    prior: Density | None = None,
    seed: int = 0,
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 500,
    region: Region = "base",
    target_acceptance: float = 0.85,
) -> Any:
    """Draws from the posterior of one group, as an ArviZ object (InferenceData or DataTree).

    `prior` is the log density of the working parameters theta (d,), up to a constant, written in
    JAX; None is uniform on the box. The object holds each parameter raw and working, the group's
    log-likelihood at every draw, and sampler statistics. Poor mixing is warned about, loudly.
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
    draws = require_count(draws, "draws", 4)
    chains, warmup = require_count(chains, "chains"), require_count(warmup, "warmup", 20)
    seed = require_count(seed, "seed", minimum=0)
    target_acceptance = require_level(target_acceptance, "target_acceptance")
    found = maximum_of(like, region)
    group = np.zeros(chains, dtype=np.int64)
    settings = Settings(draws, warmup, target_acceptance)
    theta, stats = sample(like, prior, found, group, seed, settings)
    invariants.require_estimate(theta, *like.space.box(region), "posterior")
    return _to_arviz(like, theta, stats, seed, "uniform on the box" if prior is None else "given")


def _to_arviz(
    like: Likelihood, theta: Floats, stats: dict[str, np.ndarray], seed: int, prior: str
) -> Any:
    space, raw = like.space, like.space.to_raw(theta)
    draws = {p.name: raw[..., k] for k, p in enumerate(space.parameters)}
    draws |= {p.working_name: theta[..., k] for k, p in enumerate(space.parameters)}
    flat = theta.reshape(-1, space.d)
    value = like.pairs(flat, np.zeros(len(flat), dtype=np.int64)).reshape(theta.shape[:2])
    groups = {
        "posterior": draws,
        "sample_stats": stats,
        "log_likelihood": {"group": np.asarray(value, dtype=float)},
    }
    result = as_arviz(groups)
    found = chain_quality(result, space.working_names).values()
    worst, fewest = max(w.rhat for w in found), min(w.ess for w in found)
    diverging = int(stats["diverging"].sum())
    cut = float((stats["tree_depth"] >= LARGEST_DEPTH).mean())
    result.posterior.attrs.update(
        inference_library="blackjax",
        likelihood=like.kind,
        prior=prior,
        seed=seed,
        largest_rhat=worst,
        smallest_ess=fewest,
        divergences=diverging,
    )
    _warn_poor_mixing(worst if theta.shape[0] > 1 else 1.0, fewest, diverging, cut)
    return result


def _warn_poor_mixing(rhat: float, ess: float, diverging: int, cut: float) -> None:
    faults = []
    if not rhat <= LARGEST_RHAT:
        faults.append(f"R-hat is {rhat:.3f} (above {LARGEST_RHAT})")
    if not ess >= SMALLEST_ESS:
        faults.append(f"the effective sample size is {ess:.0f} (below {SMALLEST_ESS})")
    if diverging:
        faults.append(f"{diverging} transition(s) diverged")
    if cut > MOST_CUT:
        faults.append(f"{cut:.0%} of the trajectories were cut at {2**LARGEST_DEPTH} steps")
    if faults:
        warnings.warn(
            f"DO NOT TRUST these draws yet: {'; '.join(faults)}. Use more draws or warm-up, or "
            "look at the likelihood surface and the prior.",
            KeepscoreWarning,
            stacklevel=4,
        )
