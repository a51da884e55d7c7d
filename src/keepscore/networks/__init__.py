"""Networks h(x, theta) that split into features(x) and head(features, theta)."""

from keepscore.networks.base import (
    Network,
    Scaled,
    Tree,
    Weights,
    count_weights,
    has_density,
    is_size_free,
    is_weight,
    log_ratio,
    needs_whole_rows,
    split,
    takes_missing,
)
from keepscore.networks.catalogue import (
    FAMILIES,
    FEW,
    computation,
    describe,
    is_continuous,
    name_of_auto,
    names,
    rebuild,
    resolve,
    rows_to_learn_from,
    size_by_rows,
    standardise,
    takes_view,
)
from keepscore.networks.categories import CategoriesNetwork, has_few_values
from keepscore.networks.conditional import ConditionalSetNetwork, has_discrete_rows
from keepscore.networks.counts import is_counted, is_mixed
from keepscore.networks.graph import GraphNetwork, graph_network
from keepscore.networks.image import ImageNetwork
from keepscore.networks.local_field import LocalFieldNetwork
from keepscore.networks.maps import MapNetwork, is_map
from keepscore.networks.markov import MarkovNetwork
from keepscore.networks.masking import ENTRIES, Masked, holes_of
from keepscore.networks.masking import NONE as NO_HOLES
from keepscore.networks.mlp import MLP
from keepscore.networks.paths import PathNetwork, is_path
from keepscore.networks.quadratic import QuadraticNetwork
from keepscore.networks.sequence import SequenceNetwork
from keepscore.networks.spectral import SpectralNetwork, TailedSpectralNetwork
from keepscore.networks.views import AS_IT_IS, View, view_of

__all__ = [
    "AS_IT_IS",
    "ENTRIES",
    "FAMILIES",
    "FEW",
    "MLP",
    "NO_HOLES",
    "CategoriesNetwork",
    "ConditionalSetNetwork",
    "GraphNetwork",
    "ImageNetwork",
    "LocalFieldNetwork",
    "MapNetwork",
    "MarkovNetwork",
    "Masked",
    "Network",
    "PathNetwork",
    "QuadraticNetwork",
    "Scaled",
    "SequenceNetwork",
    "SpectralNetwork",
    "TailedSpectralNetwork",
    "Tree",
    "View",
    "Weights",
    "computation",
    "count_weights",
    "describe",
    "graph_network",
    "has_density",
    "has_discrete_rows",
    "has_few_values",
    "holes_of",
    "is_continuous",
    "is_counted",
    "is_map",
    "is_mixed",
    "is_path",
    "is_size_free",
    "is_weight",
    "log_ratio",
    "name_of_auto",
    "names",
    "needs_whole_rows",
    "rebuild",
    "resolve",
    "rows_to_learn_from",
    "size_by_rows",
    "split",
    "standardise",
    "takes_missing",
    "takes_view",
    "view_of",
]
