"""A compiled likelihood is asked in few sizes, and says the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy, toy_groups

import keepscore as ks
from keepscore.inference.few_sizes import LARGE, SMALL, with_few_sizes
from keepscore.likelihood import Traced


def noted(groups=3):
    """A likelihood that is called compiled, and the numbers of rows it was asked for."""
    _, _, x = toy_groups(groups, seed=4)
    plain, sizes = FastToy().given(x), set()

    def note(function):
        def ask(theta, group):
            sizes.add(len(theta))
            return function(theta, group)

        return ask

    like = replace(
        plain,
        pairs=note(plain.pairs),
        pairs_gradient=note(plain.pairs_gradient),
        traceable=Traced(lambda data, theta, group: 0.0, None),
    )
    return plain, like, sizes


@pytest.mark.parametrize("rows", [1, 2, SMALL, SMALL + 1, LARGE, LARGE + 1, 700])
def test_the_numbers_are_the_same_and_the_sizes_few(rows):
    plain, like, sizes = noted()
    rng = np.random.default_rng(rows)
    theta, group = like.space.uniform(rows, rng), rng.integers(3, size=rows)
    few = with_few_sizes(like)
    np.testing.assert_array_equal(few.pairs(theta, group), plain.pairs(theta, group))
    for ours, theirs in zip(
        few.pairs_gradient(theta, group), plain.pairs_gradient(theta, group), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert sizes <= {SMALL, LARGE}


def test_no_rows_are_no_rows():
    _, like, sizes = noted()
    few, none = with_few_sizes(like), np.zeros(0, dtype=int)
    assert few.pairs(np.zeros((0, 2)), none).shape == (0,)
    assert few.pairs_gradient(np.zeros((0, 2)), none)[1].shape == (0, 2)
    assert not sizes


def test_a_search_and_refining_ask_in_few_sizes():
    plain, like, sizes = noted()
    surrogate = replace(like, kind="surrogate", traceable=None)
    ks.refine(surrogate, plain, evaluations=12)
    assert len(sizes) > 4  # what it would be without
    sizes.clear()
    few = with_few_sizes(like)
    ks.mle(few)
    assert sizes <= {SMALL, LARGE}


def test_what_is_not_compiled_stays_and_maxima_stay_known():
    plain, like, _ = noted()
    assert with_few_sizes(plain) is plain
    ks.mle(like)
    few = with_few_sizes(like)
    np.testing.assert_array_equal(few.known_maximum().theta, like.known_maximum().theta)
    assert few.known_maximum("test") is None
