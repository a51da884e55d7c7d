"""The torch side of the bridge to `sbi` (see sbi.py): an autograd node and two potentials.

The likelihood is computed by NumPy or JAX in float64; torch sees one opaque node whose derivative
is the likelihood's own gradient,

    forward   theta (m, d)   ->  l(theta) (m,)       keeping s = dl/dtheta (m, d)
    backward  g (m,)         ->  g[:, None] * s

so it can be differentiated once, which is what HMC, NUTS and gradient ascent need.

Importing this file imports torch and sbi; nothing else in the package imports it by name.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from sbi.inference.potentials.base_potential import BasePotential
from sbi.utils import BoxUniform
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.distributions import Distribution

from keepscore.checks import Floats
from keepscore.errors import MismatchError, ShapeError
from keepscore.likelihood import Integers, Likelihood, SourceOfShape
from keepscore.space import Region, Space


def box_uniform(space: Space, region: Region, device: str) -> BoxUniform:
    low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in space.box(region))
    return BoxUniform(low, high, device=device)


class LogLikelihood(torch.autograd.Function):
    """l(theta) of a `Likelihood`, row i of theta belonging to group[i]."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, theta: torch.Tensor, like: Likelihood, group: Integers
    ) -> torch.Tensor:
        rows: Floats = theta.detach().cpu().numpy().astype(np.float64)
        if ctx.needs_input_grad[0]:
            value, score = like.pairs_gradient(rows, group)
            ctx.save_for_backward(_as_tensor(score, theta))
        elif like.group_count == 1:
            value = like.surface(rows)[0]
        else:
            value = like.pairs(rows, group)
        return _as_tensor(value, theta)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, g: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (score,) = ctx.saved_tensors
        return g[:, None] * score, None, None


class _LikelihoodPotential(BasePotential):
    """l(theta) + log prior(theta); -inf, without asking the likelihood, where the prior is 0."""

    like: Likelihood | None = None
    _x_o: torch.Tensor | None

    def group(self, rows: int) -> Integers:
        return np.zeros(rows, dtype=np.int64)

    def __call__(self, theta: torch.Tensor, track_gradients: bool = True) -> torch.Tensor:
        theta = torch.atleast_2d(theta).to(self.device)
        with torch.set_grad_enabled(track_gradients):
            log_prior = self.prior.log_prob(theta)
            inside = torch.isfinite(log_prior.detach())
            value = theta.new_full((len(theta),), -torch.inf)
            group = self.group(len(theta))[inside.cpu().numpy()]
            if len(group):
                log_likelihood = LogLikelihood.apply(theta[inside], self._likelihood(), group)
                value[inside] = log_likelihood + log_prior[inside]
            return value

    def _likelihood(self) -> Likelihood:
        if self.like is None:
            raise ValueError("No observed data is available. Use `potential_fn.set_x(x_o)`.")
        return self.like


class FixedPotential(_LikelihoodPotential):
    """The potential of one `Likelihood`: its observations cannot be changed."""

    def __init__(self, like: Likelihood, xs: ArrayLike, prior: Distribution, device: str) -> None:
        if like.group_count != 1:
            raise ShapeError(
                f"A potential needs the likelihood of one group; got {like.group_count} groups. "
                "Pass the surrogate or model itself to let sbi choose the observations."
            )
        self.like = like
        self._label: torch.Tensor | None = None
        super().__init__(prior, torch.as_tensor(np.asarray(xs)), device)

    def set_x(self, x_o: torch.Tensor | None, x_is_iid: bool | None = True) -> None:
        """Accept the observations the likelihood was made from, and no others."""
        super().set_x(x_o, x_is_iid)
        if self._label is None:
            self._label = self._x_o
        elif self._x_o is None or not torch.equal(self._x_o.cpu(), self._label.cpu()):
            self._x_o = self._label
            raise MismatchError(
                "This potential was made from a Likelihood and its observations are fixed; "
                "make it from the surrogate or model itself to evaluate other observations."
            )


class AmortizedPotential(_LikelihoodPotential):
    """The potential of a source of likelihoods: `source.given` is called for each new x_o."""

    def __init__(
        self,
        source: SourceOfShape,
        xs: ArrayLike | None,
        prior: Distribution,
        device: str,
    ) -> None:
        self.source = source
        super().__init__(prior, None if xs is None else torch.as_tensor(np.asarray(xs)), device)

    def set_x(self, x_o: torch.Tensor | None, x_is_iid: bool | None = True) -> None:
        """Observations of one system (n, *x_shape), or, not iid, one for each row of theta."""
        before, before_iid = getattr(self, "_x_o", None), getattr(self, "_x_is_iid", None)
        if x_o is not None:
            x_o = torch.as_tensor(x_o)
            if tuple(x_o.shape) == tuple(self.source.x_shape):
                x_o = x_o[None]
        super().set_x(x_o, x_is_iid)
        if self._x_o is None:
            self.like = None
            return
        # sbi sets x before every call; what depends on x alone is computed only when it changes.
        same = before is not None and before_iid == x_is_iid and torch.equal(before, self._x_o)
        if not same or self.like is None:
            x = torch.as_tensor(x_o).detach().cpu().numpy()
            self.like = self.source.given(x if x_is_iid else x[:, None])

    def group(self, rows: int) -> Integers:
        if self.x_is_iid:
            return super().group(rows)
        if rows != self._likelihood().group_count:
            raise ShapeError(
                "In batched sampling each row of theta has its own observation: "
                f"{self._likelihood().group_count} rows are needed; got {rows}."
            )
        return np.arange(rows)


def _as_tensor(values: Floats, like: torch.Tensor) -> torch.Tensor:
    # A copy: JAX hands out read-only arrays, which torch warns about sharing.
    return torch.tensor(np.array(values), dtype=like.dtype, device=like.device)
