"""The score term must not do harm unnoticed: when to try without it, and which to keep.

In a healthy run the scores are learned and the cross-entropy gains by it. The score term is under
suspicion when, on held-out pairs,

    the score of some parameter is learned badly (R^2 below 1/2; of joint scores, which scatter
        around the score, below 1/10: then there is more noise in them than the cross-entropy
        may be able to bear), or
    the epoch kept has a BCE more than .02 above the best one of the run, or
    the best epoch came in the first quarter of the run.

Only then a second network is trained with cross-entropy alone, the same in all else, and the two
are compared on the same pairs: with delta_i the difference of their losses at x_i (ASA minus BCE),

    keep BCE's if   mean(delta) > max(.01, 3 sd(delta) / sqrt(n)),   else ASA's.

(Of a network that is a density the losses are those of `validation`, and the second suspicion does
not arise.) Scores are worth something beyond the BCE, so ASA is kept unless
it clearly loses. A run that learns its scores well pays nothing for this.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from keepscore import networks
from keepscore.checks import Floats
from keepscore.errors import KeepscoreWarning
from keepscore.losses import HEAVY_TAIL, pair_losses, residual_losses, score_scale, score_tail
from keepscore.numerics.evenly import evenly
from keepscore.quality import POOR, Quality, score_r2
from keepscore.surrogate import Surrogate
from keepscore.training.batches import Rows, generator
from keepscore.training.information import of_held_out

MOST_PAIRS = 4096
BCE_LOST, BCE_CLEAR = 0.02, 0.01
EARLY = 0.25
FOLLOWS_BADLY = "This surrogate follows the score badly"
TOO_SURE = "This surrogate is surer than it may be"
HIDDEN = 0.1  # R^2 below which a joint score is mostly noise


def held_out_losses(surrogate: Surrogate, held: Rows, seed: int) -> Floats:
    """The loss of each of some held-out rows, with the partners that validation gives them."""
    index = some_of(held)
    partner = generator(seed, "validation").permutation(len(held))
    x, theta = held.fetch(index)[0], held.theta
    own, other = (surrogate.relative(theta[i], x) for i in (index, partner[index]))
    if networks.has_density(surrogate.network):
        return np.logaddexp(0.0, other - own)
    return pair_losses(own, other)


def measured(surrogate: Surrogate, held: Rows, loss: str, whole: bool, seed: int) -> Quality:
    """The quality of a surrogate on held-out rows."""
    index, data = some_of(held), held.data
    r2, kind, robust = None, None, False
    if data.score is not None:
        chosen = index if held.index is None else held.index[index]
        theta, x, score = data.rows(chosen)
        ours, given, kind = surrogate.score(theta, x), np.asarray(score), data.score_kind
        robust = kind == "exact" and score_tail(given) > HEAVY_TAIL
        r2 = robust_score_r2(ours, given) if robust else score_r2(ours, given)
    value = float(held_out_losses(surrogate, held, seed).mean())
    paired = networks.has_density(surrogate.network)
    quality = Quality(value, len(index), r2, kind, loss, whole, robust=robust, paired=paired)
    ratios = of_held_out(surrogate, held)
    if ratios is None:
        return quality
    return replace(quality, information=ratios[0], information_error=ratios[1])


def robust_score_r2(network: Floats, data: Floats) -> tuple[float, ...]:
    """The robust R^2 of `quality` for each parameter; 0 where the scores of the data are all 0."""
    charged, whole = (part.sum(axis=0) for part in robust_charges(network, data))
    found = np.where(whole > 0, 1 - charged / np.where(whole > 0, whole, 1.0), 0.0)
    return tuple(float(value) for value in found)


def robust_charges(network: Floats, data: Floats) -> tuple[Floats, Floats]:
    """rho of what the network is off by, and of the scores themselves: (n, d) each."""
    scale = score_scale(data)
    ones = jnp.ones(len(scale))
    charged, whole = (
        np.asarray(residual_losses(jnp.asarray(e / scale), "cauchy", ones)).astype(np.float64)
        for e in (network - data, np.asarray(data, np.float64))
    )
    return charged, whole


def some_of(held: Rows) -> np.ndarray:
    """Held-out rows to measure on: all, or some of them evenly spread."""
    return evenly(len(held), MOST_PAIRS)


def is_suspect(
    quality: Quality, history: Sequence[Mapping[str, Any]], density: bool = False
) -> bool:
    """Whether the score term may have done harm; density: to a network that is one."""
    epochs = [record for record in history if record["event"] == "epoch"]
    curve = [record["validation_bce"] for record in epochs]
    best = int(history[-1]["best_epoch"])
    return (
        bool(quality.poor())
        or _is_hidden(quality)
        or (not density and curve[best - 1] > min(curve) + BCE_LOST)
        or best < EARLY * int(history[0]["min_epochs"])
    )


def _is_hidden(quality: Quality) -> bool:
    """Whether some joint score is mostly noise to the network."""
    return quality.score_kind == "joint" and min(quality.score_r2 or (1.0,)) < HIDDEN


def clearly_worse(asa: Floats, bce: Floats) -> bool:
    """Whether the losses of ASA at the same pairs are above those of BCE beyond doubt."""
    delta = asa - bce
    error = float(delta.std(ddof=1)) / math.sqrt(len(delta)) if len(delta) > 1 else math.inf
    return float(delta.mean()) > max(BCE_CLEAR, 3 * error)


@contextmanager
def unsaid() -> Iterator[None]:
    """Where surrogates are trained that nobody will use, nothing is said of how good they are."""
    with warnings.catch_warnings():
        for beginning in (FOLLOWS_BADLY, TOO_SURE):
            warnings.filterwarnings("ignore", re.escape(beginning), KeepscoreWarning)
        yield


def warn_of_quality(quality: Quality, names: Sequence[str], stacklevel: int) -> None:
    """All that a user should know before trusting the surrogate."""
    if quality.loss == "BCE" and quality.other_bce is not None:
        warn_of_harm(quality, stacklevel + 1)
    warn_of_poor_scores(quality, names, stacklevel + 1)
    warn_of_false_sureness(quality, names, stacklevel + 1)


def warn_of_poor_scores(quality: Quality, names: Sequence[str], stacklevel: int) -> None:
    """Say which parameters the surrogate knows little of."""
    poor = quality.poor()
    if not poor or quality.score_r2 is None:
        return
    each = ", ".join(f"{names[k]} {quality.score_r2[k]:.2f}" for k in poor)
    longer = "" if quality.whole else "Train longer (this run was shorter than advised). "
    warnings.warn(
        f"{FOLLOWS_BADLY} (R² on held-out pairs below {POOR}: {each}). "
        f"Estimates and tests of these parameters cannot be trusted. {longer}Simulate more, narrow "
        "the box, declare the structure of x, or choose another network; ks.scorecard measures the "
        "rest.",
        KeepscoreWarning,
        stacklevel=stacklevel + 1,
    )


def warn_of_false_sureness(quality: Quality, names: Sequence[str], stacklevel: int) -> None:
    """Say of which parameters the surrogate is surer than it may be."""
    sure = quality.too_sure()
    if not sure or not quality.whole:  # an unfinished one is told of that already
        return
    largest = max((quality.information or ())[k] for k in sure)
    scores = "" if quality.score_kind == "exact" else ", take exact scores along"
    warnings.warn(
        f"{TOO_SURE}: on held-out pairs its scores vary more than its "
        "likelihood is curved, where both are alike for the true one (information ratio, 1 is "
        f"right: {quality.ratios(names, sure)}). Intervals come out too short by a factor of up to "
        f"{math.sqrt(largest):.1f}, and tests reject too often. Simulate more{scores}, declare the "
        "structure of x, or set the tests right by ks.calibrate.",
        KeepscoreWarning,
        stacklevel=stacklevel + 1,
    )


def warn_of_harm(quality: Quality, stacklevel: int) -> None:
    """Say that the scores did harm, and that the network without them was kept."""
    loss = "loss of pairs" if quality.paired else "BCE"
    warnings.warn(
        f"The score term did harm: validation {loss} {quality.other_bce:.4f} with scores (ASA), "
        f"{quality.validation_bce:.4f} without (BCE). The network trained without scores was kept. "
        "Are the scores right (ks.check_model), or very large in places?",
        KeepscoreWarning,
        stacklevel=stacklevel + 1,
    )
