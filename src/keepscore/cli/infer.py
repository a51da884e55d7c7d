"""keepscore infer: estimates, intervals and tests from observations, with a trained surrogate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from keepscore.cli.data_answer import DataAnswer
from keepscore.cli.settings import (
    Json,
    ModelSettings,
    TrainedModel,
    TrainedRun,
    Voice,
    read_observations,
    record_command,
    show,
)
from keepscore.errors import (
    DomainError,
    KeepscoreWarning,
    MissingError,
    ShapeError,
    TooLargeError,
)
from keepscore.files import make_folder, write_json
from keepscore.space import Space, tensor_grid

if TYPE_CHECKING:
    from keepscore.inference.confidence import ConfidenceSet
    from keepscore.inference.lrt import LRT
    from keepscore.inference.null_distribution import Calibration
    from keepscore.likelihood import Likelihood
    from keepscore.surrogate import Surrogate

EXACT_FOLDER = "exact"  # of the exact evaluations, in that of the output
IMPOSSIBLE = 1e6  # a statistic that no calibration ever saw
NUISANCE_POINTS = {2: 201, 3: 41}  # per side of the grid of parameters that a test leaves free


def infer(
    run: TrainedRun,
    observations: Annotated[
        Path,
        typer.Argument(
            help=".npy of shape (n, *x_shape), or .csv with one observation per row "
            "(entries in C order) or one single observation as a table."
        ),
    ],
    level: Annotated[float, typer.Option(help="Confidence level.")] = 0.95,
    test: Annotated[
        list[str] | None,
        typer.Option(help="Null value in raw units, e.g. --test lambda=1.5; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for inference.json and surface.png.")
    ] = None,
    exact: Annotated[
        int | None,
        typer.Option(
            help="Correct the surrogate by at most so many evaluations of the model's exact "
            "likelihood, e.g. --exact 40; the output states the error that is left. With --out "
            "they are kept there, and an interrupted command goes on."
        ),
    ] = None,
    model: TrainedModel = None,
    settings: ModelSettings = None,
    jobs: Annotated[int, typer.Option(help="Processes for the exact evaluations.")] = 1,
    check_data: Annotated[
        bool | None,
        typer.Option(
            "--check-data/--no-check-data",
            help="Ask first whether the model fits these data, and whether they are like the "
            "training data. By default where its simulations take seconds; the output says so "
            "where it was left out.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Estimate the parameters behind one group of iid observations.

    Intervals are calibrated when the surrogate has a calibration for groups of this size (see
    `keepscore calibrate`), and rest on Wilks' theorem otherwise; the output says which. A test
    always prints the chi-square p-value, and the calibrated one beside it where there is one.

    With --exact the answers are those of the exact likelihood, within the error that is printed.

    Data that the model could not have made, or unlike what the surrogate was trained on (another
    unit, another scale), are named as such before any answer.

    Examples:

      keepscore infer runs/sis/asa outbreak.npy --test lambda=1 --out runs/sis/outbreak

      keepscore infer runs/sis/asa outbreak.npy --exact 40
    """
    from keepscore.cli.train import model_of
    from keepscore.inference import confidence_set, mle, refine
    from keepscore.surrogate import load

    surrogate = load(run)
    xs = read_observations(observations, surrogate.x_shape)
    like = surrogate.given(xs)
    if not like.single:
        raise ShapeError(
            f"{observations} holds {like.group_count} groups, shape {xs.shape}; infer takes one "
            f"group at a time, (n, {', '.join(map(str, surrogate.x_shape))})."
        )
    if exact is None:
        _require_possible(surrogate, xs, model, settings)
    folder = None if out is None else make_folder(out)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KeepscoreWarning)
        if exact is not None:
            kept = None if folder is None else folder / EXACT_FOLDER
            truth = model_of(surrogate, model, settings).given(xs)
            like = refine(
                like, truth, exact, jobs=jobs, path=kept, progress=not (Voice.quiet or json)
            )
        calibrated = _joint_calibration(like) is not None
        notes = _notes(surrogate.calibration, calibrated, like)
        estimate = mle(like)
        chosen = confidence_set(like, level, method="calibrated" if calibrated else "wilks")
        intervals, volume = chosen.intervals, float(chosen.volume)
        tests = [_test(like, surrogate.space, text) for text in test or []]
    notes += [str(w.message) for w in caught if issubclass(w.category, KeepscoreWarning)]
    fits = DataAnswer.of(surrogate, xs, model, settings, check_data)
    fits.call_out()
    notes += fits.notes

    result = {
        "observations": like.group_size,
        "basis": like.basis,
        "exact_evaluations": None
        if like.refinement is None
        else int(like.refinement.evaluations[0]),
        "level": level,
        "method": chosen.method,
        "parameters": [
            {
                "name": name,
                "estimate": float(estimate.raw[k]),
                "standard_error": _number(estimate.raw_standard_errors[k]),
                "no_standard_error": str(estimate.reasons[k]) or None,
                "interval": [float(v) for v in intervals.raw[k]],
                "on_boundary": bool(estimate.on_boundary[k]),
            }
            for k, name in enumerate(surrogate.space.names)
        ],
        "interval_kind": intervals.kind,
        "set_volume": volume,
        "converged": bool(estimate.converged),
        "tests": tests,
        "data_check": None if fits.found is None else fits.found.to_dict(),
        "data_check_left_out": fits.left_out,
        "quality": None
        if surrogate.quality is None
        else surrogate.quality.line(surrogate.space.names),
        "notes": notes,
    }
    text = "\n".join([*fits.lines(whole=bool(check_data)), _text(result)])
    if folder is not None:
        asked = {"run": run, "observations": observations, "level": level, "test": test}
        asked |= {"exact": exact, "model": model, "settings": settings, "check_data": check_data}
        record_command(folder, "infer", asked)
        write_json(folder / "inference.json", result)
        _picture(folder / "surface.png", chosen)
        text += f"\n\nWritten to {folder}"
    show(result, text, json)


def _require_possible(
    surrogate: Surrogate, xs: np.ndarray, model: str | None, settings: list[str] | None
) -> None:
    """A network answers to any numbers; the model knows which can be observed (0 and 1, say)."""
    from keepscore.cli.train import model_of

    if model is not None:
        model_of(surrogate, model, settings).given(xs)
        return
    try:
        model_of(surrogate, None, settings).given(xs)
    except (MissingError, TooLargeError):
        return  # a model of one's own, or one without a likelihood: it cannot be asked


def _joint_calibration(like: Likelihood) -> Calibration | None:
    """The surrogate's calibration, if it is of all parameters together and for such groups."""
    from keepscore.inference.null_distribution import find_calibration

    return find_calibration(like, None, like.space.names, "base")


def _notes(calibration: Mapping[str, Any] | None, calibrated: bool, like: Likelihood) -> list[str]:
    if calibrated:
        return []
    if like.refinement is not None:
        return [
            "Intervals and p-values rest on Wilks' theorem; a calibration is of the surrogate "
            "alone and does not apply to the corrected likelihood."
        ]
    if calibration is None:
        return [
            "This surrogate has no calibration: intervals and p-values rest on Wilks' theorem and "
            "on the surrogate's accuracy. `keepscore calibrate` removes that."
        ]
    return [
        f"The calibration is for groups of {calibration.get('group_size')} and "
        f"{', '.join(map(str, calibration.get('parameters', ())))}; these are {like.group_size}: "
        "intervals rest on Wilks' theorem instead."
    ]


def _test(like: Likelihood, space: Space, text: str) -> dict[str, Any]:
    from keepscore.inference import lrt

    name, equals, value = text.partition("=")
    name = name.strip()
    try:
        raw = float(value) if equals else float("nan")
    except ValueError:
        raw = float("nan")
    if not np.isfinite(raw):
        raise DomainError(f"A test is written name=value, e.g. lambda=1.5; got {text!r}.")
    k = space.index(name)
    working = float(space.parameters[k].to_working(np.array(raw)))
    outcome = lrt(like, {name: working}, parameters=[name])
    calibrated, how = outcome.calibrated_p_value, "of this statistic"
    if calibrated is None and (joint := _joint_calibration(like)) is not None:
        calibrated, how = _joint_p_value(like, joint, k, outcome), "of the joint set: conservative"
    return {
        "parameter": name,
        "value": raw,
        "statistic": float(outcome.statistic),
        "degrees_of_freedom": outcome.degrees_of_freedom,
        "p_value": float(outcome.p_value),
        "p_value_kind": "chi-square",
        "calibrated_p_value": None if calibrated is None else float(calibrated),
        "calibration": None if calibrated is None else how,
    }


def _joint_p_value(like: Likelihood, calibration: Calibration, k: int, outcome: LRT) -> float:
    """The largest calibrated p-value among theta whose k-th entry has its null value.

    It is above 1 - level where the projection of the calibrated set holds that value, so the test
    and the printed interval agree. Looked for at the best theta under the null, and over a grid of
    the other parameters where there are up to two.
    """
    from keepscore.inference.statistic import drop

    space, points = like.space, [outcome.null[None]]
    if space.d in NUISANCE_POINTS:
        sides = [1 if j == k else NUISANCE_POINTS[space.d] for j in range(space.d)]
        axes = [np.linspace(space.lower[j], space.upper[j], n) for j, n in enumerate(sides)]
        axes[k] = outcome.null[k : k + 1]
        points.append(tensor_grid(axes))
    theta = np.concatenate(points)
    statistic = np.maximum(drop(outcome.maximum.value[0], like(theta)), 0.0)
    statistic = np.nan_to_num(statistic, posinf=IMPOSSIBLE)
    return float(calibration.p_value(statistic, theta).max())


def _text(result: dict[str, Any]) -> str:
    percent = f"{100 * result['level']:g}%"
    lines = [
        f"{result['observations']} observation(s); {percent} {result['interval_kind']} intervals, "
        f"{result['method']}",
        f"Likelihood: {result['basis']}",
        *([f"Surrogate: {result['quality']}"] if result["quality"] else []),
        f"{'parameter':<14}{'estimate':>12}{'s.e.':>11}{'lower':>12}{'upper':>12}",
    ]
    for row in result["parameters"]:
        error = "-" if row["standard_error"] is None else f"{row['standard_error']:.3g}"
        low, high = row["interval"]
        why = [row["no_standard_error"]] if row["no_standard_error"] else []
        why += ["on the boundary"] if row["on_boundary"] and "on the boundary" not in why else []
        edge = f"   {'; '.join(why)}" if why else ""
        lines.append(
            f"{row['name']:<14}{row['estimate']:>12.5g}{error:>11}{low:>12.5g}{high:>12.5g}{edge}"
        )
    for test in result["tests"]:
        lines.append(
            f"test {test['parameter']} = {test['value']:g}: statistic {test['statistic']:.3f} on "
            f"{test['degrees_of_freedom']} d.f., chi-square p = {test['p_value']:.3g}, "
            + _calibrated_words(test)
        )
    return "\n".join(lines + [f"note: {note}" for note in result["notes"]])


def _calibrated_words(test: dict[str, Any]) -> str:
    if test["calibrated_p_value"] is None:
        return "not calibrated"
    return f"calibrated p = {test['calibrated_p_value']:.3g} ({test['calibration']})"


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _picture(path: Path, chosen: ConfidenceSet) -> None:
    """The log-likelihood over the first two parameters, any others held at their estimates."""
    from keepscore import figures

    one = chosen.like.space.d == 1
    figure = figures.profile(chosen) if one else figures.surface(chosen)
    figures.save_figure(figure, path)
