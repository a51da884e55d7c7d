"""Compiled functions: Numba, with the machine code kept on disk where there is a place for it.

Numba keeps compiled code beside the source file, or in the user's cache folder, or in
NUMBA_CACHE_DIR. In a read-only install without a home none of these can be written, and Numba
refuses at the decorator. Then functions are compiled anew in each process: slower, and said once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from numba import njit

from keepscore.errors import KeepscoreWarning

TOLD = "KEEPSCORE_NO_CACHE_TOLD"  # in the environment, so that worker processes know it too


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, **options)`, without the cache where it cannot be written."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache function" not in str(error):
                raise
        _say_once()
        return njit(**options)(function)

    return decorate


def _say_once() -> None:
    if TOLD in os.environ:
        return
    os.environ[TOLD] = "1"
    warnings.warn(
        "No folder for compiled code can be written: the exact numerics are compiled anew in "
        "every process, which takes some seconds each time. Results are the same. Set "
        "NUMBA_CACHE_DIR to a folder of yours that can be written.",
        KeepscoreWarning,
        stacklevel=3,
    )
