"""One self-contained HTML page per run, comparison or reproduction.

content = ReportContent(title=..., runs=..., scorecard=..., surfaces=surfaces_from(...), ...)
write(content, "runs/demo/report.html")
"""

from keepscore.report.adapt import ideals, intervals_from, scorecard_from
from keepscore.report.content import (
    EXACT,
    Axis,
    Coverage,
    Epoch,
    Estimate,
    Example,
    Group,
    Interval,
    Notice,
    Picture,
    PosteriorRow,
    ReportContent,
    Run,
    ScoreRow,
    Surface,
    Surfaces,
)
from keepscore.report.gather import example_from, picture_from, surfaces_from
from keepscore.report.notices import warnings_for
from keepscore.report.page import build, write

__all__ = [
    "EXACT",
    "Axis",
    "Coverage",
    "Epoch",
    "Estimate",
    "Example",
    "Group",
    "Interval",
    "Notice",
    "Picture",
    "PosteriorRow",
    "ReportContent",
    "Run",
    "ScoreRow",
    "Surface",
    "Surfaces",
    "build",
    "example_from",
    "ideals",
    "intervals_from",
    "picture_from",
    "scorecard_from",
    "surfaces_from",
    "warnings_for",
    "write",
]
