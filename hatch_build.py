"""The README as a package index shows it: links to files of the repository become addresses.

In the repository links are relative, so that they work in a clone and on every branch. A page of an
index has no files beside it; there they point to the tag of the same version.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)]+)\)")


def with_addresses(text: str, repository: str, tag: str) -> str:
    """Relative links and pictures of a page as addresses in the repository at a tag."""

    def absolute(link: re.Match[str]) -> str:
        mark, words, path = link.groups()
        return f"{mark}[{words}]({repository}/{'raw' if mark else 'blob'}/{tag}/{path})"

    return LINK.sub(absolute, text)


class ReadmeHook(MetadataHookInterface):
    """Named in pyproject.toml; hatchling calls it for every build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        root = Path(self.root)
        package = (root / "src" / "keepscore" / "__init__.py").read_text(encoding="utf-8")
        (version,) = re.findall(r'^__version__ = "([^"]+)"$', package, re.M)
        text = (root / "README.md").read_text(encoding="utf-8")
        text = with_addresses(text, metadata["urls"]["Source"], f"v{version}")
        metadata["readme"] = {"text": text, "content-type": "text/markdown"}
