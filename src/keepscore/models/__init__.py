"""Stochastic process models with an exact likelihood and score."""

from keepscore.models.base import Model, Symmetry, build, describe, registered
from keepscore.models.custom import from_functions
from keepscore.models.gaussian import GaussianField
from keepscore.models.laws import LawReport, check_model
from keepscore.models.sis import SIS
from keepscore.models.student_t import StudentTField

__all__ = [
    "SIS",
    "GaussianField",
    "LawReport",
    "Model",
    "StudentTField",
    "Symmetry",
    "build",
    "check_model",
    "describe",
    "from_functions",
    "registered",
]
