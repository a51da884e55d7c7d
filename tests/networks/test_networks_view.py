"""Rows on a plane: parts of a whole, totals beside their parts. Networks are shown coordinates in
which they have a density, and say when data are not like those they were made for."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln
from training_helpers import weights_equal

import keepscore as ks
from keepscore import networks
from keepscore.errors import FormatError, KeepscoreWarning
from keepscore.networks.catalogue import describe, rebuild
from keepscore.networks.view import ALL, view_of

RNG = np.random.default_rng(11)
PARTS = RNG.dirichlet([2.0, 3.0, 1.0], (200, 5))


def test_parts_are_shown_as_log_ratios_whatever_the_units():
    view = view_of(PARTS)
    assert view.whole == pytest.approx(1.0)
    assert view.shape(PARTS.shape[1:]) == (5, 2)
    seen = view.shown(PARTS)
    np.testing.assert_allclose(seen, np.log(PARTS[..., :2] / PARTS[..., 2:]), rtol=1e-12)
    np.testing.assert_allclose(view.shown(100 * PARTS), seen, rtol=1e-9)
    np.testing.assert_allclose(view.shown(jnp.asarray(PARTS)), seen, atol=1e-5)
    assert np.isfinite(view.shown(np.array([[1.0, 0.0, 0.0]]))).all()


def test_what_follows_is_left_out_and_all_else_is_shown_as_it_is():
    a, b = RNG.standard_normal((2, 300))
    view = view_of(np.c_[a, a + 1, b, a - b])
    assert view.kept == (0, 2)
    assert view.shape((4,)) == (2,)
    np.testing.assert_array_equal(view.shown(np.arange(8.0).reshape(2, 4)), [[0, 2], [4, 6]])
    free = RNG.standard_normal((300, 4))
    assert view_of(free) is ALL
    assert ALL.shown(free) is free


def test_where_single_entries_are_missing_nothing_is_left_out():
    """A total may be there where a part of it is not."""
    a, b = RNG.standard_normal((2, 300))
    rows = np.c_[a, b, a + b]
    rows[::5] = np.nan
    assert view_of(rows).kept == (0, 1)
    rows[1, 0] = np.nan
    assert view_of(rows) is ALL


def trained(x, theta, structure="iid", network="mixture-set-3k", **settings):
    space = ks.Space([ks.Parameter("t", -1, 1, transform="identity")])
    data = ks.dataset(theta, x, space=space, structure=structure)
    config = ks.TrainConfig(**{"min_epochs": 1, "max_epochs": 2, **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepscoreWarning)
        return ks.train(data, network=network, config=config, progress=False)


THETA = RNG.uniform(-1, 1, (200, 1))


@pytest.fixture(scope="module")
def of_parts():
    return trained(PARTS, THETA)


@pytest.mark.parametrize("structure", ["iid", "series", None])
@pytest.mark.parametrize("members", [1, 2])
def test_saved_and_loaded_it_is_the_same(structure, members, tmp_path):
    if structure is None:
        x, name = PARTS[:, 0], "residual-5k"
    else:
        x, name = PARTS, {"iid": "mixture-set-3k", "series": "series-3k"}[structure]
    surrogate = trained(x, THETA, structure, name, members=members)
    assert surrogate.network.view.whole == pytest.approx(1.0)
    surrogate.save(tmp_path / "s")
    again = ks.load(tmp_path / "s")
    assert weights_equal(surrogate, again)
    assert again.network.view == surrogate.network.view
    theta = np.array([[0.3]])
    np.testing.assert_array_equal(again.relative(theta, x[:1]), surrogate.relative(theta, x[:1]))


def test_who_names_or_brings_a_network_is_shown_what_it_was_built_for():
    """Named ones of numbers see ratios; one that is brought, or fed x as it is, sees x."""
    network = networks.resolve("residual-5k", (3,), 1, None, jax.random.key(0))
    assert trained(PARTS[:, 0], THETA, None, network).network.view is ALL
    assert trained(PARTS[:, 0], THETA, None, "mlp-1k").network.view != ALL
    raw = trained(PARTS[:, 0], THETA, None, "mlp-1k", scale_inputs=False)
    assert not isinstance(raw.network, networks.Scaled)


@pytest.mark.parametrize("kind", [np.float64, np.float32, list])
def test_data_that_are_no_such_parts_are_told(of_parts, kind):
    def ask(row):
        given = np.tile(row, (1, 5, 1))
        given = given.tolist() if kind is list else given.astype(kind)
        return of_parts.given(given)(np.zeros((1, 1)))

    with warnings.catch_warnings():
        warnings.simplefilter("error", KeepscoreWarning)
        own = ask([0.2, 0.5, 0.3])
        ask([0.2003, 0.5, 0.3])  # rounded to percents
    with pytest.warns(KeepscoreWarning, match=r"added up to 1: the first adds up to 100"):
        np.testing.assert_allclose(ask([20, 50, 30]), own, rtol=1e-5)
    with pytest.warns(KeepscoreWarning, match="its least part is 0"):
        assert np.isfinite(ask([0.5, 0.5, 0.0])).all()


@pytest.mark.parametrize(
    "changed",
    [
        {"whole": 0.0},
        {"whole": float("nan")},
        {"whole": "1"},
        {"whole": True},
        {"whole": 1.0, "kept": [1]},
        {"rule": [[1.0, 0.0, 0.0, 0.0]]},
        {"family": "markov"},
        {"scaled": [3]},
    ],
)
def test_a_view_that_cannot_be_is_refused(of_parts, changed):
    found = json.loads(json.dumps(describe(of_parts.network, (5, 3), 1)))
    rebuild(found)
    with pytest.raises(FormatError):
        rebuild({**found, **changed})


@pytest.fixture(scope="module")
def of_totals():
    """Of rows with a total in the middle, and with the first entry in other units at the end."""
    a, b = RNG.standard_normal((2, 200, 5)) + THETA
    return trained(np.stack([a, a + b, b, 32 + 1.8 * a], axis=2), THETA)


def test_it_is_told_where_what_followed_does_not(of_totals, tmp_path):
    of_totals.save(tmp_path / "s")
    row = np.array([0.2, 0.5, 0.3, 32.36])
    for surrogate in (of_totals, ks.load(tmp_path / "s")):
        assert surrogate.network.view.kept == (0, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error", KeepscoreWarning)
            own = surrogate.given(np.tile(row, (1, 5, 1)))(np.zeros((1, 1)))
        for j, value in ((2, 0.31), (3, 0.2)):
            off = row.copy()
            off[j] = value
            given = np.stack([off, *[row] * 4])[None]
            with pytest.warns(KeepscoreWarning, match=r"^1 row.*entries \[2, 3\] of a row"):
                told = surrogate.given(given)
            np.testing.assert_array_equal(told(np.zeros((1, 1))), own)


RULE = [[1.0, 0.0, 0.0, 0.0]] * 2


@pytest.mark.parametrize(
    "changed",
    [
        {"kept": [1, 0]},
        {"kept": []},
        {"kept": [1, 1]},
        {"kept": [-1, 0]},
        {"kept": [1, 4]},
        {"kept": [0, 1.5]},
        {"kept": [0, True]},
        {"kept": 2},
        {"kept": [0, 1, 2, 3]},
        {"kept": [0]},
        {"rule": RULE[:1]},
        {"rule": None},
        {"rule": [[1.0, 0.0, 0.0]] * 2},
        {"rule": [RULE[0], [1.0, float("nan"), 0.0, 0.0]]},
        {"rule": [RULE[0], [1.0, "0", 0.0, 0.0]]},
    ],
)
def test_entries_that_cannot_be_shown_are_refused(of_totals, changed):
    found = json.loads(json.dumps(describe(of_totals.network, (5, 4), 1)))
    rebuild(found)
    with pytest.raises(FormatError):
        rebuild({**found, **changed})


def dirichlet(rows=20):
    """Dirichlet rows with parameters exp(theta): data, exact log-likelihood."""
    space = ks.Space([ks.Parameter(f"a{k}", -0.5, 2, transform="identity") for k in range(3)])

    def simulate(theta, rng):
        g = rng.gamma(np.exp(theta)[:, None, :], size=(len(theta), rows, 3))
        return g / g.sum(axis=2, keepdims=True)

    def log_prob(theta, x):
        a = np.exp(theta)
        norm = gammaln(a.sum(axis=1)) - gammaln(a).sum(axis=1)
        return ((a - 1)[:, None] * np.log(x)).sum(axis=(1, 2)) + rows * norm

    def score(theta, x):
        a = np.exp(theta)
        slope = rows * (digamma(a.sum(axis=1))[:, None] - digamma(a))
        return a * (np.log(x).sum(axis=1) + slope)

    functions = {"simulate": simulate, "log_prob": log_prob, "score": score}
    return ks.models.from_functions(space, (rows, 3), **functions, declares=["iid"])


def error_of_statistic(surrogate, model, groups=80):
    """Mean squared error of 2 (l_max - l(theta)) at the own theta, against the exact likelihood."""
    rng = np.random.default_rng(2)
    theta = rng.uniform(*model.space.box("base"), (groups, model.space.d))
    x = model.simulate(theta, rng)[:, None]
    ours, exact = (ks.lrt(like.given(x), theta).statistic for like in (surrogate, model))
    return float(np.mean((ours - exact) ** 2))


def test_shares_of_a_whole_have_a_likelihood_that_is_nearly_exact():
    """1,500 simulations without scores. The mean of 80 squared errors is .4 to .9 over four seeds;
    a density in x itself, the control, has 5 and more: 2.5 errs on neither side."""
    model = dirichlet()
    data = ks.simulate(model, 1500, seed=0, scores=False, jobs=1)
    surrogate = ks.train(data, progress=False)
    assert type(surrogate.network.network).__name__ == "MixtureSetNetwork"
    assert error_of_statistic(surrogate, model) < 2.5
