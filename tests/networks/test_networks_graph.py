"""The network for people on a graph: what it counts, what it does not see, how it is kept."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore import networks
from keepscore.errors import DomainError, MissingError, ShapeError, UnknownNameError
from keepscore.models import SIS, contact_network
from keepscore.networks.graph import SIZES, GraphNetwork, graph_network, soft_counts
from keepscore.networks.residual import ResidualNetwork
from keepscore.surrogate import Surrogate

NODES, STEPS = 6, 5


def weights(seed=0, nodes=NODES):
    matrix = np.random.default_rng(seed).random((nodes, nodes))
    np.fill_diagonal(matrix, 0.0)
    return matrix


def states(n, seed=1, steps=STEPS, nodes=NODES):
    return (np.random.default_rng(seed).random((n, steps, nodes)) < 0.4).astype(np.float32)


def network(size="3k", seed=2, matrix=None, nodes=NODES):
    rng = np.random.default_rng(seed)
    matrix = weights(nodes=nodes) if matrix is None else matrix
    return GraphNetwork((STEPS, nodes), 2, rng, **SIZES[size], weights=matrix)


def counts_one_by_one(x, exposure, levels):
    """S(x) of one x as its definition says: every person and step in turn, in float64."""

    def described(state, e):
        u, place = np.zeros(2 * levels), np.sqrt(e) * (levels - 1)
        low = min(int(place), levels - 2)
        u[int(state) * levels + low] = 1 - (place - low)
        u[int(state) * levels + low + 1] = place - low
        return u

    total = np.zeros((2 * levels, 2 * levels))
    e = x.astype(float) @ exposure.astype(float).T
    for t in range(len(x) - 1):
        for i in range(x.shape[1]):
            total += np.outer(described(x[t, i], e[t, i]), described(x[t + 1, i], e[t + 1, i]))
    return total


# --- what is counted ----------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_counts_are_those_of_the_definition(levels):
    x, exposure = states(4), network().exposure
    found = np.asarray(soft_counts(jnp.asarray(x), exposure, levels))
    wanted = np.stack([counts_one_by_one(one, exposure, levels) for one in x])
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    np.testing.assert_allclose(found.sum(axis=(1, 2)), (STEPS - 1) * NODES, rtol=1e-6)


def test_weights_act_from_column_on_row():
    """Only person 1 weighs on person 0: who is ill beside person 1 must not matter to the counts
    of exposure, and the transpose would say otherwise."""
    matrix = np.zeros((2, 2))
    matrix[0, 1] = 1.0
    one = network(matrix=matrix, nodes=2)
    x = np.zeros((1, STEPS, 2), np.float32)
    x[0, :, 1] = 1.0  # person 1 is ill, person 0 is exposed in full and stays well
    counts = np.asarray(soft_counts(jnp.asarray(x), one.exposure, 2))[0]
    assert counts[1, 1] == STEPS - 1  # well, exposed, before and after
    assert counts[2, 2] == STEPS - 1  # ill, not exposed


def test_counts_add_up_over_time():
    """A path cut in two (sharing the state at the cut) has the counts of its parts: the log-ratio
    is a sum over transitions."""
    x, exposure = jnp.asarray(states(3, steps=9)), network().exposure
    whole = soft_counts(x, exposure, 4)
    parts = soft_counts(x[:, :5], exposure, 4) + soft_counts(x[:, 4:], exposure, 4)
    np.testing.assert_allclose(whole, parts, rtol=1e-5, atol=1e-5)


def test_renaming_people_changes_nothing_but_only_with_their_contacts():
    order = np.random.default_rng(3).permutation(NODES)
    x, theta = states(5), jnp.asarray(np.random.default_rng(4).normal(size=(5, 2)), jnp.float32)
    matrix = weights()
    here = networks.log_ratio(network(matrix=matrix), theta, jnp.asarray(x))
    renamed = network(matrix=matrix[np.ix_(order, order)])
    there = networks.log_ratio(renamed, theta, jnp.asarray(x[:, :, order]))
    np.testing.assert_allclose(here, there, atol=1e-5)
    wrong = networks.log_ratio(network(matrix=matrix), theta, jnp.asarray(x[:, :, order]))
    assert np.abs(np.asarray(here - wrong)).max() > 1e-3


# --- weights and constants ----------------------------------------------------------------------


def test_the_graph_is_a_constant_scaled_to_one():
    one = network()
    assert isinstance(one.exposure, np.ndarray)
    assert not networks.is_weight(one.exposure)
    assert one.exposure.sum(axis=1).max() == pytest.approx(1.0)
    trained, rest = networks.split(one)
    assert trained.exposure is None
    assert rest.exposure is not None


@pytest.mark.parametrize(("size", "count"), [("3k", 2532), ("10k", 9252), ("30k", 27648)])
def test_size_names_are_close_to_the_number_of_weights_whatever_the_graph(size, count):
    for nodes in (4, 30):
        one = network(size, nodes=nodes)
        assert networks.count_weights(one) == count


def test_more_people_have_closer_nodes_under_the_evidence():
    made = [graph_network(SIS(weights=weights(nodes=k)))(jax.random.key(0)) for k in (8, 100)]
    assert [one.settings()["nodes"] for one in made] == [64, 200]


def surrogate_of(model, one):
    data = model.simulate(
        model.space.uniform(50, np.random.default_rng(0)), np.random.default_rng(1)
    )
    scaled = networks.standardise(one, data, *model.space.box("train"))
    return Surrogate(scaled, model.space, model.x_shape), data


def test_states_stay_zero_and_one_when_inputs_are_scaled():
    model = SIS(times=range(STEPS))
    made, _ = surrogate_of(model, graph_network(model, "3k")(jax.random.key(0)))
    assert np.all(made.network.x_mean == 0)
    assert np.all(made.network.x_sd == 1)
    assert not np.all(made.network.theta_sd == 1)


def test_a_surrogate_comes_back_with_its_graph(tmp_path):
    model = SIS(weights=contact_network(12).weights, times=range(STEPS), score="joint")
    made, x = surrogate_of(model, graph_network(model, "3k")(jax.random.key(0)))
    theta = model.space.uniform(len(x), np.random.default_rng(2))
    made.save(tmp_path)
    again = ks.load(tmp_path)
    assert np.array_equal(again.log_ratio(theta, x), made.log_ratio(theta, x))
    assert isinstance(again.network.network.exposure, np.ndarray)
    assert np.array_equal(again.network.network.exposure, made.network.network.exposure)


def test_a_network_with_another_graph_than_its_description_is_not_saved(tmp_path):
    model = SIS(times=range(STEPS))
    made, _ = surrogate_of(model, graph_network(model, "3k")(jax.random.key(0)))
    small = np.zeros((3, 3), np.float32)
    wrong = eqx.tree_at(lambda s: s.network.exposure, made.network, small)
    with pytest.raises(DomainError, match="could not be loaded again"):
        replace(made, network=wrong).save(tmp_path)
    assert not any(tmp_path.iterdir())


def test_auto_takes_it_for_data_of_people_on_a_graph():
    """The data tell their model, and the model its graph: nobody has to name the network."""
    model = SIS(weights=weights(nodes=5), times=range(STEPS))
    data = ks.simulate(model, 64, seed=0)
    short = ks.TrainConfig(min_epochs=1, max_epochs=1, batch_size=16)
    made = ks.train(data, config=short)
    assert isinstance(made.network.network, GraphNetwork)
    shares = graph_network(model)(jax.random.key(0)).exposure
    np.testing.assert_array_equal(made.network.network.exposure, shares)


@pytest.mark.slow
def test_names_and_data_that_tell_less():
    model = SIS(weights=weights(nodes=5), times=range(STEPS))
    data = ks.simulate(model, 64, seed=0)
    short = ks.TrainConfig(min_epochs=1, max_epochs=1, batch_size=16)
    by_name = ks.train(data, network="graph-3k", config=short)
    assert by_name.network.network.levels == SIZES["3k"]["levels"]
    # Nothing known of the model: a chain like any other.
    unknown = replace(data, contacts=None)
    assert isinstance(ks.train(unknown, config=short).network.network, networks.MarkovNetwork)
    # Times apart by different steps: no chain with one transition law.
    uneven = SIS(weights=weights(nodes=5), times=(0, 1, 3, 4))
    made = ks.train(ks.simulate(uneven, 64, seed=0), config=short)
    assert isinstance(made.network.network, ResidualNetwork)


# --- what goes wrong ----------------------------------------------------------------------------


def test_errors_say_what_is_missing():
    with pytest.raises(MissingError, match="graph_network"):
        networks.resolve("graph-10k", (STEPS, NODES), 2, "markov", jax.random.key(0))
    with pytest.raises(UnknownNameError, match="10k"):
        graph_network(SIS(), "11k")
    with pytest.raises(MissingError, match="weights"):
        graph_network(ks.models.GaussianField(shape=(3, 3)))
    rng = np.random.default_rng(0)
    with pytest.raises(ShapeError, match="T >= 2"):
        GraphNetwork((NODES,), 2, rng, **SIZES["3k"], weights=weights())
    with pytest.raises(ShapeError, match=r"\(7, 7\)"):
        GraphNetwork((STEPS, 7), 2, rng, **SIZES["3k"], weights=weights())
    with pytest.raises(DomainError, match="negative"):
        GraphNetwork((STEPS, NODES), 2, rng, **SIZES["3k"], weights=-weights())
    with pytest.raises(DomainError, match="levels"):
        GraphNetwork((STEPS, NODES), 2, rng, 1, (8,), 8, weights=weights())
