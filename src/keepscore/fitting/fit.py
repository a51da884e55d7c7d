"""`fit`: from a model to a surrogate whose quality is known, within a stated time.

    laws       does the model agree with itself? One that does not is refused here
    pilot      what a simulation, its score and an exact test cost; whether scores pay
    rounds     simulate, train, measure against the exact likelihood; more simulations, then a
               larger network, until the target is met or the time is over
    focus      with your data, where the target was not met: rounds where their likelihood is, and
               both surrogates measured inside that smaller box; the better one goes on
    calibrate  the null distribution by simulation, so that sets cover whatever the error
    report     one page

Every stage is kept in a folder, and the same call goes on where it was.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.budget import Say, voice
from keepscore.checks import as_number, require_count, require_parts
from keepscore.data import Dataset, open_dataset, simulate
from keepscore.errors import DomainError, KeepscoreWarning, ModelError
from keepscore.evaluation.estimate import Estimate
from keepscore.evaluation.pilot import simulation_costs
from keepscore.evaluation.scorecard import SIZES, groups_of, size_within
from keepscore.files import make_folder
from keepscore.fitting.attempts import (
    Attempt,
    Rates,
    Tried,
    first_of,
    larger_than,
    name_of,
    next_attempt,
    updates,
)
from keepscore.fitting.clock import Clock
from keepscore.fitting.fit_record import FitRecord, Round, read_record
from keepscore.fitting.focus import focus
from keepscore.fitting.focusing import ROUNDS, Focus, Inside, key_of, simulations_within
from keepscore.fitting.verdict import Target, Verdict, judge
from keepscore.fitting.yardstick import FEWEST as FEWEST_MEASURED
from keepscore.fitting.yardstick import (
    LEVEL,
    Extent,
    Measured,
    Yardstick,
    extent_within,
    inferred,
    measured,
    share,
    yardstick,
)
from keepscore.inference import calibrate
from keepscore.inference.null_distribution import Calibration
from keepscore.likelihood import as_groups
from keepscore.locks import only_writer
from keepscore.losses import ASA, BCE
from keepscore.models.base import Model, declares_missing, describe
from keepscore.models.laws import check_model
from keepscore.models.narrowed import Narrowed
from keepscore.reports.compose import report
from keepscore.surrogate import Surrogate, load
from keepscore.training import TrainConfig, train
from keepscore.training.candidates import first_choice, most_trainings, most_work

# Shares of the whole time.
FIRST_SHARE, RACE_SHARE, EXACT_SHARE, END_SHARE = 0.2, 0.1, 0.1, 0.2
FOCUS_SHARE = 0.3  # kept for your data, where there are any
CLEARLY = 0.002  # of validation BCE: less is noise
TYPICAL, PILOT, RACE_LEAST = 10_000, 1_000, 500  # rows
FEWEST_GROUPS, MOST_GROUPS = 400, 4_000  # of a calibration
CARD_SHARE = 0.7  # of the time left: the scorecard's part of the report
# Seconds of a set with its volume by those of a test, exact (10 on fields of 25 x 25): by them the
# size of a scorecard is guessed, and it is timed only where a small one may fit.
SETS_BY_TESTS = 10


@dataclass(frozen=True)
class Fit:
    """What `ks.fit` came to. print() it for the verdict and every round in words."""

    surrogate: Surrogate
    verdict: Verdict
    rounds: tuple[Round, ...]
    target: Target
    laws: str
    seconds: float
    path: Path | None = None
    report: Path | None = None
    focus: Focus | None = None

    @property
    def good(self) -> bool:
        """Whether the target was met."""
        return self.verdict.grade == "good"

    def __str__(self) -> str:
        lines = [f"Model: {self.laws}", f"Asked for: {self.target}"]
        lines += [f"Round {k + 1}: {one}" for k, one in enumerate(self.rounds)]
        lines += [] if self.focus is None else [str(self.focus)]
        lines += [f"{self.verdict}", f"{self.seconds / 60:.1f} min in all"]
        return "\n".join([*lines, *([f"Report: {self.report}"] if self.report else [])])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "grade": self.verdict.grade,
            "reasons": self.verdict.reasons,
            "rounds": [r.to_dict() for r in self.rounds],
            "focus": None if self.focus is None else self.focus.to_dict(),
            "target": {"kind": self.target.kind, "value": self.target.value},
            "laws": self.laws,
            "seconds": self.seconds,
            "path": None if self.path is None else str(self.path),
            "report": None if self.report is None else str(self.report),
        }


def fit(
    model: Model,
    minutes: float = 10.0,
    path: str | os.PathLike[str] | None = None,
    *,
    target: str = "lrt",
    value: float | None = None,
    group_size: int = 10,
    xs: ArrayLike | None = None,
    network: str = "auto",
    seed: int = 0,
    progress: Say | bool | None = None,
) -> Fit:
    """Bring a model to a calibrated surrogate whose quality is known, within so many minutes.

    Args:
        model: Yours or a built-in one. Its laws are checked first; a broken one is refused.
        minutes: The time for all of it. It decides how many simulations there are.
        path: Folder for data, surrogates, the record and the report. The same call goes on where it
            was, also with more minutes. Without it everything stays in memory, and there is no
            report.
        target: What to reach: "lrt", the squared error of the likelihood-ratio statistic;
            "coverage", the distance of the coverage of 95% sets from the exact one's; "r2", the
            least R^2 of the score over the parameters.
        value: Of the target: .1, .02 and .9 if left out.
        group_size: Observations per data set, as you will use the surrogate.
        xs: Your observations, (n, *x_shape): the report then has their estimates. Where the target
            is not met over the whole box, the fit goes on with rounds where the likelihood of these
            data is (`ks.focus`), and the surrogate may then be of that smaller box alone.
        network: As for `ks.train`.
        seed: Root of all randomness.
        progress: Told each stage in words; True for standard error, which is the default on a
            terminal.

    Returns:
        The calibrated surrogate, the verdict ("good", "usable with calibration" or "not good
        enough") with its reasons, every round, and what focusing on xs came to, if it did.

    Raises:
        ModelError: The model breaks a law: simulator, likelihood or score is wrong.
        DomainError: The time is too short for a first round, or xs are not one group.
        MismatchError: The folder holds a fit of something else.

    Example:
        >>> import keepscore as ks
        >>> result = ks.fit(ks.models.SIS(), minutes=10, path="runs/sis")  # doctest: +SKIP
        >>> print(result.verdict)  # doctest: +SKIP
        good: squared LRT error 0.021 ± 0.003; ...
    """
    require_parts(model, "model", "name", "space", "simulate", "score_kind")
    minutes = as_number(minutes, "minutes")
    if not (math.isfinite(minutes) and minutes > 0):
        raise DomainError(f"minutes must be positive; got {minutes!r}.")
    group_size = require_count(group_size, "group_size")
    seed = require_count(seed, "seed", minimum=0)
    wanted = Target.of(target, value)
    observed = None if xs is None else _one_group(model, xs)
    folder = None if path is None else make_folder(path)
    question = {
        "model": describe(model),
        "target": [wanted.kind, wanted.value],
        "group_size": group_size,
        "network": network,
        "seed": seed,
    }
    with nullcontext() if folder is None else only_writer(folder, "fit"):
        record = read_record(folder, question)
        clock = Clock(60 * minutes, record.spent)
        run = _Run(
            model, folder, wanted, group_size, network, seed, record, clock, voice(progress, "fit"),
            xs=observed,
        )  # fmt: skip
        with warnings.catch_warnings():
            # Poor scores of a first round, sets cut by the box: the verdict and the report say it.
            warnings.simplefilter("ignore", KeepscoreWarning)
            return run.all()


@dataclass(frozen=True)
class _Final:
    """The surrogate that is calibrated and reported: of which model, what it was measured on and
    how it did, the folder it goes to, and what things cost."""

    surrogate: Surrogate
    model: Model
    by: Yardstick
    measured: Measured
    name: str
    costs: dict[str, float]
    focused: bool = False


@dataclass
class _Run:
    """One call of `fit`."""

    model: Model
    folder: Path | None
    target: Target
    group_size: int
    network: str
    seed: int
    record: FitRecord
    clock: Clock
    voice: Say
    best: Surrogate | None = None
    data: Dataset | None = None  # of the best round
    xs: NDArray[Any] | None = None

    def all(self) -> Fit:
        """Every stage, those already done left out."""
        self.laws()
        self.pilot()
        by = yardstick(
            self.model, self.group_size, self.extent(), self.seed, self._at("yardstick.npz")
        )
        reason = self.rounds(by)
        final = self.amortised(by)
        found = None
        if self.xs is not None and not self._met():
            found, focused = self.focused(self.xs)
            final = final if focused is None else focused
        surrogate, calibrated = self.calibrated(final)
        verdict = judge(
            self.target,
            final.measured,
            surrogate.quality,
            calibrated,
            reason,
            self.model.space.names,
        )
        if final.focused:
            verdict = Verdict(verdict.grade, f"for your data, {verdict.reasons}")
        page = self.page(surrogate, final)
        self.record.verdict = {"grade": verdict.grade, "reasons": verdict.reasons}
        self._save()
        self.say(str(verdict))
        return Fit(
            surrogate,
            verdict,
            tuple(self.record.rounds),
            self.target,
            self.record.laws,
            self.clock.spent,
            self.folder,
            page,
            found,
        )

    def laws(self) -> None:
        """Refuse a model that contradicts itself."""
        if self.record.laws:
            return
        self.say("checking the model")
        found = check_model(self.model, seed=self.seed, show=False)
        if not found.passed:
            raise ModelError(
                f"The model breaks its own laws, and a surrogate of it would be wrong. "
                f"{found.summary}. Run ks.check_model(model) for the table, and mend the function "
                "that it names."
            )
        self.record.laws = found.summary
        self._save()

    def pilot(self) -> None:
        """What a simulation, its score and an update cost, and whether scores pay."""
        if self.record.loss:
            return
        self.say("timing simulations and updates")
        plain, score = simulation_costs(self.model, self.seed)
        data = simulate(self.model, PILOT, self.seed, jobs=1)
        loss = BCE() if self.model.score_kind is None else ASA()
        config = TrainConfig(seed=self.seed, max_epochs=3, guard=False)
        begin = time.perf_counter()
        made = train(data, None, self.network, loss, config, progress=False)
        spent = time.perf_counter() - begin
        epochs = [r["ms_per_step"] for r in made.history if r["event"] == "epoch"]
        update = 1e-3 * float(np.median(epochs[1:]))
        self.record.costs = {
            "simulation": plain,
            "score": score,
            "update": update,
            "start": max(0.0, spent - update * updates(PILOT, self.model.space.d, config)),
        }
        self.record.loss = "BCE" if self.model.score_kind is None else self._race()
        self._save()

    def extent(self) -> Extent:
        """The test groups: chosen once, so that all rounds are measured alike, also those of a
        later call with more minutes or on a busier machine."""
        if self.record.extent is None:
            self.say("timing the exact likelihood")
            seconds = EXACT_SHARE * self.clock.seconds
            self.record.extent = extent_within(self.model, self.group_size, seconds, self.seed)
            self._save()
        return self.record.extent

    def _race(self) -> str:
        """ASA, unless scores scatter or cost more than training does, and BCE wins a race of equal
        cost."""
        costs, d = self.record.costs, self.model.space.d
        training = updates(TYPICAL, d, TrainConfig()) * costs["update"]
        if self.model.score_kind == "exact" and TYPICAL * costs["score"] < training:
            return "ASA"
        plain, both = costs["simulation"], costs["simulation"] + costs["score"]
        seconds = RACE_SHARE * self.clock.seconds / 2 - costs["start"]
        n = min(TYPICAL, int(seconds / 2 / both))
        if n < RACE_LEAST:
            return "ASA"
        others = min(int(n * both / max(plain, 1e-9)), 10 * n)
        self.say(f"do scores pay? {n:,} simulations with them against {others:,} without")
        held = simulate(self.model, 2_000, self.seed, purpose="validation", scores=False)
        losses = {}
        for loss, rows in ((ASA(), n), (BCE(), others)):
            data = simulate(self.model, rows, self.seed, scores=isinstance(loss, ASA))
            steps = rows / TrainConfig().batch_size
            limit = max(3, int(seconds / 2 / (steps * costs["update"])))
            config = TrainConfig(seed=self.seed, guard=False, max_epochs=limit)
            made = train(data, held, self.network, loss, config, progress=False)
            assert made.quality is not None
            losses[type(loss).__name__] = made.quality.validation_bce
        return "BCE" if losses["BCE"] + CLEARLY < losses["ASA"] else "ASA"

    def rounds(self, by: Yardstick) -> str:
        """Attempts until the target is met or nothing more fits; returns what would be next."""
        config = TrainConfig(seed=self.seed)
        d = self.model.space.d
        while True:
            if self.record.rounds and self._met():
                return "the target is met"
            if self.record.under_way is None:
                if not self.record.rounds:
                    self.record.under_way = self._first(config)
                else:
                    tried = [
                        Tried(r.attempt, r.simulating, r.training, r.loss)
                        for r in self.record.rounds
                    ]
                    left = self._for_rounds() - self._measuring()
                    larger = larger_than(self._name_of_last())
                    chosen, why = next_attempt(tried, left, d, config, larger)
                    if chosen is None:
                        return f"{why}: {self._advice()}"
                    self.say(f"target not met; {why}")
                    self.record.under_way = chosen
                self._save()
            self._round(self.record.under_way, config, by)

    def _first(self, config: TrainConfig) -> Attempt:
        costs, d = self.record.costs, self.model.space.d
        each = costs["simulation"] + (costs["score"] if self.record.loss == "ASA" else 0.0)
        # Scores that are followed badly are held against a training without them, and "auto" may
        # try several networks. Where there is no time for that, its first choice is trained alone.
        scores = self.record.loss == "ASA"
        guard = int(scores)
        of_what = self.model.x_shape, self.model.structure, scores
        most, work = most_trainings(*of_what), most_work(*of_what)
        several = self.network == "auto" and most > 1
        first = first_choice(self.model.x_shape, declares_missing(self.model))
        choices = [(self.network, most, work), (first, 1, 1)] if several else [(self.network, 1, 1)]
        rated = [
            (name, Rates(each, (w + guard) * costs["update"], (k + guard) * costs["start"]))
            for name, k, w in choices
        ]
        times = (FIRST_SHARE * self.clock.seconds, self._for_rounds())
        found = first_of(rated, times, d, config, self.record.loss)
        if found is not None:
            return found
        needed = rated[-1][1].seconds(1_000, d, config) / FIRST_SHARE
        raise DomainError(
            f"{self.clock.seconds / 60:g} minutes are too few for a first round of 1,000 "
            f"simulations ({1e3 * each:.3g} ms each) and their training. Give {needed / 60:.0f} "
            "minutes or more."
        )

    def _round(self, attempt: Attempt, config: TrainConfig, by: Yardstick) -> None:
        """Simulate, train and measure one attempt; its folders make it resumable."""
        k = len(self.record.rounds) + 1
        self.say(f"round {k}: simulating {attempt.n:,}")
        begin = time.perf_counter()
        data = simulate(
            self.model,
            attempt.n,
            self.seed + k,
            self._at(f"round-{k}/data"),
            scores=attempt.loss == "ASA",
        )
        simulating = time.perf_counter() - begin
        self.say(f"round {k}: training ({attempt})")
        begin = time.perf_counter()
        loss = ASA() if attempt.loss == "ASA" else BCE()
        settings = config if attempt.epochs is None else replace(config, max_epochs=attempt.epochs)
        made = train(
            data, None, attempt.network, loss, settings, self._at(f"round-{k}/surrogate"),
            progress=False,
        )  # fmt: skip
        training = time.perf_counter() - begin
        self.say(f"round {k}: measuring on {len(by.theta)} groups")
        found, self.record.costs["group"] = _measured_and_timed(made, by)
        assert made.quality is not None
        value = self.target.loss(found, made.quality)
        line = made.quality.line(self.model.space.names)
        told = made.quality.validation_bce if value is None else value
        if attempt.network == "auto":
            attempt = replace(attempt, network=_name(made) or "auto")
        one = Round(attempt, simulating, training, line, told, found)
        previous = [r.loss for r in self.record.rounds]
        if one.loss < min(previous, default=math.inf):
            self.best, self.data = made, data
        self.record.rounds.append(one)
        self.record.under_way = None
        self._save()
        self.say(f"round {k}: {found.line()}")

    def amortised(self, by: Yardstick) -> _Final:
        """The best surrogate of the whole box."""
        k = self._best_round()
        found = self.record.rounds[k].measured
        return _Final(self._surrogate(k), self.model, by, found, "surrogate", self.record.costs)

    def focused(self, xs: NDArray[Any]) -> tuple[Focus | None, _Final | None]:
        """Rounds on the data, then both surrogates inside the smaller box; the focused one if it is
        better there. Nothing where no time is left."""
        name = key_of(len(self.record.rounds), xs)
        n = self.record.focusing.get(name) or self._more()
        if n is None:
            self.say("no time is left to focus on your data")
            return None, None
        self.record.focusing[name] = n
        self._save()
        k = self._best_round()
        best, data = self._surrogate(k), self._data(k)
        self.say(f"focusing on your data: {n:,} more simulations")
        attempt = self.record.rounds[k].attempt
        made = focus(
            self.model, xs, n, ROUNDS, self._at(name), seed=self.seed, network=attempt.network,
            loss=ASA() if attempt.loss == "ASA" else BCE(), config=TrainConfig(seed=self.seed),
            progress=False, after=(data, best),
        )  # fmt: skip
        inside = Narrowed(self.model, made.space)
        groups = int(self.extent().groups * min(1.0, self.group_size / len(xs)))
        extent = replace(self.extent(), groups=max(FEWEST_MEASURED, groups))
        by = yardstick(inside, len(xs), extent, self.seed, self._at(f"{name}/yardstick.npz"))
        self.say(f"measuring on {len(by.theta)} groups inside the smaller box")
        after, each = _measured_and_timed(made, by)
        costs = {**self.record.costs, "group": each}
        found = self.record.focused.get(name)
        if found is None:
            before = measured(Inside(best, made.space), by)
            found = Focus(
                n, len(xs), tuple(made.space.lower.tolist()), tuple(made.space.upper.tolist()),
                before, after, self._loss(before, best), self._loss(after, made),
            )  # fmt: skip
            self.record.focused[name] = found
            self._save()
        self.say(str(found))
        if not found.helped:
            return found, None
        return found, _Final(made, inside, by, after, f"{name}/calibrated", costs, True)

    def _more(self) -> int | None:
        """How many simulations focusing may have."""
        k = self._best_round()
        one = self.record.rounds[k]
        d, config = self.model.space.d, TrainConfig(seed=self.seed)
        rates = Rates(
            one.simulating / one.attempt.n,
            one.training / updates(one.attempt.n, d, config),
            self.record.costs["start"],
        )
        # Both surrogates are measured afterwards.
        left = self.clock.left - END_SHARE * self.clock.seconds - 2 * self._measuring()
        return simulations_within(left, rates, d, config, one.attempt.n)

    def _loss(self, found: Measured, surrogate: Surrogate) -> float:
        """What two surrogates are compared by: the target's, or else their cross-entropy."""
        value = self.target.loss(found, surrogate.quality)
        if value is not None:
            return value
        assert surrogate.quality is not None
        return surrogate.quality.validation_bce

    def calibrated(self, final: _Final) -> tuple[Surrogate, Estimate]:
        """The surrogate with a calibration, and how often its calibrated sets hold the truth on
        groups that were not used to calibrate."""
        best, by = final.surrogate, final.by
        size = by.xs.shape[1]
        folder = self._at(final.name)
        kept = None
        if folder is not None and (folder / "surrogate.json").exists():
            kept = load(folder)
            same = kept.provenance == best.provenance and kept.calibration is not None
            kept = kept if same else None
        if kept is None:
            costs = final.costs
            each = size * costs["simulation"]
            each += (1 + self.model.space.d) * costs["group"]
            time_for = max(self.clock.left, 0.1 * self.clock.seconds) / 2
            n = int(np.clip(time_for / each, FEWEST_GROUPS, MOST_GROUPS))
            self.say(f"calibrating on {n:,} groups")
            made = calibrate(best, final.model, size, n, seed=self.seed)
            kept = best.with_calibration(made)
            if folder is not None:
                kept.save(folder)
        assert kept.calibration is not None
        null = Calibration.from_dict(kept.calibration)
        found = inferred(kept, by.xs, by.theta)
        return kept, share(null.p_value(found.statistic, by.theta) > 1 - LEVEL)

    def page(self, surrogate: Surrogate, final: _Final) -> Path | None:
        """The report, where there is a folder and the exact side of it fits into the time."""
        target = self._at("report.html")
        if target is None:
            return None
        size = self._card(surrogate, final.model)
        self.say(f"writing the report ({size} scorecard)")
        report({"surrogate": surrogate}, final.model, target, self.xs, size=size, seed=self.seed)
        return target

    def _card(self, surrogate: Surrogate, model: Model) -> str:
        """The scorecard that the time left allows, by what both its sides cost."""
        seconds = CARD_SHARE * self.clock.left
        extent = self.extent()
        each = SETS_BY_TESTS * extent.seconds_per_group if extent.exact else 0.0

        def fits(name: str) -> bool:
            return groups_of(SIZES[name], model.space.d) * each <= seconds

        if seconds <= 0 or not fits("quick"):
            return "least"
        if not fits("small"):
            return "quick"
        return size_within(model, "small", self.seed, seconds / 60, surrogate)

    def say(self, text: str) -> None:
        """A stage in words, with the time left."""
        self.voice(f"[{self.clock}] {text}")

    def _met(self) -> bool:
        k = self._best_round()
        quality = self._surrogate(k).quality if self.target.kind == "r2" else None
        found = self.target.loss(self.record.rounds[k].measured, quality)
        return found is not None and found <= self.target.limit

    def _best_round(self) -> int:
        losses = [r.loss for r in self.record.rounds]
        return losses.index(min(losses))

    def _surrogate(self, k: int) -> Surrogate:
        """Of round k (from 0): in memory, or read back."""
        if self.best is None:
            folder = self._at(f"round-{k + 1}/surrogate")
            assert folder is not None  # without a folder, rounds and surrogate are of this call
            self.best = load(folder)
        return self.best

    def _data(self, k: int) -> Dataset:
        """Of round k (from 0): in memory, or read back."""
        if self.data is None:
            folder = self._at(f"round-{k + 1}/data")
            assert folder is not None
            self.data = open_dataset(folder)
        return self.data

    def _advice(self) -> str:
        """What else may help."""
        if self.model.structure is not None or math.prod(self.model.x_shape) == 1:
            return "give it more minutes, or a narrower box"
        return (
            "give it more minutes, a narrower box, or the structure of x where it has one "
            '(declares=["iid"], ["series"], ["markov"], ...)'
        )

    def _for_rounds(self) -> float:
        """Seconds left for rounds: less what is kept for your data, calibration and report."""
        kept = END_SHARE + (0.0 if self.xs is None else FOCUS_SHARE)
        return self.clock.left - kept * self.clock.seconds

    def _measuring(self) -> float:
        """Seconds that measuring a surrogate takes, by the last round."""
        return self.extent().groups * self.record.costs.get("group", 0.0)

    def _name_of_last(self) -> str | None:
        return self.record.rounds[-1].attempt.network

    def _at(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name

    def _save(self) -> None:
        self.record.spent = self.clock.spent
        self.record.write(self.folder)


def _measured_and_timed(surrogate: Surrogate, by: Yardstick) -> tuple[Measured, float]:
    """A surrogate on the yardstick, and the seconds that inference on a group takes it."""
    found = measured(surrogate, by)  # the first time compiles
    begin = time.perf_counter()
    inferred(surrogate, by.xs, by.theta)
    return found, (time.perf_counter() - begin) / len(by.theta)


def _one_group(model: Model, xs: ArrayLike) -> NDArray[Any]:
    observed, single = as_groups(xs, tuple(model.x_shape), missing=declares_missing(model))
    if not single:
        raise DomainError(
            f"xs must be the observations of one system, (n, *x_shape); got {len(observed)} "
            "groups. Fit without them, or once per group."
        )
    return observed[0]


def _name(surrogate: Surrogate) -> str | None:
    return name_of(surrogate.network, surrogate.x_shape, surrogate.space.d)
