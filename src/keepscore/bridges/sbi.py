"""A bridge to `sbi`: our likelihoods as its potentials, for its samplers and its diagnostics.

sbi works with a potential, the log of an unnormalised posterior as a function of theta,

    potential(theta) = log p(x_1, ..., x_n | theta) + log prior(theta),

written in PyTorch. `to_sbi_potential` makes one from anything that has `given(xs)` (a surrogate, an
exact model) or from a single `Likelihood`. Values and gradients come from the likelihood itself:
nothing is copied into torch, features of x stay computed once, and theta remains the working
parameter. `box_prior` is the uniform prior over the space.

    potential = to_sbi_potential(surrogate, xs)
    posterior = sbi.inference.MCMCPosterior(
        potential, proposal=potential.prior, theta_transform=mcmc_transform(potential.prior)
    )

torch and sbi are imported only here and only when asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from keepscore.checks import require_package
from keepscore.errors import MissingError
from keepscore.likelihood import Likelihood, SourceOfShape
from keepscore.space import Region, Space

if TYPE_CHECKING:
    from torch.distributions import Distribution


def box_prior(space: Space, region: Region = "base", device: str = "cpu") -> Any:
    """sbi's `BoxUniform` over the working parameters of a region of the space."""
    return _bridge().box_uniform(space, region, device)


def to_sbi_potential(
    source: SourceOfShape | Likelihood,
    xs: ArrayLike | None = None,
    *,
    prior: Distribution | None = None,
    device: str = "cpu",
) -> Any:
    """A potential for sbi's posteriors, with gradient, `.x_o`, `.prior`, `.device` and `set_x`.

    source: anything with `given(xs)`, `space` and `x_shape`; then sbi may change the observations
    (`posterior.sample(x=...)`, simulation-based calibration), each of them a group of iid
    observations, or, in sbi's batched sampling, one observation per row. Or a `Likelihood` of one
    group, whose observations are then fixed; xs, the observations it was made from, is what sbi
    shows as `x_o`.
    prior: a torch distribution of theta; by default `box_prior(source.space)`. A space that has a
    prior of its own needs it here, as torch knows it.
    """
    if prior is None and source.space.has_prior:
        raise MissingError(
            "The space has a prior, which sbi cannot read. Pass it as a torch distribution of the "
            "working parameters: prior=..."
        )
    bridge = _bridge()
    prior = bridge.box_uniform(source.space, "base", device) if prior is None else prior
    if not isinstance(source, Likelihood):
        return bridge.AmortizedPotential(source, xs, prior, device)
    if xs is None:
        raise MissingError(
            "A potential from a Likelihood needs the observations it was made from, as a label "
            "for sbi; pass xs, or pass the surrogate or model itself instead of the Likelihood."
        )
    return bridge.FixedPotential(source, xs, prior, device)


def _bridge() -> Any:
    """The module written in torch, or an error that says what to install."""
    for package in ("torch", "sbi"):
        require_package(package, "The bridge to sbi", "sbi")
    return importlib.import_module("keepscore.bridges.sbi_potential")
