"""One HTML page per case study: python -m reproduction.pages results --out report.html"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from keepscore.errors import MissingError
from keepscore.files import make_folder
from keepscore.reports import write
from reproduction.__main__ import run
from reproduction.page import cases_in, reproduction_content


def pages(
    results: Annotated[Path, typer.Argument(help="Folder written by `python -m reproduction`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
) -> None:
    """Write a page for each case study that has results: `out`, or `out` with the case's name."""
    cases = cases_in(results)
    if not cases:
        raise MissingError(f"No results under {results}. Run `python -m reproduction` first.")
    make_folder(out.parent)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    for case in cases:
        page = out if len(cases) == 1 else out.with_name(f"{out.stem}-{case}{out.suffix}")
        typer.echo(f"Report: {write(reproduction_content(results, case, now), page)}")


if __name__ == "__main__":
    run(pages, "reproduction.pages")
