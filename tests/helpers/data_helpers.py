"""What a data set folder holds, for comparison."""

from __future__ import annotations

import json


def files(folder):
    """Every file by name: its bytes; plan and manifest without the commit they were made at, which
    may change while tests run, and the checksum that covers it."""
    found = {}
    for path in folder.iterdir():
        found[path.name] = path.read_bytes()
        if path.name in ("plan.json", "manifest.json"):
            content = json.loads(found[path.name])
            del content["environment"]["commit"], content["checksum"]
            found[path.name] = content
    return found
