"""How long a run is, when it turns back, and which epoch is the best."""

import math
from dataclasses import replace

import numpy as np
import pytest
from training_helpers import SHORT, Tiny, toy_data, weights_equal

import keepscore as ks
from keepscore.errors import DomainError, UnknownNameError
from keepscore.losses import ASA, BCE, score_scale
from keepscore.training import TrainConfig
from keepscore.training.length import (
    Cooling,
    advised_epochs,
    first_cooling,
    overfits,
    paper_epochs,
    window,
)
from keepscore.training.validation import both_losses


@pytest.mark.parametrize("n", [70, 300, 1000, 3000, 10_000, 30_000, 10**6])
@pytest.mark.parametrize("d", [1, 2, 6, 10])
def test_updates_are_enough_for_rows_and_parameters(n, d):
    config = TrainConfig()
    epochs, steps = config.epochs_at_least(n, d), n / config.batch_size
    assert epochs == advised_epochs(n, d, config.batch_size)
    assert epochs >= paper_epochs(n)
    assert epochs * steps >= 5000 + 1000 * d or epochs == paper_epochs(n)
    assert config.is_whole(n, d)
    assert config.may_cool(n, d) == (epochs > paper_epochs(n))


def test_a_large_set_trains_as_long_as_in_the_paper():
    assert [TrainConfig().epochs_at_least(n, 3) for n in (30_000, 300_000)] == [40, 20]
    assert not TrainConfig().may_cool(30_000, 3)


def test_stated_lengths_are_honoured_or_refused():
    assert TrainConfig(min_epochs=711).epochs_at_least(1000, 5) == 711
    assert not TrainConfig(min_epochs=711).may_cool(1000, 5)
    short = TrainConfig(max_epochs=20)
    assert short.epochs_at_least(1000, 5) == 20
    assert not short.is_whole(1000, 5)
    with pytest.raises(DomainError, match="min_epochs=711 cannot be had with max_epochs=500"):
        TrainConfig(min_epochs=711, max_epochs=500)
    with pytest.raises(UnknownNameError, match="advised"):
        TrainConfig(length="advise")
    with pytest.raises(UnknownNameError, match="both"):
        TrainConfig(criterion="all")


def test_a_rising_curve_is_overfitting_and_noise_is_not():
    """200 curves of 400 epochs that fall to a floor with normal noise: false alarms in none (a rate
    of 1% would show in 87% of such tests). A floor rising by one noise in ten epochs is seen."""
    rng, e = np.random.default_rng(0), np.arange(400)
    falling = 0.4 + 0.3 * np.exp(-e / 40)
    alarms = [
        first_cooling((falling + 0.01 * rng.standard_normal(400)).tolist(), 400) for _ in range(200)
    ]
    assert alarms == [None] * 200
    rising = falling + 0.001 * np.maximum(0, e - 100) + 0.01 * rng.standard_normal(400)
    found = first_cooling(rising.tolist(), 400)
    assert found is not None
    assert 100 < found.after < 250
    assert not overfits(rising[: found.after - 1].tolist(), 400)
    best = int(np.argmin(rising[: found.after])) + 1
    assert found == Cooling(found.after, -(-best // 2))
    assert window(400) == 20
    # It never makes a run longer, and a run at its end has nothing left to cut.
    late = [1.0, *np.linspace(0, 0.3, 58)]
    assert first_cooling(late, 60) is not None
    assert sum(first_cooling(late, 60)) <= 60
    assert not overfits([*late, 0.4], 60)


def test_a_run_that_overfits_turns_back_and_resumes_to_the_same_bits(tmp_path, monkeypatch):
    """80 rows, a network of a thousand weights, BCE: learned by heart within a few epochs."""
    data, held = toy_data(80), replace(toy_data(300, 1), score=None, score_kind=None)
    config = TrainConfig(batch_size=40, seed=2, learning_rate=0.01)
    monkeypatch.setattr("keepscore.training.length.LEAST_UPDATES", 600)
    monkeypatch.setattr("keepscore.training.length.UPDATES_PER_PARAMETER", 0)
    whole = ks.train(data, held, "1k", BCE(), config, tmp_path / "whole")
    epochs = [r for r in whole.history if r["event"] == "epoch"]
    turned = [r for r in epochs if "cooling_epochs" in r]
    assert len(turned) == 1
    planned = whole.history[0]["min_epochs"]
    assert planned == 300
    assert len(epochs) == turned[0]["epoch"] + turned[0]["cooling_epochs"] < planned
    curve = [r["validation_bce"] for r in epochs]
    assert min(curve) == curve[whole.history[-1]["best_epoch"] - 1]
    # Back at the best weights the loss is what it was there, and does not run away again.
    assert max(curve[-5:]) < curve[turned[0]["epoch"] - 1]

    class Stop(Exception):
        pass

    from keepscore.training import loop

    close, after = loop._close_epoch, turned[0]["epoch"] + 2

    def closing(engine, progress):
        close(engine, progress)
        if progress.position.epoch == after:
            progress.save(engine)
            raise Stop

    monkeypatch.setattr(loop, "_close_epoch", closing)
    with pytest.raises(Stop):
        ks.train(data, held, "1k", BCE(), config, tmp_path / "cut")
    monkeypatch.setattr(loop, "_close_epoch", close)
    assert weights_equal(ks.train(data, held, "1k", BCE(), config, tmp_path / "cut"), whole)


def test_the_criterion_is_a_share_of_what_nothing_has():
    bce, score, nothing = np.array([math.log(2)]), np.array([[2.0, 3.0]]), np.array([2.0, 3.0])
    assert both_losses(bce, score, nothing) == pytest.approx([2.0])
    assert both_losses(0.5 * bce, 0 * score, nothing) == pytest.approx([0.5])
    # A parameter whose scores are all zero does not count.
    assert both_losses(bce, np.array([[1.0, 7.0]]), np.array([2.0, 0.0])) == pytest.approx([1.5])


@pytest.mark.parametrize("residual", ["squared", "cauchy"])
def test_the_best_epoch_is_that_of_both_losses(residual):
    """The criterion of the kept network, from its own log-ratios and scores in float64."""
    data, held = toy_data(), toy_data(300, 1)
    config = replace(SHORT, min_epochs=4, max_epochs=4)
    made = ks.train(data, held, Tiny, ASA(residual=residual, update_every=4), config)
    epochs = [r for r in made.history if r["event"] == "epoch"]
    best = made.history[-1]["best_epoch"]
    assert best == 1 + int(np.argmin([r["criterion"] for r in epochs]))
    error = made.score(held.theta, held.x) - held.score
    m = score_scale(data.score)
    rho = {"squared": lambda e: e**2, "cauchy": lambda e: np.log1p((e / m) ** 2)}[residual]
    shares = rho(error).mean(axis=0) / rho(held.score).mean(axis=0)
    expected = epochs[best - 1]["validation_bce"] / math.log(2) + shares.mean()
    assert epochs[best - 1]["criterion"] == pytest.approx(expected, rel=1e-3)
    plain = ks.train(data, held, Tiny, ASA(update_every=4), replace(config, criterion="bce"))
    assert "criterion" not in plain.history[1]
    without = replace(held, score=None, score_kind=None)
    assert "criterion" not in ks.train(data, without, Tiny, ASA(update_every=4), config).history[1]
