"""Programs that several trainings share: nothing is compiled twice, and nobody gets another's."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore.networks import compilation
from keepscore.networks.compilation import shared, without_arrays
from keepscore.training.batches import FILLED_UP, open_rows, resident_tables
from keepscore.training.optimizer import Rate, optimizer

SHORT = ks.TrainConfig(min_epochs=3, guard=False, compare=False)
COMPILED = "/jax/core/compile/backend_compile_duration"


def gaussian(n, scale=1.0, seed=0):
    """x = scale (theta + noise), with its exact scores."""
    rng = np.random.default_rng(seed)
    theta = rng.uniform(-1, 1, (n, 2))
    noise = 0.3 * rng.normal(size=(n, 2))
    space = ks.Space([ks.Parameter("a", -1, 1), ks.Parameter("b", -1, 1)])
    return ks.dataset(theta, scale * (theta + noise), space=space, score=noise / 0.09)


@pytest.fixture
def compilations():
    """Seconds of each compilation since the list was last emptied."""
    found = []

    def heard(event, seconds, **_):
        if event == COMPILED:
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(heard)
    yield found
    jax.monitoring.unregister_event_duration_listener(heard)


def train(data, **settings):
    return ks.train(data, network="mlp-1k", config=replace(SHORT, **settings), progress=False)


class TestTrainings:
    def test_other_data_of_about_the_same_size_compile_nothing(self, compilations):
        train(gaussian(300))
        train(gaussian(300), seed=1)  # what a first training alone compiles is compiled by now
        compilations.clear()
        train(gaussian(290, scale=50.0, seed=3), seed=2)
        assert len(compilations) <= 2  # arrays of a new shape may be placed or moved

    def test_a_shared_program_takes_the_scale_of_its_own_data(self):
        """Were the scale of the first data kept, the second training would see x 50 times too
        large: the same weights, and another loss."""
        first = train(gaussian(300))
        second = train(gaussian(300, scale=50.0))
        a, b = (s.quality.validation_bce for s in (first, second))
        assert a == pytest.approx(b, rel=1e-3)
        assert first.quality.score_r2 == pytest.approx(second.quality.score_r2, abs=1e-2)

    def test_length_and_rate_are_in_the_state_and_not_in_the_program(self):
        short = optimizer(SHORT, 10, may_cool=True)
        long = optimizer(replace(SHORT, learning_rate=0.5), 20, may_cool=True)
        assert short.update is long.update
        weights = {"w": jnp.ones(2)}
        found = [
            [(float(part.length), float(part.peak)) for part in parts if isinstance(part, Rate)]
            for parts in (
                jax.tree.leaves(way.init(weights), is_leaf=lambda part: isinstance(part, Rate))
                for way in (short, long)
            )
        ]
        assert found == [[(10.0, pytest.approx(SHORT.learning_rate))], [(20.0, 0.5)]]

    def test_a_run_ends_as_before_whatever_ran_between(self):
        before = train(gaussian(300))
        train(gaussian(300, scale=3.0), min_epochs=9, learning_rate=1e-2)
        after = train(gaussian(300))
        leaves = (jax.tree.leaves(s.network) for s in (before, after))
        assert all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))

    def test_weight_decay_is_part_of_the_program(self):
        plain, decayed = train(gaussian(300)), train(gaussian(300), weight_decay=0.5)
        norms = [
            sum(float(np.abs(leaf).sum()) for leaf in jax.tree.leaves(s.network))
            for s in (plain, decayed)
        ]
        assert norms[0] != norms[1]


def bend(h):  # what the network of a user calls, and a user may change
    return jnp.tanh(h)


class OfUser(eqx.Module):
    weight: jax.Array

    def features(self, x):
        return x

    def head(self, features, theta):
        return bend((features @ self.weight * theta).sum(axis=1))


class TestNetworksOfUsers:
    def test_a_changed_function_is_seen_by_training_and_after_it(self, monkeypatch):
        """Negative control: with the same function the same weights come out."""
        network = OfUser(jnp.eye(2))
        config = replace(SHORT, scale_inputs=False)
        data = gaussian(300)

        def trained():
            return ks.train(data, network=network, config=config, progress=False)

        first, again = trained(), trained()
        np.testing.assert_array_equal(first.network.weight, again.network.weight)
        at = np.full((4, 2), 0.5), np.asarray(data.x[:4])
        before = first.relative(*at)
        monkeypatch.setitem(globals(), "bend", lambda h: 3.0 * jnp.sin(h))
        other = trained()
        assert not np.array_equal(first.network.weight, other.network.weight)
        x, weight = np.asarray(at[1], np.float32), np.asarray(other.network.weight)
        inside = (x @ weight * 0.5).sum(axis=1)
        np.testing.assert_allclose(other.relative(*at), 3 * np.sin(inside), rtol=1e-4)
        assert np.abs(before).max() <= 1


class TestShared:
    def test_the_same_key_gives_the_same_object(self):
        assert shared(("a test", 1), object) is shared(("a test", 1), object)
        assert shared(("a test", 1), object) is not shared(("a test", 2), object)

    def test_without_a_hash_it_is_made_anew(self):
        assert shared(("a test", [1]), object) is not shared(("a test", [1]), object)
        assert shared(None, object) is not shared(None, object)
        assert without_arrays(OfUser(jnp.eye(2)))[2] is None

    def test_one_and_true_are_two_keys(self):
        keys = [without_arrays({"n": value})[2] for value in (1, True, 1.0)]
        assert len(set(keys)) == 3

    def test_arrays_do_not_count(self):
        trees = [{"a": np.full(3, value), "kind": "sum"} for value in (1.0, 2.0)]
        arrays, others, keys = zip(*(without_arrays(tree) for tree in trees), strict=True)
        assert keys[0] == keys[1]
        assert others[0]["a"] is None
        assert arrays[1]["a"][0] == 2.0


class TestTables:
    @pytest.mark.parametrize("n", [1, 64, 65, 300])
    def test_small_tables_are_filled_up_and_their_rows_stay(self, n):
        data = gaussian(n)
        tables = resident_tables(open_rows(data, None, True, 1 << 30))
        assert tables.x.shape == (1 << (n - 1).bit_length(), 2)
        assert len(tables.theta) == len(tables.x) == len(tables.score)
        np.testing.assert_array_equal(np.asarray(tables.x)[:n], data.x.astype(np.float32))

    def test_large_tables_are_as_they_are(self):
        tables = resident_tables(open_rows(gaussian(FILLED_UP + 1), None, True, 1 << 30))
        assert len(tables.x) == FILLED_UP + 1


def test_programs_are_forgotten_before_the_system_has_no_room_for_more(tmp_path, monkeypatch):
    """With a limit that is reached, a training forgets what was compiled, and ends as without; with
    room for more (negative control), and where nothing tells, everything is kept."""
    data, forgotten = gaussian(100), []
    clear = jax.clear_caches
    monkeypatch.setattr(jax, "clear_caches", lambda: (forgotten.append(1), clear()))
    plain = ks.train(data, network="mlp-1k", config=SHORT)
    assert not forgotten
    limit = tmp_path / "limit"
    monkeypatch.setattr(compilation, "MOST_MAPPED", limit)
    limit.write_text("1000000000\n")
    assert not compilation.make_room()
    limit.write_text("100\n")
    full = ks.train(data, network="mlp-1k", config=SHORT)
    assert forgotten
    np.testing.assert_array_equal(*(s.log_ratio(data.theta, data.x) for s in (plain, full)))
    monkeypatch.setattr(compilation, "MAPPED", tmp_path / "nowhere")
    assert not compilation.make_room()
