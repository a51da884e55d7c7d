"""Stochastic process models with an exact likelihood and score."""

from keepscore.models.base import Model, Symmetry, build, describe, registered

__all__ = ["Model", "Symmetry", "build", "describe", "registered"]
