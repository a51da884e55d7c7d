"""docs/reproduction.md, filled from the cells' JSON between two markers.

    python -m keepscore.experiments.document [results [docs/reproduction.md]]

Nothing between the markers is written by hand; a test compares the page with the results.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from keepscore.errors import FormatError, StorageError
from keepscore.experiments.cases import CASES, OURS
from keepscore.experiments.claims import CLAIMS, judge, of_paper
from keepscore.experiments.results import Result, find, load_exact, load_results, summary_columns
from keepscore.experiments.words import title
from keepscore.experiments.worth import worth_table
from keepscore.files import write_atomically

COMPARED = "30k"  # the paper's network beside which ours is shown
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def results_section(results: Path) -> str:
    """The generated part of the page: claims, then equivalence and cells of each case."""
    found = {case: load_results(results, case) for case in CASES}
    return "\n".join([*_claims(found), *_cases(results, found)])


def fill(results: Path, page: Path) -> bool:
    """Put the section into the page; True if that changed it."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(f"Cannot read {page}: {error.strerror}.") from error
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise FormatError(f"{page} needs the line {BEGIN} once, and {END} once after it.")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    new = f"{before}{BEGIN}\n\n{results_section(results)}\n\n{END}{after}"
    if new != text:
        write_atomically(page, lambda file: file.write(new.encode()))
    return new != text


def _claims(found: dict[str, list[Result]]) -> Iterator[str]:
    yield "## Claims"
    yield ""
    yield "| Claim | Case | Measured here | Verdict | Cells |"
    yield "|---|---|---|---|---|"
    for claim in CLAIMS:
        for k, (case, results) in enumerate(found.items()):
            finding = judge(claim, results)
            text = claim.text if k == 0 else ""
            yield f"| {text} | {case} | {finding.measured} | {finding.verdict} | {finding.cells} |"


def _cases(path: Path, found: dict[str, list[Result]]) -> Iterator[str]:
    for case, results in found.items():
        yield ""
        yield f"## {CASES[case].title}"
        yield ""
        if not results:
            yield f"Not yet run. Command: `keepscore reproduce {case} --profile committed`."
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
    worth = worth_table(results)
    if worth:
        yield "What ASA at N is worth in BCE simulations, and the time those would train:"
        yield ""
        yield "| Network | N | Metric | Worth | Time |"
        yield "|---|---|---|---|---|"
        for w in worth:
            time = "" if w.found.time_factor is None else f"{w.found.time_factor:.2g}x"
            yield f"| {w.network} | {w.found.n:,} | {w.label} | {w.found} | {time} |"
        yield ""
    yield from _ours(results)
    columns = summary_columns(results)
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for k in range(len(results)):
        yield "| " + " | ".join(values[k] for values in columns.values()) + " |"


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
        'What we advise instead (`network="auto"`, `TrainConfig.recommended()`, '
        "`ASA.recommended()`), means over seeds, with the range where there are several:"
    )
    yield ""
    yield "| | " + " | ".join(f"{t} ({len(found)})" for t, found in shown.items()) + " |"
    yield "|---|" + "---|" * len(shown)
    for metric in mine[0].metrics():
        if (words := title(metric)) is not None:
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
