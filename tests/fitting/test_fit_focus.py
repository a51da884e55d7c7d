"""`ks.fit(model, xs=data)`: where the whole box asks too much, rounds where the data point."""

import importlib
import json

import numpy as np
import pytest
from test_fit import DRIVER, EASY, MINUTES, normal, short_trainings, simulate  # noqa: F401

import keepscore as ks
from keepscore.errors import DomainError, MismatchError, ShapeError
from keepscore.fitting import attempts, focusing
from keepscore.fitting.attempts import Rates
from keepscore.models.narrowed import Narrowed
from keepscore.training import TrainConfig

HARD = {**EASY, "value": 1e-9}  # a target that nothing meets
FOCUS = importlib.import_module("keepscore.fitting.focus")


@pytest.fixture(scope="module")
def xs():
    return simulate(np.tile([0.5, 0.0], (8, 1)), np.random.default_rng(3))


@pytest.fixture(scope="module")
def once():
    """One round of 1,000 simulations, then nothing more fits; 900 to focus with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "MOST_ROWS", 1_000)
        patch.setattr(DRIVER, "simulations_within", lambda *given: 900)
        patch.setattr(DRIVER, "report", lambda *given, **named: None)  # see the slow test
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fit")


@pytest.fixture(scope="module")
def result(folder, xs, once):
    """Killed in the second round of focusing; the same call goes on."""
    train, trained = FOCUS.train, []

    def killed(*given, **named):
        if trained:
            raise KeyboardInterrupt
        trained.append(1)
        return train(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FOCUS, "train", killed)
        with pytest.raises(KeyboardInterrupt):
            ks.fit(normal(), MINUTES, folder, **HARD, xs=xs)
    told = []
    made = ks.fit(normal(), MINUTES, folder, **HARD, xs=xs, progress=told.append)
    return made, told


def test_it_goes_on_where_the_data_point(result, xs):
    made, told = result
    assert not made.good
    found = made.focus
    assert found.n == 900
    assert found.size == len(xs)
    low, high = normal().space.box("base")
    assert (np.array(found.lower) >= low).all()
    assert (np.array(found.upper) <= high).all()
    assert np.prod(np.subtract(found.upper, found.lower)) < 0.9 * np.prod(high - low)
    assert any("focusing on your data: 900 more" in line for line in told)
    assert not any("round 1" in line for line in told)  # the killed call had done that
    assert "Focused on your data" in str(made)
    json.dumps(made.to_dict(), allow_nan=False)


def test_both_are_measured_on_the_same_groups_of_the_datas_size(result, xs):
    found = result[0].focus
    assert found.before.groups == found.after.groups
    assert found.before.size == found.after.size == len(xs)
    # The exact likelihood's own coverage is that of one yardstick.
    assert found.before.coverage_exact == found.after.coverage_exact
    assert found.helped == (found.loss_after < found.loss_before)


def test_the_better_one_is_calibrated_for_groups_like_the_data(result, xs):
    made, _ = result
    assert made.surrogate.focused is made.focus.helped
    assert made.surrogate.calibration is not None
    if made.focus.helped:
        assert made.verdict.reasons.startswith("for your data, ")
        assert made.surrogate.calibration["group_size"] == len(xs)
        assert ks.lrt(made.surrogate.given(xs), [0.5, 0.0]).calibrated_p_value is not None
        with pytest.raises(DomainError, match="focused on one data set"):
            made.surrogate.given(xs)(np.array([-2.0, 0.7]))


def test_the_same_call_computes_nothing_again(result, folder, xs, monkeypatch):
    made, _ = result
    told = []
    monkeypatch.setattr(DRIVER, "calibrate", None)
    monkeypatch.setattr(DRIVER, "simulations_within", None)
    again = ks.fit(normal(), MINUTES, folder, **HARD, xs=xs, progress=told.append)
    assert again.focus == made.focus
    assert again.verdict == made.verdict


def test_without_help_the_one_before_is_kept(folder, xs, result, monkeypatch):
    monkeypatch.setattr(focusing.Focus, "helped", False)
    made = ks.fit(normal(), MINUTES, folder, **HARD, xs=xs)
    assert not made.surrogate.focused
    assert made.surrogate.calibration["group_size"] == 5
    assert not made.verdict.reasons.startswith("for your data")


def test_where_no_time_is_left_it_is_said(folder, xs, result, monkeypatch):
    monkeypatch.setattr(DRIVER, "simulations_within", lambda *given: None)
    told = []
    made = ks.fit(normal(), MINUTES, folder, **HARD, xs=xs[:3], progress=told.append)
    assert made.focus is None
    assert any("no time is left to focus" in line for line in told)


@pytest.mark.slow
def test_a_focused_surrogate_has_a_report_of_its_box(result, xs, tmp_path):
    made, _ = result
    inside = Narrowed(normal(), made.surrogate.space)
    page = ks.report(made.surrogate, inside, tmp_path / "page.html", xs, size="quick")
    assert "Does the model fit the observed data?" in page.path.read_text()


def test_groups_are_refused_before_any_work(tmp_path, xs):
    with pytest.raises(DomainError, match="one system"):
        ks.fit(normal(), MINUTES, tmp_path / "a", xs=np.stack([xs, xs]))
    with pytest.raises(ShapeError):
        ks.fit(normal(), MINUTES, tmp_path / "b", xs=xs[:, :2])
    assert not (tmp_path / "a").exists()


def test_how_many_simulations_fit(monkeypatch):
    """n c + 3 (U b + k) within the time, at most twice those of the best round."""
    monkeypatch.setattr(attempts, "MOST_ROWS", 1_000_000)
    config, rates = TrainConfig(), Rates(0.01, 1e-4, 1.0)
    n = focusing.simulations_within(60.0, rates, 2, config, 100_000)
    spent = 0.01 * n + 3 * (attempts.updates(n, 2, config) * 1e-4 + 1.0)
    assert 0.8 * 60 < spent <= 60
    assert focusing.simulations_within(60.0, rates, 2, config, 500) == 1_000
    assert focusing.simulations_within(3.0, rates, 2, config, 100_000) is None


def test_a_narrowed_model_is_the_model_in_a_smaller_box(xs):
    model = normal()
    space = ks.Space([ks.Parameter("mean", 0, 1, "identity"), ks.Parameter("sd", -0.2, 0.2, "log")])
    small = Narrowed(model, space)
    theta = space.uniform(4, np.random.default_rng(0))
    x = simulate(theta, np.random.default_rng(1))
    np.testing.assert_array_equal(small.log_prob(theta, x), model.log_prob(theta, x))
    np.testing.assert_array_equal(small.given(xs)(theta), model.given(xs)(theta))
    assert ks.check_model(small, draws=100, show=False).passed
    far = 5 + xs
    assert ks.mle(model.given(far)).estimate[0] > 1.5
    found = ks.mle(small.given(far))
    assert found.estimate[0] == pytest.approx(1.0)
    assert found.on_boundary[0]
    with pytest.raises(MismatchError, match="must be the same"):
        Narrowed(model, ks.Space([ks.Parameter("mean", 0, 1)]))
