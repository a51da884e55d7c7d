"""Notebooks of the pages that are Python from top to bottom: `python docs/make_notebooks.py`.

A page's text becomes cells of text, its code cells of code, and the outputs that `run_page` wrote
into it outputs. `examples/` holds the result; a test compares it with the pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGES = {"your_own_model": "tutorial.md", "exact_answers": "howto/refine.md"}
PIECE = re.compile(
    r"```python\n(?P<code>.*?)```\n|<!-- output \d+ -->\n+```text\n(?P<out>.*?)```\n", re.DOTALL
)


def notebook(page: str) -> dict[str, object]:
    """The notebook of a page's text, as the JSON that Jupyter reads."""
    cells: list[dict[str, object]] = []

    def text(part: str) -> None:
        if part.strip():
            cells.append(_cell("markdown", part.strip()))

    end = 0
    for found in PIECE.finditer(page):
        text(page[end : found.start()])
        end = found.end()
        if found["code"] is not None:
            code = _cell("code", found["code"].rstrip())
            cells.append({**code, "execution_count": None, "outputs": []})
            continue
        last = next(c for c in reversed(cells) if c["cell_type"] == "code")
        stream = {"output_type": "stream", "name": "stdout", "text": _lines(found["out"])}
        last["outputs"] = [stream]
    text(page[end:])
    for k, cell in enumerate(cells):
        cell["id"] = f"cell-{k}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def notebooks() -> dict[Path, str]:
    """Every notebook by its file: what `examples/` must hold."""
    return {
        HERE.parent / "examples" / f"{name}.ipynb": _json(notebook((HERE / page).read_text()))
        for name, page in PAGES.items()
    }


def _cell(kind: str, source: str) -> dict[str, object]:
    return {"cell_type": kind, "metadata": {}, "source": _lines(source)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for file, content in notebooks().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
