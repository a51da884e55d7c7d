"""Equivalence: a power law gives its known answer; noise, ends and bad input are handled."""

import json

import numpy as np
import pytest

from keepscore.errors import DomainError, MissingError, NonFiniteError, UnknownNameError
from keepscore.evaluation.equivalence import equivalence, monotone

SIZES = (30_000, 100_000, 300_000, 1_000_000)


def power_law(n, c=50.0, b=0.4):
    return c * n**-b


CURVE = {n: [power_law(n)] for n in SIZES}


@pytest.mark.parametrize("factor", [1.0, 2.5, 7.0])
def test_power_law_is_inverted_exactly(factor):
    found = equivalence(CURVE, 30_000, [power_law(30_000 * factor)])
    assert found.factor == pytest.approx(factor, rel=1e-9)
    assert found.beyond is None
    assert found.simulations == pytest.approx(30_000 * factor)
    assert found.interval == (None, None)  # one seed everywhere: nothing to judge by


def test_linear_scale_interpolates_values_in_log_n():
    curve = {n: [1.0 - 0.1 * np.log(n)] for n in SIZES}
    found = equivalence(curve, 100_000, [1.0 - 0.1 * np.log(400_000)], scale="linear")
    assert found.factor == pytest.approx(4.0)


def test_linear_scale_is_free_of_the_origin():
    # The excess over any optimum gives the same answer as the BCE itself.
    curve = {30_000: [0.41], 100_000: [0.40], 300_000: [0.39]}
    shifted = {n: [v[0] - 0.376] for n, v in curve.items()}
    a = equivalence(curve, 30_000, [0.396], scale="linear")
    b = equivalence(shifted, 30_000, [0.396 - 0.376], scale="linear")
    assert a.factor == pytest.approx(b.factor)


def test_beyond_the_largest_run_is_said():
    found = equivalence(CURVE, 30_000, [power_law(3_000_000)])
    assert found.beyond == "more"
    assert found.factor == pytest.approx(1_000_000 / 30_000)
    assert "more than 33.3x" in str(found)
    assert "1,000,000" in str(found)


def test_before_the_smallest_run_is_said():
    found = equivalence(CURVE, 30_000, [power_law(10_000)])
    assert found.beyond == "fewer"
    assert str(found).startswith("at most 1x")


def test_a_bump_in_the_curve_is_pooled():
    assert monotone(np.array([4.0, 1.0, 3.0, 0.5]), np.ones(4)).tolist() == [4.0, 2.0, 2.0, 0.5]
    curve = {1000: [4.0], 2000: [1.0], 4000: [3.0], 8000: [0.5]}
    # Pooled level 2 is first reached at N = 2000, whatever the bump says.
    found = equivalence(curve, 1000, [2.0], scale="linear")
    assert found.simulations == pytest.approx(2000)
    assert found.sooner is None


def test_runs_that_disagree_are_said():
    # Pooled level 3 is not reached with 2.5, though the smaller run alone has 2.
    found = equivalence({1000: [2.0], 2000: [4.0]}, 1000, [2.5], scale="linear")
    assert (found.beyond, found.sooner) == ("more", 1000)
    assert "uncertain, BCE with 1,000 simulations reached it too" in str(found)
    assert found.brief() == "> 2?"
    assert equivalence({1000: [4.0], 2000: [2.0]}, 1000, [2.5], scale="linear").sooner is None


@pytest.mark.slow
def test_seeds_give_an_interval_that_covers():
    """200 noisy replications: the 95% interval holds the true factor 3 in at least 85%.

    Binomial(200, .95) falls below 170 with probability 1e-8; intervals half as wide fail.
    """
    rng, hits, widths = np.random.default_rng(1), 0, []
    for _ in range(200):
        noisy = {n: power_law(n) * np.exp(0.05 * rng.standard_normal(3)) for n in SIZES}
        value = power_law(90_000) * np.exp(0.05 * rng.standard_normal(3))
        low, high = equivalence(noisy, 30_000, value).interval
        hits += low <= 3.0 <= high
        widths.append(high / low)
    assert hits >= 170
    assert np.median(widths) < 2  # theory: exp(2 * 2.1 * 0.05 * sqrt(2 / 3) / 0.4) = 1.5


def test_an_interval_open_above():
    noisy = {n: list(power_law(n) * np.array([0.9, 1.0, 1.1])) for n in SIZES}
    found = equivalence(noisy, 30_000, list(power_law(950_000) * np.array([0.9, 1.0, 1.1])))
    assert found.open_above
    assert "over" in str(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_brief_says_the_same_in_a_table():
    assert equivalence(CURVE, 30_000, [power_law(75_000)]).brief() == "2.5"
    assert equivalence(CURVE, 30_000, [power_law(3_000_000)]).brief() == "> 33"
    assert equivalence(CURVE, 30_000, [power_law(10_000)]).brief() == "≤ 1"
    seeds = np.array([0.97, 1.0, 1.03])
    noisy = {n: list(power_law(n) * seeds) for n in SIZES}

    def of(simulations):
        return equivalence(noisy, 100_000, list(power_law(simulations) * seeds)).brief()

    inside = equivalence(noisy, 100_000, list(power_law(300_000) * seeds))
    assert of(300_000) == "3 ({:.2g} to {:.2g})".format(*inside.interval)
    assert of(950_000).endswith(" to > 10)")
    assert of(30_000).startswith("0.3 (< 0.3 to ")
    assert of(10_000_000) == "> 10 (> 10)"


def test_time_factor():
    seconds = {n: [n / 1000] for n in SIZES}
    found = equivalence(
        CURVE, 30_000, [power_law(90_000)], baseline_seconds=seconds, seconds=[33.0]
    )
    assert found.time_factor == pytest.approx(90 / 33, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (({30_000: [1.0]}, 30_000, [1.0]), MissingError),
        ((CURVE, 30_000, []), MissingError),
        ((CURVE, 30_000, [-1.0]), DomainError),
        ((CURVE, 30_000, [np.nan]), NonFiniteError),
        ((CURVE, 30_000, [1.0], "cubic"), UnknownNameError),
    ],
)
def test_bad_input(arguments, error):
    with pytest.raises(error):
        equivalence(*arguments)
