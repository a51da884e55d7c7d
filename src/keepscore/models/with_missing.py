"""A model whose data have holes: NaN in x means "not observed".

Let m be the mask, drawn independently of x and theta, and x_o the entries that are observed. Then

    log p(x_o, m | theta)  = log p(x_o | theta) + log p(m)               m says nothing of theta
    score                  = d log p(x_o | theta) / d theta
    E[s(x) | x_o]          = score,                  s(x) the score of all of x, or a joint one

The first needs the law of some entries alone: `log_prob_observed` of the model that is wrapped, or,
for rows that are independent and alike (structure "iid") and missing as a whole, a sum over those
that are there. That sum comes from the model's own log_prob, of x with N rows, of which n are
observed: fill the missing ones with copies of an observed row r, and take off what they brought,

    sum over observed of l(x_i) = log p(filled) - (N - n)/N log p(r, r, ..., r).

The last line is Fisher's identity. So where there is no law of some entries, the scores of complete
simulations still teach: they are joint scores of the observed part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_declared, as_theta, require_choice, require_parts
from keepscore.errors import DomainError, MissingError
from keepscore.likelihood import Integers, Likelihood, as_groups, digests
from keepscore.models.base import (
    Model,
    ScoreKind,
    Symmetry,
    as_pairs,
    build,
    declares_missing,
    describe,
    register_wrapper,
    trend_of,
)
from keepscore.models.masks import Flags, Mask, MaskFunction, as_mask, mask_from
from keepscore.models.trend import Trend
from keepscore.space import Space

SUFFIX = "-missing"
MOST_ENTRIES = 4_000_000  # of x in one call of log_prob: 32 MB


@final
@dataclass(frozen=True, eq=False)
class MissingModel:
    """A model and how its data go missing; made by `with_missing`."""

    base: Model
    mask: Mask
    score_kind: ScoreKind | None

    missing = True

    @property
    def name(self) -> str:
        return self.base.name + SUFFIX

    @property
    def space(self) -> Space:
        return self.base.space

    @property
    def x_shape(self) -> tuple[int, ...]:
        return tuple(self.base.x_shape)

    @property
    def x_dtype(self) -> np.dtype[Any]:
        """That of the model, or float32, which holds whole numbers up to 2^24 exactly."""
        dtype = np.dtype(self.base.x_dtype)
        return dtype if dtype.kind == "f" else np.dtype(np.float32)

    @property
    def structure(self) -> str | None:
        """That of complete data; networks for data with holes are chosen by it too."""
        return self.base.structure

    @cached_property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Those of the model that leave the law of the mask as it is."""
        return tuple(s for s in self.base.symmetries if self.mask.keeps(s.x_index, self.x_shape))

    @property
    def trend(self) -> Trend | None:
        """That of the model; where entries are missing, it is taken off the observed ones."""
        return trend_of(self.base)

    def settings(self) -> dict[str, Any]:
        """Plain data that rebuilds this model, where the one inside can be."""
        return {
            "base": describe(self.base),
            "mask": self.mask.settings(),
            "score": self.score_kind,
        }

    # --- simulation ---

    def simulate(self, theta: ArrayLike, rng: np.random.Generator) -> NDArray[Any]:
        """x of the model, (n, *x_shape), with NaN where nothing was observed."""
        rows = as_theta(theta, self.space.d)
        return self._with_holes(self.base.simulate(rows, rng), rng)

    def simulate_with_score(
        self, theta: ArrayLike, rng: np.random.Generator
    ) -> tuple[NDArray[Any], Floats]:
        """The same x, and the score of what was observed or, if joint, of the complete x."""
        rows = as_theta(theta, self.space.d)
        if self.score_kind == "joint":
            complete, joint = self.base.simulate_with_score(rows, rng)
            return self._with_holes(complete, rng), joint
        x = self.simulate(rows, rng)
        return x, self.score(rows, x)

    def _with_holes(self, complete: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        n = len(complete)
        source = f"simulate of {self.base.name!r}"
        x = as_declared(complete, (n, *self.x_shape), self.x_dtype, source)
        x[self.mask.draw(self.x_shape, n, rng)] = np.nan
        return x if self.trend is None else self.trend.take_off(x).astype(self.x_dtype, copy=False)

    # --- the likelihood of what was observed ---

    def log_prob(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """log p(x_o | theta), row by row; 0 where nothing was observed."""
        rows, data = as_pairs(self, theta, x)
        if declares_missing(self.base):  # its own likelihood understands NaN
            return self.base.log_prob(rows, data)
        if hasattr(self.base, "log_prob_observed"):
            return self.base.log_prob_observed(rows, data)
        return self._of_whole_rows(rows, data, with_score=False)[0]

    def score(self, theta: ArrayLike, x: ArrayLike) -> Floats:
        """Gradient of `log_prob` in theta, row by row."""
        return self.log_prob_and_score(theta, x)[1]

    def log_prob_and_score(self, theta: ArrayLike, x: ArrayLike) -> tuple[Floats, Floats]:
        rows, data = as_pairs(self, theta, x)
        if declares_missing(self.base):
            return self.base.log_prob_and_score(rows, data)
        if hasattr(self.base, "log_prob_and_score_observed"):
            return self.base.log_prob_and_score_observed(rows, data)
        return self._of_whole_rows(rows, data, with_score=True)

    def _of_whole_rows(
        self, theta: Floats, x: NDArray[Any], with_score: bool
    ) -> tuple[Floats, Floats]:
        """The sum over the rows of x that are there, as the top of this file says."""
        if self.structure != "iid":
            raise MissingError(
                f"Model {self.base.name!r} has no likelihood of some entries of x alone: it needs "
                "log_prob_observed(theta, x) and log_prob_and_score_observed(theta, x), of x with "
                "NaN where nothing was observed (from_functions: log_prob_observed=...). Without "
                "them it can be simulated, and a surrogate trained."
            )
        value, score = np.zeros(len(theta)), np.zeros_like(theta)
        gone = missing_rows_of(x)
        some = np.flatnonzero(~gone.all(axis=1))
        if len(some) == 0:
            return value, score
        filled, of_one, weight = _filled(x[some], gone[some])
        at = theta[some]
        if with_score:
            both, slopes = self.base.log_prob_and_score(at, filled)
            one, slope = self.base.log_prob_and_score(at, of_one)
            score[some] = slopes - weight[:, None] * slope
        else:
            both, one = self.base.log_prob(at, filled), self.base.log_prob(at, of_one)
        possible = ~np.isneginf(both)  # if one row is impossible, so are all of them together
        value[some] = np.where(possible, both - weight * np.where(possible, one, 0.0), -np.inf)
        return value, score

    def given(self, xs: ArrayLike, *, each: bool = False) -> Likelihood:
        """Likelihood of (n, *x_shape) with NaN where nothing was observed, one theta for all (with
        each=True, one per observation), or of groups (g, n, *x_shape)."""
        observed, single = as_groups(xs, self.x_shape, each, missing=True)
        groups = np.array(observed, dtype=np.float64)
        g, n = groups.shape[:2]
        d, most = self.space.d, max(1, MOST_ENTRIES // max(1, n * int(np.prod(self.x_shape))))

        def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
            value, score = np.empty(len(theta)), np.empty((len(theta), d))
            for k in range(0, len(theta), most):
                part = slice(k, k + most)
                v, s = self.log_prob_and_score(*_each(theta[part], groups[group[part]]))
                value[part] = v.reshape(-1, n).sum(axis=1)
                score[part] = s.reshape(-1, n, d).sum(axis=1)
            return value, score

        def pairs(theta: Floats, group: Integers) -> Floats:
            value = np.empty(len(theta))
            for k in range(0, len(theta), most):
                part = slice(k, k + most)
                v = self.log_prob(*_each(theta[part], groups[group[part]]))
                value[part] = v.reshape(-1, n).sum(axis=1)
            return value

        def surface(theta: Floats) -> Floats:
            # All groups of one theta together: those with the same holes share their work.
            group = np.tile(np.arange(g), len(theta))
            return pairs(np.repeat(theta, g, axis=0), group).reshape(len(theta), g).T

        return Likelihood(
            self.space, g, n, pairs, pairs_gradient, surface, single, observed=digests(groups)
        )


def _each(theta: Floats, groups: Floats) -> tuple[Floats, Floats]:
    """Every observation of groups (p, n, *x_shape) with its theta (p, d)."""
    n = groups.shape[1]
    return np.repeat(theta, n, axis=0), groups.reshape(-1, *groups.shape[2:])


def missing_rows_of(x: NDArray[Any]) -> Flags:
    """Which rows (b, N) of x (b, N, ...) are missing; rows that are so in part are refused."""
    nan = np.isnan(np.asarray(x, dtype=np.float64))
    inside = tuple(range(2, x.ndim))
    gone, partly = np.asarray(nan.all(axis=inside)), np.asarray(nan.any(axis=inside))
    if not np.array_equal(gone, partly):
        place = tuple(int(i) for i in np.argwhere(gone != partly)[0])
        raise DomainError(
            f"A row of x must be observed as a whole or not at all (all NaN); row {place[1]} of "
            f"data set {place[0]} has both. For such rows give from_functions the likelihood of "
            "what is observed: log_prob_observed=..."
        )
    return gone


def _filled(x: NDArray[Any], gone: Flags) -> tuple[NDArray[Any], NDArray[Any], Floats]:
    """x with an observed row in every missing place, that row N times, and the share missing."""
    first = np.argmin(gone, axis=1)
    row = x[np.arange(len(x)), first][:, None]
    of_one = np.broadcast_to(row, x.shape).copy()
    wide = gone.reshape(*gone.shape, *(1,) * (x.ndim - 2))
    return np.where(wide, row, x), of_one, gone.mean(axis=1)


def with_missing(
    model: Model,
    mask: float | ArrayLike | Mask | MaskFunction,
    *,
    score: ScoreKind | None = None,
) -> MissingModel:
    """The same model with holes in its data: NaN in x means "not observed".

    What is missing must not depend on the values or on theta (missing completely at random). Values
    that are missing because of what they are, such as those below a limit of detection, tell
    something, and need a model of their own: `from_functions(..., missing=True)`.

    Args:
        model: The model of complete data.
        mask: How data go missing in simulations. A rate in [0, 1): each entry by itself, or, for
            structure "iid", each row as a whole. An array of True (not observed) and False in the
            shape of x: always the same. One of `ks.models.clouds`, `drop_out`, `missing_visits`
            and `missing_rows`. Or a function (x_shape, n, rng) -> bool (n, *x_shape).
        score: "exact" (the score of what was observed; the default where the model can tell it) or
            "joint" (that of the complete simulation, whose mean given the observed part is the
            exact one; cheaper where many different holes make the exact one slow).

    Returns:
        A model with the same parameters and x_shape, floating x, and the exact likelihood and score
        of the observed entries where `model` can tell them: fields, models with structure "iid" for
        whole rows, and models with `log_prob_observed`.

    Raises:
        ShapeError, DtypeError, DomainError: No mask for such data.
        MissingError: A score that the model does not have.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> field = ks.models.GaussianField(shape=(6, 6))
        >>> model = ks.models.with_missing(field, mask=ks.models.clouds(share=0.2, size=2))
        >>> x = model.simulate(model.space.grid(2)[:1], np.random.default_rng(0))
        >>> model.name, model.score_kind, int(np.isnan(x).sum())
        ('gaussian-field-missing', 'exact', 6)
        >>> np.isfinite(model.log_prob(model.space.grid(2)[:1], x)).item()
        True
    """
    require_parts(model, "model", "name", "space", "x_shape", "x_dtype", "simulate", "score_kind")
    if hasattr(model, "simulate_at"):
        raise DomainError(
            f"x of {model.name!r} holds its design, which cannot go missing. Let the design have "
            "fewer rows instead: visits=(low, high) of with_times, sites=(low, high) of with_sites."
        )
    drawn = as_mask(mask, whole_rows=model.structure == "iid")
    drawn.require_fits(tuple(model.x_shape))
    if np.dtype(model.x_dtype).kind not in "biuf":
        raise DomainError(f"x of {model.name!r} holds no numbers: {model.x_dtype}.")
    return MissingModel(model, drawn, _score_kind(model, score))


def _score_kind(model: Model, wanted: ScoreKind | None) -> ScoreKind | None:
    """What `simulate_with_score` of the wrapped model will give."""
    observed = hasattr(model, "log_prob_and_score_observed") or (
        model.score_kind == "exact" and (model.structure == "iid" or declares_missing(model))
    )
    if wanted is None:
        if model.score_kind == "exact" and observed:
            return "exact"
        return None if model.score_kind is None else "joint"
    require_choice(wanted, "score", ("exact", "joint"))
    if wanted == "exact" and not observed:
        raise MissingError(
            f"Model {model.name!r} cannot tell the score of some entries of x alone: it has no "
            "log_prob_and_score_observed. Leave score= out, or give score='joint'."
        )
    if wanted == "joint" and model.score_kind is None:
        raise MissingError(f"Model {model.name!r} has no scores; train with loss=ks.BCE().")
    return wanted


def _rebuilt(base: Mapping[str, Any], mask: Mapping[str, Any], score: str | None) -> MissingModel:
    """From what `settings` gave."""
    found = with_missing(build(base), mask_from(mask), score=score)  # type: ignore[arg-type]
    return MissingModel(found.base, found.mask, None) if score is None else found


register_wrapper(SUFFIX, _rebuilt)
