"""Fields at scattered sites that differ from data set to data set: a row of x is (s1, s2, value).

    x = ((s_1, y_1), ..., (s_m, y_m), NaN, ...)                x (S, 3), m <= S sites
    log p(y | s, theta)     the density of the field at these sites (`fields`), one dense
                            factorisation per data set and theta

The sites are a context (`context`): drawn whatever theta is, known with the data. Rows may come in
any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_floats, require_choice, require_count
from keepscore.errors import DomainError, DtypeError, ShapeError
from keepscore.models.base import Model, build, register_wrapper
from keepscore.models.context import (
    Context,
    ContextModel,
    DesignFunction,
    described,
    drawn,
    refuse_function,
    rows_there,
)
from keepscore.models.fields import Field
from keepscore.models.gaussian import GaussianField

UNIFORM = "uniform"
WORD = "sites"


@final
@dataclass(frozen=True, eq=False)
class Sites(Context):
    """Sites that differ; made by `with_sites`."""

    base: Field
    law: str | DesignFunction
    count: tuple[int, int]
    word: ClassVar[str] = WORD

    @property
    def x_shape(self) -> tuple[int, int]:
        return (self.count[1], 3)

    @property
    def structure(self) -> str | None:
        return "gaussian-sites" if isinstance(self.base, GaussianField) else None

    def settings(self) -> dict[str, Any]:
        law = self.law if isinstance(self.law, str) else described(self.law)
        return {"places": law, "sites": list(self.count)}

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Sites (n, S, 2), NaN after the last."""
        low, high = self.count
        if not isinstance(self.law, str):
            places = drawn(self.law, n, (high, 2), rng, WORD)
            return self.of(np.concatenate([places, places[..., :1]], axis=2))
        places = rng.uniform(-1, 1, (n, high, 2)) * self.base.extent
        count = rng.integers(low, high, n, endpoint=True)
        places[np.arange(high) >= count[:, None]] = np.nan
        return places

    def of(self, x: Floats) -> Floats:
        rows_there(x, 1, "sites")
        return np.ascontiguousarray(x[:, :, :2])

    def at(self, design: Floats) -> Field:
        return self.base.at_locations(design[~np.isnan(design[:, 0])])

    def data(self, design: Floats, x: Floats) -> Floats:
        return np.ascontiguousarray(x[:, ~np.isnan(design[:, 0]), 2])

    def place(self, design: Floats, data: NDArray[Any]) -> Floats:
        x = np.full((len(data), *self.x_shape), np.nan)
        there = ~np.isnan(design[:, 0])
        x[:, there, :2], x[:, there, 2] = design[there], data
        return x

    def join(self, designs: ArrayLike, data: ArrayLike) -> Floats:
        """Sites (n, m, 2), or (m, 2) for all, with values (n, m), m <= S."""
        places, values = as_floats(designs, "sites"), as_floats(data, "values")
        most = self.x_shape[0]
        if places.ndim == 2 and values.ndim == 2:
            places = np.tile(places, (len(values), 1, 1))
        if values.ndim != 2 or places.shape != (*values.shape, 2):
            raise ShapeError(
                "Sites (n, m, 2), or (m, 2) for all, and values (n, m) make x; got "
                f"{places.shape} and {values.shape}."
            )
        if values.shape[1] > most:
            raise ShapeError(f"This model has at most {most} sites; got {values.shape[1]}.")
        x = np.full((len(values), *self.x_shape), np.nan)
        x[:, : values.shape[1]] = np.concatenate([places, values[..., None]], axis=2)
        return x


def with_sites(
    model: Field,
    places: str | DesignFunction = UNIFORM,
    *,
    sites: int | Sequence[int],
) -> ContextModel:
    """The same field, seen at sites that differ between data sets: a row of x is (s1, s2, value).

    One surrogate then serves data sets with sites of their own. Likelihood and score are exact.

    Args:
        model: A Gaussian or Student-t field of mean zero. Its kernel, space and extent count, not
            its grid.
        places: The law of the sites in simulations: "uniform" over the extent of `model`, or a
            function (n, rng) -> (n, S, 2), NaN for sites that a data set does not have. It says
            where a surrogate will be good, and nothing else.
        sites: How many there are: a number, or (low, high), uniform between both. Of a function,
            S is the larger one.

    Returns:
        A model with the same parameters, and x (S, 3), rows of NaN where there are fewer sites.
        `model.join(sites, values)` makes such x of your own data.

    Raises:
        DtypeError: `model` is no field, or `places` no law.
        UnknownNameError: No law of this name.
        DomainError: No such number of sites, or a field with a trend.

    Example:
        >>> import numpy as np
        >>> import keepscore as ks
        >>> model = ks.models.with_sites(ks.models.GaussianField(), sites=(5, 9))
        >>> x = model.simulate(model.space.grid(2)[:1], np.random.default_rng(0))
        >>> model.name, x.shape, int((~np.isnan(x[0, :, 0])).sum())
        ('gaussian-field-sites', (1, 9, 3), 5)
        >>> model.score(model.space.grid(2)[:1], x).shape
        (1, 3)
    """
    if not isinstance(model, Field):
        raise DtypeError(
            f"with_sites takes a GaussianField or StudentTField; got {type(model).__name__}. Any "
            "other model can carry its sites as columns of x."
        )
    if model.trend is not None:
        raise DomainError("with_sites takes fields of mean zero; this one has a trend.")
    if isinstance(places, str):
        require_choice(places, "law of sites", (UNIFORM,))
    elif not callable(places) or isinstance(places, type):
        raise DtypeError(
            "places must be 'uniform' or a function (n, rng) -> (n, S, 2); got "
            f"{type(places).__name__}. For the same sites in every data set: "
            "GaussianField(locations=...)."
        )
    pair = sites if isinstance(sites, (tuple, list)) and len(sites) == 2 else (sites, sites)
    low, high = (require_count(k, "sites") for k in pair)  # type: ignore[arg-type]
    if low > high:
        raise DomainError(f"sites must be (low, high), the smaller one first; got {sites!r}.")
    return ContextModel(Sites(model, places, (low, high)))


def _rebuilt(base: Mapping[str, Any], places: str, sites: Sequence[int]) -> Model:
    refuse_function(places, WORD)
    return with_sites(build(base), places, sites=list(sites))  # type: ignore[arg-type]


register_wrapper(f"-{WORD}", _rebuilt)
