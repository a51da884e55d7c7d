"""The loop: epochs, validation, early stopping, checkpoints.

An epoch is made in calls of about a second, so that progress shows, SIGTERM is heard and a
checkpoint can be written in between; where the cuts fall has no effect on the numbers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from keepscore.checks import Floats
from keepscore.errors import TrainingError
from keepscore.networks import Weights
from keepscore.training import history, hosts
from keepscore.training.batches import EpochBatches, Feed
from keepscore.training.checkpoint import write_checkpoint
from keepscore.training.compiled_epoch import Run, Tables
from keepscore.training.config import TrainConfig
from keepscore.training.interruption import EXIT_CODE, Interrupted, termination
from keepscore.training.length import cooling_after, overfits
from keepscore.training.optimizer import cooled, weights_to_keep
from keepscore.training.progress_record import (
    Position,
    RunBounds,
    mean_criterion,
    values_of,
)
from keepscore.training.step import Member
from keepscore.training.validation import Place, Validation

SECONDS_A_CALL = 1.0
FIRST_CALL = 16
FEW_EPOCHS = 100  # of runs that are saved after every epoch; others after these seconds
SECONDS_UNSAVED = 2.0


class Diverged(TrainingError):
    """The loss or the weights became NaN or infinite. `weights` are the last finite ones;
    `surrogate` is the best epoch so far, if one was completed."""

    def __init__(self, message: str, weights: Weights) -> None:
        super().__init__(message)
        self.weights = weights
        self.surrogate: Any = None


@dataclass(eq=False)
class Engine:
    """All that stays the same during a run."""

    feed: Feed
    tables: Tables
    run: Run
    validate: Callable[[Weights], Validation]
    place: Place
    config: TrainConfig
    uses_scores: bool
    settings: dict[str, Any]
    folder: Path | None
    machine: dict[str, Any] = field(default_factory=dict)
    monitor: Callable[[Weights], Validation] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Rows and parameters, which decide the length of a run."""
        return self.feed.rows.theta.shape[0], self.feed.rows.theta.shape[1]

    @property
    def min_epochs(self) -> int:
        return self.config.epochs_at_least(*self.size)

    @property
    def cools(self) -> int:
        """Epochs of a run that the validation curve may cut; 0 if it may not."""
        return self.min_epochs if self.config.may_cool(*self.size) else 0

    @property
    def extent(self) -> RunBounds:
        """What a position of this run can be."""
        feed = self.feed
        d = feed.rows.theta.shape[1]
        return RunBounds(feed.members, d, feed.steps, self.expected_epochs, self.cools)

    def with_rows(self, gathered: tuple[Any, Any] | None) -> Tables:
        """The tables a plan's rows lie in: all rows, or those gathered for it."""
        return self.tables if gathered is None else Tables(self.tables.theta, *gathered)

    def expected_epochs(self, position: Position) -> int:
        """How many epochs there will be if none brings anything better; a rate that falls to zero
        ends with its last epoch."""
        if position.cooling:
            return sum(position.cooling)
        if self.config.schedule == "cosine":
            return self.min_epochs
        last_best = max(position.best_epoch, default=0)
        longest = self.config.epochs_at_most(*self.size)
        return min(longest, max(self.min_epochs, last_best + self.config.patience))


@dataclass(eq=False)
class Progress:
    """All that changes: the state of the networks, the best weights, and where the run is."""

    member: Member
    best: Weights
    position: Position
    saved_at: float = 0.0
    compile_seconds: float | None = None
    curve: list[float] = field(default_factory=list)  # the criterion after each epoch

    def save(self, engine: Engine) -> None:
        if engine.folder is not None:
            write_checkpoint(
                engine.folder,
                self.member,
                self.best,
                self.position,
                engine.settings,
                engine.machine,
            )
        self.saved_at = time.monotonic()


def fit(engine: Engine, progress: Progress, shown: bool | None) -> None:
    """Train to the end, changing `progress` in place."""
    position, steps = progress.position, engine.feed.steps
    history.rewrite(engine.folder, position.records)
    progress.saved_at = time.monotonic()
    shown = shown if hosts.is_first() else False
    with termination() as asked, history.Bar(shown, engine.min_epochs, steps) as bar:
        while not position.finished:
            _one_epoch(engine, progress, asked, bar)
            _close_epoch(engine, progress)
            position.finished = position.epoch >= engine.expected_epochs(position)
            if position.finished:
                record = _last_record(position)
                position.records.append(record)
                history.append(engine.folder, record)
            # Epochs of a few rows take milliseconds, and there are hundreds of them.
            late = time.monotonic() - progress.saved_at >= SECONDS_UNSAVED
            _, stop = hosts.agree(0, asked.is_set())
            if position.finished or stop or late or engine.min_epochs <= FEW_EPOCHS:
                progress.save(engine)
            _, stop = hosts.agree(0, asked.is_set())  # also while it was written
            if stop and not position.finished:
                _leave(engine, progress)


def _one_epoch(engine: Engine, progress: Progress, asked: Event, bar: history.Bar) -> None:
    """From the current step to the end of the epoch."""
    position, feed = progress.position, engine.feed
    d = feed.rows.theta.shape[1]
    if position.step == 0:
        position.bce_sum = [0.0] * feed.members
        position.score_sum = [[0.0] * d for _ in range(feed.members)]
        position.epoch_seconds = 0.0
    epoch = EpochBatches(feed, position.epoch + 1, engine.place)
    if progress.compile_seconds is None:
        progress.compile_seconds = _compile(engine, progress, epoch)
    wanted, ahead = FIRST_CALL, None
    while position.step < feed.steps:
        began = time.perf_counter()
        start = position.step
        stop = epoch.cut(start, wanted)
        if ahead is None or ahead[0] != (start, stop):
            ahead = ((start, stop), epoch.plan(start, stop))
        (plan, gathered), ahead = ahead[1], None
        tables = engine.with_rows(gathered)
        t, n = jnp.int32(position.batches), jnp.int32(stop - start)
        member, losses, finite = engine.run(progress.member, tables, plan, t, n)
        if feed.rows.streamed and stop < feed.steps:  # the device is busy: fetch what comes next
            following = (stop, epoch.cut(stop, wanted))
            ahead = (following, epoch.plan(*following))
        bce, score = (np.asarray(a, np.float64)[: stop - start] for a in losses)
        _require_finite(engine, progress, bce, score, bool(finite))
        progress.member = member
        _add_up(position, bce, score)
        position.step, position.batches = stop, position.batches + stop - start
        spent = time.perf_counter() - began
        position.epoch_seconds += spent
        wanted = int(np.clip(SECONDS_A_CALL * (stop - start) / spent, 1, 2 * wanted))
        expected = engine.expected_epochs(position)
        bar.at(position.epoch + 1, stop, expected, _numbers(engine, progress))
        minutes = (time.monotonic() - progress.saved_at) / 60
        wanted, leave = hosts.agree(wanted, asked.is_set())
        if position.step < feed.steps:
            if leave:
                progress.save(engine)
                _leave(engine, progress)
            if minutes >= engine.config.checkpoint_minutes:
                progress.save(engine)


def _compile(engine: Engine, progress: Progress, epoch: EpochBatches) -> float:
    """Make no step, so that the time of compiling is not taken for that of training."""
    began = time.perf_counter()
    plan, gathered = epoch.plan(progress.position.step, progress.position.step)
    none = jnp.int32(0)
    jax.block_until_ready(engine.run(progress.member, engine.with_rows(gathered), plan, none, none))
    return time.perf_counter() - began


def _close_epoch(engine: Engine, progress: Progress) -> None:
    """Validate, keep the best weights, write the epoch down."""
    position = progress.position
    weights = weights_to_keep(progress.member)
    found = engine.validate(weights)
    position.epoch, position.step = position.epoch + 1, 0
    if not np.isfinite(found.criterion).all():
        raise Diverged(
            f"The losses on validation rows are not finite after epoch {position.epoch}: "
            f"{found.criterion.tolist()}. " + _advice(engine),
            progress.member.weights,
        )
    members = len(found.criterion)
    best = np.array(position.best or [np.inf] * members)
    better = found.criterion < best
    if members == 1:
        progress.best = weights if better[0] else progress.best
    else:
        progress.best = jax.tree.map(
            lambda new, old: jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            weights,
            progress.best,
        )
    position.best = np.where(better, found.criterion, best).tolist()
    epochs = np.array(position.best_epoch or [0] * members)
    position.best_epoch = np.where(better, position.epoch, epochs).tolist()
    record = _epoch_record(engine, progress, found)
    if engine.monitor is not None:
        record["monitor_bce"] = float(engine.monitor(weights).bce.mean())
    position.records.append(record)
    _cool_if_overfitting(engine, progress)
    history.append(engine.folder, record)


def _cool_if_overfitting(engine: Engine, progress: Progress) -> None:
    """Turn back to the best weights, and let the rate fall to zero from there (see `length`)."""
    position, steps = progress.position, engine.feed.steps
    if not engine.cools or position.cooling:
        return
    curve, members = progress.curve, len(position.best)
    if len(curve) == position.epoch - 1:
        curve += mean_criterion(position.records[-1:], members)
    else:  # resumed
        curve[:] = mean_criterion(position.records, members)
    if overfits(curve, engine.cools):
        cooling = cooling_after(curve, engine.cools)
        position.cooling = list(cooling)
        position.records[-1]["cooling_epochs"] = cooling.epochs
        best_batches = np.array(position.best_epoch) * steps
        progress.member = cooled(
            progress.member, progress.best, best_batches, cooling.epochs * steps
        )


def _epoch_record(engine: Engine, progress: Progress, found: Validation) -> dict[str, Any]:
    position, steps, bce = progress.position, engine.feed.steps, found.bce
    by_parameter = np.array(position.score_sum).mean(axis=0) / steps
    alpha = np.asarray(progress.member.alpha, np.float64).reshape(len(bce), -1).mean(axis=0)
    record: dict[str, Any] = {
        "event": "epoch",
        "epoch": position.epoch,
        "train_bce": float(np.mean(position.bce_sum)) / steps,
        "validation_bce": float(bce.mean()),
        "batches": position.batches,
        "seconds": position.epoch_seconds,
        "ms_per_step": 1e3 * position.epoch_seconds / steps,
        "best_epoch": max(position.best_epoch),
    }
    if progress.compile_seconds:
        record["compile_seconds"], progress.compile_seconds = progress.compile_seconds, 0.0
    if engine.uses_scores:
        record["score_loss"] = float(by_parameter.sum())
        record["score_loss_by_parameter"] = by_parameter.tolist()
        record["alpha"] = float(alpha.mean())
        if len(alpha) > 1:
            record["alpha_by_parameter"] = alpha.tolist()
    if len(bce) > 1:
        record["members"] = {"validation_bce": bce.tolist(), "best_epoch": position.best_epoch}
    if found.score is not None:
        record["validation_score_loss"] = found.score.mean(axis=0).tolist()
    if not np.array_equal(found.criterion, bce):
        record["criterion"] = float(found.criterion.mean())
        if len(bce) > 1:
            record["members"]["criterion"] = found.criterion.tolist()
    return record


def _last_record(position: Position) -> dict[str, Any]:
    epochs = [r for r in position.records if r["event"] == "epoch"]
    members = len(position.best_epoch)
    best = [
        values_of(epochs[e - 1], "validation_bce", members)[m]
        for m, e in enumerate(position.best_epoch)
    ]
    return {
        "event": "end",
        "epochs": position.epoch,
        "best_epoch": max(position.best_epoch),
        "best_validation_bce": float(np.mean(best)),
        "seconds": sum(r["seconds"] for r in epochs),
    }


def _add_up(position: Position, bce: Floats, score: Floats) -> None:
    # One step after the other, so that the sums do not depend on where an epoch is cut.
    bce_sum, score_sum = np.array(position.bce_sum), np.array(position.score_sum)
    for one_bce, one_score in zip(bce, score, strict=True):
        bce_sum += one_bce
        score_sum += one_score
    position.bce_sum, position.score_sum = bce_sum.tolist(), score_sum.tolist()


def _require_finite(
    engine: Engine, progress: Progress, bce: Floats, score: Floats, weights: bool
) -> None:
    good = np.isfinite(bce).all(axis=1) & np.isfinite(score).all(axis=(1, 2))
    if good.all() and weights:
        return
    position = progress.position
    first = int(np.argmin(good)) if not good.all() else len(bce) - 1
    progress.save(engine)
    kept = f"The last good state is kept in {engine.folder}. " if engine.folder else ""
    raise Diverged(
        f"The loss became NaN or infinite at step {position.step + first + 1} of epoch "
        f"{position.epoch + 1} (batch {position.batches + first + 1}). {kept}" + _advice(engine),
        progress.member.weights,
    )


def _advice(engine: Engine) -> str:
    config = engine.config
    scale = "" if config.scale_inputs else " scale_inputs=True,"
    return (
        f"Try a lower learning_rate (it was {config.learning_rate:g}),{scale} "
        "or look for extreme values in x and in the scores."
    )


def _numbers(engine: Engine, progress: Progress) -> dict[str, float]:
    position = progress.position
    numbers = {"BCE": float(np.mean(position.bce_sum)) / position.step}
    if engine.uses_scores:
        numbers["score"] = float(np.mean(position.score_sum, axis=0).sum()) / position.step
        numbers["alpha"] = float(np.mean(np.asarray(progress.member.alpha)))
    return numbers


def _leave(engine: Engine, progress: Progress) -> None:
    position = progress.position
    where = (
        f"state is in {engine.folder}" if engine.folder else "no path was given, nothing is kept"
    )
    message = (
        f"SIGTERM during epoch {position.epoch + 1}, after {position.step} steps of it: {where}. "
        f"Run the same again to go on. Exit code {EXIT_CODE}."
    )
    print(message, file=sys.stderr)
    raise Interrupted(message)
