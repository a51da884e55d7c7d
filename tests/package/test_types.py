"""What a type checker sees of `ks.*`: the real types, and nothing that is not there."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import keepscore as ks

PACKAGE = Path(ks.__file__).parent
SCRIPT = """
import keepscore as ks

model = ks.models.SIS()
data = ks.simulate(model, 100)
surrogate = ks.train(data)
like = surrogate.given(data.x)
reveal_type(ks.mle(like))
reveal_type(ks.mle(like).on_boundary)
reveal_type(surrogate)
ks.nonsense(3)
ks.mle()
ks.Space(3)
"""


def test_the_stub_names_what_the_package_has():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    stub = {alias.asname: node.module for node in imports for alias in node.names}
    assert set(stub) | {"__version__"} == set(ks.__all__)
    for name, module in stub.items():
        if module != "keepscore":
            assert getattr(importlib.import_module(module), name) is getattr(ks, name)
    assert (PACKAGE / "py.typed").exists()


def test_mypy_sees_the_real_types(tmp_path):
    """Without the libraries' own types (`--no-site-packages`), which would take half a minute."""
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(SCRIPT)
    flags = ("--strict", "--follow-imports=silent", "--no-site-packages", "--cache-dir=cache")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, "script.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
        env={"MYPYPATH": str(PACKAGE.parent), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    said = done.stdout
    assert 'Revealed type is "keepscore.inference.mle.MLE"' in said
    assert 'Revealed type is "keepscore.surrogate.Surrogate"' in said
    errors = [line for line in said.splitlines() if ": error:" in line]
    assert len(errors) == 3, said
    assert 'no attribute "nonsense"' in errors[0]
    assert 'Missing positional argument "like"' in errors[1]
    assert 'expected "Sequence[Parameter]"' in errors[2]
