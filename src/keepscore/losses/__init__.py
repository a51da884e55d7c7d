"""Training objectives: binary cross-entropy and its adaptive score augmentation (ASA)."""

from keepscore.losses.alpha import (
    AlphaHistory,
    empty_history,
    norm,
    recency_weighted,
    remember,
)
from keepscore.losses.cross_entropy import cross_entropy, pair_losses
from keepscore.losses.score import (
    RESIDUALS,
    Perturbation,
    network_score,
    residual_losses,
    score_loss,
    score_scale,
    score_tail,
    search_epsilon,
)
from keepscore.losses.settings import (
    ASA,
    BCE,
    HEAVY_TAIL,
    Loss,
    loss_from_dict,
    loss_to_dict,
)

__all__ = [
    "ASA",
    "BCE",
    "HEAVY_TAIL",
    "RESIDUALS",
    "AlphaHistory",
    "Loss",
    "Perturbation",
    "cross_entropy",
    "empty_history",
    "loss_from_dict",
    "loss_to_dict",
    "network_score",
    "norm",
    "pair_losses",
    "recency_weighted",
    "remember",
    "residual_losses",
    "score_loss",
    "score_scale",
    "score_tail",
    "search_epsilon",
]
