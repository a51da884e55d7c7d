"""Undo fixes one at a time, in a copy of the package: a test must fail for each.

    python tests/helpers/undo_fixes.py [numbers]        (from the root of the repository)

Each entry: what was wrong, the file, the text of the fix, what stands there without it, the tests
that must notice. Exit status 1 if a fix can be undone unnoticed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXES = (
    ("whole bounds make an integer box", "space.py",
     "object.__setattr__(self, field_name, number)", "pass",
     "tests/package/test_input_kinds.py tests/package/test_space.py"),
    ("x is cast behind the user's back", "checks.py",
     "    if changed.any():\n", "    if False:\n", "tests/models/test_given_values.py"),
    ("user code works in place on stored arrays", "models/from_functions.py",
     "return function(theta.copy(), x.copy())", "return function(theta, x)",
     "tests/models/test_given_values.py"),
    ("a header claims more than its file holds", "npy.py",
     "    if math.prod(shape) * dtype.itemsize != size:\n", "    if False:\n",
     "tests/data/test_data_hostile.py tests/package/test_files.py"),
    ("a pipe in place of a file hangs", "files.py",
     "    if not stat.S_ISREG(os.fstat(handle).st_mode):\n", "    if False:\n",
     "tests/package/test_files.py"),
    ("no folder for compiled code", "numerics/jit.py",
     'if "cannot cache function" not in str(error):', "if True:",
     "tests/package/test_read_only.py"),
    ("laws that were not checked are said to hold", "models/laws.py",
     'return f"{found}; not checked: {\', \'.join(open_)}" if open_ else found', "return found",
     "tests/models/test_laws.py -k not_checked"),
    ("a sharp likelihood is convicted", "models/from_functions.py",
     "GOOD_DIFFERENCE, SHORTER_STEPS = 1e-4, 7", "GOOD_DIFFERENCE, SHORTER_STEPS = 1e-4, 1",
     "tests/models/test_from_functions.py -k sharp"),
    ("signs of a symmetry are ignored", "models/base.py",
     "return moved if self.theta_sign is None else", "return moved if True else",
     "tests/models/test_laws.py -k signs"),
    ("the default margin does not shrink", "space.py",
     "return 0.2 if d <= 3 else 2 * (1.1 ** (3 / d) - 1)", "return 0.2",
     "tests/package/test_space.py -k margin"),
    ("an unknown choice is compared with arrays", "checks.py",
     "if not isinstance(value, str) or value not in names:", "if value not in names:",
     "tests/package/test_checks.py"),
)  # fmt: skip


def noticed(file: str, fix: str, without: str, tests: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "keepscore"
        shutil.copytree(ROOT / "src" / "keepscore", package)
        content = (package / file).read_text()
        if fix not in content:
            raise SystemExit(f"{file} no longer holds the fix {fix!r}.")
        (package / file).write_text(content.replace(fix, without))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *tests.split()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
        )
        return done.returncode == 1


def main() -> int:
    chosen = [int(word) for word in sys.argv[1:]] or range(len(FIXES))
    unnoticed = 0
    for number in chosen:
        what, *rest = FIXES[number]
        found = noticed(*rest)
        unnoticed += not found
        print(f"{number:2d} {'noticed' if found else 'UNNOTICED'}: {what}", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
