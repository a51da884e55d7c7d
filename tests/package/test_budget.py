"""Time budgets: as much as fits, said where it is less; stages are told."""

import time

import numpy as np
import pytest
from likelihoods import FastToy

import keepscore as ks
from keepscore.budget import affordable, as_minutes, seconds_of, voice
from keepscore.errors import DomainError, KeepscoreWarning
from keepscore.evaluation.scorecard import SIZES, Size, exact_side

FIELD = ks.models.GaussianField(shape=(3, 3))


def test_all_that_was_asked_for_fits_in_silence():
    assert affordable(None, 1e9, 10, 2, "draws", "f") == 10
    assert affordable(1.0, 1.0, 60, 2, "draws", "f") == 60


def test_what_does_not_fit_is_said():
    with pytest.warns(KeepscoreWarning, match=r"f: 30 draws instead of 100 fit into 60 s\."):
        assert affordable(1.0, 2.0, 100, 2, "draws", "f") == 30
    with pytest.warns(KeepscoreWarning, match="fewest that make sense: about 100 s"):
        assert affordable(1.0, 2.0, 100, 50, "draws", "f") == 50


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_minutes_are_positive(minutes):
    with pytest.raises(DomainError, match="positive"):
        as_minutes(minutes)
    assert as_minutes(None) is None


def test_seconds_of_the_second_time():
    """The first call is slow, as one that compiles is."""
    calls = []

    def work():
        calls.append(1)
        time.sleep(0.2 if len(calls) == 1 else 0.0)

    assert seconds_of(work) < 0.1


def test_a_voice(capsys):
    told = []
    voice(told.append, "f")("a")
    voice(True, "f")("b")
    voice(False, "f")("c")
    assert told == ["a"]
    assert capsys.readouterr().err == "keepscore f: b\n"


def test_check_model_makes_fewer_draws_and_says_so():
    told = []
    with pytest.warns(KeepscoreWarning, match="check_model: 50 draws instead of 1,000"):
        found = ks.check_model(FIELD, show=False, minutes=1e-6, progress=told.append)
    assert found.passed
    assert any("parameter value 3 of 3" in line for line in told)


def test_check_model_without_a_limit_is_as_before():
    one = ks.check_model(FIELD, draws=50, show=False)
    two = ks.check_model(FIELD, draws=50, show=False, minutes=1_000)
    assert str(one) == str(two)


def test_calibrate_takes_fewer_groups_and_says_so():
    told = []
    with pytest.warns(KeepscoreWarning, match="calibrate: 100 groups instead of 4,000"):
        made = ks.calibrate(
            FIELD, FIELD, group_size=3, intervals=False, minutes=1e-6, progress=told.append
        )
    assert len(made.held_out) == 50
    assert told == ["100 of 100 groups"]
    same = ks.calibrate(FIELD, FIELD, group_size=3, n=100, intervals=False)
    np.testing.assert_array_equal(made.held_out, same.held_out)


def test_a_scorecard_takes_a_smaller_size_and_says_so(monkeypatch):
    monkeypatch.setitem(SIZES, "quick", Size(20, 8, 2, 2, 1))
    monkeypatch.setitem(SIZES, "small", Size(40, 16, 4, 2, 2))
    told = []
    with pytest.warns(KeepscoreWarning, match="size 'quick' .* instead of 'small'"):
        sets = exact_side(FastToy(), "small", say=told.append, minutes=1e-6)
    assert sets.size == "quick"
    assert exact_side(FastToy(), "small", minutes=1_000).size == "small"
    assert told[0] == "timing the exact likelihood"
