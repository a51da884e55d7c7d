"""What a fit tries next, and what it expects that to take."""

import pytest

from keepscore.fitting.attempts import (
    Attempt,
    Rates,
    Tried,
    first_attempt,
    first_of,
    larger_than,
    next_attempt,
    rows_within,
    updates,
)
from keepscore.training import TrainConfig

CONFIG = TrainConfig()


def test_updates_are_those_of_a_training():
    """1,000 rows, 900 of them trained on: the least number of updates; many rows: the paper's."""
    assert updates(1_000, 2, CONFIG) == pytest.approx(7_000, rel=0.01)
    assert updates(2_000_000, 2, CONFIG) == pytest.approx(1_800_000 / 64 * 10, rel=0.01)


@pytest.mark.parametrize("seconds", [20.0, 100.0, 10_000.0])
def test_rows_within_a_time_are_the_most_that_fit(seconds):
    rates = Rates(1e-3, 2e-3, 1.0)
    n = rows_within(seconds, rates, 2, CONFIG)
    assert rates.seconds(n, 2, CONFIG) <= seconds
    assert rates.seconds(int(1.12 * n) + 1, 2, CONFIG) > seconds


def test_no_rows_fit_into_no_time():
    assert rows_within(0.0, Rates(1e-3, 2e-3), 2, CONFIG) == 0


def test_the_first_round_is_whole_cut_short_or_impossible():
    quick, slow = Rates(1e-5, 1e-4), Rates(1e-5, 5e-2, 2.0)
    assert first_attempt(60, quick, 2, CONFIG, "auto", "ASA") == Attempt(10_000, "auto", "ASA")
    cut = first_attempt(30, slow, 2, CONFIG, "auto", "ASA")
    assert cut is not None
    assert cut.n == 1_000
    assert cut.epochs is not None
    assert cut.epochs * 900 / 64 * slow.update <= 28
    assert first_attempt(3, slow, 2, CONFIG, "auto", "ASA") is None


def test_where_several_networks_take_too_long_one_is_trained_alone():
    """The rates of "auto" are those of all its trainings together."""
    many, one = Rates(1e-5, 4e-3, 100.0), Rates(1e-5, 1e-3, 20.0)
    choices = [("auto", many), ("residual-25k", one)]
    assert first_of(choices, (200.0, 500.0), 2, CONFIG, "ASA").network == "auto"
    alone = first_of(choices, (20.0, 80.0), 2, CONFIG, "ASA")
    assert (alone.network, alone.epochs) == ("residual-25k", None)
    cut = first_of(choices, (5.0, 23.0), 2, CONFIG, "ASA")
    assert (cut.network, cut.n) == ("residual-25k", 1_000)
    assert cut.epochs is not None
    assert first_of(choices, (1.0, 19.0), 2, CONFIG, "ASA") is None


def tried(n: int, loss: float, network: str = "residual-25k") -> Tried:
    return Tried(Attempt(n, network, "ASA"), n * 1e-3, 10.0, loss)


def test_simulations_grow_as_long_as_they_help():
    found, _ = next_attempt([tried(1_000, 1.0)], 1_000, 2, CONFIG, "residual-100k")
    assert found == Attempt(4_000, "residual-25k", "ASA")
    both = [tried(1_000, 1.0), tried(4_000, 0.5)]
    found, _ = next_attempt(both, 1_000, 2, CONFIG, "residual-100k")
    assert found is not None
    assert found.n == 16_000


def test_a_larger_network_follows_simulations_that_did_not_help():
    rounds = [tried(1_000, 1.0), tried(4_000, 0.9)]
    found, why = next_attempt(rounds, 1_000, 2, CONFIG, "residual-100k")
    assert found == Attempt(4_000, "residual-100k", "ASA")
    assert "helped little" in why
    assert next_attempt(rounds, 15.0, 2, CONFIG, "residual-100k")[0] is None


def test_nothing_is_left_when_neither_helps():
    rounds = [tried(1_000, 1.0), tried(4_000, 0.9), tried(4_000, 0.85, "residual-100k")]
    found, why = next_attempt(rounds, 1_000, 2, CONFIG, None)
    assert found is None
    assert "neither" in why


def test_no_time_no_attempt():
    found, why = next_attempt([tried(1_000, 1.0)], 10.5, 2, CONFIG, None)
    assert found is None
    assert "time left" in why


def test_a_training_cut_short_is_not_followed_by_a_larger_one():
    cut = Tried(Attempt(1_000, "auto", "ASA", 7), 1.0, 10.0, 1.0)
    assert next_attempt([cut], 1_000, 2, CONFIG, None)[0] is None


def test_the_next_size_of_a_family():
    assert larger_than("residual-25k") == "residual-100k"
    assert larger_than("residual-100k") is None
    assert larger_than("spectral-5k") == "spectral-10k"
    assert larger_than("auto") is None
    assert larger_than(None) is None
