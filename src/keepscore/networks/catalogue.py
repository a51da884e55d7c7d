"""Networks by name, and the plain data that rebuilds one.

A name is a size ("30k"), a family and a size ("mlp-30k"), or "auto".

    data declare               a size alone: the paper's    "auto": networks that know the process
    "markov", on a graph       sequence                     graph-10k
    "markov"                   sequence                     markov-10k
    "timed-markov", on a graph mlp                          timed-graph-20k
    "timed-markov"             mlp                          timed-10k
    "markov-graphs"            mlp                          graphs-10k
    "gaussian-field"           image                        spectral-5k
    "stationary-field"         image                        tailed-5k
    "field"                    image                        local-tailed-5k
    "gaussian-sites"           mlp                          sites-3k
    "iid", rows of few numbers mlp                          mixture-set-10k, 30k or 100k
    "iid", some with few values mlp                         conditional-set-10k
    "iid", other rows          mlp                          set-25k
    "series", rows of few      mlp                          series-3k
    "events"                   mlp                          events-3k
    nothing, x of few numbers  mlp                          residual-25k, and others that may do
                                                            better (`training/candidates.py`)
    nothing, x of many         mlp                          mlp-30k, and for maps map-30k, for
                                                            series path-30k, which may do better

Data with holes (NaN is "not observed"; `masking.py`) need networks that see them: "auto" takes
mixture-set (its size by the rows that are there), conditional-set-10k or set-25k for "iid",
local-5k for "gaussian-field", local-tailed-5k for other fields, series-3k for "series" (whole rows
may be missing), the same as ever for "timed-markov", "gaussian-sites" and "events", sequence-30k
for "markov" of 13 times or more, and otherwise residual-25k or mlp-30k, the last three with the
mask beside x.

A density of one row learns from all rows of all simulations, and what it gets wrong adds up over
the rows of a data set. So "auto" takes mixture-set-30k where there are 100,000 rows to learn from,
and 100k from 1,000,000 on; rows whose scores are known count twice.

Rows of few numbers: at most 16, and continuous; or some of them with few values, at most 64, or
with values that come again, and all others continuous. (Where nothing is declared, counts, alone or
among other numbers, and entries with few values have laws of their own, `counts` and `categories`,
which are tried.)

A description is JSON: family, layer widths, x_shape, d and whether inputs are scaled. It holds no
code; a network of a user's own class is only described by that class's name, and loading it
needs an instance of it.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from keepscore.errors import (
    DomainError,
    DtypeError,
    FormatError,
    KeepscoreError,
    MissingError,
    ShapeError,
    unknown_name,
)
from keepscore.networks import (
    categories,
    conditional,
    counts,
    entries,
    graph,
    image,
    independent,
    local_field,
    maps,
    markov,
    masking,
    mixture,
    mlp,
    paths,
    quadratic,
    regression,
    residual,
    sequence,
    series,
    sites,
    spectral,
    tails,
)
from keepscore.networks.base import (
    X_SCALES,
    Network,
    Scaled,
    Weights,
    every_pair,
    has_density,
    has_linear_head,
    has_table,
    is_weight,
    split,
    takes_missing,
)
from keepscore.networks.safetensors_io import hollow
from keepscore.networks.views import AS_IT_IS, View, from_plain
from keepscore.numerics.alike import all_alike


@dataclass(frozen=True)
class Family:
    """A network class that is built as `build(x_shape, d, rng, **widths)`, and its named sizes."""

    build: Callable[..., Any]
    sizes: Mapping[str, Mapping[str, Any]]
    # The same for data with holes, if it can be.
    masked: Callable[..., Any] | None = None
    # Of numbers whose places mean nothing, in rows of x or all of x: any `View` of them will do.
    of_numbers: bool = False


FAMILIES: dict[str, Family] = {
    "sequence": Family(
        sequence.SequenceNetwork,
        sequence.SIZES,
        masking.masked(sequence.SequenceNetwork, merged=True),
    ),
    "image": Family(image.ImageNetwork, image.SIZES, masking.masked(image.ImageNetwork)),
    "map": Family(maps.MapNetwork, maps.SIZES, masking.masked(maps.MapNetwork)),
    "path": Family(paths.PathNetwork, paths.SIZES, masking.masked(paths.PathNetwork)),
    "local": Family(
        local_field.LocalFieldNetwork, local_field.SIZES, local_field.MaskedLocalFieldNetwork
    ),
    "local-tailed": Family(
        local_field.TailedLocalFieldNetwork,
        local_field.SIZES,
        local_field.MaskedTailedLocalFieldNetwork,
    ),
    "mlp": Family(mlp.MLP, mlp.SIZES, masking.masked(mlp.MLP), of_numbers=True),
    "markov": Family(markov.MarkovNetwork, markov.SIZES, masking.masked(markov.MarkovNetwork)),
    "quadratic": Family(quadratic.QuadraticNetwork, quadratic.SIZES),
    "spectral": Family(spectral.SpectralNetwork, spectral.SIZES),
    "tailed": Family(spectral.TailedSpectralNetwork, spectral.SIZES),
    "graph": Family(graph.GraphNetwork, graph.SIZES),
    "graphs": Family(graph.GraphsNetwork, graph.GRAPHS_SIZES),
    "timed-graph": Family(graph.TimedGraphNetwork, graph.TIMED_SIZES, graph.TimedGraphNetwork),
    "sites": Family(sites.SitesNetwork, sites.SIZES, sites.SitesNetwork),
    "timed": Family(markov.TimedMarkovNetwork, markov.SIZES, markov.TimedMarkovNetwork),
    "residual": Family(
        residual.ResidualNetwork,
        residual.SIZES,
        masking.masked(residual.ResidualNetwork),
        of_numbers=True,
    ),
    "set": Family(
        residual.ResidualSetNetwork, residual.SIZES, masking.MaskedSetNetwork, of_numbers=True
    ),
    "mixture": Family(mixture.MixtureNetwork, mixture.SIZES, of_numbers=True),
    "mixture-set": Family(
        mixture.MixtureSetNetwork,
        mixture.SIZES,
        masking.MaskedMixtureSetNetwork,
        of_numbers=True,
    ),
    "conditional-set": Family(
        conditional.ConditionalSetNetwork, conditional.SIZES, conditional.ConditionalSetNetwork
    ),
    "counts": Family(counts.CountsNetwork, counts.SIZES),
    "independent": Family(independent.IndependentNetwork, independent.SIZES, of_numbers=True),
    "independent-counts": Family(counts.IndependentCountsNetwork, independent.SIZES),
    "mixed": Family(counts.MixedNetwork, counts.SIZES),
    "independent-mixed": Family(counts.IndependentMixedNetwork, independent.SIZES),
    "regression": Family(regression.RegressionNetwork, regression.SIZES, of_numbers=True),
    "categories": Family(categories.CategoriesNetwork, categories.SIZES),
    "series": Family(
        series.SeriesNetwork, series.SIZES, series.MaskedSeriesNetwork, of_numbers=True
    ),
    "events": Family(series.EventsNetwork, series.SIZES, series.EventsNetwork),
    # Of chosen entries of x, which no name can tell.
    "residual-entries": Family(entries.ResidualOfEntries, {}),
    "mixture-entries": Family(entries.MixtureOfEntries, {}),
}
# By what the data declare: the family of a size alone, and what "auto" stands for.
FAMILY_OF_STRUCTURE = {
    "markov": "sequence",
    "gaussian-field": "image",
    "stationary-field": "image",
    "field": "image",
}
AUTO = {
    "markov": "markov-10k",
    "timed-markov": "timed-10k",
    "markov-graphs": "graphs-10k",
    "gaussian-sites": "sites-3k",
    "gaussian-field": "spectral-5k",
    "stationary-field": "tailed-5k",
    "field": "local-tailed-5k",
    "iid": "set-25k",
    "events": "events-3k",
}
AUTO_ON_GRAPH = {"markov": "graph-10k", "timed-markov": "timed-graph-20k"}
AUTO_ROWS = "mixture-set-10k"  # structure "iid", rows of few continuous numbers
SIZES_BY_ROWS = ((1_000_000, "100k"), (100_000, "30k"))  # of that family, by rows to learn from
AUTO_DISCRETE_ROWS = "conditional-set-10k"  # the same, some of them with few values
AUTO_SERIES = "series-3k"  # structure "series", the same
FEW_IN_ROW = 16
AUTO_FEW = "residual-25k"
AUTO_MANY = "mlp-30k"
# For data with holes: the paper's network, and the fewest times it can be of; one for fields.
AUTO_SEQUENCE, SEQUENCE_TIMES = "sequence-30k", 13
AUTO_LOCAL = {"gaussian-field": "local-5k"}  # others as of structure "field"
FEW = 256  # numbers in x: theta may enter before x is embedded
# Of descriptions that can be read back. Sizes are not bounded by these but by the file of weights.
MOST_AXES = 60  # NumPy has 64, and groups of observations need some
MOST_LAYERS = 1024
LARGEST_AXIS = 1 << 48


def names(family: str | None = None) -> tuple[str, ...]:
    """Sizes of a family, or every full name."""
    if family is not None:
        return tuple(FAMILIES[family].sizes)
    return tuple(f"{name}-{size}" for name, one in FAMILIES.items() for size in one.sizes)


def resolve(
    network: object,
    x_shape: Sequence[int],
    d: int,
    structure: str | None,
    key: jax.Array,
    contacts: np.ndarray | None = None,
    continuous: bool = True,
    holes: str = masking.NONE,
    discrete: bool = False,
    to_learn_from: int = 0,
    view: View = AS_IT_IS,
) -> Network:
    """A network for such data, from a name, a module, or a function of a key that makes one.

    contacts: weights (K, K) of the graph that a chain x (T, K) lives on, if it does. continuous:
    whether x is, entry by entry (`is_continuous`). holes: whether, and how, x is missing
    (`masking.holes_of`). discrete: whether rows of x have entries with few values
    (`conditional.has_discrete_rows`). to_learn_from: see `rows_to_learn_from`. view: what is to be
    shown of x to networks of numbers (`takes_view`).
    """
    whole, shape = holes == masking.NONE, tuple(x_shape)
    if isinstance(network, str):
        on_graph = contacts is not None
        of_what = x_shape, structure, on_graph, continuous, holes, discrete
        if network.lower() == "auto":
            network = name_of_auto(*of_what, to_learn_from)
        family, size = _parse(network, *of_what)
        if family in ("graph", "timed-graph") and contacts is not None:
            timed = family == "timed-graph"
            weights = np.asarray(contacts)
            return graph.GraphNetworkMaker(weights, size, tuple(x_shape), d, timed)(key)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        build = FAMILIES[family].build if whole else _masked(family)
        shape = view.shape(x_shape) if FAMILIES[family].of_numbers else shape
        built = build(shape, d, rng, **FAMILIES[family].sizes[size])
    elif isinstance(network, Network) and not isinstance(network, type):
        built = network
    elif callable(network):
        try:
            built = network(key)
        except KeepscoreError:
            raise
        except Exception as error:  # whatever a foreign function raises
            reason = f"{type(error).__name__}: {error}"
            raise DtypeError(f"network(key) could not make a network: {reason}.") from error
    else:
        raise DtypeError(
            "network must be 'auto', a size such as '30k', an Equinox module with features(x) and "
            f"head(features, theta), or a function of a key that makes one; got {network!r}."
        )
    made = require_network(built, shape, d)
    if not whole and not takes_missing(made):
        raise MissingError(
            f"These data have missing values (NaN), and {type(made).__name__} does not say that it "
            "takes them. Give it takes_missing = True if it does, wrap it as "
            "ks.networks.Masked(network) (x then has a last axis of two: value, observed), or use "
            "network='auto'."
        )
    return made


def _masked(family: str) -> Callable[..., Any]:
    build = FAMILIES[family].masked
    if build is None:
        able = ", ".join(name for name, one in FAMILIES.items() if one.masked is not None)
        raise MissingError(
            f"The {family} network needs complete x, and these data have missing values (NaN). "
            f"Networks that take them: {able}; or network='auto'."
        )
    return build


def require_network(network: object, x_shape: Sequence[int], d: int) -> Network:
    """The network itself, if it has the two methods, they give the right shapes, and what a user's
    own network declares of itself is true."""
    for method in ("features", "head"):
        if not callable(getattr(network, method, None)):
            raise MissingError(
                f"A network needs features(x) and head(features, theta); "
                f"{type(network).__name__} has no {method}."
            )
    assert isinstance(network, Network)
    b = 3
    x = jax.ShapeDtypeStruct((b, *x_shape), jnp.float32)
    theta = jax.ShapeDtypeStruct((b, d), jnp.float32)
    features = _traced(network.features, "features(x)", x)
    if len(features.shape) != 2 or features.shape[0] != b:
        raise ShapeError(f"features(x) must give (b, f); for b = {b} it gave {features.shape}.")
    logits = _traced(network.head, "head(features, theta)", features, theta)
    if logits.shape != (b,):
        raise ShapeError(
            f"head(features, theta) must give (b,), one logit a row; "
            f"for b = {b} it gave {logits.shape}."
        )
    if _family_of(network) is None:
        _require_declarations(network, features.shape[1], d)
    return network


def _require_declarations(network: Network, width: int, d: int) -> None:
    """What a user's network says of its head is tried out: likelihoods of groups rely on it."""
    rng, kind = np.random.default_rng(0), type(network).__name__
    one, two = jnp.asarray(rng.standard_normal((2, 8, width)), jnp.float32)
    theta = jnp.asarray(rng.standard_normal((8, d)), jnp.float32)
    if has_linear_head(network):
        apart = network.head(one, theta) + network.head(two, theta)
        if gap := _gap(network.head(one + two, theta), apart):
            raise DomainError(
                f"{kind} declares linear_head = True, but its head is not linear in the features: "
                f"head(f + g) and head(f) + head(g) differ by {gap:.3g}."
            )
    if has_table(network):
        table = every_pair(network, one, theta)
        if table.shape != (8, 8):
            raise ShapeError(
                f"table(features, theta) must give (m, b), one row for each theta; for 8 theta and "
                f"8 rows of features {kind} gave {table.shape}."
            )
        each = jnp.stack([network.head(one, jnp.tile(t, (8, 1))) for t in theta])
        if gap := _gap(table, each):
            raise DomainError(
                f"{kind} has a table(features, theta) that differs from head(features, theta) by "
                f"{gap:.3g}; entry [i, j] is the head of theta[i] and features[j]."
            )


def _gap(got: jax.Array, wanted: jax.Array) -> float:
    """The largest difference, or 0 if it is rounding."""
    gap = jnp.abs(got - wanted).max()
    return 0.0 if gap <= 1e-3 * (1.0 + jnp.abs(wanted).max()) else float(gap)


def standardise(
    network: Network,
    x: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    theta: np.ndarray | None = None,
    view: View = AS_IT_IS,
) -> Scaled:
    """Scale x as the network's `x_scale` says (see `base`) and theta by its training box. Networks
    that begin at a regression of x on theta need that of each row of x. view: what the network was
    built to be shown of x."""
    by_shape = {2: "entries", 3: "states"}.get(x.ndim, "whole")
    kind = getattr(network, "x_scale", by_shape)
    if kind not in X_SCALES:
        raise unknown_name("x_scale of a network", kind, X_SCALES)
    timed = kind in ("times", "times, states")
    own = {"entries": (0,), "states": (0, 1), "places": (0, 1, 2)}
    over = own.get(kind, (0, 1) if timed else tuple(range(x.ndim)))
    values = view.shown(np.asarray(x, dtype=np.float64))
    counted = isinstance(network, counts.DensityOfCounts)  # which has its own way with tails
    by_entry = kind in own and not counted
    leaning = tails.lean_on_zero(values, over) if by_entry else np.zeros((), dtype=bool)
    heavy = by_entry and not has_density(network) and tails.has_heavy_tails(values, over)
    drawn_in = heavy or bool(leaning.any())
    if drawn_in:
        mean, sd = tails.median_and_spread(values, over)
        mean = np.where(leaning, 0.0, mean)
        sd = np.where(leaning, tails.small_values(values, over), sd)
    else:
        mean = _mean(values, over)
        if kind in ("about zero", "none"):
            mean = np.zeros_like(mean)
        sd = np.sqrt(_mean((values - mean) ** 2, over))
    if kind in ("none", "times"):
        mean, sd = np.zeros_like(mean), np.ones_like(sd)
    elif kind == "largest":
        mean, sd = np.zeros(()), np.asarray(np.nanmax(np.abs(values), initial=0.0))
    elif kind == "graphs":
        mean, sd = np.zeros(()), np.asarray(values[:, -x.shape[2] :].sum(axis=2).max(initial=0.0))
    if timed:
        mean[0], sd[0] = 0.0, _mean_gap(values[:, :, 0])
    sd = np.where(sd > 0, sd, 1.0)
    if kind not in ("none", "times", "largest", "graphs") and not counted:
        alike = all_alike(values, over)
        if timed:
            alike[0] = False
        sd = np.where(alike, np.inf, sd)  # what never varied tells nothing, and is not looked at
    if isinstance(
        network,
        (
            counts.DensityOfCounts,
            categories.CategoriesNetwork,
            conditional.ConditionalSetNetwork,
        ),
    ):
        network = network.scaled_to(x, mean, sd)
    z_mean, z_sd = None, None
    if leaning.any():
        z = np.arcsinh((values - mean) / sd)
        z_mean = _mean(z, over)
        z_sd = np.sqrt(_mean((z - z_mean) ** 2, over))
        z_mean, z_sd = (np.asarray(a, np.float32) for a in (z_mean, np.where(z_sd > 0, z_sd, 1.0)))
    scaled = Scaled(
        network,
        np.asarray(mean, np.float32),
        np.asarray(sd, np.float32),
        np.asarray((low + high) / 2, np.float32),
        # The standard deviation of a uniform draw.
        np.asarray((high - low) / np.sqrt(12), np.float32),
        drawn_in,
        z_mean,
        z_sd,
        view,
    )
    if isinstance(network, regression.RegressionNetwork) and theta is not None:
        both = scaled.scaled_x(jnp.asarray(x)), scaled.scaled_theta(jnp.asarray(theta))
        fitted = network.fitted_to(*(np.asarray(a, np.float64) for a in both))
        scaled = eqx.tree_at(lambda s: s.network, scaled, fitted)
    return scaled


def _mean_gap(times: np.ndarray) -> float:
    """Between neighbours among times (b, T), those that are there; 1 where there are none."""
    gaps = np.diff(np.sort(times, axis=1), axis=1)  # NaN comes last
    gaps = gaps[~np.isnan(gaps)]
    return float(gaps.mean()) if len(gaps) else 1.0


def _mean(values: np.ndarray, over: tuple[int, ...]) -> np.ndarray:
    """The mean of what is there; 0 of an entry that never is."""
    nan = np.isnan(values)
    if not nan.any():
        return np.asarray(values.mean(axis=over))
    count = np.maximum((~nan).sum(axis=over), 1)
    return np.asarray(np.where(nan, 0.0, values).sum(axis=over) / count)


def _family_of(network: object) -> tuple[str, bool] | None:
    """The family of a network of ours, and whether it is the one for data with holes."""
    inner = network.network if isinstance(network, masking.Masked) else network
    for name, family in FAMILIES.items():
        if type(inner) is family.build:
            return name, inner is not network
        if type(network) is family.masked:
            return name, True
    return None


def describe(network: Network, x_shape: Sequence[int], d: int) -> dict[str, Any]:
    """Plain data about a network; `rebuild` makes the same one, with other weights.

    What `rebuild` would refuse is refused here.
    """
    inner: Any = network.network if isinstance(network, Scaled) else network
    base: dict[str, Any] = {"x_shape": [int(side) for side in x_shape], "d": d}
    if isinstance(network, Scaled):
        # The axes of x that have a scale each.
        base["scaled"] = [int(side) for side in np.shape(network.x_mean)]
        if network.drawn_in:  # only where it says something: older files have no such entry
            base["drawn_in"] = True
        if network.z_mean is not None:
            base["centred"] = True
        if network.view != AS_IT_IS:
            base["view"] = network.view.plain()
    found = _family_of(inner)
    if found is not None:
        name, with_holes = found
        widths = inner.settings()
        if not _are_widths(widths):
            raise DomainError(
                f"A {name} network has at most {MOST_LAYERS} layers of each kind; these are "
                "more, and could not be saved. Use fewer, or a class of your own."
            )
        # Only where it says something: older files have no such entry.
        holes = {"missing": True} if with_holes else {}
        return {**base, "family": name, "widths": widths, **holes}
    kind = type(inner)
    return {**base, "family": "user", "class": f"{kind.__module__}.{kind.__qualname__}"}


def computation(network: Network, x_shape: Sequence[int], d: int) -> str:
    """SHA-256 of what a network computes, as JAX traces it, whatever its weights: another one for
    a class of the same name whose code was changed."""
    x = jax.ShapeDtypeStruct((1, *x_shape), jnp.float32)
    theta = jax.ShapeDtypeStruct((1, d), jnp.float32)
    weights, rest = split(network)

    def whole(w: Weights, x: jax.Array, theta: jax.Array) -> jax.Array:
        one = eqx.combine(w, rest)
        return one.head(one.features(x), theta)

    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), weights)
    traced = str(jax.make_jaxpr(whole)(shapes, x, theta))
    return hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", traced).encode()).hexdigest()


def rebuild(
    description: Mapping[str, Any], module: object = None, weights: int | None = None
) -> Network:
    """The network of a description, its arrays as shapes only; `module` for a user's own class.

    Nothing is allocated, whatever sizes the description claims. weights: how many numbers are there
    to fill it; every width needs as many at least (its bias), so larger ones are refused at once.
    """
    shape, d = description.get("x_shape"), description.get("d")
    if not _is_shape(shape) or type(d) is not int or not 0 < d <= LARGEST_AXIS:
        raise FormatError("The description of the network has no valid x_shape and d.")
    view = _view(description, shape)
    seen = list(view.shape(shape))
    if description.get("family") == "user":
        network = _of_user(description, module, shape, d)
    else:
        network = _skeleton(description, seen, d, weights)
    if "scaled" not in description:
        return network
    axes = description["scaled"]
    if not _is_shape(axes) or axes != seen[len(seen) - len(axes) :]:
        raise FormatError(f"The scale of x has the axes {axes!r:.100}, which do not fit x {seen}.")
    try:
        of_x, of_theta = hollow(axes, np.float32), hollow([d], np.float32)
    except ValueError as error:  # more entries than any array can have
        raise FormatError(f"The description of the network makes no network: {error}.") from None
    for name in ("drawn_in", "centred"):
        if type(value := description.get(name, False)) is not bool:
            raise FormatError(f"{name} of the network must be true or false; got {value!r:.60}.")
    of_z = of_x if description.get("centred", False) else None
    drawn_in = description.get("drawn_in", False)
    return Scaled(network, of_x, of_x, of_theta, of_theta, drawn_in, of_z, of_z, view)


def _view(description: Mapping[str, Any], shape: Sequence[int]) -> View:
    """What a network of numbers is shown of x of this shape."""
    if "view" not in description:
        return AS_IT_IS
    family = FAMILIES.get(str(description.get("family")))
    if "scaled" not in description or family is None or not family.of_numbers:
        raise FormatError("Only scaled networks of numbers are shown x in other coordinates.")
    return from_plain(description["view"], shape)


def takes_view(network: Network) -> bool:
    """Whether a network of ours may be shown x in other coordinates."""
    found = _family_of(network)
    return found is not None and FAMILIES[found[0]].of_numbers


def _of_user(
    description: Mapping[str, Any], module: object, shape: Sequence[int], d: int
) -> Network:
    if module is None:
        raise MissingError(
            f"This surrogate has a network of the class {description.get('class')!r:.200}, which "
            "is never imported on its own. Pass an instance: ks.load(path, network=...)."
        )
    require_network(module, shape, d)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if is_weight(leaf) else leaf,
        module,
    )


def _skeleton(
    description: Mapping[str, Any], shape: Sequence[int], d: int, weights: int | None
) -> Any:
    family, widths = description.get("family"), description.get("widths")
    if not isinstance(family, str) or family not in FAMILIES:
        raise FormatError(
            f"Unknown network family {family!r:.100}; this version knows {', '.join(FAMILIES)}."
        )
    if not isinstance(widths, dict) or not _are_widths(widths, weights):
        raise FormatError("The description of the network has no valid layer widths.")
    holes = description.get("missing", False)
    build = FAMILIES[family].masked if holes is True else FAMILIES[family].build
    if type(holes) is not bool or build is None:
        raise FormatError(f"There is no {family} network for data with holes: {holes!r:.60}.")
    try:
        shapes = eqx.filter_eval_shape(lambda: build(tuple(shape), d, None, **widths))
        for name in getattr(build, "constants", ()):  # NumPy arrays: read, not trained
            leaf = getattr(shapes, name)
            shapes = eqx.tree_at(attrgetter(name), shapes, hollow(leaf.shape, leaf.dtype))
    except (TypeError, IndexError, ValueError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise FormatError(f"The description of the network makes no network: {reason}.") from None
    return shapes


def _is_shape(sides: object) -> TypeGuard[list[int]]:
    return (
        isinstance(sides, list)
        and len(sides) <= MOST_AXES
        and all(type(side) is int and 0 < side <= LARGEST_AXIS for side in sides)
    )


def _are_widths(widths: Mapping[str, Any], weights: int | None = None) -> bool:
    """Whether these are the settings of a network with no more than so many weights."""
    largest = LARGEST_AXIS if weights is None else weights
    for value in widths.values():
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) > MOST_LAYERS:
            return False
        if not all(type(n) is int and 0 < n <= largest for n in numbers):
            return False
    return True


def rows_to_learn_from(n: int, sample: np.ndarray, scores: bool) -> int:
    """How many rows x_i n simulations like those of the sample hold (rows may be missing), counted
    twice where they have scores."""
    per_simulation = 1.0
    if sample.ndim > 1 and len(sample):
        missing = np.isnan(sample).reshape(*sample.shape[:2], -1).all(axis=2)
        per_simulation = float((~missing).sum(axis=1).mean())
    return round(n * per_simulation) * (2 if scores else 1)


def size_by_rows(to_learn_from: int) -> str:
    """The size of a density of one row, by how many rows there are (twice as many with scores)."""
    smallest = AUTO_ROWS.rpartition("-")[2]
    return next((size for least, size in SIZES_BY_ROWS if to_learn_from >= least), smallest)


def name_of_auto(
    x_shape: Sequence[int],
    structure: str | None,
    on_graph: bool,
    continuous: bool,
    holes: str,
    discrete: bool = False,
    to_learn_from: int = 0,
) -> str:
    """The network that "auto" stands for."""
    found = _parse("auto", x_shape, structure, on_graph, continuous, holes, discrete)
    name = "-".join(found)
    return f"{found[0]}-{size_by_rows(to_learn_from)}" if name == AUTO_ROWS else name


def _parse(
    name: str,
    x_shape: Sequence[int],
    structure: str | None,
    on_graph: bool,
    continuous: bool,
    holes: str = masking.NONE,
    discrete: bool = False,
) -> tuple[str, str]:
    name = name.lower()
    on = AUTO_ON_GRAPH.get(structure or "") if on_graph else None
    if name == "auto" and on is not None and (holes == masking.NONE or structure != "markov"):
        name = on
    elif name == "auto" and holes != masking.NONE:
        name = _auto_with_holes(x_shape, structure, continuous, holes, discrete)
    elif name == "auto" and _has_few_in_row(x_shape, structure) and continuous:
        name = AUTO_SERIES if structure == "series" else AUTO_ROWS
    elif name == "auto" and structure == "iid" and discrete and _has_few_in_row(x_shape, structure):
        name = AUTO_DISCRETE_ROWS
    elif name == "auto":
        otherwise = AUTO_FEW if math.prod(x_shape) <= FEW else AUTO_MANY
        name = AUTO.get(structure or "", otherwise)
    family, _, size = name.rpartition("-")
    if not family:
        family = FAMILY_OF_STRUCTURE.get(structure or "", "mlp")
    if family not in FAMILIES:
        raise unknown_name("network", name, names())
    if size not in FAMILIES[family].sizes:
        raise unknown_name(f"size of the {family} network", size, names(family))
    return family, size


def _auto_with_holes(
    x_shape: Sequence[int], structure: str | None, continuous: bool, holes: str, discrete: bool
) -> str:
    """What "auto" stands for where values are missing."""
    few = _has_few_in_row(x_shape, structure)
    if structure == "iid" and len(x_shape) > 1:
        of_rows = AUTO_ROWS if continuous else AUTO_DISCRETE_ROWS if discrete else AUTO["iid"]
        return of_rows if few and holes == masking.ROWS else AUTO["iid"]
    if structure == "series" and few and continuous and holes == masking.ROWS:
        return AUTO_SERIES
    if structure in ("events", "timed-markov", "gaussian-sites"):
        return AUTO[structure]
    if structure == "markov" and len(x_shape) == 2 and x_shape[0] >= SEQUENCE_TIMES:
        return AUTO_SEQUENCE
    if structure in ("gaussian-field", "stationary-field", "field"):
        return AUTO_LOCAL.get(structure, AUTO["field"])
    return AUTO_FEW if 2 * math.prod(x_shape) <= FEW else AUTO_MANY


def _has_few_in_row(x_shape: Sequence[int], structure: str | None) -> bool:
    rows = (structure == "iid" and len(x_shape) > 1) or (structure == "series" and x_shape)
    return bool(rows) and math.prod(x_shape[1:]) <= FEW_IN_ROW


def is_continuous(x: np.ndarray) -> bool:
    """Whether values of x hardly ever repeat: at most one in a hundred, in each entry of a row."""
    if x.dtype.kind != "f" or x.ndim == 0 or x.size == 0:
        return False
    columns = x.reshape(-1, x.shape[-1]).T
    seen = [column[~np.isnan(column)] for column in columns]
    return all(len(np.unique(column)) >= counts.CONTINUOUS * len(column) for column in seen)


def _traced(function: Callable[..., Any], what: str, *arguments: Any) -> Any:
    try:
        return eqx.filter_eval_shape(function, *arguments)
    except (TypeError, ValueError) as error:
        shapes = ", ".join(str(a.shape) for a in arguments)
        raise ShapeError(
            f"The network's {what} fails on arrays of shape {shapes}: {error}"
        ) from None
