"""How good a surrogate is, measured on pairs that it was not trained on, right after training.

    validation BCE   the loss of telling own from foreign theta; log 2 = .693 knowing nothing
    score R^2        1 - sum_i (s_ik - t_ik)^2 / sum_i (t_ik - mean t_k)^2, for each parameter k

A network that is a density q(x | theta) would need its evidence, an integral for each x, for that
BCE. In its place stands the loss of telling which of two theta is the own one, where the evidence
cancels (`training/validation.py`); it is log 2, too, knowing nothing:

    loss of pairs    mean of log(1 + q(x_i | theta_j) / q(x_i | theta_i)),   theta_j foreign

s is the score of the network and t that of the data, at held-out pairs: 1 is perfect, 0 is no
better than a constant, and below 0 is worse. Where the exact scores have heavy tails, a few rows
would decide it alone; the share is then of what the robust loss charges (`losses/score.py`):

    robust R^2       1 - sum_i rho(s_ik - t_ik) / sum_i rho(t_ik),     rho(e) = log(1 + (e / m_k)^2)

with m_k the median of |t_ik| (the score's mean is zero, so a constant predicts zero). The score is
the slope of the log-likelihood, which estimates and tests rest on. Where the data have joint
scores, which scatter around the score, even a perfect network has an R^2 below 1, and how far below
is not known: it is shown, nothing more.

    information ratio    variance of the surrogate's own score over its information, per parameter

is 1 for the true likelihood and above 1 for a surrogate that takes noise for news, whatever scores
the data have (`training/information.py`). Intervals are too short by its root.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np

from keepscore.checks import Floats
from keepscore.errors import FormatError
from keepscore.models.base import ScoreKind
from keepscore.numerics.alike import all_alike

POOR = 0.5  # an R^2 below this is warned of
TOO_SURE = 1.5  # an information ratio that is above this by two standard errors, too
UNKNOWN = 100.0  # standard error of a ratio that cannot be told; ratios beyond it are all the same
MOST_PARAMETERS = 4096


@dataclass(frozen=True)
class Quality:
    """What was measured when a surrogate was trained.

    validation_bce: the loss on `pairs` held-out rows; if `paired`, the loss of pairs. score_r2: one
    number per parameter, None where the held-out rows have no scores of kind `score_kind`. loss:
    "ASA" or "BCE", what the kept network was trained with; where both were tried, other_bce is the
    same loss of the one that was not kept. whole: whether it was trained for as long as advised.
    robust: whether score_r2 is the robust one. information, information_error: the information
    ratio per parameter and its standard error (`UNKNOWN` where the likelihood has no curve that can
    be told from none), None where there were too few rows.
    """

    validation_bce: float
    pairs: int
    score_r2: tuple[float, ...] | None
    score_kind: ScoreKind | None
    loss: str
    whole: bool
    other_bce: float | None = None
    robust: bool = False
    paired: bool = False
    information: tuple[float, ...] | None = None
    information_error: tuple[float, ...] | None = None

    def poor(self) -> list[int]:
        """The parameters whose exact score is followed badly."""
        if self.score_r2 is None or self.score_kind != "exact":
            return []
        return [k for k, value in enumerate(self.score_r2) if value < POOR]

    def too_sure(self) -> list[int]:
        """The parameters of which the surrogate is surer than it may be."""
        if self.information is None or self.information_error is None:
            return []
        both = zip(self.information, self.information_error, strict=True)
        return [k for k, (ratio, error) in enumerate(both) if ratio - 2 * error > TOO_SURE]

    def ratios(self, names: Sequence[str], which: Sequence[int]) -> str:
        """The information ratios of some parameters, in words."""
        assert self.information is not None
        assert self.information_error is not None
        return ", ".join(
            f"{names[k]} unknown"
            if self.information_error[k] >= UNKNOWN
            else f"{names[k]} {self.information[k]:.2f} ± {self.information_error[k]:.2f}"
            for k in which
        )

    def line(self, names: Sequence[str]) -> str:
        """In one line: what a user should know before trusting the surrogate."""
        what = "loss of pairs" if self.paired else "BCE"
        text = f"validation {what} {self.validation_bce:.4f} (knowing nothing: {math.log(2):.4f})"
        if self.score_r2 is None:
            text += "; no scores held out"
        else:
            against = "" if self.score_kind == "exact" else " against joint scores, which scatter"
            each = ", ".join(f"{n} {v:.3f}" for n, v in zip(names, self.score_r2, strict=True))
            kind = "robust score R²" if self.robust else "score R²"
            text += f"; {kind}{against}: {each}"
        told = self.too_sure() if self.score_r2 is not None else range(len(self.information or ()))
        if told:
            text += f"; information ratio (1 is right): {self.ratios(names, told)}"
        text += f" ({self.pairs:,} held-out pairs)"
        if self.other_bce is not None:
            other = "BCE alone" if self.loss == "ASA" else "ASA"
            text += f"; kept {self.loss}, {other} had {self.other_bce:.4f}"
        return text if self.whole else f"{text}; trained for fewer updates than advised"

    def to_dict(self) -> dict[str, object]:
        """Plain data for a surrogate's file."""
        content = asdict(self)
        for name in ("score_r2", "information", "information_error"):
            content[name] = None if content[name] is None else list(content[name])
        return content

    @classmethod
    def from_dict(cls, content: object, d: int) -> Quality:
        """What `to_dict` made of a surrogate with d parameters; else a `FormatError`."""
        names = {f.name for f in fields(cls)}
        if isinstance(content, Mapping):
            # Earlier versions knew the other ones only.
            content = {
                "robust": False,
                "paired": False,
                "information": None,
                "information_error": None,
                **content,
            }
        if not isinstance(content, Mapping) or set(content) != names:
            raise FormatError("its fields are not those of a quality")
        r2, kind = content["score_r2"], content["score_kind"]
        held = isinstance(r2, list) and len(r2) == d and all(_is_share(value) for value in r2)
        other = content["other_bce"]
        ratios = [content["information"], content["information_error"]]
        told = all(isinstance(one, list) and len(one) == d for one in ratios)
        right = (
            _is_loss(content["validation_bce"])
            and type(content["pairs"]) is int
            and content["pairs"] > 0
            and (held if kind is not None else r2 is None)
            and kind in (None, "exact", "joint")
            and content["loss"] in ("ASA", "BCE")
            and type(content["whole"]) is bool
            and type(content["robust"]) is bool
            and type(content["paired"]) is bool
            and (other is None or _is_loss(other))
            and (ratios == [None, None] or (told and all(map(_is_loss, (*ratios[0], *ratios[1])))))
        )
        if not right:
            raise FormatError("its numbers cannot be those of a quality")
        lists = {"score_r2": r2, "information": ratios[0], "information_error": ratios[1]}
        tuples = {name: v if v is None else tuple(map(float, v)) for name, v in lists.items()}
        return cls(**{**content, **tuples})


def score_r2(network: Floats, data: Floats) -> tuple[float, ...]:
    """R^2 for each parameter of scores (n, d) against those of the data; 0 where the latter do not
    vary."""
    error = ((network - data) ** 2).sum(axis=0)
    spread = ((data - data.mean(axis=0)) ** 2).sum(axis=0)
    alike = all_alike(data)
    found = np.where(alike, 0.0, 1 - error / np.where(alike, 1.0, spread))
    return tuple(float(value) for value in np.maximum(found, -np.finfo(np.float64).max))


def _is_loss(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value) and value >= 0


def _is_share(value: object) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value <= 1
    )
