"""Series and events: densities that see the past alone, whatever rows are there."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore import networks
from keepscore.errors import MissingError, ShapeError
from keepscore.networks import catalogue, series

KEY = jax.random.key(0)


def moved(name, x_shape, structure=None, holes="none", d=2):
    """With weights that are far from where they begin, so that steps depend on each other."""
    network = networks.resolve(name, x_shape, d, structure, KEY, holes=holes)
    rng = np.random.default_rng(3)
    weights, rest = networks.split(network)
    noisy = jax.tree.map(
        lambda w: jnp.asarray(np.asarray(w) + 0.15 * rng.standard_normal(w.shape), jnp.float32),
        weights,
    )
    return eqx.combine(noisy, rest)


def log_q(network, x, theta=(0.3, -0.5)):
    x = np.asarray(x, np.float32)
    theta = np.tile(np.asarray(theta, np.float32), (len(x), 1))
    found = jax.jit(lambda x, theta: network.log_density(network.features(x), theta))(x, theta)
    return np.asarray(found, np.float64)


SIDE = np.linspace(-15, 15, 61)
BOTH = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), -1).reshape(-1, 2)
STEP = SIDE[1] - SIDE[0]


@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2)])
def test_it_is_a_density(shape):
    """Two rows of one number, or one row of two: the integral is one."""
    q = np.exp(log_q(moved("series-3k", shape), BOTH.reshape(-1, *shape)))
    assert abs(q.sum() * STEP**2 - 1) < 2e-3


def test_with_missing_rows_all_that_can_be_seen_adds_up_to_one():
    """Both rows, either, or none. Without the probability of a row being there it would be four."""
    network = moved("series-3k", (2,), holes="rows")
    nan = np.full_like(SIDE, np.nan)
    seen = [
        np.exp(log_q(network, BOTH)).sum() * STEP**2,
        np.exp(log_q(network, np.stack([SIDE, nan], 1))).sum() * STEP,
        np.exp(log_q(network, np.stack([nan, SIDE], 1))).sum() * STEP,
        np.exp(log_q(network, np.full((1, 2), np.nan))).sum(),
    ]
    assert min(seen) > 1e-3
    assert abs(sum(seen) - 1) < 2e-3


def test_none_one_or_two_events_add_up_to_one():
    """Densities are those of log waits; a second wait beyond the end of the window is n = 1."""
    network = moved("events-3k", (2,), holes="rows")
    cell = 0.2
    waits = np.exp(np.arange(-14, 0, cell) + cell / 2)  # middles of cells, up to the whole window
    none = np.exp(log_q(network, np.full((1, 2), np.nan)))[0]
    one = np.exp(log_q(network, np.stack([waits, np.full_like(waits, np.nan)], 1))).sum() * cell
    first, second = (w.ravel() for w in np.meshgrid(waits, waits, indexing="ij"))
    inside = first + second < 1
    times = np.stack([first, first + second], 1)[inside]
    two = np.exp(log_q(network, times)).sum() * cell**2
    assert min(none, one, two) > 0.01
    assert abs(none + one + two - 1) < 0.02  # the edge of the window cuts cells


def test_a_step_sees_its_past_alone():
    network = moved("series-3k", (9,))
    y = np.random.default_rng(0).standard_normal((9, 1)).astype("f4")
    other = y.copy()
    other[4] += 1.0
    there, clock = jnp.ones(9), jnp.arange(9) / 9
    theta = jnp.asarray([0.3, -0.5])
    steps = jax.jit(lambda y: network._steps(y, there, clock, theta))
    here, changed = steps(jnp.asarray(y)), steps(jnp.asarray(other))
    for before, after in zip(here, changed, strict=True):
        np.testing.assert_array_equal(before[:5], after[:5])
    # Lags reach three steps back; what is beyond them comes through the memory.
    assert not np.allclose(here.mean[8], changed.mean[8], atol=1e-7)


def test_the_memory_is_its_recurrence():
    rng = np.random.default_rng(1)
    a, v = rng.uniform(size=(7, 3)), rng.standard_normal((7, 3))
    s, expected = np.zeros(3), []
    for t in range(7):
        expected.append(s)
        s = a[t] * s + v[t]
    found = series._states_before(jnp.asarray(a, jnp.float32), jnp.asarray(v, jnp.float32))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_survival_is_one_minus_the_distribution():
    """Against the density of the same mixture, summed from y on."""
    rng = np.random.default_rng(2)
    steps = series.Steps(
        jax.nn.log_softmax(jnp.asarray(rng.standard_normal((1, 3)), jnp.float32)),
        jnp.asarray(rng.standard_normal((1, 3, 1)), jnp.float32),
        jnp.asarray(rng.standard_normal((1, 3, 1)), jnp.float32),
        jnp.zeros((1, 3, 1, 1)),
        jnp.zeros(1),
    )
    y = np.arange(0.3, 30, 0.01) + 0.005
    each = jax.jit(jax.vmap(lambda one: series._log_mixture(steps, one[None, None])[0]))
    q = np.exp(each(jnp.asarray(y[::20])))
    found = float(jnp.exp(series._log_survival(steps, jnp.asarray([y[0] - 0.1]))[0]))
    assert abs(q.sum() * 0.2 - found) < 5e-3


def test_what_comes_after_a_gap_is_no_event():
    network = moved("events-3k", (4,), holes="rows")
    x = np.array([[0.2, 0.5, np.nan, np.nan], [0.2, 0.5, np.nan, 0.9]])
    here, there = log_q(network, x)
    assert here == there


@pytest.mark.parametrize(
    ("name", "shape"),
    [("series-3k", (5, 2)), pytest.param("events-3k", (5,), marks=pytest.mark.slow)],
)
def test_pairs_in_turns_are_pairs_at_once(name, shape, monkeypatch):
    network, rng = moved(name, shape, holes="rows"), np.random.default_rng(1)
    x = np.sort(rng.uniform(size=(7, *shape)), axis=1)
    x[2, 3:] = np.nan
    x = jnp.asarray(x, jnp.float32)
    theta = jnp.asarray(rng.standard_normal((7, 2)), jnp.float32)

    def both():
        def h(t):
            found = network.head(network.features(x), t)
            return found.sum(), found

        return jax.jit(jax.grad(h, has_aux=True))(theta)

    slope, whole = both()
    assert np.isfinite(slope).all()
    monkeypatch.setattr(series, "MOST_STEPS", 12)
    for turns, once in zip(both(), (slope, whole), strict=True):
        np.testing.assert_allclose(turns, once, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("family", "shape"), [("series", (5, 2)), ("events", (5,))])
@pytest.mark.parametrize("holes", ["none", "rows"])
def test_every_size_is_rebuilt_from_its_description(family, shape, holes):
    for size in catalogue.FAMILIES[family].sizes:
        network = networks.resolve(f"{family}-{size}", shape, 2, None, KEY, holes=holes)
        description = networks.describe(network, shape, 2)
        again = networks.rebuild(description)
        assert jax.tree.structure(again) == jax.tree.structure(network)
        assert networks.describe(again, shape, 2) == description


def test_auto_takes_them_for_what_is_declared():
    def taken(structure, shape, **given):
        return type(networks.resolve("auto", shape, 2, structure, KEY, **given)).__name__

    assert taken("series", (20,)) == taken("series", (20, 3)) == "SeriesNetwork"
    assert taken("series", (20,), holes="rows") == "MaskedSeriesNetwork"
    assert taken("events", (20,), holes="rows") == taken("events", (20,)) == "EventsNetwork"
    # Counts are no densities, and rows that are missing in part are not whole.
    assert taken("series", (20,), continuous=False) == "ResidualNetwork"
    assert taken("series", (20, 3), holes="entries") == "Masked"


def test_wrong_shapes_are_refused():
    with pytest.raises(ShapeError, match="times of events"):
        networks.resolve("events-3k", (5, 2), 2, None, KEY)
    with pytest.raises(ShapeError, match="series network"):
        networks.resolve("series-3k", (), 2, None, KEY)
    with pytest.raises(MissingError, match="series, events"):
        networks.resolve("quadratic-10k", (5, 5), 2, None, KEY, holes="rows")


def test_times_are_scaled_by_the_largest():
    network = networks.resolve("events-3k", (3,), 1, "events", KEY, holes="rows")
    x = np.array([[1.0, 30.0, np.nan], [5.0, np.nan, np.nan]])
    scaled = networks.standardise(network, x, np.zeros(1), np.ones(1))
    assert scaled.x_mean == 0.0
    assert scaled.x_sd == 30.0


# --- models that declare them ---------------------------------------------------------------------

RATE = ks.Space([ks.Parameter("rate", np.log(2.0), np.log(8.0), "log")])


def poisson(sort=True, declares=("events",)):
    """A Poisson process on (0, 3), 60 events at most (more have a probability below 1e-9)."""

    def simulate(theta, rng):
        x = np.full((len(theta), 60), np.nan)
        for row, rate in zip(x, np.exp(theta[:, 0]), strict=True):
            times = rng.uniform(0, 3, size=rng.poisson(3 * rate))[:60]
            row[: len(times)] = np.sort(times) if sort else times
        return x

    def log_prob(theta, x):
        return (~np.isnan(x)).sum(axis=1) * theta[:, 0] - 3 * np.exp(theta[:, 0])

    def score(theta, x):
        return ((~np.isnan(x)).sum(axis=1) - 3 * np.exp(theta[:, 0]))[:, None]

    return ks.models.from_functions(
        RATE, (60,), simulate=simulate, log_prob=log_prob, score=score, missing=True,
        declares=list(declares), name="poisson",
    )  # fmt: skip


def test_events_out_of_order_are_a_broken_law():
    def verdict(model):
        found = ks.check_model(model, draws=50).findings
        return {f.law: f.verdict for f in found}[f"structure: {model.structure}"]

    assert verdict(poisson()) == "holds"
    assert verdict(poisson(sort=False)) == "BROKEN"
    assert verdict(poisson(declares=["series"])) == "not checked"


@pytest.mark.slow
def test_a_surrogate_of_events_learns_and_is_saved(tmp_path):
    """600 simulations: the score is n - 3 rate, and R^2 is above .9 after 300 updates (a constant
    has 0)."""
    model = poisson()
    data = ks.simulate(model, 600, seed=0, jobs=1)
    config = ks.TrainConfig(batch_size=64, max_epochs=36, guard=False)
    surrogate = ks.train(data, config=config, path=tmp_path, progress=False)
    assert type(surrogate.network.network) is series.EventsNetwork
    assert surrogate.quality.score_r2[0] > 0.9
    x, theta = model.simulate(np.full((4, 1), 1.2), np.random.default_rng(1)), np.full((4, 1), 1.0)
    again = ks.load(tmp_path)
    np.testing.assert_array_equal(again.log_ratio(theta, x), surrogate.log_ratio(theta, x))
    assert ks.mle(surrogate.given(x)).converged
