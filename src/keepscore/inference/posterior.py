"""Posterior draws by NUTS, from an exact or a surrogate likelihood.

The box becomes all of R^d by a logit, centred and whitened at the maximum of the likelihood:

    theta = low + (high - low) sigmoid(z),    z = z_hat + A w,    A A' = (-Hessian in z)^-1
    log density of w = l(theta) - l_max + log prior(theta) + sum log sigmoid(z)(1 - sigmoid(z))

A is d x d, computed once in NumPy, so the sampler itself needs only a diagonal mass matrix (jitted
code here holds no factorisation). All chains advance together: a likelihood written in JAX is
traced; any other is called from JAX, with its gradient, once for all chains a leapfrog step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from keepscore.checks import Floats, require_count
from keepscore.errors import DomainError, DtypeError, KeepscoreWarning
from keepscore.inference.likelihood import Likelihood, require_likelihood
from keepscore.inference.search import make_positive
from keepscore.inference.start import Maximum, maximise
from keepscore.space import Region, Space

LARGEST_RHAT = 1.01
SMALLEST_ESS = 400

Density = Callable[[Any], Any]


def posterior(
    like: Likelihood,
    prior: Density | None = None,
    seed: int = 0,
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 500,
    region: Region = "base",
    target_acceptance: float = 0.85,
) -> Any:
    """Draws from the posterior of one group, as an ArviZ object (InferenceData or DataTree).

    `prior` is the log density of the working parameters theta (d,), up to a constant, written in
    JAX; None is uniform on the box. The object holds each parameter raw and working, the group's
    log-likelihood at every draw, and sampler statistics. Poor mixing is warned about, loudly.
    """
    require_likelihood(like)
    if like.group_count != 1:
        raise DomainError(
            f"A posterior is of one group; this likelihood has {like.group_count}. Take one with "
            "keepscore.inference.select(like, i)."
        )
    if prior is not None and not callable(prior):
        raise DtypeError(
            "prior must be None (uniform on the box) or a function: theta (d,) -> log density."
        )
    for value, name, least in ((draws, "draws", 4), (chains, "chains", 1), (warmup, "warmup", 20)):
        require_count(value, name, least)
    found = maximise(like, region)
    chart = _Chart(like.space, found)
    density = _log_density(like, prior, chart, float(found.value[0]))
    _require_usable(density, like.space.d)
    rng = np.random.default_rng(seed)
    start = rng.standard_normal((chains, like.space.d))
    sampled = _nuts(density, start, int(rng.integers(2**31)), draws, warmup, target_acceptance)
    theta = chart.theta(sampled.pop("position").astype(float))
    return _to_arviz(like, theta, sampled, seed, "uniform on the box" if prior is None else "given")


class _Chart:
    """w in R^d to theta in the box, and back to nothing: only this direction is needed."""

    def __init__(self, space: Space, found: Maximum) -> None:
        low, high = space.box(found.region)
        self.low, self.width = low, high - low
        share = np.clip((found.theta[0] - low) / self.width, 0.02, 0.98)
        self.z_hat = np.log(share) - np.log1p(-share)
        # d theta/dz = width s (1 - s); the Jacobian's own curvature, 2 s (1 - s), keeps A finite.
        slope = self.width * share * (1 - share)
        curvature = found.curvature[0] * np.outer(slope, slope) + np.diag(2 * share * (1 - share))
        self.a = np.linalg.cholesky(np.linalg.inv(make_positive(curvature[None])[0]))

    def theta(self, w: Floats) -> Floats:
        """Draws (..., d) of w as theta."""
        z = self.z_hat + w @ self.a.T
        return self.low + self.width * (0.5 + 0.5 * np.tanh(z / 2))

    def traced(self, w: Any) -> tuple[Any, Any]:
        """theta (d,) and the log Jacobian (up to a constant), in JAX."""
        import jax

        # Written out for one vector: d x d, and no matrix product for vmap to batch.
        z = self.z_hat + (self.a * w).sum(axis=1)
        jacobian = (jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)).sum()
        return self.low + self.width * jax.nn.sigmoid(z), jacobian


def _log_density(
    like: Likelihood, prior: Density | None, chart: _Chart, reference: float
) -> Density:
    import jax.numpy as jnp

    traced = like.traceable
    if traced is None:
        called = _called_from_jax(like, reference)
    else:
        called = lambda theta: traced(theta, 0) - reference  # noqa: E731

    def density(w: Any) -> Any:
        theta, jacobian = chart.traced(w)
        value = called(theta) + jacobian + (0.0 if prior is None else prior(theta))
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    return density


def _called_from_jax(like: Likelihood, reference: float) -> Density:
    """l(theta) - reference as a JAX function: value and gradient from one call back to NumPy.

    The reference (l at its maximum) is subtracted in float64; float32 then loses nothing.
    """
    import jax
    import jax.numpy as jnp

    d = like.space.d

    def on_host(theta: Any) -> tuple[np.ndarray, np.ndarray]:
        rows = np.asarray(theta, dtype=float).reshape(-1, d)
        value, gradient = like.pairs_gradient(rows, np.zeros(len(rows), dtype=np.int64))
        usable = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
        value = np.where(usable, value - reference, -np.inf)
        gradient = np.where(usable[:, None], gradient, 0.0)
        lead = np.shape(theta)[:-1]
        return (
            value.reshape(lead).astype(np.float32),
            gradient.reshape(*lead, d).astype(np.float32),
        )

    def both(theta: Any) -> tuple[Any, Any]:
        shapes = (
            jax.ShapeDtypeStruct((), jnp.float32),
            jax.ShapeDtypeStruct((d,), jnp.float32),
        )
        return jax.pure_callback(on_host, shapes, theta, vmap_method="expand_dims")

    @jax.custom_vjp
    def value(theta: Any) -> Any:
        return both(theta)[0]

    value.defvjp(both, lambda gradient, upstream: (upstream * gradient,))
    return value


def _nuts(
    density: Density, start: Floats, seed: int, draws: int, warmup: int, target: float
) -> dict[str, np.ndarray]:
    """Warm up and sample all chains together; arrays (chains, draws, ...)."""
    import blackjax
    import jax
    import jax.numpy as jnp

    adaptation = blackjax.window_adaptation(
        blackjax.nuts,
        density,
        is_mass_matrix_diagonal=True,
        target_acceptance_rate=target,
        adaptation_info_fn=lambda *_: None,
    )
    kernel = blackjax.nuts.build_kernel()

    def one_chain(key: Any, position: Any) -> dict[str, Any]:
        warm_key, key = jax.random.split(key)
        (state, tuned), _ = adaptation.run(warm_key, position, warmup)

        def step(state: Any, key: Any) -> tuple[Any, dict[str, Any]]:
            state, info = kernel(
                key, state, density, tuned["step_size"], tuned["inverse_mass_matrix"]
            )
            return state, {
                "position": state.position,
                "lp": state.logdensity,
                "diverging": info.is_divergent,
                "energy": info.energy,
                "tree_depth": info.num_trajectory_expansions,
                "n_steps": info.num_integration_steps,
                "acceptance_rate": info.acceptance_rate,
            }

        return jax.lax.scan(step, state, jax.random.split(key, draws))[1]

    keys = jax.random.split(jax.random.key(seed), len(start))
    sampled = jax.jit(jax.vmap(one_chain))(keys, jnp.asarray(start, dtype=jnp.float32))
    return {name: np.asarray(array) for name, array in sampled.items()}


def _to_arviz(
    like: Likelihood, theta: Floats, stats: dict[str, np.ndarray], seed: int, prior: str
) -> Any:
    az = _arviz()
    space, raw = like.space, like.space.to_raw(theta)
    draws = {p.name: raw[..., k] for k, p in enumerate(space.parameters)}
    draws |= {p.working_name: theta[..., k] for k, p in enumerate(space.parameters)}
    flat = theta.reshape(-1, space.d)
    value = like.pairs(flat, np.zeros(len(flat), dtype=np.int64)).reshape(theta.shape[:2])
    groups = {
        "posterior": draws,
        "sample_stats": stats,
        "log_likelihood": {"group": np.asarray(value, dtype=float)},
    }
    # ArviZ 0.x takes groups as keywords and gives InferenceData; 1.x one mapping, a DataTree.
    result = az.from_dict(**groups) if hasattr(az, "InferenceData") else az.from_dict(groups)
    checked = list(space.working_names)
    rhat, ess = az.rhat(result, var_names=checked), az.ess(result, var_names=checked)
    worst = max(float(rhat[name]) for name in checked)
    fewest = min(float(ess[name]) for name in checked)
    diverging = int(stats["diverging"].sum())
    result.posterior.attrs.update(
        inference_library="blackjax",
        likelihood=like.kind,
        prior=prior,
        seed=seed,
        largest_rhat=worst,
        smallest_ess=fewest,
        divergences=diverging,
    )
    _warn_poor_mixing(worst, fewest, diverging, theta.shape[0])
    return result


def _warn_poor_mixing(rhat: float, ess: float, diverging: int, chains: int) -> None:
    faults = []
    if chains > 1 and not rhat <= LARGEST_RHAT:
        faults.append(f"R-hat is {rhat:.3f} (above {LARGEST_RHAT})")
    if not ess >= SMALLEST_ESS:
        faults.append(f"the effective sample size is {ess:.0f} (below {SMALLEST_ESS})")
    if diverging:
        faults.append(f"{diverging} transition(s) diverged")
    if faults:
        warnings.warn(
            f"DO NOT TRUST these draws yet: {'; '.join(faults)}. Use more draws or warm-up, or "
            "look at the likelihood surface.",
            KeepscoreWarning,
            stacklevel=4,
        )


def _require_usable(density: Density, d: int) -> None:
    """The density traces, is a scalar, and is finite where sampling starts; else say so now."""
    import jax.numpy as jnp

    value = np.asarray(density(jnp.zeros(d, dtype=jnp.float32)))
    if value.shape != ():
        raise DomainError(f"prior must return a scalar log density; got shape {value.shape}.")
    if not np.isfinite(value):
        raise DomainError(
            "The log posterior is not finite at the maximum of the likelihood; is the prior's "
            "support the box?"
        )


def _arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # its notice of the coming 1.0
        import arviz
    return arviz
