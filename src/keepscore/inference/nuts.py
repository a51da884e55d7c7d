"""NUTS on the box, for one posterior or many at once: charts, density, and all chains together.

The box becomes all of R^d by a logit, centred and whitened at the maximum of the likelihood:

    theta = low + (high - low) sigmoid(z),    z = z_hat + A w,    A A' = (-Hessian in z)^-1
    log density of w = l(theta) - l_max + log prior(theta) + sum log sigmoid(z)(1 - sigmoid(z))

A is d x d, computed once in NumPy, so the sampler itself needs only a diagonal mass matrix (jitted
code here holds no factorisation). Every chain has its own group and chart, and all advance in one
program, compiled once: a likelihood written in JAX is traced; any other is called from JAX, with
its gradient, once for all chains a leapfrog step.

A whitened density needs trajectories of a few steps. They end at 2^7: an improper posterior (a
prior that is no density) then costs minutes and a warning, not for ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from keepscore.checks import Floats
from keepscore.errors import DomainError
from keepscore.inference.bfgs import make_positive
from keepscore.likelihood import Integers, Likelihood, Maximum, Traced
from keepscore.space import Space

LARGEST_DEPTH = 7

Density = Callable[[Any], Any]


@dataclass(frozen=True)
class SpacePrior:
    """The prior of a space as a log density of theta (d,) in JAX, up to a constant. Equal for equal
    spaces, so that what is compiled for one data set serves the next."""

    space: Space

    def __call__(self, theta: Any) -> Any:
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
    reference = found.value[group]
    own = (
        jnp.asarray(charts.z_hat, jnp.float32),
        jnp.asarray(charts.a, jnp.float32),
        jnp.asarray(group, jnp.int32),
        jnp.asarray(reference, jnp.float32),
        # What float32 loses of the reference.
        jnp.asarray(reference - reference.astype(np.float32), jnp.float32),
    )
    rng = np.random.default_rng(seed)
    start = rng.standard_normal((len(group), like.space.d))
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), len(group))
    with _on_host(like) as key:
        traced = like.traceable or Traced(_Called(like.space.d), jnp.int32(key))
        box = (jnp.asarray(charts.low, jnp.float32), jnp.asarray(charts.width, jnp.float32))
        data = (traced.data, box)
        check, run = _programs(traced.function, prior, settings)
        _require_usable(check(data, tuple(a[0] for a in own)))
        sampled = run(keys, jnp.asarray(start, jnp.float32), own, data)
        stats = {name: np.asarray(array) for name, array in sampled.items()}
    return charts.theta(stats.pop("position").astype(float)), stats


@lru_cache(maxsize=32)
def _programs(
    function: Callable[[Any, Any, Any], Any], prior: Density | None, settings: Settings
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(log density where chains start, all chains), compiled once for a likelihood's function: a
    second data set of the same shape pays for its sampling only."""
    import jax
    import jax.numpy as jnp

    density = _log_density(function, prior)

    def check(data: Any, own: Any) -> Any:
        return density(jnp.zeros_like(own[0]), data, *own)

    def chain(key: Any, position: Any, own: Any, data: Any) -> dict[str, Any]:
        return _one_chain(lambda w: density(w, data, *own), settings, key, position)

    return jax.jit(check), jax.jit(jax.vmap(chain, in_axes=(0, 0, 0, None)))


def _one_chain(
    log_density: Callable[[Any], Any], settings: Settings, key: Any, position: Any
) -> dict[str, Any]:
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

    def step(state: Any, key: Any) -> tuple[Any, dict[str, Any]]:
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
    function: Callable[[Any, Any, Any], Any], prior: Density | None
) -> Callable[..., Any]:
    """w (d,), (data, box) and a chain's own z_hat, A, group, reference (in two parts) -> log
    density."""
    import jax
    import jax.numpy as jnp

    def relative(data: Any, theta: Any, group: Any, one: Any, two: Any) -> Any:
        if isinstance(function, _Called):
            return function.relative(data, theta, group, one, two)
        return function(data, theta, group) - one - two

    def density(w: Any, given: Any, z_hat: Any, a: Any, group: Any, one: Any, two: Any) -> Any:
        data, (low, width) = given
        # Written out for one vector: d x d, and no matrix product for vmap to batch.
        z = z_hat + (a * w).sum(axis=1)
        jacobian = (jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)).sum()
        theta = low + width * jax.nn.sigmoid(z)
        value = relative(data, theta, group, one, two) + jacobian
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

    def __call__(self, data: Any, theta: Any, group: Any) -> Any:
        import jax.numpy as jnp

        return self.relative(data, theta, group, jnp.float32(0), jnp.float32(0))

    def relative(self, number: Any, theta: Any, group: Any, one: Any, two: Any) -> Any:
        """l(theta) - reference. The reference (l at its maximum, in two parts) is subtracted in
        float64; float32 then loses nothing."""
        import jax
        import jax.numpy as jnp

        shapes = (
            jax.ShapeDtypeStruct((), jnp.float32),
            jax.ShapeDtypeStruct((self.d,), jnp.float32),
        )

        def both(*arguments: Any) -> tuple[Any, Any]:
            return jax.pure_callback(_call_back, shapes, *arguments, vmap_method="expand_dims")

        @jax.custom_vjp
        def value(theta: Any, number: Any, group: Any, one: Any, two: Any) -> Any:
            return both(theta, number, group, one, two)[0]

        def backward(gradient: Any, upstream: Any) -> tuple[Any, ...]:
            return upstream * gradient, None, None, None, None

        value.defvjp(both, backward)
        return value(theta, number, group, one, two)


def _call_back(
    theta: Any, number: Any, group: Any, one: Any, two: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Values and gradients of all chains at once; arrays may have a leading axis of chains."""
    d, lead = np.shape(theta)[-1], np.shape(theta)[:-1]
    rows = np.asarray(theta, dtype=float).reshape(-1, d)
    of, one, two = (np.broadcast_to(a, lead).ravel() for a in (group, one, two))
    like = _CALLABLE[int(np.ravel(number)[0])]
    value, gradient = like.pairs_gradient(rows, of.astype(np.int64))
    usable = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
    value = np.where(usable, value - one.astype(float) - two.astype(float), -np.inf)
    gradient = np.where(usable[:, None], gradient, 0.0)
    return (
        value.reshape(lead).astype(np.float32),
        gradient.reshape(*lead, d).astype(np.float32),
    )


def _require_usable(found: Any) -> None:
    """The density where chains start is a finite scalar; else say so now."""
    value = np.asarray(found)
    if value.shape != ():
        raise DomainError(f"prior must return a scalar log density; got shape {value.shape}.")
    if not np.isfinite(value):
        raise DomainError(
            "The log posterior is not finite at the maximum of the likelihood; is the prior's "
            "support the box?"
        )
