"""Whether the model fits the observed data, for a page: one check per surrogate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from keepscore.evaluation.data_check import DataCheck
from keepscore.evaluation.data_check_within import SECONDS, check_data_within
from keepscore.figures.data_check_strips import data_check
from keepscore.models.base import Model
from keepscore.reports.content import DataFit, Notice
from keepscore.reports.pictures import picture_from
from keepscore.surrogate import Surrogate

TITLE = "Observed data against the fitted model"
CAPTION = (
    "Strips: where the middle 90% of the simulated groups lie, each summary on a scale of its own. "
    "Marks: the observed data; red diamonds are outside."
)


def data_fits(
    surrogates: Mapping[str, Surrogate],
    model: Model,
    xs: NDArray[Any],
    wanted: bool | None = None,
    seed: int = 0,
) -> tuple[tuple[DataFit, ...], tuple[Notice, ...]]:
    """What checks of xs (n, *x_shape) found, with the picture of the first; and a note where they
    were left out.

    wanted: True makes them whatever they cost, False never, None where all of them are cheap.
    """
    if wanted is False:
        return (), ()
    seconds = None if wanted else SECONDS / len(surrogates)
    made: list[DataFit] = []
    for name, surrogate in surrogates.items():
        found = check_data_within(surrogate, xs, model, seconds, seed)
        if isinstance(found, str):
            text = f"Whether the model fits the observed data was not checked by {name}: {found}."
            return tuple(made), (Notice("note", text),)
        made.append(data_fit(name, found, drawn=not made))
    return tuple(made), ()


def data_fit(name: str, found: DataCheck, drawn: bool = True) -> DataFit:
    """A check as the page keeps it."""
    picture = None
    if drawn:
        alt = f"{found.sentence} " + "; ".join(
            f"{one.name}: p = {one.p_value:.2g}" for one in found.summaries
        )
        picture = picture_from(data_check(found), f"{TITLE}, by {name}", alt, CAPTION)
    return DataFit(
        name, found.fits, found.sentence, found.p_value, found.novelty, found.draws, picture
    )
