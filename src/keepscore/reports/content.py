"""What a report says, as plain data: frozen records that go to JSON and back.

A report is made in two steps: something (the demo, the command line, a sweep) gathers numbers into
a `ReportContent`; `keepscore.reports.page` turns that into one HTML page. Between the two lies only
plain data, so a page can be made again, or compared, long after the run.

Methods ("exact", "ASA", "BCE", or the names of runs) are strings used alike in every record; their
order in `ReportContent.methods` is the order in which the page shows them, and fixes each one's
marker and dash. Every part may be absent: the page shows what there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from keepscore.checks import Floats, as_floats
from keepscore.errors import DomainError, FormatError, ShapeError, unknown_name
from keepscore.evaluation.estimate import Estimate
from keepscore.evaluation.metrics import Better
from keepscore.evaluation.training_run import Run
from keepscore.figures.style import EXACT as EXACT
from keepscore.reports.codec import decode, encode

FORMAT = 1
SEVERITIES = ("serious", "caution", "note")
PICTURE_MEDIA = ("image/svg+xml", "image/png")


@dataclass(frozen=True)
class ScoreRow:
    """One line of the scorecard: a metric by every method, and what the exact likelihood gets."""

    metric: str
    meaning: str
    values: Mapping[str, Estimate]
    exact: Estimate | None = None
    unit: str = ""
    better: Better = "lower"


@dataclass(frozen=True)
class Coverage:
    """How often sets of a nominal level held the truth, by method, over `groups` data sets.

    cut: how many of each method's sets reach the edge of the parameter box, where they end.
    """

    nominal: float
    values: Mapping[str, Estimate]
    sets: str = "Wilks"
    groups: int | None = None
    cut: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """One side of a likelihood grid: working values, and the raw values they stand for."""

    name: str
    values: Floats
    raw_name: str = ""
    raw_values: Floats | None = None

    def __post_init__(self) -> None:
        values = as_floats(self.values, f"axis {self.name}")
        if values.ndim != 1 or len(values) < 2 or not np.all(np.diff(values) > 0):
            raise DomainError(f"Axis {self.name!r} needs two or more increasing values.")
        object.__setattr__(self, "values", values)
        if self.raw_values is not None:
            raw = as_floats(self.raw_values, f"raw values of {self.name}")
            if raw.shape != values.shape:
                raise ShapeError(f"Axis {self.name!r}: one raw value for each working value.")
            object.__setattr__(self, "raw_values", raw)


@dataclass(frozen=True)
class Surface:
    """log L(theta) - max log L on the grid (axes in order), the MLE, and the cut of the set.

    The set of the group's level is {theta: values >= -cut}; None takes Wilks: chi2 quantile / 2.
    """

    method: str
    values: Floats
    mle: tuple[float, ...] | None = None
    cut: float | None = None

    def __post_init__(self) -> None:
        values = as_floats(self.values, f"surface of {self.method}")
        # null in JSON is a log-likelihood of minus infinity.
        values = np.where(np.isnan(values), -np.inf, values)
        if not np.isfinite(values).any() or values.max() > 1e-6:
            raise DomainError(
                f"The surface of {self.method!r} must be relative to its maximum: at most 0."
            )
        object.__setattr__(self, "values", values)


@dataclass(frozen=True)
class Group:
    """One data set's surfaces, with the truth where it is known."""

    name: str
    surfaces: tuple[Surface, ...]
    truth: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Surfaces:
    """Likelihood surfaces of one to three parameters over a common grid."""

    axes: tuple[Axis, ...]
    groups: tuple[Group, ...]
    level: float = 0.95

    def __post_init__(self) -> None:
        if not 1 <= len(self.axes) <= 3:
            raise DomainError(f"Surfaces are drawn for 1 to 3 parameters; got {len(self.axes)}.")
        shape = tuple(len(axis.values) for axis in self.axes)
        for group in self.groups:
            for surface in group.surfaces:
                if surface.values.shape != shape:
                    raise ShapeError(
                        f"The surface of {surface.method!r} in group {group.name!r} must have the "
                        f"grid's shape {shape}; got {surface.values.shape}."
                    )


@dataclass(frozen=True)
class Interval:
    """One raw parameter by one method. An end on the box's edge is `cut`: the data allow more."""

    parameter: str
    method: str
    estimate: float
    se: float | None = None
    lower: float | None = None
    upper: float | None = None
    truth: float | None = None
    level: float = 0.95
    on_boundary: bool = False
    cut: bool = False
    group: str = ""


@dataclass(frozen=True)
class PosteriorRow:
    """Posterior of one raw parameter by one method, with the sampler's diagnostics."""

    parameter: str
    method: str
    mean: float
    sd: float
    lower: float
    upper: float
    level: float = 0.95
    r_hat: float | None = None
    ess: float | None = None
    divergences: int | None = None


@dataclass(frozen=True)
class Example:
    """One data set to look at: a 2-D array (a field, a 0/1 history) or a 1-D series."""

    title: str
    values: Floats
    rows: str = ""
    columns: str = ""
    caption: str = ""

    def __post_init__(self) -> None:
        values = as_floats(self.values, f"example {self.title}")
        if values.ndim not in (1, 2) or values.size == 0:
            raise ShapeError(f"Example {self.title!r} must be 1-D or 2-D; got {values.shape}.")
        object.__setattr__(self, "values", values)


@dataclass(frozen=True)
class Picture:
    """A ready picture (a figure of `keepscore.figures`): SVG text, or PNG bytes in base64.

    The page shows it as an image, never as markup: scripts inside an SVG do not run.
    """

    title: str
    data: str
    media: str = "image/svg+xml"
    alt: str = ""
    caption: str = ""

    def __post_init__(self) -> None:
        if self.media not in PICTURE_MEDIA:
            raise unknown_name("picture type", self.media, PICTURE_MEDIA)


@dataclass(frozen=True)
class DataFit:
    """Whether the model fits the observed data, with one surrogate: what `ks.check_data` found.

    novelty: the p-value of "like the training data".
    """

    method: str
    fits: bool
    sentence: str
    p_value: float
    novelty: float | None
    draws: int
    picture: Picture | None = None


@dataclass(frozen=True)
class Notice:
    """Something to know before trusting the numbers, in plain words."""

    severity: str
    text: str

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise unknown_name("severity", self.severity, SEVERITIES)


@dataclass(frozen=True)
class ReportContent:
    """Everything one page is made from."""

    title: str
    subtitle: str = ""
    created: str = ""
    methods: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()
    runs: tuple[Run, ...] = ()
    scorecard: tuple[ScoreRow, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    surfaces: Surfaces | None = None
    data_fit: tuple[DataFit, ...] = ()
    intervals: tuple[Interval, ...] = ()
    posterior: tuple[PosteriorRow, ...] = ()
    examples: tuple[Example, ...] = ()
    pictures: tuple[Picture, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Every part in the order of the methods, whatever order a JSON file kept."""
        place = {method: k for k, method in enumerate(self.all_methods)}

        def ordered(values: Mapping[str, Estimate]) -> dict[str, Estimate]:
            return dict(sorted(values.items(), key=lambda entry: place[entry[0]]))

        for name in ("scorecard", "coverage"):
            parts = tuple(replace(p, values=ordered(p.values)) for p in getattr(self, name))
            object.__setattr__(self, name, parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` turns it back."""
        return {"format": FORMAT, **encode(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ReportContent:
        """A report from what `to_dict` gave; anything else is a `FormatError`."""
        if not isinstance(content, Mapping):
            raise FormatError(f"A report must be a JSON object; got {type(content).__name__}.")
        if content.get("format") != FORMAT:
            raise FormatError(
                f"Report format {content.get('format')!r} cannot be read here; this version of "
                f"keepscore reads format {FORMAT}. Make the report again with this version."
            )
        rest = {name: value for name, value in content.items() if name != "format"}
        report: ReportContent = decode(cls, rest, "report")
        return report

    @property
    def all_methods(self) -> tuple[str, ...]:
        """`methods` in its order, then any other that appears somewhere, in order of appearance."""
        seen = dict.fromkeys(self.methods)
        for row in self.scorecard:
            seen.update(dict.fromkeys(row.values))
        for coverage in self.coverage:
            seen.update(dict.fromkeys(coverage.values))
        seen.update(dict.fromkeys(interval.method for interval in self.intervals))
        seen.update(dict.fromkeys(row.method for row in self.posterior))
        for group in self.surfaces.groups if self.surfaces else ():
            seen.update(dict.fromkeys(surface.method for surface in group.surfaces))
        return tuple(seen)
