"""docs/reproduction.md, filled from the cells' JSON between markers.

    python -m reproduction.document [results [docs/reproduction.md]]

A page has three parts not written by hand, `claims`, `cells` and `rate` (the cells of profile
`falling`, kept in results/falling, beside the same at the paper's rate), each between a line
<!-- claims: begin --> and a line <!-- claims: end -->; a test compares them with the results.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from keepscore.errors import FormatError, StorageError
from keepscore.evaluation import Equivalence, label_of
from keepscore.files import write_atomically
from reproduction.cases import CASES, OURS
from reproduction.claims import CLAIMS, judge, of_paper
from reproduction.results import Result, find, load_exact, load_results, summary_columns
from reproduction.worth_table import MetricWorth, worth_table

FALLING = "falling"  # the folder of that profile's cells
COMPARED = "30k"  # the paper's network beside which ours is shown
WORTH = (
    "What ASA at N is worth: N\\* / N, where BCE reaches the same with N\\* simulations "
    "(in brackets: 95% interval over seeds; >: the largest BCE run does not reach it; ?: the BCE "
    "runs disagree, one with fewer simulations reaches it too):"
)
TIME = "The time BCE trains on N\\* simulations, over the time of ASA on N:"


def sections(results: Path) -> dict[str, str]:
    """The generated parts of the page: the verdicts; then equivalence and cells of each case."""
    found = {case: load_results(results, case) for case in CASES}
    parts = {
        "claims": _claims(found),
        "cells": _cases(results, found),
        "rate": _rate(results, found),
    }
    return {part: "\n".join(lines).strip() for part, lines in parts.items()}


def fill(results: Path, page: Path) -> bool:
    """Put the parts into the page; True if that changed it."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(f"Cannot read {page}: {error.strerror}.") from error
    new = text
    for part, content in sections(results).items():
        before, _, after = cut(new, part, str(page))
        new = f"{before}\n\n{content}\n\n{after}"
    if new != text:
        write_atomically(page, lambda file: file.write(new.encode()))
    return new != text


def cut(text: str, part: str, name: str) -> tuple[str, str, str]:
    """A page in three: up to a part's first marker, the part, from its last marker on."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise FormatError(f"{name} needs the line {begin} once, and {end} once after it.")
    before, rest = text.split(begin)
    content, after = rest.split(end)
    return before + begin, content.strip(), end + after


def _claims(found: dict[str, list[Result]]) -> Iterator[str]:
    """The verdicts at a glance, then what they rest on."""
    judged = {(c, case): judge(c, results) for c in CLAIMS for case, results in found.items()}
    yield "| Claim | " + " | ".join(CASES[case].title for case in found) + " |"
    yield "|---|" + "---|" * len(found)
    for claim in CLAIMS:
        verdicts = (judged[claim, case].verdict for case in found)
        yield f"| {claim.text} | " + " | ".join(verdicts) + " |"
    yield ""
    yield "What was measured:"
    yield ""
    yield "| Claim | Case | Measured here | Verdict | Cells |"
    yield "|---|---|---|---|---|"
    for (claim, case), finding in judged.items():
        text = claim.text if case == next(iter(found)) else ""
        yield f"| {text} | {case} | {finding.measured} | {finding.verdict} | {finding.cells} |"


def _cases(path: Path, found: dict[str, list[Result]]) -> Iterator[str]:
    for case, results in found.items():
        yield ""
        yield f"## {CASES[case].title}"
        yield ""
        if not results:
            yield f"Not yet run. Command: `python -m reproduction {case} --profile committed`."
            continue
        yield from _summary(path, case, results)


def _summary(path: Path, case: str, results: list[Result]) -> Iterator[str]:
    commits = sorted({str(r.content["environment"].get("commit"))[:10] for r in results})
    yield f"{len(results)} cells in `results/{case}/`, from commit {', '.join(commits)}."
    exact = load_exact(path, case)
    if exact is not None:
        coverage, volume = exact["coverage"], exact["volume"]
        yield (
            f"The exact likelihood's own 95% sets cover {coverage['value']:.3f} ± "
            f"{coverage['se']:.3f} and have volume {volume['value']:.4g} on average."
        )
    yield ""
    yield from _worth(worth_table(results))
    yield from _ours(results)
    columns = summary_columns(results)
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for k in range(len(results)):
        yield "| " + " | ".join(values[k] for values in columns.values()) + " |"


def _worth(table: list[MetricWorth]) -> Iterator[str]:
    """Two tables, one row per network and N, one column per metric: simulations, and time."""
    if not table:
        return
    columns = dict.fromkeys(w.label for w in table)
    for heading, text in ((WORTH, Equivalence.brief), (TIME, _time)):
        yield heading
        yield ""
        yield "| network | N | " + " | ".join(columns) + " |"
        yield "|" + "---|" * (2 + len(columns))
        for network, n in dict.fromkeys((w.network, w.found.n) for w in table):
            row = {w.label: text(w.found) for w in table if (w.network, w.found.n) == (network, n)}
            yield f"| {network} | {n:,} | " + " | ".join(row[c] for c in columns) + " |"
        yield ""


def _time(found: Equivalence) -> str:
    return "" if found.time_factor is None else f"{found.bound}{found.time_factor:.2g}"


def _ours(results: list[Result]) -> Iterator[str]:
    """What we advise beside the paper's configurations: means over seeds, and their range."""
    mine = find(results, network=OURS)
    if not mine:
        return
    n = mine[0].cell.n
    shown = {f"ours, ASA, N = {n:,}": mine}
    for loss in ("asa", "bce"):
        same = find(results, network=COMPARED, n=n, loss=loss)
        shown[f"{COMPARED}, {loss.upper()}, N = {n:,}"] = same
    bce = find(of_paper(results), loss="bce")
    if bce:
        best = min(bce, key=lambda r: r.metric("bce").value).cell
        shown[f"{best.network}, BCE, N = {best.n:,} (the best BCE)"] = find(
            bce, network=best.network, n=best.n
        )
    shown = {what: found for what, found in shown.items() if found}
    yield (
        'What we advise instead (`network="auto"`, `TrainConfig()`, '
        "`ASA()`), means over seeds, with the range where there are several:"
    )
    yield ""
    yield "| | " + " | ".join(f"{t} ({len(found)})" for t, found in shown.items()) + " |"
    yield "|---|" + "---|" * len(shown)
    for metric in mine[0].metrics():
        if (words := label_of(metric)) is not None:
            yield f"| {words} | " + " | ".join(_range(r, metric) for r in shown.values()) + " |"
    yield ""


def _rate(path: Path, found: dict[str, list[Result]]) -> Iterator[str]:
    """The same cells at the paper's constant rate and at one that falls: means over seeds."""
    for case, results in found.items():
        fallen = load_results(path / FALLING, case)
        if not fallen:
            continue
        cells = {(r.cell.network, r.cell.n, r.cell.seed) for r in fallen}
        same = [r for r in results if (r.cell.network, r.cell.n, r.cell.seed) in cells]
        shown = {
            f"{loss.upper()}, {words}": find(cells_of, loss=loss)
            for words, cells_of in (("paper's rate", same), ("falling rate", fallen))
            for loss in ("bce", "asa")
        }
        yield (
            f"| {CASES[case].title} | "
            + " | ".join(f"{words} ({len(cells_of)})" for words, cells_of in shown.items())
            + " |"
        )
        yield "|---|" + "---|" * len(shown)
        for metric in fallen[0].metrics():
            if (words := label_of(metric)) is not None:
                yield f"| {words} | " + " | ".join(_range(r, metric) for r in shown.values()) + " |"
        yield ""


def _range(results: list[Result], metric: str) -> str:
    values = [r.metric(metric).value for r in results]
    text = f"{statistics.mean(values):.3g}"
    return text if len(values) == 1 else f"{text} ({min(values):.3g} to {max(values):.3g})"


def main(arguments: list[str]) -> int:
    """Fill the page; print whether it changed."""
    results = Path(arguments[0] if arguments else "results")
    page = Path(arguments[1] if len(arguments) > 1 else "docs/reproduction.md")
    print(f"{page}: {'filled anew' if fill(results, page) else 'unchanged'} from {results}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
