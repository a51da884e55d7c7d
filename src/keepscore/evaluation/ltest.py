"""The L-test: how close is the learned log-ratio to the exact one, over the whole base space?

Pairs (theta_i, x_i), theta_i drawn from the base space, x_i ~ p(x | theta_i); pi a permutation
without fixed points; h the surrogate's log-ratio, l the exact log-likelihood, s the exact score.

    BCE          1/2n sum_i [ softplus(-h(x_i, theta_i)) + softplus(h(x_i, theta_pi(i))) ]
    score MSE    1/k  sum_i [ d h(x_i, theta_i) / d theta_j - s_j(x_i, theta_i) ]^2     for each j
    RMSE         sqrt 1/k sum_i [ (h - l)(x_i, theta_i) - (h - l)(x_i, theta'_i) ]^2
                 theta'_i = theta_i + N(0, 0.1^2) (near) or N(0, 0.3^2) (far), clipped to the box
    limit        BCE with h = l(x, theta) - log p(x), p(x) over the *training* space
    excess       BCE - limit, on the same pairs

The limit is what a network reaches that has learned its training distribution perfectly. The pairs
come from the smaller base space, as in the paper; a classifier made for those would use the
evidence over that space, and be a little lower still. Exact values are taken on the first rows only
(k of them, and fewer for the evidence), as many as stated. The excess is a mean of paired
differences, so its error is far below that of either BCE. The two terms of an x are one draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.budget import Say, affordable, as_minutes, seconds_of, shortened, voice
from keepscore.checks import Floats, require_count, require_parts
from keepscore.data import Dataset, simulate
from keepscore.differences import differences
from keepscore.errors import MismatchError, MissingError
from keepscore.evaluation.estimate import Estimate, mean, root_mean_square
from keepscore.evaluation.evidence import INTERVALS, log_evidence
from keepscore.evaluation.exact_cache import Arrays, cached
from keepscore.inference import invariants
from keepscore.losses import pair_losses
from keepscore.models.base import Model, describe
from keepscore.space import Space
from keepscore.surrogate import Surrogate

NEAR, FAR = 0.1, 0.3
BLOCK_ROWS = 8192
EVIDENCES = 500  # pairs of which p(x) is computed, where a network is a density
FEWEST = 20  # pairs with exact values, where the time is short


class LogRatio(Protocol):
    """What the L-test asks of a surrogate."""

    @property
    def space(self) -> Space: ...
    def log_ratio(self, theta: ArrayLike, x: ArrayLike) -> NDArray[Any]: ...
    def score(self, theta: ArrayLike, x: ArrayLike) -> NDArray[Any]: ...


@dataclass(frozen=True)
class LTestSet:
    """Pairs and their exact values: all that does not depend on a surrogate.

    data: n pairs; partner (n,): pi; exact: log_prob (k,), score (k, d), near_theta, far_theta
    (k, d) with near, far (k,), negative (k,) = l(x_i, theta_pi(i)), evidence (e,) = log p(x_i) and
    quadrature_error (e,). Without a likelihood `exact` is empty.
    """

    data: Dataset
    partner: NDArray[np.int64]
    exact: Arrays
    seed: int


@dataclass(frozen=True)
class LTest:
    """Metrics of the L-test, each with its Monte Carlo standard error; None where no exact value
    exists. n pairs, of which the first `exact` have exact values and `evidence` the evidence."""

    names: tuple[str, ...]
    n: int
    exact: int
    evidence: int
    bce: Estimate
    score_mse: tuple[Estimate, ...] | None
    score_variance: tuple[float, ...] | None
    rmse_near: Estimate | None
    rmse_far: Estimate | None
    bce_limit: Estimate | None
    bce_excess: Estimate | None
    quadrature_error: float | None
    cut: str = ""  # what did not fit into the time

    def __post_init__(self) -> None:
        # NaN passes: a surrogate, or a model where data are impossible, may have no finite value.
        for name, found in self.rows():
            value = [0.0 if name == "bce_excess" else found.value, found.se]
            law = f"{name} and its standard error must not be negative"
            invariants.require(~(np.asarray(value) < 0), "ltest", law, value)

    def rows(self) -> Iterator[tuple[str, Estimate]]:
        """Name and value of each metric there is, in a fixed order."""
        yield "bce", self.bce
        if self.bce_limit is not None and self.bce_excess is not None:
            yield "bce_limit", self.bce_limit
            yield "bce_excess", self.bce_excess
        for name, value in zip(self.names, self.score_mse or (), strict=False):
            yield f"score_mse[{name}]", value
        for key, found in (("rmse_near", self.rmse_near), ("rmse_far", self.rmse_far)):
            if found is not None:
                yield key, found

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "n": self.n,
            "exact": self.exact,
            "evidence": self.evidence,
            "cut": self.cut,
            "quadrature_error": self.quadrature_error,
            "score_variance": None if self.score_variance is None else list(self.score_variance),
            "metrics": {name: value.to_dict() for name, value in self.rows()},
        }


def ltest(
    surrogate: LogRatio,
    model: Model,
    n: int = 10_000,
    seed: int = 0,
    exact: int = 2_000,
    evidence: int = 1_000,
    test_set: LTestSet | None = None,
    minutes: float | None = None,
    progress: Say | bool | None = None,
) -> LTest:
    """How near a surrogate is to the exact log-ratio and score, on n fresh pairs of the model.

    Args:
        surrogate: What is judged: its log-ratio and score.
        model: The model it was trained on.
        n: Pairs.
        seed: Seed of the pairs.
        exact: How many of them have exact values, for scores and differences.
        evidence: How many of those have the evidence, for the smallest cross-entropy possible.
        test_set: Pairs and exact values made beforehand by `ltest_set`, used as they are.
        minutes: Time for the exact values, by far the most of it: where they do not fit, fewer
            pairs have them (20 at least), with a warning, and the result says so in `cut`.
        progress: Told each stage in words; True for standard error, the default on a terminal.

    Returns:
        Each metric with its standard error; None where the model has no likelihood.

    Raises:
        MismatchError: Surrogate and model have different parameter spaces.

    Example:
        >>> import keepscore as ks
        >>> from types import SimpleNamespace
        >>> model = ks.models.SIS(weights=[[0, 1], [1, 0]], times=[0, 1, 2])
        >>> exact = SimpleNamespace(
        ...     space=model.space, log_ratio=model.log_prob, score=model.score
        ... )
        >>> found = ks.ltest(exact, model, n=100, exact=50, evidence=4)
        >>> found.rmse_near.value, [value.value for value in found.score_mse]
        (0.0, [0.0, 0.0])
    """
    require_parts(surrogate, "surrogate", "space", "log_ratio")
    require_parts(model, "model", "space", "simulate", "log_prob")
    require_same_space(surrogate.space, model.space)
    minutes, say, cut = as_minutes(minutes), voice(progress, "ltest"), ""
    if test_set is None:
        if minutes is not None:
            say("timing the exact likelihood")
            exact, evidence, cut = _within(model, n, seed, exact, evidence, minutes)
        say("exact values on test pairs")
        test_set = ltest_set(model, n, seed, exact, evidence)
    pairs = test_set
    say("measuring the surrogate")
    values = pairs.exact
    loss = _losses(surrogate, pairs, len(values["evidence"]) if values else 0)
    record: dict[str, Any] = {"score_mse": None, "score_variance": None, "rmse_near": None}
    record |= {"rmse_far": None, "bce_limit": None, "bce_excess": None, "quadrature_error": None}
    if values:
        record |= _against_exact(surrogate, pairs)
        e = len(values["evidence"])
        limit = pair_losses(
            values["log_prob"][:e] - values["evidence"], values["negative"][:e] - values["evidence"]
        )
        record["bce_limit"], record["bce_excess"] = mean(limit), mean(loss[:e] - limit)
        record["quadrature_error"] = float(values["quadrature_error"].mean())
    return LTest(
        names=model.space.names,
        n=len(pairs.data),
        exact=len(values["log_prob"]) if values else 0,
        evidence=len(values["evidence"]) if values else 0,
        bce=mean(loss),
        cut=cut,
        **record,
    )


def ltest_set(
    model: Model,
    n: int = 10_000,
    seed: int = 0,
    exact: int = 2_000,
    evidence: int = 1_000,
    intervals: int | None = None,
    path: Path | None = None,
) -> LTestSet:
    """Draw the pairs and compute their exact values; with a path, keep both on disk."""
    n, seed = require_count(n, "n", minimum=2), require_count(seed, "seed", minimum=0)
    k = min(n, require_count(exact, "exact", minimum=2))
    e = min(k, require_count(evidence, "evidence", minimum=2))
    folder = None if path is None else Path(path)
    data = simulate(
        model,
        n,
        seed=seed,
        purpose="test",
        scores=False,
        path=None if folder is None else folder / "pairs",
    )
    # Not the generator of the pairs themselves, which `simulate` owns.
    rng = np.random.default_rng([seed, 0x17E57])
    order = rng.permutation(len(data))
    partner = np.empty(len(data), dtype=np.int64)
    partner[order] = np.roll(order, 1)
    nudges = rng.standard_normal((2, k, model.space.d))
    theta, x, _ = data.rows(np.arange(k))
    if not _has_likelihood(model, theta[:1], x[:1]):
        return LTestSet(data, partner, {}, seed)
    rule = INTERVALS.get(model.space.d) if intervals is None else intervals
    identity = {"model": describe(model), "seed": seed, "n": n, "exact": k, "evidence": e}
    values = cached(
        None if folder is None else folder / "exact.npz",
        {**identity, "intervals": rule},
        lambda: _exact_values(model, theta, x, data.theta[partner[:k]], nudges, e, rule),
    )
    return LTestSet(data, partner, values, seed)


def seconds_per_pair(model: Model, seed: int = 0) -> tuple[float, float]:
    """What the exact values of a pair cost, and what its evidence does; nothing for a model without
    a likelihood."""
    few, more = 2, 6
    if not ltest_set(model, few, seed, few, few).exact:
        return 0.0, 0.0
    first = seconds_of(lambda: ltest_set(model, more, seed, more, few))
    second = seconds_of(lambda: ltest_set(model, more, seed, more, more))
    evidence = max(0.0, second - first) / (more - few)
    return max(0.0, first - few * evidence) / more, evidence


def _within(
    model: Model, n: int, seed: int, exact: int, evidence: int, minutes: float
) -> tuple[int, int, str]:
    """As many exact values, and evidences in proportion, as fit into the time; and what was cut."""
    n = require_count(n, "n", minimum=2)
    exact = min(n, require_count(exact, "exact", minimum=2))
    evidence = min(exact, require_count(evidence, "evidence", minimum=2))
    pair, each = seconds_per_pair(model, seed)
    seconds = pair + each * evidence / exact
    what = "pairs with exact values"
    count = affordable(minutes, seconds, exact, min(exact, FEWEST), what, "ltest")
    least = min(evidence, FEWEST)
    return count, max(least, evidence * count // exact), shortened(count, exact, what)


def _exact_values(
    model: Model,
    theta: Floats,
    x: NDArray[Any],
    partner: Floats,
    nudges: Floats,
    evidence: int,
    intervals: int | None,
) -> Arrays:
    value, score = model.log_prob_and_score(theta, x)
    near, far = (model.space.clip(theta + s * z) for s, z in zip((NEAR, FAR), nudges, strict=True))
    log_p, error = log_evidence(model, x[:evidence], intervals)
    return {
        "log_prob": value,
        "score": score,
        "near_theta": near,
        "near": model.log_prob(near, x),
        "far_theta": far,
        "far": model.log_prob(far, x),
        "negative": model.log_prob(partner, x),
        "evidence": log_p,
        "quadrature_error": error,
    }


def _losses(surrogate: LogRatio, pairs: LTestSet, at_least: int) -> Floats:
    """One BCE term per pair, in blocks so that data larger than memory pass through. Where p(x) is
    computed for each x, which takes milliseconds, of the first EVIDENCES pairs only, or as many as
    have an exact evidence."""
    theta, n = np.asarray(pairs.data.theta), len(pairs.data)
    if isinstance(surrogate, Surrogate) and surrogate.computes_evidence:
        n = min(n, max(EVIDENCES, at_least))
    relative, parts = _relative(surrogate), []
    for start in range(0, n, BLOCK_ROWS):
        index = np.arange(start, min(start + BLOCK_ROWS, n))
        x = pairs.data.rows(index)[1]
        own = np.asarray(relative(theta[index], x), dtype=np.float64)
        other = np.asarray(relative(theta[pairs.partner[index]], x), dtype=np.float64)
        evidence = surrogate.log_evidence(x) if isinstance(surrogate, Surrogate) else 0.0
        parts.append(pair_losses(own - evidence, other - evidence))
    return np.concatenate(parts)


def _relative(surrogate: LogRatio) -> Callable[[Floats, NDArray[Any]], Floats]:
    """The log-ratio up to a function of x, if it has that apart; it cancels in differences."""
    found: Callable[[Floats, NDArray[Any]], Floats] = getattr(
        surrogate, "relative", surrogate.log_ratio
    )
    return found


def _against_exact(surrogate: LogRatio, pairs: LTestSet) -> dict[str, Any]:
    exact = pairs.exact
    theta, x, _ = pairs.data.rows(np.arange(len(exact["log_prob"])))

    def blocks(function: Callable[[Floats, NDArray[Any]], Floats], at: Floats) -> Floats:
        cuts = range(0, len(at), BLOCK_ROWS)
        found = [function(at[i : i + BLOCK_ROWS], x[i : i + BLOCK_ROWS]) for i in cuts]
        return np.concatenate(found).astype(np.float64)

    score_error = blocks(surrogate.score, theta) - exact["score"]
    here = blocks(_relative(surrogate), theta) - exact["log_prob"]
    near = blocks(_relative(surrogate), exact["near_theta"]) - exact["near"]
    far = blocks(_relative(surrogate), exact["far_theta"]) - exact["far"]
    return {
        "score_mse": tuple(mean(column**2) for column in score_error.T),
        "score_variance": tuple(float(v) for v in exact["score"].var(axis=0)),
        "rmse_near": root_mean_square(here - near),
        "rmse_far": root_mean_square(here - far),
    }


def _has_likelihood(model: Model, theta: Floats, x: NDArray[Any]) -> bool:
    try:
        model.log_prob(theta, x)
    except (MissingError, MemoryError):
        return False
    return True


def require_same_space(surrogate: Space, model: Space) -> None:
    """A surrogate is judged only against a model of its own parameter space."""
    words = ("in the surrogate", "in the model")
    if differing := list(differences(surrogate.to_dict(), model.to_dict(), words=words)):
        raise MismatchError(
            "The surrogate and the model have different parameter spaces: "
            f"{'; '.join(differing[:3])}. Build the model with the settings the surrogate was "
            "trained with."
        )
