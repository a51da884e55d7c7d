"""Networks for designs that change: what they may depend on, and exact oracles for their parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import keepscore as ks
from keepscore.errors import DomainError, ShapeError
from keepscore.networks import graph, markov, resolve, sites, standardise


def timed(**options):
    base = ks.models.SIS(weights=np.ones((3, 3)), times=np.arange(6))
    return ks.models.with_times(base, visits=(3, 6), **options)


def scattered():
    return ks.models.with_sites(ks.models.GaussianField(), sites=(4, 9))


def graphed():
    def graphs(n, rng):
        weights = rng.exponential(1.0, (n, 3, 3))
        weights[:, np.arange(3), np.arange(3)] = 0.0
        return weights

    return ks.models.with_graphs(ks.models.SIS(weights=np.ones((3, 3)), times=np.arange(6)), graphs)


def untrained(model, network="auto", n=40):
    """A surrogate as training would begin with, and simulated (theta, x)."""
    rng = np.random.default_rng(0)
    theta = model.space.uniform(n, rng)
    x = model.simulate(theta, rng)
    holes = ks.networks.holes_of(x, model.missing)
    contacts = getattr(model, "weights", None)
    d, structure = model.space.d, model.structure
    made = resolve(network, model.x_shape, d, structure, jax.random.key(1), contacts, True, holes)
    scaled = standardise(made, x, *model.space.box("train"))
    return ks.Surrogate(scaled, model.space, model.x_shape), theta, x


@pytest.mark.parametrize(
    ("model", "network", "kind"),
    [
        (timed, "auto", graph.TimedGraphNetwork),
        (timed, "timed-5k", markov.TimedMarkovNetwork),
        (scattered, "auto", sites.SitesNetwork),
        (graphed, "auto", graph.GraphsNetwork),
    ],
)
def test_they_are_chosen_saved_and_loaded(model, network, kind, tmp_path):
    surrogate, theta, x = untrained(model(), network)
    assert type(surrogate.network.network) is kind
    surrogate.save(tmp_path)
    again = ks.load(tmp_path)
    np.testing.assert_array_equal(again.log_ratio(theta, x), surrogate.log_ratio(theta, x))
    assert again.missing == surrogate.missing == model().missing


@pytest.mark.parametrize("network", ["timed-graph-6k", "timed-5k"])
def test_only_gaps_between_visits_that_took_place_count(network):
    surrogate, theta, x = untrained(timed(), network)
    base = surrogate.log_ratio(theta, x)
    later = x.copy()
    later[:, :, 0] += 50.0
    np.testing.assert_allclose(surrogate.log_ratio(theta, later), base, atol=2e-3)
    moved = x[:, [5, 0, 1, 4, 2, 3]]
    inside = np.isnan(x[:, 4:, 0]).all(axis=1)  # rows of NaN in between
    assert inside.sum() > 3
    found = surrogate.log_ratio(theta[inside], moved[inside])
    np.testing.assert_allclose(found, base[inside], atol=1e-5)
    # And they do count: the control.
    longer = x.copy()
    longer[:, :, 0] *= 1.5
    assert np.abs(surrogate.log_ratio(theta, longer) - base).mean() > 1e-3


def test_visits_are_put_in_a_row():
    nan = np.nan
    x = jnp.array([[[nan, nan], [1.0, 0.0], [nan, nan], [3.5, 1.0]]])
    states, gap, both = markov.visits(x)
    assert states[0, :, 0].tolist() == [0, 1, 0, 0]
    assert gap[0, 0] == 2.5
    assert both[0].tolist() == [1, 0, 0]


def test_splines_are_all_cubic_functions():
    """Four of them span the cubics; more also have knots, and sum to 1 all the same."""
    place = np.linspace(0, 1, 41)
    for count in (4, 6):
        basis = np.asarray(graph.splines(jnp.asarray(place, jnp.float32), count), np.float64)
        np.testing.assert_allclose(basis.sum(axis=1), 1.0, atol=1e-6)
        for power in range(4):
            fitted = basis @ np.linalg.lstsq(basis, place**power, rcond=None)[0]
            np.testing.assert_allclose(fitted, place**power, atol=1e-5)


def test_sites_with_all_neighbours_are_the_normal_density():
    """With k >= S - 1 Vecchia's density is that of the network's own covariance, exactly."""
    network = sites.SitesNetwork(
        (7, 3), 3, np.random.default_rng(0), neighbours=6, kernels=4, widths=(8,),
    )  # fmt: skip
    rng = np.random.default_rng(1)
    x, theta = rng.standard_normal((5, 7, 3)), rng.standard_normal((5, 3))
    x[1, 5:] = x[3, :4] = np.nan
    x32, theta32 = jnp.asarray(x, jnp.float32), jnp.asarray(theta, jnp.float32)
    found = network.log_density(network.features(x32), theta32)
    for one, t, value in zip(x, theta32, found, strict=True):
        rows = one[~np.isnan(one[:, 0])]
        weight, rate, nugget = (np.asarray(a, np.float64) for a in network._parameters(t))
        h = (rows[:, None, :2] - rows[None, :, :2]) ** 2
        covariance = np.exp(-0.5 * h @ rate) @ weight + nugget * np.eye(len(rows))
        expected = scipy.stats.multivariate_normal(cov=covariance).logpdf(rows[:, 2])
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-3)


def test_the_order_of_sites_and_rows_that_are_not_there_do_not_count():
    surrogate, theta, x = untrained(scattered())
    base = surrogate.relative(theta, x)
    shuffled = x[:, np.random.default_rng(2).permutation(9)]
    np.testing.assert_allclose(surrogate.relative(theta, shuffled), base, atol=1e-3)
    more = np.full((len(x), 14, 3), np.nan)  # another shape than in training
    more[:, 3:12] = x
    wide = surrogate.given(more, each=True).pairs(theta, np.arange(len(x)))
    np.testing.assert_allclose(wide, base, atol=1e-3)
    away = x + np.array([1.0, 0, 0]) * np.arange(9)[:, None]
    assert np.abs(surrogate.relative(theta, away) - base).mean() > 1e-3


def test_sites_are_taken_far_first():
    rng = np.random.default_rng(0)
    site = rng.uniform(-1, 1, (30, 2))
    there = jnp.arange(30) < 25
    order = np.asarray(sites.far_first(jnp.asarray(site, jnp.float32), there))
    assert sorted(order.tolist()) == list(range(30))
    assert set(order[25:].tolist()) == set(range(25, 30))
    taken = np.concatenate([site[:25].mean(axis=0, keepdims=True), site[order]])
    nearest = [np.linalg.norm(taken[: i + 1] - taken[i + 1], axis=1).min() for i in range(25)]
    assert (np.diff(nearest) <= 1e-6).all()  # closer and closer


def test_who_is_who_does_not_count_but_the_graph_does():
    surrogate, theta, x = untrained(graphed())
    base = surrogate.log_ratio(theta, x)
    order = [2, 0, 1]
    renamed = x[:, :, order].copy()
    renamed[:, 6:] = x[:, 6:][:, order][:, :, order]
    np.testing.assert_allclose(surrogate.log_ratio(theta, renamed), base, atol=1e-4)
    other = x.copy()
    other[:, 6:] = np.roll(x[:, 6:], 1, axis=0)
    assert np.abs(surrogate.log_ratio(theta, other) - base).mean() > 1e-3


def test_what_does_not_fit_is_refused():
    surrogate, theta, x = untrained(graphed())
    with pytest.raises(ShapeError):
        surrogate.log_ratio(theta, x[:, :6])
    surrogate, theta, x = untrained(timed())
    partly = x.copy()
    partly[0, 0, 1] = np.nan
    with pytest.raises(DomainError, match="as a whole"):
        surrogate.given(partly)
    rng = np.random.default_rng(0)
    with pytest.raises(ShapeError, match=r"\(S, 3\)"):
        sites.SitesNetwork((4, 2), 2, rng, **sites.SIZES["3k"])
    with pytest.raises(ShapeError, match=r"T \+ K"):
        graph.GraphsNetwork((4, 3), 2, rng, **graph.GRAPHS_SIZES["10k"])
    with pytest.raises(ShapeError, match=r"1 \+ K"):
        graph.TimedGraphNetwork((1, 4), 2, rng, **graph.TIMED_SIZES["6k"], weights=np.ones((3, 3)))
    with pytest.raises(ShapeError, match="time and a state"):
        markov.TimedMarkovNetwork((4, 1), 2, rng, **markov.SIZES["5k"])
    with pytest.raises(DomainError, match="gaps"):
        graph.TimedGraphNetwork((4, 4), 2, rng, 3, 2, (8,), 4, np.ones((3, 3)))
