"""From a model to an answer in one call: rounds of simulations, and the whole way at once."""

from keepscore.fitting.fit import Fit, fit

__all__ = ["Fit", "fit"]
