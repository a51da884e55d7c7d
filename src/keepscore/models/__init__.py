"""Stochastic process models with an exact likelihood and score."""

from keepscore.models.base import Model, Symmetry, build, describe, registered
from keepscore.models.contact import ContactNetwork, contact_network
from keepscore.models.from_functions import from_functions
from keepscore.models.from_numpyro import from_numpyro
from keepscore.models.gaussian import GaussianField
from keepscore.models.graphs import edge_weights
from keepscore.models.laws import LawReport, check_model
from keepscore.models.masks import clouds, drop_out, missing_rows, missing_visits
from keepscore.models.sis import SIS
from keepscore.models.student_t import StudentTField
from keepscore.models.with_graphs import with_graphs
from keepscore.models.with_missing import with_missing
from keepscore.models.with_sites import with_sites
from keepscore.models.with_times import with_times

__all__ = [
    "SIS",
    "ContactNetwork",
    "GaussianField",
    "LawReport",
    "Model",
    "StudentTField",
    "Symmetry",
    "build",
    "check_model",
    "clouds",
    "contact_network",
    "describe",
    "drop_out",
    "edge_weights",
    "from_functions",
    "from_numpyro",
    "missing_rows",
    "missing_visits",
    "registered",
    "with_graphs",
    "with_missing",
    "with_sites",
    "with_times",
]
