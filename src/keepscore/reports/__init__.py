"""One self-contained HTML page per run, comparison or reproduction.

ks.report({"ASA": surrogate}, model, path="report.html")     the whole way (compose.py)
write(ReportContent(title=..., runs=..., ...), "page.html")  a page from plain data
"""

from keepscore.reports.compose import (
    Report,
    ShownGroups,
    comparison,
    compose,
    findings,
    measured,
    report,
)
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
from keepscore.reports.notices import warnings_for
from keepscore.reports.page import build, write
from keepscore.reports.pictures import example_from, picture_from
from keepscore.reports.rows import ideals, intervals_from, scorecard_from
from keepscore.reports.surface_grids import surfaces_from

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
    "Report",
    "ReportContent",
    "ScoreRow",
    "ShownGroups",
    "Surface",
    "Surfaces",
    "build",
    "comparison",
    "compose",
    "example_from",
    "findings",
    "ideals",
    "intervals_from",
    "measured",
    "picture_from",
    "report",
    "scorecard_from",
    "surfaces_from",
    "warnings_for",
    "write",
]
