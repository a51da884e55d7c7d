"""The filter of a hidden chain against dense matrices and against a sum over all paths."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.linalg
from test_ctmc import dense, random_chain

from keepscore.numerics import hidden_chain
from keepscore.numerics.hidden_chain import MISSING, Jobs, Seen

GAPS = np.array([0.3, 1.0])


def bits_of(states, bits):
    return (np.arange(states)[:, None] >> np.arange(bits)) & 1


def chances(row, errors, bits):
    """e(s) of one time, from the definition."""
    e = np.ones(2**bits)
    for s, v in enumerate(bits_of(2**bits, bits)):
        for k in range(bits):
            if row[k] != MISSING:
                right = errors[0] if v[k] else errors[1]
                e[s] *= right if row[k] == v[k] else 1 - right
    return e


def dense_filter(chain, rates, errors, results, initial, gap):
    """log p, and the law of the state at each time given all tests, by dense matrices."""
    bits = chain.fixed.shape[1]
    p = [scipy.linalg.expm(dense(chain, *rates) * GAPS[g]) for g in gap]
    e = [chances(row, errors, bits) for row in results]
    ahead = [initial * e[0]]
    for i in range(1, len(results)):
        ahead.append((ahead[-1] @ p[i - 1]) * e[i])
    back = [np.ones(2**bits)]
    for i in range(len(results) - 1, 0, -1):
        back.insert(0, p[i - 1] @ (e[i] * back[0]))
    whole = ahead[-1].sum()
    return np.log(whole), [a * b / whole for a, b in zip(ahead, back, strict=True)]


def example(bits, rng, sequences=3, times=4):
    chain = random_chain(bits, rng)
    results = rng.integers(0, 3, (sequences, times, bits)).astype(np.uint8)  # a third is missing
    initial = rng.dirichlet(np.ones(2**bits))
    gap = rng.integers(0, 2, times - 1)
    return chain, Seen(results, initial, gap, GAPS)


def jobs_of(rates, errors, counts):
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Jobs(rates, errors, offsets, np.arange(offsets[-1]))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("counts", [(1, 1, 1), (3, 14)])
def test_the_filter_matches_dense_matrices(bits, counts):
    rng = np.random.default_rng(bits)
    chain, tests = example(bits, rng, sum(counts))
    rates = np.exp(rng.uniform(-2, 2, (len(counts), 2)))
    errors = rng.uniform(0.6, 0.99, (len(counts), 2))
    jobs = jobs_of(rates, errors, counts)
    value, gradient, numbers = hidden_chain.log_likelihood_and_gradient(chain, jobs, tests)
    np.testing.assert_array_equal(value, hidden_chain.log_likelihood(chain, jobs, tests))
    job = np.repeat(np.arange(len(counts)), counts)
    states = bits_of(2**bits, bits)
    for at, y in enumerate(tests.results):
        r, e = rates[job[at]], errors[job[at]]
        expected, law = dense_filter(chain, r, e, y, tests.initial, tests.gap)
        assert value[at] == pytest.approx(expected, rel=1e-11)
        counted = np.zeros((2, 2))
        for i, k in product(range(len(y)), range(bits)):
            if y[i, k] != MISSING:
                up = law[i] @ states[:, k]
                counted[:, y[i, k]] += 1 - up, up
        np.testing.assert_allclose(numbers[at], counted, rtol=1e-9, atol=1e-12)
        for k in range(2):
            step = np.exp(1e-5 * np.eye(2)[k])
            high, low = (
                dense_filter(chain, q, e, y, tests.initial, tests.gap)[0]
                for q in (r * step, r / step)
            )
            assert gradient[at, k] == pytest.approx((high - low) / 2e-5, rel=1e-6, abs=1e-8)


def test_the_filter_is_the_sum_over_all_paths():
    rng = np.random.default_rng(0)
    chain, tests = example(2, rng, sequences=2, times=3)
    rates, errors = np.array([[0.7, 1.9]]), np.array([[0.8, 0.9]])
    value = hidden_chain.log_likelihood(chain, jobs_of(rates, errors, (2,)), tests)
    p = [scipy.linalg.expm(dense(chain, *rates[0]) * GAPS[g]) for g in tests.gap]
    for at, y in enumerate(tests.results):
        e = [chances(row, errors[0], 2) for row in y]
        whole = sum(
            tests.initial[s[0]] * p[0][s[0], s[1]] * p[1][s[1], s[2]] * e[0][s[0]] * e[1][s[1]]
            * e[2][s[2]]
            for s in product(range(4), repeat=3)
        )  # fmt: skip
        assert value[at] == pytest.approx(np.log(whole), rel=1e-12)


def test_few_slots_change_nothing():
    rng = np.random.default_rng(3)
    chain, tests = example(3, rng, sequences=5)
    jobs = jobs_of(np.array([[4.0, 3.0]]), np.array([[0.9, 0.8]]), (5,))
    many = hidden_chain.log_likelihood_and_gradient(chain, jobs, tests)
    few = np.empty(5), np.empty((5, 2)), np.empty((5, 2, 2))
    hidden_chain._filter_jobs(chain, hidden_chain.across(chain), jobs, tests, *few, (7, 8))
    for a, b in zip(few, many, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_state_hardly_possible_is_as_accurate_as_any():
    """A long run of tests that say 0 leaves 1 with a probability near 1e-24; then 1 is certain."""
    up = np.array([[1.0], [0.0]])
    chain = hidden_chain.Chain(0 * up, up, 1 - up, np.stack([0 * up, up, 1 - up])[..., 0])
    a = b = 1e-12
    results = np.array([[[0], [0], [1]]], dtype=np.uint8)
    tests = Seen(results, np.array([1.0, 0.0]), np.zeros(2, dtype=np.int64), np.array([1.0]))
    errors = np.array([[1 - 1e-12, 1.0]])
    jobs = jobs_of(np.array([[a, b]]), errors, (1,))
    value, gradient, _ = hidden_chain.log_likelihood_and_gradient(chain, jobs, tests)
    p = a / (a + b) * -np.expm1(-(a + b))
    hidden_before = p * (1 - errors[0, 0]) * 1.0  # infected, and missed by the second test
    now = (1 - p) * p + hidden_before * (1 - p)
    assert value[0] == pytest.approx(np.log(now * errors[0, 0]), rel=1e-12)
    assert gradient[0, 0] == pytest.approx(1.0, rel=1e-9)


def test_what_cannot_be_is_minus_infinity_and_has_no_gradient():
    up = 1.0 - bits_of(4, 2)
    parts = 0 * up, 0 * up, 1.0 - up  # bits only fall
    chain = hidden_chain.Chain(*parts, np.stack([part.sum(axis=1) for part in parts]))
    results = np.array([[[0, 0], [0, 1]], [[1, 1], [0, 1]]], dtype=np.uint8)
    tests = Seen(results, np.full(4, 0.25), np.zeros(1, dtype=np.int64), np.array([1.0]))
    for counts in ((2,), (1, 1)):
        m = len(counts)
        jobs = jobs_of(np.tile([1.0, 2.0], (m, 1)), np.ones((m, 2)), counts)
        value, gradient, numbers = hidden_chain.log_likelihood_and_gradient(chain, jobs, tests)
        assert value[0] == -np.inf
        assert np.isnan(gradient[0]).all()
        assert np.isnan(numbers[0]).all()
        gone = -np.expm1(-2.0)
        assert value[1] == pytest.approx(np.log(0.25 * gone * (1 - gone)), rel=1e-12)
        assert gradient[1, 1] == pytest.approx(2 * (1 - gone) / gone - 2, rel=1e-9)


def test_memory_grows_with_states_times_and_columns():
    needed = hidden_chain.memory_needed
    assert needed(8, 13, True) < 2**29
    assert needed(20, 13, True, 4) < needed(20, 13, True, 12) < needed(20, 130, True, 12)
    assert needed(40, 2, False, 4) > 2**50
