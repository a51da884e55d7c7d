"""Content to page: one HTML string that needs nothing but itself.

Style, script and data stand inside the page. Text is escaped by the templates, data for the script
by `json_for_script`; and should either ever fail, the page's content policy allows no network at
all, and only the one script and the one style sheet whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from keepscore.evaluation.estimate import Estimate
from keepscore.figures.style import RAMP
from keepscore.files import make_folder, write_atomically
from keepscore.reports import pictures, words
from keepscore.reports.content import (
    EXACT,
    ReportContent,
    ScoreRow,
    Surface,
    Surfaces,
)
from keepscore.reports.notices import checked, surface_cut, warnings_for
from keepscore.reports.surface_grids import rounded

# More methods than this make the scorecard's columns too narrow for paper: then one line each.
COLUMNS = 4


def build(content: ReportContent) -> str:
    """The page, as one string of HTML."""
    sources = _sources()
    environment = Environment(
        loader=DictLoader(sources),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=words.number,
        measured=words.measured,
        percent=words.percent,
        duration=words.duration,
        label=words.method_label,
        flatten=words.flatten,
    )
    notices = warnings_for(content)
    scored = [
        method
        for method in content.all_methods
        if method != EXACT and any(method in row.values for row in content.scorecard)
    ]
    style, script = sources["style.css"], sources["script.js"]
    return environment.get_template("page.html.j2").render(
        content=content,
        scored=scored,
        warnings=[notice for notice in notices if notice.severity != "note"],
        notes=[notice for notice in notices if notice.severity == "note"],
        checked=checked(content),
        key_numbers=key_numbers(content),
        best=best_methods,
        span=words.span,
        fixed=words.fixed,
        pictures=pictures,
        picture_address=pictures.picture_address,
        wide=len(scored) > COLUMNS,
        scales=interval_scales(content),
        surface_data=json_for_script(surface_data(content.surfaces)) if content.surfaces else "",
        surface_rows=surface_rows(content.surfaces) if content.surfaces else [],
        policy=content_policy(style, script),
        style=Markup(style),
        script=Markup(script),
    )


def write(content: ReportContent, path: str | os.PathLike[str]) -> Path:
    """Write the page to `path` whole or not at all; its folder is made where it is missing."""
    target = Path(path)
    make_folder(target.parent)
    page = build(content).encode()
    write_atomically(target, lambda file: file.write(page))
    # A temporary file is private; a report is for others to read.
    target.chmod(0o644)
    return target


def json_for_script(value: Mapping[str, Any] | list[Any]) -> Markup:
    """JSON that cannot end its <script> element, whatever text it holds."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII only
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def content_policy(style: str, script: str) -> str:
    """No network; the page's own style sheet and script, by their hashes; pictures inside it."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def key_numbers(content: ReportContent) -> list[dict[str, Any]]:
    """The first screen: at most four boxes, each a title and lines (name, value, detail)."""
    boxes: list[dict[str, Any]] = []
    groups = list(dict.fromkeys(i.group for i in content.intervals))
    shown = [i for i in content.intervals if i.group == groups[0]] if groups else []
    scales = interval_scales(content)
    for parameter in list(dict.fromkeys(i.parameter for i in shown))[:2]:
        rows = [i for i in shown if i.parameter == parameter]
        lines = [
            (
                words.method_label(i.method),
                words.fixed(i.estimate, scales[parameter]),
                words.span(i.lower, i.upper, 2, scales[parameter]),
            )
            for i in rows
        ]
        if rows[0].truth is not None:
            lines.append(("truth", words.fixed(rows[0].truth, scales[parameter]), ""))
        boxes.append(
            {"title": f"{parameter}, with {words.percent(rows[0].level)} interval", "lines": lines}
        )
    for coverage in content.coverage[:1]:
        lines = [(words.method_label(m), words.percent(e), "") for m, e in coverage.values.items()]
        title = f"Coverage of {words.percent(coverage.nominal)} sets ({coverage.sets})"
        boxes.append({"title": title, "lines": lines})
    for row in content.scorecard[: 4 - len(boxes)]:
        lines = [(words.method_label(m), words.measured(e), "") for m, e in row.values.items()]
        if row.exact is not None and EXACT not in row.values:
            lines.append((words.method_label(EXACT), words.measured(row.exact), ""))
        boxes.append({"title": row.metric, "lines": lines})
    return boxes


def interval_scales(content: ReportContent) -> dict[str, float | None]:
    """The largest standard error of each parameter: all its numbers get the decimals that fit."""
    scales: dict[str, float | None] = {}
    for i in content.intervals:
        known = [se for se in (scales.get(i.parameter), i.se) if se is not None]
        scales[i.parameter] = max(known, default=None)
    return scales


def best_methods(row: ScoreRow) -> set[str]:
    """The best surrogate of a line, and those within two standard errors of it."""
    known = {m: e for m, e in row.values.items() if m != EXACT and math.isfinite(e.value)}
    if not row.better or len(known) < 2:
        return set()
    sign = 1 if row.better == "lower" else -1
    leader = min(known.values(), key=lambda e: sign * e.value)
    return {m for m, e in known.items() if sign * (e.value - leader.value) <= _noise(e, leader)}


def surface_data(surfaces: Surfaces) -> dict[str, Any]:
    """What the script draws from."""
    axes = [
        {
            "name": axis.name,
            "values": [float(f"{v:.6g}") for v in axis.values],
            "rawName": axis.raw_name,
            "raw": None
            if axis.raw_values is None
            else [float(f"{v:.4g}") for v in axis.raw_values],
        }
        for axis in surfaces.axes
    ]
    groups = [
        {
            "name": group.name,
            "truth": group.truth,
            "surfaces": [
                {
                    "method": surface.method,
                    "label": words.method_label(surface.method),
                    "exact": surface.method == EXACT,
                    "values": rounded(surface.values),
                    "mle": surface.mle,
                    "cut": round(surface_cut(surfaces, surface), 4),
                }
                for surface in group.surfaces
            ],
        }
        for group in surfaces.groups
    ]
    return {"axes": axes, "groups": groups, "level": surfaces.level, "ramp": RAMP}


def surface_rows(surfaces: Surfaces) -> list[dict[str, Any]]:
    """The surfaces in words, for those who cannot see them: a line for each group and method."""
    return [
        {
            "group": group.name,
            "method": words.method_label(surface.method),
            "mle": _point(surface.mle),
            "truth": _point(group.truth),
            "share": _share(surfaces, surface),
        }
        for group in surfaces.groups
        for surface in group.surfaces
    ]


def _point(theta: tuple[float, ...] | None) -> str:
    if theta is None:
        return words.MISSING
    return f"({', '.join(words.number(float(v), 3) for v in theta)})"


def _share(surfaces: Surfaces, surface: Surface) -> str:
    inside = surface.values >= -surface_cut(surfaces, surface)
    return f"{100 * inside.mean():.2g}%"


def _noise(one: Estimate, other: Estimate) -> float:
    if one is other:
        return 0.0
    return 2 * math.hypot(one.error, other.error)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _sources() -> Mapping[str, str]:
    folder = files("keepscore.reports") / "templates"
    return {entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.is_file()}
