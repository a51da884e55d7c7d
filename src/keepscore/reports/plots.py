"""The still pictures of the page, as inline SVG: training curves, coverage, example data.

Drawn at about the size they are read (a phone's width), so that letters keep their size; panels
wrap. Lines differ by dash and marks by shape, never by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from keepscore.checks import Floats
from keepscore.evaluation.training_run import Run
from keepscore.reports.content import EXACT, Coverage, Example, ReportContent
from keepscore.reports.svg import (
    Style,
    log_ticks,
    marker,
    path,
    picture,
    png,
    style,
    tag,
    tick_label,
    ticks,
)
from keepscore.reports.words import method_label, number, percent

WIDTH = 330
LEFT, RIGHT, BOTTOM = 50, 12, 40
PLOT_HEIGHT = 165
COMPONENT_DASHES = ("", "7 3", "2 3", "9 3 2 3", "1 2")
LONGEST = 27  # letters of a method's name beside its coverage
LETTER = 6.4  # mean width of a letter at 12 px


@dataclass(frozen=True)
class Line:
    """One curve of a panel; `mark` is the index of the point to mark."""

    label: str
    xs: list[float]
    ys: list[float]
    style: Style
    mark: int | None = None


def styles_for(content: ReportContent) -> dict[str, Style]:
    """Each method's and run's style: exact the first, the others in order of appearance."""
    names = dict.fromkeys((*content.all_methods, *(run.name for run in content.runs)))
    others = [name for name in names if name != EXACT]
    return {EXACT: style(0)} | {name: style(1 + k) for k, name in enumerate(others)}


def training_panels(content: ReportContent) -> list[Markup]:
    """A panel of BCE for each run (one scale for all), then score loss, then alpha."""
    runs = [run for run in content.runs if run.history]
    styles = styles_for(content)
    losses = [v for run in runs for v in _losses(run) if math.isfinite(v)]
    limits = (min(losses), max(losses)) if losses else None
    panels = [bce_panel(run, styles[run.name], limits) for run in runs]
    for name, title, unit in (
        ("score_loss", "Score loss", "mean squared error of the score, log scale"),
        ("alpha", "Weight α of the score loss", "chosen anew as training goes, log scale"),
    ):
        lines = [line for run in runs for line in component_lines(run, name, styles[run.name])]
        if lines:
            panels.append(line_panel(title, unit, lines, log=True))
    return panels


def component_lines(run: Run, name: str, mine: Style) -> list[Line]:
    """Score loss or alpha of a run: a curve for each component, told apart by dashes."""
    rows = [(float(e.epoch), getattr(e, name)) for e in run.history]
    count = max((len(values) for _, values in rows if values is not None), default=0)
    lines = []
    for k in range(count):
        # A log scale: zeros, as before the first alpha is known, are left out.
        kept = [(x, v[k]) for x, v in rows if v is not None and len(v) > k and v[k] > 0]
        if kept:
            named = k < len(run.components) and count > 1
            label = (
                f"{run.name}, {run.components[k] if named else k + 1}" if count > 1 else run.name
            )
            dash = mine.dash if count == 1 else COMPONENT_DASHES[k % len(COMPONENT_DASHES)]
            xs, ys = [x for x, _ in kept], [y for _, y in kept]
            # Dashes tell components apart, so runs need their mark, at the end of the curve.
            mark = len(xs) - 1 if count > 1 else None
            lines.append(Line(label, xs, ys, Style(mine.colour, dash, mine.marker), mark))
    return lines


def bce_panel(run: Run, mine: Style, limits: tuple[float, float] | None = None) -> Markup:
    """Training and validation cross-entropy of one run, the kept epoch marked."""
    epochs = [float(e.epoch) for e in run.history]
    lines = [Line("training", epochs, [e.train_bce for e in run.history], Style("#555", "3 3", ""))]
    validation = [math.nan if e.validation_bce is None else e.validation_bce for e in run.history]
    if any(math.isfinite(v) for v in validation):
        best = run.best
        mark = epochs.index(best.epoch) if best is not None else None
        solid = Style(mine.colour, "", mine.marker)
        kept = f"validation; kept: epoch {best.epoch}" if best else "validation"
        lines.append(Line(kept, epochs, validation, solid, mark))
    return line_panel(f"{run.name}: cross-entropy", "nats a pair", lines, limits=limits)


def line_panel(
    title: str,
    unit: str,
    lines: list[Line],
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> Markup:
    """Curves against the epoch, with a legend above and labelled axes."""
    xs = [x for line in lines for x in line.xs]
    ys = [y for line in lines for y in line.ys if math.isfinite(y)] or [0.0, 1.0]
    low, high = limits if limits is not None else (min(ys), max(ys))
    if log:
        low, high = low / 1.15, high * 1.15
        marks = log_ticks(low, high)
    else:
        pad = 0.06 * (high - low) or 0.5
        low, high = low - pad, high + pad
        marks = ticks(low, high, 4)
    left, right = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    keys, top = _legend(lines)

    def px(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (x - left) / (right - left)

    def py(y: float) -> float:
        if not math.isfinite(y) or (log and y <= 0):
            return math.nan
        share = math.log(y / low) / math.log(high / low) if log else (y - low) / (high - low)
        return top + PLOT_HEIGHT * (1 - share)

    parts = [
        tag("text", _short(title, 44), x=0, y=13, class_="t"),
        tag("text", unit, x=0, y=29, class_="u"),
        *keys,
    ]
    for value in marks:
        parts.append(_line(LEFT, py(value), WIDTH - RIGHT, py(value), class_="g"))
        parts.append(tag("text", tick_label(value), x=LEFT - 6, y=py(value) + 4, text_anchor="end"))
    floor = top + PLOT_HEIGHT
    for value in (v for v in ticks(left, right, 5) if v == int(v)):
        parts.append(_line(px(value), floor, px(value), floor + 4, class_="a"))
        parts.append(
            tag("text", tick_label(value), x=px(value), y=floor + 17, text_anchor="middle")
        )
    parts.append(_line(LEFT, floor, WIDTH - RIGHT, floor, class_="a"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(tag("text", "epoch", x=middle, y=floor + 34, text_anchor="middle"))
    for line in lines:
        points = [(px(x), py(y)) for x, y in zip(line.xs, line.ys, strict=True)]
        kind = line.style
        parts.append(path(points, stroke=kind.colour, stroke_width=1.8, stroke_dasharray=kind.dash))
        if line.mark is not None:
            parts.append(marker(kind.marker, *points[line.mark], r=4.5, fill=kind.colour))
    return picture(WIDTH, floor + BOTTOM, _in_words(title, lines), *parts)


def coverage_panel(content: ReportContent) -> Markup:
    """Coverage by method with whiskers of two standard errors, and the nominal level as a line."""
    styles = styles_for(content)
    rows = [(c, method) for c in content.coverage for method in c.values]
    if not rows:
        return Markup("")
    low = min([_ends(c, m)[0] for c, m in rows] + [c.nominal for c in content.coverage])
    low = max(0.0, math.floor(20 * (low - 0.01)) / 20)
    longest = max(len(method_label(method)) for _, method in rows)
    left = 18 + LETTER * min(max(longest, 15), LONGEST)
    width, top, step = 240 + left, 6, 28
    heads = len(content.coverage)
    floor = top + step * len(rows) + 24 * heads + 4

    def px(value: float) -> float:
        return left + (width - left - 18) * (value - low) / (1 - low)

    parts: list[Markup] = []
    for value in ticks(low, 1.0, 4):
        parts.append(_line(px(value), top, px(value), floor, class_="g"))
        parts.append(
            tag("text", f"{100 * value:.3g}%", x=px(value), y=floor + 17, text_anchor="middle")
        )
    y = float(top)
    for coverage in content.coverage:
        y += 24
        head = f"{percent(coverage.nominal)} sets, {coverage.sets}"
        parts.append(tag("text", _short(head, 30), x=0, y=y - 8, class_="t"))
        end = y + step * len(coverage.values) - 2
        nominal = px(coverage.nominal)
        parts.append(_line(nominal, y - 16, nominal, end, class_="n"))
        for method in coverage.values:
            parts += _coverage_row(coverage, method, styles[method], px, y + step / 2, left)
            y += step
    parts.append(_line(left, floor, width - 18, floor, class_="a"))
    words = "; ".join(
        f"{method_label(m)} {percent(c.values[m])} (nominal {percent(c.nominal)}, {c.sets})"
        for c, m in rows
    )
    return picture(width, floor + 24, f"Coverage: {words}.", *parts, kind="wide")


def example_panel(example: Example) -> Markup:
    """A data set: rows down and columns across for 2-D, a curve for 1-D."""
    values = example.values
    if values.ndim == 1:
        return _series(example)
    rows, columns = values.shape
    cell = min(20.0, 260 / columns, 260 / rows)
    width, height = cell * columns, cell * rows
    left = 20
    label = f"{example.title}: {rows} by {columns} values, {_range(values)}."
    parts = [
        tag(
            "image", x=left, y=2, width=width, height=height, href=png(values),
            preserveAspectRatio="none", class_="cells",
        ),
        tag("rect", x=left, y=2, width=width, height=height, class_="frame", fill="none"),
        tag(
            "text", _short(example.columns, 24), x=left + width / 2, y=height + 18,
            text_anchor="middle",
        ),
        tag(
            "text", _short(example.rows, 16), x=12, y=height / 2, text_anchor="middle",
            transform=f"rotate(-90 12 {height / 2:.1f})",
        ),
    ]  # fmt: skip
    return picture(max(width + left + 2, 100), height + 24, label, *parts, kind="data")


def scale_note(example: Example) -> str:
    """What light and dark stand for in a picture of numbers; 0/1 data need no such words."""
    values = example.values
    if values.ndim == 1 or set(values.ravel().tolist()) <= {0.0, 1.0}:
        return ""
    return f"Light {number(float(values.min()), 3)}, dark {number(float(values.max()), 3)}."


def _series(example: Example) -> Markup:
    values = example.values
    low, high = float(values.min()), float(values.max())
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    width, height, left = 300, 130, 46

    def py(value: float) -> float:
        return 8 + (height - 16) * (high - value) / (high - low)

    across = (width - left - 8) / max(len(values) - 1, 1)
    points = [(left + across * k, py(float(v))) for k, v in enumerate(values)]
    parts = [path(points, stroke="#215c8c", stroke_width=1.6)]
    if len(values) <= 30:
        parts += [marker("circle", x, y, r=2.5, fill="#215c8c") for x, y in points]
    for value in ticks(low, high, 4):
        parts.append(_line(left, py(value), width - 8, py(value), class_="g"))
        parts.append(tag("text", tick_label(value), x=left - 6, y=py(value) + 4, text_anchor="end"))
    middle = (left + width) / 2
    parts.append(
        tag("text", _short(example.columns, 24), x=middle, y=height + 14, text_anchor="middle")
    )
    label = f"{example.title}: {len(values)} values, {_range(values)}."
    return picture(width, height + 20, label, *parts, kind="data")


def _coverage_row(
    coverage: Coverage,
    method: str,
    mine: Style,
    px: Callable[[float], float],
    y: float,
    left: float,
) -> list[Markup]:
    low, high = _ends(coverage, method)
    value = coverage.values[method].value
    if not math.isfinite(value):
        return []
    return [
        tag("text", _short(method_label(method), LONGEST), x=left - 12, y=y + 4, text_anchor="end"),
        _line(px(low), y, px(min(high, 1.0)), y, stroke=mine.colour, stroke_width=2),
        _line(px(low), y - 4, px(low), y + 4, stroke=mine.colour, stroke_width=2),
        _line(px(min(high, 1.0)), y - 4, px(min(high, 1.0)), y + 4, stroke=mine.colour,
              stroke_width=2),
        marker(mine.marker, px(value), y, r=5.5, fill=mine.colour, stroke="#fff"),
    ]  # fmt: skip


def _ends(coverage: Coverage, method: str) -> tuple[float, float]:
    estimate = coverage.values[method]
    if not math.isfinite(estimate.value):
        return coverage.nominal, coverage.nominal
    se = estimate.error
    return max(estimate.value - 2 * se, 0.0), estimate.value + 2 * se


def _legend(lines: list[Line]) -> tuple[list[Markup], float]:
    parts: list[Markup] = []
    x, y = 0.0, 47.0
    for line in lines:
        label = _short(line.label, 34)
        width = 34 + LETTER * len(label) + 10
        if x > 0 and x + width > WIDTH:
            x, y = 0.0, y + 17
        kind = line.style
        parts.append(
            _line(x, y - 4, x + 26, y - 4, stroke=kind.colour, stroke_width=2,
                  stroke_dasharray=kind.dash)
        )  # fmt: skip
        if line.mark is not None:
            parts.append(marker(kind.marker, x + 13, y - 4, r=4, fill=kind.colour))
        parts.append(tag("text", label, x=x + 31, y=y))
        x += width
    return parts, y + 14


def _in_words(title: str, lines: list[Line]) -> str:
    told = []
    for line in lines:
        seen = [y for y in line.ys if math.isfinite(y)]
        if seen:
            told.append(f"{line.label}: from {number(seen[0], 3)} to {number(seen[-1], 3)}")
    return f"{title}. {'; '.join(told)}."


def _losses(run: Run) -> list[float]:
    """Everything the shared scale of the panels must hold."""
    validation = [e.validation_bce for e in run.history if e.validation_bce is not None]
    return [e.train_bce for e in run.history] + validation


def _line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> Markup:
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), **attributes)


def _range(values: Floats) -> str:
    return f"from {number(float(values.min()), 3)} to {number(float(values.max()), 3)}"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
