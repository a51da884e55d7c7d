"""Time budgets: as much as fits, said where it is less; stages are told."""

import importlib
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from likelihoods import FastToy

import keepscore as ks
from keepscore.budget import affordable, as_minutes, seconds_of, voice
from keepscore.errors import DomainError, KeepscoreWarning
from keepscore.evaluation.scorecard import SIZES, Size, exact_side
from keepscore.inference import draws_within
from keepscore.inference.nuts import Settings

FIELD = ks.models.GaussianField(shape=(3, 3))
ETEST = importlib.import_module("keepscore.evaluation.etest")  # the package has a function so named


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
    monkeypatch.setitem(SIZES, "least", Size(20, 8, 2, 2, 1))
    monkeypatch.setitem(SIZES, "small", Size(40, 16, 4, 2, 2))
    told = []
    with pytest.warns(KeepscoreWarning, match="size 'least' .* instead of 'small'"):
        sets = exact_side(FastToy(), "small", say=told.append, minutes=1e-6)
    assert sets.size == "least"
    assert exact_side(FastToy(), "small", minutes=1_000).size == "small"
    assert told[0] == "timing the exact likelihood"


def exactly(model):
    """The model's own likelihood in the place of a surrogate."""
    return SimpleNamespace(
        space=model.space, log_ratio=model.log_prob, score=model.score, given=model.given
    )


def test_an_ltest_has_fewer_exact_values_and_says_so():
    model, told = FastToy(), []
    with pytest.warns(KeepscoreWarning, match="ltest: 20 pairs with exact values instead of 100"):
        found = ks.ltest(
            exactly(model), model, n=200, exact=100, evidence=50, minutes=1e-6, progress=told.append
        )
    assert (found.n, found.exact, found.evidence) == (200, 20, 20)
    assert found.cut == "20 pairs with exact values instead of 100"
    assert found.to_dict()["cut"] == found.cut
    assert told == [
        "timing the exact likelihood",
        "exact values on test pairs",
        "measuring the surrogate",
    ]
    whole = ks.ltest(exactly(model), model, n=30, exact=20, evidence=4, minutes=1_000)
    assert whole == ks.ltest(exactly(model), model, n=30, exact=20, evidence=4)
    assert whole.cut == ""


def test_an_ltest_without_a_likelihood_has_nothing_to_time():
    space = ks.Space([ks.Parameter("mean", -1, 1, "identity")])
    model = ks.models.from_functions(
        space, (1,), simulate=lambda theta, rng: theta + rng.standard_normal((len(theta), 1))
    )
    guess = SimpleNamespace(space=space, log_ratio=lambda theta, x: np.zeros(len(x)))
    found = ks.ltest(guess, model, n=50, minutes=1e-6)
    assert found.bce.value == pytest.approx(np.log(2))
    assert found.cut == ""


def test_an_etest_has_fewer_groups_then_fewer_theta(monkeypatch):
    """30 seconds per group: 24 of 100 fit into 12 minutes, 12 into 6."""
    model = FastToy()
    monkeypatch.setattr(ETEST, "seconds_per_group", lambda *given: 30.0)
    with pytest.warns(KeepscoreWarning, match="etest: 24 test groups instead of 30"):
        fewer = ks.etest(model, model, grid=(3, 2), groups=5, size=3, minutes=12)
    assert fewer.surrogate.statistic.shape == (6, 4)
    assert fewer.cut == "24 test groups (6 theta with 4 each) instead of 30"
    told = []
    with pytest.warns(KeepscoreWarning, match="etest: 24 test groups instead of 100"):
        scattered = ks.etest(
            model, model, grid=(10, 5), groups=2, size=3, minutes=12, progress=told.append
        )
    assert scattered.surrogate.statistic.shape == (12, 2)
    assert scattered.cut == "24 test groups (12 scattered theta with 2 each) instead of 100"
    assert scattered.to_dict()["cut"] == scattered.cut
    assert told[0] == "timing the exact likelihood"
    whole = ks.etest(model, model, grid=(2, 2), groups=2, size=3, minutes=1_000)
    assert whole.cut == ""
    assert whole.surrogate.statistic.shape == (4, 2)


def test_exact_inference_takes_time():
    assert ETEST.seconds_per_group(FastToy(), 3) > 0


@pytest.fixture(scope="module")
def likes():
    """Of one group, by the model and by one that is a little off."""
    model = FastToy()
    xs = model.simulate(np.tile([0.2, 0.1], (20, 1)), np.random.default_rng(0))
    exact = model.given(xs)

    def pairs(theta, group):
        return exact.pairs(theta, group) + 0.1 * np.asarray(theta)[:, 0]

    return exact, replace(exact, pairs=pairs, kind="surrogate")


@pytest.mark.filterwarnings("ignore:DO NOT TRUST")  # few draws: said, and expected here
def test_a_posterior_has_fewer_particles_and_says_so(likes):
    exact, _ = likes
    told = []
    with pytest.warns(KeepscoreWarning, match="posterior: 200 particles per population instead"):
        found = ks.posterior(exact, method="smc", minutes=1e-6, progress=told.append)
    assert found.posterior["mean"].shape == (4, 200)
    assert found.posterior.attrs["cut"] == "200 particles per population instead of 1,000"
    assert told == ["looking for the maximum", "4 populations of 200 particles"]
    whole = ks.posterior(exact, method="smc", draws=400, minutes=1_000)
    assert whole.posterior.attrs["cut"] == ""
    assert whole.posterior["mean"].shape == (4, 400)


@pytest.mark.filterwarnings("ignore:DO NOT TRUST")
def test_a_posterior_has_fewer_exact_values_and_says_so(likes):
    exact, off = likes
    told = []
    with pytest.warns(KeepscoreWarning, match="posterior: 100 draws evaluated exactly instead of"):
        found = ks.posterior(
            off, exact=exact, exact_draws=800, method="smc", minutes=1e-6, progress=told.append
        )
    assert found.posterior["mean"].shape == (4, 25)
    assert found.posterior.attrs["cut"] == "100 draws evaluated exactly instead of 800"
    assert "exact values of 100 draws" in told


def test_chains_shrink_in_proportion(likes, monkeypatch):
    """1 s per step of all chains, 7 steps per draw: 1,400 s are 200 draws and warm-up together."""
    exact, _ = likes
    monkeypatch.setattr(draws_within, "seconds_of", lambda work: 1.0)
    with pytest.warns(KeepscoreWarning, match="posterior: 133 draws per chain instead of 1,000"):
        length = draws_within.chains_within(exact, Settings(1000, 500), 4, 0, 1400 / 60)
    assert (length.settings.draws, length.settings.warmup) == (133, 66)
    with pytest.warns(KeepscoreWarning, match="fewest that make sense"):
        length = draws_within.chains_within(exact, Settings(1000, 500), 4, 0, 1e-3)
    assert (length.settings.draws, length.settings.warmup) == (100, 50)
    assert draws_within.chains_within(exact, Settings(10, 20), 4, 0, 1e6).cut == ""
