"""Several networks where the data declare nothing: which "auto" tries, and which it keeps.

For x of which nothing is declared, "auto" takes a network of all of x: a residual network where x
has few numbers, features of x first where it has many. It needs no form. Other kinds do better on
some data and worse on others, and nobody can tell beforehand:

    densities of x               where x is a smooth function of theta with noise (one Gaussian), or
                                 a mixture of few clouds (four); x continuous, counts or some of
                                 both, at most 32 numbers
    regression                   where that noise is the same for every theta; the same x, tried
                                 only where there are no scores, since then densities have too much
                                 to learn
    independent entries          where each number is measured with an error of its own, x as
                                 before; or where each answer (yes or no, a grade) is
                                 given by itself, x with few values
    networks of some entries     where most of x is noise: those entries that tell of theta
                                 (`numerics/dependence.py`), if they are fewer than half of 17 or
                                 more; as a residual network and as the same densities
    maps                         where x (H, W) or (H, W, channels) comes from a process that is
                                 alike at all places (`networks/maps.py`); sides of 8 or more, x of
                                 few or of many numbers
    paths                        where x (T,) or (T, channels) is seen at 16 times or more, and
                                 neighbours are other than any two entries (`numerics/order.py`); x
                                 of few or of many numbers (`networks/paths.py`). Also where
                                 "series" is declared and rows are not continuous, which have no
                                 density of their own, or lie on a curve
    ratios of rows               where "iid" is declared and rows lie on a curve or a surface
                                 (`numerics/dimension.py`), where no density of theirs is finite

They are trained, the same in all else, and judged on the same held-out rows by

    C = (1/3) sum_s L_s / log 2 + (1/d) sum_k (1 - R^2_k),

R^2_k the robust R^2 of the score in parameter k (`quality`; this term only if exact scores are
trained with), and L_s the loss of telling the own theta from another one, s times as far away as
two theta of the design are from each other:

    L_s = mean_i log(1 + r_i),    r_i = q(x_i | theta'_i) p(theta'_i) / q(x_i | theta_i) p(theta_i)
    theta'_i = theta_i + s (theta_j - theta_k),  j and k any rows,    s = 1, 1/4, 1/16

The step has a symmetric law, so the true likelihood q has the least L_s if theta has the density p
(theta' that leave the box do not count). Where there are few rows each has many theta', up to 32:
with one, chance in these would hide differences that are there. All three tell something in few
dimensions; in ten, theta at random are told apart by any network, and only near ones show which is
right. A function of x cancels in r, so L_s is the same for densities and ratios. Both terms of C
are 1 for a network that knows nothing. C is a mean over rows; with delta_i the difference of two
networks at row i, another network takes the place of the best so far if

    mean(delta) < -sd(delta) / sqrt(n),

the rule of one standard error (Breiman et al. 1984): what is better by chance alone hardly ever
takes the place of the network that needs no form. All C are written down.

Nothing more is trained where the first network has every R^2_k above .95, where it was trained for
fewer epochs than advised, beyond 30,000 rows, or with `TrainConfig(compare=False)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from keepscore import networks
from keepscore.checks import Floats
from keepscore.data.dataset import Dataset
from keepscore.models.base import declares_missing
from keepscore.networks import Network
from keepscore.numerics.dependence import telling
from keepscore.numerics.dimension import is_thin
from keepscore.numerics.evenly import evenly
from keepscore.numerics.order import order_matters
from keepscore.space import Space
from keepscore.surrogate import Surrogate
from keepscore.training.batches import Rows, generator, x_sample
from keepscore.training.guard import robust_charges, some_of
from keepscore.training.traits import traits_of

FIRST, DENSITIES = "residual-25k", ("mixture-3k", "mixture-10k")
COUNTED, MIXED = ("counts-3k", "counts-10k"), ("mixed-3k", "mixed-10k")
INDEPENDENT, INDEPENDENT_COUNTS = "independent-30k", "independent-counts-30k"
INDEPENDENT_MIXED, REGRESSION = "independent-mixed-30k", "regression-10k"
CATEGORIES, MAP, PATH = ("categories-3k", "categories-30k"), "map-30k", "path-30k"
RATIO = "set-25k"  # of likelihoods, not a density
MOST_IN_DENSITY = 32  # numbers: a Cholesky factor has half their square
LEAST_TO_SCREEN = 17
MOST_ROWS = 30_000
MOST_SCREENED = 10_000  # rows of the screening
GOOD = 0.95
SCALES = (1.0, 1 / 4, 1 / 16)
PAIRS, MOST_OTHERS = 4096, 32  # theta' in all for each L_s, and of one row
CLEARLY = 1.0  # standard errors
LONGER = 10  # times as long as the first network a map or path network trains: 5 to 15 were seen

# A name, or a function of a key that makes the network.
Choice = str | Callable[[jax.Array], Network]


def others(rows: Rows, data: Dataset) -> dict[str, Choice]:
    """What to try besides the first choice of "auto", by name; nothing where that is made for what
    the data declare."""
    x_shape, d = data.x.shape[1:], data.space.d
    if len(rows) > MOST_ROWS or data.structure not in (None, "iid", "series"):
        return {}
    missing, on_graph = declares_missing(data), getattr(data, "contacts", None) is not None
    sample = x_sample(rows)
    if data.structure == "iid":
        dense = name_of_first(rows, data).startswith("mixture-set")
        return {RATIO: RATIO} if dense and _are_thin(sample) else {}
    if data.structure == "series":
        dense = networks.is_continuous(sample) and not _are_thin(sample)
        return {} if missing or dense else _of_times(sample, x_shape, True)
    found: dict[str, Choice] = {}
    if networks.is_map(x_shape) and not on_graph:
        found[MAP] = MAP
    if not on_graph:
        found |= _of_times(sample, x_shape, missing)
    if missing or first_choice(x_shape, missing) != FIRST:
        return found
    return {**found, **_of_few_numbers(rows, sample, x_shape, d)}


def _are_thin(sample: np.ndarray) -> bool:
    """Whether rows of numbers lie on a curve or a surface, as they are shown to networks."""
    if not networks.is_continuous(sample) or sample.shape[-1] > MOST_IN_DENSITY:
        return False
    shown = networks.view_of(sample).shown(sample)
    return is_thin(np.asarray(shown, np.float64).reshape(-1, shown.shape[-1]))


def _of_times(sample: np.ndarray, x_shape: tuple[int, ...], known: bool) -> dict[str, Choice]:
    """The path network, where x may be a path and, unless that is known, looks like one."""
    if not networks.is_path(x_shape):
        return {}
    return {PATH: PATH} if known or order_matters(np.asarray(sample, np.float64)) else {}


def first_choice(x_shape: Sequence[int], missing: bool) -> str:
    """The network of all of x that "auto" takes where nothing is declared."""
    holes = networks.ENTRIES if missing else networks.NO_HOLES
    return networks.name_of_auto(x_shape, None, on_graph=False, continuous=True, holes=holes)


def name_of_first(rows: Rows, data: Dataset) -> str:
    """What "auto" stands for on such data, before anything is compared."""
    if data.structure is None:
        return first_choice(data.x.shape[1:], declares_missing(data))
    about = (data.x.shape[1:], data.structure)
    return networks.name_of_auto(*about, on_graph=False, **traits_of(rows, data))


def _of_few_numbers(
    rows: Rows, sample: np.ndarray, x_shape: tuple[int, ...], d: int
) -> dict[str, Choice]:
    """What to try besides a residual network of all of x."""
    continuous, size = networks.is_continuous(sample), math.prod(x_shape)
    of_few: dict[str, Choice] = (
        {name: name for name in CATEGORIES} if networks.has_few_values(sample) else {}
    )
    entries = _telling(rows) + 1 if size >= LEAST_TO_SCREEN else np.arange(size) + 1
    if 0 < 2 * len(entries) < size:
        some = sample.reshape(len(sample), -1)[:, entries - 1]
        dense = len(entries) <= MOST_IN_DENSITY and networks.is_continuous(some)
        names = (FIRST, *DENSITIES) if dense else (FIRST,)
        of_entries: dict[str, Choice] = {
            f"{name} of {len(entries)} entries": _of_entries(name, x_shape, d, entries)
            for name in names
        }
        return {**of_entries, **of_few}
    if of_few:
        return of_few
    if continuous:
        joint: tuple[str, ...] = DENSITIES
        apart = INDEPENDENT
    elif networks.is_counted(sample):
        joint, apart = COUNTED, INDEPENDENT_COUNTS
    elif networks.is_mixed(sample):
        joint, apart = MIXED, INDEPENDENT_MIXED
    else:
        return {}
    if not rows.scores:
        joint = (REGRESSION, *joint)
    return {name: name for name in (*(joint if size <= MOST_IN_DENSITY else ()), apart)}


def most_trainings(x_shape: Sequence[int], structure: str | None, scores: bool) -> int:
    """How many networks "auto" may train on such data, at most; scores: whether with them. (For a
    declared series of counts, and for rows on a curve, it tries one more, which cannot be told
    before there are data.)"""
    if structure is not None:
        return 1
    in_order = _in_order(x_shape)
    if math.prod(x_shape) > networks.FEW:
        return 1 + in_order
    return len((FIRST, *DENSITIES, INDEPENDENT)) + int(not scores) + in_order


def most_work(x_shape: Sequence[int], structure: str | None, scores: bool) -> int:
    """The same in trainings of the first network: those of maps and paths take longer."""
    trainings = most_trainings(x_shape, structure, scores)
    longer = 0 if structure is not None else _in_order(x_shape)
    return trainings + (LONGER - 1) * longer


def _in_order(x_shape: Sequence[int]) -> int:
    """Networks to try for which neighbours in x mean something."""
    return int(networks.is_map(x_shape)) + int(networks.is_path(x_shape))


def _telling(rows: Rows) -> np.ndarray:
    """The entries of x that tell of theta, counted from 0."""
    index = evenly(len(rows), MOST_SCREENED)
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


def criterion(surrogate: Surrogate, held: Rows, seed: int) -> Floats:
    """The parts of C, one for each of some held-out rows: C is their mean. `held` has scores if
    they are trained with."""
    each = np.mean([_losses(surrogate, held, scale, seed) for scale in SCALES], axis=0)
    errors = _errors(surrogate, held)
    return each / math.log(2) + (0.0 if errors is None else errors.mean(axis=1))


def clearly_better(new: Floats, old: Floats) -> bool:
    """Whether one C is below another beyond chance, by their parts at the same rows."""
    delta = new - old
    return float(delta.mean()) < -CLEARLY * float(delta.std(ddof=1)) / math.sqrt(len(delta))


def _losses(surrogate: Surrogate, held: Rows, scale: float, seed: int) -> Floats:
    """The parts of L_s: sums over each row's theta' inside the box, divided by the mean number of
    these; log 2 where none is inside."""
    index, space = some_of(held), surrogate.space
    rng = generator(seed, "candidates")
    own = np.asarray(held.theta[index], np.float64)
    counts = space.contains(own, "train", 0.0)
    if not counts.any():
        return np.full(len(index), math.log(2))
    # Rows that do not count are asked for with any theta of the box: so many rows as ever, for
    # which the network is compiled already.
    own = np.where(counts[:, None], own, own[counts][0])
    x = held.fetch(index)[0]
    prior = _log_prior(space)
    at_own = surrogate.relative(own, x) + prior(own)
    total, number = np.zeros(len(index)), np.zeros(len(index))
    for _ in range(min(MOST_OTHERS, math.ceil(PAIRS / len(index)))):
        j, k = (rng.permutation(len(held))[index] for _ in range(2))
        other = own + scale * np.asarray(held.theta[j] - held.theta[k], np.float64)
        inside = counts & space.contains(other, "train", 0.0)
        other = np.where(inside[:, None], other, own)
        log_r = surrogate.relative(other, x) + prior(other) - at_own
        total += np.where(inside, np.logaddexp(0.0, log_r), 0.0)
        number += inside
    return total / number.mean() if number.any() else np.full(len(index), math.log(2))


def _log_prior(space: Space) -> Callable[[Floats], Floats | float]:
    """log p(theta) of the design, up to a constant."""
    return (lambda theta: space.log_prior(theta, "train")) if space.has_prior else lambda _: 0.0


def is_good(surrogate: Surrogate, held: Rows) -> bool:
    """Whether the first network follows all scores so well that no other is needed."""
    errors = _errors(surrogate, held)
    return errors is not None and bool((1 - errors.mean(axis=0) > GOOD).all())


def _errors(surrogate: Surrogate, held: Rows) -> Floats | None:
    """The parts of 1 - R^2_k (rows, d); None without exact scores (joint ones scatter, by how much
    is unknown)."""
    if not held.scores or held.data.score_kind != "exact":
        return None
    index = some_of(held)
    x, score = held.fetch(index)
    given = np.asarray(score, np.float64)
    charged, whole = robust_charges(surrogate.score(held.theta[index], x), given)
    mean = whole.mean(axis=0)
    return np.asarray(np.where(mean > 0, charged / np.where(mean > 0, mean, 1.0), 1.0))
