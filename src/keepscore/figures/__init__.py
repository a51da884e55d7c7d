"""Pictures of results: one function per picture, one style, no global state of pyplot.

    ks.figures.surface(like)          a likelihood over two parameters; several side by side
    ks.figures.profile(like)          profile statistics with their intervals
    ks.figures.pairs(draws)           a posterior, in pairs of parameters
    ks.figures.training(surrogate)    how a training went
    ks.figures.scorecard(card)        a surrogate's inference beside the exact likelihood's
    ks.figures.pilot(found)           what a score is worth, from `ks.worth`
    ks.figures.data_check(found)      observed data against the fitted model, from `ks.check_data`
    ks.figures.save_figure(figure, file)

Each takes what the functions of the package return, and `ax=`, the Axes to draw into. Each returns
a matplotlib Figure of its own: `figure.savefig("name.png")`.
"""

from keepscore.figures.coverage_marks import coverage
from keepscore.figures.data_check_strips import data_check
from keepscore.figures.example_data import example
from keepscore.figures.likelihood_surface import surface
from keepscore.figures.null_distribution import draw_null
from keepscore.figures.pilot_curve import pilot
from keepscore.figures.posterior_pairs import pairs
from keepscore.figures.profile_curves import profile
from keepscore.figures.saving import FORMATS, save_figure
from keepscore.figures.scorecard_panels import scorecard
from keepscore.figures.surface_panels import SurfacePanel, surfaces
from keepscore.figures.training_curves import training

__all__ = [
    "FORMATS",
    "SurfacePanel",
    "coverage",
    "data_check",
    "draw_null",
    "example",
    "pairs",
    "pilot",
    "profile",
    "save_figure",
    "scorecard",
    "surface",
    "surfaces",
    "training",
]
