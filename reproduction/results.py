"""Results on disk: one JSON file per cell, one for what is exact; read back as records and tables.

<path>/<case>/<key>.json     cell, settings, training, ltest, etest, surface, environment
<path>/<case>/exact.json     exact null statistics and sets, example surface and example data
<path>/<case>/timing.json    time per batch, measured apart (see `timing`); there or not
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepscore.errors import FormatError, MismatchError, MissingError
from keepscore.evaluation import METRICS, Estimate
from keepscore.files import make_folder, read_json, write_atomically
from reproduction.cases import CASES, Cell

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
EXACT = "exact.json"
TIMING = "timing.json"
TIMES = ("seconds_per_step", "seconds_total", "seconds_to_best")


@dataclass(frozen=True)
class Result:
    """A finished cell."""

    cell: Cell
    content: Mapping[str, Any]

    def metrics(self) -> dict[str, Estimate]:
        """Every metric of both tests, and the training times (which have no Monte Carlo error)."""
        found = {}
        for test in ("ltest", "etest"):
            for name, entry in self.content[test]["metrics"].items():
                found[name] = Estimate(entry["value"], entry["se"])
        for name in TIMES:
            found[name] = Estimate(self.content["training"][name], 0.0)
        return found

    def metric(self, name: str) -> Estimate:
        return self.metrics()[name]


def cell_file(path: Path, cell: Cell) -> Path:
    return path / cell.case / f"{cell.key}.json"


def write_result(path: Path, cell: Cell, content: Mapping[str, Any]) -> Result:
    """Store a finished cell, whole or not at all."""
    whole = {"format": FORMAT, "cell": asdict(cell), **content}
    write_record(cell_file(path, cell), whole)
    return Result(cell, whole)


def write_record(file: Path, content: Mapping[str, Any]) -> None:
    """JSON with one line for each part: long arrays stay short files, and a change is one line."""
    make_folder(file.parent)
    lines = [
        f"{json.dumps(key)}: {json.dumps(content[key], sort_keys=True, allow_nan=False)}"
        for key in sorted(content)
    ]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    write_atomically(file, lambda stream: stream.write(text.encode()))


def read_result(file: Path) -> Result:
    """A stored cell, or a typed error that names the file."""
    content = read_json(file)
    if content.get("format") != FORMAT:
        raise FormatError(
            f"{file} has format {content.get('format')!r}; this version reads {FORMAT}."
        )
    try:
        cell = Cell(**content["cell"])
        result = Result(cell, content)
        result.metrics()
    except (KeyError, TypeError) as error:
        raise FormatError(f"{file} is not the result of a cell: {error}.") from None
    return result


def require_same_settings(result: Result, settings: Mapping[str, Any], file: Path) -> Result:
    """Refuse to mix results of different test sizes or training settings in one folder."""
    there = result.content.get("settings", {})
    differing = [
        f"{part}.{key}: {there.get(part, {}).get(key)!r} there, {values.get(key)!r} here"
        for part, values in settings.items()
        for key in sorted({*there.get(part, {}), *values})
        if there.get(part, {}).get(key) != values.get(key)
    ]
    if differing:
        raise MismatchError(
            f"{file} was computed with other settings ({'; '.join(differing)}). "
            "Use another folder for this profile, or delete the file."
        )
    return result


def load_results(path: Path, case: str) -> list[Result]:
    """All finished cells of a case, in a fixed order; none if there is no folder. Their times are
    those of timing.json where it has them."""
    files = sorted((path / case).glob("*.json"))
    found = [read_result(file) for file in files if file.name not in (EXACT, TIMING)]
    if (path / case / TIMING).exists():
        times = read_json(path / case / TIMING)
        found = [_timed(result, times) for result in found]
    order = CASES[case].order
    return sorted(found, key=lambda r: (order.index(r.cell.network), r.cell))


def _timed(result: Result, times: Mapping[str, Any]) -> Result:
    """The result with the times it would have had alone on the machine of `times`."""
    step = seconds_per_step(times, result.cell.network, result.cell.loss)
    if step is None:
        return result
    own = result.content["training"]
    total, epochs = own["batches"] * step, own["epochs"]
    new = {
        "seconds_per_step": step,
        "seconds_total": total,
        "seconds_to_best": total * own["best_epoch"] / epochs,
        "curve": {**own["curve"], "seconds": [total * (k + 1) / epochs for k in range(epochs)]},
    }
    return replace(result, content={**result.content, "training": {**own, **new}})


def seconds_per_step(times: Mapping[str, Any], network: str, loss: str) -> float | None:
    """Median over the rounds of a timing record; None if this network was not measured."""
    try:
        rounds = times["milliseconds"].get(network, {}).get(loss)
        return None if rounds is None else statistics.median(rounds) / 1e3
    except (KeyError, AttributeError, TypeError, statistics.StatisticsError):
        raise FormatError(f"{TIMING} of {times.get('case')!r} is not a record of times.") from None


def load_exact(path: Path, case: str) -> dict[str, Any] | None:
    """What is exact in a case, or None if it was not run."""
    file = path / case / EXACT
    return read_json(file) if file.exists() else None


def find(results: list[Result], **wanted: Any) -> list[Result]:
    """The results whose cell has these values, e.g. network="30k", loss="asa"."""
    return [r for r in results if all(getattr(r.cell, k) == v for k, v in wanted.items())]


def summary_frame(results: list[Result]) -> pd.DataFrame:
    """One row per cell, one column per metric, and one per standard error."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise MissingError(
            "summary_frame needs pandas, which is not installed: pip install 'keepscore[pandas]'."
        ) from None
    return pd.DataFrame([dict(_row(result)) for result in results])


def _row(result: Result) -> Iterator[tuple[str, Any]]:
    yield from asdict(result.cell).items()
    for name, estimate in result.metrics().items():
        yield name, estimate.value
        if estimate.se:
            yield f"{name} se", estimate.se


def summary_columns(results: list[Result]) -> dict[str, list[str]]:
    """What a reader looks at first, as text: column name to one entry a cell."""
    shown = ("bce", "bce_excess", "rmse_far", "lrt_mse", "coverage", "volume")
    every = [r.metrics() for r in results]
    return {
        "network": [r.cell.network for r in results],
        "N": [f"{r.cell.n:,}" for r in results],
        "loss": [r.cell.loss.upper() for r in results],
        "seed": [str(r.cell.seed) for r in results],
        **{METRICS[name].column: [str(m[name]) for m in every] for name in shown},
        "ms a batch": [f"{1e3 * m['seconds_per_step'].value:.2f}" for m in every],
        "seconds": [f"{m['seconds_total'].value:.0f}" for m in every],
    }


def summary_text(results: list[Result]) -> str:
    """The table printed at the end of a sweep."""
    columns = summary_columns(results)
    widths = {name: max(map(len, [name, *values])) for name, values in columns.items()}
    lines = ["  ".join(name.rjust(widths[name]) for name in columns)]
    for k in range(len(results)):
        lines.append("  ".join(values[k].rjust(widths[name]) for name, values in columns.items()))
    return "\n".join(lines)
