"""keepscore: fast neural surrogates of expensive likelihoods, and statistics with them.

Names are loaded when first used, so that `import keepscore` does not wait for JAX or matplotlib.
Type checkers read the same names in `__init__.pyi`.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Public name -> module that holds it.
_HOMES = {
    "Parameter": "keepscore.space",
    "Space": "keepscore.space",
    "Likelihood": "keepscore.likelihood",
    "KeepscoreError": "keepscore.errors",
    "KeepscoreWarning": "keepscore.errors",
    "check_model": "keepscore.models.laws",
    "standardise": "keepscore.models.standardise",
    "Dataset": "keepscore.data",
    "dataset": "keepscore.data",
    "simulate": "keepscore.data",
    "open_dataset": "keepscore.data",
    "verify": "keepscore.data",
    "repair": "keepscore.data",
    "BCE": "keepscore.losses",
    "ASA": "keepscore.losses",
    "train": "keepscore.training",
    "TrainConfig": "keepscore.training",
    "Surrogate": "keepscore.surrogate",
    "load": "keepscore.surrogate",
    "mle": "keepscore.inference",
    "lrt": "keepscore.inference",
    "confidence_set": "keepscore.inference",
    "calibrate": "keepscore.inference",
    "local_coverage": "keepscore.inference",
    "posterior": "keepscore.inference",
    "refine": "keepscore.inference",
    "sbc": "keepscore.inference",
    "ltest": "keepscore.evaluation",
    "etest": "keepscore.evaluation",
    "scorecard": "keepscore.evaluation",
    "equivalence": "keepscore.evaluation",
    "focus": "keepscore.fitting.focus",
    "report": "keepscore.reports.compose",
    "worth": "keepscore.evaluation.pilot",
    "check_data": "keepscore.evaluation.data_check",
    "fit": "keepscore.fitting",
}
_SUBPACKAGES = ("models", "networks", "errors", "figures", "priors")

__all__ = sorted([*_HOMES, *_SUBPACKAGES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"keepscore.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'keepscore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
