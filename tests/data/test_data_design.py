"""The design, row by row: a true permutation of cells, one draw a cell, the same from any shard."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from toys import GaussianToy

from keepscore.data.design import PURPOSES, permuted, round_keys, stream, thetas
from keepscore.data.plan import make_plan, share_of
from keepscore.errors import DomainError
from keepscore.space import Parameter, Space, cells_per_side


@given(size=st.integers(1, 3000), root=st.integers(0, 2**70))
def test_permuted_is_a_permutation(size, root):
    values = permuted(range(size), size, round_keys(root, "train"))
    assert np.array_equal(np.sort(values), np.arange(size))


@given(size=st.integers(1, 10**15), start=st.integers(0, 10**15), root=st.integers(0, 2**32))
def test_a_part_of_the_permutation_needs_nothing_else(size, start, root):
    start = min(start, size - 1)
    rows, keys = range(start, min(start + 40, size)), round_keys(root, "train")
    part = permuted(rows, size, keys)
    assert part.max() < size
    assert len(np.unique(part)) == len(rows)
    one_by_one = [permuted(range(i, i + 1), size, keys)[0] for i in rows]
    assert np.array_equal(part, one_by_one)


def test_the_chosen_cells_look_random():
    """First 2000 of 4096 cells in 64 equal groups over 50 seeds: a chi-square of counts, and rank
    correlation of position and cell. False alarm 1e-6; the identity permutation fails."""

    def p_values(order):
        observed = np.bincount(order[:2000].astype(np.int64) // 64, minlength=64)
        # Without replacement, counts are hypergeometric: variance smaller by (M - n) / (M - 1).
        chi2 = ((observed - 31.25) ** 2 / 31.25).sum() / ((4096 - 2000) / 4095)
        rank = stats.spearmanr(np.arange(4096), order).pvalue
        return stats.chi2.sf(chi2, 63), rank

    tests = [
        p
        for root in range(50)
        for p in p_values(permuted(range(4096), 4096, round_keys(root, "train")))
    ]
    assert min(tests) > 1e-6 / len(tests)
    assert stats.kstest(tests, "uniform").pvalue > 1e-6
    assert min(p_values(np.arange(4096))) < 1e-12  # the control


@pytest.mark.parametrize("n", [1, 2, 63, 64, 100, 1000, 4097])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("purpose", ["train", "validation"])
def test_one_draw_in_each_chosen_cell(n, d, purpose):
    space = Space([Parameter(f"p{k}", -1.0 - k, 2.0, "identity") for k in range(d)])
    theta = np.concatenate(
        [
            thetas(space, n, 7, purpose, shard, range(start, min(start + 64, n)))
            for shard, start in enumerate(range(0, n, 64))
        ]
    )
    low, high = space.box("train")
    side = cells_per_side(n, d)
    cells = np.floor((theta - low) / (high - low) * side).astype(int)
    assert theta.shape == (n, d)
    assert cells.min() >= 0
    assert cells.max() < side
    assert len(np.unique(cells, axis=0)) == n


def test_draws_within_cells_are_uniform():
    """Kolmogorov-Smirnov on 4000 positions within cells, false alarm 1e-6, detects 0.045."""
    space = GaussianToy().space
    theta = thetas(space, 4000, 3, "train", 0, range(4000))
    low, high = space.box("train")
    inner = ((theta - low) / (high - low) * cells_per_side(4000, 2)) % 1
    for column in inner.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-6
        assert stats.kstest(column**1.3, "uniform").pvalue < 1e-6  # the control


def test_test_sets_are_uniform_on_the_base_box():
    space = GaussianToy().space
    theta = thetas(space, 4000, 3, "test", 0, range(4000))
    low, high = space.box("base")
    assert space.contains(theta, "base").all()
    for column in ((theta - low) / (high - low)).T:
        assert stats.kstest(column, "uniform").pvalue > 1e-6
    side = cells_per_side(4000, 2)
    cells = np.floor((theta - low) / (high - low) * side).astype(int)
    assert len(np.unique(cells, axis=0)) < 3000  # independent draws collide, strata would not


def test_many_parameters_are_just_uniform():
    space = Space([Parameter(f"p{k}", 0.0, 1.0, "identity") for k in range(70)])
    theta = thetas(space, 100, 0, "train", 0, range(100))
    assert theta.shape == (100, 70)
    assert space.contains(theta, "train").all()


def test_streams_of_purposes_kinds_and_shards_never_meet():
    draws = {
        (root, purpose, kind, shard): tuple(
            stream(root, purpose, kind, shard).integers(2**63, size=4)
        )
        for root in (0, 1, 2**64)
        for purpose in PURPOSES
        for kind in ("cells", "theta", "x")
        for shard in range(20)
    }
    assert len(set(draws.values())) == len(draws)


@given(n=st.integers(1, 10**7))
def test_shards_cover_the_rows_once(n):
    plan = make_plan(GaussianToy(), n, 0, "train", True, "raise")
    edges = [plan.rows(k) for k in range(plan.shards)]
    assert edges[0].start == 0
    assert edges[-1].stop == n
    assert all(a.stop == b.start for a, b in itertools.pairwise(edges))
    assert all(0 < len(rows) <= 8192 for rows in edges)


@given(shards=st.integers(1, 200), k=st.integers(1, 20))
def test_shares_cover_the_shards_once(shards, k):
    taken = sorted(s for i in range(1, k + 1) for s in share_of(shards, (i, k)))
    assert taken == list(range(shards))


@pytest.mark.parametrize("share", [(0, 3), (4, 3), (1, 0)])
def test_a_share_out_of_range_is_an_error(share):
    with pytest.raises(DomainError):
        share_of(10, share)


def test_scores_do_not_change_the_shards_or_the_design():
    with_scores = make_plan(GaussianToy(), 5000, 0, "train", True, "raise")
    without = make_plan(GaussianToy(), 5000, 0, "train", False, "raise")
    assert with_scores.shard_rows == without.shard_rows
    assert np.array_equal(with_scores.thetas(3), without.thetas(3))
