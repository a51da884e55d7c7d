"""Before anything imports numpy or jax: one BLAS thread per test process, JAX on the CPU.

Under the tests only, jaxtyping and beartype check the shapes that internal signatures promise.
"""

import gc
import os
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# Compiling takes longer than anything that small networks do: compile quickly, not well, and once
# for all test processes, the programs they start and the runs that follow.
QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
# The newer way to compile elementwise code takes twice as long. XLA ends the process at a flag that
# it does not know (JAX 0.12 does not), so another process tries it.
PLAINLY = "--xla_cpu_use_fusion_emitters=false"


def _xla_knows(flag: str) -> bool:
    environment = {**os.environ, "XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    return subprocess.run(command, env=environment, capture_output=True).returncode == 0


if QUICKLY not in os.environ.get("XLA_FLAGS", ""):  # a process started by tests has them already
    flags = [os.environ.get("XLA_FLAGS", ""), QUICKLY]
    flags += [PLAINLY] if _xla_knows(PLAINLY) else []
    os.environ["XLA_FLAGS"] = " ".join(flags).strip()
COMPILED = Path(tempfile.gettempdir()) / f"keepscore-test-compiled-{os.getuid()}"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# JAX keeps every program it traced: millions of objects that a full collection walks for nothing.
gc.set_threshold(200_000, 50, 1000)

# Started in the background by a shell, we would ignore Ctrl-C, and so would the programs we test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

# What jaxtyping before 0.3.11 wraps, Numba cannot keep on disk.
if tuple(map(int, version("jaxtyping").split(".")[:3])) >= (0, 3, 11):
    _hook = install_import_hook(
        ["keepscore.numerics", "keepscore.networks", "keepscore.losses"], "beartype.beartype"
    )

from browsing import browser  # noqa: E402, F401

# Files that take longest, longest first: begun at the end, one of them would leave a core idle.
# (`make test` hands out whole files, so that fixtures that train are made once, in this order.)
LONG = (
    "test_docs.py", "test_fit.py", "test_demo.py", "test_docstrings.py", "test_training.py",
    "test_reproduction.py", "test_missing.py", "test_fit_focus.py", "test_tutorials.py",
    "test_cli.py", "test_compose.py", "test_posterior.py", "test_surrogate.py", "test_focus.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """Long files first; the rest in its order."""
    place = {name: k for k, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONG)))


@pytest.fixture(autouse=True)
def _registered_models_are_as_before():
    """A page or test that registers a model of its own does so for itself alone."""
    from keepscore.models import base  # after the import hook

    builders, wrappers = dict(base._BUILDERS), dict(base._WRAPPERS)
    yield
    for now, before in ((base._BUILDERS, builders), (base._WRAPPERS, wrappers)):
        now.clear()
        now.update(before)
