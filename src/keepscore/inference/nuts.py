"""NUTS on the box, for one posterior or many at once: charts, density, and all chains together.

The box becomes all of R^d by a logit, centred and whitened at the maximum of the likelihood:

    theta = low + (high - low) sigmoid(z),    z = z_hat + A w,    A A' = (-Hessian in z)^-1
    log density of w = l(theta) - l_max + log prior(theta) + sum log sigmoid(z)(1 - sigmoid(z))

A is d x d, computed once in NumPy, so the sampler itself needs only a diagonal mass matrix (jitted
code here holds no factorisation). Every chain has its own group and chart, and all advance in one
program, compiled once: a likelihood written in JAX is traced; any other is called from JAX, with
its gradient, once per leapfrog step for all chains.

A whitened density needs trajectories of a few steps. They end at 2^7: an improper posterior (a
prior that is no density) then costs minutes and a warning, and ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from keepscore.checks import Floats
from keepscore.errors import DomainError
from keepscore.inference.bfgs import make_positive
from keepscore.likelihood import Integers, Likelihood, Maximum, Traced, TracedFunction
from keepscore.space import Space

if TYPE_CHECKING:
    from blackjax.mcmc.hmc import HMCState
    from jax import Array
    from jaxtyping import PyTree

LARGEST_DEPTH = 7

Density: TypeAlias = "Callable[[Array], Array]"
ChainArrays: TypeAlias = "dict[str, Array]"  # what chains record, by name


class Given(NamedTuple):
    """What all chains share: the data of the likelihood, and the box."""

    data: PyTree[Array]
    low: Array
    width: Array


class Own(NamedTuple):
    """A chain's own: its chart, its group, and l_max there in two parts, since float32 holds only
    the first. With a leading axis, those of all chains."""

    z_hat: Array
    a: Array
    group: Array
    peak: Array
    rest: Array

    def relative(self, function: TracedFunction, data: PyTree[Array], theta: Array) -> Array:
        """l(theta) - l_max."""
        if isinstance(function, _Called):
            return function.relative(data, theta, self.group, self.peak, self.rest)
        return function(data, theta, self.group) - self.peak - self.rest


@dataclass(frozen=True)
class SpacePrior:
    """The prior of a space as a log density of theta (d,) in JAX, up to a constant. Equal for equal
    spaces, so that what is compiled for one data set serves the next."""

    space: Space

    def __call__(self, theta: Array) -> Array:
        import jax.numpy as jnp

        return self.space.unnormalised_log_prior(theta, jnp)


def prior_of(space: Space) -> SpacePrior | None:
    """The prior of a space; None if it is uniform."""
    return SpacePrior(space) if space.has_prior else None


@dataclass(frozen=True)
class Settings:
    """How long to run, and the acceptance rate the step size is tuned for."""

    draws: int
    warmup: int
    target_acceptance: float = 0.85


@dataclass(frozen=True)
class Charts:
    """w in R^d to theta in the box, for each of c chains: z_hat (c, d), a (c, d, d)."""

    low: Floats
    width: Floats
    z_hat: Floats
    a: Floats

    @classmethod
    def at_maxima(cls, space: Space, found: Maximum, group: Integers) -> Charts:
        """Charts centred at the maxima of the chains' groups."""
        low, high = space.box(found.region)
        width = high - low
        share = np.clip((found.theta - low) / width, 0.02, 0.98)
        z_hat = np.log(share) - np.log1p(-share)
        # d theta/dz = width s (1 - s); the Jacobian's own curvature, 2 s (1 - s), keeps A finite.
        bend = share * (1 - share)
        slope = width * bend
        curvature = found.curvature * slope[:, :, None] * slope[:, None, :]
        curvature = make_positive(curvature + 2 * bend[:, :, None] * np.eye(space.d))
        a = np.linalg.cholesky(np.linalg.inv(curvature))
        return cls(low, width, z_hat[group], a[group])

    def theta(self, w: Floats) -> Floats:
        """Draws w (c, n, d) as theta."""
        z = self.z_hat[:, None] + np.einsum("cij,cnj->cni", self.a, w)
        return self.low + self.width * (0.5 + 0.5 * np.tanh(z / 2))


def sample(
    like: Likelihood,
    prior: Density | None,
    found: Maximum,
    group: Integers,
    seed: int,
    settings: Settings,
    starts: Maximum | None = None,
) -> tuple[Floats, dict[str, np.ndarray]]:
    """Draws theta (c, draws, d) of c chains, chain i of the posterior of group[i]; statistics.

    starts: one place per chain to begin around, instead of the maximum of its group.
    """
    import jax
    import jax.numpy as jnp

    if starts is None:
        charts = Charts.at_maxima(like.space, found, group)
    else:
        charts = Charts.at_maxima(like.space, starts, np.arange(len(group)))
    double = like.traceable is not None and like.traceable.double
    real = np.float64 if double else np.float32
    reference, rng = found.value[group], np.random.default_rng(seed)
    start = rng.standard_normal((len(group), like.space.d))
    with _on_host(like) as number, jax.enable_x64(True) if double else nullcontext():
        own = Own(
            jnp.asarray(charts.z_hat, real),
            jnp.asarray(charts.a, real),
            jnp.asarray(group, jnp.int32),
            jnp.asarray(reference, real),
            # What float32 loses of the reference.
            jnp.asarray(reference - reference.astype(real), real),
        )
        keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), len(group))
        traced = like.traceable or Traced(_Called(like.space.d), jnp.int32(number))
        low, width = (jnp.asarray(side, real) for side in (charts.low, charts.width))
        given = Given(jax.tree.map(jnp.asarray, traced.data), low, width)
        check, run = _programs(traced.function, prior, settings)
        _require_usable(check(given, Own(*(array[0] for array in own))))
        sampled = run(keys, jnp.asarray(start, real), own, given)
        stats = {name: np.asarray(array) for name, array in sampled.items()}
    return charts.theta(stats.pop("position").astype(float)), stats


@lru_cache(maxsize=32)
def _programs(
    function: TracedFunction, prior: Density | None, settings: Settings
) -> tuple[Callable[[Given, Own], Array], Callable[[Array, Array, Own, Given], ChainArrays]]:
    """(log density where chains start, all chains), compiled once for a likelihood's function: a
    second data set of the same shape pays for its sampling only."""
    import jax
    import jax.numpy as jnp

    density = _log_density(function, prior)

    def check(given: Given, own: Own) -> Array:
        return density(jnp.zeros_like(own.z_hat), given, own)

    def chain(key: Array, position: Array, own: Own, given: Given) -> ChainArrays:
        return _one_chain(lambda w: density(w, given, own), settings, key, position)

    return jax.jit(check), jax.jit(jax.vmap(chain, in_axes=(0, 0, 0, None)))


def _one_chain(
    log_density: Density, settings: Settings, key: Array, position: Array
) -> ChainArrays:
    """Warm up and sample one chain: arrays (draws, ...)."""
    import blackjax
    import jax

    adaptation = blackjax.window_adaptation(
        blackjax.nuts,
        log_density,
        is_mass_matrix_diagonal=True,
        target_acceptance_rate=settings.target_acceptance,
        adaptation_info_fn=lambda *_: None,
        max_num_doublings=LARGEST_DEPTH,
    )
    warm_key, key = jax.random.split(key)
    (state, tuned), _ = adaptation.run(warm_key, position, settings.warmup)
    kernel = blackjax.nuts.build_kernel()

    def step(state: HMCState, key: Array) -> tuple[HMCState, ChainArrays]:
        metric = tuned["inverse_mass_matrix"]
        state, info = kernel(key, state, log_density, tuned["step_size"], metric, LARGEST_DEPTH)
        return state, {
            "position": state.position,
            "lp": state.logdensity,
            "diverging": info.is_divergent,
            "energy": info.energy,
            "tree_depth": info.num_trajectory_expansions,
            "n_steps": info.num_integration_steps,
            "acceptance_rate": info.acceptance_rate,
        }

    return jax.lax.scan(step, state, jax.random.split(key, settings.draws))[1]


def _log_density(
    function: TracedFunction, prior: Density | None
) -> Callable[[Array, Given, Own], Array]:
    """w (d,), what is given, and a chain's own -> log density."""
    import jax
    import jax.numpy as jnp

    def density(w: Array, given: Given, own: Own) -> Array:
        # Written out for one vector: d x d, and no matrix product for vmap to batch.
        z = own.z_hat + (own.a * w).sum(axis=1)
        jacobian = (jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)).sum()
        theta = given.low + given.width * jax.nn.sigmoid(z)
        value = own.relative(function, given.data, theta) + jacobian
        value = value + (0.0 if prior is None else prior(theta))
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    return density


# Likelihoods that compiled programs may call, by number: the programs outlive them.
_CALLABLE: dict[int, Likelihood] = {}


@contextmanager
def _on_host(like: Likelihood) -> Iterator[int]:
    """A number under which compiled code finds this likelihood, for as long as it samples."""
    number = next(_NUMBERS)
    _CALLABLE[number] = like
    try:
        yield number
    finally:
        del _CALLABLE[number]


_NUMBERS = itertools.count()


@dataclass(frozen=True)
class _Called:
    """A likelihood that is not written in JAX, called from it: value and gradient from one call
    back to NumPy. `data` is its number among those that can be called."""

    d: int

    def __call__(self, data: Array, theta: Array, group: Array) -> Array:
        import jax.numpy as jnp

        return self.relative(data, theta, group, jnp.float32(0), jnp.float32(0))

    def relative(
        self, number: Array, theta: Array, group: Array, peak: Array, rest: Array
    ) -> Array:
        """l(theta) - l_max; l_max, in two parts, is subtracted in float64, before float32 could
        lose anything."""
        import jax
        import jax.numpy as jnp

        shapes = (
            jax.ShapeDtypeStruct((), jnp.float32),
            jax.ShapeDtypeStruct((self.d,), jnp.float32),
        )

        def both(*arguments: Array) -> tuple[Array, Array]:
            return jax.pure_callback(_call_back, shapes, *arguments, vmap_method="expand_dims")

        @jax.custom_vjp
        def value(theta: Array, number: Array, group: Array, peak: Array, rest: Array) -> Array:
            return both(theta, number, group, peak, rest)[0]

        def backward(gradient: Array, upstream: Array) -> tuple[Array | None, ...]:
            return upstream * gradient, None, None, None, None

        value.defvjp(both, backward)
        return value(theta, number, group, peak, rest)


def _call_back(
    theta: Array, number: Array, group: Array, peak: Array, rest: Array
) -> tuple[np.ndarray, np.ndarray]:
    """Values and gradients of all chains at once; arrays may have a leading axis of chains."""
    d, lead = np.shape(theta)[-1], np.shape(theta)[:-1]
    rows = np.asarray(theta, dtype=float).reshape(-1, d)
    of, high, low = (np.broadcast_to(a, lead).ravel() for a in (group, peak, rest))
    like = _CALLABLE[int(np.ravel(number)[0])]
    value, gradient = like.pairs_gradient(rows, of.astype(np.int64))
    usable = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
    value = np.where(usable, value - high.astype(float) - low.astype(float), -np.inf)
    gradient = np.where(usable[:, None], gradient, 0.0)
    return (
        value.reshape(lead).astype(np.float32),
        gradient.reshape(*lead, d).astype(np.float32),
    )


def _require_usable(log_density: Array) -> None:
    """The density where chains start is a finite scalar; else say so now."""
    value = np.asarray(log_density)
    if value.shape != ():
        raise DomainError(f"prior must return a scalar log density; got shape {value.shape}.")
    if not np.isfinite(value):
        raise DomainError(
            "The log posterior is not finite at the maximum of the likelihood; is the prior's "
            "support the box?"
        )
