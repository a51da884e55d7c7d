"""Exact paths of K coupled bits in continuous time (Gillespie's direct method), thousands at once.

Given the other bits, bit k goes

    up    0 -> 1   at rate  base + coupling * e_k,    e_k = sum_j w_kj x_j,
    down  1 -> 0   at rate  down.

The state is an array of K bits, never an index, so K is limited by time alone. Along the way the
path gives its own score: the log-density of a path is sum over events of log rate minus the
integral of the total rate, so with N_down and n(t) the number of down-moves and of bits that are up

    d / d log coupling  =  sum over up-moves of coupling e_k / (base + coupling e_k)
                           - integral of coupling sum over bits down of e_k,
    d / d log down      =  N_down - integral of down n(t).

Given the path at the observation times only, the mean of this is the score of the observations.

Each path has its own random stream (xoshiro256++), so a path depends on its stream and parameters
and not on its neighbours in the batch.
"""

from __future__ import annotations

import math
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64, Int64, UInt8, UInt64

from keepscore.numerics.jit import compiled


class Coupling(NamedTuple):
    """The non-zero weights by column: bit j acts on onto[start[j] : start[j + 1]]."""

    start: Int64[np.ndarray, " bits_and_one"]
    onto: Int64[np.ndarray, " edges"]
    weight: Float64[np.ndarray, " edges"]


def coupling(weights: Float64[np.ndarray, "bits bits"]) -> Coupling:
    """Non-zero weights w_kj (of j on k) by column; a bit does not act on itself."""
    off = weights * (1.0 - np.eye(len(weights)))
    j, k = np.nonzero(off.T)
    start = np.searchsorted(j, np.arange(len(weights) + 1))
    return Coupling(start.astype(np.int64), k.astype(np.int64), off[k, j])


def streams(n: int, rng: np.random.Generator) -> UInt64[np.ndarray, "n 4"]:
    """n random streams. Two calls for n and m give the same streams as one for n + m."""
    return rng.integers(0, 2**64, size=(n, 4), dtype=np.uint64)


def uniforms(streams: UInt64[np.ndarray, "n 4"], m: int) -> Float64[np.ndarray, "n m"]:
    """m uniform draws in [0, 1) from each stream, which moves on."""
    result = np.empty((len(streams), m))
    _fill_uniforms(streams, result)
    return result


def paths(
    streams: UInt64[np.ndarray, "n 4"],
    initial: UInt8[np.ndarray, "n bits"],
    rates: Float64[np.ndarray, "n 3"],
    coupling: Coupling,
    times: Float64[np.ndarray, " times"],
) -> tuple[UInt8[np.ndarray, "n times bits"], Float64[np.ndarray, "n 2"]]:
    """The bits at the observation times, and the score of each path in (log coupling, log down).

    rates[i] = (base, coupling, down); initial holds the bits at times[0].
    """
    n, bits = initial.shape
    x, score = np.empty((n, len(times), bits), dtype=np.uint8), np.zeros((n, 2))
    _simulate(streams, initial, rates, coupling, times, x, score)
    return x, score


@compiled(nogil=True)
@no_type_check
def _next(stream):
    """One step of xoshiro256++ (Blackman and Vigna 2019)."""
    s0, s1, s2, s3 = stream[0], stream[1], stream[2], stream[3]
    both = s0 + s3
    result = ((both << np.uint64(23)) | (both >> np.uint64(41))) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    stream[0], stream[1], stream[2], stream[3] = s0, s1, s2, s3
    return result


@compiled(nogil=True)
@no_type_check
def _uniform(stream):
    """Uniform on the multiples of 2^-53 in [0, 1)."""
    return float(np.int64(_next(stream) >> np.uint64(11))) * 2.0**-53


@compiled(nogil=True)
@no_type_check
def _fill_uniforms(streams, result):
    for i in range(len(streams)):
        for j in range(result.shape[1]):
            result[i, j] = _uniform(streams[i])


@compiled(nogil=True)
@no_type_check
def _exposure(bits, coupling, exposure, sources):
    """e_k and the number of bits that make it up, from scratch."""
    exposure[:] = 0.0
    sources[:] = 0
    for j in range(len(bits)):
        if bits[j] == 1:
            for edge in range(coupling.start[j], coupling.start[j + 1]):
                exposure[coupling.onto[edge]] += coupling.weight[edge]
                sources[coupling.onto[edge]] += 1


@compiled(nogil=True)
@no_type_check
def _flip(k, bits, coupling, exposure, sources):
    """Flip bit k and pass it on. No sources left means exactly no exposure, whatever rounding."""
    sign = 1 - 2 * bits[k]
    bits[k] = 1 - bits[k]
    for edge in range(coupling.start[k], coupling.start[k + 1]):
        j = coupling.onto[edge]
        sources[j] += sign
        exposure[j] = exposure[j] + sign * coupling.weight[edge] if sources[j] > 0 else 0.0


@compiled(nogil=True)
@no_type_check
def _choose(target, bits, base, strength, down, exposure):
    """The bit at which the running sum of the rates passes `target`."""
    chosen, reached = -1, 0.0
    for k in range(len(bits)):
        rate = down if bits[k] == 1 else base + strength * exposure[k]
        if rate > 0.0:
            chosen = k
            reached += rate
            if reached > target:
                break
    return chosen


@compiled(nogil=True)
@no_type_check
def _simulate(streams, initial, rates, coupling, times, x, score):
    count, steps, size = x.shape
    exposure, sources = np.empty(size), np.empty(size, dtype=np.int64)
    bits = np.empty(size, dtype=np.int64)
    for i in range(count):
        base, strength, down = rates[i, 0], rates[i, 1], rates[i, 2]
        stream = streams[i]
        bits[:] = initial[i]
        now = times[0]
        for step in range(steps):
            end = times[step]
            _exposure(bits, coupling, exposure, sources)  # afresh, so that rounding cannot build up
            while True:
                raised, pressure = 0, 0.0
                for k in range(size):
                    raised += bits[k]
                    pressure += (1 - bits[k]) * exposure[k]
                rate = down * raised + base * (size - raised) + strength * pressure
                wait = np.inf
                if rate > 0.0:
                    wait = -math.log1p(-_uniform(stream)) / rate
                # The clock has no memory: a wait cut off by an observation is drawn afresh.
                passed = min(wait, end - now)
                score[i, 0] -= strength * pressure * passed
                score[i, 1] -= down * raised * passed
                if now + wait >= end:
                    break
                now += wait
                k = _choose(_uniform(stream) * rate, bits, base, strength, down, exposure)
                if bits[k] == 1:
                    score[i, 1] += 1.0
                else:
                    score[i, 0] += strength * exposure[k] / (base + strength * exposure[k])
                _flip(k, bits, coupling, exposure, sources)
            now = end
            x[i, step] = bits
