"""Hooks of the documentation site (`make docs`).

Figures of the reproduction stand beside their JSON in results/, outside the pages' folder. A page
links to them as ../results/..., which is right in the repository; here they join the site.

Formulas become MathML when the site is built: browsers set it themselves, without scripts, fonts or
a network. A formula that cannot be converted stops the build.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
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


# What arithmatex leaves of $...$ and of $$...$$.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """TeX to MathML."""
    content = DISPLAY.sub(lambda m: f'<div class="formula">{mathml(m[1], "block")}</div>', content)
    return INLINE.sub(lambda m: mathml(m[1], "inline"), content)


def mathml(tex: str, display: str) -> str:
    """One formula; its TeX stays as the words for those who cannot see it."""
    source = html.unescape(tex).strip()
    words = f'<math alttext="{html.escape(source)}" '
    return convert(source, display=display).replace("<math ", words, 1)
