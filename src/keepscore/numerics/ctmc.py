"""Transition probabilities of a Markov chain on {0,1}^K that flips one bit at a time.

With P, Lambda and pi_n of `uniformisation`,

    exp(Q t)[i, j] = sum_n pi_n e_i P^n e_j.

The sum stops once the Poisson tail is below 1e-13 of the smallest probability asked for. The powers
p_n = e_i P^n do not depend on t: all gaps between observations share them, and so do all
transitions out of one state. Up to twelve states are propagated side by side.

The gradient of sum_j v_j log exp(Q t)[i, j] is the adjoint pass with w_j = v_j / exp(Q t)[i, j].
The p_m are kept; when memory does not hold them all, a ring of slots keeps the last ones and the
earlier ones are propagated again.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64, Int64

from keepscore.numerics.jit import compiled
from keepscore.numerics.simd import LANE, WIDEST
from keepscore.numerics.uniformisation import (
    SMALLEST,
    TOLERANCE,
    Chain,
    adjoint_step,
    aligned,
    fill_weights,
    poisson_table,
    powers,
    slots,
    step,
    uniformise,
)


class Transitions(NamedTuple):
    """Jobs of counted transitions: job r holds entries offsets[r] : offsets[r + 1], sorted by
    source; each says tally transitions went from source to target in a time gaps[gap]."""

    offsets: Int64[np.ndarray, " jobs_and_one"]
    source: Int64[np.ndarray, " entries"]
    target: Int64[np.ndarray, " entries"]
    gap: Int64[np.ndarray, " entries"]
    tally: Float64[np.ndarray, " entries"]
    gaps: Float64[np.ndarray, " gaps"]


def memory_needed(bits: int, gradient: bool) -> int:
    """Bytes the exact computation takes on 2^bits states."""
    columns = slots(bits, gradient) + (2 if gradient else 0)
    return 2**bits * 8 * (WIDEST * columns + 4 * bits + 5)


def log_likelihood(
    chain: Chain,
    rates: Float64[np.ndarray, "n 2"],
    jobs: Int64[np.ndarray, " n"],
    transitions: Transitions,
) -> Float64[np.ndarray, " n"]:
    """sum of tally * log probability over the entries of jobs[i], at rates[i] = (a, b)."""
    value = np.empty(len(rates))
    _sum_jobs(chain, rates, jobs, transitions, value, np.empty((0, 2)), slots(_bits(chain), False))
    return value


def log_likelihood_and_gradient(
    chain: Chain,
    rates: Float64[np.ndarray, "n 2"],
    jobs: Int64[np.ndarray, " n"],
    transitions: Transitions,
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n 2"]]:
    """The same, with the gradient in (log a, log b); NaN where the value is -inf."""
    value, gradient = np.empty(len(rates)), np.empty((len(rates), 2))
    _sum_jobs(chain, rates, jobs, transitions, value, gradient, slots(_bits(chain), True))
    return value, gradient


def log_probabilities(
    chain: Chain, rates: Float64[np.ndarray, "n 2"], transitions: Transitions
) -> Float64[np.ndarray, "n entries"]:
    """log probability of every entry of the only job, at each row of rates."""
    result = np.empty((len(rates), len(transitions.source)))
    _each_entry(chain, rates, transitions, result)
    return result


def _bits(chain: Chain) -> int:
    return int(chain.fixed.shape[1])


@compiled(nogil=True)
@no_type_check
def _sum_jobs(chain, rates, jobs, transitions, value, gradient, slot_count):
    states, bits = chain.fixed.shape
    inflow, stay = np.empty((states, bits)), np.empty(states)
    ring = aligned(slot_count * states * WIDEST)
    with_gradient = len(gradient) > 0
    adjoint = aligned((2 if with_gradient else 0) * states * WIDEST)
    longest = 0
    for job in range(len(transitions.offsets) - 1):
        longest = max(longest, transitions.offsets[job + 1] - transitions.offsets[job])
    probability = np.empty(longest)
    for i in range(len(rates)):
        a, b = rates[i]
        uniform = uniformise(chain, a, b, inflow, stay)
        first, end = transitions.offsets[jobs[i]], transitions.offsets[jobs[i] + 1]
        weights, filled = poisson_table(uniform, transitions.gaps), 0
        value[i] = 0.0
        if with_gradient:
            gradient[i, 0], gradient[i, 1] = 0.0, 0.0
        while first < end:
            block = _next_block(transitions.source, first, end)
            last = block[1]
            terms, filled = _forward(
                block, transitions, inflow, stay, ring, uniform, weights, filled, probability
            )
            for t in range(first, last):
                value[i] += transitions.tally[t] * np.log(probability[t - first])
            if with_gradient:
                ga, gb = _backward(
                    block, transitions, (chain, a, b, uniform, inflow, stay), ring, adjoint,
                    weights, probability, terms,
                )  # fmt: skip
                gradient[i, 0] += a * ga
                gradient[i, 1] += b * gb
            first = last


@compiled(nogil=True)
@no_type_check
def _each_entry(chain, rates, transitions, result):
    states, bits = chain.fixed.shape
    inflow, stay = np.empty((states, bits)), np.empty(states)
    ring = aligned(2 * states * WIDEST)
    entries = len(transitions.source)
    probability = np.empty(entries)
    for i in range(len(rates)):
        uniform = uniformise(chain, rates[i, 0], rates[i, 1], inflow, stay)
        weights, filled = poisson_table(uniform, transitions.gaps), 0
        first = 0
        while first < entries:
            block = _next_block(transitions.source, first, entries)
            last = block[1]
            _, filled = _forward(
                block, transitions, inflow, stay, ring, uniform, weights, filled, probability
            )
            for t in range(first, last):
                result[i, t] = np.log(probability[t - first])
            first = last


@compiled(nogil=True)
@no_type_check
def _next_block(source, first, end):
    """Entries first : last whose sources are few enough to go side by side, and in what width."""
    distinct, last = 1, first + 1
    while last < end:
        if source[last] != source[last - 1]:
            if distinct == WIDEST:
                break
            distinct += 1
        last += 1
    return first, last, LANE * ((distinct + LANE - 1) // LANE)


@compiled(nogil=True)
@no_type_check
def _start(block, source, ring, states):
    """p_0 in slot 0: column c is the c-th different source."""
    first, last, width = block
    ring[: states * width] = 0.0
    column = 0
    for t in range(first, last):
        if t > first and source[t] != source[t - 1]:
            column += 1
        ring[source[t] * width + column] = 1.0


@compiled(nogil=True)
@no_type_check
def _converged(block, transitions, uniform, weights, probability, n):
    """Is what is left of the series, at most the Poisson tail beyond n, nothing to every entry?"""
    first, last, _ = block
    for t in range(first, last):
        g = transitions.gap[t]
        ratio = uniform * transitions.gaps[g] / (n + 2.0)
        if ratio >= 1.0:
            return False
        tail = weights[n + 1, g] / (1.0 - ratio)
        if tail > TOLERANCE * max(probability[t - first], SMALLEST):
            return False
    return True


@compiled(nogil=True)
@no_type_check
def _forward(block, transitions, inflow, stay, ring, uniform, weights, filled, probability):
    """Probabilities of the entries of a block; returns the last n used and the weights filled."""
    first, last, width = block
    source, target, gap = transitions.source, transitions.target, transitions.gap
    size = len(stay) * width
    slot_count = len(ring) // size
    _start(block, source, ring, len(stay))
    probability[: last - first] = 0.0
    n = 0
    while True:
        filled = fill_weights(weights, filled, n + 2, uniform, transitions.gaps)
        here = (n % slot_count) * size
        column = 0
        for t in range(first, last):
            if t > first and source[t] != source[t - 1]:
                column += 1
            probability[t - first] += weights[n, gap[t]] * ring[here + target[t] * width + column]
        if _converged(block, transitions, uniform, weights, probability, n):
            break
        step(inflow, stay, ring, here, ((n + 1) % slot_count) * size, width)
        n += 1
    for at in range(last - first):
        if probability[at] < SMALLEST:
            probability[at] = 0.0
    return n, filled


@compiled(nogil=True)
@no_type_check
def _inject(block, transitions, weights, probability, adjoint, offset, n):
    """c += pi_n w, with w = tally / probability at the target of each entry."""
    first, last, width = block
    column = 0
    for t in range(first, last):
        if t > first and transitions.source[t] != transitions.source[t - 1]:
            column += 1
        adjoint[offset + transitions.target[t] * width + column] += (
            weights[n, transitions.gap[t]] * transitions.tally[t] / probability[t - first]
        )


@compiled(nogil=True)
@no_type_check
def _backward(block, transitions, rates, ring, adjoint, weights, probability, terms):
    """Gradient in (a, b) of sum tally * log probability over a block, after its `_forward`."""
    first, last, width = block
    for at in range(last - first):
        if probability[at] == 0.0:
            return np.nan, np.nan
    _, _, _, uniform, inflow, stay = rates
    size = len(stay) * width
    slot_count = len(ring) // size
    held = terms // slot_count  # the ring holds p_n for n // slot_count == held
    old, new = 0, size
    adjoint[:size] = 0.0
    slopes = np.empty(2 * WIDEST)
    da, db = 0.0, 0.0
    for m in range(terms - 1, -1, -1):
        _inject(block, transitions, weights, probability, adjoint, old, m + 1)
        if m // slot_count != held:
            held = m // slot_count
            _start(block, transitions.source, ring, len(stay))
            powers(inflow, stay, ring, m, width)
        here = (m % slot_count) * size
        adjoint_step(rates, ring, here, adjoint, old, new, slopes, width)
        da += slopes[:width].sum()
        db += slopes[width : 2 * width].sum()
        old, new = new, old
    return da / uniform, db / uniform
