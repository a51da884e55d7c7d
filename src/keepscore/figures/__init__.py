"""One function per figure: results in, matplotlib Figure out."""

from keepscore.figures.likelihood_surfaces import SurfacePanel, surfaces
from keepscore.figures.null_distribution import draw_null
from keepscore.figures.saving import FORMATS, save_figure

__all__ = ["FORMATS", "SurfacePanel", "draw_null", "save_figure", "surfaces"]
