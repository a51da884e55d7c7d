"""Run the benchmarks: `python -m benchmarks [part ...] [--quick] [--out FOLDER]`.

A part is one or more modules with

    run(quick: bool) -> dict     plain data, JSON-able
    table(result: dict) -> str   the same for a reader

Results go to benchmarks/results/<part>.json with the machine, the versions and the commit. A quick
run checks that everything works, goes to <part>.quick.json, and its times mean little.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from keepscore.errors import MissingError
from keepscore.files import make_folder, write_json

PARTS = {
    "numerics": ("numerics_sis", "numerics_fields"),
    "simulation": ("simulation",),
    "training": ("training",),
    "inference": ("inference",),
    "posteriors": ("posteriors",),
    "peers": ("peers.training",),
    "peers-inference": ("peers.inference",),
    "coverage": ("interval_coverage",),
    "data-check": ("data_check",),
    "dimensions": ("dimensions",),
    "cloudy-fields": ("cloudy_fields",),
    "designs": ("designs",),
    "maps": ("maps",),
    "paths": ("paths",),
    "rows": ("rows",),
    "quality-line": ("quality_line",),
    "fits": ("fits",),
    "ablation": ("ablation",),
    "refinement": ("refinement",),
    "sbibm": ("sbibm.sweep",),
}
# Long ones, not among "all parts".
BY_NAME_ONLY = (
    "ablation",
    "refinement",
    "sbibm",
    "data-check",
    "cloudy-fields",
    "designs",
    "maps",
    "paths",
    "rows",
    "quality-line",
    "fits",
)


def run_part(part: str, quick: bool, folder: Path) -> None:
    """Run a part's modules one after the other, print their tables, and keep the results."""
    record: dict[str, Any] = {"part": part, "quick": quick, "machine": machine.describe()}
    results = record["results"] = {}
    for name in PARTS[part]:
        module = importlib.import_module(f"benchmarks.{name}")
        start = time.perf_counter()
        results[name] = module.run(quick)
        took = time.perf_counter() - start
        print(f"\n## {name} ({took:.0f} s)\n\n{module.table(results[name])}", flush=True)
    path = make_folder(folder) / f"{part}{'.quick' if quick else ''}.json"
    write_json(path, record)
    print(f"\n{part}: written to {path}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--out", type=Path, default=machine.ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    unknown = [part for part in chosen.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
    for part in chosen.parts or [name for name in PARTS if name not in BY_NAME_ONLY]:
        try:
            run_part(part, chosen.quick, chosen.out)
        except MissingError as error:
            # Asked for by name it is an error; among all parts the others still count.
            print(f"\n{part}: not run. {error}", file=sys.stderr, flush=True)
            if chosen.parts:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
