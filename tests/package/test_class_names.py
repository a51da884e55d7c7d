"""A class name stands for one thing in the package and in the reproduction beside it."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = ("src/keepscore", "reproduction")


def homes_of_classes(folders):
    """Class name -> the files that define it at their top level."""
    homes = defaultdict(list)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(path)
    return homes


def repeated(folders):
    return {name: found for name, found in homes_of_classes(folders).items() if len(found) > 1}


def test_every_class_name_has_one_home():
    found = homes_of_classes([ROOT / place for place in PLACES])
    assert len(found) > 100  # the files were read
    twice = repeated([ROOT / place for place in PLACES])
    assert not twice, {name: [str(p.relative_to(ROOT)) for p in ps] for name, ps in twice.items()}


def test_a_repeated_name_would_be_found(tmp_path):
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text("class Plan:\n    pass\n\n\nclass _Own:\n    pass\n")
    assert list(repeated([tmp_path])) == ["Plan"]
