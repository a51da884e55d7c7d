"""Uniformisation of a Markov chain on {0,1}^K that flips one bit at a time.

State s is an integer of K bits; bit k of s flips at the rate

    q_k(s) = fixed_k(s) + a first_k(s) + b second_k(s),

linear in two coefficients (a, b). With R(s) = sum_k q_k(s), Lambda = max_s R(s) and the stochastic
matrix P = I + Q / Lambda,

    exp(Q t) = sum_n pi_n P^n,     pi_n = exp(-Lambda t) (Lambda t)^n / n!

Q has K + 1 non-zeros per row: a step p -> p P flips one bit at a time and costs 2^K K operations;
no 2^K x 2^K matrix is ever formed. Every term is non-negative, so nothing cancels: a sum is
accurate relative to itself however small it is, once the Poisson tail, which bounds all that is
left (P^n <= 1), is below 1e-13 of it.

The gradient of p exp(Q t) w takes one adjoint pass (Lambda may be held fixed, for the sum does not
depend on it). With p_m = p P^m and N the last term,

    d = sum_m p_m dP c_m,     c_{m-1} = pi_m w + P c_m,     c_{N-1} = pi_N w,

and the product P c_m gives the parts of dP c_m that belong to a and b on the way.

Up to twelve columns are propagated side by side (`simd`): entry (s, column) of a vector lies at
s * width + column of an array. One column alone (width 1, K >= 2) is propagated four states at a
time, for which the tables of rates are transposed (`across`). `ctmc` starts columns from single
states, `hidden_chain` from distributions. An edit here does not by itself refresh their compiled
kernels on disk: touch those files too.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64

from keepscore.numerics.jit import compiled
from keepscore.numerics.simd import (
    LANE,
    WIDEST,
    axpy,
    fma,
    load,
    store,
    swap_neighbours,
    swap_pairs,
    total,
    zeros,
)

TOLERANCE = 1e-13
# Probabilities below this count as zero (their log is -inf).
SMALLEST = 1e-290
# Lambda times the longest gap: about the number of products a column needs.
MOST_TERMS = 1e6
_SLOT_BUDGET = 256 * 2**20
MOST_SLOTS = 1024  # more would be fresh memory at every call, where one call is short

_Rates = Float64[np.ndarray, "states bits"]


class Chain(NamedTuple):
    """The three parts of the rates q_k(s), each (2^K, K), and their sums over k, each (2^K,)."""

    fixed: _Rates
    first: _Rates
    second: _Rates
    exits: Float64[np.ndarray, "3 states"]


def chain(fixed: _Rates, first: _Rates, second: _Rates) -> Chain:
    """A chain from its three tables of rates."""
    parts = [np.ascontiguousarray(part) for part in (fixed, first, second)]
    exits = np.stack([part.sum(axis=1) for part in parts])
    return Chain(parts[0], parts[1], parts[2], exits)


def across(chain: Chain) -> Chain:
    """The chain with its tables transposed, (K, 2^K), for one column alone."""
    parts = [np.ascontiguousarray(part.T) for part in chain[:3]]
    return Chain(parts[0], parts[1], parts[2], chain.exits)


def slots(bits: int, gradient: bool) -> int:
    """How many powers p_n are kept at once."""
    if not gradient:
        return 2
    return min(MOST_SLOTS, max(32, _SLOT_BUDGET // (2**bits * 8 * WIDEST)))


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


@compiled(nogil=True)
@no_type_check
def aligned(size):
    """Room for `size` doubles from the start of a cache line: no vector then lies across two."""
    room = np.empty(size + 8)
    skip = (-room.ctypes.data % 64) // 8
    return room[skip : skip + size]


@compiled(nogil=True)
@no_type_check
def uniformise(chain, a, b, inflow, stay):
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
def poisson_table(uniform, gaps):
    """Room for pi_n of every gap, up to where the tail is nothing even beside SMALLEST."""
    mean = uniform * gaps.max()
    n = int(mean) + 2
    while log_poisson(mean, n) > math.log(SMALLEST * TOLERANCE) - 10.0:
        n += 8 + n // 16
    return np.empty((n + 3, len(gaps)))


@compiled(nogil=True)
@no_type_check
def log_poisson(mean, n):
    return n * math.log(mean) - mean - math.lgamma(n + 1.0)


@compiled(nogil=True)
@no_type_check
def fill_weights(weights, filled, needed, uniform, gaps):
    """Fill rows of the table until so many are there; returns how many are."""
    while filled < needed:
        for g in range(len(gaps)):
            weights[filled, g] = math.exp(log_poisson(uniform * gaps[g], filled))
        filled += 1
    return filled


@compiled(nogil=True)
@no_type_check
def step(inflow, stay, ring, old, new, width):
    """p -> p P, from offset `old` of the ring to offset `new`."""
    if width == 1:
        _step_across(inflow, stay, ring, old, new)
    elif width == LANE:
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
def _step_across(inflow, stay, ring, old, new):
    bits, states = inflow.shape
    for s in range(0, states, LANE):
        here = load(ring, old + s, (0,))
        p = fma(load(stay, s, (0,)), here, zeros((0,)))
        p = fma(load(inflow, s, (0,)), swap_neighbours(here), p)
        p = fma(load(inflow, states + s, (0,)), swap_pairs(here), p)
        for k in range(2, bits):
            p = fma(load(inflow, k * states + s, (0,)), load(ring, old + (s ^ (1 << k)), (0,)), p)
        store(ring, new + s, p)


@compiled(nogil=True)
@no_type_check
def powers(inflow, stay, ring, last, width):
    """p_1, ..., p_last from p_0 in slot 0 of the ring: p_n goes to slot n mod their number."""
    size = len(stay) * width
    slot_count = len(ring) // size
    for n in range(last):
        step(inflow, stay, ring, (n % slot_count) * size, ((n + 1) % slot_count) * size, width)


@compiled(nogil=True)
@no_type_check
def adjoint_step(rates, ring, here, adjoint, old, new, slopes, width):
    """c -> P c, and in slopes (2 width) the parts of p dP c that belong to a and b (times Lambda),
    column by column."""
    if width == 1:
        _adjoint_step_across(rates, ring, here, adjoint, old, new, slopes)
    elif width == LANE:
        _adjoint_step_lanes(rates, ring, here, adjoint, old, new, slopes, (0,))
    elif width == 2 * LANE:
        _adjoint_step_lanes(rates, ring, here, adjoint, old, new, slopes, (0, 0))
    else:
        _adjoint_step_lanes(rates, ring, here, adjoint, old, new, slopes, (0, 0, 0))


@compiled(nogil=True)
@no_type_check
def _adjoint_step_lanes(rates, ring, here, adjoint, old, new, slopes, shape):
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
    store(slopes, 0, da)
    store(slopes, width, db)


@compiled(nogil=True)
@no_type_check
def _adjoint_step_across(rates, ring, here, adjoint, old, new, slopes):
    chain, a, b, uniform, _, stay = rates
    bits, states = chain.fixed.shape
    scale = 1.0 / uniform
    da, db = zeros((0,)), zeros((0,))
    for s in range(0, states, LANE):
        c = load(adjoint, old + s, (0,))
        fixed, first, second = zeros((0,)), zeros((0,)), zeros((0,))
        for k in range(bits):
            if k == 0:
                flipped = swap_neighbours(c)
            elif k == 1:
                flipped = swap_pairs(c)
            else:
                flipped = load(adjoint, old + (s ^ (1 << k)), (0,))
            place = k * states + s
            fixed = fma(load(chain.fixed, place, (0,)), flipped, fixed)
            first = fma(load(chain.first, place, (0,)), flipped, first)
            second = fma(load(chain.second, place, (0,)), flipped, second)
        arriving = axpy(a, first, axpy(b, second, fixed))
        stayed = fma(load(stay, s, (0,)), c, zeros((0,)))
        store(adjoint, new + s, axpy(scale, arriving, stayed))
        p = load(ring, here + s, (0,))
        of_first = axpy(-1.0, fma(load(chain.exits, states + s, (0,)), c, zeros((0,))), first)
        of_second = axpy(-1.0, fma(load(chain.exits, 2 * states + s, (0,)), c, zeros((0,))), second)
        da, db = fma(p, of_first, da), fma(p, of_second, db)
    slopes[0], slopes[1] = total(da), total(db)
