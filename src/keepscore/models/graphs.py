"""Weighted graphs as models take them: a matrix, a sparse matrix, or a list of edges.

w[k, j] >= 0 is the weight of node j on node k. A graph of a few hundred people has few contacts
each, so it is given and written as edges: {"nodes": K, "edges": [[k, j, w_kj], ...]}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from keepscore.checks import Floats, as_floats, require_count, require_finite
from keepscore.errors import DomainError, FormatError, ShapeError

# Weights (K, K) of a graph, dense or sparse, or {"nodes": K, "edges": [[i, j, weight], ...]}.
GraphLike: TypeAlias = ArrayLike | scipy.sparse.spmatrix | scipy.sparse.sparray | Mapping[str, Any]

SPARSE = 0.25  # the share of non-zero weights up to which edges are the shorter description
MOST_NODES = 4096


def edge_weights(nodes: int, edges: ArrayLike, directed: bool = False) -> Floats:
    """The matrix of weights of a list of edges.

    Args:
        nodes: Number of nodes, K.
        edges: Rows (k, j), of weight 1, or (k, j, weight). Repeated edges add up.
        directed: Whether an edge acts from j on k alone; otherwise it acts both ways.

    Returns:
        Weights (K, K): entry [k, j] is the weight of j on k.

    Raises:
        ShapeError: Rows of another length.
        DomainError: An end that is no node, or too many nodes.

    Example:
        >>> import keepscore as ks
        >>> ks.models.edge_weights(3, [[0, 1], [1, 2]]).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    if require_count(nodes, "nodes") > MOST_NODES:
        raise DomainError(f"A graph may have {MOST_NODES} nodes at most; got {nodes}.")
    rows = as_floats(edges, "edges")
    if rows.size == 0:
        return np.zeros((nodes, nodes))
    if rows.ndim != 2 or rows.shape[1] not in (2, 3):
        raise ShapeError(f"edges must be rows (k, j) or (k, j, weight); got shape {rows.shape}.")
    ends = rows[:, :2]
    require_finite(rows, "edges")
    if (ends != np.floor(ends)).any() or (ends < 0).any() or (ends >= nodes).any():
        raise DomainError(f"The ends of edges are whole numbers from 0 to {nodes - 1}.")
    k, j = ends.astype(np.int64).T
    weight = rows[:, 2] if rows.shape[1] == 3 else np.ones(len(rows))
    matrix = np.zeros((nodes, nodes))
    np.add.at(matrix, (k, j), weight)
    if not directed:
        np.add.at(matrix, (j, k), weight)
    return as_weights(matrix)


def as_weights(weights: GraphLike) -> Floats:
    """A checked copy (K, K) float64 of a matrix, a SciPy sparse matrix, or a plain description."""
    if isinstance(weights, Mapping):
        if not {"nodes", "edges"} <= set(weights):
            raise FormatError("A graph as plain data has 'nodes' and 'edges'.")
        return edge_weights(weights["nodes"], weights["edges"], directed=True)
    dense = weights.toarray() if hasattr(weights, "toarray") else weights
    matrix = as_floats(dense, "weights").copy()
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) == 0:
        raise ShapeError(f"weights must be a square matrix (K, K); got {matrix.shape}.")
    require_finite(matrix, "weights")
    if (matrix < 0).any():
        raise DomainError(f"weights must not be negative; got {matrix.min():g}.")
    # An infected person cannot be infected, so a weight on oneself never acts.
    np.fill_diagonal(matrix, 0.0)
    return matrix


def plain_weights(weights: Floats) -> list[Any] | dict[str, Any]:
    """The graph as JSON holds it: edges if it has few, else the whole matrix."""
    k, j = np.nonzero(weights)
    if len(k) > SPARSE * weights.size:
        rows: list[Any] = weights.tolist()
        return rows
    edges = [[int(a), int(b), float(weights[a, b])] for a, b in zip(k, j, strict=True)]
    return {"nodes": len(weights), "edges": edges}


def people_in(structure: str | None, x_shape: Sequence[int]) -> int | None:
    """K, where x is a path of K people on one graph: (T, K), or (T, 1 + K) with times before
    the states."""
    before = {"markov": 0, "timed-markov": 1}.get(structure or "")
    return None if before is None or len(x_shape) != 2 else int(x_shape[1]) - before


def distance_weights(positions: ArrayLike) -> tuple[Floats, Floats]:
    """Places (K, m), checked, and the weights exp(-distance) between them."""
    places = as_floats(positions, "positions").copy()  # the caller's own may change later
    if places.ndim != 2 or len(places) == 0:
        raise ShapeError(f"positions must have shape (K, m), K >= 1; got {places.shape}.")
    require_finite(places, "positions")
    distance = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=-1))
    matrix = np.exp(-distance)
    np.fill_diagonal(matrix, 0.0)
    return places, matrix
