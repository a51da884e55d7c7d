"""Before anything imports numpy or jax: one BLAS thread per test process, JAX on the CPU.

Under the tests only, jaxtyping and beartype check the shapes that internal signatures promise.
"""

import os
import signal
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
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}".strip()
COMPILED = Path(tempfile.gettempdir()) / f"keepscore-test-compiled-{os.getuid()}"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Started in the background by a shell, we would ignore Ctrl-C, and so would the programs we test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from jaxtyping import install_import_hook  # noqa: E402

# What jaxtyping before 0.3.11 wraps, Numba cannot keep on disk.
if tuple(map(int, version("jaxtyping").split(".")[:3])) >= (0, 3, 11):
    _hook = install_import_hook(
        ["keepscore.numerics", "keepscore.networks", "keepscore.losses"], "beartype.beartype"
    )

from browsing import browser  # noqa: E402, F401
