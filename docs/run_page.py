"""Run the Python of a documentation page, and write what it prints into the page.

    python docs/run_page.py docs/tutorial.md

The blocks of a page run in order in one namespace. After the block, the mark `<!-- output k -->`
receives everything printed since the mark before it.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
MARK = re.compile(r"<!-- output (\d+) -->\n(?:\n```text\n.*?```\n)?", re.DOTALL)


def run_page(text: str) -> tuple[str, dict[str, object]]:
    """The page with fresh outputs, and the namespace its code ended in."""
    space: dict[str, object] = {"__name__": "__page__"}
    printed: dict[str, str] = {}
    pieces = sorted(
        [(m.start(), "code", m.group(1)) for m in BLOCK.finditer(text)]
        + [(m.start(), "mark", m.group(1)) for m in MARK.finditer(text)]
    )
    out = io.StringIO()
    for _, kind, content in pieces:
        if kind == "code":
            with contextlib.redirect_stdout(out):
                exec(compile(content, "page", "exec"), space)
        else:
            printed[content] = out.getvalue().rstrip()
            out = io.StringIO()

    def fill(match: re.Match[str]) -> str:
        number = match.group(1)
        return f"<!-- output {number} -->\n\n```text\n{printed[number]}\n```\n"

    return MARK.sub(fill, text), space


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(run_page(page.read_text())[0])
