"""A Markov chain on {0,1}^K that is seen through tests of its bits, with errors or not at all.

At time t_i bit k of the hidden state s is tested: y_ik is 0, 1, or missing. Tests are independent
given the state, and right with the probability of their kind,

    P(y = 1 | bit = 1) = sensitivity,     P(y = 0 | bit = 0) = specificity,

so that e_i(s) = prod_k P(y_ik | bit k of s), a missing test being a factor of 1. With the row
vector a_0 = initial * e_0 / c_0, the filter is

    a_i = (a_{i-1} exp(Q (t_i - t_{i-1}))) * e_i / c_i,    log p(y) = sum_i log c_i,

where c_i makes a_i sum to 1, and exp(Q t) acts on a vector by `uniformisation`. The series stops
once what is left of it is below 1e-13 of every entry that e_i leaves possible.

The gradient needs one pass back. B_i(s) = p(y after t_i | s) / p(y after t_i | y up to t_i) obeys

    B_{i-1} = exp(Q (t_i - t_{i-1})) w_i,    w_i = e_i * B_i / c_i,

and the gap before t_i adds the gradient of a_{i-1} exp(Q t) w_i, with a_{i-1} and w_i held fixed:
the adjoint pass of `uniformisation`, whose last c_m is B_{i-1}. On the way a_i * B_i, the law of
the state given all tests, gives the expected numbers of tests of each kind,

    n[v, y] = sum over i and k of P(bit k at t_i is v | all tests) [y_ik = y],

from which the derivatives in sensitivity and specificity follow by Fisher's identity.

Up to twelve sequences with the same rates and errors are filtered side by side.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from keepscore.numerics.jit import compiled
from keepscore.numerics.simd import LANE, WIDEST
from keepscore.numerics.uniformisation import (
    SMALLEST,
    TOLERANCE,
    Chain,
    across,
    adjoint_step,
    aligned,
    fill_weights,
    poisson_table,
    powers,
    slots,
    step,
    uniformise,
)

MISSING = 2
_CHECK_EVERY = 4  # terms


class Seen(NamedTuple):
    """Sequences of tests, 0, 1 or MISSING, of a chain that begins with the law `initial`; gap[i] is
    the number of the time gaps[gap[i]] between tests i and i + 1."""

    results: UInt8[np.ndarray, "sequences times bits"]
    initial: Float64[np.ndarray, " states"]
    gap: Int64[np.ndarray, " steps"]
    gaps: Float64[np.ndarray, " gaps"]


class Jobs(NamedTuple):
    """Job r asks for sequences sequence[offsets[r] : offsets[r + 1]], at the rates[r] = (a, b) and
    errors[r] = (sensitivity, specificity)."""

    rates: Float64[np.ndarray, "jobs 2"]
    errors: Float64[np.ndarray, "jobs 2"]
    offsets: Int64[np.ndarray, " jobs_and_one"]
    sequence: Int64[np.ndarray, " asked"]

    @property
    def width(self) -> int:
        """Of the widest block of columns."""
        most = int(np.diff(self.offsets).max(initial=1))
        return min(WIDEST, LANE * ((most + LANE - 1) // LANE))


def memory_needed(bits: int, times: int, gradient: bool, width: int = WIDEST) -> int:
    """Bytes that filtering takes on 2^bits states."""
    columns = slots(bits, gradient) + 2 + (times + 2 if gradient else 1)
    return 2**bits * 8 * (width * columns + 8 * bits + 6)


def log_likelihood(chain: Chain, jobs: Jobs, tests: Seen) -> Float64[np.ndarray, " asked"]:
    """log p(y) of every sequence asked for."""
    asked = len(jobs.sequence)
    value = np.empty(asked)
    bits = chain.fixed.shape[1]
    room = (slots(bits, False), jobs.width)
    none = np.empty((0, 2)), np.empty((0, 2, 2))
    _filter_jobs(chain, across(chain), jobs, tests, value, *none, room)
    return value


def log_likelihood_and_gradient(
    chain: Chain, jobs: Jobs, tests: Seen
) -> tuple[
    Float64[np.ndarray, " asked"],
    Float64[np.ndarray, "asked 2"],
    Float64[np.ndarray, "asked 2 2"],
]:
    """The same, with its gradient in (log a, log b) and the expected numbers n[v, y] of tests; both
    NaN where the value is -inf."""
    asked = len(jobs.sequence)
    value, gradient, numbers = np.empty(asked), np.empty((asked, 2)), np.empty((asked, 2, 2))
    bits = chain.fixed.shape[1]
    room = (slots(bits, True), jobs.width)
    _filter_jobs(chain, across(chain), jobs, tests, value, gradient, numbers, room)
    return value, gradient, numbers


@compiled(nogil=True)
@no_type_check
def _filter_jobs(chain, across, jobs, tests, value, gradient, numbers, room):
    states, bits = chain.fixed.shape
    slot_count, widest = room
    with_gradient = len(gradient) > 0
    times = tests.results.shape[1]
    size = states * widest
    inflow, stay = np.empty((states, bits)), np.empty(states)
    inflow_across = np.empty((bits, states))
    ring, seen, mixed = aligned(slot_count * size), aligned(size), aligned(size)
    kept = aligned((times if with_gradient else 1) * size)
    adjoint = aligned((2 if with_gradient else 0) * size)
    share = np.empty((times, widest))
    terms = np.zeros(times, dtype=np.int64)
    for i in range(len(jobs.rates)):
        a, b = jobs.rates[i]
        uniform = uniformise(chain, a, b, inflow, stay)
        weights, filled = poisson_table(uniform, tests.gaps), 0
        rates = (chain, a, b, uniform, inflow, stay)
        first, end = jobs.offsets[i], jobs.offsets[i + 1]
        alone = end - first == 1 and bits >= 2
        if alone:
            for s in range(states):
                for k in range(bits):
                    inflow_across[k, s] = inflow[s, k]
            rates = (across, a, b, uniform, inflow_across, stay)
        while first < end:
            last = min(end, first + WIDEST)
            block = (first, last, 1 if alone else LANE * ((last - first + LANE - 1) // LANE))
            until = _last_tested(tests.results, jobs.sequence, block)
            filled = _forward(
                block, until, jobs, i, tests, rates, (ring, seen, mixed, kept), share, terms,
                weights, filled, value,
            )  # fmt: skip
            if with_gradient:
                _backward(
                    block, until, jobs, i, tests, rates, (ring, seen, mixed, kept, adjoint), share,
                    terms, weights, value, gradient, numbers,
                )  # fmt: skip
            first = last


@compiled(nogil=True)
@no_type_check
def _copy(source, start, target, size):
    """target[:size] = source[start : start + size], which Numba compiles for twenty seconds."""
    for at in range(size):
        target[at] = source[start + at]


@compiled(nogil=True)
@no_type_check
def _last_tested(results, sequence, block):
    """The last time at which any bit of any column was tested, or -1."""
    first, last, _ = block
    for i in range(results.shape[1] - 1, -1, -1):
        for at in range(first, last):
            for k in range(results.shape[2]):
                if results[sequence[at], i, k] != MISSING:
                    return i
    return -1


@compiled(nogil=True)
@no_type_check
def _chance(errors, bit, result):
    """P(result | bit)."""
    if result == MISSING:
        return 1.0
    right = errors[0] if bit == 1 else errors[1]
    return right if result == bit else 1.0 - right


@compiled(nogil=True)
@no_type_check
def _emit(block, i, sequence, results, errors, seen):
    """e_i(s) of every column: one bit after another doubles the states that are done."""
    first, last, width = block
    bits = results.shape[2]
    seen[: width << bits] = 0.0
    for at in range(first, last):
        column = at - first
        seen[column] = 1.0
        for k in range(bits):
            result = results[sequence[at], i, k]
            down, up = _chance(errors, 0, result), _chance(errors, 1, result)
            for s in range(1 << k):
                here = seen[s * width + column]
                seen[(s | (1 << k)) * width + column] = here * up
                seen[s * width + column] = here * down


@compiled(nogil=True)
@no_type_check
def _condition(block, i, states, source, seen, target, offset, share, value):
    """target = source * e_i / c_i, and log c_i into value; a column of probability zero ends."""
    first, last, width = block
    target[offset : offset + states * width] = 0.0
    for at in range(first, last):
        column = at - first
        c = 0.0
        for s in range(states):
            c += source[s * width + column] * seen[s * width + column]
        share[i, column] = c
        if c < SMALLEST:
            value[at] = -np.inf
            continue
        value[at] += np.log(c)
        for s in range(states):
            at_s = s * width + column
            target[offset + at_s] = source[at_s] * seen[at_s] / c


@compiled(nogil=True)
@no_type_check
def _forward(block, until, jobs, job, tests, rates, rooms, share, terms, weights, filled, value):
    """Filter a block of sequences: a_i into `kept` (all of them, or the last one alone), c_i into
    `share`, the last n used for the gap before t_i into terms[i]; returns the weights filled."""
    first, last, width = block
    _, _, _, uniform, inflow, stay = rates
    ring, seen, mixed, kept = rooms
    states = len(stay)
    size = states * width
    stride = size if len(kept) >= len(terms) * size else 0
    value[first:last] = 0.0
    for i in range(until + 1):
        _emit(block, i, jobs.sequence, tests.results, jobs.errors[job], seen)
        if i == 0:
            for s in range(states):
                mixed[s * width : (s + 1) * width] = tests.initial[s]
        else:
            before = (i - 1) * stride
            _copy(kept, before, ring, size)
            terms[i], filled = _propagate(
                block, tests.gap[i - 1], tests.gaps, uniform, inflow, stay, ring, seen, mixed,
                weights, filled, value,
            )  # fmt: skip
        _condition(block, i, states, mixed, seen, kept, i * stride, share, value)
    return filled


@compiled(nogil=True)
@no_type_check
def _propagate(
    block, gap, gaps, uniform, inflow, stay, ring, seen, mixed, weights, filled, value
):  # fmt: skip
    """mixed = p_0 exp(Q t), p_0 in slot 0; returns the last n used and the weights filled."""
    width = block[2]
    size = len(stay) * width
    slot_count = len(ring) // size
    mixed[:size] = 0.0
    mean = uniform * gaps[gap]
    n = 0
    while True:
        filled = fill_weights(weights, filled, n + 2, uniform, gaps)
        here = (n % slot_count) * size
        weight = weights[n, gap]
        for at in range(size):
            mixed[at] += weight * ring[here + at]
        ratio = mean / (n + 2.0)
        if ratio < 1.0 and (n % _CHECK_EVERY == 0 or n + 3 >= len(weights)):
            tail = weights[n + 1, gap] / (1.0 - ratio)
            if tail <= TOLERANCE and tail <= TOLERANCE * _least(block, size, mixed, seen, value):
                return n, filled
        step(inflow, stay, ring, here, ((n + 1) % slot_count) * size, width)
        n += 1


@compiled(nogil=True)
@no_type_check
def _least(block, size, mixed, seen, value):
    """The smallest probability of a state that the next tests leave possible."""
    first, last, width = block
    least = 1.0
    for at in range(first, last):
        if value[at] == -np.inf:
            continue
        for place in range(at - first, size, width):
            if seen[place] > 0.0 and mixed[place] < least:
                least = mixed[place]
    return max(least, SMALLEST)


@compiled(nogil=True)
@no_type_check
def _backward(
    block, until, jobs, job, tests, rates, rooms, share, terms, weights, value, gradient, numbers
):  # fmt: skip
    """Gradient and expected numbers of tests of a block, after its `_forward`."""
    first, last, width = block
    _, a, b, uniform, inflow, stay = rates
    ring, seen, mixed, kept, adjoint = rooms
    states = len(stay)
    size = states * width
    gradient[first:last] = 0.0
    numbers[first:last] = 0.0
    slopes, summed = np.empty(2 * WIDEST), np.zeros(2 * WIDEST)
    old, new = 0, size
    adjoint[:size] = 1.0  # B at the last test
    for i in range(until, -1, -1):
        _count(block, i, jobs.sequence, tests.results, kept, adjoint, old, states, numbers)
        if i == 0:
            break
        _emit(block, i, jobs.sequence, tests.results, jobs.errors[job], seen)
        for s in range(states):
            for column in range(last - first):
                at = s * width + column
                dead = value[first + column] == -np.inf
                mixed[at] = 0.0 if dead else seen[at] * adjoint[old + at] / share[i, column]
            mixed[s * width + last - first : (s + 1) * width] = 0.0
        _copy(kept, (i - 1) * size, ring, size)
        powers(inflow, stay, ring, terms[i] - 1, width)
        old, new = _adjoint(
            tests.gap[i - 1], terms[i], rates, ring, kept, (i - 1) * size, mixed, adjoint, old, new,
            weights, slopes, summed, width,
        )  # fmt: skip
    for at in range(first, last):
        gradient[at, 0] = a * summed[at - first] / uniform
        gradient[at, 1] = b * summed[width + at - first] / uniform
        if value[at] == -np.inf:
            gradient[at] = np.nan
            numbers[at] = np.nan


@compiled(nogil=True)
@no_type_check
def _adjoint(
    gap, terms, rates, ring, kept, start, injected, adjoint, old, new, weights, slopes, summed,
    width,
):  # fmt: skip
    """One gap back: from w = `injected` to B before it, in adjoint from the first offset returned;
    adds the gradient of the gap to `summed`. The ring holds the last p_m, m < terms."""
    _, _, _, _, inflow, stay = rates
    size = len(stay) * width
    slot_count = len(ring) // size
    held = max(0, terms - 1) // slot_count  # the ring holds p_m for m // slot_count == held
    adjoint[old : old + size] = 0.0
    for m in range(terms - 1, -1, -1):
        weight = weights[m + 1, gap]
        for at in range(size):
            adjoint[old + at] += weight * injected[at]
        if m // slot_count != held:
            held = m // slot_count
            _copy(kept, start, ring, size)
            powers(inflow, stay, ring, m, width)
        here = (m % slot_count) * size
        adjoint_step(rates, ring, here, adjoint, old, new, slopes, width)
        for at in range(2 * width):
            summed[at] += slopes[at]
        old, new = new, old
    for at in range(size):
        adjoint[old + at] += weights[0, gap] * injected[at]
    return old, new


@compiled(nogil=True)
@no_type_check
def _count(block, i, sequence, results, kept, adjoint, offset, states, numbers):
    """n[v, y] of the tests at time i, by the law a_i * B_i of the state given all tests."""
    first, last, width = block
    bits = results.shape[2]
    law = np.empty(states)
    for at in range(first, last):
        for s in range(states):
            place = s * width + at - first
            law[s] = kept[i * states * width + place] * adjoint[offset + place]
        for k in range(bits):
            result = results[sequence[at], i, k]
            if result == MISSING:
                continue
            for s in range(states):
                numbers[at, (s >> k) & 1, result] += law[s]
