"""Automorphisms of a weighted graph: permutations with w[perm[i], perm[j]] = w[i, j] for all i, j.

Weights that agree to `RELATIVE` count as equal. Nodes are first coloured by what they see (their
weights to and from nodes of each colour, again and again until nothing changes): an automorphism
keeps colours. A depth-first search then assigns images node by node and drops a branch at the first
weight that disagrees. Both the number of automorphisms returned and the number of branches tried
are limited, so a graph with very many (a complete one has K!) or a hard one costs little: what is
returned is always correct, and complete unless a limit was met.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64, Int64

RELATIVE = 1e-10
MOST_BRANCHES = 50_000
Labels: TypeAlias = Int64[np.ndarray, "nodes nodes"]
Nodes: TypeAlias = Int64[np.ndarray, " nodes"]  # one number per node: its colour, place or image


def automorphisms(
    weights: Float64[np.ndarray, "nodes nodes"], limit: int = 64
) -> Int64[np.ndarray, "found nodes"]:
    """Up to `limit` automorphisms, one per row, the identity first. The diagonal counts too."""
    label = _labels(weights)
    colour = _colours(label)
    order = _search_order(label, colour)
    found = [np.arange(len(label))]
    for perm in _search(label, colour, order):
        if len(found) == limit:
            break
        if not np.array_equal(perm, found[0]):
            found.append(perm)
    return np.stack(found)


def _labels(weights: Float64[np.ndarray, "nodes nodes"]) -> Labels:
    """Equal weights, equal integers."""
    values, inverse = np.unique(weights, return_inverse=True)
    scale = max(abs(values[0]), abs(values[-1]))
    jumps = np.concatenate([[0], np.diff(values) > RELATIVE * scale])
    return np.cumsum(jumps)[inverse].reshape(weights.shape).astype(np.int64)


def _colours(label: Labels) -> Nodes:
    """The coarsest colouring in which equal colours see the same weights to equal colours."""
    count = label.max() + 1
    colour = np.unique(np.diag(label), return_inverse=True)[1]
    while True:
        seen = (colour[None, :] * count + label) * count + label.T
        profile = np.concatenate([colour[:, None], np.sort(seen, axis=1)], axis=1)
        finer = np.unique(profile, axis=0, return_inverse=True)[1].reshape(-1)
        if finer.max() == colour.max():
            return colour
        colour = finer


def _search_order(label: Labels, colour: Nodes) -> Nodes:
    """Rare colours first; among them the node whose weights to those before it vary most, for it
    is the most constrained."""
    size = np.bincount(colour)[colour]
    common = np.bincount(label.ravel()).argmax()
    telling = (label != common).astype(np.int64)
    left, order = list(range(len(label))), []
    tied = np.zeros(len(label), dtype=np.int64)
    while left:
        node = min(left, key=lambda i: (size[i] > 1, -tied[i], size[i], i))
        left.remove(node)
        order.append(node)
        tied += telling[:, node]
    return np.array(order)


def _search(label: Labels, colour: Nodes, order: Nodes) -> Iterator[Nodes]:
    """Depth-first, without recursion: candidates[d] are the untried images of order[d]."""
    nodes = len(order)
    image = np.zeros(nodes, dtype=np.int64)  # image[d] is the image of order[d]
    branches = 0

    def options(depth: int) -> list[int]:
        node, before, images = order[depth], order[:depth], image[:depth]
        fits = (colour == colour[node]) & (
            (label[:, images] == label[node, before]) & (label[before, node] == label[images].T)
        ).all(axis=1)
        fits[images] = False
        return np.flatnonzero(fits)[::-1].tolist()

    candidates = [options(0)]
    while candidates and branches < MOST_BRANCHES:
        if not candidates[-1]:
            candidates.pop()
            continue
        branches += 1
        depth = len(candidates) - 1
        image[depth] = candidates[-1].pop()
        if depth + 1 < nodes:
            candidates.append(options(depth + 1))
        else:
            perm = np.empty(nodes, dtype=np.int64)
            perm[order] = image
            yield perm
