"""Tests of who is infected that err: what they show, and what their numbers say of their errors.

A test of one person at one time is positive with probability

    sensitivity        if the person is infected (v = 1),
    1 - specificity    if not (v = 0),

independently of all others. With n[v, y] the number of tests of people in state v with result y,

    d log P(results | states) / d sensitivity = n[1, 1] / sensitivity - n[1, 0] / (1 - sensitivity),
    d log P(results | states) / d specificity = n[0, 0] / specificity - n[0, 1] / (1 - specificity).

With the states known this is the tests' part of the joint score; with the mean of n given the
results, that of the score.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keepscore.checks import Floats, as_data, as_number, as_real
from keepscore.errors import DomainError, DtypeError
from keepscore.numerics import gillespie
from keepscore.numerics.hidden_chain import MISSING
from keepscore.space import Space

ERRORS = ("sensitivity", "specificity")
_DRAWS_AT_ONCE = 2**22


def as_error(value: float | None, name: str) -> float | None:
    """A sensitivity or specificity that is given, or None."""
    if value is None:
        return None
    number = as_number(value, name)
    if not 0.0 < number <= 1.0:
        raise DomainError(f"{name} must lie in (0, 1]; got {value!r}.")
    return number


def known_error(value: float | None, name: str, space: Space) -> float | None:
    """What is known of it: what is given, 1 where nothing is said; None: it is a parameter."""
    if name in space.names:
        if value is not None:
            raise DomainError(
                f"{name} is among the parameters, and {name}={value!r} is given too. Leave one out."
            )
        _require_inside(space, name)
        return None
    number = 1.0 if value is None else value
    if space.fixed.get(name, number) != number:
        raise DomainError(f"The space fixes {name} at {space.fixed[name]}, but it is {number}.")
    return number


def _require_inside(space: Space, name: str) -> None:
    k = space.index(name)
    low, high = (float(space.parameters[k].to_raw(bound[k])) for bound in space.box("train"))
    if not 0.0 < low < high < 1.0:
        raise DomainError(
            f"{name} is a probability between 0 and 1; the training box has it from {low:g} to "
            f"{high:g}. Use narrower bounds, or a smaller train_margin."
        )


def results(
    states: NDArray[np.uint8], errors: Floats, streams: NDArray[np.uint64]
) -> NDArray[np.uint8]:
    """Results (n, T, K) of testing everybody in states (n, T, K), with errors (n, 2); each row
    draws from its own stream."""
    n, times, nodes = states.shape
    shown = np.empty_like(states)
    rows = max(1, _DRAWS_AT_ONCE // (times * nodes))
    for i in range(0, n, rows):
        part = slice(i, i + rows)
        moved = streams[part].copy()
        draw = gillespie.uniforms(moved, times * nodes).reshape(-1, times, nodes)
        sensitivity, specificity = errors[part].T[..., None, None]
        shown[part] = np.where(states[part] == 1, draw < sensitivity, draw >= specificity)
    return shown


def numbers(states: NDArray[np.uint8], shown: NDArray[np.uint8]) -> Floats:
    """n[v, y] of each row: (n, 2, 2)."""
    kind = 2 * states + shown
    counted = [(kind == c).sum(axis=(1, 2)) for c in range(4)]
    return np.stack(counted, axis=1).reshape(-1, 2, 2).astype(np.float64)


def slopes(numbers: Floats, errors: Floats) -> Floats:
    """Derivatives (n, 2) in sensitivity and specificity, both inside (0, 1)."""
    right = np.stack([numbers[:, 1, 1], numbers[:, 0, 0]], axis=1)
    wrong = np.stack([numbers[:, 1, 0], numbers[:, 0, 1]], axis=1)
    return right / errors - wrong / (1.0 - errors)


def as_binary(data: NDArray[Any]) -> NDArray[np.uint8]:
    """States or results of 0 and 1 as whole numbers."""
    bad = (data != 0) & (data != 1)
    if bad.any():
        raise DtypeError(
            "x must hold 0 (susceptible) and 1 (infected) only; "
            f"got {data[bad][0]!r} and {int(bad.sum())} such value(s) in all."
        )
    return data.astype(np.uint8)


def as_results(x: ArrayLike, x_shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Results (n, *x_shape) of 0 and 1, NaN where nobody was tested, as 0, 1 and MISSING."""
    array = as_real(x, "x")
    missing = np.isnan(array)
    shown = as_binary(as_data(np.where(missing, 0, array), x_shape))
    shown[missing] = MISSING
    return shown
