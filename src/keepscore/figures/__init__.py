"""One function per figure: results in, matplotlib Figure out."""

from keepscore.figures.null_distribution import draw_null
from keepscore.figures.saving import FORMATS, save_figure
from keepscore.figures.surface_panels import SurfacePanel, surfaces

__all__ = ["FORMATS", "SurfacePanel", "draw_null", "save_figure", "surfaces"]
