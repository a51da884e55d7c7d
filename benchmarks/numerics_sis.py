"""The exact SIS likelihood against matrix exponentials: cost per sample, and its growth with K.

Ours: `log_prob`, and `log_prob_and_score`, by uniformisation on the hypercube. Against it, on the
same samples, the generator built beforehand (its cost is left out, to the others' benefit):
    dense expm         `scipy.linalg.expm` of the 2^K x 2^K generator, one for the 12 equal steps
    dense expm_frechet the same with its derivative, one call for each of the two parameters
    sparse action      `scipy.sparse.linalg.expm_multiply` on the 12 states a path leaves from
All run in one process with one BLAS thread, in turn within every round, so a slow moment of the
machine hits all of them. Reported: median over rounds, quartiles, and ratios of medians.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from threadpoolctl import threadpool_limits

from benchmarks.rounds import seconds_per_sample
from keepscore.models.sis import SIS

TARGET = 100.0
HEADLINE_NODES = 8
VALUE, BOTH = "ours: log-likelihood", "ours: log-likelihood + score"
DENSE, FRECHET = "dense expm: log-likelihood", "dense expm_frechet: score"
ACTION = "sparse action: log-likelihood"


def run(quick: bool = False) -> dict[str, Any]:
    """Measure with one thread; plain data, ready for JSON."""
    rounds, sizes = (
        (3, [4, HEADLINE_NODES]) if quick else (15, [4, 5, 6, 7, HEADLINE_NODES, 9, 10, 11, 12])
    )
    rows: list[dict[str, Any]] = []
    speedup: dict[str, float] = {}
    with threadpool_limits(1):
        for nodes in sizes:
            times = seconds_per_sample(_contenders(nodes), rounds if nodes <= HEADLINE_NODES else 5)
            middle = {method: statistics.median(t) for method, t in times.items()}
            rows += [_row(nodes, method, values, middle) for method, values in times.items()]
            if nodes == HEADLINE_NODES:
                speedup = {
                    "log-likelihood": middle[DENSE] / middle[VALUE],
                    "score": middle[FRECHET] / middle[BOTH],
                }
        paths = _simulation_rate(500 if quick else 50_000, rounds)
    return {
        "rounds": rounds,
        "rows": rows,
        "speedup": speedup,
        "paths_per_second": paths,
    }


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [
        f"SIS, one thread, float64, {result['rounds']} rounds; milliseconds per sample",
        f"{'K':>3}  {'method':<32}{'median':>11}{'quartiles':>24}{'ratio':>10}",
    ]
    for row in result["rows"]:
        low, high = row["quartiles_ms"]
        lines.append(
            f"{row['nodes']:>3}  {row['method']:<32}{row['median_ms']:>11.4f}"
            f"{f'{low:.4f} .. {high:.4f}':>24}{row['ratio']:>10.1f}"
        )
    lines.append("ratio: cost over ours for the same thing (likelihood, or with the score).")
    for what, ratio in result["speedup"].items():
        verdict = "met" if ratio >= TARGET else "missed"
        lines.append(
            f"{what}, K = {HEADLINE_NODES}: {ratio:.0f} times faster than dense "
            f"(target {TARGET:.0f}: {verdict})."
        )
    for nodes, rate in result["paths_per_second"].items():
        low, high = rate["quartiles"]
        lines.append(
            f"simulation, K = {nodes}: {rate['median']:,.0f} paths a second "
            f"({low:,.0f} .. {high:,.0f})."
        )
    return "\n".join(lines)


def _row(nodes: int, method: str, values: list[float], middle: dict[str, float]) -> dict[str, Any]:
    low, _, high = statistics.quantiles(values, n=4)
    ours = middle[BOTH] if "score" in method else middle[VALUE]
    return {
        "nodes": nodes,
        "method": method,
        "median_ms": 1e3 * middle[method],
        "quartiles_ms": [1e3 * low, 1e3 * high],
        "ratio": middle[method] / ours,
    }


def _model(nodes: int) -> SIS:
    """The paper's graph; with fewer nodes its first ones, with more a second pair of squares."""
    eight = SIS().positions
    assert eight is not None
    return SIS(positions=np.concatenate([eight, eight + 4.0])[:nodes])


def _contenders(nodes: int) -> dict[str, Callable[[], int]]:
    """Functions that process some samples and say how many."""
    model, rng = _model(nodes), np.random.default_rng(0)
    theta = model.space.uniform(max(4, min(300, 2**22 // 4**nodes)), rng, "train")
    x = model.simulate(theta, rng)

    def value() -> int:
        model.log_prob(theta, x)
        return len(theta)

    def both() -> int:
        model.log_prob_and_score(theta, x)
        return len(theta)

    contenders: dict[str, Callable[[], int]] = {VALUE: value, BOTH: both}
    if nodes > HEADLINE_NODES:
        return contenders
    states = x.astype(np.int64) @ (1 << np.arange(nodes))
    parts = [_generators(model, t) for t in theta[:16]]
    turns = [itertools.cycle(range(len(parts))) for _ in range(3)]

    def dense_value() -> int:
        i = next(turns[0])
        _log_likelihood(scipy.linalg.expm(parts[i][0]), states[i])
        return 1

    def dense_score() -> int:
        i = next(turns[1])
        generator, by_lambda, by_mu = parts[i]
        p, first = scipy.linalg.expm_frechet(generator, by_lambda)
        second = scipy.linalg.expm_frechet(generator, by_mu, compute_expm=False)
        _ = [(d / p)[states[i][:-1], states[i][1:]].sum() for d in (first, second)]
        return 1

    transposed = [scipy.sparse.csr_array(part[0].T) for part in parts]

    def action() -> int:
        i = next(turns[2])
        start = np.zeros((2**nodes, len(states[i]) - 1))
        start[states[i][:-1], np.arange(start.shape[1])] = 1.0
        end = scipy.sparse.linalg.expm_multiply(transposed[i], start)
        np.log(end[states[i][1:], np.arange(start.shape[1])]).sum()
        return 1

    expected = _log_likelihood(scipy.linalg.expm(parts[0][0]), states[0]) - nodes * np.log(2.0)
    np.testing.assert_allclose(model.log_prob(theta[:1], x[:1])[0], expected, rtol=1e-10)
    return {**contenders, DENSE: dense_value, FRECHET: dense_score, ACTION: action}


def _generators(model: SIS, theta: Any) -> tuple[Any, Any, Any]:
    """The dense generator at theta and its derivatives in log lambda and log mu."""
    nodes, (lam, mu) = model.node_count, np.exp(theta)
    state = np.arange(2**nodes)
    infected = ((state[:, None] >> np.arange(nodes)) & 1).astype(float)
    caught = lam * (1 - infected) * (infected @ model.weights.T)
    outside = model.self_infection * (1 - infected)
    matrices = []
    for rate in (outside + caught + mu * infected, caught, mu * infected):
        q = np.zeros((2**nodes, 2**nodes))
        for k in range(nodes):
            q[state, state ^ (1 << k)] = rate[:, k]
        matrices.append(q - np.diag(q.sum(axis=1)))
    return matrices[0], matrices[1], matrices[2]


def _log_likelihood(p: Any, states: Any) -> float:
    return float(np.log(p[states[:-1], states[1:]]).sum())


def _simulation_rate(n: int, rounds: int) -> dict[str, Any]:
    """Paths a second for the paper's graph and for 64 nodes, over the base box."""
    rates = {}
    places = np.random.default_rng(0).random((64, 2)) * 6
    for model in (SIS(), SIS(positions=places, score="joint")):
        count = n if model.node_count <= HEADLINE_NODES else max(1, n // 20)
        rng = np.random.default_rng(1)
        theta = model.space.uniform(count, rng)

        def draw(model: SIS = model, theta: Any = theta, rng: Any = rng) -> int:
            model.simulate(theta, rng)
            return len(theta)

        speed = [1 / t for t in seconds_per_sample({"draw": draw}, rounds)["draw"]]
        low, _, high = statistics.quantiles(speed, n=4)
        rates[str(model.node_count)] = {
            "median": statistics.median(speed),
            "quartiles": [low, high],
        }
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    print(table(run(parser.parse_args().quick)))


if __name__ == "__main__":
    main()
