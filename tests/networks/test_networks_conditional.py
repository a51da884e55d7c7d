"""Rows with choices, counts or answers in them: entry by entry against sums written out."""

import dataclasses
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from test_networks_mixture import shaken

import keepscore as ks
from keepscore import networks
from keepscore.errors import DomainError, KeepscoreWarning, ShapeError
from keepscore.networks.conditional import ConditionalSetNetwork, has_discrete_rows
from keepscore.networks.layers import silu

KEY = jax.random.key(5)
RNG = np.random.default_rng
NAME = "conditional-set-3k"


def race(b=200, n=5, seed=0):
    """Rows of a time and a choice, in this order: the network turns it round."""
    times = np.exp(RNG(seed).standard_normal((b, n, 2)))
    return np.stack([times.min(axis=2), times.argmin(axis=2)], axis=2)


def visits(b=200, n=4, seed=0, shape=(3,)):
    """Counts that share what is there; values are not 0, 1, 2."""
    rng = RNG(seed)
    present = rng.poisson(3.0, (b, n)).reshape(b, n, *[1] * len(shape))
    return 2 * rng.binomial(present, 0.4, (b, n, *shape)) + 1.0


def censored(b=200, n=5, seed=0):
    """Rows of a time, 3 at the end of the study, and whether it ended before; and of an amount of
    rain, often 0."""
    rng = RNG(seed)
    times, rain = rng.exponential(2.0, (b, n)), rng.gamma(2.0, 1.0, (b, n))
    rain *= rng.random((b, n)) < 0.6
    return np.stack([np.minimum(times, 3.0), times < 3.0, rain], axis=2)


DATA = {
    "censored": censored(),
    "race": race(),
    "visits": visits(),
    "one entry": visits(shape=(1,)),
    "two axes": visits(shape=(2, 2)),
}


def made(x, d, size=NAME):
    """A network for these data, its weights shaken so that nothing is zero."""
    net = networks.resolve(size, x.shape[1:], d, "iid", KEY).scaled_to(x)
    assert isinstance(net, ConditionalSetNetwork)
    return shaken(net)


def in_float32(*arrays):
    return [jnp.asarray(a, jnp.float32) for a in arrays]


def log_q(net, x, theta):
    """The formula at the top of the file, row by row and entry by entry, in float64."""
    names = [f.name for f in dataclasses.fields(net)]
    a = {name: np.asarray(getattr(net, name), float) for name in names}
    p, most = a["values"].shape
    k = (a["last"].shape[-1] - most) // 3
    total = 0.0
    for row in np.asarray(x, np.float32).astype(float).reshape(-1, p):
        lean = np.where(a["lean"] > 0, a["lean"], 1.0)
        z = np.where(a["lean"] > 0, np.arcsinh(row / lean), row)
        z = (z - a["mean"]) / a["sd"]
        for j in range(p):
            u = theta @ a["of_theta"][j] + a["first_bias"][j]
            for i in range(p):
                if a["order"][i] < a["order"][j]:
                    u = u + z[i] * a["of_entries"][j, i]
            inner = np.asarray(silu(u)) @ a["inner"][j] + a["inner_bias"][j]
            out = np.asarray(silu(inner)) @ a["last"][j]
            out = out + theta @ a["direct"][j] + a["last_bias"][j]
            known = ~np.isnan(a["values"][j])
            own = np.flatnonzero(a["values"][j] == row[j])
            if known.any():
                if not len(own):  # any other number
                    own = np.flatnonzero(np.isinf(a["values"][j]))
                total += out[own[0]] - logsumexp(out[:most][known])
            if not known.any() or np.isinf(a["values"][j][own[0]]):
                w, m, s = np.split(out[most:], 3)
                s = 10 * np.tanh(s / 10)
                normal = -s - 0.5 * ((z[j] - m) / np.exp(s)) ** 2
                total += logsumexp(w - logsumexp(w) + normal)
        assert k >= 1
    return total


@pytest.mark.parametrize(
    ("name", "d"),
    [
        ("race", 1),
        ("race", 6),
        ("visits", 2),
        ("one entry", 2),
        ("two axes", 1),
        ("censored", 1),
        ("censored", 6),
    ],
)
def test_log_q_is_a_sum_over_rows_and_entries(name, d):
    x, theta = DATA[name], RNG(d).standard_normal((7, d))
    net = made(x, d)
    rows, at = in_float32(x[:7], theta)
    got = net.log_density(net.features(rows), at)
    wanted = [log_q(net, one, t) for one, t in zip(x[:7], theta, strict=True)]
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
    np.testing.assert_array_equal(got, net.head(net.features(rows), at))


def test_probabilities_of_all_rows_sum_to_one():
    """No value has more than it is given, whatever the others are. The control is a normal density
    of the same rows, which knows no steps."""
    x = np.minimum(visits(), 5.0)  # 1, 3, 5
    every = np.array(list(itertools.product([1.0, 3.0, 5.0], repeat=3)))[:, None]
    theta = jnp.asarray(np.tile(RNG(0).standard_normal((1, 2)), (len(every), 1)), jnp.float32)
    net = made(x, 2)
    rows = jnp.asarray(every, jnp.float32)
    total = np.exp(np.asarray(net.head(net.features(rows), theta))).sum()
    assert total == pytest.approx(1.0, rel=1e-4)
    normal = shaken(networks.resolve("mixture-set-10k", (4, 3), 2, "iid", KEY))
    assert np.exp(np.asarray(normal.head(normal.features(rows), theta))).sum() != pytest.approx(
        1.0, rel=0.1
    )


def test_choices_and_times_together_integrate_to_one():
    net = made(race(), 2)
    z = np.linspace(-12, 12, 4001)
    times = net.lean[0] * np.sinh(z * net.sd[0] + net.mean[0])
    assert net.lean[0] > 0  # times lean on zero, and are taken by their logarithm
    total = 0.0
    for choice in (0.0, 1.0):
        rows = np.stack([times, np.full_like(times, choice)], axis=1)[:, None]
        theta = jnp.asarray(np.tile([[0.3, -0.5]], (len(rows), 1)), jnp.float32)
        found = net.head(net.features(jnp.asarray(rows, jnp.float32)), theta)
        total += np.exp(np.asarray(found, float)).sum() * (z[1] - z[0]) / np.sqrt(2 * np.pi)
    assert total == pytest.approx(1.0, rel=2e-3)


def test_a_censored_time_and_all_others_integrate_to_one():
    """Over both answers, the end of the study and every other time. Without the end, the control,
    something is missing."""
    x = censored()[..., :2]
    net = made(x, 2)
    np.testing.assert_array_equal(net.values[0, :2], [3.0, np.inf])
    z = np.linspace(-12, 12, 4001)
    plain = z * net.sd[0] + net.mean[0]
    times = net.lean[0] * np.sinh(plain) if net.lean[0] > 0 else plain
    at_the_end, before = 0.0, 0.0
    for ended in (0.0, 1.0):
        for which in ("end", "before"):
            t = np.array([3.0]) if which == "end" else times
            rows = np.stack([t, np.full_like(t, ended)], axis=1)[:, None]
            theta = jnp.asarray(np.tile([[0.3, -0.5]], (len(rows), 1)), jnp.float32)
            found = net.head(net.features(jnp.asarray(rows, jnp.float32)), theta)
            mass = np.exp(np.asarray(found, float)).sum()
            if which == "end":
                at_the_end += mass
            else:
                before += mass * (z[1] - z[0]) / np.sqrt(2 * np.pi)
    assert at_the_end + before == pytest.approx(1.0, rel=2e-3)
    assert before < 0.95


@pytest.mark.parametrize("kind", [np.float32, float])
def test_values_that_come_again_among_continuous_ones_are_seen(kind):
    x = censored(b=400).astype(kind)
    assert has_discrete_rows(x)
    net = networks.resolve(NAME, (5, 3), 1, "iid", KEY).scaled_to(x)
    assert net.values[:, :2].tolist() == [[3.0, np.inf], [0.0, 1.0], [0.0, np.inf]]
    assert net.order.tolist() == [1, 0, 2]  # what may be any number comes after the answers
    times = x[..., 0][x[..., 0] < 3]
    drawn_in = np.arcsinh(times / net.lean[0]) if net.lean[0] > 0 else times
    assert net.mean[0] == pytest.approx(drawn_in.mean(), rel=1e-4)  # of those before the end
    assert has_discrete_rows(censored(b=20).astype(kind))  # few rows: once is not again
    many = RNG(0).standard_normal((400, 5, 1))
    assert not has_discrete_rows(many)
    many[:, 0, 0] = np.arange(400) % 10  # ten values, more than are taken for such
    assert not has_discrete_rows(many.astype(kind))


def test_other_numbers_are_neither_new_nor_far_unless_they_are():
    net = networks.resolve(NAME, (5, 3), 1, "iid", KEY).scaled_to(censored())
    row = np.array([[3.0, 0.0, 0.0], [1.234, 1.0, 0.77]])
    assert not net.unseen(row).any()
    assert not net.far(row, 10.0, 10.0).any()
    strange = np.array([[1e12, 2.0, 0.0]])
    assert net.unseen(strange).tolist() == [[False, True, False]]
    assert net.far(strange, 10.0, 10.0).tolist() == [[True, False, False]]


def test_it_begins_at_the_shares_of_the_values():
    x = visits(b=2000)
    net = networks.resolve("conditional-set-10k", x.shape[1:], 2, "iid", KEY).scaled_to(x)
    theta = jnp.zeros((1, 2), jnp.float32)
    row = jnp.asarray(x[:1, :1], jnp.float32)
    found = float(net.head(net.features(row), theta)[0])
    shares = [np.mean(x[..., j] == x[0, 0, j]) for j in range(3)]
    assert found == pytest.approx(np.log(shares).sum(), abs=0.3)


def test_rows_may_be_missing_and_of_any_number():
    net = made(race(), 2)
    x = race(b=3, seed=1)
    theta = jnp.asarray(RNG(0).standard_normal((3, 2)), jnp.float32)
    h = np.asarray(net.head(net.features(jnp.asarray(x, jnp.float32)), theta))
    more = np.concatenate([x[:, :2], np.full((3, 4, 2), np.nan), x[:, 2:]], axis=1)
    again = net.head(net.features(jnp.asarray(more, jnp.float32)), theta)
    np.testing.assert_allclose(again, h, rtol=1e-5)
    parts = [
        net.head(net.features(jnp.asarray(x[:, i : i + 1], jnp.float32)), theta) for i in (0, 1)
    ]
    both = net.head(net.features(jnp.asarray(x[:, :2], jnp.float32)), theta)
    np.testing.assert_allclose(both, parts[0] + parts[1], rtol=1e-5, atol=1e-5)
    some = jnp.asarray(x, jnp.float32).at[0, 1, 1].set(jnp.nan)
    assert np.isnan(net.head(net.features(some), theta)[0])  # in part: not unnoticed


def test_many_pairs_go_through_in_parts_to_the_same_numbers():
    x = race(b=300)
    net = made(x, 2)
    theta = jnp.asarray(RNG(1).standard_normal((300, 2)), jnp.float32)
    features = net.features(jnp.asarray(x, jnp.float32))
    whole = net.head(features, theta)
    parts = [net.head(features[i : i + 50], theta[i : i + 50]) for i in range(0, 300, 50)]
    np.testing.assert_allclose(whole, np.concatenate(parts), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32, float])
def test_rows_with_few_values_are_seen_in_any_type(kind):
    assert has_discrete_rows(visits().astype(kind))
    assert has_discrete_rows(race())
    assert not has_discrete_rows(visits()[:, 0].astype(kind))  # no rows
    assert not has_discrete_rows(RNG(0).standard_normal((50, 4, 2)))
    assert not has_discrete_rows(RNG(0).integers(0, 500, (500, 4, 2)).astype(kind))
    holes = visits()
    holes[:5, 1] = np.nan
    assert has_discrete_rows(holes)
    holes[:5, 2, 0] = np.nan
    assert not has_discrete_rows(holes)


@pytest.mark.parametrize(
    ("structure", "holes", "discrete", "kind"),
    [
        ("iid", "none", True, "ConditionalSetNetwork"),
        ("iid", "rows", True, "ConditionalSetNetwork"),
        ("iid", "entries", True, "MaskedSetNetwork"),
        ("iid", "none", False, "ResidualSetNetwork"),
        (None, "none", True, "ResidualNetwork"),
    ],
)
def test_auto_takes_it_for_rows_with_few_values(structure, holes, discrete, kind):
    found = networks.resolve("auto", (4, 3), 2, structure, KEY, None, False, holes, discrete)
    assert type(found).__name__ == kind
    long = networks.resolve("auto", (4, 17), 2, "iid", KEY, None, False, "none", True)
    assert type(long).__name__ == "ResidualSetNetwork"


def test_data_that_are_neither_are_refused():
    net = networks.resolve(NAME, (4, 2), 1, "iid", KEY)
    with pytest.raises(DomainError, match="at most 64 different values"):
        net.scaled_to(RNG(0).integers(0, 500, (500, 4, 2)))
    with pytest.raises(ShapeError, match="n rows"):
        networks.resolve(NAME, (4,), 1, "iid", KEY)


def occupancy(n, seed=0, kind=np.uint8):
    """Twenty sites seen three times, d = 2: occupied with psi, then seen with pi. A site that
    was seen once is occupied for all visits."""
    rng = RNG(seed)
    space = ks.Space([ks.Parameter(k, -1.5, 1.5, "identity") for k in ("occupied", "seen")])
    theta = space.uniform(n, rng)
    psi, pi = (1 / (1 + np.exp(-theta)))[:, :, None].transpose(1, 0, 2)
    there = rng.random((n, 20)) < psi
    x = (rng.random((n, 20, 3)) < pi[..., None]) & there[..., None]
    y = x.sum(axis=2)
    seen = pi**y * (1 - pi) ** (3 - y)
    whole = psi * seen + (1 - psi) * (y == 0)
    of_psi = psi * (1 - psi) * (seen - (y == 0)) / whole
    of_pi = psi * seen * (y - 3 * pi) / whole
    score = np.stack([of_psi.sum(axis=1), of_pi.sum(axis=1)], axis=1)
    return ks.dataset(theta, x.astype(kind), space=space, score=score, structure="iid")


def frailty(n, seed=0):
    """Times of two patients in each of ten hospitals until the end of the study at 1.5, whose rate
    exp(theta) has a random factor of mean 1 and variance 1/2 for each hospital."""
    rng = RNG(seed)
    space = ks.Space([ks.Parameter("rate", -1, 1, "log")])
    theta = space.uniform(n, rng)
    rate, a = np.exp(theta), 2.0
    factor = rng.gamma(a, 1 / a, (n, 10, 1))
    t = rng.exponential(1.0, (n, 10, 2)) / (factor * rate[:, :, None])
    x = np.concatenate([np.minimum(t, 1.5), t < 1.5], axis=2)
    deaths, waited = x[..., 2:].sum(axis=2), x[..., :2].sum(axis=2)
    score = deaths - (a + deaths) * rate * waited / (a + rate * waited)
    whole = score.sum(axis=1, keepdims=True)
    return ks.dataset(theta, x, space=space, score=whole, structure="iid")


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "n"), [(occupancy, 400), (frailty, 500)])
def test_rows_are_learned_and_come_back_from_disk(rows, n, tmp_path):
    """R² of scores above .95 on fresh data; shuffled rows, the control, below 0."""
    config = ks.TrainConfig(min_epochs=60, max_epochs=60)
    trained = ks.train(rows(n), config=config, progress=False)
    assert type(trained.network.network) is ConditionalSetNetwork
    fresh = rows(300, seed=1)
    theta, x, exact = (np.asarray(a) for a in (fresh.theta, fresh.x, fresh.score))
    got = trained.score(theta, x)

    def r2(found):
        return 1 - np.mean((found - exact) ** 2, axis=0) / np.mean(exact**2, axis=0)

    assert r2(got).min() > 0.95
    assert r2(np.roll(got, 1, axis=0)).max() < 0
    trained.save(tmp_path / "saved")
    again = ks.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.relative(theta, x), trained.relative(theta, x))
    # A group of data sets: the sum over them.
    whole = np.ravel(trained.given(x[:5])(theta[:3]))
    each = [trained.relative(np.tile(t, (5, 1)), x[:5]).sum() for t in theta[:3]]
    np.testing.assert_allclose(np.diff(whole), np.diff(each), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_values_that_no_simulation_had_are_told():
    config = ks.TrainConfig(min_epochs=1, max_epochs=1)
    data = occupancy(300)
    trained = ks.train(data, network=NAME, config=config, progress=False)
    x = np.asarray(data.x[:3])
    trained.given(x)  # no warning
    with pytest.warns(
        KeepscoreWarning, match="the first is 2 in entry ., where simulations had 0, 1"
    ):
        trained.given(x + np.uint8(1))


def test_continuous_entries_in_any_unit_and_far_from_training():
    """No word of pressures in Pa, however large; one of the same in another unit."""
    x = race(b=300)
    x[..., 0] = 1e8 * (3 + np.log(x[..., 0]))
    space = ks.Space([ks.Parameter("a", -1, 1, "identity")])
    data = ks.dataset(space.uniform(300, RNG(0)), x, space=space, structure="iid")
    config = ks.TrainConfig(min_epochs=1, max_epochs=1)
    trained = ks.train(data, network=NAME, loss=ks.BCE(), config=config, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", KeepscoreWarning)
        trained.given(x[:3])
    with pytest.warns(KeepscoreWarning, match="standard deviations") as caught:
        trained.given(x[:3] * [1e8, 1.0])
    assert caught[0].filename == __file__


def test_few_rows_of_numbers_that_never_repeat_are_continuous():
    assert has_discrete_rows(race(b=8))
    net = networks.resolve(NAME, (5, 2), 1, "iid", KEY).scaled_to(race(b=8))
    assert np.isnan(net.values).all(axis=1).tolist() == [True, False]
