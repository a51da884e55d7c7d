"""What a sample of x tells of the data, by which "auto" chooses and networks are built."""

from __future__ import annotations

from typing import TypedDict

from keepscore import networks
from keepscore.data.dataset import Dataset
from keepscore.models.base import declares_missing
from keepscore.training.batches import Rows, x_sample


class Traits(TypedDict):
    """As `networks.resolve` takes them."""

    continuous: bool
    holes: str
    discrete: bool
    to_learn_from: int


def traits_of(rows: Rows, data: Dataset) -> Traits:
    """By the rows that a network is trained on."""
    sample = x_sample(rows)
    return {
        "continuous": networks.is_continuous(sample),
        "holes": networks.holes_of(sample, declares_missing(data)),
        "discrete": networks.has_discrete_rows(sample),
        "to_learn_from": networks.rows_to_learn_from(len(data), sample, rows.scores),
    }
