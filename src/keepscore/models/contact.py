"""Who meets whom: a contact network of households, workplaces and chance.

    households   of 1 to 6 people, everyone linked with everyone        weight 1
    workplaces   everyone is in one, linked with its other people       weight 0.3
    community    links between people picked at random                  weight 0.1

Weights of one pair add up; the matrix is symmetric and is divided by its largest eigenvalue r. The
rate lambda w_kj then compares across networks: an infection that starts small, without infection
from outside, grows on average while lambda > mu and dies out below (to first order, where the
expected number of infected obeys dv/dt = (lambda W - mu) v, and W has largest eigenvalue 1). So the
box |log lambda|, |log mu| <= 1 of the model lies around the threshold for every network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keepscore.checks import Floats, require_count
from keepscore.errors import DomainError
from keepscore.models.graphs import MOST_NODES

# Shares of households of 1, 2, ..., 6 people.
HOUSEHOLDS = (0.28, 0.34, 0.16, 0.14, 0.06, 0.02)
STRENGTHS = (1.0, 0.3, 0.1)
STREAM = 0xC0117AC7


@dataclass(frozen=True, eq=False)
class ContactNetwork:
    """A contact network, as `ks.models.contact_network` makes it.

    Args:
        weights: (K, K), symmetric, largest eigenvalue 1.
        household: (K,), the household of each person.
        workplace: (K,), the workplace of each person.

    Example:
        >>> import keepscore as ks
        >>> people = ks.models.contact_network(nodes=20)
        >>> people.weights.shape, people.household.shape
        ((20, 20), (20,))
    """

    weights: Floats
    household: NDArray[np.int64]
    workplace: NDArray[np.int64]


def contact_network(
    nodes: int = 64,
    seed: int = 0,
    households: Sequence[float] = HOUSEHOLDS,
    workplace: int = 8,
    community: float = 2.0,
    strengths: Sequence[float] = STRENGTHS,
) -> ContactNetwork:
    """A contact network of so many people; the same arguments give the same network.

    Args:
        nodes: Number of people, K.
        seed: Which of the networks of this kind.
        households: Shares of households of 1, 2, ... people.
        workplace: People per workplace, on average.
        community: Chance contacts per person, on average.
        strengths: Weights of a household, a workplace and a chance contact, before scaling.

    Returns:
        The network, its weights scaled to a largest eigenvalue of 1.

    Raises:
        DomainError: A count, share or strength out of range.

    Example:
        >>> import keepscore as ks
        >>> people = ks.models.contact_network(nodes=20, seed=1)
        >>> model = ks.models.SIS(weights=people.weights, score="joint")
        >>> model.x_shape
        (13, 20)
    """
    _require(nodes, workplace, community, households, strengths)
    rng = np.random.default_rng([STREAM, require_count(seed, "seed", minimum=0)])
    shares = np.asarray(households, dtype=float)
    sizes = 1 + rng.choice(len(shares), size=nodes, p=shares / shares.sum())
    household = np.repeat(np.arange(nodes), sizes)[:nodes]
    place = rng.permutation(nodes) % max(1, round(nodes / workplace))
    chance = np.triu(rng.random((nodes, nodes)) < community / max(1, nodes - 1), 1)
    layers = (
        household[:, None] == household,
        place[:, None] == place,
        chance | chance.T,
    )
    weights = np.sum([s * layer for s, layer in zip(strengths, layers, strict=True)], axis=0)
    np.fill_diagonal(weights, 0.0)
    largest = float(np.linalg.eigvalsh(weights)[-1])
    if not largest > 0:
        raise DomainError("Nobody has a contact; use larger households, workplaces or strengths.")
    return ContactNetwork(weights / largest, household, place)


def _require(
    nodes: int,
    workplace: int,
    community: float,
    households: Sequence[float],
    strengths: Sequence[float],
) -> None:
    if require_count(nodes, "nodes", minimum=2) > MOST_NODES:
        raise DomainError(f"A graph may have {MOST_NODES} nodes at most; got {nodes}.")
    require_count(workplace, "workplace")
    if not 0 <= community <= nodes - 1:
        raise DomainError(f"community must lie between 0 and nodes - 1; got {community!r}.")
    shares = np.asarray(households, dtype=float)
    if shares.ndim != 1 or not (np.isfinite(shares) & (shares >= 0)).all() or shares.sum() <= 0:
        raise DomainError(f"households must be shares >= 0, not all 0; got {households!r}.")
    weights = np.asarray(strengths, dtype=float)
    if weights.shape != (3,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise DomainError(f"strengths must be three weights >= 0; got {strengths!r}.")
