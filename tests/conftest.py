"""Before anything imports numpy or jax: one BLAS thread per test process, JAX on the CPU.

Under the tests only, jaxtyping and beartype check the shapes that internal signatures promise.
"""

import os
import signal
from importlib.metadata import version

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

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
