"""What `given` returns, as inference sees it: one type of likelihood, and how to pick groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keepscore.checks import Floats, as_floats, require_count, require_finite
from keepscore.errors import DomainError, DtypeError, ShapeError
from keepscore.likelihood import Integers, Likelihood, Traced
from keepscore.space import Region

__all__ = ["Likelihood", "require_likelihood", "require_theta0", "select", "surface_by_blocks"]

# Observations times theta in one call of `surface`: 64 MB, should it hold them all in float64.
BLOCK_ENTRIES = 8_000_000


def require_likelihood(like: object) -> Likelihood:
    """The likelihood itself, or an error that says where one comes from."""
    if not isinstance(like, Likelihood):
        raise DtypeError(
            f"Expected a Likelihood, from model.given(xs) or surrogate.given(xs); "
            f"got {type(like).__name__}."
        )
    return like


def select(like: Likelihood, index: int | slice | ArrayLike) -> Likelihood:
    """Some groups of a likelihood: one (an integer; the result is single) or several."""
    require_likelihood(like)
    chosen = np.arange(like.group_count)
    if isinstance(index, (bool, np.bool_)):
        raise DtypeError(f"Select a group by its number; got {index!r}.")
    if isinstance(index, np.ndarray) and index.shape == ():
        index = index[()]
    if isinstance(index, (int, np.integer)):
        if not -like.group_count <= index < like.group_count:
            raise DomainError(f"There are {like.group_count} group(s); got index {index}.")
        chosen, single = chosen[[int(index)]], True
    else:
        try:
            chosen, single = chosen[index if isinstance(index, slice) else np.asarray(index)], False
        except IndexError as error:
            raise DomainError(f"Cannot select from {like.group_count} group(s): {error}.") from None
        if chosen.ndim != 1 or len(chosen) == 0:
            raise ShapeError(f"Select at least one group, by a flat index; got {chosen.shape}.")
    whole, traced = like, like.traceable

    def surface(theta: Floats) -> Floats:
        if 4 * len(chosen) >= whole.group_count:
            return whole.surface(theta)[chosen]
        # A few groups of many: pairs ask for these alone.
        values = whole.pairs(np.tile(theta, (len(chosen), 1)), np.repeat(chosen, len(theta)))
        return values.reshape(len(chosen), len(theta))

    return replace(
        whole,
        group_count=len(chosen),
        single=single,
        pairs=lambda theta, group: whole.pairs(theta, chosen[group]),
        pairs_gradient=lambda theta, group: whole.pairs_gradient(theta, chosen[group]),
        surface=surface,
        traceable=None
        if traced is None
        else Traced(OfChosen(traced.function), (traced.data, chosen)),
    )


@dataclass(frozen=True)
class OfChosen:
    """A traced log-likelihood of some groups: (data, chosen (k,)), theta (d,), group -> scalar."""

    function: Callable[[Any, Any, Any], Any]

    def __call__(self, data: tuple[Any, Any], theta: Any, group: Any) -> Any:
        import jax.numpy as jnp

        return self.function(data[0], theta, jnp.asarray(data[1])[group])


def surface_by_blocks(like: Likelihood, theta: Floats) -> Floats:
    """Every group at every theta, (g, m), asked for in blocks of theta to keep memory flat."""
    size = max(1, BLOCK_ENTRIES // (like.group_count * like.group_size))
    blocks = [like.surface(theta[i : i + size]) for i in range(0, len(theta), size)]
    whole = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
    # A likelihood may compute in float32; what is done with its values here is float64.
    return np.asarray(whole, dtype=np.float64)


def require_theta0(like: Likelihood, theta0: ArrayLike, region: Region) -> Floats:
    """A null value for every group, (g, d): given once (d,) or one a group (g, d), and inside."""
    array, d = as_floats(theta0, "theta0"), like.space.d
    if array.shape not in ((d,), (like.group_count, d)):
        raise ShapeError(
            f"theta0 must have shape ({d},), or ({like.group_count}, {d}) for one a group; "
            f"got {array.shape}."
        )
    require_finite(array, "theta0")
    rows = np.array(np.broadcast_to(array, (like.group_count, d)))
    inside = like.space.contains(rows, region)
    if not inside.all():
        low, high = like.space.box(region)
        raise DomainError(
            f"theta0 must lie in the {region} box {_box_text(low, high)} of the working parameters "
            f"({', '.join(like.space.working_names)}); got {rows[~inside][0].tolist()}."
        )
    return np.clip(rows, *like.space.box(region))


def _box_text(low: Floats, high: Floats) -> str:
    return " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(low, high, strict=True))


def squeeze(like: Likelihood, values: Any) -> Any:
    """Drop the group axis when the likelihood is of one single group."""
    if not like.single:
        return values
    one = np.asarray(values)[0]
    return one.item() if one.ndim == 0 else one


def require_points(points: int | None, default: int) -> int:
    """Points per side of a grid, at least four (cubic interpolation needs them)."""
    return default if points is None else require_count(points, "grid", minimum=4)


__all__ += ["Integers", "require_points", "squeeze"]
