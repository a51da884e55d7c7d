"""Check that a tag and all places that name the version agree: python .ci/release_version.py v0.1.0

The version has one source, `__version__` in src/keepscore/__init__.py. Two pages name it for
readers: CITATION.cff, and CHANGELOG.md, whose heading of a release is `## 0.1.0 (date)`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def source() -> str:
    text = (ROOT / "src" / "keepscore" / "__init__.py").read_text()
    return re.findall(r'^__version__ = "([^"]+)"$', text, re.M)[0]


def faults(tag: str) -> list[str]:
    version = source()
    cited = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    found = []
    if tag != f"v{version}":
        found.append(f"The tag is {tag}, the package says {version}.")
    if cited != [version]:
        found.append(f"CITATION.cff says {', '.join(cited) or 'nothing'}, the package {version}.")
    if version not in headings:
        found.append(f"CHANGELOG.md has no heading for {version}.")
    return found


if __name__ == "__main__":
    found = faults(sys.argv[1])
    print("\n".join(found) or f"One version everywhere: {source()}.")
    sys.exit(1 if found else 0)
