"""keepscore demo: the whole way, on the SIS epidemic model of the paper."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer

from keepscore.cli.settings import CardSize, Json, Quiet, Seed, Voice, record_command, show
from keepscore.errors import DomainError, unknown_name
from keepscore.files import make_folder, write_json

if TYPE_CHECKING:
    from keepscore.evaluation import Scorecard
    from keepscore.losses import Loss
    from keepscore.models.base import Model
    from keepscore.reports import Interval, ReportContent, Surfaces
    from keepscore.surrogate import Surrogate
    from keepscore.training import TrainConfig

TRUTH = (0.3, -0.2)  # log lambda, log mu of the "observed" outbreak
NETWORKS = ("3k", "10k", "30k", "100k")  # the paper's, for SIS
REFINED = {"ASA": 20}  # the paper's network corrected by so many exact evaluations per data set
OBSERVED = 10  # independent outbreaks observed together
ADVISED = "ASA + structure"  # the surrogate the posterior is drawn from


class Recipe(NamedTuple):
    """One way to train: what it is in words, its folder, network, loss and settings."""

    words: str
    folder: str
    network: str
    loss: Loss
    config: TrainConfig


def recipes(network: str, seed: int) -> dict[str, Recipe]:
    """The paper's network without and with scores, and what we advise, by their names."""
    from keepscore.losses import ASA, BCE
    from keepscore.training import TrainConfig

    paper = TrainConfig.paper("sis", seed=seed)
    advised = TrainConfig(seed=seed)
    size = network.upper()
    return {
        "BCE": Recipe(
            f"the paper's {size} network, cross-entropy alone", "bce", network, BCE(), paper
        ),
        "ASA": Recipe("the same network, with scores", "asa", network, ASA.paper(), paper),
        ADVISED: Recipe(
            "a network that knows it is a Markov chain on this graph, with scores, as we advise",
            "structure",
            "auto",
            ASA(),
            advised,
        ),
    }


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything.")] = Path(
        "runs/demo"
    ),
    n: Annotated[int, typer.Option("--n", "-n", help="Simulations to train on.")] = 30_000,
    network: Annotated[
        str, typer.Option(help="Size of the paper's network: 3k, 10k, 30k or 100k.")
    ] = "30k",
    size: CardSize = "small",
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train three surrogates of an epidemic's likelihood: without scores (BCE), with scores (ASA),
    and as we advise (ASA + structure: a network that knows the process). Correct the second by 20
    exact evaluations per data set; compare all with the exact likelihood; infer the rates behind
    one outbreak; write a report.

    Under five minutes on two cores. Example: keepscore demo --out runs/demo
    """
    from keepscore.data import simulate
    from keepscore.evaluation.scorecard import SIZES
    from keepscore.models import SIS, check_model
    from keepscore.reports import comparison, measured, write
    from keepscore.training import train

    if n < 1000:
        raise DomainError(f"The demo needs at least 1000 simulations; got {n}.")
    if network not in NETWORKS:
        raise unknown_name("network size", network, NETWORKS)
    if size not in SIZES:
        raise unknown_name("scorecard size", size, SIZES)
    folder, began = make_folder(out), time.perf_counter()

    def say(text: str) -> None:
        if not (json or Voice.quiet):
            typer.echo(f"[{time.perf_counter() - began:5.0f} s] {text}")

    model = SIS()
    say("Do simulator, likelihood and score of the model agree?")
    report = check_model(model, draws=300, seed=seed, show=not json)
    say(f"Simulating {n:,} epidemics with their scores, and {n:,} for validation")
    data = simulate(model, n, seed, folder / "train")
    validation = simulate(model, n, seed, folder / "validation", purpose="validation", scores=False)
    ways = recipes(network, seed)
    surrogates = {}
    for name, way in ways.items():
        say(f"Training {name}: {way.words}")
        place = folder / way.folder
        surrogates[name] = train(
            data, validation, way.network, way.loss, way.config, place,
            progress=False if Voice.quiet else None,
        )  # fmt: skip
    say("Comparing them with the exact likelihood")
    cards = measured(surrogates, model, size, seed, lambda text: say(f"  {text}"), REFINED)
    say("Inferring the rates behind one outbreak")
    command = f"keepscore demo --out {folder} -n {n} --network {network} --seed {seed}"
    content = _content(surrogates, model, cards, command, seed)
    words = "; ".join(f"{name}: {way.words}" for name, way in ways.items())
    content = replace(content, subtitle=f"SIS model, {n:,} simulations. {words}.")
    page = folder / "report.html"
    write(content, page)
    _picture(content.surfaces, folder / "surfaces.png")
    record_command(folder, "demo", {"n": n, "network": network, "size": size, "seed": seed})
    write_json(folder / "report.json", content.to_dict())
    result: dict[str, Any] = {
        "report": str(page),
        "laws_hold": report.passed,
        "laws": report.summary,
        "scorecards": {name: card.to_dict() for name, card in cards.items()},
        "seconds": time.perf_counter() - began,
    }
    answers = _estimates(content.intervals)
    table = comparison(cards, {run.name: run.seconds for run in content.runs})
    text = "\n".join([table, "", *content.findings, *answers, "", f"Report: {page}"])
    show(result, text, json)


def _content(
    surrogates: dict[str, Surrogate],
    model: Model,
    cards: dict[str, Scorecard],
    command: str,
    seed: int,
) -> ReportContent:
    """The report of all three, on one observed outbreak and three test outbreaks."""
    from keepscore.reports import ShownGroups, compose, example_from

    rng = np.random.default_rng([seed, 0xDE])
    truths = np.vstack([TRUTH, model.space.uniform(3, rng, "test")])
    xs = model.simulate(np.repeat(truths, OBSERVED, axis=0), rng)
    groups = xs.reshape(len(truths), OBSERVED, *model.x_shape)
    names = ("the outbreak", *(f"test outbreak {k}" for k in range(1, len(truths))))
    shown = [ShownGroups(names, groups, truths)]
    content = compose(
        surrogates, model, cards, shown, observed=True, posterior=(ADVISED,), seed=seed,
        refine=REFINED,
    )  # fmt: skip
    return replace(
        content,
        title="An epidemic on a network: scores and structure make a better surrogate",
        commands=(command,),
        examples=tuple(
            example_from(x, model.structure, f"Outbreak {k}", "Dark: infected.")
            for k, x in enumerate(groups[0][:3], start=1)
        ),
    )


def _picture(surfaces: Surfaces | None, path: Path) -> None:
    """The first group's surfaces side by side, with everybody's maximum and the truth."""
    from keepscore.figures import SurfacePanel, save_figure
    from keepscore.figures import surfaces as draw
    from keepscore.reports import EXACT

    if surfaces is None:
        return
    group = surfaces.groups[0]
    maxima = {s.method: s.mle for s in group.surfaces if s.mle is not None}
    panels = [SurfacePanel(s.method, s.values, maxima[s.method]) for s in group.surfaces]
    axes, names = [a.values for a in surfaces.axes], [a.name for a in surfaces.axes]
    figure = draw(panels, axes, names, truth=group.truth, exact_mle=maxima[EXACT])
    save_figure(figure, path, dpi=170)


def _estimates(intervals: Sequence[Interval]) -> list[str]:
    return [
        f"{row.parameter} by {row.method}: {row.estimate:.3f} [{row.lower:.3f}, {row.upper:.3f}], "
        f"truth {row.truth:.3f}"
        for row in intervals
    ]
