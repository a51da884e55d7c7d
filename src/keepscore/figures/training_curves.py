"""Trainings as pictures: cross-entropy per run, then score loss and alpha of all runs together.

Lines differ by dash and marks by shape, never by colour alone. The mark is the epoch that was kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from keepscore.errors import MissingError
from keepscore.evaluation.training_run import Run, run_of
from keepscore.figures.style import (
    GREY,
    MethodStyle,
    decimal_log,
    method_styles,
    panels_in,
    plain,
    styled,
)
from keepscore.surrogate import Surrogate

COLUMNS = 3  # panels side by side, at most
LEGEND_ROW = 0.17  # of the height of the curves
COMPONENT_DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 2)), (0, (6, 2, 1.5, 2)))
Trained = Surrogate | Run


@dataclass(frozen=True)
class Line:
    """One curve over epochs; `mark` is the index of the point to mark."""

    label: str
    xs: list[float]
    ys: list[float]
    style: MethodStyle
    mark: int | None = None


@dataclass(frozen=True)
class CurvePanel:
    """One panel: its title, what its values are, and its curves."""

    title: str
    unit: str
    lines: list[Line]
    log: bool = False
    limits: tuple[float, float] | None = None

    def words(self) -> str:
        """What it shows, for those who cannot see it."""
        told = []
        for line in self.lines:
            seen = [y for y in line.ys if math.isfinite(y)]
            if seen:
                told.append(f"{line.label}: from {seen[0]:.3g} to {seen[-1]:.3g}")
        return f"{self.title}. {'; '.join(told)}."

    def draw(self, ax: Axes) -> None:
        """The curves against the epoch."""
        for line in self.lines:
            every = [] if line.mark is None else [line.mark]
            ax.plot(
                line.xs, line.ys, color=line.style.colour, linestyle=line.style.dash,
                marker=line.style.marker if every else "", markevery=every,
                label=plain(line.label, 34),
            )  # fmt: skip
        if self.log:
            decimal_log(ax, "y")
            _make_room(ax, len(self.lines))
        elif self.limits is not None:
            low, high = self.limits
            room = 0.06 * (high - low) or 0.5
            ax.set_ylim(low - room, high + room)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.set(title=plain(self.title, 44), xlabel="epoch", ylabel=self.unit)
        ax.legend(loc="upper right" if self.log else "best", handlelength=3.2)


def _make_room(ax: Axes, rows: int) -> None:
    """Above the curves of a log scale, for a legend of so many rows: no corner is sure to be
    free where curves rise and fall."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** (rows * LEGEND_ROW))


def training(
    trained: Trained | Mapping[str, Trained] | Sequence[Run], ax: Axes | None = None
) -> Figure:
    """Draw how trainings went: cross-entropy, score loss and the weight of the score loss.

    Args:
        trained: What `ks.train` returned, or several by name.
        ax: Where to draw; the panels take the place of this Axes. None makes a new figure.

    Returns:
        The figure: one panel of cross-entropy per run, on one scale; then score loss and alpha
        where scores were used.

    Raises:
        MissingError: No training has a history.

    Example:
        >>> from keepscore.evaluation import Epoch, Run
        >>> import keepscore as ks
        >>> run = Run("BCE", history=(Epoch(1, 0.6, 0.61), Epoch(2, 0.5, 0.52)))
        >>> ks.figures.training(run).axes[0].get_title()
        'BCE'
    """
    found = training_panels(runs_of(trained))
    if not found:
        raise MissingError("These trainings have no history to draw.")
    columns = min(COLUMNS, len(found))
    with styled():
        figure, axs = panels_in(ax, columns, -(-len(found) // columns), width=3.3, height=2.8)
        for empty in axs[len(found) :]:
            empty.set_axis_off()
        for panel, place in zip(found, axs, strict=False):
            panel.draw(place)
    return figure


def runs_of(trained: Trained | Mapping[str, Trained] | Sequence[Run]) -> list[Run]:
    """Trainings as records, whatever they came as."""
    if isinstance(trained, Run):
        return [trained]
    if isinstance(trained, Surrogate):
        return [run_of("training", trained)]
    if isinstance(trained, Mapping):
        return [v if isinstance(v, Run) else run_of(name, v) for name, v in trained.items()]
    return list(trained)


def training_panels(
    runs: Sequence[Run], styles: Mapping[str, MethodStyle] | None = None
) -> list[CurvePanel]:
    """A panel of BCE per run (one scale for all), then score loss, then alpha."""
    shown = [run for run in runs if run.history]
    looks = method_styles(run.name for run in shown) if styles is None else styles
    losses = [v for run in shown for v in _losses(run) if math.isfinite(v)]
    limits = (min(losses), max(losses)) if losses else None
    found = [_cross_entropy(run, looks[run.name], limits) for run in shown]
    for name, title, unit in (
        ("score_loss", "Score loss", "mean squared error of the score"),
        ("alpha", "Weight α of the score loss", "α"),
    ):
        lines = [line for run in shown for line in component_lines(run, name, looks[run.name])]
        if lines:
            found.append(CurvePanel(title, unit, lines, log=True))
    return found


def component_lines(run: Run, name: str, mine: MethodStyle) -> list[Line]:
    """Score loss or alpha of a run: a curve per parameter, told apart by dashes."""
    rows = [(float(e.epoch), getattr(e, name)) for e in run.history]
    count = max((len(values) for _, values in rows if values is not None), default=0)
    lines = []
    for k in range(count):
        # A log scale: zeros, as before the first alpha is known, are left out.
        kept = [(x, v[k]) for x, v in rows if v is not None and len(v) > k and v[k] > 0]
        if kept:
            named = k < len(run.components) and count > 1
            part = run.components[k] if named else str(k + 1)
            label = f"{run.name}, {part}" if count > 1 else run.name
            dash = mine.dash if count == 1 else COMPONENT_DASHES[k % len(COMPONENT_DASHES)]
            xs, ys = [x for x, _ in kept], [y for _, y in kept]
            # Dashes tell components apart, so runs need their mark, at the end of the curve.
            mark = len(xs) - 1 if count > 1 else None
            lines.append(Line(label, xs, ys, MethodStyle(mine.colour, dash, mine.marker), mark))
    return lines


def _cross_entropy(run: Run, mine: MethodStyle, limits: tuple[float, float] | None) -> CurvePanel:
    """Training and validation cross-entropy of one run, the kept epoch marked."""
    epochs = [float(e.epoch) for e in run.history]
    train = [e.train_bce for e in run.history]
    lines = [Line("training", epochs, train, MethodStyle(GREY, (0, (2, 2)), ""))]
    validation = [math.nan if e.validation_bce is None else e.validation_bce for e in run.history]
    if any(math.isfinite(v) for v in validation):
        best = run.best
        mark = epochs.index(best.epoch) if best is not None else None
        solid = MethodStyle(mine.colour, "solid", mine.marker)
        kept = f"validation; kept: epoch {best.epoch}" if best else "validation"
        lines.append(Line(kept, epochs, validation, solid, mark))
    return CurvePanel(run.name, "cross-entropy, nats per pair", lines, limits=limits)


def _losses(run: Run) -> list[float]:
    """Everything the shared scale of the panels must hold."""
    validation = [e.validation_bce for e in run.history if e.validation_bce is not None]
    return [e.train_bce for e in run.history] + validation
