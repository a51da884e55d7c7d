"""The paper's three case studies and what to run of them, as data.

A *case* is a model with its networks and learning rate. A *profile* says which cells of a case to
run (network size, number of simulations N, loss, seed) and how large the tests are:

    smoke      everything once, on next to nothing: does it run?
    laptop     about an hour per case on two cores
    committed  what stands in this repository's results/ (SIS in full, fields in part, more seeds,
               and what we advise instead)
    paper      the paper's tables in full
    falling    the 30K network, N = 30,000, three seeds, at a rate that falls from 1e-3 to zero: is
               it the paper's constant rate that keeps its tests from gaining by scores?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from keepscore.errors import unknown_name

LOSSES = ("bce", "asa")
OURS = "ours"  # in a cell's place for the network: what `ks.train` advises, network and recipe


@dataclass(frozen=True)
class Case:
    """A model of the paper. `example` is the theta whose data and surfaces are shown; with three
    parameters the surface is over the last two, the first held at its true value."""

    name: str
    model: str
    title: str
    networks: tuple[str, ...]
    example: tuple[float, ...]

    @property
    def order(self) -> tuple[str, ...]:
        """The paper's networks from small to large, then ours."""
        return (*self.networks, OURS)


@dataclass(frozen=True, order=True)
class Cell:
    """One training run and its tests."""

    case: str
    network: str
    n: int
    loss: str
    seed: int = 0

    @property
    def key(self) -> str:
        """Its name in a folder: 30k-n100000-asa-s0."""
        return f"{self.network}-n{self.n}-{self.loss}-s{self.seed}"


@dataclass(frozen=True)
class CellBlock:
    """Cells in bulk: every combination."""

    networks: tuple[str, ...]
    n: tuple[int, ...]
    losses: tuple[str, ...] = LOSSES
    seeds: tuple[int, ...] = (0,)

    def cells(self, case: str) -> list[Cell]:
        return [
            Cell(case, network, n, loss, seed)
            for seed in self.seeds
            for n in self.n
            for network in self.networks
            for loss in self.losses
        ]


@dataclass(frozen=True)
class Evaluation:
    """Sizes of the tests. pairs, exact, evidence, intervals: of the L-test. grid, groups, size: of
    the E-test (grid None: the paper's). surface: points per side of the example surface. points:
    the same of the grids behind set volumes (None: as accurate as `confidence_set` by default)."""

    pairs: int
    exact: int
    evidence: int
    intervals: int
    grid: tuple[int, ...] | None
    groups: int
    size: int
    surface: int
    points: int | None = None


@dataclass(frozen=True)
class SweepPlan:
    """What a profile runs of one case. `training` changes the paper's settings."""

    blocks: tuple[CellBlock, ...]
    evaluation: Evaluation
    training: Mapping[str, Any] = field(default_factory=dict)

    def cells(self, case: str) -> list[Cell]:
        """Each cell once, the quickest first."""
        found = {cell for block in self.blocks for cell in block.cells(case)}
        order = CASES[case].order
        return sorted(found, key=lambda c: (c.seed, c.n, order.index(c.network), c.loss != "bce"))

    def settings(self) -> dict[str, Any]:
        """What, besides the cell, decides a cell's numbers: plain data."""
        return {"evaluation": _plain(asdict(self.evaluation)), "training": dict(self.training)}


CASES = {
    case.name: case
    for case in (
        Case("sis", "sis", "SIS epidemics on a graph", ("3k", "10k", "30k", "100k"), (0.4, -0.3)),
        Case(
            "gaussian",
            "gaussian-field",
            "Gaussian field with nugget",
            ("30k", "100k", "300k", "1m"),
            (0.0, 0.4, -2.2),
        ),
        Case(
            "student-t",
            "student-t-field",
            "Student-t field",
            ("30k", "100k", "300k", "1m"),
            (0.0, 0.4, 0.8),
        ),
    )
}

K30, K100, K300, M1 = 30_000, 100_000, 300_000, 1_000_000
_SIS, _FIELD = CASES["sis"].networks, CASES["gaussian"].networks

# Few different numbers of observations: a network is compiled once for each.
_SMOKE_2 = Evaluation(256, 64, 16, 8, (2, 2), 4, 4, 9, points=12)
_SMOKE_3 = Evaluation(64, 64, 4, 4, (2, 2, 2), 2, 4, 5, points=5)
_LAPTOP_2 = Evaluation(100_000, 10_000, 5_000, 32, None, 15, 10, 41)
_LAPTOP_3 = Evaluation(20_000, 4_000, 500, 24, (3, 3, 3), 10, 10, 31)
_PAPER_2 = Evaluation(1_000_000, 20_000, 20_000, 32, None, 30, 10, 41)
_PAPER_3 = Evaluation(200_000, 20_000, 1_000, 32, None, 30, 10, 41)
# 96 steps: long enough for the first values of alpha.
_SHORT = {"min_epochs": 6, "max_epochs": 6, "batch_size": 16}

_FALLING = {"learning_rate": 1e-3, "schedule": "cosine"}
_THREE_SEEDS = (CellBlock(("30k",), (30_000,), seeds=(0, 1, 2)),)


def _paper(networks: tuple[str, ...]) -> tuple[CellBlock, ...]:
    return CellBlock(networks, (K30, K100, K300)), CellBlock(networks, (M1,), ("bce",))


def _smoke(network: str) -> tuple[CellBlock, ...]:
    return CellBlock((network,), (256,)), CellBlock((network,), (512,), ("bce",))


_OURS = CellBlock((OURS,), (K30,), ("asa",), seeds=(0, 1, 2))
_FIELDS_COMMITTED = (
    CellBlock(("30k", "100k", "300k"), (K30, K100)),
    CellBlock(("30k",), (K30,), seeds=(1, 2)),
    CellBlock(("1m",), (K30,)),
    CellBlock(("30k", "100k"), (K300,)),
    _OURS,
)
_FIELDS_LAPTOP = (CellBlock(("30k",), (K30, K100)), CellBlock(("30k",), (K300,), ("bce",)))

PROFILES: dict[str, dict[str, SweepPlan]] = {
    "smoke": {
        "sis": SweepPlan(_smoke("3k"), _SMOKE_2, _SHORT),
        "gaussian": SweepPlan(_smoke("30k"), _SMOKE_3, _SHORT),
        "student-t": SweepPlan((CellBlock(("30k",), (256,)),), _SMOKE_3, _SHORT),
    },
    "laptop": {
        "sis": SweepPlan(
            (
                CellBlock(("3k", "10k", "30k", "100k"), (K30,)),
                CellBlock(("30k", "100k"), (K100,)),
                CellBlock(("30k", "100k"), (K300,), ("bce",)),
            ),
            _LAPTOP_2,
        ),
        "gaussian": SweepPlan(_FIELDS_LAPTOP, _LAPTOP_3),
        "student-t": SweepPlan(_FIELDS_LAPTOP, _LAPTOP_3),
    },
    "committed": {
        "sis": SweepPlan(
            (*_paper(_SIS), CellBlock(("30k", "100k"), (K30, K100), seeds=(1, 2)), _OURS),
            _PAPER_2,
        ),
        "gaussian": SweepPlan(_FIELDS_COMMITTED, _PAPER_3),
        "student-t": SweepPlan(_FIELDS_COMMITTED, _PAPER_3),
    },
    "paper": {
        "sis": SweepPlan(_paper(_SIS), _PAPER_2),
        "gaussian": SweepPlan(_paper(_FIELD), _PAPER_3),
        "student-t": SweepPlan(_paper(_FIELD), _PAPER_3),
    },
    "falling": {
        "sis": SweepPlan(_THREE_SEEDS, _PAPER_2, _FALLING),
        "gaussian": SweepPlan(_THREE_SEEDS, _PAPER_3, _FALLING),
        "student-t": SweepPlan(_THREE_SEEDS, _PAPER_3, _FALLING),
    },
}


def find_case(name: str) -> Case:
    """A case study by name."""
    if name not in CASES:
        raise unknown_name("case study", name, CASES)
    return CASES[name]


def find_plan(case: str, profile: str) -> SweepPlan:
    """What a profile runs of a case."""
    if profile not in PROFILES:
        raise unknown_name("profile", profile, PROFILES)
    return PROFILES[profile][find_case(case).name]


def profile_of(case: str, cells: Iterable[Cell], settings: Mapping[str, Any]) -> str | None:
    """The shortest profile that runs all these cells with these settings."""
    wanted, found = set(cells), {}
    for name in PROFILES:
        plan = find_plan(case, name)
        if plan.settings() == settings and wanted <= set(plan.cells(case)):
            found[name] = len(plan.cells(case))
    return min(found, key=lambda name: found[name], default=None)


def find_cases(name: str) -> tuple[str, ...]:
    """One case, or "all"."""
    return tuple(CASES) if name == "all" else (find_case(name).name,)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()}
