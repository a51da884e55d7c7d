"""Our own training steps: what ASA costs over BCE, how near the machine's peak, and flat in N.

ratio     the compiled loop of `ks.train` on synthetic data of the right shapes, batch 64. Rounds of
          BCE and ASA take turns; the median of the rounds is reported, and the median of the ratios
          of neighbouring rounds, which machine noise touches least.
peak      floating-point operations of one step, counted from its matrix products, per second, as a
          share of what a 1024 x 1024 float32 matrix product reaches on the same machine.
flat      ms a step for growing N: an epoch is longer, a step is not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from keepscore import networks
from keepscore.losses import ASA, BCE
from keepscore.training.compiled_epoch import BatchRows, Tables, runner
from keepscore.training.step import Batch, adam, objective
from keepscore.training.step import start as first_state

BATCH = 64
SHAPES: dict[str, tuple[tuple[int, ...], int, str]] = {
    "sis": ((13, 8), 2, "markov"),
    "field": ((25, 25), 3, "stationary-field"),
}
FAMILY = {"sis": "sequence", "field": "image"}
# Steps in a round: multiples of the 64 batches between updates of alpha, some tenths of a second.
STEPS = {"3k": 512, "10k": 384, "30k": 256, "100k": 64, "300k": 64, "1m": 64}
# Pairs of rounds, one BCE and one ASA: fewer where a round is long.
ROUNDS = {"3k": 11, "10k": 11, "30k": 11, "100k": 7, "300k": 5, "1m": 3}
SIS_SIZES, FIELD_SIZES = ("3k", "10k", "30k", "100k"), ("30k", "100k", "300k", "1m")
# Millions of floating-point operations in a step of the field networks with scores, as their first
# program did it: each product once. What is computed again to spare memory is no work done.
FIELD_MFLOP = {"30k": 268, "100k": 861, "300k": 2051, "1m": 7429}
ALL = tuple(("sis", s) for s in SIS_SIZES) + tuple(("field", s) for s in FIELD_SIZES)

Round = Callable[[], float]


def synthetic(family: str, n: int) -> tuple[Any, Any, Any]:
    """theta, x, score: the shapes and dtypes of a family, without a process behind them."""
    rng = np.random.default_rng(20260)
    x_shape, d, _ = SHAPES[family]
    theta = rng.uniform(-1.1, 1.1, (n, d)).astype(np.float32)
    if family == "sis":
        x = rng.integers(0, 2, (n, *x_shape), dtype=np.uint8)
    else:
        x = rng.standard_normal((n, *x_shape), dtype=np.float32)
    return theta, x, rng.standard_normal((n, d)).astype(np.float32)


def round_of(family: str, size: str, loss: BCE | ASA, steps: int, n: int | None = None) -> Round:
    """A function that makes so many steps and gives ms a step; compiled when this returns."""
    theta, x, score = synthetic(family, n or steps * BATCH)
    x_shape, d, structure = SHAPES[family]
    network = networks.resolve(size, x_shape, d, structure, jax.random.key(0))
    weights, rest = networks.split(network)
    optimizer = adam(1e-3, 1e-6)
    run = runner(rest, loss, optimizer, members=1)
    tables = Tables(
        jnp.asarray(theta), jnp.asarray(x), jnp.asarray(score) if loss.uses_scores else None
    )
    rng = np.random.default_rng(0)
    state, done = first_state(weights, optimizer, loss, d), 0

    def play() -> float:
        nonlocal state, done
        index = jnp.asarray(rng.integers(len(x), size=(1, steps, BATCH), dtype=np.int32))
        shape = (1, steps, loss.negatives, BATCH)
        other = jnp.asarray(rng.integers(len(x), size=shape, dtype=np.int32))
        begin = time.perf_counter()
        plan = BatchRows(index, index, other, None)
        state, _, _ = run(state, tables, plan, jnp.int32(done), jnp.int32(steps))
        jax.block_until_ready(state)
        done += steps
        return 1e3 * (time.perf_counter() - begin) / steps

    play()
    return play


def ours_step_ms(
    family: str, size: str, loss: str = "ASA", steps: int = 256, rounds: int = 5
) -> float:
    """Median ms a step of one configuration, for other benchmarks."""
    play = round_of(family, size, ASA.paper() if loss == "ASA" else BCE(), steps)
    return statistics.median(play() for _ in range(rounds))


def matmul_peak(rounds: int = 20) -> float:
    """GFLOP/s of a 1024 x 1024 float32 matrix product."""
    n = 1024
    a = jnp.asarray(np.random.default_rng(0).standard_normal((n, n)), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(a))
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        jax.block_until_ready(product(a))
        times.append(time.perf_counter() - begin)
    return 2 * n**3 / min(times) / 1e9


def step_flops(family: str, size: str, loss: BCE | ASA) -> int:
    """Multiplications and additions in the matrix products of one gradient, from its program; of
    the field networks, what is written down above."""
    if family == "field" and size in FIELD_MFLOP:
        return FIELD_MFLOP[size] * 10**6
    x_shape, d, structure = SHAPES[family]
    network = networks.resolve(size, x_shape, d, structure, jax.random.key(0))
    weights, rest = networks.split(network)
    losses = objective(rest, loss)
    b = BATCH
    batch = Batch(
        jnp.zeros((b, *x_shape)), jnp.zeros((b, d)), jnp.zeros((b, d)), jnp.zeros((1, b, d))
    )

    def total(w: Any) -> Any:
        bce, score = losses(w, batch)
        return bce + score.sum()

    return _matrix_products(jax.make_jaxpr(jax.grad(total))(weights).jaxpr)


def _matrix_products(jaxpr: Any) -> int:
    count = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            inner = np.prod([equation.invars[0].aval.shape[i] for i in contracted], dtype=np.int64)
            count += 2 * int(inner) * int(np.prod(equation.outvars[0].aval.shape, dtype=np.int64))
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner_jaxpr = getattr(value, "jaxpr", None)
            if inner_jaxpr is not None:
                count += times * _matrix_products(inner_jaxpr)
    return count


def compare(family: str, size: str, steps: int, rounds: int) -> dict[str, Any]:
    """BCE and ASA in turns."""
    bce, asa = (round_of(family, size, loss, steps) for loss in (BCE(), ASA.paper()))
    pairs = [(bce(), asa()) for _ in range(rounds)]
    return {
        "family": family,
        "size": size,
        "bce_ms": statistics.median(b for b, _ in pairs),
        "asa_ms": statistics.median(a for _, a in pairs),
        "ratio": statistics.median(a / b for b, a in pairs),
        "ratio_range": [min(a / b for b, a in pairs), max(a / b for b, a in pairs)],
        "asa_mflop": step_flops(family, size, ASA.paper()) / 1e6,
    }


def run(quick: bool = False) -> dict[str, Any]:
    """All sizes of both families, and growing N; plain data."""
    cases = (("sis", "3k"), ("field", "30k")) if quick else ALL
    peak = matmul_peak()
    sizes = []
    for family, size in cases:
        case = compare(family, size, 64 if quick else STEPS[size], 2 if quick else ROUNDS[size])
        case["share_of_peak"] = case["asa_mflop"] / case["asa_ms"] / peak
        sizes.append(case)
    counts = (2_000, 8_000) if quick else (30_000, 100_000, 300_000, 1_000_000)
    plays = {n: round_of("sis", "30k", ASA.paper(), 64 if quick else 256, n) for n in counts}
    times: dict[int, list[float]] = {n: [] for n in counts}
    for _ in range(2 if quick else 7):
        for n, play in plays.items():
            times[n].append(play())
    return {
        "quick": quick,
        "batch": BATCH,
        "matmul_gflops": peak,
        "sizes": sizes,
        "flat_in_n": {str(n): statistics.median(t) for n, t in times.items()},
    }


def table(result: dict[str, Any]) -> str:
    """The result as Markdown tables."""
    lines = [
        "| network | BCE ms/step | ASA ms/step | ASA / BCE | share of matmul peak (ASA) |",
        "|---|---:|---:|---:|---:|",
    ]
    for case in result["sizes"]:
        low, high = case["ratio_range"]
        lines.append(
            f"| {case['family']} {case['size']} | {case['bce_ms']:.3f} | {case['asa_ms']:.3f} | "
            f"{case['ratio']:.3f} ({low:.2f} to {high:.2f}) | {case['share_of_peak']:.0%} |"
        )
    lines += ["", "| N | ms/step (SIS 30k, ASA) |", "|---:|---:|"]
    lines += [f"| {int(n):,} | {ms:.3f} |" for n, ms in result["flat_in_n"].items()]
    lines += ["", f"Matrix-multiply peak: {result['matmul_gflops']:.0f} GFLOP/s."]
    return "\n".join(lines)
