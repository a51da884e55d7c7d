"""The recipe's moving parts: a falling rate and averaged weights, resumed to the last bit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from training_helpers import SHORT, Tiny, toy_data, weights_equal

import keepscore as ks
from keepscore.errors import DomainError, UnknownNameError
from keepscore.losses import ASA
from keepscore.training import Interrupted, TrainConfig, loop
from keepscore.training.optimizer import averaging, optimizer, weights_to_keep
from keepscore.training.step import Member, adam, start

RECIPE = replace(SHORT, schedule="cosine", averaging=0.9, learning_rate=5e-3)


def walk(way, steps):
    """Weights after each step on fixed gradients, and the last state."""
    weights = jnp.arange(3.0)
    state, path = way.init(weights), []
    for i in range(steps):
        change, state = way.update(jnp.sin(weights + i), state, weights)
        weights = optax.apply_updates(weights, change)
        path.append(np.asarray(weights))
    return np.stack(path), state


def test_the_average_is_that_of_the_weights_after_each_batch():
    plain = adam(0.1, 0.0)
    path, _ = walk(plain, 40)
    with_average, state = walk(optax.chain(plain, averaging(0.8)), 40)
    np.testing.assert_array_equal(with_average, path)  # training itself is left alone
    expected = np.zeros(3)
    for t, weights in enumerate(path, start=1):
        c = min(0.8, (t - 1) / (t + 8))
        expected = c * expected + (1 - c) * weights
    last = path[-1]
    member = Member({"a": jnp.asarray(last[:1]), "b": last[1:, None]}, state, jnp.zeros(1), None)
    kept = weights_to_keep(member)
    np.testing.assert_allclose(kept["a"], expected[:1], rtol=1e-5)
    np.testing.assert_allclose(kept["b"], expected[1:, None], rtol=1e-5)
    bare = Member({"w": jnp.ones(3)}, plain.init(jnp.ones(3)), jnp.zeros(1), None)
    assert weights_to_keep(bare) is bare.weights


def test_each_member_of_an_ensemble_keeps_its_own_average():
    """Two members, two arrays: every weight comes back in its own place."""
    weights = {"a": jnp.arange(4.0).reshape(2, 2), "b": jnp.arange(6.0).reshape(2, 3, 1) + 10}
    way = optimizer(replace(RECIPE, members=2), 10)
    loss = ASA()
    members = jax.vmap(lambda w: start(w, way, loss, 2))(weights)
    kept = weights_to_keep(members)
    for name, array in weights.items():  # the average begins at the weights
        np.testing.assert_array_equal(kept[name], array)


def test_a_cosine_rate_ends_at_zero_and_a_constant_one_does_not():
    config = TrainConfig(learning_rate=0.1, schedule="cosine", weight_decay=0.0)
    path, _ = walk(optimizer(config, 50), 50)
    steps = np.abs(np.diff(path, axis=0)).max(axis=1)
    assert steps[-1] < 1e-2 * steps[0]
    path, _ = walk(optimizer(replace(config, schedule="constant"), 50), 50)
    steps = np.abs(np.diff(path, axis=0)).max(axis=1)
    assert steps[-1] > 0.1 * steps[0]


@pytest.mark.parametrize("members", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_with_the_recipe_is_resumed_to_the_last_bit(tmp_path, monkeypatch, members):
    """It ends with the last epoch of its falling rate, whatever validation says."""
    data, config = toy_data(400), replace(RECIPE, members=members, min_epochs=3, max_epochs=50)
    whole = ks.train(data, network=Tiny, loss=ASA(update_every=4), config=config)
    monkeypatch.setattr(loop, "FIRST_CALL", 3)
    monkeypatch.setattr(loop, "SECONDS_A_CALL", 1e-9)
    saved = []

    def save_and_leave(engine, progress):
        original(progress, engine)
        saved.append(progress.position.step)
        if len(saved) == 5:
            raise Interrupted("stop here")

    original = loop.Progress.save
    monkeypatch.setattr(loop.Progress, "save", lambda self, engine: save_and_leave(engine, self))
    eager = replace(config, checkpoint_minutes=1e-9)
    with pytest.raises(Interrupted):
        ks.train(data, network=Tiny, loss=ASA(update_every=4), config=eager, path=tmp_path)
    assert saved[-1] > 0  # within an epoch
    monkeypatch.setattr(loop.Progress, "save", original)
    again = ks.train(data, network=Tiny, loss=ASA(update_every=4), config=config, path=tmp_path)
    assert weights_equal(again, whole)
    assert again.history[-1]["epochs"] == 3


def test_settings_of_the_recipe_are_checked():
    with pytest.raises(UnknownNameError, match="cosine"):
        TrainConfig(schedule="cosin")
    for value in (-0.1, 1.0):
        with pytest.raises(DomainError, match="averaging"):
            TrainConfig(averaging=value)
