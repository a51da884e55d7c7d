"""Uniformisation on the hypercube against dense matrix exponentials, and graph automorphisms."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
import scipy.linalg

from keepscore.numerics import ctmc, uniformisation
from keepscore.numerics.automorphisms import automorphisms


def random_chain(bits, rng):
    shape = (2**bits, bits)
    parts = rng.random((3, *shape)) * (rng.random((3, *shape)) < 0.7)
    return uniformisation.chain(parts[0] + 0.05, parts[1], parts[2])


def generator(part):
    """The dense matrix of rates part[s, k] of flipping bit k in state s."""
    states, bits = part.shape
    matrix = np.zeros((states, states))
    for k in range(bits):
        matrix[np.arange(states), np.arange(states) ^ (1 << k)] = part[:, k]
    return matrix - np.diag(matrix.sum(axis=1))


def dense(chain, a, b):
    return generator(chain.fixed + a * chain.first + b * chain.second)


def random_transitions(bits, gaps, jobs, rng, length=12):
    source = np.sort(rng.integers(0, 2**bits, (jobs, length)), axis=1).ravel()
    target = rng.integers(0, 2**bits, jobs * length)
    gap = rng.integers(0, len(gaps), jobs * length)
    tally = rng.integers(1, 4, jobs * length).astype(float)
    return ctmc.Transitions(np.arange(jobs + 1) * length, source, target, gap, tally, gaps)


@pytest.mark.parametrize("bits", [1, 3, 4, 5, 6])
@pytest.mark.parametrize("gaps", [[1.0], [0.3, 1.0, 7.5]])
def test_log_likelihood_and_gradient_match_dense_exponentials(bits, gaps):
    rng = np.random.default_rng(bits)
    chain, gaps = random_chain(bits, rng), np.array(gaps)
    table = random_transitions(bits, gaps, 3, rng, length=30)
    rates = np.exp(rng.uniform(-3, 3, (3, 2)))
    jobs = np.array([2, 0, 1])
    value, gradient = ctmc.log_likelihood_and_gradient(chain, rates, jobs, table)
    np.testing.assert_array_equal(value, ctmc.log_likelihood(chain, rates, jobs, table))
    for i, (a, b) in enumerate(rates):
        entry = slice(30 * jobs[i], 30 * jobs[i] + 30)
        source, target, gap = table.source[entry], table.target[entry], table.gap[entry]
        expected, slope = 0.0, np.zeros(2)
        for s, t, g, tally in zip(source, target, gap, table.tally[entry], strict=True):
            q = dense(chain, a, b) * gaps[g]
            p = scipy.linalg.expm(q)[s, t]
            expected += tally * np.log(p)
            for k, direction in enumerate((a * chain.first, b * chain.second)):
                frechet = scipy.linalg.expm_frechet(
                    q, generator(direction) * gaps[g], compute_expm=False
                )
                slope[k] += tally * frechet[s, t] / p
        assert value[i] == pytest.approx(expected, rel=1e-10)
        np.testing.assert_allclose(gradient[i], slope, rtol=1e-9, atol=1e-9)


def test_every_entry_alone_is_accurate_to_1e10():
    rng = np.random.default_rng(5)
    chain, gaps = random_chain(5, rng), np.array([0.2, 3.0])
    source, target = (a.ravel() for a in np.meshgrid(np.arange(32), np.arange(32), indexing="ij"))
    gap = rng.integers(0, 2, len(source))
    table = ctmc.Transitions(np.array([0, 1024]), source, target, gap, np.ones(1024), gaps)
    rates = np.array([[1.0, 2.0], [0.1, 20.0], [30.0, 0.01]])
    logs = ctmc.log_probabilities(chain, rates, table)
    for row, (a, b) in zip(logs, rates, strict=True):
        exact = np.stack([scipy.linalg.expm(dense(chain, a, b) * g) for g in gaps])
        # scipy's own error is about 1e-16 of the largest entry: compare where that is small.
        expected = exact[gap, source, target]
        clear = expected > 1e-4
        assert clear.sum() > 100
        np.testing.assert_allclose(np.exp(row)[clear], expected[clear], rtol=1e-10)


def test_tiny_probabilities_are_accurate_relative_to_themselves():
    """Independent bits have closed forms: all six flip within t = 1e-4, probability near 1e-25."""
    bits, gap = 6, 1e-4
    up = 1.0 - ((np.arange(64)[:, None] >> np.arange(bits)) & 1)
    chain = uniformisation.chain(0 * up, 1.0 * up, 1.0 - up)
    source, target = np.array([0, 21, 63]), np.array([63, 42, 0])
    table = ctmc.Transitions(
        np.array([0, 3]), source, target, np.zeros(3, dtype=np.int64), np.ones(3), np.array([gap])
    )
    a, b = 0.7, 1.9
    logs = ctmc.log_probabilities(chain, np.array([[a, b]]), table)[0]
    flips = math.log(-math.expm1(-(a + b) * gap))  # P(odd) = rate / (a + b) * (1 - exp(-(a + b) t))
    rises = np.array([6, 3, 0])
    expected = 6 * flips + rises * math.log(a / (a + b)) + (6 - rises) * math.log(b / (a + b))
    assert expected.max() < math.log(1e-22)
    np.testing.assert_allclose(np.exp(logs - expected), 1.0, rtol=1e-10)
    _, gradient = ctmc.log_likelihood_and_gradient(chain, np.array([[a, b]]), np.array([0]), table)
    common = a * gap / math.expm1((a + b) * gap), b * gap / math.expm1((a + b) * gap)
    slope_a = 9 * b / (a + b) - 9 * a / (a + b) + 18 * common[0]
    slope_b = 9 * a / (a + b) - 9 * b / (a + b) + 18 * common[1]
    np.testing.assert_allclose(gradient[0], [slope_a, slope_b], rtol=1e-10)


def test_long_gaps_reach_the_stationary_law_and_few_slots_change_nothing():
    rng = np.random.default_rng(9)
    chain = random_chain(3, rng)
    table = random_transitions(3, np.array([40.0]), 1, rng)
    rates, jobs = np.array([[1.0, 2.0]]), np.array([0])
    many, gradient = ctmc.log_likelihood_and_gradient(chain, rates, jobs, table)
    few, again = np.empty(1), np.empty((1, 2))
    ctmc._sum_jobs(chain, rates, jobs, table, few, again, 7)
    np.testing.assert_allclose(few, many, rtol=1e-14)
    np.testing.assert_allclose(again, gradient, rtol=1e-12)
    exact = scipy.linalg.expm(40 * dense(chain, 1.0, 2.0))
    np.testing.assert_allclose(exact, exact[0] + 0 * exact, rtol=1e-8)
    expected = (table.tally * np.log(exact[table.source, table.target])).sum()
    assert many[0] == pytest.approx(expected, rel=1e-10)


def test_impossible_transitions_have_log_probability_minus_infinity():
    up = 1.0 - ((np.arange(4)[:, None] >> np.arange(2)) & 1)
    chain = uniformisation.chain(0 * up, 0 * up, 1.0 - up)  # bits only fall
    table = ctmc.Transitions(
        np.array([0, 2]), np.array([0, 3]), np.array([1, 0]), np.zeros(2, dtype=np.int64),
        np.ones(2), np.array([1.0]),
    )  # fmt: skip
    logs = ctmc.log_probabilities(chain, np.array([[1.0, 2.0]]), table)[0]
    assert logs[0] == -np.inf
    assert logs[1] == pytest.approx(2 * math.log(-math.expm1(-2.0)), rel=1e-12)


def test_memory_grows_with_the_number_of_states():
    needed = [ctmc.memory_needed(k, True) for k in range(8, 40)]
    assert all(b > a for a, b in pairwise(needed[8:]))
    assert ctmc.memory_needed(12, True) < 2**30
    assert ctmc.memory_needed(40, False) > 2**50


def brute_force(weights):
    return {
        p
        for p in permutations(range(len(weights)))
        if np.array_equal(weights[np.ix_(p, p)], weights)
    }


@pytest.mark.parametrize("seed", range(12))
def test_automorphisms_are_all_there_are(seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 2, (6, 6)).astype(float)
    if seed % 3 == 0:
        weights = np.minimum(weights, weights.T)
    if seed % 3 == 1:  # three copies of a pair
        weights = np.kron(np.ones((3, 3)) - np.eye(3), weights[:2, :2])
    found = automorphisms(weights, limit=720)
    assert np.array_equal(found[0], np.arange(6))
    assert {tuple(int(i) for i in p) for p in found} == brute_force(weights)
    assert len(found) == len(brute_force(weights))


def test_automorphisms_of_large_graphs_are_limited_and_correct():
    ring = np.abs(np.subtract.outer(np.arange(64), np.arange(64)))
    ring = np.exp(-np.minimum(ring, 64 - ring).astype(float))
    found = automorphisms(ring, limit=200)
    assert len(found) == 128
    for weights in (ring, np.ones((64, 64))):
        for perm in automorphisms(weights):
            np.testing.assert_allclose(weights[np.ix_(perm, perm)], weights, rtol=1e-9)
    assert len(automorphisms(np.ones((64, 64)))) == 64
    assert len(automorphisms(np.random.default_rng(0).random((200, 200)))) == 1
