"""keepscore demo: the whole way, on the SIS epidemic model of the paper."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer

from keepscore.cli.settings import CardSize, Json, Seed, record_command, show
from keepscore.errors import DomainError, KeepscoreWarning, unknown_name
from keepscore.files import make_folder, write_json

if TYPE_CHECKING:
    from keepscore.losses import Loss
    from keepscore.surrogate import Surrogate
    from keepscore.training import TrainConfig

TRUTH = (0.3, -0.2)  # log lambda, log mu of the "observed" outbreak
NETWORKS = ("3k", "10k", "30k", "100k")  # the paper's, for SIS
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
    json: Json = False,
) -> None:
    """Train three surrogates of an epidemic's likelihood: without scores (BCE), with scores (ASA),
    and as we advise (ASA + structure: a network that knows the process). Compare them with the
    exact likelihood; infer the rates behind one outbreak; write a report.

    Under five minutes on two cores. Example: keepscore demo --out runs/demo
    """
    from keepscore.cli.compare import comparison
    from keepscore.data import simulate
    from keepscore.evaluation.scorecard import SIZES
    from keepscore.models import SIS, check_model
    from keepscore.reports import write
    from keepscore.training import train

    if n < 1000:
        raise DomainError(f"The demo needs at least 1000 simulations; got {n}.")
    if network not in NETWORKS:
        raise unknown_name("network size", network, NETWORKS)
    if size not in SIZES:
        raise unknown_name("scorecard size", size, SIZES)
    folder, began = make_folder(out), time.perf_counter()

    def say(text: str) -> None:
        if not json:
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
        surrogates[name] = train(data, validation, way.network, way.loss, way.config, place)
    say("Comparing them with the exact likelihood")
    cards = _scorecards(surrogates, model, size, seed)
    say("Inferring the rates behind one outbreak")
    content = _content(surrogates, model, cards, (n, seed, network), str(folder))
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


def _scorecards(
    surrogates: dict[str, Surrogate], model: Any, size: str, seed: int
) -> dict[str, Any]:
    from keepscore.evaluation import scorecard

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # sets that touch the boundary: counted
        return {name: scorecard(s, model, size, seed) for name, s in surrogates.items()}


def _content(
    surrogates: dict[str, Surrogate], model: Any, cards: Any, asked: Any, folder: str
) -> Any:
    from keepscore.cli.compare import intervals_of, likelihoods, machine, now, surfaces_of
    from keepscore.evaluation import run_of
    from keepscore.reports import EXACT, ReportContent, example_from, scorecard_from

    n, seed, network = asked
    rng = np.random.default_rng([seed, 0xDE])
    truths = np.vstack([TRUTH, model.space.uniform(3, rng, "test")])
    xs = model.simulate(np.repeat(truths, OBSERVED, axis=0), rng)
    groups = xs.reshape(len(truths), OBSERVED, *model.x_shape)
    names = ["the outbreak", *(f"test outbreak {k}" for k in range(1, len(truths)))]
    rows, coverage = scorecard_from(cards)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # the page has notices of its own
        surfaces = surfaces_of(likelihoods(surrogates, model, groups), truths, names)
        observed = likelihoods(surrogates, model, groups[0])
        intervals = intervals_of(observed, truths[0], 0.95, names[0])
        posterior = _posterior_by_nuts(ADVISED, observed[ADVISED], seed)
    posterior += _posterior_by_grid(surfaces, EXACT)
    command = f"keepscore demo --out {folder} -n {n} --network {network} --seed {seed}"
    return ReportContent(
        title="An epidemic on a network: scores and structure make a better surrogate",
        subtitle=f"SIS model, {n:,} simulations. "
        + "; ".join(f"{name}: {way.words}" for name, way in recipes(network, seed).items())
        + ".",
        created=now(),
        methods=(*surrogates, EXACT),
        commands=(command,),
        findings=_findings(cards, n),
        runs=tuple(run_of(name, s) for name, s in surrogates.items()),
        scorecard=rows,
        coverage=coverage,
        surfaces=surfaces,
        intervals=intervals,
        posterior=tuple(posterior),
        examples=tuple(
            example_from(x, model.structure, f"Outbreak {k}", "Dark: infected.")
            for k, x in enumerate(groups[0][:3], start=1)
        ),
        provenance={**machine(), "seed": seed, "model": model.settings()},
    )


def _picture(surfaces: Any, path: Path) -> None:
    """The first group's surfaces side by side, with everybody's maximum and the truth."""
    from keepscore.figures.saving import save_figure
    from keepscore.figures.surface_panels import SurfacePanel
    from keepscore.figures.surface_panels import surfaces as draw
    from keepscore.reports import EXACT

    group = surfaces.groups[0]
    panels = [SurfacePanel(s.method, s.values, s.mle) for s in group.surfaces]
    exact = next(s.mle for s in group.surfaces if s.method == EXACT)
    axes, names = [a.values for a in surfaces.axes], [a.name for a in surfaces.axes]
    figure = draw(panels, axes, names, truth=group.truth, exact_mle=exact)
    save_figure(figure, path, dpi=170)


def _posterior_by_nuts(method: str, like: Any, seed: int) -> list[Any]:
    """Posterior of the raw parameters under a uniform prior, by NUTS on the surrogate."""
    from keepscore.inference import posterior
    from keepscore.inference.draws import chain_quality
    from keepscore.reports import PosteriorRow

    names = list(like.space.names)
    draws = posterior(like, seed=seed)
    found, diverging = chain_quality(draws, names), int(draws["posterior"].attrs["divergences"])
    rows = []
    for name in names:
        values = np.asarray(draws["posterior"][name]).ravel()
        low, high = np.quantile(values, [0.025, 0.975])
        moments = (float(values.mean()), float(values.std()), float(low), float(high))
        r_hat, size = found[name]
        rows.append(PosteriorRow(name, method, *moments, 0.95, r_hat, size, diverging))
    return rows


def _posterior_by_grid(surfaces: Any, method: str) -> list[Any]:
    """The same from the first group's surface: the exact likelihood is too slow for a sampler."""
    from keepscore.reports import PosteriorRow

    surface = next(s for s in surfaces.groups[0].surfaces if s.method == method)
    density = np.exp(surface.values)
    rows = []
    for k, axis in enumerate(surfaces.axes):
        weight = density.sum(axis=tuple(j for j in range(density.ndim) if j != k))
        weight = weight / weight.sum()
        mean = float(weight @ axis.raw_values)
        sd = float(np.sqrt(weight @ (axis.raw_values - mean) ** 2))
        middle = np.cumsum(weight) - weight / 2  # each node stands for the cell around it
        low, high = np.interp([0.025, 0.975], middle, axis.raw_values)
        rows.append(PosteriorRow(axis.raw_name, method, mean, sd, float(low), float(high)))
    return rows


def _findings(cards: Any, n: int) -> tuple[str, ...]:
    from keepscore.reports.words import join

    far = {name: card.ltest.rmse_far for name, card in cards.items()}
    covered = {name: card.etest.coverage for name, card in cards.items()}
    return (
        f"From {n:,} simulations, differences of the log-likelihood are off by "
        + join([f"{found.value:.2f} ({name})" for name, found in far.items()])
        + ", root mean square; the exact likelihood has 0.",
        "Wilks' 95% sets held the truth in "
        + join([f"{found.value:.1%} ({name})" for name, found in covered.items()])
        + " of the test groups.",
    )


def _estimates(intervals: Any) -> list[str]:
    return [
        f"{row.parameter} by {row.method}: {row.estimate:.3f} [{row.lower:.3f}, {row.upper:.3f}], "
        f"truth {row.truth:.3f}"
        for row in intervals
    ]
