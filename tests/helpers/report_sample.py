"""A report's content with plausible numbers, for the tests and for looking at the page.

The exact surfaces are those of the Gaussian toy (or of a made-up three-parameter likelihood); the
"surrogates" are the exact ones with theta bent and the surface flattened, ASA less than BCE. So a
reader, or a test, can say which is which. `python tests/report_sample.py OUT.html` writes the page.
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
from toys import GaussianToy

from keepscore.evaluation import Epoch, Estimate, Run
from keepscore.likelihood import Likelihood
from keepscore.reports import (
    Coverage,
    Interval,
    Notice,
    Picture,
    PosteriorRow,
    ReportContent,
    ScoreRow,
    example_from,
    surfaces_from,
    write,
)
from keepscore.space import Parameter, Space

HOSTILE = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"


def bent(like: Likelihood, shift: float, flat: float) -> Likelihood:
    """A stand-in for a surrogate: the exact likelihood, moved, twisted and flattened."""

    def warp(theta):
        return theta + shift * np.cos(2 * theta[:, ::-1] + 1)

    return dataclasses.replace(
        like,
        kind="surrogate",
        surface=lambda theta: flat * like.surface(warp(theta)),
        pairs=lambda theta, group: flat * like.pairs(warp(theta), group),
    )


def three_parameters(groups: int, seed: int = 0) -> tuple[Likelihood, np.ndarray]:
    """A curved log-likelihood in (log l_x, log l_y, log eps), one per group."""
    space = Space([Parameter("l_x", -1, 1), Parameter("l_y", -1, 1), Parameter("eps", -3, -0.5)])
    rng = np.random.default_rng(seed)
    centre = space.uniform(groups, rng, "test")

    def pairs(theta, group):
        u = theta - centre[group]
        bend = u[:, 2] - 0.8 * (u[:, 0] + u[:, 1]) - 0.7 * u[:, 0] ** 2
        return -9 * u[:, 0] ** 2 - 9 * u[:, 1] ** 2 + 7 * u[:, 0] * u[:, 1] - 3 * bend**2

    def surface(theta):
        return np.stack([pairs(theta, np.full(len(theta), g)) for g in range(groups)])

    def no_gradient(theta, group):
        raise AssertionError("a report needs no gradients")

    return Likelihood(space, groups, 10, pairs, no_gradient, surface, single=False), centre


def history(epochs: int, floor: float, seed: int, scores: bool) -> tuple[Epoch, ...]:
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(1, epochs + 1):
        fall = 0.28 * np.exp(-k / 5)
        late = 0.0016 * max(0, k - 0.75 * epochs)
        rows.append(
            Epoch(
                k,
                floor + fall - 0.0009 * k + 0.001 * rng.standard_normal(),
                floor + fall + late + 0.0015 * rng.standard_normal(),
                tuple(c * np.exp(-k / 9) + 0.11 for c in (0.9, 0.5)) if scores else None,
                tuple(c * 1.25 ** min(k, 18) for c in (0.02, 0.01)) if scores else None,
                2.1 + 0.1 * rng.random(),
            )
        )
    return tuple(rows)


def peaks(like: Likelihood) -> np.ndarray:
    nodes = like.space.grid(121 if like.space.d == 2 else 31)
    return nodes[like.surface(nodes).argmax(axis=1)]


def sample(d: int = 2, groups: int = 4, seed: int = 7) -> ReportContent:
    """A whole report over two or three parameters."""
    rng = np.random.default_rng(seed)
    if d == 3:
        exact, centre = three_parameters(groups)
        truths = centre + 0.12 * rng.standard_normal((groups, 3))
        fields = [rng.standard_normal((25, 25)).cumsum(0).cumsum(1)[:, ::1] for _ in range(2)]
        examples = [
            example_from(x, "stationary-field", f"Field {k + 1}") for k, x in enumerate(fields)
        ]
    else:
        toy = GaussianToy(10)
        truths = toy.space.uniform(groups, rng, "test")
        xs = np.stack([toy.simulate(np.tile(t, (5, 1)), rng) for t in truths])
        exact = toy.given(xs)
        chain = (rng.random((13, 8)) < np.linspace(0.1, 0.7, 13)[:, None]).astype(float)
        examples = [
            example_from(xs[0, 0], None, "A series", "Ten values."),
            example_from(chain, "markov", "An outbreak", "Dark: infected. One column a day."),
        ]
    methods = {"ASA": bent(exact, 0.03, 0.98), "BCE": bent(exact, 0.16, 0.72), "exact": exact}
    mles = {name: peaks(like) for name, like in methods.items()}
    surfaces = surfaces_from(methods, mles, truths, [f"data set {g + 1}" for g in range(groups)])
    return ReportContent(
        title=("Gaussian field" if d == 3 else "Outbreaks on a network") + ": ASA and BCE",
        subtitle="Two surrogates of 30,225 weights, trained on 30,000 simulations",
        created="3 May 2026, 14:05",
        methods=("ASA", "BCE", "exact"),
        commands=("keepscore simulate sis -n 30000 --seed 0 --out runs/sis/train",
                  "keepscore train runs/sis/train --loss asa --network 30k --out runs/sis/asa"),
        findings=(
            "With the same 30,000 simulations, the surrogate trained with scores (ASA) gives "
            "estimates and confidence sets close to those of the exact likelihood, 4,100 times "
            "faster; the one trained without (BCE) gives sets that are too small.",
        ),
        warnings=(Notice("note", "The observed outbreak was simulated: its truth is known."),),
        runs=(
            Run("ASA", {"loss": "ASA", "network": "30k", "batch": 64, "learning rate": 1e-3},
                history(30, 0.3997, 1, True), 30_225, 63.4, components=("log λ", "log μ")),
            Run("BCE", {"loss": "BCE", "network": "30k", "batch": 64, "learning rate": 1e-3},
                history(30, 0.4115, 2, False), 30_225, 55.1),
        ),
        scorecard=_scorecard(),
        coverage=(
            Coverage(0.95, {"ASA": Estimate(0.936, 0.0046), "BCE": Estimate(0.861, 0.0063),
                            "exact": Estimate(0.948, 0.0041)}, "Wilks", 3000),
            Coverage(0.95, {"ASA": Estimate(0.951, 0.0040), "BCE": Estimate(0.949, 0.0040)},
                     "calibrated", 3000),
        ),
        surfaces=surfaces,
        intervals=_intervals(exact.space, mles, truths),
        posterior=(
            PosteriorRow("λ", "ASA", 1.31, 0.12, 1.09, 1.57, 0.95, 1.002, 2310.0, 0),
            PosteriorRow("μ", "ASA", 0.82, 0.074, 0.69, 0.98, 0.95, 1.003, 2164.0, 0),
        ),
        examples=tuple(examples),
        provenance={"keepscore": "0.1.0", "commit": "f7119ab", "python": "3.11.2", "jax": "0.10.2",
                    "machine": "2 cores, x86_64", "seeds": {"train": 0, "validation": 1, "test": 2},
                    "model": {"name": "sis", "nodes": 8, "observations": 13}},
    )  # fmt: skip


def curve() -> ReportContent:
    """One parameter: a curve instead of a map."""
    space = Space([Parameter("rate", -1, 1)])

    def surface(theta):
        return np.stack([-12 * (theta[:, 0] - c) ** 2 for c in (0.1, -0.4)])

    def pairs(theta, group):
        return -12 * (theta[:, 0] - np.array([0.1, -0.4])[group]) ** 2

    like = Likelihood(space, 2, 5, pairs, lambda t, g: (pairs(t, g), t), surface, single=False)
    methods = {"ASA": bent(like, 0.05, 0.9), "exact": like}
    mles = {name: peaks_of_line(one) for name, one in methods.items()}
    return ReportContent("One rate", surfaces=surfaces_from(methods, mles, [[0.0], [-0.3]]))


def peaks_of_line(like: Likelihood) -> np.ndarray:
    nodes = like.space.grid(401)
    return nodes[like.surface(nodes).argmax(axis=1)]


def hostile() -> ReportContent:
    """Every text a user could choose holds markup."""
    content = sample(2, 2)
    assert content.surfaces is not None
    named = [
        dataclasses.replace(
            group,
            name=HOSTILE,
            surfaces=tuple(
                dataclasses.replace(s, method=HOSTILE if s.method == "BCE" else s.method)
                for s in group.surfaces
            ),
        )
        for group in content.surfaces.groups
    ]
    axis = dataclasses.replace(content.surfaces.axes[0], name=HOSTILE, raw_name=HOSTILE)
    return dataclasses.replace(
        content,
        title=HOSTILE,
        subtitle=HOSTILE,
        created=HOSTILE,
        commands=(f"keepscore train {HOSTILE}",),
        findings=(HOSTILE,),
        warnings=(Notice("serious", HOSTILE),),
        surfaces=dataclasses.replace(
            content.surfaces, axes=(axis, content.surfaces.axes[1]), groups=tuple(named)
        ),
        runs=tuple(
            dataclasses.replace(r, name=HOSTILE, settings={HOSTILE: HOSTILE}) for r in content.runs
        ),
        scorecard=(ScoreRow(HOSTILE, HOSTILE, {HOSTILE: Estimate(1.0)}, unit=HOSTILE),),
        coverage=(Coverage(0.95, {HOSTILE: Estimate(0.9, 0.01)}, HOSTILE, 10),),
        intervals=(Interval(HOSTILE, HOSTILE, 1.0, group=HOSTILE, on_boundary=True),),
        posterior=(PosteriorRow(HOSTILE, HOSTILE, 1.0, 1.0, 0.0, 2.0, r_hat=1.2),),
        examples=tuple(dataclasses.replace(e, title=HOSTILE, rows=HOSTILE, columns=HOSTILE,
                                           caption=HOSTILE) for e in content.examples),
        pictures=(
            Picture(HOSTILE, f"<svg xmlns='http://www.w3.org/2000/svg'>{HOSTILE}</svg>",
                    alt=HOSTILE, caption=HOSTILE),
        ),
        provenance={HOSTILE: {HOSTILE: HOSTILE}},
    )  # fmt: skip


def _scorecard() -> tuple[ScoreRow, ...]:
    def row(metric, meaning, asa, bce, exact=None, unit=""):
        values = {"ASA": Estimate(*asa), "BCE": Estimate(*bce)}
        return ScoreRow(metric, meaning, values, Estimate(*exact) if exact else None, unit)

    return (
        row("Test cross-entropy", "How well pairs (θ, x) that belong together are told from "
            "shuffled ones.", (0.39972, 0.00071), (0.41150, 0.00074), (0.37611, 0.0007), "nats"),
        row("Error of log-ratio differences", "Root mean square error of log p(x|θ') − log p(x|θ) "
            "over moves of 0.3.", (0.412, 0.004), (0.608, 0.006), (0.0,), "nats"),
        row("Score loss", "Mean squared error of the gradient in θ.", (0.91, 0.01),
            (1.94, 0.02), (0.0,)),
        row("MLE error, λ", "Median squared distance to the exact MLE.", (0.0021, 0.00012),
            (0.0058, 0.0003), (0.0,)),
        row("Time a likelihood", "One data set at one θ, on one core.", (5.1e-7,),
            (5.0e-7,), (2.1e-3,), "s"),
    )  # fmt: skip


def _intervals(space: Space, mles, truths) -> tuple[Interval, ...]:
    # Standard errors of the logarithm, or of the parameter itself.
    widths = {"ASA": 0.105, "BCE": 0.085, "exact": 0.11}
    raw = {name: space.to_raw(theta[0]) for name, theta in mles.items()}
    truth = space.to_raw(truths[0])
    rows = []
    for k, parameter in enumerate(space.parameters):
        for method, width in widths.items():
            value = float(raw[method][k])
            log = parameter.transform == "log"
            ends = [value * np.exp(z * width) if log else value + 2 * z * width for z in (-2, 2)]
            se = value * width if log else 2 * width
            cut = method == "BCE" and k == 1
            at = float(truth[k])
            rows.append(Interval(parameter.name, method, value, se, *map(float, ends), at, cut=cut))
    return tuple(rows)


if __name__ == "__main__":
    which = sys.argv[2] if len(sys.argv) > 2 else "2"
    made = {"hostile": hostile, "curve": curve}.get(which)
    print(write(made() if made else sample(int(which)), sys.argv[1]))
