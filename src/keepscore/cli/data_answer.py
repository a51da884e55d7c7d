"""Whether a model fits the data of a command, asked before any answer about them.

It is asked by itself where the simulations take seconds, and left out, with a note, where they take
longer. A misfit stands at the top of the answer and on standard error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import typer

from keepscore.errors import MissingError

if TYPE_CHECKING:
    from keepscore.evaluation.data_check import DataCheck
    from keepscore.surrogate import Surrogate

ASK = "--check-data asks for it"


@dataclass(frozen=True)
class DataAnswer:
    """What was found, or why nothing was looked for."""

    found: DataCheck | None = None
    left_out: str | None = None

    @classmethod
    def of(
        cls,
        surrogate: Surrogate,
        xs: np.ndarray,
        model: str | None,
        settings: list[str] | None,
        wanted: bool | None,
    ) -> DataAnswer:
        """The check of xs; wanted: True in any case, False never, None where it is cheap."""
        from keepscore.cli.train import model_of
        from keepscore.evaluation.data_check_within import SECONDS, check_data_within

        if wanted is False:
            return cls(left_out="--no-check-data was said")
        try:
            simulator = model_of(surrogate, model, settings)
        except MissingError:
            if wanted:
                raise
            return cls(left_out="the model is not known here: name it with --model")
        found = check_data_within(surrogate, xs, simulator, None if wanted else SECONDS)
        return cls(left_out=f"{found}; {ASK}") if isinstance(found, str) else cls(found)

    @property
    def notes(self) -> list[str]:
        """What is to be said where nothing was looked for."""
        if self.left_out is None:
            return []
        return [f"Whether the model fits these data was not checked ({self.left_out})."]

    def call_out(self) -> None:
        """A misfit on standard error, also where everything else is quiet or JSON."""
        if self.found is not None and not self.found.fits:
            typer.echo(f"keepscore: {self._loud()}", err=True)

    def lines(self, whole: bool = False) -> list[str]:
        """For the top of the answer: the sentence, and the summaries that do not fit (whole: all
        of them)."""
        if self.found is None:
            return []
        shown = [s for s in self.found.summaries if whole or s.p_value < self.found.level]
        text = f"Data: {self.found.sentence}" if self.found.fits else self._loud()
        return [text, *(f"  {one}" for one in shown), ""]

    def _loud(self) -> str:
        assert self.found is not None
        return f"DO NOT TRUST what follows. {self.found.sentence}"
