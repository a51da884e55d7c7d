"""Typed errors. Each message says what was expected, what came, and what to do about it.

Every error is a `KeepscoreError` and also the built-in error a reader would expect
(`ValueError`, `OSError`, ...), so both `except ks.KeepscoreError` and plain Python idiom work.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# How NumPy 2 writes its scalars: np.float64(2.0), np.int64(3), np.True_.
_SCALAR = re.compile(r"\bnp\.(?:(?:float|int|uint)\d+\(([^()]*)\)|(True|False)_)")


def plain_numbers(text: str) -> str:
    """A message with NumPy's numbers as numbers: 2.0, not np.float64(2.0)."""
    return _SCALAR.sub(lambda found: found[1] or found[2], text)


class KeepscoreError(Exception):
    """Base of all errors that this package raises on purpose.

    Every such error is also the built-in one that a reader would expect (`ValueError`, `OSError`),
    and `computed` holds what had been computed before it, where that took long (`ks.refine`).

    Example:
        >>> import keepscore as ks
        >>> try:
        ...     ks.Parameter("rate", lower=1.0, upper=0.0)
        ... except ks.KeepscoreError as error:
        ...     print(type(error).__name__, isinstance(error, ValueError), error.computed)
        DomainError True None
    """

    computed: object = None

    def __init__(self, *words: object) -> None:
        super().__init__(*(plain_numbers(w) if isinstance(w, str) else w for w in words))


class ShapeError(KeepscoreError, ValueError):
    """An array has the wrong shape, or two arrays do not pair up row by row."""


class DtypeError(KeepscoreError, TypeError):
    """An array holds the wrong kind of values (e.g. text, or non-binary data for SIS)."""


class NonFiniteError(KeepscoreError, ValueError):
    """NaN or infinity where finite numbers are needed."""


class DomainError(KeepscoreError, ValueError):
    """A value lies outside what the model or the method is defined for."""


class UnknownNameError(KeepscoreError, ValueError):
    """A name (model, network size, parameter, option) that does not exist."""


class NotPositiveDefiniteError(KeepscoreError, ValueError):
    """A covariance matrix has no Cholesky factor; the message names theta."""


class TooLargeError(KeepscoreError, MemoryError):
    """The exact computation does not fit in memory."""


class MissingError(KeepscoreError, ValueError):
    """Something needed is absent: scores for ASA, a likelihood for an exact comparison, ..."""


class StorageError(KeepscoreError, OSError):
    """Writing or reading failed: no space, no permission, no such folder."""


class FormatError(KeepscoreError, ValueError):
    """A file is broken, foreign, of a newer format, or not safe to load."""


class MismatchError(KeepscoreError, ValueError):
    """A run folder belongs to other settings; the message says which differ."""


class BusyError(KeepscoreError, RuntimeError):
    """A folder is being written by another process; the message says which folder."""


class ModelError(KeepscoreError, ValueError):
    """A model whose simulator, likelihood and score contradict each other."""


class SimulationError(KeepscoreError, RuntimeError):
    """A simulator returned invalid values, or a worker failed repeatedly."""


class TrainingError(KeepscoreError, RuntimeError):
    """Training cannot go on, e.g. the loss became NaN."""


class ConvergenceError(KeepscoreError, RuntimeError):
    """A search or a sampler did not converge and no usable result exists."""


class InvariantError(KeepscoreError, RuntimeError):
    """A result broke a law that every such result obeys: a fault of keepscore, please report it."""


class KeepscoreWarning(UserWarning):
    """Something a user should know before trusting a result.

    Example:
        >>> import warnings
        >>> import keepscore as ks
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", ks.KeepscoreWarning)  # a doubtful result now raises
    """

    def __init__(self, *words: object) -> None:
        super().__init__(*(plain_numbers(w) if isinstance(w, str) else w for w in words))


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that does not exist, with the nearest match as a hint."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(names)}.")
