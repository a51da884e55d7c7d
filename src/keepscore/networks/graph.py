"""A network for epidemics on a known graph: what each person did, and among whom, counted.

x (T, K) holds the states of K people, and w_ij >= 0, known, is the weight of j on i. With the
exposure e_it = sum_j w_ij x_jt of person i at time t, and hat functions psi_1, ..., psi_G on a grid
over the exposures (piecewise linear, psi_g is 1 at knot g and 0 at the others, they sum to 1),

    u_it    = (1 - x_it, x_it) (x) (psi_1(e_it), ..., psi_G(e_it))                2 G numbers
    S(x)    = sum over t and i of  u_it (x) u_i,t+1                               4 G^2 numbers
    h(x, theta) = S(x) . eta(theta) - log p(x)         eta learned, p(x) as in `exponential`

S counts, over all people and steps, who was and became what, under which exposure before and after
(softly: a count is shared between neighbouring knots). So h is a sum over people and transitions of
one function g(x_it, x_i,t+1, e_it, e_i,t+1; theta), the form of the log-likelihood of a chain whose
people move independently between observations given the exposures they start and end with. The
exposure after carries what is not independent: who fell ill together with their neighbours.

S has no weights and is the same for every person, so few simulations go far; its size, and the cost
of the head, depend neither on K nor on T. Knots lie at the squares of an even grid, closer together
where exposure is low, since there a little more of it changes most.

Where the times of observation differ (`markov`), a step counts by its gap s_t too, in D cubic
splines phi of log s_t:

    S(x)    = sum over t of  phi(s_t) (x) sum over i of  u_it (x) u_i,t+1         4 G^2 D numbers

Splines, not hats: where all gaps are the same, an error there is not averaged out.

And where each data set has a graph of its own, w is a part of x, and exposures are in units of the
largest one that the training data could have; they take any value then, so splines again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike, NDArray

from keepscore.errors import DomainError, MissingError, ShapeError, unknown_name
from keepscore.models.base import Model
from keepscore.networks.exponential_family import ExponentialFamily, ExponentialFamilyNetwork
from keepscore.networks.layers import Source
from keepscore.networks.markov import SHORTEST, visits
from keepscore.networks.safetensors_io import hollow

NODES_PER_PERSON = 2
SIZES: dict[str, dict[str, Any]] = {
    "3k": {"levels": 3, "natural": (32, 32), "nodes": 64},
    "10k": {"levels": 5, "natural": (56, 56), "nodes": 64},
    "30k": {"levels": 8, "natural": (80, 80), "nodes": 64},
}
TIMED_SIZES: dict[str, dict[str, Any]] = {
    "6k": {"levels": 3, "gaps": 4, "natural": (32, 32), "nodes": 64},
    "20k": {"levels": 4, "gaps": 6, "natural": (48, 48), "nodes": 64},
}
GRAPHS_SIZES: dict[str, dict[str, Any]] = {
    "10k": {"levels": 6, "natural": (48, 48), "nodes": 64},
}
LONGEST = 6.0  # mean gaps: the last knot


class GraphNetwork(ExponentialFamilyNetwork):
    """h(x, theta) for x (T, K) of 0 and 1, people on a graph; see the top of this file.

    `exposure` is the matrix of weights over its largest row sum, a constant: e is then in [0, 1].
    """

    exposure: NDArray[np.float32]
    family: ExponentialFamily
    levels: int = eqx.field(static=True)

    constants: ClassVar = ("exposure",)  # not trained, but saved with the weights
    x_scale: ClassVar = "none"  # states are 0 and 1 and stay so

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        levels: int,
        natural: Sequence[int],
        nodes: int,
        weights: ArrayLike | None = None,
    ) -> None:
        _require(x_shape, 0, rng, weights, levels)
        self.exposure = _shares(weights, x_shape[1])
        self.levels = levels
        self.family = ExponentialFamily(4 * levels**2, d, natural, nodes, rng)

    def features(self, x: Float[Array, "b T K"]) -> Float[Array, "b f"]:
        b, steps, nodes = x.shape
        counts = soft_counts(x, self.exposure, self.levels).reshape(b, -1)
        # A sum of so many terms varies by about the root of their number.
        return self.family.features(counts / np.sqrt((steps - 1) * nodes))

    def settings(self) -> dict[str, Any]:
        """Layer widths: with x_shape, d and the constant, all that the network is."""
        widths = {k: v for k, v in self.family.settings().items() if k != "statistics"}
        return {"levels": self.levels, **widths}


class TimedGraphNetwork(ExponentialFamilyNetwork):
    """h(x, theta) for x (T, 1 + K): a time and the states of K people in each row, or NaN."""

    exposure: NDArray[np.float32]
    family: ExponentialFamily
    levels: int = eqx.field(static=True)
    gaps: int = eqx.field(static=True)

    constants: ClassVar = ("exposure",)
    x_scale: ClassVar = "times"
    takes_missing: ClassVar = True
    whole_rows: ClassVar = True

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        levels: int,
        gaps: int,
        natural: Sequence[int],
        nodes: int,
        weights: ArrayLike | None = None,
    ) -> None:
        _require(x_shape, 1, rng, weights, levels)
        if gaps < 4:
            raise DomainError(f"gaps must be 4 or more; got {gaps}.")
        self.exposure = _shares(weights, x_shape[1] - 1)
        self.levels, self.gaps = levels, gaps
        self.family = ExponentialFamily(4 * levels**2 * gaps, d, natural, nodes, rng)

    def features(self, x: Float[Array, "b T m"]) -> Float[Array, "b f"]:
        states, gap, both = visits(x)
        b, steps, nodes = states.shape
        seen = by_exposure(states, self.exposure, self.levels)
        counts = jnp.einsum("btkf,btkg->btfg", seen[:, :-1], seen[:, 1:])
        place = jnp.log(gap / SHORTEST + 1.0) / np.log(LONGEST / SHORTEST + 1.0)
        phi = both[..., None] * splines(place, self.gaps)
        found = jnp.einsum("btfg,bth->bfgh", counts, phi).reshape(b, -1)
        return self.family.features(found / np.sqrt((steps - 1) * nodes))

    def settings(self) -> dict[str, Any]:
        """Layer widths: with x_shape, d and the constant, all that the network is."""
        widths = {k: v for k, v in self.family.settings().items() if k != "statistics"}
        return {"levels": self.levels, "gaps": self.gaps, **widths}


class GraphsNetwork(ExponentialFamilyNetwork):
    """h(x, theta) for x (T + K, K): T rows of states of K people, and K rows of weights."""

    family: ExponentialFamily
    levels: int = eqx.field(static=True)

    x_scale: ClassVar = "graphs"

    def __init__(
        self,
        x_shape: Sequence[int],
        d: int,
        rng: Source,
        levels: int,
        natural: Sequence[int],
        nodes: int,
    ) -> None:
        if len(x_shape) != 2 or x_shape[0] < x_shape[1] + 2:
            raise ShapeError(f"A graphs network needs x (T + K, K), T >= 2; got {tuple(x_shape)}.")
        if levels < 4:
            raise DomainError(f"levels must be 4 or more; got {levels}.")
        self.levels = levels
        self.family = ExponentialFamily(4 * levels**2, d, natural, nodes, rng)

    def features(self, x: Float[Array, "b r K"]) -> Float[Array, "b f"]:
        b, rows, people = x.shape
        steps = rows - people
        # States come in the units of the weights.
        states, weights = (x[:, :steps] > 0.0).astype(x.dtype), x[:, steps:]
        exposure = jnp.einsum("btj,bij->bti", states, weights)
        level = splines(jnp.sqrt(jnp.maximum(exposure, 0.0)), self.levels)
        counts = step_counts(by_state(states, level))
        return self.family.features(counts.reshape(b, -1) / np.sqrt((steps - 1) * people))

    def settings(self) -> dict[str, Any]:
        """Layer widths: with x_shape and d, all that the network is."""
        widths = {k: v for k, v in self.family.settings().items() if k != "statistics"}
        return {"levels": self.levels, **widths}


@dataclass(frozen=True, eq=False)
class GraphNetworkMaker:
    """Makes a graph network of one size for one graph, from a key; as `ks.train` takes it."""

    weights: NDArray[np.float64]
    size: str
    x_shape: tuple[int, ...]
    d: int
    timed: bool = False

    def __call__(self, key: jax.Array) -> GraphNetwork | TimedGraphNetwork:
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        widths = dict((TIMED_SIZES if self.timed else SIZES)[self.size])
        # Likelihoods of more people are narrower, by 1 / sqrt(K) in each of two parameters, and the
        # nodes under the evidence have to be as close.
        widths["nodes"] = max(widths["nodes"], NODES_PER_PERSON * self.x_shape[1])
        build = TimedGraphNetwork if self.timed else GraphNetwork
        return build(self.x_shape, self.d, rng, **widths, weights=self.weights)


def graph_network(model: Model, size: str | None = None) -> GraphNetworkMaker:
    """What to pass as `network` to `ks.train`, for a model of people on a graph such as SIS.

    The model has `weights` (K, K), x_shape (T, K) and a space; size is one of `SIZES`, "10k" by
    default. Where times differ ("timed-markov"), x_shape is (T, 1 + K), and size one of
    `TIMED_SIZES`, "20k" by default.
    """
    timed = model.structure == "timed-markov"
    sizes = TIMED_SIZES if timed else SIZES
    if size is None:
        size = "20k" if timed else "10k"
    if size not in sizes:
        raise unknown_name("size of the graph network", size, sizes)
    weights = getattr(model, "weights", None)
    if weights is None:
        raise MissingError(
            f"A graph network needs the weights of the graph, model.weights (K, K); "
            f"{type(model).__name__} has none."
        )
    shape = tuple(model.x_shape)
    return GraphNetworkMaker(np.asarray(weights), size, shape, model.space.d, timed)


def soft_counts(
    x: Float[Array, "b T K"], exposure: Float[Array | np.ndarray, "K K"], levels: int
) -> Float[Array, "b m m"]:
    """S(x): rows are (state, exposure) before, columns the same after; m = 2 levels."""
    return step_counts(by_exposure(x, exposure, levels))


def step_counts(seen: Float[Array, "b T K m"]) -> Float[Array, "b m m"]:
    """The sum over steps and people of u before (x) u after."""
    b, _, _, m = seen.shape
    before, after = (part.reshape(b, -1, m) for part in (seen[:, :-1], seen[:, 1:]))
    return jnp.einsum("bnf,bng->bfg", before, after)


def by_exposure(
    x: Float[Array, "b T K"], exposure: Float[Array | np.ndarray, "K K"], levels: int
) -> Float[Array, "b T K m"]:
    """u: the state of each person and, softly, the level of exposure; m = 2 levels."""
    return by_state(x, hats(jnp.sqrt(jnp.clip(x @ exposure.T, 0.0, 1.0)), levels))


def by_state(x: Float[Array, "b T K"], level: Float[Array, "b T K g"]) -> Float[Array, "b T K m"]:
    """u = (1 - x, x) (x) level."""
    return jnp.concatenate([(1.0 - x)[..., None] * level, x[..., None] * level], axis=-1)


def hats(place: Float[Array, "*n"], count: int) -> Float[Array, "*n count"]:
    """Hat functions at places in [0, 1], with knots at 0, 1 / (count - 1), ..., 1."""
    at = jnp.clip(place, 0.0, 1.0)[..., None] * (count - 1)
    return jax.nn.relu(1.0 - jnp.abs(at - jnp.arange(count)))


def splines(place: Float[Array, "*n"], count: int) -> Float[Array, "*n count"]:
    """Cubic B-splines at places in [0, 1]: all piecewise cubic functions with two derivatives and
    knots at 0, 1 / (count - 3), ..., 1."""
    at = jnp.clip(place, 0.0, 1.0)[..., None] * (count - 3)
    u = jnp.abs(at - jnp.arange(-1, count - 1))
    near, far = 4.0 - 6.0 * u**2 + 3.0 * u**3, jnp.maximum(2.0 - u, 0.0) ** 3
    return jnp.where(u < 1.0, near, far) / 6.0


def _require(
    x_shape: Sequence[int], before: int, rng: Source, weights: ArrayLike | None, levels: int
) -> None:
    """before: columns of x that are no person."""
    if len(x_shape) != 2 or x_shape[0] < 2 or x_shape[1] <= before:
        people = "(T, 1 + K)" if before else "(T, K)"
        raise ShapeError(f"A graph network needs x {people}, T >= 2; got {tuple(x_shape)}.")
    if rng is not None and weights is None:
        raise MissingError(
            "A graph network needs the weights of the graph, which these data do not tell: "
            "network=ks.networks.graph_network(model)."
        )
    if levels < 2:
        raise DomainError(f"levels must be 2 or more; got {levels}.")


def _shares(weights: ArrayLike | None, nodes: int) -> NDArray[np.float32]:
    """The weights over their largest row sum; hollow where a file will fill them in."""
    if weights is None:
        return hollow((nodes, nodes), np.float32)
    matrix = np.asarray(weights, dtype=np.float64)
    if matrix.shape != (nodes, nodes):
        raise ShapeError(f"The graph's weights must be ({nodes}, {nodes}); got {matrix.shape}.")
    if not (np.isfinite(matrix) & (matrix >= 0)).all():
        raise DomainError("The graph's weights must be finite and not negative.")
    largest = matrix.sum(axis=1).max()
    return (matrix / (largest if largest > 0 else 1.0)).astype(np.float32)
