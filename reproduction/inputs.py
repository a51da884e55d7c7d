"""What the cells of a case share: data sets, test sets with their exact results, example data.

All of it lies under `<path>/.work/<case>/`, is made when first needed and found again afterwards.
The folder can be deleted at any time; what is in it can be made again, to the same numbers. The
exact results of the tests take half an hour of a core per field case, and are small: they are kept
beside the cells too, as `<path>/<case>/exact-ltest.npz` and `exact-etest.npz`.

    train-n30000-s0/  validation-n30000-s0/     data sets, by size and seed
    ltest/  etest/                              pairs and groups, with exact results
    cells/<key>/                                checkpoints of a training run
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keepscore import Dataset, Likelihood, Space, mle, simulate
from keepscore.evaluation import ETestSet, LTestSet, etest_set, ltest_set
from keepscore.files import make_folder, write_atomically
from keepscore.models import Model, build
from reproduction.cases import Cell, SweepPlan, find_case

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Seeds of the tests: one for all cells, so that cells differ by their training alone.
TEST_SEED = 1000
EXAMPLE_STREAM = 0xE8A9
RESULTS = "exact.npz"  # what ltest_set and etest_set write into their folder


@dataclass(frozen=True)
class Workspace:
    """A case's working folder."""

    path: Path
    case: str

    @property
    def folder(self) -> Path:
        return self.path / ".work" / self.case

    def make(self) -> None:
        """Create it, with a `.gitignore` so that nothing in it is committed."""
        make_folder(self.folder)
        ignore = self.path / ".work" / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")

    def model(self) -> Model:
        return build(find_case(self.case).model)

    def data(self, cell: Cell, plan: SweepPlan, purpose: str, cluster: Any = None) -> Dataset:
        """The training or validation set of a cell, shared by all cells of its size and seed."""
        needed = {(c.n, c.seed) for c in plan.cells(cell.case) if c.loss == "asa"}
        scores = purpose == "train" and (cell.n, cell.seed) in needed
        path = self.folder / f"{purpose}-n{cell.n}-s{cell.seed}"
        return simulate(
            self.model(),
            cell.n,
            seed=cell.seed,
            path=path,
            purpose=purpose,
            scores=scores,
            cluster=cluster,
        )

    def ltest(self, plan: SweepPlan) -> LTestSet:
        sizes = plan.evaluation
        with self._keeping("ltest") as path:
            return ltest_set(
                self.model(),
                sizes.pairs,
                TEST_SEED,
                sizes.exact,
                sizes.evidence,
                sizes.intervals,
                path,
            )

    def etest(self, plan: SweepPlan) -> ETestSet:
        sizes = plan.evaluation
        with self._keeping("etest") as path:
            return etest_set(
                self.model(),
                sizes.grid,
                sizes.groups,
                sizes.size,
                TEST_SEED,
                points=sizes.points,
                path=path,
            )

    @contextmanager
    def _keeping(self, test: str) -> Iterator[Path]:
        """The folder of a test, with the exact results that are kept, if they are; else they are
        kept afterwards."""
        work, kept = self.folder / test, self.path / self.case / f"exact-{test}.npz"
        if kept.exists() and not (work / RESULTS).exists():
            make_folder(work)
            write_atomically(work / RESULTS, lambda file: file.write(kept.read_bytes()))
        yield work
        if not kept.exists():
            make_folder(kept.parent)
            write_atomically(kept, lambda file: file.write((work / RESULTS).read_bytes()))

    def checkpoints(self, cell: Cell) -> Path:
        return self.folder / "cells" / cell.key


def example_group(case: str, size: int) -> NDArray[Any]:
    """The observations whose likelihood surfaces are shown: (size, *x_shape)."""
    model, rng = build(find_case(case).model), np.random.default_rng([TEST_SEED, EXAMPLE_STREAM])
    theta = np.tile(find_case(case).example, (size, 1))
    return model.simulate(theta, rng)


def example_surface(case: str, like: Likelihood, points: int) -> dict[str, Any]:
    """The log-likelihood over the last two parameters, relative to its maximum, and where that is.

    values[i][j] belongs to the i-th value of the first of the two and the j-th of the second.
    """
    flat = plane(like, np.array(find_case(case).example))
    low, high = flat.space.box("base")
    top = mle(flat)
    values = flat.surface(flat.space.grid(points))[0].reshape(points, points)
    return {
        "names": list(flat.space.working_names),
        "axes": [np.linspace(low[k], high[k], points).tolist() for k in range(2)],
        "values": np.round(values - float(top.log_likelihood), 2).tolist(),
        "mle": np.round(top.estimate, 5).tolist(),
        "truth": [float(v) for v in find_case(case).example[-2:]],
    }


def plane(like: Likelihood, theta: Floats) -> Likelihood:
    """The likelihood as a function of the last two parameters, the others held at theta's."""
    held = theta[:-2]
    space = Space(like.space.parameters[-2:])

    def whole(rows: Floats) -> Floats:
        return np.concatenate([np.tile(held, (len(rows), 1)), rows], axis=1)

    def gradient(rows: Floats, group: Integers) -> tuple[Floats, Floats]:
        value, slope = like.pairs_gradient(whole(rows), group)
        return value, slope[:, -2:]

    return replace(
        like,
        space=space,
        pairs=lambda rows, group: like.pairs(whole(rows), group),
        pairs_gradient=gradient,
        surface=lambda rows: like.surface(whole(rows)),
        traceable=None,
        calibration=None,
    )
