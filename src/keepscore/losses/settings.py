"""The two objectives, as records of their settings.

BCE    L_BCE
ASA    L_BCE + sum_k alpha_k L_k    (adaptive score augmentation; L_k as in `score`)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from keepscore.checks import as_number, require_choice, require_count, require_flag
from keepscore.errors import DomainError, FormatError
from keepscore.losses.score import RESIDUALS, SCORE_METHODS, Residual
from keepscore.models.base import ScoreKind

AUTO = "auto"
# What "auto" stands for with exact scores: by whether their tails (`score_tail`) are heavier than
# this, as measured (docs/decisions.md 46).
HEAVY_TAIL = 5.5
RESIDUAL_OF_HEAVY: Residual = "cauchy"
RESIDUAL_OF_LIGHT: Residual = "squared"


@dataclass(frozen=True)
class BCE:
    """Binary cross-entropy: the loss without scores.

    Args:
        negatives: Pairs with Y = 0 (x with the theta of another row) drawn per x.

    Raises:
        DtypeError: `negatives` is no whole number.
        DomainError: It is below 1.

    Example:
        >>> import keepscore as ks
        >>> ks.BCE(negatives=4)
        BCE(negatives=4)
        >>> ks.BCE().uses_scores
        False
    """

    negatives: int = 1

    def __post_init__(self) -> None:
        _keep_counts(self, "negatives")

    @property
    def uses_scores(self) -> bool:
        return False


@dataclass(frozen=True)
class ASA:
    """Cross-entropy with the score loss beside it, weighted by the ratio of their gradients.

    The defaults are what we advise (docs/decisions.md 19); `ASA.paper()` is the paper's.

    Args:
        network_score: How the network's own score is computed: "autodiff" and "forward" are exact,
            "finite-difference" is the paper's.
        update_every: Batches between two values of alpha, the weight of the score loss.
        history: How many of the latest values of alpha are averaged.
        decay: Batches in which the weight of a value in that average falls by e.
        per_parameter: One alpha per parameter instead of one for all. None takes the best we know:
            one per parameter, and one for all where scores have heavy tails and the network is a
            density, whose likelihood is the better teacher then (docs/decisions.md 78).
        negatives: Pairs with Y = 0 drawn per x.
        residual: What a difference between the network's score and that of the data costs:
            "squared" (the paper's), "huber" or "cauchy", which large scores do not dominate (see
            `losses/score.py`). "auto" takes the best we know: for exact scores with heavy tails
            "cauchy", for others "squared", which alone is right for joint scores.

    Raises:
        UnknownNameError: No such residual or way to compute scores.
        DomainError: A count below 1, or a decay that is not positive.

    Example:
        >>> import keepscore as ks
        >>> ks.ASA().residual, ks.ASA.paper().per_parameter
        ('auto', False)
        >>> ks.ASA.paper(negatives=2).residual
        'squared'
    """

    network_score: str = "autodiff"
    update_every: int = 64
    history: int = 64
    decay: float = 64.0
    per_parameter: bool | None = None
    negatives: int = 1
    residual: str = "auto"

    def __post_init__(self) -> None:
        require_choice(self.residual, "residual", (AUTO, *RESIDUALS))
        require_choice(self.network_score, "network_score", SCORE_METHODS)
        _keep_counts(self, "update_every", "history", "negatives")
        object.__setattr__(self, "decay", as_number(self.decay, "decay"))
        if not 0 < self.decay < math.inf:
            raise DomainError(
                f"decay must be positive and finite (in batches); got {self.decay!r}."
            )
        if self.per_parameter is not None:
            flag = require_flag(self.per_parameter, "per_parameter")
            object.__setattr__(self, "per_parameter", flag)

    @classmethod
    def paper(cls, **changes: Any) -> ASA:
        """The paper's: one alpha for all parameters, squared residuals."""
        return cls(**{"per_parameter": False, "residual": "squared", **changes})

    def for_scores(self, kind: ScoreKind | None, tail: float, density: bool) -> ASA:
        """The same with what "auto" and None stand for with scores of this kind and tail; density:
        for a network that is one."""
        self.require_right_for(kind)
        heavy = kind == "exact" and tail > HEAVY_TAIL
        residual, each = self.residual, self.per_parameter
        if residual == AUTO:
            residual = RESIDUAL_OF_HEAVY if heavy else RESIDUAL_OF_LIGHT
        if each is None:
            each = not (heavy and density)
        return replace(self, residual=residual, per_parameter=each)

    def require_right_for(self, kind: ScoreKind | None) -> None:
        """Raise a DomainError if a robust residual was asked for with joint scores."""
        if self.residual not in (AUTO, "squared") and kind == "joint":
            raise DomainError(
                f"residual={self.residual!r} cannot be used with joint scores: only their mean "
                "given x is the score, and only squared residuals find a mean. Use "
                "ASA(residual='squared'), or leave the residual out."
            )

    @property
    def uses_scores(self) -> bool:
        return True


Loss = BCE | ASA
MOST = 2**31  # batches, values of alpha and pairs are counted in 32 bits


def _keep_counts(loss: Loss, *names: str) -> None:
    """Check whole numbers and keep them as Python's own, which a run's record can hold."""
    for name in names:
        count = require_count(getattr(loss, name), name)
        if count >= MOST:
            raise DomainError(f"{name} must be below 2^31; got {count}.")
        object.__setattr__(loss, name, count)


def loss_to_dict(loss: Loss) -> dict[str, Any]:
    """Plain data for a run's record."""
    return {"name": type(loss).__name__, **asdict(loss)}


def loss_from_dict(content: Mapping[str, Any]) -> Loss:
    """The loss of a record."""
    kinds: dict[str, Any] = {"BCE": BCE, "ASA": ASA}
    name = content.get("name") if isinstance(content, Mapping) else None
    if not isinstance(name, str) or name not in kinds:
        raise FormatError(f"Not the record of a loss: {content!r:.200}.")
    try:
        settings = {k: v for k, v in content.items() if k != "name"}
        if name == "ASA":
            settings.setdefault("residual", "squared")  # the only one there was
        return kinds[name](**settings)
    except (TypeError, ValueError) as error:
        raise FormatError(f"Not the record of a loss: {str(error).rstrip('.')}.") from None
