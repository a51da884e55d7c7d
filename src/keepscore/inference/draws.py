"""Draws as an ArviZ object, and what they are worth: R-hat and effective sample size.

ArviZ has two generations. 0.x takes the groups as keywords and gives an InferenceData; 1.x takes
one mapping and gives an xarray DataTree. Both answer to `draws.posterior["name"]` and to
`draws["posterior"]`, and only this module knows which one is installed.
"""

from __future__ import annotations

import inspect
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from keepscore.checks import Floats

if TYPE_CHECKING:
    import xarray
    from arviz import InferenceData

# ArviZ 0.x, or 1.x.
Draws: TypeAlias = "InferenceData | xarray.DataTree"

Groups = Mapping[str, Mapping[str, np.ndarray]]


class ChainQuality(NamedTuple):
    """R-hat and effective sample size of one variable's draws."""

    rhat: float
    ess: float


def as_arviz(groups: Groups) -> Any:
    """Groups of variables (chains, draws, ...) as InferenceData (0.x) or DataTree (1.x)."""
    make = _arviz().from_dict
    # 1.x still has a name InferenceData, so the signature decides.
    by_keyword = "posterior" in inspect.signature(make).parameters
    return make(**groups) if by_keyword else make({name: dict(g) for name, g in groups.items()})


def chain_quality(draws: Draws, names: Iterable[str]) -> dict[str, ChainQuality]:
    """R-hat and effective sample size of each named scalar variable of the posterior."""
    az, wanted = _arviz(), list(names)
    rhat, ess = az.rhat(draws, var_names=wanted), az.ess(draws, var_names=wanted)
    return {name: ChainQuality(float(rhat[name]), float(ess[name])) for name in wanted}


def effective_sizes(chains: Floats) -> Floats:
    """Of chains (g, chains, n, d), g data sets side by side: (g, d)."""
    draws = as_arviz({"posterior": {"theta": np.moveaxis(chains, 0, 2)}})
    return np.asarray(_arviz().ess(draws)["theta"])


def pareto_smoothed(log_weights: Floats) -> tuple[Floats, float]:
    """Pareto-smoothed log weights (n,), normalised, and k-hat (infinite if it cannot be told)."""
    az = _arviz()
    if hasattr(az, "psislw"):
        found, k_hat = az.psislw(np.array(log_weights, dtype=np.float64))
    else:  # 1.x takes log-likelihoods of points left out, whose weights are their inverses
        from arviz_stats.base import array_stats

        found, k_hat = array_stats.psislw(-np.array(log_weights, dtype=np.float64))
    values = np.asarray(found, dtype=np.float64)
    shift = values.max() + np.log(np.exp(values - values.max()).sum())
    number = float(np.asarray(k_hat))
    return values - shift, np.inf if np.isnan(number) else number


def _arviz() -> Any:
    """ArviZ, without 0.x's notice of the coming 1.0.

    0.23 notes in the user's cache folder when it last gave that notice, and cannot be imported
    where there is none to write to; there it notes it in a temporary folder.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz
        except OSError:
            with tempfile.TemporaryDirectory() as folder, _cache_folder(folder):
                import arviz
    return arviz


@contextmanager
def _cache_folder(folder: str) -> Iterator[None]:
    """The user's cache folder is `folder`, for a while."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before
