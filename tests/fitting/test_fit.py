"""`ks.fit` from end to end on small models: what it says, what it keeps, what it refuses."""

import importlib
import json
from types import SimpleNamespace

import numpy as np
import pytest

import keepscore as ks
from keepscore.errors import DomainError, FormatError, MismatchError, ModelError
from keepscore.fitting import attempts, yardstick
from keepscore.fitting.clock import Clock
from keepscore.fitting.fit_record import NAME, FitRecord
from keepscore.fitting.verdict import Target
from keepscore.training import length

SPACE = ks.Space([ks.Parameter("mean", -2, 2, "identity"), ks.Parameter("sd", -0.7, 0.7, "log")])
DRIVER = importlib.import_module("keepscore.fitting.fit")  # `keepscore.fitting.fit` is a function
MINUTES = 5.0  # more than it takes on a busy machine
EASY = {"value": 50.0, "group_size": 5, "network": "mlp-1k"}  # a target that the first round meets


@pytest.fixture(scope="module", autouse=True)
def short_trainings():
    """A few hundred updates instead of thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length, "LEAST_UPDATES", 400)
        patch.setattr(length, "UPDATES_PER_PARAMETER", 0)
        patch.setattr(length, "PAPER_EPOCHS", ((1_000, 4), (10_000, 2)))
        patch.setattr(attempts, "FIRST", 1_000)
        patch.setattr(yardstick, "MOST", 40)
        patch.setattr(DRIVER, "FEWEST_GROUPS", 100)
        patch.setattr(DRIVER, "MOST_GROUPS", 100)
        patch.setattr(DRIVER, "size_within", lambda *given: "quick")
        yield


def simulate(theta, rng):
    return theta[:, :1] + np.exp(theta[:, 1:]) * rng.standard_normal((len(theta), 3))


def log_prob(theta, x):
    z = (x - theta[:, :1]) * np.exp(-theta[:, 1:])
    return -0.5 * (z**2).sum(axis=1) - 3 * theta[:, 1]


def score(theta, x):
    z = (x - theta[:, :1]) * np.exp(-theta[:, 1:])
    return np.stack([(z.sum(axis=1) * np.exp(-theta[:, 1])), (z**2).sum(axis=1) - 3], axis=1)


def wrong(theta, rng):
    """The square of the standard deviation where the likelihood has the standard deviation."""
    return theta[:, :1] + np.exp(2 * theta[:, 1:]) * rng.standard_normal((len(theta), 3))


def normal(simulator=simulate, likelihood=True):
    exact = {"log_prob": log_prob, "score": score} if likelihood else {}
    return ks.models.from_functions(SPACE, (3,), simulate=simulator, **exact, name="normal")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fit")


@pytest.fixture(scope="module")
def result(folder):
    told = []
    made = ks.fit(normal(), MINUTES, folder, **EASY, progress=told.append)
    return made, told


def test_it_ends_in_a_verdict_with_its_reasons(result):
    made, told = result
    assert made.good
    assert made.verdict.grade == "good"
    assert str(made.verdict) in str(made)
    assert made.rounds
    assert made.rounds[0].measured.lrt_error is not None
    assert all("left]" in line for line in told)
    for stage in ("checking the model", "training", "calibrating", "report"):
        assert any(stage in line for line in told), stage


def test_the_surrogate_is_calibrated_and_useful(result):
    made, _ = result
    assert made.surrogate.calibration is not None
    xs = simulate(np.tile([0.5, 0.0], (5, 1)), np.random.default_rng(3))
    test = ks.lrt(made.surrogate.given(xs), [0.5, 0.0])
    assert test.calibrated_p_value is not None


def test_the_folder_holds_report_and_surrogate(result, folder):
    made, _ = result
    assert made.report == folder / "report.html"
    assert made.report.stat().st_size > 10_000
    again = ks.load(folder / "surrogate")
    assert again.calibration == made.surrogate.calibration


def test_the_same_call_goes_on_where_it_was(result, folder):
    """Nothing is simulated or trained again: the rounds are those of the first call."""
    made, _ = result
    told = []
    again = ks.fit(normal(), MINUTES, folder, **EASY, progress=told.append)
    assert again.rounds == made.rounds
    assert again.verdict == made.verdict
    assert not any("training" in line for line in told)


def test_another_question_is_refused(result, folder):
    with pytest.raises(MismatchError, match="group_size: 5 there, 6 here"):
        ks.fit(normal(), MINUTES, folder, **{**EASY, "group_size": 6})
    with pytest.raises(MismatchError, match="something else"):
        ks.fit(normal(), MINUTES, folder, **EASY, seed=1)


def test_a_damaged_record_is_told(result, folder, tmp_path):
    content = json.loads((folder / NAME).read_text())
    content["spent"] = 0.0
    (tmp_path / NAME).write_text(json.dumps(content))
    with pytest.raises(FormatError):
        ks.fit(normal(), MINUTES, tmp_path, **EASY)


def test_a_wrong_model_is_refused_at_the_first_stage(tmp_path):
    told = []
    with pytest.raises(ModelError, match="breaks its own laws"):
        ks.fit(normal(wrong), MINUTES, tmp_path, progress=told.append)
    assert len(told) == 1
    assert not list(tmp_path.glob("round-*"))


def test_without_a_likelihood_sets_rest_on_calibration():
    """Nothing on disk, nothing exact to compare with: the best verdict is "usable"."""
    made = ks.fit(normal(likelihood=False), 1.0, group_size=5, network="mlp-1k")
    assert made.path is None
    assert made.report is None
    assert made.verdict.grade in ("usable with calibration", "not good enough")
    assert "cannot be measured" in made.verdict.reasons
    assert made.rounds[0].attempt.loss == "BCE"
    json.dumps(made.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_a_target_that_is_not_met_leads_to_more_simulations(monkeypatch, tmp_path):
    """Twice a round of four times the simulations; then, by decree, the time is over."""
    monkeypatch.setattr(attempts, "HELPED", 0.0)
    monkeypatch.setattr(attempts, "MOST_ROWS", 4_000)
    made = ks.fit(normal(), MINUTES, tmp_path, **{**EASY, "value": 1e-9})
    assert [r.attempt.n for r in made.rounds] == [1_000, 4_000]
    assert not made.good
    assert "give it more minutes" in made.verdict.reasons
    best = min(made.rounds, key=lambda r: r.loss)
    assert made.verdict.reasons.startswith(best.measured.line())


@pytest.mark.slow
def test_an_interrupted_fit_goes_on(monkeypatch, tmp_path):
    """Killed while calibrating: the second call neither simulates nor trains again."""

    def killed(*given, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DRIVER, "calibrate", killed)
        with pytest.raises(KeyboardInterrupt):
            ks.fit(normal(), MINUTES, tmp_path, **EASY)
    told = []
    made = ks.fit(normal(), MINUTES, tmp_path, **EASY, progress=told.append)
    assert made.good
    assert made.surrogate.calibration is not None
    assert not any("simulating" in line or "training" in line for line in told)


def test_rounds_of_a_later_call_are_measured_as_the_first_ones_were(result, folder, monkeypatch):
    """The exact likelihood seems too dear by now: the groups chosen at first are used all the
    same, and no round is judged by another measure than the others."""
    made, _ = result

    def dear(*given):
        raise AssertionError("the extent is chosen once")

    monkeypatch.setattr(DRIVER, "extent_within", dear)
    again = ks.fit(normal(), 2 * MINUTES, folder, **EASY)
    assert again.rounds == made.rounds


def started(seconds, spent=0.0, **known):
    """A fit under way, of which so much is known."""
    known = {"extent": yardstick.Extent(400, True, 0.0), **known}
    clock = Clock(seconds, spent)
    return DRIVER._Run(
        normal(), None, Target(), 10, "auto", 0, FitRecord({}, **known), clock, lambda text: None
    )


def test_rounds_leave_time_to_measure():
    """400 groups of .5 s: what is planned is 200 s shorter than with a surrogate that costs
    nothing."""
    free, dear = (started(1_000.0, costs={"group": cost}) for cost in (0.0, 0.5))
    assert free._for_rounds() == pytest.approx(800, abs=1)
    assert free._measuring() == 0
    assert dear._measuring() == pytest.approx(200)
    asked = []

    def nothing(tried, seconds, *rest):
        asked.append(seconds)
        return None, "nothing is left to try"

    for run in (free, dear):
        run._met = lambda: False
        run._name_of_last = lambda: None
        run.record.rounds.append(SimpleNamespace(attempt=None, simulating=1, training=1, loss=1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DRIVER, "next_attempt", nothing)
            assert "more minutes" in run.rounds(None)
    assert asked[0] - asked[1] == pytest.approx(200, abs=1)


def test_the_report_takes_the_scorecard_that_fits(monkeypatch):
    asked = []

    def fitting(model, size, seed, minutes, surrogate):
        asked.append((size, minutes, surrogate))
        return "small"

    monkeypatch.setattr(DRIVER, "size_within", fitting)
    assert started(600.0, spent=300.0)._card("the surrogate", normal()) == "small"
    (size, minutes, surrogate) = asked.pop()
    assert (size, surrogate) == ("small", "the surrogate")
    assert minutes == pytest.approx(0.7 * 5, abs=0.05)
    # Where a small one cannot fit nothing is timed: timing alone may take as long as what is left.
    # 36 groups in a quick one, 160 in a small one; a set costs as much as ten tests.
    for left, each, wanted in ((100, 0.1, "quick"), (30, 0.1, "least"), (-9, 0.0, "least")):
        run = started(600.0, spent=600.0 - left)
        run.record.extent = yardstick.Extent(100, True, each)
        assert run._card("the surrogate", normal()) == wanted
    assert asked == []


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_minutes_must_be_positive(minutes):
    with pytest.raises(DomainError, match="minutes"):
        ks.fit(normal(), minutes)


def test_too_little_time_is_said_with_what_would_do():
    with pytest.raises(DomainError, match="minutes or more"):
        ks.fit(normal(), 1e-4, network="mlp-1k")
