"""Quality after training, and a score term that does harm."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from training_helpers import SHORT, Tiny, toy_data, weights_equal

import keepscore as ks
from keepscore.errors import FormatError, KeepscoreWarning, MismatchError
from keepscore.files import read_sealed, write_sealed
from keepscore.losses import ASA, BCE
from keepscore.quality import Quality, score_r2
from keepscore.surrogate import FORMAT, NAME, VERSION
from keepscore.training import batches, length
from keepscore.training.guard import clearly_worse, is_suspect, robust_score_r2

GOOD = Quality(0.3, 100, (0.9, 0.8), "exact", "ASA", True)


@pytest.fixture
def quick(monkeypatch):
    """Runs of full length that are short."""
    monkeypatch.setattr(length, "LEAST_UPDATES", 100)
    monkeypatch.setattr(length, "UPDATES_PER_PARAMETER", 0)
    monkeypatch.setattr(length, "PAPER_EPOCHS", ((30_000, 8), (10**6, 8)))
    return replace(SHORT, min_epochs=None, max_epochs=None)


def test_r2_is_one_for_the_truth_and_zero_for_a_constant():
    data = np.random.default_rng(0).normal(size=(50, 2))
    assert score_r2(data, data) == (1.0, 1.0)
    assert score_r2(np.tile(data.mean(axis=0), (50, 1)), data) == pytest.approx((0, 0), abs=1e-12)
    assert max(score_r2(-data, data)) < 0
    assert score_r2(data, np.zeros((50, 2))) == (0.0, 0.0)


@pytest.mark.parametrize("loss", [BCE(), ASA(update_every=4)])
def test_quality_is_measured_on_rows_held_out_and_kept(tmp_path, loss):
    data = toy_data()
    made = ks.train(data, None, "1k", loss, SHORT, tmp_path)
    _, held = batches.hold_out(400, 0.1, SHORT.seed)
    found = made.quality
    assert found.pairs == 40
    expected = score_r2(made.score(data.theta[held], data.x[held]), data.score[held])
    assert found.score_r2 == pytest.approx(expected, rel=1e-4)
    assert found.validation_bce == pytest.approx(made.history[-1]["best_validation_bce"], rel=1e-4)
    assert (found.loss, found.whole, found.other_bce) == (type(loss).__name__, False, None)
    again = ks.load(tmp_path)
    assert again.quality == found
    assert found.line(("mean", "sd")) in str(again)
    assert "fewer updates than advised" in str(again)
    assert "\n" not in repr(again)
    assert ks.train(data, None, "1k", loss, SHORT, tmp_path).quality == found
    without = replace(data, score=None, score_kind=None)
    plain = ks.train(without, None, "1k", BCE(), SHORT)
    assert plain.quality.score_r2 is None
    assert "no scores held out" in str(plain)


@pytest.mark.parametrize(
    "change",
    [
        {"validation_bce": "0.3"},
        {"validation_bce": -1.0},
        {"pairs": 0},
        {"score_r2": [0.5]},
        {"score_r2": [0.5, 1.5]},
        {"score_r2": [0.5, True]},
        {"score_r2": None},
        {"score_kind": "approximate"},
        {"loss": "MSE"},
        {"whole": 1},
        {"other_bce": "none"},
        {"extra": 1},
    ],
)
def test_a_forged_quality_is_refused(change, tmp_path):
    made = ks.train(toy_data(), None, Tiny, BCE(), SHORT)
    replace(made, quality=GOOD).save(tmp_path)
    content = read_sealed(tmp_path / NAME, FORMAT, VERSION)
    content["quality"] = {**content["quality"], **change}
    write_sealed(tmp_path / NAME, FORMAT, VERSION, content)
    with pytest.raises(FormatError, match="no valid quality"):
        ks.load(tmp_path, made.network.network)


def test_a_surrogate_of_before_has_no_quality(tmp_path):
    made = ks.train(toy_data(), None, "1k", BCE(), SHORT, tmp_path)
    content = read_sealed(tmp_path / NAME, FORMAT, VERSION)
    del content["quality"]
    write_sealed(tmp_path / NAME, FORMAT, VERSION, content)
    again = ks.load(tmp_path)
    assert again.quality is None
    assert str(again) == repr(again)
    assert weights_equal(again, made)


def test_a_run_of_settings_before_these_is_taken_up(tmp_path):
    """Settings that did not exist are what was done without them; other ones still differ."""
    config = replace(SHORT, length="paper", criterion="bce", guard=False)
    made = ks.train(toy_data(), None, "1k", ASA.paper(), config, tmp_path)
    for file in (NAME, "checkpoint.json", "checkpoint-previous.json"):
        content = json.loads((tmp_path / file).read_text())
        kind, version = content["format"], content["version"]
        content = read_sealed(tmp_path / file, kind, version)
        settings = content.get("settings") or content["provenance"]["training"]
        for name in ("length", "criterion", "guard"):
            del settings["config"][name]
        del settings["loss"]["residual"]
        write_sealed(tmp_path / file, kind, version, content)
    assert weights_equal(ks.train(toy_data(), None, "1k", ASA.paper(), config, tmp_path), made)
    with pytest.raises(MismatchError, match="residual"):
        ks.train(
            toy_data(), None, "1k", ASA(per_parameter=False, residual="huber"), config, tmp_path
        )


def test_poor_scores_are_warned_of_after_every_run(quick):
    """A step of 1e-9 learns nothing: R^2 is about 0. A short run is told to be longer first."""
    stuck = replace(quick, learning_rate=1e-9, guard=False)
    with pytest.warns(KeepscoreWarning, match=r"follows the score badly .* mean .*, sd "):
        made = ks.train(toy_data(), None, "1k", ASA(update_every=4), stuck)
    assert made.quality.whole
    short = replace(stuck, min_epochs=2)
    with pytest.warns(KeepscoreWarning, match=r"follows the score badly .* Train longer") as said:
        cut = ks.train(toy_data(), None, "1k", ASA(update_every=4), short)
    assert not cut.quality.whole
    assert len(said) == 1


def test_the_line_is_printed_where_progress_is_shown(quick, capsys):
    ks.train(toy_data(), None, Tiny, BCE(), SHORT, progress=True)
    assert "validation BCE" in capsys.readouterr().err
    ks.train(toy_data(), None, Tiny, BCE(), SHORT, progress=False)
    assert capsys.readouterr().err == ""


def test_scores_that_do_harm_are_left_out_and_that_is_said(quick, tmp_path):
    """Scores of the wrong sign, a hundred times too large: BCE alone is better, and kept."""
    data = toy_data(2000)
    wrong = replace(data, score=-100 * data.score)
    config = replace(quick, batch_size=64)
    asa = ASA(update_every=4, residual="squared")
    with pytest.warns(KeepscoreWarning) as said:
        kept = ks.train(wrong, None, "1k", asa, config, tmp_path)
    assert any("kept" in str(w.message) and "without scores" in str(w.message) for w in said)
    assert (kept.quality.loss, kept.history[0]["settings"]["loss"]["name"]) == ("BCE", "BCE")
    assert kept.quality.other_bce > kept.quality.validation_bce + 0.01
    alone = ks.train(replace(wrong, score=None, score_kind=None), None, "1k", BCE(), config)
    assert alone.quality.validation_bce == pytest.approx(kept.quality.validation_bce, rel=1e-6)
    again = ks.train(wrong, None, "1k", asa, config, tmp_path)  # the same call finds its result
    assert weights_equal(again, kept)
    assert again.quality == kept.quality
    # Right scores: nothing is said, and no second network is trained.
    good = ks.train(data, None, "1k", ASA(update_every=4), replace(config, min_epochs=40))
    assert good.quality.other_bce is None
    assert good.quality.loss == "ASA"


def test_joint_scores_that_are_mostly_noise_are_left_out(quick):
    """Score plus noise of a hundred times its size has the right mean given x, and drowns it."""
    data = toy_data(2000)
    noise = np.random.default_rng(0).normal(size=data.score.shape) * 100 * data.score.std(axis=0)
    noisy = replace(data, score=data.score + noise, score_kind="joint")
    config = replace(quick, batch_size=64)
    with pytest.warns(KeepscoreWarning, match="without scores was kept"):
        kept = ks.train(noisy, None, "1k", ASA(update_every=4), config)
    assert kept.quality.loss == "BCE"
    assert kept.quality.other_bce > kept.quality.validation_bce + 0.01


def records(curve, best, planned=40):
    start = {"event": "start", "min_epochs": planned}
    epochs = [{"event": "epoch", "validation_bce": value} for value in curve]
    return [start, *epochs, {"event": "end", "best_epoch": best}]


def test_when_a_run_is_under_suspicion():
    falling = np.linspace(0.6, 0.3, 40).tolist()
    assert not is_suspect(GOOD, records(falling, 40))
    assert is_suspect(replace(GOOD, score_r2=(0.9, 0.4)), records(falling, 40))
    joint = replace(GOOD, score_r2=(0.9, 0.4), score_kind="joint")
    assert not is_suspect(joint, records(falling, 40))
    assert is_suspect(replace(joint, score_r2=(0.9, 0.05)), records(falling, 40))
    assert is_suspect(GOOD, records(falling, 3))
    assert is_suspect(GOOD, records(falling[::-1], 40))


def test_asa_is_dropped_only_when_it_clearly_loses():
    rng = np.random.default_rng(0)
    bce = rng.exponential(0.5, 1000)
    assert clearly_worse(bce + 0.05, bce)
    assert not clearly_worse(bce + 0.005, bce)  # below what matters
    assert not clearly_worse(bce + rng.normal(0.05, 2.0, 1000), bce)  # within the noise
    assert not clearly_worse(bce - 0.05, bce)
    assert not clearly_worse(bce[:1] + 1, bce[:1])
    assert math.isclose(GOOD.validation_bce, 0.3)


def test_the_robust_r2_is_not_decided_by_a_few_rows():
    rng = np.random.default_rng(0)
    truth = rng.standard_cauchy((4_000, 3))
    truth[:, 2] = 0.0
    near = truth + np.array([0.1, 1.0, 0.0]) * rng.standard_normal(truth.shape)
    near[np.abs(truth) > 100] = 0.0  # a few rows missed altogether
    usual, robust = score_r2(near, truth), robust_score_r2(near, truth)
    assert usual[0] < 0.1
    assert robust[0] > 0.9 > 0.7 > robust[1] > 0.2
    assert robust[2] == 0.0
    assert robust_score_r2(np.zeros_like(truth), truth) == (0.0, 0.0, 0.0)
    assert robust_score_r2(-truth, truth)[0] < 0  # the wrong sign is worse than nothing
    assert robust_score_r2(truth, truth)[:2] == (1.0, 1.0)
    # The same whatever the unit of theta.
    np.testing.assert_allclose(robust_score_r2(1e4 * near, 1e4 * truth), robust, rtol=1e-4)


def test_quality_says_which_r2_it_is_and_reads_older_records():
    quality = Quality(0.3, 100, (0.9,), "exact", "ASA", True, robust=True)
    assert "robust score R²: m 0.900" in quality.line(["m"])
    assert Quality.from_dict(quality.to_dict(), 1) == quality
    older = {k: v for k, v in quality.to_dict().items() if k != "robust"}
    assert Quality.from_dict(older, 1) == replace(quality, robust=False)
    with pytest.raises(FormatError):
        Quality.from_dict({**quality.to_dict(), "robust": 1}, 1)
