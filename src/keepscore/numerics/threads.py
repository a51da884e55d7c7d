"""One BLAS thread where that is faster: many small factorisations in a row.

A Cholesky factor of 150 x 150 takes a tenth of a millisecond. Handing half of it to another thread
and waiting for the answer takes longer than the work, and far longer when other programs want the
cores. Matrices of more than `LARGE` rows gain from threads and are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController

LARGE = 1000


@contextmanager
def one_blas_thread(rows: int) -> Iterator[None]:
    """BLAS works with one thread inside, if the largest matrix has at most `LARGE` rows."""
    if rows > LARGE:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    """Looking through the libraries of the process takes a millisecond, so it is done once."""
    import scipy.linalg.blas  # noqa: F401  its library must be there to be found

    return ThreadpoolController()
