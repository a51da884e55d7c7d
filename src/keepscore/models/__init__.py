"""Stochastic process models with an exact likelihood and score."""

from keepscore.models.base import Model, Symmetry, build, describe, registered
from keepscore.models.custom import from_functions
from keepscore.models.laws import LawReport, check_model

__all__ = [
    "LawReport",
    "Model",
    "Symmetry",
    "build",
    "check_model",
    "describe",
    "from_functions",
    "registered",
]
