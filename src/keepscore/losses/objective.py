"""The two objectives, as records of their settings.

BCE    L_BCE
ASA    L_BCE + sum_k alpha_k L_k    (adaptive score augmentation)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from keepscore.checks import require_count
from keepscore.errors import DomainError, FormatError, unknown_name
from keepscore.losses.score import SCORE_METHODS


@dataclass(frozen=True)
class BCE:
    """Binary cross-entropy; `negatives` Y = 0 pairs are drawn for each x."""

    negatives: int = 1

    def __post_init__(self) -> None:
        require_count(self.negatives, "negatives")

    @property
    def uses_scores(self) -> bool:
        return False


@dataclass(frozen=True)
class ASA:
    """Cross-entropy with the score loss beside it, weighted by the ratio of their gradients.

    network_score: how the network's own score is computed; "autodiff" and "forward" are exact,
    "finite-difference" is the paper's. A value of alpha is taken every `update_every` batches and
    averaged over the last `history` of them with weights that fall by e in `decay` batches.
    per_parameter: one alpha for each parameter instead of one for all. The defaults are the
    paper's; `ASA.recommended()` is what we advise.
    """

    network_score: str = "autodiff"
    update_every: int = 64
    history: int = 64
    decay: float = 64.0
    per_parameter: bool = False
    negatives: int = 1

    def __post_init__(self) -> None:
        if self.network_score not in SCORE_METHODS:
            raise unknown_name("network_score", self.network_score, SCORE_METHODS)
        require_count(self.update_every, "update_every")
        require_count(self.history, "history")
        require_count(self.negatives, "negatives")
        if not self.decay > 0:
            raise DomainError(f"decay must be positive (in batches); got {self.decay!r}.")

    @classmethod
    def recommended(cls, **changes: Any) -> ASA:
        """One alpha for each parameter (docs/decisions.md 19)."""
        return cls(**{"per_parameter": True, **changes})

    @property
    def uses_scores(self) -> bool:
        return True


Loss = BCE | ASA


def loss_to_dict(loss: Loss) -> dict[str, Any]:
    """Plain data for a run's record."""
    return {"name": type(loss).__name__, **asdict(loss)}


def loss_from_dict(content: dict[str, Any]) -> Loss:
    """The loss of a record."""
    settings = {k: v for k, v in content.items() if k != "name"}
    kinds: dict[str, Any] = {"BCE": BCE, "ASA": ASA}
    if content.get("name") not in kinds:
        raise FormatError(f"Not the record of a loss: {content!r}.")
    try:
        return kinds[content["name"]](**settings)
    except TypeError as error:
        raise FormatError(f"Not the record of a loss: {error}.") from None
