"""For the reference page: our docstrings say `Example:` where Griffe expects `Examples:`.

Without it, what stands there is taken for prose, and every `>>>` for three quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

SECTION = re.compile(r"^Example:$", re.M)


class ExamplesAsCode(griffe.Extension):
    """Named in mkdocs.yml; Griffe calls it for every object that it reads."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Call the section as Griffe does."""
        if obj.docstring is not None:
            obj.docstring.value = SECTION.sub("Examples:", obj.docstring.value)
