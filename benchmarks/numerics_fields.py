"""Exact fields against the dense way: cost per sample, and its growth with the side of the grid.

Ours: one draw, its log-likelihood and its score from one factorisation, by reflection blocks
(`simulate_with_log_prob_and_score`); also log-likelihood and score of given fields.
Against it, on the same fields:
    dense Cholesky     log-likelihood by one S x S factorisation in SciPy
    dense autodiff     value and gradient of the dense log-likelihood by reverse mode in JAX, jitted
    dense closed form  the same formulas as ours with one dense block (scattered locations)
All contenders run in one fresh child process, bound to one core before NumPy and JAX start (so
BLAS and XLA have one thread each), in float64, in turn within every round: a slow moment of the
machine hits all of them. Reported: median over rounds, quartiles, and ratios of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.rounds import seconds_per_sample

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
TARGET = 40.0
HEADLINE_SIDE = 25
# Beyond this side the dense gradient takes minutes and says nothing new.
LARGEST_DENSE_SIDE = 30


def run(quick: bool = False) -> dict[str, Any]:
    """Measure in a child process with one thread; plain data, ready for JSON."""
    command = [sys.executable, "-m", "benchmarks.numerics_fields", "--measure"]
    finished = subprocess.run(
        [*command, "--quick"] if quick else command,
        env={**os.environ, **ONE_THREAD},
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(finished.stdout)


def table(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [
        f"Fields, one thread, float64, {result['rounds']} rounds; milliseconds per sample",
        f"{'model':<10}{'grid':>9}  {'method':<34}{'median':>10}{'quartiles':>20}{'ratio':>9}",
    ]
    for row in result["rows"]:
        low, high = row["quartiles_ms"]
        lines.append(
            f"{row['model']:<10}{row['side']:>4} x {row['side']:<2}  {row['method']:<34}"
            f"{row['median_ms']:>10.3f}{f'{low:.3f} .. {high:.3f}':>20}{row['ratio']:>9.1f}"
        )
    lines.append("ratio: cost over that of ours (draw + log-likelihood + score) on the same grid.")
    for name, ratio in result["speedup"].items():
        verdict = "met" if ratio >= TARGET else "missed"
        lines.append(
            f"{name}, {HEADLINE_SIDE} x {HEADLINE_SIDE}: {ratio:.0f} times "
            f"faster than the dense autodiff gradient (target {TARGET:.0f}: {verdict})."
        )
    return "\n".join(lines)


def measure(quick: bool) -> dict[str, Any]:
    """All grids and both models, in this process."""
    rounds, sides = (3, [10, HEADLINE_SIDE]) if quick else (15, [10, 20, HEADLINE_SIDE, 30, 40, 50])
    rows: list[dict[str, Any]] = []
    speedup = {}
    for model_name in ("gaussian", "student-t"):
        for side in sides:
            # Growth is told by one model; the other is measured on the headline grid.
            if model_name != "gaussian" and side != HEADLINE_SIDE:
                continue
            some = rounds if side <= HEADLINE_SIDE else max(3, rounds // 3)
            times = seconds_per_sample(_contenders(model_name, side), some)
            medians = {method: statistics.median(t) for method, t in times.items()}
            ours = medians["ours: draw + log-likelihood + score"]
            rows += [
                _row(model_name, side, method, values, ours) for method, values in times.items()
            ]
            if side == HEADLINE_SIDE:
                speedup[model_name] = medians["dense autodiff: gradient"] / ours
    return {"rows": rows, "rounds": rounds, "speedup": speedup}


def _row(model: str, side: int, method: str, values: list[float], ours: float) -> dict[str, Any]:
    low, _, high = statistics.quantiles(values, n=4)
    median = statistics.median(values)
    return {
        "model": model,
        "side": side,
        "method": method,
        "median_ms": 1e3 * median,
        "quartiles_ms": [1e3 * low, 1e3 * high],
        "ratio": median / ours,
    }


def _contenders(model_name: str, side: int) -> dict[str, Callable[[], int]]:
    """Functions that process some samples and say how many."""
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve

    from keepscore.models.gaussian import GaussianField
    from keepscore.models.student_t import StudentTField

    field = GaussianField if model_name == "gaussian" else StudentTField
    model, rng = field(side), np.random.default_rng(0)
    theta = model.space.uniform(max(2, min(30, 20_000 // side**2)), rng, "train")
    x = model.simulate(theta, rng)
    axis = np.linspace(-3.0, 3.0, side)
    places = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)

    def ours_all() -> int:
        model.simulate_with_log_prob_and_score(theta, rng)
        return len(theta)

    def ours_given_x() -> int:
        model.log_prob_and_score(theta, x)
        return len(theta)

    def ours_log_likelihood() -> int:
        model.log_prob(theta, x)
        return len(theta)

    contenders: dict[str, Callable[[], int]] = {
        "ours: draw + log-likelihood + score": ours_all,
        "ours: log-likelihood + score": ours_given_x,
        "ours: log-likelihood": ours_log_likelihood,
    }
    if side > LARGEST_DENSE_SIDE:
        return contenders
    dense = field(locations=places)
    apart = np.abs(places[:, None] - places[None])

    def dense_log_likelihood() -> int:
        l_x, l_y, last = np.exp(theta[0])
        covariance = np.exp(-np.hypot(apart[..., 0] / l_x, apart[..., 1] / l_y))
        if model_name == "gaussian":
            covariance[np.diag_indices(len(places))] += last**2
        factor = cho_factor(covariance, lower=True, overwrite_a=True)
        _ = x[0].ravel() @ cho_solve(factor, x[0].ravel()), np.log(np.diag(factor[0])).sum()
        return 1

    def dense_closed_form() -> int:
        dense.log_prob_and_score(theta[:1], x[:1].reshape(1, -1))
        return 1

    gradient = _autodiff(model_name, apart)
    expected, score = model.log_prob_and_score(theta[:1], x[:1])
    value, slopes = gradient(theta[0], x[0].ravel())
    np.testing.assert_allclose(float(value), expected[0], rtol=1e-9)
    np.testing.assert_allclose(np.asarray(slopes), score[0], rtol=1e-6, atol=1e-6)

    def dense_autodiff() -> int:
        gradient(theta[0], x[0].ravel())[1].block_until_ready()
        return 1

    return {
        **contenders,
        "dense Cholesky: log-likelihood": dense_log_likelihood,
        "dense autodiff: gradient": dense_autodiff,
        "dense closed form: gradient": dense_closed_form,
    }


def _autodiff(model_name: str, apart: Any) -> Callable[..., Any]:
    """Value and gradient of the dense log-likelihood, one field at a time, compiled."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular
    from jax.scipy.special import gammaln

    size = len(apart)
    same = jnp.eye(size)

    def log_likelihood(theta: Any, x: Any) -> Any:
        u, v = apart[..., 0] / jnp.exp(theta[0]), apart[..., 1] / jnp.exp(theta[1])
        # The identity keeps the square root's slope finite at lag zero.
        rho = jnp.exp(-jnp.sqrt(u**2 + v**2 + same) * (1.0 - same))
        eps2 = jnp.exp(2.0 * theta[2]) if model_name == "gaussian" else 0.0
        factor = jnp.linalg.cholesky(rho + eps2 * same)
        q = jnp.sum(solve_triangular(factor, x, lower=True) ** 2)
        half_log_det = jnp.sum(jnp.log(jnp.diag(factor)))
        if model_name == "gaussian":
            return -0.5 * (q + size * jnp.log(2.0 * jnp.pi)) - half_log_det
        v, nu = jnp.exp(theta[2]), jnp.exp(theta[2]) + 2.0
        norm = gammaln((nu + size) / 2) - gammaln(nu / 2) - size / 2 * jnp.log(jnp.pi * v)
        return norm - half_log_det - (nu + size) / 2 * jnp.log1p(q / v)

    return jax.jit(jax.value_and_grad(log_likelihood))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--measure", action="store_true", help="measure here and print JSON")
    arguments = parser.parse_args()
    if not arguments.measure:
        print(table(run(arguments.quick)))
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(json.dumps(measure(arguments.quick)))


if __name__ == "__main__":
    main()
