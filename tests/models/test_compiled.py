"""Functions of users are compiled, once, and never with yesterday's constants."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore.models.compiled import LARGE, MOST, SIZES, Compiled, operations, wants_compiling

SPACE = ks.Space([ks.Parameter("a", -0.9, 0.9, "identity")])
SCALE = 1.0
traced = []


def looping(theta, x):
    """A stationary autoregression of one lag, step by step."""
    traced.append(1)

    def one(a, row):
        def step(before, now):
            return now, -0.5 * ((now - a * before) / SCALE) ** 2

        return jax.lax.scan(step, 0.0, row)[1].sum()

    return jax.vmap(one)(theta[:, 0], x)


def plain(theta, x):
    before = jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], axis=1)
    return -0.5 * (((x - theta * before) / SCALE) ** 2).sum(axis=1)


def simulate(theta, rng):
    x = np.zeros((len(theta), 6))
    for t in range(6):
        x[:, t] = theta[:, 0] * x[:, t - 1] * (t > 0) + rng.standard_normal(len(theta))
    return x


def model_of(log_prob):
    return ks.models.from_functions(SPACE, (6,), simulate=simulate, log_prob=log_prob, name="ar")


def pairs(n, seed=0):
    rng = np.random.default_rng(seed)
    theta = SPACE.uniform(n, rng)
    return theta, simulate(theta, rng)


def by_numpy(theta, x):
    """The same, without JAX."""
    before = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1)
    rest = x - theta * before
    return -0.5 * (rest**2).sum(axis=1), (rest * before).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13, MOST + 3])
@pytest.mark.parametrize("written", [looping, plain])
def test_values_and_scores_are_those_of_numpy(written, n):
    theta, x = pairs(n)
    ours, (values, slopes) = model_of(written), by_numpy(theta, x)
    np.testing.assert_allclose(ours.log_prob(theta, x), values, rtol=1e-12)
    np.testing.assert_allclose(ours.score(theta, x), slopes, rtol=1e-10, atol=1e-12)


def test_numbers_of_rows_share_a_compilation():
    """From 5 to 16 rows are one; called as it is, each call would trace again."""
    model = model_of(looping)
    model.log_prob(*pairs(8))
    before = len(traced)
    for n in (5, 6, 7, 8, 16):
        model.log_prob(*pairs(n, seed=n))
    assert len(traced) == before


@pytest.mark.parametrize("written", [looping, plain])
def test_a_constant_that_changes_is_seen(monkeypatch, written):
    model, (theta, x) = model_of(written), pairs(4)
    here, slope = model.log_prob(theta, x), model.score(theta, x)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    np.testing.assert_allclose(model.log_prob(theta, x), here / 4)
    np.testing.assert_allclose(model.score(theta, x), slope / 4)


def test_what_is_compiled_and_what_is_left_alone():
    theta, x = pairs(1)
    held = jnp.ones(LARGE // 4)

    def factor(theta, x):
        return looping(theta, x) + jnp.linalg.cholesky(jnp.eye(3) * (2 + theta[0, 0]))[0, 0]

    def inside(theta, x):
        return jax.lax.scan(
            lambda c, _: (c + jnp.fft.fft(x)[:, 0].real, None), theta[:, 0], None, 2
        )[0]

    def large(theta, x):
        return plain(theta, x) + held.sum()

    def large_loop(theta, x):
        return looping(theta, x) + held.sum()

    for function in (looping, plain, large_loop):
        assert wants_compiling(operations(function, theta, x))
    assert not wants_compiling(operations(large, theta, x))
    assert not wants_compiling(operations(factor, theta, x))
    assert not wants_compiling(operations(inside, theta, x))
    assert operations(lambda t, x: float(t[0, 0]), theta, x) is None
    assert not wants_compiling(None)


def test_it_goes_to_other_processes_without_what_was_compiled():
    one, (theta, x) = Compiled(looping, looping), pairs(3)
    here = np.asarray(one(theta, x))
    there = pickle.loads(pickle.dumps(one))  # noqa: S301
    assert there.kept == {}
    np.testing.assert_array_equal(there(theta, x), here)


def test_the_models_description_does_not_change():
    """What was simulated before functions were compiled goes on: names and fingerprints are those
    of the user's own function."""
    told = model_of(looping).settings()
    assert told["functions"]["log_prob"].endswith("looping")
    assert told["functions"]["score"] == f"AutodiffScore({told['functions']['log_prob']})"
    assert told["code"]["log_prob"] == told["code"]["score"]


def test_functions_of_jax_are_asked_for_few_numbers_of_rows():
    """JAX compiles every operation for every number of rows: a search of 60 numbers took minutes.
    A function of NumPy is asked for what there is."""
    asked = {"jax": set(), "numpy": set()}

    def of_jax(theta, x):
        asked["jax"].add(len(theta))
        return plain(theta, x)

    def of_numpy(theta, x):
        asked["numpy"].add(len(theta))
        return np.asarray(-0.5 * ((np.asarray(x) - np.asarray(theta)) ** 2).sum(axis=1))

    oracle = model_of(plain)
    for name, function in (("jax", of_jax), ("numpy", of_numpy)):
        one = Compiled(function, function)
        for n in (1, 3, 7, 60, 61, 62, 255, 257, 300, 511, 2 * MOST + 5):
            theta, x = pairs(n)
            with jax.enable_x64(True):
                found = one(theta, x)
            assert found.shape == (n,)
            if name == "jax":
                np.testing.assert_allclose(found, oracle.log_prob(theta, x), rtol=1e-12)
    assert asked["jax"] <= set(SIZES)
    assert {3, 61, 300} <= asked["numpy"]
