"""Epidemics on graphs that differ from data set to data set: a graph stands below the states.

    x = (x_t1, ..., x_tT, w_1, ..., w_K)          x (T + K, K): T rows of states, K rows of weights
    log p(x_t | w, theta)                          that of `sis` on the graph w

The graph is a context (`context`): drawn whatever theta is, known with the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_floats
from keepscore.errors import DomainError, DtypeError, ShapeError
from keepscore.models.base import Model, build, register_wrapper
from keepscore.models.context import (
    Context,
    ContextModel,
    DesignFunction,
    described,
    drawn,
    refuse_function,
)
from keepscore.models.graphs import as_weights, plain_weights
from keepscore.models.sis import SIS

WORD = "graphs"


@final
@dataclass(frozen=True, eq=False)
class Graphs(Context):
    """Graphs that differ; made by `with_graphs`."""

    base: SIS
    law: Floats | DesignFunction  # (G, K, K), drawn from evenly, or a function
    word: ClassVar[str] = WORD
    holes: ClassVar[bool] = False

    @property
    def x_shape(self) -> tuple[int, int]:
        steps, people = self.base.x_shape
        return (steps + people, people)

    @property
    def structure(self) -> str | None:
        return "markov-graphs" if self.base.structure == "markov" else None

    def settings(self) -> dict[str, Any]:
        if isinstance(self.law, np.ndarray):
            return {"graphs": [plain_weights(one) for one in self.law]}
        return {"graphs": described(self.law)}

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Graphs (n, K, K)."""
        if isinstance(self.law, np.ndarray):
            return self.law[rng.integers(len(self.law), size=n)]
        people = self.base.node_count
        return _graphs(drawn(self.law, n, (people, people), rng, WORD))

    def of(self, x: Floats) -> Floats:
        return _graphs(np.ascontiguousarray(x[:, len(self.base.times) :]))

    def at(self, design: Floats) -> SIS:
        return self.base.on_graph(design)

    def data(self, design: Floats, x: Floats) -> Floats:
        return x[:, : len(self.base.times)]

    def place(self, design: Floats, data: NDArray[Any]) -> Floats:
        return np.concatenate([data, np.broadcast_to(design, (len(data), *design.shape))], axis=1)

    def join(self, designs: ArrayLike, data: ArrayLike) -> Floats:
        """Graphs (n, K, K), or (K, K) for all, with states (n, T, K)."""
        graphs, states = as_floats(designs, "graphs"), as_floats(data, "states")
        steps, people = self.base.x_shape
        if graphs.ndim == 2 and states.ndim == 3:
            graphs = np.tile(graphs, (len(states), 1, 1))
        if states.shape[1:] != (steps, people) or graphs.shape != (len(states), people, people):
            raise ShapeError(
                f"Graphs (n, {people}, {people}), or one for all, and states (n, {steps}, "
                f"{people}) make x; got {graphs.shape} and {states.shape}."
            )
        return np.concatenate([states, graphs], axis=1)


def with_graphs(model: SIS, graphs: ArrayLike | DesignFunction) -> ContextModel:
    """The same epidemic on graphs that differ between data sets: x holds states and graph.

    One surrogate then serves graphs that it was not trained on, of as many people. Likelihood and
    score are exact.

    Args:
        model: The epidemic. Its times and its number of people count, not its own graph.
        graphs: The law of the graphs in simulations: weights (G, K, K), one of which is drawn for
            each data set, or a function (n, rng) -> (n, K, K). It says where a surrogate will be
            good, and nothing else.

    Returns:
        A model with the same parameters, and x (T + K, K): T rows of states and K rows of weights.
        `model.join(graphs, states)` makes such x of your own data.

    Raises:
        DtypeError: `model` is no SIS.
        ShapeError: Graphs of another number of people.
        DomainError: Weights that are negative, or of a person on himself.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> epidemic = ks.models.SIS(weights=np.ones((3, 3)), times=[0, 1, 2])
        >>> chain = ks.models.edge_weights(3, [[0, 1], [1, 2]])
        >>> star = ks.models.edge_weights(3, [[0, 1], [0, 2]])
        >>> model = ks.models.with_graphs(epidemic, [chain, star])
        >>> x = model.simulate(model.space.grid(2)[:1], np.random.default_rng(0))
        >>> model.name, x.shape
        ('sis-graphs', (1, 6, 3))
        >>> model.score(model.space.grid(2)[:1], x).shape
        (1, 2)
    """
    if not isinstance(model, SIS):
        raise DtypeError(f"with_graphs takes a ks.models.SIS; got {type(model).__name__}.")
    if isinstance(graphs, type):
        raise DtypeError(f"graphs must be weights or a function, not a class; got {graphs!r}.")
    if callable(graphs):
        return ContextModel(Graphs(model, graphs))
    pool, people = as_floats(graphs, "graphs"), model.node_count
    if pool.ndim != 3 or len(pool) == 0 or pool.shape[1:] != (people, people):
        raise ShapeError(
            f"graphs must be weights (G, {people}, {people}), or a function that draws them; got "
            f"shape {pool.shape}."
        )
    return ContextModel(Graphs(model, np.stack([as_weights(one) for one in pool])))


def _graphs(weights: Floats) -> Floats:
    """The same graphs (n, K, K), if they are graphs."""
    diagonal = np.diagonal(weights, axis1=1, axis2=2)
    bad = ~(np.isfinite(weights) & (weights >= 0)).all(axis=(1, 2)) | (diagonal != 0).any(axis=1)
    if bad.any():
        raise DomainError(
            "A graph has finite weights, none negative, and none of a person on himself; that of "
            f"data set {int(bad.argmax())} is not so."
        )
    return weights


def _rebuilt(base: Mapping[str, Any], graphs: Sequence[Any] | Mapping[str, Any]) -> Model:
    refuse_function(graphs, WORD)
    pool = np.stack([as_weights(one) for one in graphs])
    return with_graphs(build(base), pool)  # type: ignore[arg-type]


register_wrapper(f"-{WORD}", _rebuilt)
