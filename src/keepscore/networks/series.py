"""Densities for series: rows in time order, each given all rows before it.

    log q(x | theta) = sum_t log q(x_t | s_{t-1}, x_{t-1}, ..., x_{t-L}, theta)
    s_t              = a_t s_{t-1} + v_t,      (a_t, v_t) = network(x_t, theta),  0 < a_t < 1
    q(x_t | ...)     = a mixture of Gaussians; its parameters are a second network of what is given

s (memory) is linear in itself, forgets at a rate that theta and x may set, and is computed for all
steps in one loop. So it can be what many processes keep of their past: the variance of a GARCH
series (a constant in x), the excitation of a Hawkes process (a = exp(-beta w) after a wait w), the
filter of a hidden autoregression. The last L rows come beside it, because lags are no such sums.

Rows may be missing, and their number may be random: with o_t = 1 where row t is there,

    log q(x, o | theta) = sum_t [ log q(o_t | ...) + o_t log q(x_t | ...) ]

Where it does not depend on theta which rows are there, the first term learns that, and drops out.

Event times t_1 < ... < t_n in a window (0, 1), at most N of them (`EventsNetwork`): the rows are
logs of waits w_i = t_i - t_{i-1}, t_0 = 0, and nothing happens between the last event and the end:

    log q = sum_i log q(log w_i | ...) + [n < N] log P(w_{n+1} > 1 - t_n | ...)

q is a density that its likelihood teaches (`training/step.py`); the evidence is computed from it.

Files of earlier versions also hold the weights of a learned evidence (`nodes`, `log_weights`,
`evidence`); they are kept, and nothing uses them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from keepscore.errors import ShapeError
from keepscore.networks.exponential_family import Layers, starting_nodes
from keepscore.networks.layers import (
    Join,
    Linear,
    Source,
    beginning_small,
    computed,
    scattered,
    silu,
)

SIZES: dict[str, dict[str, Any]] = {
    "3k": {"components": 3, "lags": 3, "memory": 8, "widths": (16, 24)},
    "10k": {"components": 4, "lags": 4, "memory": 16, "widths": (32, 64)},
}
SMALL = 0.1  # of the last layer: steps begin as nearly independent, whatever theta
APART = 0.5  # standard deviation of where the means of components begin
LARGEST = 10.0  # of logs of standard deviations, either way
SHORTEST, LONGEST = -1.0, 4.0  # logits of the a's at the start: memories of 1 to 50 steps
EVIDENCE = 32  # width of the evidence's network in files of earlier versions
MOST_STEPS = 1 << 17  # of all series at once: more are taken in turns
TINY = 1e-7  # shortest wait, and the least that is left of the window: what float32 can tell


class Steps(NamedTuple):
    """What the step network gives at each of T steps, for rows of p numbers and k components."""

    log_weight: Float[Array, "T k"]
    mean: Float[Array, "T k p"]
    log_precision: Float[Array, "T k p"]
    factor: Float[Array, "T k p p"]  # below its diagonal
    there: Float[Array, " T"]  # the logit of o_t = 1


class SeriesNetwork(eqx.Module):
    """log q(x | theta) for x (T, ...) of continuous rows in time order."""

    gate: Join
    gates: Linear
    join: Join
    second: Linear
    last: Linear
    centre: Float[Array, "k p"]
    nodes: Float[Array, "m d"] | None
    log_weights: Float[Array, " m"] | None
    evidence: Layers | None
    lags: int = eqx.field(static=True)

    x_scale: ClassVar = "states"
    takes_missing: ClassVar = False

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        components: int,
        lags: int,
        memory: int,
        widths: Sequence[int],
        nodes: int | None = None,
    ) -> None:
        p = self._entries(x_shape)
        q = 2 * p + 1  # numbers that stand for a row: `_inputs`
        k = components
        self.lags = lags
        self.gate = Join(q, d, widths[0], rng)
        self.gates = _spread(Linear(widths[0], 2 * memory, rng), memory, rng)
        self.join = Join(lags * q + memory + 1, d, widths[1], rng)
        self.second = Linear(widths[1], widths[1], rng)
        last = Linear(widths[1], k * (1 + p + p * p) + lags * p + 1, rng)
        self.last = beginning_small(last, SMALL)
        self.centre = scattered(rng, (k, p), APART)
        self.nodes, self.log_weights, self.evidence = None, None, None
        if nodes is not None:
            self.nodes, self.log_weights = starting_nodes(nodes, d, rng)
            self.evidence = Layers([nodes + 1, EVIDENCE, 1], rng)

    @staticmethod
    def _entries(x_shape: Sequence[int]) -> int:
        """Numbers in a row."""
        if len(x_shape) < 1 or math.prod(x_shape) == 0:
            raise ShapeError(
                f"A series network needs x of shape (T,) or (T, ...); got {tuple(x_shape)}."
            )
        return math.prod(x_shape[1:])

    def features(self, x: Float[Array, "b T ..."]) -> Float[Array, "b f"]:
        """The rows and o, side by side."""
        return self._rows(x)

    def head(self, features: Float[Array, "b f"], theta: Float[Array, "b d"]) -> Float[Array, " b"]:
        return self.log_density(features, theta)

    def log_density(
        self, features: Float[Array, "b f"], theta: Float[Array, "b d"]
    ) -> Float[Array, " b"]:
        """log q(x | theta), up to a function of x."""
        at_once = max(1, MOST_STEPS // self._length(features))
        if len(features) <= at_once:
            return jax.vmap(self._of_one)(features, theta)
        one = jax.checkpoint(lambda pair: self._of_one(*pair))
        return jax.lax.map(one, (features, theta), batch_size=at_once)

    def _rows(self, x: Float[Array, "b T ..."]) -> Float[Array, "b r"]:
        """All of x that is needed: each row (0 where it is missing) with o."""
        b, length = x.shape[:2]
        rows = x.reshape(b, length, -1)
        there = ~jnp.isnan(rows).any(axis=2, keepdims=True)
        filled = jnp.where(there, rows, 0.0)
        return jnp.concatenate([filled, there.astype(x.dtype)], axis=2).reshape(b, -1)

    def _length(self, rows: Float[Array, "*b r"]) -> int:
        """Rows of a series, from the numbers kept of it."""
        return int(rows.shape[-1] // (self.centre.shape[1] + 1))

    def _of_one(self, rows: Float[Array, " r"], theta: Float[Array, " d"]) -> Float[Array, ""]:
        """log q of one series."""
        split = rows.reshape(self._length(rows), -1)
        y, there = split[:, :-1], split[:, -1]
        clock = jnp.arange(len(y), dtype=y.dtype) / len(y)
        steps = self._steps(y, there, clock, theta)
        logs = there * _log_mixture(steps, y)
        if self.takes_missing:
            logs = logs + there * steps.there - jax.nn.softplus(steps.there)
        return logs.sum()

    def _steps(
        self,
        y: Float[Array, "T p"],
        there: Float[Array, " T"],
        clock: Float[Array, " T"],
        theta: Float[Array, " d"],
    ) -> Steps:
        """The law of each row given those before it; `clock` is where the step is in time."""
        length, p = y.shape
        k, memory = self.centre.shape[0], self.gates.bias.shape[0] // 2
        inputs = _inputs(y, there)
        z = self.gates(silu(self.gate.of_features(inputs) + theta @ self.gate.theta_weight))
        a, v = jax.nn.sigmoid(z[:, :memory]), z[:, memory:]
        before = _states_before(a, v)
        past = [_earlier(inputs, lag) for lag in range(1, self.lags + 1)]
        given = jnp.concatenate([*past, before, clock[:, None]], axis=1)
        z = silu(self.join.of_features(given) + theta @ self.join.theta_weight)
        out = self.last(silu(self.second(z)))
        log_weight, means, square, slopes, logit = jnp.split(
            out, np.cumsum([k, k * p, k * p * p, self.lags * p]), axis=1
        )
        by_lag = slopes.reshape(length, self.lags, p)
        line = sum(by_lag[:, lag] * past[lag][:, :p] for lag in range(self.lags))
        squares = square.reshape(length, k, p, p)
        log_precision = jnp.diagonal(squares, axis1=2, axis2=3)
        return Steps(
            jax.nn.log_softmax(log_weight),
            means.reshape(length, k, p) + self.centre + jnp.asarray(line)[:, None],
            LARGEST * jnp.tanh(log_precision / LARGEST),
            squares * np.tri(p, k=-1, dtype=np.float32),
            logit[:, 0],
        )

    def settings(self) -> dict[str, Any]:
        """With x_shape and d, all that is needed to build the same network."""
        found: dict[str, Any] = {
            "components": self.centre.shape[-2],
            "lags": self.lags,
            "memory": self.gates.bias.shape[-1] // 2,
            "widths": [self.gate.bias.shape[-1], self.join.bias.shape[-1]],
        }
        return found if self.nodes is None else {**found, "nodes": self.nodes.shape[-2]}


class MaskedSeriesNetwork(SeriesNetwork):
    """The same for series with missing rows, or of a random number of rows.

    A row that is missing in part counts as missing.
    """

    takes_missing: ClassVar = True
    whole_rows: ClassVar = True


class EventsNetwork(SeriesNetwork):
    """log q(x | theta) for times of events x (N,), in order, NaN after the last one."""

    x_scale: ClassVar = "largest"  # so that the window ends at 1
    takes_missing: ClassVar = True

    @staticmethod
    def _entries(x_shape: Sequence[int]) -> int:
        if len(x_shape) != 1 or x_shape[0] == 0:
            raise ShapeError(
                f"An events network needs x of shape (N,), times of events; got {tuple(x_shape)}."
            )
        return 1

    def _rows(self, x: Float[Array, "b N"]) -> Float[Array, "b r"]:
        """The times and o; what comes after a gap is no event."""
        there = jnp.cumprod((~jnp.isnan(x)).astype(x.dtype), axis=1)
        times = jnp.where(there > 0, x, 0.0)
        return jnp.stack([times, there], axis=2).reshape(len(x), -1)

    def _of_one(self, rows: Float[Array, " r"], theta: Float[Array, " d"]) -> Float[Array, ""]:
        split = rows.reshape(self._length(rows), 2)
        most = len(split)
        # One step more than there can be events: the wait that the end of the window cut off.
        times, there = (jnp.concatenate([c, jnp.zeros(1, c.dtype)]) for c in split.T)
        since = _earlier(times, 1)
        ends = _earlier(there, 1).at[0].set(1.0) * (1.0 - there) * (jnp.arange(most + 1) < most)
        until = jnp.where(there > 0, times, 1.0)
        # On the scale of N waits in a window, logs are of order one.
        y = jnp.log(most * jnp.maximum(until - since, TINY))[:, None]
        steps = self._steps(y * there[:, None], there, since, theta)
        # One step at most ends the window: its law alone, since survival is dear.
        at_end = jax.tree.map(lambda part: jnp.tensordot(ends, part, axes=1)[None], steps)
        survived = ends.sum() * _log_survival(at_end, ends @ y)[0]
        return (there * _log_mixture(steps, y)).sum() + survived


def _inputs(y: Float[Array, "T p"], there: Float[Array, " T"]) -> Float[Array, "T q"]:
    """What stands for a row: its numbers, their sizes (volatility is in them), and o."""
    return jnp.concatenate([y, jnp.log1p(y**2), there[:, None]], axis=1)


def _earlier(z: Float[Array, "T ..."], lag: int) -> Float[Array, "T ..."]:
    """z some steps before; 0 before the first."""
    lag = min(lag, len(z))
    return jnp.concatenate([jnp.zeros_like(z[:lag]), z[: len(z) - lag]])


def _states_before(a: Float[Array, "T w"], v: Float[Array, "T w"]) -> Float[Array, "T w"]:
    """s_{t-1} at each step t, from s_0 = 0."""

    def step(s: Array, av: tuple[Array, Array]) -> tuple[Array, Array]:
        return av[0] * s + av[1], s

    return jax.lax.scan(step, jnp.zeros_like(a[0]), (a, v))[1]


def _log_mixture(steps: Steps, y: Float[Array, "T p"]) -> Float[Array, " T"]:
    """log q(y_t | ...), up to a constant."""
    z = y[:, None] - steps.mean
    e = jnp.exp(steps.log_precision) * z
    if y.shape[1] > 1:
        e = e + (steps.factor * z[:, :, None, :]).sum(axis=-1)
    parts = steps.log_weight + steps.log_precision.sum(axis=2) - 0.5 * (e**2).sum(axis=2)
    return jax.nn.logsumexp(parts, axis=1) - 0.5 * y.shape[1] * math.log(2.0 * math.pi)


def _log_survival(steps: Steps, y: Float[Array, " T"]) -> Float[Array, " T"]:
    """log P(Y_t > y_t | ...) for rows of one number."""
    e = jnp.exp(steps.log_precision[..., 0]) * (y[:, None] - steps.mean[..., 0])
    return jax.nn.logsumexp(steps.log_weight + jax.scipy.special.log_ndtr(-e), axis=1)


def _spread(linear: Linear, memory: int, rng: Source) -> Linear:
    """Gates that begin with memories of many lengths, and states that begin of order one."""
    logits = np.linspace(SHORTEST, LONGEST, memory)
    gain = 1.0 / (1.0 + np.exp(logits))  # 1 - a
    scale = np.concatenate([np.ones(memory), gain])
    shift = np.concatenate([logits, np.zeros(memory)])
    weight = computed(rng, linear.weight.shape, lambda: linear.weight * scale)
    bias = computed(rng, linear.bias.shape, lambda: linear.bias * scale + shift)
    return eqx.tree_at(lambda one: (one.weight, one.bias), linear, (weight, bias))
