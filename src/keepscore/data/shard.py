"""One shard: its thetas from the design, its x (and scores) from the model, checked.

    theta = design(rows)        stream (seed; purpose, "theta", shard)
    x, score ~ model(theta)     stream (seed; purpose, "x", shard)

A simulation with NaN or infinity stops the run: leaving such rows out silently would teach the
surrogate another distribution. With on_invalid="drop" they are left out and their rows recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_declared
from keepscore.data.design import stream
from keepscore.data.plan import Plan
from keepscore.errors import KeepscoreError, SimulationError
from keepscore.models.base import Model


@dataclass(frozen=True)
class Shard:
    """The arrays of one shard by name, and the rows of the set that were dropped from it."""

    index: int
    arrays: dict[str, NDArray[Any]]
    dropped: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.arrays["theta"])


def make_shard(model: Model, plan: Plan, index: int) -> Shard:
    """Simulate one shard; a pure function of its arguments."""
    theta = plan.thetas(index)
    rng = stream(plan.seed, plan.purpose, "x", index)
    try:
        # A copy: what a simulator does to its theta must not reach ours.
        if plan.score_kind is None:
            x, score = model.simulate(theta.copy(), rng), None
        else:
            x, score = model.simulate_with_score(theta.copy(), rng)
    except (Exception, SystemExit) as error:  # `sys.exit` in a simulator is its failure, not ours
        raise SimulationError(
            f"{plan.model['name']} failed in shard {index} (rows {_span(plan.rows(index))}): "
            f"{type(error).__name__}: {error}"
        ) from error
    arrays = {"theta": theta, "x": _as_planned(plan, "x", x, len(theta))}
    if score is not None:
        arrays["score"] = _as_planned(plan, "score", score, len(theta))
    valid_x = _finite(arrays["x"], nan_too=plan.missing is True)
    invalid = ~valid_x | ~_finite(arrays.get("score", theta))
    if not invalid.any():
        return Shard(index, arrays)
    bad = np.flatnonzero(invalid)
    if plan.on_invalid == "raise":
        raise SimulationError(_invalid_message(plan, index, bad, theta))
    dropped = tuple(int(plan.rows(index)[i]) for i in bad)
    return Shard(index, {name: array[~invalid] for name, array in arrays.items()}, dropped)


def _as_planned(plan: Plan, name: str, values: ArrayLike, n: int) -> NDArray[Any]:
    """A copy with the planned shape and dtype; a change of kind must not change a value."""
    row_shape, dtype = plan.arrays()[name]
    try:
        return as_declared(values, (n, *row_shape), dtype, f"{plan.model['name']} ({name})")
    except KeepscoreError as error:
        raise SimulationError(str(error)) from None


def _finite(array: NDArray[Any], nan_too: bool = False) -> NDArray[np.bool_]:
    flat = array.reshape(len(array), -1)
    return np.asarray((~np.isinf(flat) if nan_too else np.isfinite(flat)).all(axis=1))


def _invalid_message(plan: Plan, index: int, bad: NDArray[np.intp], theta: Floats) -> str:
    example = dict(zip(plan.space.working_names, theta[bad[0]].tolist(), strict=True))
    raw = dict(zip(plan.space.names, plan.space.to_raw(theta[bad[0]]).tolist(), strict=True))
    return (
        f"{plan.model['name']} returned NaN or infinity in {len(bad)} of {len(theta)} simulations "
        f"of shard {index}, the first in row {plan.rows(index)[int(bad[0])]} at theta = {example} "
        f"(raw {raw}). Mend the simulator or narrow its space; on_invalid='drop' leaves such rows "
        "out and records them, at the price of a biased surrogate. If NaN means 'not observed', "
        "say so: ks.models.with_missing, or from_functions(..., missing=True)."
    )


def _span(rows: range) -> str:
    return f"{rows.start} to {rows.stop - 1}"
