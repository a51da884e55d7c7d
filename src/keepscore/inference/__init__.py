"""Statistics with a likelihood, exact or surrogate: estimates, tests, sets, posteriors."""

from keepscore.inference.calibration import calibrate
from keepscore.inference.confidence import ConfidenceSet, Intervals, confidence_set
from keepscore.inference.coverage import LocalCoverage, local_coverage
from keepscore.inference.lrt import LRT, lrt
from keepscore.inference.mle import MLE, mle
from keepscore.inference.null_distribution import Calibration
from keepscore.inference.posterior import posterior
from keepscore.inference.profile import profile_curve
from keepscore.inference.refine import RefinedSource, Refinement, refine
from keepscore.inference.sbc import SBC, sbc
from keepscore.likelihood import Likelihood

__all__ = [
    "LRT",
    "MLE",
    "SBC",
    "Calibration",
    "ConfidenceSet",
    "Intervals",
    "Likelihood",
    "LocalCoverage",
    "RefinedSource",
    "Refinement",
    "calibrate",
    "confidence_set",
    "local_coverage",
    "lrt",
    "mle",
    "posterior",
    "profile_curve",
    "refine",
    "sbc",
]
