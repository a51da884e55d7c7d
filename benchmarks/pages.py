"""Tables in the documentation, each between two marks, `<!-- name: begin -->` and `end`."""

from __future__ import annotations

from pathlib import Path

from benchmarks import machine

PAGE = machine.ROOT / "docs" / "benchmarks.md"


def marks(name: str) -> tuple[str, str]:
    """The two marks of a table."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def write_between(page: Path, name: str, table: str) -> None:
    """Put the table in the place of what is between its marks."""
    begin, end = marks(name)
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{page} has no place for the table {name}.")
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}")
