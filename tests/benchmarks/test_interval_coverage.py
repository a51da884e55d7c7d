"""Profile intervals cover what theory says, also with integer bounds: 200 data sets of two models.

For each parameter the number of data sets covered is compared with its binomial law at the coverage
that theory gives (benchmarks/interval_coverage.py, where a thousand data sets of each model and
SIS and a field are run). Two-sided at 2e-4 for each of six counts: false alarms at most 1.2e-3
(the seed is fixed, so none). A coverage of 0.85 where 0.94 is right is found with probability 0.9;
integer bounds once gave 0. Intervals 30 % too short are the negative control.
"""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import keepscore as ks
from benchmarks import interval_coverage as study

DATA_SETS = 200
ALARM = 1e-4  # on each side


def as_expected(hits, theory):
    """Which parameters' counts (n, d) are consistent with their theory."""
    low, high = stats.binom.ppf([[ALARM], [1 - ALARM]], len(hits), theory)
    counts = hits.sum(axis=0)
    return (low <= counts) & (counts <= high)


@pytest.fixture(scope="module")
def with_integers():
    return study.covered(study.docs_example(int, in_jax=False), DATA_SETS)[0]


def test_the_example_of_the_docs_with_integer_bounds_covers(with_integers):
    assert as_expected(with_integers, study.docs_example(int).theory).all()


def test_other_bounds_give_the_same_intervals(with_integers):
    for kind in study.KINDS.values():
        again = study.covered(study.docs_example(kind, in_jax=False), DATA_SETS)[0]
        np.testing.assert_array_equal(with_integers, again)


def test_the_code_of_the_page_itself_gives_these_intervals():
    page = (Path(__file__).parents[2] / "docs" / "adding_a_model.md").read_text()
    code = page.split("```python")[1].split("```")[0].split("report =")[0]
    names = {}
    exec(code, names)
    example = study.docs_example(int, in_jax=False)
    x = example.model.simulate(example.truth(None, 4), np.random.default_rng(0))
    found, wanted = (
        ks.confidence_set(m.given(x)).intervals for m in (names["model"], example.model)
    )
    np.testing.assert_allclose(found.raw, wanted.raw, atol=1e-5)
    assert (found.raw[:, 0] < found.raw[:, 1]).all()


def test_a_regression_covers():
    example = study.regression()
    assert as_expected(study.covered(example, DATA_SETS)[0], example.theory).all()


def test_short_intervals_are_found_out(monkeypatch):
    """The negative control: intervals drawn towards their middle, and the fault of integers."""
    from keepscore.inference import confidence

    real = confidence.profile_intervals

    def shortened(*arguments):
        ends = real(*arguments)
        middle = ends.value.mean(axis=-1, keepdims=True)
        ends.value[...] = middle + 0.7 * (ends.value - middle)
        return ends

    monkeypatch.setattr(confidence, "profile_intervals", shortened)
    monkeypatch.setattr(confidence.invariants, "require_holds", lambda *_: None)
    for example in (study.docs_example(int, in_jax=False), study.regression()):
        assert not as_expected(study.covered(example, DATA_SETS)[0], example.theory).all()


def test_theory_agrees_with_simulated_statistics():
    """The formulas beside 200,000 draws of t and chi-square; standard error 0.0005."""
    rng, n, k = np.random.default_rng(0), 20, 3
    c = stats.chi2.ppf(0.95, 1)
    t, w = rng.standard_t(n - k, 200_000), rng.chisquare(n - k, 200_000)
    inside = n * np.log1p(t**2 / (n - k)) <= c
    assert inside.mean() == pytest.approx(study.coefficient_coverage(n, k), abs=0.003)
    inside = w - n - n * np.log(w / n) <= c
    assert inside.mean() == pytest.approx(study.spread_coverage(n, k), abs=0.003)
    assert study.coefficient_coverage(100_000, 3) == pytest.approx(0.95, abs=1e-4)
