"""An install that cannot be written, and no home: everything works, and says once that it is slow.

Root may write anywhere, so as root the child first gives that right up (CAP_DAC_OVERRIDE).
"""

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import keepscore
from keepscore.errors import KeepscoreWarning
from keepscore.numerics import jit

OBEDIENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
LIGHT = """
import sys
import numpy as np
import keepscore
from keepscore.inference.draws import as_arviz, chain_quality
from keepscore.numerics.kernels import correlation_and_slopes

lag = np.array([[0.0, 1.0]])
print(correlation_and_slopes("exponential", lag, 0 * lag, 1.0, 1.0)[0])
draws = as_arviz({"posterior": {"a": np.random.default_rng(0).standard_normal((4, 50))}})
assert chain_quality(draws, ["a"])["a"].ess > 50
sys.argv = ["keepscore", "--help"]
from keepscore.cli import main
main()
"""
WHOLE = """
import sys
import numpy as np
import keepscore as ks

if __name__ == "__main__":
    model, rng = ks.models.SIS(), np.random.default_rng(0)
    print(ks.simulate(model, 2000, path=sys.argv[1] + "/data", jobs=2))
    print(ks.mle(model.given(model.simulate(np.full((5, 2), 0.1), rng))))
"""


@pytest.fixture
def read_only(tmp_path):
    """A copy of the package and a home, neither of which can be written."""
    site, home = tmp_path / "site", tmp_path / "home"
    package = Path(keepscore.__file__).parent
    shutil.copytree(package, site / "keepscore", ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    for folder, _, files in os.walk(site):
        for file in files:
            os.chmod(Path(folder) / file, 0o444)
        os.chmod(folder, 0o555)
    os.chmod(home, 0o555)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(site),
        "JAX_PLATFORMS": "cpu",
    }

    def run(code, *words):
        file = tmp_path / "code.py"
        file.write_text(code)
        return subprocess.run(
            [sys.executable, "-c", OBEDIENT, str(file), *map(str, words)],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280,
        )  # fmt: skip

    probe = run(f"open({str(site / 'x')!r}, 'w')")
    if "PermissionError" not in probe.stderr:
        pytest.skip("nothing is read-only here")
    return run


def test_everything_works_and_says_once_that_it_is_slower(read_only):
    done = read_only(LIGHT)
    assert done.returncode == 0, done.stderr
    assert "0.367" in done.stdout
    assert "check-model" in done.stdout
    assert done.stderr.count("No folder for compiled code can be written") == 1


@pytest.mark.slow
def test_worker_processes_do_not_repeat_it(read_only, tmp_path):
    (tmp_path / "out").mkdir()
    done = read_only(WHOLE, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "n=2000" in done.stdout
    assert done.stderr.count("No folder for compiled code can be written") == 1


def test_compiled_falls_back_and_other_errors_pass(monkeypatch):
    monkeypatch.setenv(jit.TOLD, "1")  # what comes is put back in the end
    monkeypatch.delenv(jit.TOLD)

    def refuse(text):
        def njit(cache=False, **options):
            if cache:
                raise RuntimeError(text)
            return lambda function: function

        return njit

    def twice(x):
        return 2 * x

    monkeypatch.setattr(jit, "njit", refuse("cannot cache function 'twice': no locator"))
    with pytest.warns(KeepscoreWarning, match="NUMBA_CACHE_DIR"):
        assert jit.compiled(nogil=True)(twice)(3) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jit.compiled(nogil=True)(twice)(4) == 8  # said once
    monkeypatch.setattr(jit, "njit", refuse("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        jit.compiled()(twice)
