"""A compiled likelihood asked for few numbers of rows, so that little is compiled.

A surrogate's head is compiled once per number of rows, half a second each, and evaluated in well
under a millisecond. A search that closes in asks for ever fewer rows, and refining asks for clouds
of many sizes: a dozen programs, and most of the time of refining one data set. Here rows are padded
to SMALL, or cut into blocks of LARGE, the last one padded: two programs for values and two for
gradients, whatever is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from keepscore.checks import Floats
from keepscore.likelihood import Integers, Likelihood
from keepscore.space import REGIONS

SMALL, LARGE = 16, 256

Rows = Callable[[Floats, Integers], Any]


def with_few_sizes(like: Likelihood) -> Likelihood:
    """The same likelihood, rows of `pairs` and `pairs_gradient` in numbers of SMALL and LARGE; one
    that is not compiled is returned as it is. A maximum that is known stays known."""
    if like.traceable is None:
        return like

    def pairs(theta: Floats, group: Integers) -> Floats:
        found = np.empty(len(theta))
        for part, value in _in_blocks(like.pairs, theta, group):
            found[part] = value[: part.stop - part.start]
        return found

    def pairs_gradient(theta: Floats, group: Integers) -> tuple[Floats, Floats]:
        found, slopes = np.empty(len(theta)), np.empty(theta.shape)
        for part, (value, slope) in _in_blocks(like.pairs_gradient, theta, group):
            found[part] = value[: part.stop - part.start]
            slopes[part] = slope[: part.stop - part.start]
        return found, slopes

    few = replace(like, pairs=pairs, pairs_gradient=pairs_gradient)
    for region in REGIONS:
        known = like.known_maximum(region)
        if known is not None:
            few.remember(known)
    return few


def _in_blocks(function: Rows, theta: Floats, group: Integers) -> Iterator[tuple[slice, Any]]:
    """Parts of the rows, and what the function says of each, padded."""
    size = SMALL if len(theta) <= SMALL else LARGE
    for start in range(0, len(theta), size):
        part = slice(start, min(start + size, len(theta)))
        # The last row again and again: its value is known to be sound where the row's is.
        index = np.minimum(np.arange(start, start + size), part.stop - 1)
        yield part, function(theta[index], group[index])
