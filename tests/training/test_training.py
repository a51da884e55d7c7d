"""Training: it learns the truth, its orders are what they should be, and bad input is named."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import GaussianToy
from training_helpers import SHORT, Tiny, noise_data, toy_data, weights_equal

import keepscore as ks
from keepscore.data.dataset import Dataset
from keepscore.errors import (
    DomainError,
    DtypeError,
    KeepscoreWarning,
    MissingError,
    NonFiniteError,
    ShapeError,
    TrainingError,
    UnknownNameError,
)
from keepscore.losses import ASA, BCE
from keepscore.models.base import Symmetry
from keepscore.networks import compilation
from keepscore.training import Diverged, TrainConfig, batches, compiled_epoch
from keepscore.training.step import Batch

FAST = ASA(update_every=4)


def with_arrays(data, **changes):
    fields = {name: getattr(data, name) for name in ("theta", "x", "score", "space", "score_kind")}
    return Dataset(**{**fields, **changes})


# --- What is learned ------------------------------------------------------------------------------


def log_ratio_error(surrogate, model, n=2000):
    """Root mean square of log r - [log p(x|theta) - log p(x)], with p(x) by quadrature over the
    training box, at theta in the base box."""
    rng = np.random.default_rng(5)
    theta = model.space.uniform(n, rng)
    x = model.simulate(theta, rng)
    nodes = model.space.grid(41, region="train")
    weights = np.outer(*[np.r_[0.5, np.ones(39), 0.5]] * 2).ravel()
    each = np.stack([model.log_prob(np.tile(node, (n, 1)), x) for node in nodes])
    top = each.max(axis=0)
    evidence = top + np.log(weights @ np.exp(each - top) / weights.sum())
    exact = model.log_prob(theta, x) - evidence
    return float(np.sqrt(np.mean((surrogate.log_ratio(theta, x) - exact) ** 2)))


def test_both_losses_converge_to_the_log_ratio_and_scores_help():
    model, error = GaussianToy(4), {}
    for n, epochs in ((1000, 60), (8000, 20)):
        constant = {"learning_rate": 3e-3, "schedule": "constant"}
        config = TrainConfig(min_epochs=epochs, max_epochs=epochs, **constant)
        for name, loss in {"bce": BCE(), "asa": ASA(update_every=16)}.items():
            surrogate = ks.train(toy_data(n), toy_data(1000, seed=1), "1k", loss, config)
            error[name, n] = log_ratio_error(surrogate, model)
    # The log-ratio itself has a standard deviation of about 2.
    assert error["bce", 8000] < min(0.3, 0.7 * error["bce", 1000])
    assert error["asa", 8000] < min(0.2, 0.7 * error["asa", 1000])
    assert error["asa", 1000] < 0.85 * error["bce", 1000]
    assert error["asa", 8000] < 0.85 * error["bce", 8000]


def test_history_says_what_happened(tmp_path):
    surrogate = ks.train(toy_data(), toy_data(100, 1), Tiny, FAST, SHORT, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").open()]
    assert lines == [dict(record) for record in surrogate.history]
    assert [line["event"] for line in lines] == ["start", "epoch", "epoch", "end"]
    assert lines[0]["versions"]["jax"] == jax.__version__
    assert lines[0]["settings"]["loss"]["name"] == "ASA"
    assert lines[0]["steps_per_epoch"] == 400 // 32
    first = lines[1]
    assert first["train_bce"] > 0
    assert first["validation_bce"] > 0
    assert first["score_loss"] == pytest.approx(sum(first["score_loss_by_parameter"]))
    assert first["alpha"] > 0
    assert first["seconds"] == pytest.approx(12e-3 * first["ms_per_step"])


def test_monitored_pairs_are_followed_and_decide_nothing():
    watched = toy_data(300, seed=7)
    plain = ks.train(toy_data(), toy_data(100, 1), "1k", BCE(), SHORT)
    seen = ks.train(toy_data(), toy_data(100, 1), "1k", BCE(), SHORT, monitor=watched)
    np.testing.assert_array_equal(*(s.log_ratio(watched.theta, watched.x) for s in (plain, seen)))
    epochs = [r for r in seen.history if r["event"] == "epoch"]
    best = epochs[seen.history[-1]["best_epoch"] - 1]
    partner = batches.generator(SHORT.seed, "validation").permutation(300)
    own, other = (seen.log_ratio(t, watched.x) for t in (watched.theta, watched.theta[partner]))
    again = 0.5 * np.mean(np.logaddexp(0, -own) + np.logaddexp(0, other))
    assert best["monitor_bce"] == pytest.approx(again, rel=1e-4)
    with pytest.raises(ShapeError, match="Monitored"):
        ks.train(toy_data(), None, "1k", BCE(), SHORT, monitor=toy_data(300, m=5))


def test_the_best_epoch_is_returned_and_patience_ends_the_run():
    """A large step makes validation BCE erratic: the run ends `patience` epochs after its best."""
    config = TrainConfig(
        batch_size=32, min_epochs=1, max_epochs=40, patience=3, learning_rate=0.05, seed=1,
        schedule="constant",
    )  # fmt: skip
    surrogate = ks.train(toy_data(), toy_data(300, 1), "1k", BCE(), config)
    bce = [r["validation_bce"] for r in surrogate.history if r["event"] == "epoch"]
    best = int(np.argmin(bce))
    assert len(bce) == best + 1 + 3 < 40
    assert surrogate.history[-1]["best_epoch"] == best + 1
    held = toy_data(300, 1)
    partner = batches.generator(1, "validation").permutation(300)
    own, other = (surrogate.log_ratio(t, held.x) for t in (held.theta, held.theta[partner]))
    again = 0.5 * np.mean(np.logaddexp(0, -own) + np.logaddexp(0, other))
    assert again == pytest.approx(min(bce), rel=1e-4)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    data = toy_data()
    first, again, other = (
        ks.train(data, toy_data(100, 1), Tiny, FAST, replace(SHORT, seed=seed))
        for seed in (0, 0, 1)
    )
    assert weights_equal(first, again)
    assert not weights_equal(first, other)


# --- Which rows make which batch ------------------------------------------------------------------


def make_feed(n=1000, b=16, k=3, members=2, symmetries=0):
    rows = batches.open_rows(toy_data(n), None, True, 1 << 30)
    return batches.Feed(rows, b, k, members, 7, symmetries)


def test_an_epoch_uses_each_row_at_most_once_and_orders_are_fresh():
    one = make_feed()
    first, second = one.orders(1), one.orders(2)
    assert first.shape == (2, 1000 // 16, 16)
    for member in first:
        assert len(np.unique(member)) == 62 * 16
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, one.orders(1))


def test_draws_for_the_other_class_are_uniform_over_all_rows():
    """Chi-square of counts in 50 cells: 49 degrees, alarm above 130 (1e-8); a missing tenth of the
    rows would give thousands."""
    feed = make_feed()
    other, _ = feed.draws(1, 0)
    assert other.shape == (2, feed.steps, 3, 16)
    counts = np.bincount(other.ravel() // 20, minlength=50)
    expected = other.size / 50
    assert ((counts - expected) ** 2 / expected).sum() < 130
    assert not np.array_equal(other[0], other[1])


def test_a_short_epoch_draws_what_a_long_one_draws_first(monkeypatch):
    short, _ = make_feed().draws(1, 0)
    monkeypatch.setattr(batches.Feed, "steps", 5_000)
    long, _ = make_feed().draws(1, 0)
    assert long.shape[1] == batches.BLOCK
    np.testing.assert_array_equal(short, long[:, : short.shape[1]])


def test_where_an_epoch_is_cut_does_not_change_its_plan(monkeypatch):
    monkeypatch.setattr(batches, "BLOCK", 24)
    one = make_feed(symmetries=2)
    whole = batches.EpochBatches(one, 3)

    def joined(*cuts):
        parts, start = [], 0
        for wanted in cuts:
            stop = whole.cut(start, wanted)
            plan, _ = whole.plan(start, stop)
            parts.append([np.asarray(a)[:, : stop - start] for a in plan])
            start = stop
        assert start == 62
        return [np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)]

    long, short = joined(99, 99, 99), joined(5, 99, 99, 1, 7, 99)
    for a, b in zip(long, short, strict=True):
        np.testing.assert_array_equal(a, b)


def on_disk(array, path):
    """The array as a file that is read when it is asked for."""
    np.save(path, array)
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize("members", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_streaming_from_disk_gives_the_same_bits_in_bounded_memory(monkeypatch, tmp_path, members):
    data, held = toy_data(700), toy_data(300, 1)
    config = replace(SHORT, members=members)
    resident = ks.train(data, held, Tiny, FAST, config)
    monkeypatch.setattr(batches, "STREAMED_BYTES", 4 * 4 * 32 * 5 * members)  # five steps at a time
    monkeypatch.setattr("keepscore.training.validation.BLOCK_BYTES", 4096)
    asked, fetch = [], batches.Rows.fetch
    monkeypatch.setattr(
        batches.Rows, "fetch", lambda self, rows: asked.append(len(rows)) or fetch(self, rows)
    )
    streamed = ks.train(
        with_arrays(data, x=on_disk(data.x, tmp_path / "x.npy")),
        with_arrays(held, x=on_disk(held.x, tmp_path / "held.npy")),
        Tiny, FAST, replace(config, memory_budget=1000),
    )  # fmt: skip
    assert streamed.history[0]["streamed"]
    assert not resident.history[0]["streamed"]
    assert weights_equal(resident, streamed)
    sampled = 700  # the moments of x are taken from a sample of at most 10,000 rows
    assert max(asked) <= max(5 * 32 * members, sampled)


# --- Symmetries, ensembles ------------------------------------------------------------------------


def test_a_symmetry_moves_x_theta_and_score_together():
    swap = Symmetry("swap", np.array([1, 0, 3, 2]), (1, 0), sign=-1)
    maps = compiled_epoch.symmetry_maps([swap, swap], 4, 2)
    assert len(maps.sign) == 2  # the identity, and the map once
    data = toy_data(6)
    batch = Batch(*(jnp.asarray(a, jnp.float32) for a in (data.x, data.theta, data.score)), None)
    which = jnp.array([0, 1, 1, 0, 1, 0])
    moved = compiled_epoch.transform(batch, which, maps)
    chosen = np.asarray(which)[:, None] == 1
    f = np.float32
    np.testing.assert_array_equal(moved.x, np.where(chosen, swap.of_x(data.x), data.x).astype(f))
    expected = np.where(chosen, swap.of_theta(data.theta), data.theta)
    np.testing.assert_array_equal(moved.theta, expected.astype(f))
    expected = np.where(chosen, swap.of_theta(data.score), data.score)
    np.testing.assert_array_equal(moved.score, expected.astype(f))


def test_training_with_symmetries_uses_them():
    """x of the toy may be permuted: training on symmetric copies changes the weights, and declaring
    none leaves them."""
    data = toy_data()
    turn = Symmetry("turn", np.array([1, 2, 3, 0]), (0, 1))
    asked = replace(SHORT, symmetries=True)
    plain = ks.train(data, None, Tiny, BCE(), SHORT)
    none = ks.train(data, None, Tiny, BCE(), asked)
    some = ks.train(with_arrays(data, symmetries=(turn,)), None, Tiny, BCE(), asked)
    assert weights_equal(plain, none)
    assert not weights_equal(plain, some)


def test_an_ensemble_averages_its_members_and_reports_their_spread():
    config = replace(SHORT, members=3)
    data = toy_data()
    surrogate = ks.train(data, None, Tiny, FAST, config)
    theta, x = data.theta[:50], data.x[:50]
    each = []
    for m in range(3):
        one = jax.tree.map(
            lambda leaf: leaf[m] if isinstance(leaf, jax.Array) else leaf,  # noqa: B023
            surrogate.network,
        )
        alone = ks.Surrogate(one, surrogate.space, surrogate.x_shape)
        each.append(alone.log_ratio(theta, x))
    np.testing.assert_allclose(surrogate.log_ratio(theta, x), np.mean(each, axis=0), atol=1e-5)
    spread = surrogate.spread(theta, x)
    np.testing.assert_allclose(spread, np.std(each, axis=0, ddof=1), atol=1e-5)
    assert spread.min() > 0
    assert len(surrogate.history[1]["members"]["validation_bce"]) == 3
    like = surrogate.given(x[:5])
    expected = np.mean([e[0] for e in each])
    single = surrogate.given(x[:1])
    assert single(theta[0]) == pytest.approx(expected, abs=1e-5)
    assert like.gradient(theta[0]).shape == (2,)


def test_finite_differences_record_what_the_search_found():
    loss = ASA(network_score="finite-difference", update_every=4)
    surrogate = ks.train(toy_data(), None, Tiny, loss, SHORT)
    found = surrogate.history[0]["epsilon"]
    assert len(found["value"]) == 2
    assert max(found["worst_error"]) <= 0.01


class Rough(Tiny):
    def head(self, features, theta):
        return jnp.sin(1e7 * theta).sum(axis=1) + features[:, 0] * self.v[0, 0]


def test_finite_differences_that_cannot_follow_warn():
    loss = ASA(network_score="finite-difference", update_every=4)
    with pytest.warns(KeepscoreWarning, match="within 1% of the exact network score"):
        ks.train(toy_data(100), None, Rough, loss, SHORT)


def test_the_loss_follows_from_the_data():
    """Scores are used where there are any; without, pairs alone, as if that had been asked for."""
    data = toy_data(100)
    bare = with_arrays(data, score=None, score_kind=None)
    found = ks.train(bare, network=Tiny, config=SHORT)
    asked = ks.train(bare, network=Tiny, loss=BCE(), config=SHORT)
    assert found.quality.loss == "BCE"
    assert weights_equal(found, asked)
    assert ks.train(data, network=Tiny, config=SHORT).quality.loss == "ASA"


# --- Bad input ------------------------------------------------------------------------------------


def test_bad_input_is_named():
    data = toy_data(100)
    with pytest.raises(MissingError, match="ASA needs scores"):
        ks.train(with_arrays(data, score=None, score_kind=None), loss=ASA(), config=SHORT)
    bad = np.where(np.arange(200).reshape(100, 2) == 7, np.nan, data.score)
    with pytest.raises(NonFiniteError, match="score must be finite"):
        ks.train(with_arrays(data, score=bad), network="1k", config=SHORT)
    with pytest.raises(NonFiniteError, match="x must be finite"):
        ks.train(with_arrays(data, x=data.x * np.inf), network="1k", loss=BCE(), config=SHORT)
    with pytest.raises(DomainError, match="at least one batch of 32 rows; got 27"):
        ks.train(toy_data(30), network="1k", config=SHORT)
    with pytest.raises(UnknownNameError, match="30kk"):
        ks.train(data, network="30kk", config=SHORT)
    with pytest.raises(ShapeError, match="at least 22 x 22"):
        ks.train(noise_data(100, (10, 10), 2, "stationary-field"), None, "30k", config=SHORT)
    with pytest.raises(ShapeError, match="same x_shape and space"):
        ks.train(data, toy_data(50, m=3), network="1k", config=SHORT)
    with pytest.raises(DtypeError, match="loss must be"):
        ks.train(data, loss="bce", config=SHORT)
    with pytest.raises(DtypeError, match="config must be"):
        ks.train(data, config={"seed": 1})
    with pytest.raises(MissingError, match="needs a Dataset"):
        ks.train({"theta": 1})
    members = replace(SHORT, members=2)
    with pytest.raises(DomainError, match="function of a key"):
        ks.train(data, network=Tiny(jax.random.key(0)), config=members)
    with pytest.raises(DomainError, match="JAX sees 1"):
        ks.train(data, network="1k", config=TrainConfig(devices=64))


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"weight_decay": -1.0},
        {"validation_fraction": 1.0},
        {"members": 0},
        {"seed": -1},
    ],
)
def test_settings_are_checked(changes):
    with pytest.raises(DomainError, match=next(iter(changes))):
        TrainConfig(**changes)


def test_the_papers_presets_are_the_papers():
    paper = TrainConfig.paper("sis")
    at = [paper.epochs_at_least(n, 2) for n in (1000, 30_000, 100_000, 300_000, 1_000_000, 10**7)]
    assert at == [40, 40, 30, 20, 10, 10]
    assert paper.epochs_at_least(55_000, 10) == 35
    assert paper.epochs_at_most(30_000, 2) == 500
    assert TrainConfig.paper("student-t").learning_rate == 3e-3
    assert (paper.schedule, paper.criterion, paper.learning_rate) == ("constant", "bce", 1e-3)
    assert [paper.scale_inputs, paper.symmetries, paper.guard, paper.may_cool(1000, 2)] == [
        False
    ] * 4
    assert TrainConfig.paper("gaussian", seed=3).seed == 3
    with pytest.raises(UnknownNameError):
        TrainConfig.paper("sir")
    assert ASA.paper() == ASA(residual="squared", per_parameter=False)


class Explosive(Tiny):
    """Finite until the weights have grown a little."""

    def head(self, features, theta):
        return super().head(features, theta) / jnp.where(jnp.abs(self.v).max() < 0.8, 1.0, 0.0)


def test_a_loss_that_becomes_nan_stops_with_the_last_good_state(tmp_path):
    config = replace(SHORT, learning_rate=0.05, schedule="constant", max_epochs=9, patience=9)
    with pytest.raises(
        TrainingError, match=r"at step \d+ of epoch \d+ .* lower learning_rate"
    ) as caught:
        ks.train(toy_data(), None, Explosive, BCE(), config, tmp_path)
    assert isinstance(caught.value, Diverged)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(caught.value.weights))
    assert (tmp_path / "checkpoint.json").exists()
    if caught.value.surrogate is not None:
        assert np.isfinite(caught.value.surrogate.log_ratio([[0.0, 0.0]], np.zeros((1, 4))))


def test_an_xla_that_does_not_know_our_option_goes_without(monkeypatch):
    if compilation.compiler_options.__wrapped__() is None:
        pytest.skip("The XLA of this JAX does not know it.")

    def unknown(*_, **__):
        raise jax.errors.JaxRuntimeError("No such compile option")

    monkeypatch.setattr(compilation.jax, "jit", unknown)
    assert compilation.compiler_options.__wrapped__() is None
