"""The sweep: every cell of a profile once, here or on a cluster, going on where it stopped.

A cell whose file is there is done and is not touched; deleting the file is how to ask for it again.
A killed sweep loses at most the steps since the last checkpoint of the cell it was in, and ends
with the same numbers. On a cluster the shared inputs come first (one task each), then one task a
cell; all machines must see `path`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keepscore.data import dask_client
from reproduction.cases import Cell, SweepPlan, find_cases, find_plan
from reproduction.cell import run_cell, write_exact
from reproduction.inputs import Workspace
from reproduction.results import (
    EXACT,
    Result,
    cell_file,
    load_results,
    read_result,
    require_same_settings,
    summary_text,
)

Report = Callable[[str], Any]


def reproduce(
    case: str = "all",
    profile: str = "laptop",
    path: str | Path = "runs/reproduce",
    cluster: Any = None,
    report: Report = print,
) -> dict[str, list[Result]]:
    """Run (what is missing of) a profile; results by case.

    case: "sis", "gaussian", "student-t" or "all". profile: "smoke", "laptop", "committed" or
    "paper". cluster: address of a Dask scheduler, or a `distributed.Client`; None runs one cell
    after the other here. report: called with each line of progress.
    """
    folder = Path(path).resolve()
    plans = {name: find_plan(name, profile) for name in find_cases(case)}
    with _runner(cluster) as run:
        for name, plan in plans.items():
            _run_case(name, plan, folder, run, report, shared=cluster is not None)
    results = {name: load_results(folder, name) for name in plans}
    for name, found in results.items():
        report(f"\n{name}: {len(found)} cells in {folder / name}")
        report(summary_text(found))
    return results


def missing_cells(case: str, plan: SweepPlan, path: Path) -> list[Cell]:
    """The cells of a plan that have no result yet; one computed otherwise is an error."""
    missing = []
    for cell in plan.cells(case):
        file = cell_file(path, cell)
        if file.exists():
            require_same_settings(read_result(file), plan.settings(), file)
        else:
            missing.append(cell)
    return missing


# Calls a function on each of several argument tuples; yields the results as they come.
Run = Callable[[Callable[..., Any], list[tuple[Any, ...]]], Iterator[Any]]


def _run_case(
    case: str, plan: SweepPlan, path: Path, run: Run, report: Report, shared: bool
) -> None:
    """`shared`: cells run at the same time, so their data sets are made before them; one after the
    other, each cell makes what it is the first to need, and small cells do not wait for large
    data."""
    every, missing = plan.cells(case), missing_cells(case, plan, path)
    report(f"{case}: {len(every)} cells, {len(every) - len(missing)} of them done already")
    Workspace(path, case).make()
    if not (path / case / EXACT).exists():
        for _ in run(write_exact, [(case, plan, path)]):
            report(f"{case}: exact results written")
    data = {(cell.n, cell.seed): cell for cell in missing} if shared else {}
    for _ in run(_prepare, [(cell, plan, path) for cell in data.values()]):
        pass
    started, done = time.perf_counter(), len(every) - len(missing)
    for result in run(run_cell, [(cell, plan, path) for cell in missing]):
        done += 1
        report(_progress(result, done, len(every), time.perf_counter() - started))


def _prepare(cell: Cell, plan: SweepPlan, path: Path) -> None:
    """The data sets of a cell, for it and for all cells of its size and seed."""
    workspace = Workspace(path, cell.case)
    for purpose in ("train", "validation"):
        workspace.data(cell, plan, purpose)


def _progress(result: Result, done: int, total: int, elapsed: float) -> str:
    cell, m = result.cell, result.metrics()
    label = f"{cell.case} {cell.network} N={cell.n:,} {cell.loss} seed {cell.seed}"
    return (
        f"[{done:>3}/{total}] {label:<42} BCE {m['bce']}   far RMSE {m['rmse_far']}   "
        f"coverage {m['coverage']}   {elapsed / 60:.1f} min"
    )


@contextmanager
def _runner(cluster: Any) -> Iterator[Run]:
    if cluster is None:
        yield lambda function, calls: (function(*call) for call in calls)
        return
    with dask_client(cluster) as client:
        from distributed import as_completed

        def run(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> Iterator[Any]:
            futures = [client.submit(function, *call, pure=False) for call in calls]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                client.cancel(futures)

        yield run
