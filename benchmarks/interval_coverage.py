"""Do 95 % profile intervals cover 95 %? A thousand data sets of each model, exact likelihood.

docs          x ~ N(mean, sd^2), the example of docs/adding_a_model.md, 20 numbers per data set,
              with the bounds of its space as Python ints, floats and float32
regression    y = X b + sd e with three coefficients, d = 4, 20 rows per data set
SIS           the paper's graph, 20 epidemics per data set, theta uniform over the inner half of the
              box
field         a Gaussian field on the paper's 25 x 25 grid, d = 3, 4 fields per data set, one theta

Profile intervals are {t : Lambda_k(t) <= c}, c the 95 % quantile of chi-square with one degree of
freedom. That is Wilks' theorem, true for many observations. For Gaussian data with n numbers and k
coefficients it is known how far off it is for few: with t ~ t_{n-k} and w ~ chi^2_{n-k},

    a coefficient    Lambda = n log(1 + t^2 / (n - k)) <= c   <=>   |t| <= sqrt((n-k)(e^{c/n} - 1))
    sd               Lambda = w - n - n log(w / n)     <= c   <=>   w_1 <= w <= w_2

so the intervals cover less than 95 %, by an amount that is computed here and compared with what is
counted. For SIS and fields the comparison is with 95 % itself. Counts are off by a binomial
standard error, 0.7 % for a thousand data sets; more than three of them is a fault.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

import keepscore as ks

LEVEL = 0.95
DATA_SETS = 1000
AT_ONCE = 250
KINDS: dict[str, Callable[[float], Any]] = {"int": int, "float": float, "float32": np.float32}
DESIGN = np.column_stack([np.ones(20), np.linspace(-1, 1, 20), np.linspace(-1, 1, 20) ** 2])


@dataclass(frozen=True)
class Study:
    """A model, how many observations make a data set, where the truth lies (rng, m) -> (m, d), and
    the coverage that theory gives each parameter (None: the nominal one, for many observations)."""

    model: Any
    size: int
    truth: Callable[[np.random.Generator, int], NDArray[np.float64]]
    theory: tuple[float, ...] | None = None


def coefficient_coverage(n: int, k: int, level: float = LEVEL) -> float:
    """Of a profile interval of one of k coefficients, from n numbers."""
    c = stats.chi2.ppf(level, 1)
    largest = math.sqrt((n - k) * math.expm1(c / n))
    return float(1 - 2 * stats.t.sf(largest, n - k))


def spread_coverage(n: int, k: int, level: float = LEVEL) -> float:
    """Of a profile interval of the standard deviation, k coefficients profiled out."""
    c = stats.chi2.ppf(level, 1)

    def excess(w: float) -> float:
        return w - n - n * math.log(w / n) - c

    first, last = optimize.brentq(excess, 1e-9, n), optimize.brentq(excess, n, 20 * n)
    return float(stats.chi2.cdf(last, n - k) - stats.chi2.cdf(first, n - k))


def docs_example(kind: Callable[[float], Any], in_jax: bool = True) -> Study:
    """The page's model, its bounds held as `kind`; four rows of five numbers per data set. Without
    JAX the same in NumPy with its score written out: nothing to compile, for tests."""
    import jax.numpy as jnp

    exp = jnp.exp if in_jax else np.exp
    low, high = kind(-1), kind(1)
    space = ks.Space(
        [ks.Parameter("mean", low, high, "identity"), ks.Parameter("sd", low, high, "log")]
    )

    def simulate(theta: Any, rng: np.random.Generator) -> Any:
        return theta[:, :1] + np.exp(theta[:, 1:]) * rng.standard_normal((len(theta), 5))

    def log_prob(theta: Any, x: Any) -> Any:
        z = (x - theta[:, :1]) / exp(theta[:, 1:])
        return -0.5 * (z**2).sum(1) - 5 * theta[:, 1]

    def score(theta: Any, x: Any) -> Any:
        z = (x - theta[:, :1]) / np.exp(theta[:, 1:])
        return np.stack([z.sum(1) / np.exp(theta[:, 1]), (z**2).sum(1) - 5], axis=1)

    model = ks.models.from_functions(
        space, (5,), simulate=simulate, log_prob=log_prob, score=None if in_jax else score
    )
    theory = coefficient_coverage(20, 1), spread_coverage(20, 1)
    return Study(model, 4, _at(0.1, -0.1), theory)


def regression() -> Study:
    """Three coefficients and the noise, one data set of 20 rows."""
    n, k = DESIGN.shape
    names = [f"b{j}" for j in range(k)]
    space = ks.Space(
        [*(ks.Parameter(b, -4, 4, "identity") for b in names), ks.Parameter("sd", -2, 2, "log")]
    )

    def residual(theta: Any, y: Any) -> Any:
        return (y - theta[:, :k] @ DESIGN.T) / np.exp(theta[:, k:])

    def simulate(theta: Any, rng: np.random.Generator) -> Any:
        noise = np.exp(theta[:, k:]) * rng.standard_normal((len(theta), n))
        return theta[:, :k] @ DESIGN.T + noise

    def log_prob(theta: Any, y: Any) -> Any:
        return -0.5 * (residual(theta, y) ** 2).sum(1) - n * theta[:, k]

    def score(theta: Any, y: Any) -> Any:
        z = residual(theta, y)
        return np.column_stack([z @ DESIGN / np.exp(theta[:, k:]), (z**2).sum(1) - n])

    model = ks.models.from_functions(
        space, (n,), simulate=simulate, log_prob=log_prob, score=score, name="regression"
    )
    theory = (*[coefficient_coverage(n, k)] * k, spread_coverage(n, k))
    return Study(model, 1, _at(0.5, -0.5, 0.25, -0.25), theory)


def sis() -> Study:
    model = ks.models.SIS()
    low, high = model.space.box()

    def truth(rng: np.random.Generator, m: int) -> NDArray[np.float64]:
        return (low + high) / 2 + (high - low) / 4 * rng.uniform(-1, 1, (m, len(low)))

    return Study(model, 20, truth)


def field() -> Study:
    return Study(ks.models.GaussianField(), 4, _at(-0.2, 0.3, -2.0))


STUDIES: dict[str, Callable[[], Study]] = {
    **{f"docs, {name} bounds": lambda k=kind: docs_example(k) for name, kind in KINDS.items()},
    "regression, d = 4": regression,
    "SIS": sis,
    "Gaussian field, 25 x 25": field,
}


def covered(study: Study, data_sets: int, seed: int = 0) -> tuple[NDArray[np.bool_], int]:
    """Does each interval hold the truth? (data sets, d); and how many ends lie on the box."""
    rng = np.random.default_rng(seed)
    hits, cut = [], 0
    for start in range(0, data_sets, AT_ONCE):
        m = min(AT_ONCE, data_sets - start)
        theta = study.truth(rng, m)
        x = study.model.simulate(np.repeat(theta, study.size, axis=0), rng)
        like = study.model.given(x.reshape(m, study.size, *study.model.x_shape))
        intervals = ks.confidence_set(like, LEVEL).intervals
        low, high = intervals.working[..., 0], intervals.working[..., 1]
        hits.append((low <= theta) & (theta <= high))
        cut += int(intervals.at_boundary.sum())
    return np.concatenate(hits), cut


def run(quick: bool = False) -> dict[str, Any]:
    """Coverage per model and parameter beside theory; plain data, ready for JSON."""
    count, results = (40 if quick else DATA_SETS), {}
    for name, build in STUDIES.items():
        began = time.perf_counter()
        study = build()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ks.KeepscoreWarning)  # cut-off sets are counted
            hits, cut = covered(study, count)
        rows = []
        for k, parameter in enumerate(study.model.space.names):
            expected = LEVEL if study.theory is None else study.theory[k]
            found, error = float(hits[:, k].mean()), math.sqrt(expected * (1 - expected) / count)
            row = {"parameter": parameter, "covered": int(hits[:, k].sum()), "coverage": found}
            row |= {"expected": expected, "standard_error": error, "z": (found - expected) / error}
            rows.append(row)
        results[name] = {
            "data_sets": count,
            "observations": study.size,
            "expected_by": "nominal" if study.theory is None else "theory",
            "ends_on_the_box": cut,
            "seconds": round(time.perf_counter() - began, 1),
            "parameters": rows,
        }
    return results


def table(result: dict[str, Any]) -> str:
    """The same for a reader."""
    lines = [
        "| model | parameter | data sets | coverage | expected | standard errors off |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, study in result.items():
        for row in study["parameters"]:
            mark = "" if study["expected_by"] == "theory" else " (nominal)"
            lines.append(
                f"| {name} | {row['parameter']} | {study['data_sets']:,} | {row['coverage']:.3f} | "
                f"{row['expected']:.3f}{mark} | {row['z']:+.1f} |"
            )
    return "\n".join(lines)


def _at(*values: float) -> Callable[[np.random.Generator, int], NDArray[np.float64]]:
    return lambda rng, m: np.tile(np.array(values, dtype=np.float64), (m, 1))
