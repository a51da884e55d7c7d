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
MOST_PARAMETERS = 4096


@dataclass(frozen=True)
class Quality:
    """What was measured when a surrogate was trained.

    validation_bce: the loss on `pairs` held-out rows; if `paired`, the loss of pairs. score_r2: one
    number per parameter, None where the held-out rows have no scores of kind `score_kind`. loss:
    "ASA" or "BCE", what the kept network was trained with; where both were tried, other_bce is the
    same loss of the one that was not kept. whole: whether it was trained for as long as advised.
    robust: whether score_r2 is the robust one.
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

    def poor(self) -> list[int]:
        """The parameters whose exact score is followed badly."""
        if self.score_r2 is None or self.score_kind != "exact":
            return []
        return [k for k, value in enumerate(self.score_r2) if value < POOR]

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
        text += f" ({self.pairs:,} held-out pairs)"
        if self.other_bce is not None:
            other = "BCE alone" if self.loss == "ASA" else "ASA"
            text += f"; kept {self.loss}, {other} had {self.other_bce:.4f}"
        return text if self.whole else f"{text}; trained for fewer updates than advised"

    def to_dict(self) -> dict[str, object]:
        """Plain data for a surrogate's file."""
        content = asdict(self)
        content["score_r2"] = None if self.score_r2 is None else list(self.score_r2)
        return content

    @classmethod
    def from_dict(cls, content: object, d: int) -> Quality:
        """What `to_dict` made of a surrogate with d parameters; else a `FormatError`."""
        names = {f.name for f in fields(cls)}
        if isinstance(content, Mapping):
            # Earlier versions knew the other ones only.
            content = {"robust": False, "paired": False, **content}
        if not isinstance(content, Mapping) or set(content) != names:
            raise FormatError("its fields are not those of a quality")
        r2, kind = content["score_r2"], content["score_kind"]
        held = isinstance(r2, list) and len(r2) == d and all(_is_share(value) for value in r2)
        other = content["other_bce"]
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
        )
        if not right:
            raise FormatError("its numbers cannot be those of a quality")
        return cls(**{**content, "score_r2": None if r2 is None else tuple(map(float, r2))})


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
