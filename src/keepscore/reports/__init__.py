"""One self-contained HTML page per run, comparison or reproduction.

content = ReportContent(title=..., runs=..., scorecard=..., surfaces=surfaces_from(...), ...)
write(content, "runs/demo/report.html")
"""

from keepscore.reports.adapt import ideals, intervals_from, scorecard_from
from keepscore.reports.content import (
    EXACT,
    Axis,
    Coverage,
    Example,
    Group,
    Interval,
    Notice,
    Picture,
    PosteriorRow,
    ReportContent,
    ScoreRow,
    Surface,
    Surfaces,
)
from keepscore.reports.gather import example_from, picture_from, surfaces_from
from keepscore.reports.notices import warnings_for
from keepscore.reports.page import build, write

__all__ = [
    "EXACT",
    "Axis",
    "Coverage",
    "Example",
    "Group",
    "Interval",
    "Notice",
    "Picture",
    "PosteriorRow",
    "ReportContent",
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
