"""A model from a NumPyro program.

    def program(n=20):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("rows", n):
            numpyro.sample("x", dist.Normal(mean, 1))

    model = ks.models.from_numpyro(program, space=space, observed="x")

The sites named in the space are the parameters phi = phi(theta), in raw units; their own priors are
not used. The site `observed` is the data x; all other random sites are latent, z. One run of the
program with phi held gives z and x, and

    log p(z, x | phi) = sum over latent and observed sites of their log densities

Without latent sites this is the exact log-likelihood, and its derivative the exact score. With them
log p(x | phi) is an integral without a known value, but the *joint score*

    d log p(z, x | phi(theta)) / d theta    at the z and x that were drawn, held still

has E[joint score | x] = score, which is what training needs. Discrete latent sites are no obstacle:
only densities are differentiated, never draws. What would break this is refused: a `Delta` site (it
hides a dependence on phi in a value that is held still; `numpyro.deterministic` is computed anew),
plates that subsample and scaled sites (an estimate of a density is none).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats, require_name, require_package
from keepscore.errors import DomainError, DtypeError, unknown_name
from keepscore.models.base import Symmetry
from keepscore.models.from_functions import FunctionModel, from_functions
from keepscore.space import Space

if TYPE_CHECKING:
    from jax import Array

FEWEST_ROWS = 64  # of a compiled program: fewer are filled up


@dataclass(frozen=True, eq=False)
class Program:
    """A NumPyro program, its arguments, and how theta becomes its parameters."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    settings: dict[str, Any]
    space: Space
    observed: str
    jit: bool

    @property
    def written(self) -> Any:
        """What a user wrote: the function with its arguments, by which a model is known."""
        return functools.partial(self.function, *self.arguments, **self.settings)

    def held(self, theta: Array | Floats) -> dict[str, Array]:
        """phi at one working theta (d,), by name."""
        import jax.numpy as jnp

        values = {}
        for k, p in enumerate(self.space.parameters):
            moved = jnp.exp(theta[k]) if p.transform == "log" else theta[k]
            values[p.name] = moved + p.shift
        return values

    def sites(self, key: Array, values: Mapping[str, Any]) -> dict[str, Any]:
        """The sites of one run: some have a given value, the others are drawn."""
        from numpyro import handlers

        held = handlers.substitute(handlers.seed(self.function, key), data=dict(values))
        return handlers.trace(held).get_trace(*self.arguments, **self.settings)

    def random_sites(self, sites: Mapping[str, Any]) -> dict[str, Any]:
        """Those with a density that counts: no parameters, plates or deterministic sites."""
        return {
            name: site
            for name, site in sites.items()
            if site["type"] == "sample" and name not in self.space.names
        }

    def log_density(self, theta: Array, drawn: Mapping[str, Any]) -> Array:
        """log p(z, x | phi(theta)) of what was drawn, at one theta."""
        import jax

        # All random sites have values, so this key draws nothing that counts.
        sites = self.sites(jax.random.key(0), {**drawn, **self.held(theta)})
        terms = [
            site["fn"].log_prob(site["value"]).sum() for site in self.random_sites(sites).values()
        ]
        return functools.reduce(lambda a, b: a + b, terms)


@dataclass(frozen=True, eq=False)
class Simulation:
    """theta (n, d), rng -> x, or (x, joint score)."""

    program: Program
    with_score: bool = False

    @property
    def written(self) -> Any:
        return self.program.written

    def __call__(self, theta: Floats, rng: np.random.Generator) -> Any:
        import jax

        bits = rng.integers(0, 2**32, (len(theta), 2), dtype=np.uint32)
        with jax.enable_x64(True):
            found = _of_rows(_compiled(self), len(theta), theta, bits)
            return tuple(found) if self.with_score else found

    def one(self, theta: Array, bits: Array) -> Any:
        import jax

        program = self.program
        sites = program.sites(jax.random.wrap_key_data(bits), program.held(theta))
        drawn = {name: site["value"] for name, site in program.random_sites(sites).items()}
        x = drawn[program.observed]
        if not self.with_score:
            return x
        return x, jax.grad(program.log_density)(theta, jax.lax.stop_gradient(drawn))


@dataclass(frozen=True, eq=False)
class LogProb:
    """theta (n, d), x -> log p(x | theta) (n,), or its gradient (n, d); no site is latent."""

    program: Program
    gradient: bool = False

    @property
    def written(self) -> Any:
        return self.program.written

    def __call__(self, theta: Floats, x: NDArray[Any]) -> Any:
        return _of_rows(_compiled(self), len(theta), theta, x)

    def one(self, theta: Array, x: Array) -> Any:
        import jax

        function = jax.grad(self.program.log_density) if self.gradient else self.program.log_density
        return function(theta, {self.program.observed: x})


@functools.lru_cache(maxsize=64)
def _compiled(function: Simulation | LogProb) -> Callable[..., Any]:
    import jax

    rows = jax.vmap(function.one)
    return jax.jit(rows) if function.program.jit else rows


def _of_rows(function: Callable[..., Any], n: int, *arrays: Any) -> Any:
    """A function of rows on a power of two of them, the last repeated: few compilations."""
    import jax

    if any(isinstance(a, jax.core.Tracer) for a in arrays):
        return function(*arrays)
    more = max(FEWEST_ROWS, 1 << (n - 1).bit_length()) - n
    padded = [np.concatenate([a, np.repeat(np.asarray(a)[-1:], more, axis=0)]) for a in arrays]
    return jax.tree.map(lambda found: np.asarray(found)[:n], function(*padded))


def from_numpyro(
    program: Callable[..., Any],
    arguments: Sequence[Any] = (),
    *,
    space: Space,
    observed: str = "x",
    settings: Mapping[str, Any] | None = None,
    name: str = "numpyro program",
    jit: bool = True,
    declares: Sequence[Symmetry | str] = (),
) -> FunctionModel:
    """A model from a NumPyro program; needs the extra `numpyro`.

    Args:
        program: The NumPyro program. It is run as `program(*arguments, **settings)` and must draw
            the site `observed` itself (leave its `obs=` at None).
        arguments: Positional arguments of the program: sizes, covariates.
        space: Its parameters are scalar sites of the program, by name, in raw units.
        observed: The name of the site that is the data.
        settings: Keyword arguments of the program.
        name: The name of the model.
        jit: Compile the program. Turn it off for a program with several matrix factorisations,
            on which compiled JAX programs can stall on a CPU.
        declares: Symmetries, and at most one structure, as in `from_functions`.

    Returns:
        A model. Without latent sites it has an exact likelihood and score (score_kind "exact"),
        otherwise a simulator with a joint score ("joint").

    Raises:
        MissingError: numpyro is not installed, or the program lacks a site.
        DomainError: a site cannot be differentiated, or a parameter is not a scalar.

    Example:
        >>> import keepscore as ks, numpyro, numpyro.distributions as dist
        >>> def program():
        ...     mean = numpyro.sample("mean", dist.Normal(0, 1))
        ...     numpyro.sample("x", dist.Normal(mean, 1).expand([5]).to_event(1))
        >>> space = ks.Space([ks.Parameter("mean", -1, 1, "identity")])
        >>> model = ks.models.from_numpyro(program, space=space, observed="x")
        >>> model.x_shape, model.score_kind
        ((5,), 'exact')
    """
    dist = require_package("numpyro.distributions", "from_numpyro", "numpyro")
    if not callable(program):
        raise DtypeError(f"program must be a function; got {program!r}.")
    if not isinstance(space, Space):
        raise DtypeError(f"space must be a keepscore.Space; got {type(space).__name__}.")
    require_name(observed, "observed")
    whole = Program(program, tuple(arguments), dict(settings or {}), space, observed, bool(jit))
    sites = _first_run(whole)
    random = whole.random_sites(sites)
    _require_parameters(space, sites)
    if observed not in random:
        raise unknown_name("site (observed=)", observed, random)
    for site_name, site in random.items():
        base = site["fn"]
        while hasattr(base, "base_dist"):
            base = base.base_dist
        if isinstance(base, dist.Delta):
            raise DomainError(
                f"The site {site_name!r} is a Delta, which has no density to differentiate. Use "
                "numpyro.deterministic for what is computed."
            )
        if site.get("scale") is not None:
            raise DomainError(f"The site {site_name!r} is scaled or subsampled: no exact density.")
        if site["is_observed"] and site_name == observed:
            raise DomainError(f"The site {observed!r} has its data already: leave obs= at None.")
    latent = [n for n, site in random.items() if n != observed and not site["is_observed"]]
    value = sites[observed]["value"]
    common: dict[str, Any] = {"name": name, "x_dtype": np.dtype(value.dtype), "declares": declares}
    simulate = Simulation(whole)
    if latent:
        joint = Simulation(whole, with_score=True)
        common["simulate_with_joint_score"] = joint
    else:
        common |= {"log_prob": LogProb(whole), "score": LogProb(whole, gradient=True)}
    return from_functions(space, value.shape, simulate=simulate, **common)


def _first_run(program: Program) -> dict[str, Any]:
    """The sites of one run in the middle of the space, or an error that names the fault."""
    import jax

    low, high = program.space.box()
    with jax.enable_x64(True):
        try:
            middle = np.asarray((low + high) / 2)
            return program.sites(jax.random.key(0), program.held(middle))
        except Exception as error:  # whatever a foreign program raises
            reason = f"{type(error).__name__}: {error}"
            raise DomainError(
                f"The program failed in the middle of the space: {reason}."
            ) from error


def _require_parameters(space: Space, sites: Mapping[str, Any]) -> None:
    for parameter in space.names:
        if parameter not in sites:
            raise unknown_name("site (a parameter of the space)", parameter, sites)
        shape = tuple(getattr(sites[parameter].get("fn"), "batch_shape", ()) or ())
        shape += tuple(getattr(sites[parameter].get("fn"), "event_shape", ()) or ())
        if shape:
            raise DomainError(
                f"The site {parameter!r} has shape {shape}; parameters of a space are scalars. "
                "Draw each entry at a site of its own."
            )
