"""The core works without the extras, and what needs one says which, in one sentence."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from keepscore.checks import require_package
from keepscore.errors import MissingError

ROOT = Path(__file__).parents[2]
EXTRAS = ("sklearn", "pandas", "distributed", "dask", "numpyro", "sbi", "torch", "mkdocs",
          "hypothesis", "beartype", "psutil")  # fmt: skip
BLOCKED = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
import numpy as np
import keepscore as ks
from keepscore.errors import MissingError
"""
CORE = """
from toys import GaussianToy
from training_helpers import SHORT, Tiny

model = GaussianToy()
data = ks.simulate(model, 200, jobs=1)
surrogate = ks.train(data, network=Tiny, config=SHORT)
xs = model.simulate(np.zeros((10, 2)), np.random.default_rng(1))
like = surrogate.given(xs)
found = ks.mle(like)
ks.lrt(like, np.zeros(2))
ks.confidence_set(model.given(xs))
ks.calibrate(model, model, group_size=2, n=100, intervals=False)
field = ks.models.GaussianField(3)
field.score(np.zeros((1, 3)), np.ones((1, 3, 3)))
print("estimate", found.estimate.shape)
"""
ASKED = """
from keepscore.bridges.sbi import box_prior
from keepscore.evaluation.scorecard import Scorecard

def said(call):
    try:
        call()
    except MissingError as error:
        print(error)

space = ks.models.SIS().space
said(lambda: ks.simulate(ks.models.SIS(), 10, cluster="tcp://localhost:1"))
said(lambda: ks.models.from_numpyro(print, space=space, observed="x"))
said(lambda: box_prior(space))
said(lambda: Scorecard.to_frame(None))
"""


def run(script):
    paths = [str(ROOT / "tests" / "helpers"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + script], capture_output=True, text=True, timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_core_runs_without_any_extra():
    assert "estimate (2,)" in run(CORE)


def test_a_missing_extra_is_named_in_one_sentence():
    said = run(ASKED).splitlines()
    assert said == [
        f"{what} needs {package}, which is not installed: pip install 'keepscore[{extra}]'."
        for what, package, extra in (
            ("cluster=", "distributed", "dask"),
            ("from_numpyro", "numpyro", "numpyro"),
            ("The bridge to sbi", "torch", "sbi"),
            ("to_frame", "pandas", "pandas"),
        )
    ]


def test_the_extras_named_are_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"dask", "numpyro", "sbi", "pandas", "docs"} <= set(project["optional-dependencies"])
    required = " ".join(project["dependencies"])
    optional = ("scikit-learn", "pandas", "distributed", "numpyro", "sbi", "torch")
    assert [name for name in optional if name in required] == []


def test_a_fault_inside_a_package_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        require_package("half_there", "this", "some")
    with pytest.raises(MissingError, match="this needs not_there_at_all"):
        require_package("not_there_at_all.part", "this", "some")
