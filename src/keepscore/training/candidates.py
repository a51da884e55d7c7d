"""Several networks where the data declare nothing: which "auto" tries, and which it keeps.

For x of few numbers of which nothing is declared, "auto" takes a residual network of all of x: it
needs no form. Two other kinds do better on some data and worse on others, and nobody can tell
beforehand:

    densities of x               where x is a smooth function of theta with noise (one Gaussian), or
                                 a mixture of few clouds (four); x continuous, at most 32 numbers
    networks of some entries     where most of x is noise: those entries that tell of theta
                                 (`numerics/dependence.py`), if they are fewer than half of 17 or
                                 more; as a residual network and as the same densities

They are trained, the same in all else, and judged on the same held-out rows by

    C = L / log 2 + (1/d) sum_k (1 - R^2_k),

L the loss of pairs and R^2_k the robust R^2 of the score in parameter k (`quality`; this term only
if exact scores are trained with). Both terms are 1 for a network that knows nothing, and L is the
same for all of them, density or not. The least C is kept, and all are written down.

Nothing more is trained where the first network has every R^2_k above .95, where it was trained for
fewer epochs than advised, beyond 30,000 rows, or with `TrainConfig(compare=False)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from keepscore import networks
from keepscore.data.dataset import Dataset
from keepscore.models.base import declares_missing
from keepscore.networks import Network
from keepscore.numerics.dependence import telling
from keepscore.surrogate import Surrogate
from keepscore.training.batches import Rows, generator, x_sample
from keepscore.training.guard import robust_score_r2, some_of

FIRST, DENSITIES = "residual-25k", ("mixture-3k", "mixture-10k")
MOST_IN_DENSITY = 32  # numbers: a Cholesky factor has half their square
LEAST_TO_SCREEN = 17
MOST_ROWS = 30_000
MOST_SCREENED = 10_000  # rows of the screening
GOOD = 0.95

# A name, or a function of a key that makes the network.
Choice = str | Callable[[jax.Array], Network]


def others(rows: Rows, data: Dataset) -> dict[str, Choice]:
    """What to try besides the first choice of "auto", by name; nothing where that is no residual
    network of all of x."""
    x_shape, d = data.x.shape[1:], data.space.d
    sample = x_sample(rows)
    continuous = networks.is_continuous(sample)
    holes = networks.holes_of(sample, declares_missing(data))
    on_graph = getattr(data, "contacts", None) is not None
    chosen = networks.name_of_auto(x_shape, data.structure, on_graph, continuous, holes)
    undeclared = data.structure is None and chosen == FIRST and holes == networks.NO_HOLES
    if not undeclared or len(rows) > MOST_ROWS:
        return {}
    size = math.prod(x_shape)
    entries = _telling(rows) + 1 if size >= LEAST_TO_SCREEN else np.arange(size) + 1
    if 0 < 2 * len(entries) < size:
        some = sample.reshape(len(sample), -1)[:, entries - 1]
        dense = len(entries) <= MOST_IN_DENSITY and networks.is_continuous(some)
        names = (FIRST, *DENSITIES) if dense else (FIRST,)
        return {
            f"{name} of {len(entries)} entries": _of_entries(name, x_shape, d, entries)
            for name in names
        }
    dense = size <= MOST_IN_DENSITY and continuous
    return {name: name for name in DENSITIES} if dense else {}


def most_trainings(x_shape: Sequence[int], structure: str | None) -> int:
    """How many networks "auto" may train on such data, at most."""
    size = math.prod(x_shape)
    if structure is not None or size > networks.FEW:
        return 1
    return 1 + len(DENSITIES) + (size >= LEAST_TO_SCREEN)


def _telling(rows: Rows) -> np.ndarray:
    """The entries of x that tell of theta, counted from 0."""
    index = np.unique(np.linspace(0, len(rows) - 1, min(MOST_SCREENED, len(rows))).astype(int))
    x, score = rows.fetch(index)
    values = np.asarray(x, np.float64).reshape(len(index), -1)
    theta = np.asarray(rows.theta[index], np.float64)
    scores = None if score is None else np.asarray(score, np.float64)
    return np.flatnonzero(telling(values, theta, scores))


def _of_entries(
    name: str, x_shape: tuple[int, ...], d: int, entries: np.ndarray
) -> Callable[[jax.Array], Network]:
    family, _, size = name.rpartition("-")
    widths = networks.FAMILIES[family].sizes[size]
    build = networks.FAMILIES[f"{family}-entries"].build

    def make(key: jax.Array) -> Network:
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        made: Network = build(x_shape, d, rng, entries=entries.tolist(), **widths)
        return made

    return make


def criterion(surrogate: Surrogate, held: Rows, seed: int) -> float:
    """C on held-out rows; `held` has scores if they are trained with."""
    index = some_of(held)
    partner = generator(seed, "validation").permutation(len(held))
    x, _ = held.fetch(index)
    own, other = (surrogate.relative(held.theta[i], x) for i in (index, partner[index]))
    loss = float(np.logaddexp(0.0, other - own).mean()) / math.log(2)
    found = _r2(surrogate, held)
    return loss if found is None else loss + float(1 - np.mean(found))


def is_good(surrogate: Surrogate, held: Rows) -> bool:
    """Whether the first network follows all scores so well that no other is needed."""
    found = _r2(surrogate, held)
    return found is not None and min(found) > GOOD


def _r2(surrogate: Surrogate, held: Rows) -> tuple[float, ...] | None:
    """Of each parameter; None without exact scores (joint ones scatter, by how much is unknown)."""
    if not held.scores or held.data.score_kind != "exact":
        return None
    index = some_of(held)
    x, score = held.fetch(index)
    return robust_score_r2(surrogate.score(held.theta[index], x), np.asarray(score))
