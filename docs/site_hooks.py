"""Hooks of the documentation site (`make docs`).

Figures of the reproduction stand beside their JSON in results/, outside the pages' folder. A page
links to them as ../results/..., which is right in the repository; here they join the site.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: Any) -> Files:
    """Add every figure of results/ to the site."""
    for path in sorted(ROOT.glob("results/*/figures/*.svg")):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=path))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """In the site results/ is beside the pages, not beside their folder."""
    return markdown.replace("](../results/", "](results/")
