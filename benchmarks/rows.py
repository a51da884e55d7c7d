"""Independent rows: how large a density of one row should be, by how many rows there are.

    python -m benchmarks rows [--quick]

Seven models, 1,000 and 5,000 simulations of 50 to 200 rows, with scores and without, by each size
of `mixture-set`: the squared error of the likelihood-ratio statistic at the true theta, mean over
100 data sets, beside the exact likelihood. One small file per model in results/rows; a finished one
is not run again. Rule and sizes were chosen on the first three and a sample of 200 draws; the next
three were run afterwards.

    waits      100 gamma waiting times
    reactions  100 reaction times, normal plus exponential
    line       50 points along a line, errors of Student's t with four degrees of freedom
    quantiles  200 draws of a g-and-k distribution: a quantile function and no likelihood in closed
               form (here by inverting it); without scores
    skewed     100 draws of a t distribution in two pieces
    normal     100 normal numbers
    copula     60 pairs that depend on each other in one tail (Clayton), logistic margins
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, log_ndtr

import keepscore as ks
from benchmarks import machine
from benchmarks.maps import Rng, Theta, X, positive
from keepscore.errors import KeepscoreWarning
from keepscore.files import make_folder, read_json, write_json

RESULTS = machine.ROOT / "benchmarks" / "results" / "rows"
SIZES = ("10k", "30k", "100k")
SIMULATIONS, FRESH, FRESH_SEED = (1_000, 5_000), 100, 3
INNER = 0.8  # of the box: where the fresh theta are


def plain(name: str, low: float, high: float) -> ks.Parameter:
    return ks.Parameter(name, low, high, "identity")


def of_rows(name: str, space: Any, shape: tuple[int, int], simulate: Any, log_prob: Any) -> Any:
    return ks.models.from_functions(
        space, shape, simulate=simulate, log_prob=log_prob, declares=["iid"], name=name
    )


def waits() -> Any:
    space = ks.Space([positive("shape", 0.4, 4.5), positive("rate", 0.4, 2.7)])

    def simulate(theta: Theta, rng: Rng) -> X:
        shape, rate = np.exp(theta[:, :1]), np.exp(theta[:, 1:])
        return np.maximum(rng.gamma(shape, 1 / rate, (len(theta), 100)), 1e-12)[..., None]

    def log_prob(theta: Any, x: Any) -> Any:
        a, y = jnp.exp(theta[:, :1]), x[..., 0]
        each = theta[:, 1:] * a - gammaln(a) + (a - 1) * jnp.log(y) - jnp.exp(theta[:, 1:]) * y
        return each.sum(axis=1)

    return of_rows("waits", space, (100, 1), simulate, log_prob)


def reactions() -> Any:
    space = ks.Space(
        [plain("mean", 0.2, 0.8), positive("sd", 0.02, 0.22), positive("tail", 0.05, 0.6)]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        mean, sd, tail = theta[:, :1], np.exp(theta[:, 1:2]), np.exp(theta[:, 2:])
        normal = mean + sd * rng.standard_normal((len(theta), 100))
        return (normal + tail * rng.exponential(size=normal.shape))[..., None]

    def log_prob(theta: Any, x: Any) -> Any:
        sd, tail = jnp.exp(theta[:, 1:2]), jnp.exp(theta[:, 2:])
        y = x[..., 0] - theta[:, :1]
        normal = log_ndtr(y / sd - sd / tail)
        return (sd**2 / (2 * tail**2) - y / tail + normal - theta[:, 2:]).sum(axis=1)

    return of_rows("reactions", space, (100, 1), simulate, log_prob)


def line() -> Any:
    space = ks.Space([plain("start", -1, 1), plain("slope", -1, 1), positive("scale", 0.14, 1)])

    def simulate(theta: Theta, rng: Rng) -> X:
        at = rng.standard_normal((len(theta), 50))
        error = np.exp(theta[:, 2:]) * rng.standard_t(4, at.shape)
        return np.stack([at, theta[:, :1] + theta[:, 1:2] * at + error], axis=-1)

    def log_prob(theta: Any, x: Any) -> Any:
        at, y = x[..., 0], x[..., 1]
        z = (y - theta[:, :1] - theta[:, 1:2] * at) / jnp.exp(theta[:, 2:])
        return (-2.5 * jnp.log1p(z**2 / 4) - theta[:, 2:] - at**2 / 2).sum(axis=1)

    return of_rows("line", space, (50, 2), simulate, log_prob)


def g_and_k(z: Any, theta: Any) -> Any:
    a, b, g, k = theta[:, :1], np.exp(theta[:, 1:2]), theta[:, 2:3], theta[:, 3:]
    return a + b * (1 + 0.8 * np.tanh(g * z / 2)) * (1 + z**2) ** k * z


def quantiles() -> Any:
    space = ks.Space(
        [plain("a", -2, 2), positive("b", 0.37, 2.7), plain("g", 0, 3), plain("k", 0, 0.6)]
    )

    def simulate(theta: Theta, rng: Rng) -> X:
        return g_and_k(rng.standard_normal((len(theta), 200)), theta)[..., None]

    def log_prob(theta: Theta, x: X) -> Any:
        y, step = x[..., 0], 1e-5
        low, high = np.full(y.shape, -40.0), np.full(y.shape, 40.0)
        for _ in range(60):
            z = (low + high) / 2
            below = g_and_k(z, theta) < y
            low, high = np.where(below, z, low), np.where(below, high, z)
        slope = (g_and_k(z + step, theta) - g_and_k(z - step, theta)) / (2 * step)
        return (-(z**2) / 2 - np.log(slope)).sum(axis=1)

    return of_rows("quantiles", space, (200, 1), simulate, log_prob)


def skewed() -> Any:
    space = ks.Space(
        [
            plain("place", -1, 1), positive("scale", 0.37, 2.7), plain("log skewness", -0.8, 0.8),
            positive("degrees", 2, 20),
        ]
    )  # fmt: skip

    def simulate(theta: Theta, rng: Rng) -> X:
        size = (len(theta), 100)
        place, scale, skewness, degrees = (theta[:, k : k + 1] for k in range(4))
        scale, skewness, degrees = np.exp(scale), np.exp(skewness), np.exp(degrees)
        t = np.abs(rng.standard_t(degrees, size))
        up = rng.random(size) < skewness**2 / (1 + skewness**2)
        return (place + scale * np.where(up, t * skewness, -t / skewness))[..., None]

    def log_prob(theta: Any, x: Any) -> Any:
        skewness, degrees = jnp.exp(theta[:, 2:3]), jnp.exp(theta[:, 3:])
        y = (x[..., 0] - theta[:, :1]) / jnp.exp(theta[:, 1:2])
        t = jnp.where(y > 0, y / skewness, y * skewness)
        constant = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - jnp.log(degrees) / 2
        constant -= jnp.log(skewness + 1 / skewness) + theta[:, 1:2]
        return (constant - (degrees + 1) / 2 * jnp.log1p(t**2 / degrees)).sum(axis=1)

    return of_rows("skewed", space, (100, 1), simulate, log_prob)


def normal() -> Any:
    space = ks.Space([plain("mean", -1, 1), positive("sd", 0.37, 2.7)])

    def simulate(theta: Theta, rng: Rng) -> X:
        noise = rng.standard_normal((len(theta), 100))
        return (theta[:, :1] + np.exp(theta[:, 1:]) * noise)[..., None]

    def log_prob(theta: Any, x: Any) -> Any:
        z = (x[..., 0] - theta[:, :1]) / jnp.exp(theta[:, 1:])
        return (-(z**2) / 2 - theta[:, 1:]).sum(axis=1)

    return of_rows("normal", space, (100, 1), simulate, log_prob)


def copula() -> Any:
    space = ks.Space(
        [positive("dependence", 0.37, 4.5), plain("mean", -1, 1), positive("scale", 0.5, 2)]
    )

    def logit(p: X) -> X:
        p = np.clip(p, 1e-12, 1 - 1e-12)
        return np.log(p) - np.log1p(-p)

    def simulate(theta: Theta, rng: Rng) -> X:
        a, size = np.exp(theta[:, :1]), (len(theta), 60)
        u, w = rng.random(size), rng.random(size)
        v = ((w ** (-a / (1 + a)) - 1) * u**-a + 1) ** (-1 / a)
        return np.stack([theta[:, 1:2] + np.exp(theta[:, 2:]) * logit(u), logit(v)], axis=-1)

    def log_prob(theta: Any, x: Any) -> Any:
        a = jnp.exp(theta[:, :1])
        y, z = (x[..., 0] - theta[:, 1:2]) / jnp.exp(theta[:, 2:]), x[..., 1]
        log_u, log_v = jax.nn.log_sigmoid(y), jax.nn.log_sigmoid(z)
        both = jnp.log(jnp.exp(-a * log_u) + jnp.exp(-a * log_v) - 1)
        density = jnp.log1p(a) - (1 + a) * (log_u + log_v) - (2 + 1 / a) * both
        margins = log_u + jax.nn.log_sigmoid(-y) + log_v + jax.nn.log_sigmoid(-z) - theta[:, 2:]
        return (density + margins).sum(axis=1)

    return of_rows("copula", space, (60, 2), simulate, log_prob)


MODELS: dict[str, Callable[[], Any]] = {
    "waits": waits, "reactions": reactions, "line": line, "quantiles": quantiles,
    "skewed": skewed, "normal": normal, "copula": copula,
}  # fmt: skip
WITHOUT_SCORES = ("quantiles",)


def statistics(likelihood: Any, theta: Theta) -> Theta:
    """2 (max l - l(theta_g)) of each data set g."""
    own = likelihood.pairs(theta, np.arange(len(theta)))
    return np.asarray(2 * (ks.mle(likelihood).log_likelihood - own))


def one(model: Any, simulations: tuple[int, ...], fresh: int, losses: list[bool]) -> dict[str, Any]:
    """The squared error of each size, by number of simulations and whether with scores; and what
    "auto" takes."""
    rng = np.random.default_rng(FRESH_SEED)
    low, high = model.space.box()
    share = (1 - INNER) / 2 + INNER * rng.random((fresh, model.space.d))
    theta = low + (high - low) * share
    xs = model.simulate(theta, rng)[:, None]
    exact = statistics(model.given(xs), theta)
    found: dict[str, Any] = {"rows": int(model.x_shape[0]), "cells": {}}
    for n in simulations:
        data = {scores: ks.simulate(model, n, seed=1, jobs=1, scores=scores) for scores in losses}
        for scores in losses:
            cell: dict[str, Any] = {}
            for size in SIZES:
                name = f"mixture-set-{size}"
                surrogate = ks.train(data[scores], network=name, progress=False)
                error = statistics(surrogate.given(xs), theta) - exact
                cell[size] = float((error**2).mean())
            rows = n * found["rows"] * (2 if scores else 1)
            cell["auto"] = ks.networks.size_by_rows(rows)
            found["cells"][f"{n}, {'with' if scores else 'without'} scores"] = cell
    return found


def run(quick: bool = False) -> dict[str, Any]:
    """All models that are not there yet; one of them, small, if quick."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)  # poor surrogates are the result
        if quick:
            return {"normal": one(normal(), (100,), 5, [False])}
        for name, make in MODELS.items():
            file = make_folder(RESULTS) / f"{name}.json"
            if not file.exists():
                losses = [False] if name in WITHOUT_SCORES else [True, False]
                write_json(file, one(make(), SIMULATIONS, FRESH, losses))
                print(name, flush=True)
    return {name: read_json(RESULTS / f"{name}.json") for name in MODELS}


def table(result: dict[str, Any]) -> str:
    """One row per model, number of simulations and kind; what "auto" takes is in bold."""
    lines = [
        "| model, rows | simulations | rows to learn from | 10k | 30k | 100k |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for name, found in result.items():
        for what, cell in found["cells"].items():
            n, kind = what.split(", ")
            rows = int(n) * found["rows"] * (2 if kind == "with scores" else 1)
            errors = [
                f"**{cell[s]:.3g}**" if s == cell["auto"] else f"{cell[s]:.3g}" for s in SIZES
            ]
            lines.append(
                f"| {name}, {found['rows']} | {int(n):,} {kind} | {rows:,} | {' | '.join(errors)} |"
            )
    return "\n".join(lines)
