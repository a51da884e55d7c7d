"""Transition probabilities of a Markov chain on {0,1}^K that flips one bit at a time.

State s is an integer of K bits; bit k of s flips at the rate

    q_k(s) = fixed_k(s) + a first_k(s) + b second_k(s),

linear in two coefficients (a, b). With R(s) = sum_k q_k(s), Lambda = max_s R(s) and the stochastic
matrix P = I + Q / Lambda, uniformisation says

    exp(Q t)[i, j] = sum_n pi_n e_i P^n e_j,     pi_n = exp(-Lambda t) (Lambda t)^n / n!

Q has K + 1 non-zeros per row: a step p -> p P flips one bit at a time and costs 2^K K operations;
no 2^K x 2^K matrix is ever formed. Every term is non-negative, so nothing cancels: the sum is
accurate relative to itself however small it is. It stops once the Poisson tail, which bounds all
that is left (P^n <= 1), is below 1e-13 of the smallest probability asked for.

The powers p_n = e_i P^n do not depend on t: all gaps between observations share them, and so do
all transitions out of one state. Up to twelve states are propagated side by side (`lanes`).

The gradient of sum_j v_j log exp(Q t)[i, j] for all coefficients takes one adjoint pass (Lambda
may be held fixed, for the sum does not depend on it). With w_j = v_j / exp(Q t)[i, j],

    d = sum_m p_m dP c_m,     c_{m-1} = pi_m w + P c_m,     c_{N-1} = pi_N w,

and the product P c_m gives the parts of dP c_m that belong to a and b on the way. The p_m are kept;
when memory does not hold them all, a ring of slots keeps the last ones and the earlier ones are
propagated again.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64, Int64

from keepscore.numerics.jit import compiled
from keepscore.numerics.simd import LANE, WIDEST, axpy, fma, load, store, total, zeros

TOLERANCE = 1e-13
# Probabilities below this count as zero (their log is -inf).
SMALLEST = 1e-290
# Lambda times the longest gap: about the number of products a column needs.
MOST_TERMS = 1e6
_SLOT_BUDGET = 256 * 2**20

_Rates = Float64[np.ndarray, "states bits"]


class Chain(NamedTuple):
    """The three parts of the rates q_k(s), each (2^K, K), and their sums over k, each (2^K,)."""

    fixed: _Rates
    first: _Rates
    second: _Rates
    exits: Float64[np.ndarray, "3 states"]


class Transitions(NamedTuple):
    """Jobs of counted transitions: job r holds entries offsets[r] : offsets[r + 1], sorted by
    source; each says tally transitions went from source to target in a time gaps[gap]."""

    offsets: Int64[np.ndarray, " jobs_and_one"]
    source: Int64[np.ndarray, " entries"]
    target: Int64[np.ndarray, " entries"]
    gap: Int64[np.ndarray, " entries"]
    tally: Float64[np.ndarray, " entries"]
    gaps: Float64[np.ndarray, " gaps"]


def chain(fixed: _Rates, first: _Rates, second: _Rates) -> Chain:
    """A chain from its three tables of rates."""
    parts = [np.ascontiguousarray(part) for part in (fixed, first, second)]
    exits = np.stack([part.sum(axis=1) for part in parts])
    return Chain(parts[0], parts[1], parts[2], exits)


def slots(bits: int, gradient: bool) -> int:
    """How many powers p_n are kept at once."""
    if not gradient:
        return 2
    return min(4096, max(32, _SLOT_BUDGET // (2**bits * 8 * WIDEST)))


def memory_needed(bits: int, gradient: bool) -> int:
    """Bytes the exact computation takes on 2^bits states."""
    columns = slots(bits, gradient) + (2 if gradient else 0)
    return 2**bits * 8 * (WIDEST * columns + 4 * bits + 5)


def memory_limit() -> int:
    """Bytes the exact computation may take: half of the machine's memory (4 GiB if unknown)."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


def largest_exit(chain: Chain, rates: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, " n"]:
    """Lambda for each row (a, b) of rates; infinite where the sum overflows."""
    result = np.empty(len(rates))
    rows = max(1, 2**22 // chain.exits.shape[1])
    for i in range(0, len(rates), rows):
        part = rates[i : i + rows]
        with np.errstate(over="ignore"):
            exits = chain.exits[0] + part @ chain.exits[1:]
        result[i : i + rows] = exits.max(axis=1)
    return result


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
    ring = _aligned(slot_count * states * WIDEST)
    with_gradient = len(gradient) > 0
    adjoint = _aligned((2 if with_gradient else 0) * states * WIDEST)
    longest = 0
    for job in range(len(transitions.offsets) - 1):
        longest = max(longest, transitions.offsets[job + 1] - transitions.offsets[job])
    probability = np.empty(longest)
    for i in range(len(rates)):
        a, b = rates[i]
        uniform = _uniformise(chain, a, b, inflow, stay)
        first, end = transitions.offsets[jobs[i]], transitions.offsets[jobs[i] + 1]
        weights, filled = _poisson_table(uniform, transitions.gaps), 0
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
    ring = _aligned(2 * states * WIDEST)
    entries = len(transitions.source)
    probability = np.empty(entries)
    for i in range(len(rates)):
        uniform = _uniformise(chain, rates[i, 0], rates[i, 1], inflow, stay)
        weights, filled = _poisson_table(uniform, transitions.gaps), 0
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
def _aligned(size):
    """Room for `size` doubles from the start of a cache line: no vector then lies across two."""
    room = np.empty(size + 8)
    skip = (-room.ctypes.data % 64) // 8
    return room[skip : skip + size]


@compiled(nogil=True)
@no_type_check
def _uniformise(chain, a, b, inflow, stay):
    """Fill P: inflow[s, k] = q_k(s with bit k flipped) / Lambda and stay[s] = 1 - R(s) / Lambda."""
    states, bits = chain.fixed.shape
    uniform = 0.0
    for s in range(states):
        stay[s] = chain.exits[0, s] + a * chain.exits[1, s] + b * chain.exits[2, s]
        uniform = max(uniform, stay[s])
    scale = 1.0 / uniform
    for s in range(states):
        stay[s] = max(0.0, 1.0 - stay[s] * scale)
        for k in range(bits):
            u = s ^ (1 << k)
            inflow[s, k] = scale * (
                chain.fixed[u, k] + a * chain.first[u, k] + b * chain.second[u, k]
            )
    return uniform


@compiled(nogil=True)
@no_type_check
def _poisson_table(uniform, gaps):
    """Room for pi_n of every gap, up to where the tail is nothing even beside SMALLEST."""
    mean = uniform * gaps.max()
    n = int(mean) + 2
    while _log_poisson(mean, n) > math.log(SMALLEST * TOLERANCE) - 10.0:
        n += 8 + n // 16
    return np.empty((n + 3, len(gaps)))


@compiled(nogil=True)
@no_type_check
def _log_poisson(mean, n):
    return n * math.log(mean) - mean - math.lgamma(n + 1.0)


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
def _step(inflow, stay, ring, old, new, width):
    """p -> p P, from offset `old` of the ring to offset `new`."""
    if width == LANE:
        _step_lanes(inflow, stay, ring, old, new, (0,))
    elif width == 2 * LANE:
        _step_lanes(inflow, stay, ring, old, new, (0, 0))
    else:
        _step_lanes(inflow, stay, ring, old, new, (0, 0, 0))


@compiled(nogil=True)
@no_type_check
def _step_lanes(inflow, stay, ring, old, new, shape):
    states, bits = inflow.shape
    width = LANE * len(shape)
    for s in range(states):
        p = axpy(stay[s], load(ring, old + s * width, shape), zeros(shape))
        for k in range(bits):
            p = axpy(inflow[s, k], load(ring, old + (s ^ (1 << k)) * width, shape), p)
        store(ring, new + s * width, p)


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
        while filled < n + 2:
            for g in range(len(transitions.gaps)):
                weights[filled, g] = math.exp(_log_poisson(uniform * transitions.gaps[g], filled))
            filled += 1
        here = (n % slot_count) * size
        column = 0
        for t in range(first, last):
            if t > first and source[t] != source[t - 1]:
                column += 1
            probability[t - first] += weights[n, gap[t]] * ring[here + target[t] * width + column]
        if _converged(block, transitions, uniform, weights, probability, n):
            break
        _step(inflow, stay, ring, here, ((n + 1) % slot_count) * size, width)
        n += 1
    for at in range(last - first):
        if probability[at] < SMALLEST:
            probability[at] = 0.0
    return n, filled


@compiled(nogil=True)
@no_type_check
def _adjoint_step(rates, ring, here, adjoint, old, new, width):
    """c -> P c and the parts of p dP c that belong to a and b (times Lambda)."""
    if width == LANE:
        return _adjoint_step_lanes(rates, ring, here, adjoint, old, new, (0,))
    if width == 2 * LANE:
        return _adjoint_step_lanes(rates, ring, here, adjoint, old, new, (0, 0))
    return _adjoint_step_lanes(rates, ring, here, adjoint, old, new, (0, 0, 0))


@compiled(nogil=True)
@no_type_check
def _adjoint_step_lanes(rates, ring, here, adjoint, old, new, shape):
    chain, a, b, uniform, _, stay = rates
    states, bits = chain.fixed.shape
    width, scale = LANE * len(shape), 1.0 / uniform
    da, db = zeros(shape), zeros(shape)
    for s in range(states):
        c = load(adjoint, old + s * width, shape)
        fixed, first, second = zeros(shape), zeros(shape), zeros(shape)
        for k in range(bits):
            flipped = load(adjoint, old + (s ^ (1 << k)) * width, shape)
            fixed = axpy(chain.fixed[s, k], flipped, fixed)
            first = axpy(chain.first[s, k], flipped, first)
            second = axpy(chain.second[s, k], flipped, second)
        arriving = axpy(a, first, axpy(b, second, fixed))
        store(adjoint, new + s * width, axpy(scale, arriving, axpy(stay[s], c, zeros(shape))))
        p = load(ring, here + s * width, shape)
        da = fma(p, axpy(-chain.exits[1, s], c, first), da)
        db = fma(p, axpy(-chain.exits[2, s], c, second), db)
    return total(da), total(db)


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
    da, db = 0.0, 0.0
    for m in range(terms - 1, -1, -1):
        _inject(block, transitions, weights, probability, adjoint, old, m + 1)
        if m // slot_count != held:
            held = m // slot_count
            _start(block, transitions.source, ring, len(stay))
            for n in range(m):
                here, there = (n % slot_count) * size, ((n + 1) % slot_count) * size
                _step(inflow, stay, ring, here, there, width)
        ga, gb = _adjoint_step(rates, ring, (m % slot_count) * size, adjoint, old, new, width)
        da += ga
        db += gb
        old, new = new, old
    return da / uniform, db / uniform
