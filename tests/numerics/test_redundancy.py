"""Entries that follow from others are found, whatever the units; those that nearly do are not."""

import numpy as np
import pytest

from keepscore.numerics.redundancy import directions_in, following, rule_of, whole_of, wholes_in

RNG = np.random.default_rng(3)


def found(rows):
    return np.flatnonzero(following(rows)).tolist()


@pytest.mark.parametrize("p", [1, 2, 6])
def test_of_independent_entries_none_follows(p):
    rng = np.random.default_rng(2)
    assert found(rng.standard_normal((400, p))) == []


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_total_follows_from_its_parts_in_any_units(scale):
    rng = np.random.default_rng(3)
    a, b = scale * rng.gamma(2.0, size=(2, 400))
    rows = np.c_[a, b, a + b, 3 * scale + 2 * a]
    assert found(rows) == [2, 3]
    assert found(rows[:, ::-1]) == [2, 3]  # the later ones, in any order
    assert found(rows.astype(np.float32).astype(float)) == [2, 3]  # rounded to float32


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_rule_by_which_they_follow_is_found(scale):
    rng = np.random.default_rng(4)
    a, b = scale * rng.gamma(2.0, size=(2, 400))
    rows = np.c_[a, a + b, b, 3 * scale + 2 * a]
    left_out = following(rows)
    spread, constant, *slopes = rule_of(rows, left_out).T
    np.testing.assert_allclose(spread, rows[:, 2:].std(axis=0))
    np.testing.assert_allclose(constant, [0, 3 * scale], atol=1e-9 * scale)
    np.testing.assert_allclose(slopes, [[-1, 2], [1, 0]], atol=1e-9)


def test_what_is_nearly_a_total_does_not_follow():
    """The control: a thousandth of its own is enough to be an entry of its own."""
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, 400))
    assert found(np.c_[a, b, a + b + 1e-3 * rng.standard_normal(400)]) == []
    assert found(np.c_[a, b, a * b]) == []  # not linear


def test_rows_that_are_missing_do_not_count_and_few_rows_say_nothing():
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((2, 400))
    rows = np.c_[a, b, a + b]
    holes = rows.copy()
    holes[::3] = np.nan
    assert found(holes) == [2]
    assert found(rows[:8]) == []  # three entries and a mean want more
    assert found(np.full((5, 3), np.nan)) == []


@pytest.mark.parametrize("whole", [1.0, 24.0, 100.0])
@pytest.mark.parametrize("p", [2, 6])
def test_parts_of_a_whole_are_known_by_their_sum(whole, p):
    rng = np.random.default_rng(7)
    rows = whole * rng.dirichlet(np.full(p, 2.0), 400)
    assert whole_of(rows) == pytest.approx(whole)
    assert whole_of(rows.astype(np.float32).astype(float)) == pytest.approx(whole, rel=1e-5)
    holes = np.where(np.arange(400)[:, None] % 2 == 0, np.nan, rows)
    assert whole_of(holes) == pytest.approx(whole)


@pytest.mark.parametrize(
    "rows",
    [
        RNG.gamma(2.0, size=(400, 3)),  # sums differ
        np.where(np.arange(400)[:, None] == 7, [1.0, 0.0, 0.0], RNG.dirichlet(np.ones(3), 400)),
        np.c_[a := RNG.standard_normal((400, 2)), 1 - a.sum(axis=1)],  # some below zero
        np.ones((400, 1)),
        np.full((400, 2), 0.5),  # nothing varies
        RNG.dirichlet(np.ones(3), 400)[:8],  # too few
        np.full((400, 3), np.nan),
    ],
)
def test_other_rows_are_no_parts(rows):
    assert whole_of(rows) is None
    assert wholes_in(rows) == []


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_wholes_are_found_among_other_entries(kind):
    rng = np.random.default_rng(8)
    a, b = rng.dirichlet([2.0, 3.0, 1.0], 400), 100 * rng.dirichlet([1.0, 4.0], 400)
    free = rng.standard_normal((400, 2))
    rows = np.c_[free[:, 0], b[:, 0], a, free[:, 1], b[:, 1]].astype(kind).astype(float)
    assert wholes_in(rows) == [((2, 3, 4), pytest.approx(1)), ((1, 6), pytest.approx(100))]
    assert wholes_in(np.c_[a, b / 100].astype(kind).astype(float)) == [
        ((0, 1, 2), pytest.approx(1)),  # not all five as parts of 2
        ((3, 4), pytest.approx(1)),
    ]
    assert wholes_in(a) == [((0, 1, 2), pytest.approx(1))]


def test_totals_differences_and_constants_are_no_wholes():
    rng = np.random.default_rng(9)
    a, b, c = rng.gamma(2.0, size=(3, 400))
    for rows in (
        np.c_[a, b, a + b],
        np.c_[a, b, c],
        np.c_[a, b, 3 - a - b],  # some below zero
        np.c_[a, np.ones((400, 2))],
    ):
        assert wholes_in(rows) == []


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("concentration", [0.1, 3.0, 300.0])
def test_directions_are_found_among_other_entries(kind, concentration):
    rng = np.random.default_rng(10)
    angle = rng.vonmises(0.0, concentration, (2, 400))
    (c, d), (s, t) = np.cos(angle), 5 * np.sin(angle)
    rows = np.c_[s, rng.standard_normal(400), 5 * c, d, t / 5].astype(kind).astype(float)
    assert directions_in(rows) == [((0, 2), pytest.approx(5)), ((3, 4), pytest.approx(1))]


def test_other_pairs_are_no_directions():
    """Rings with a width, a large number that varies little beside a small one, constants."""
    rng = np.random.default_rng(11)
    angle, noise = rng.vonmises(0.0, 1.0, 400), rng.standard_normal((2, 400))
    ring = np.c_[np.cos(angle), np.sin(angle)] * (1 + 1e-3 * noise[0])[:, None]
    assert directions_in(ring) == []
    assert directions_in(np.c_[1000 + 1e-3 * noise[0], 0.1 * noise[1]]) == []
    assert directions_in(np.c_[noise[0], np.ones(400)]) == []
    assert directions_in(np.ones((400, 3))) == []
    assert directions_in(noise[:1].T) == []
    assert directions_in(np.c_[np.cos(angle), np.sin(angle)][:6]) == []
