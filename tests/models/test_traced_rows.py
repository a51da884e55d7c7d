"""Exact likelihoods written in JAX inside the sampler: the same numbers, and no call back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import keepscore as ks
from keepscore.inference import nuts
from keepscore.models.traced_rows import traced_rows

OFFSET = 1e9  # float32 holds nothing of what is added to it


def normal(d=1, offset=0.0, log_prob=None, **more):
    """x ~ N(theta, I) in d dimensions; the posterior of a group is N(mean, I / n)."""
    space = ks.Space([ks.Parameter(f"m{k}", -5.0, 5.0, transform="identity") for k in range(d)])

    def of_pairs(theta, x):
        return offset - 0.5 * jnp.sum((x - theta) ** 2, axis=1)

    def simulate(theta, rng):
        return theta + rng.standard_normal(theta.shape)

    return ks.models.from_functions(
        space, (d,), simulate=simulate, log_prob=log_prob or of_pairs, **more
    )


def data(model, n=8, seed=0):
    theta = np.full((n, model.space.d), 0.5)
    return model.simulate(theta, np.random.default_rng(seed))


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("groups", [None, 2])
def test_the_traced_likelihood_is_the_likelihood(d, groups):
    model = normal(d, OFFSET)
    xs = data(model, 8)
    like = model.given(xs if groups is None else xs.reshape(groups, -1, d))
    theta = np.linspace(-1, 1, d)
    with jax.enable_x64(True):
        for group in range(like.group_count):
            value, slope = jax.value_and_grad(like.traceable)(jnp.asarray(theta), group)
            wanted, gradient = like.pairs_gradient(theta[None], np.array([group]))
            np.testing.assert_allclose(value - OFFSET, wanted[0] - OFFSET, atol=1e-4)
            np.testing.assert_allclose(slope, gradient[0], rtol=1e-6)
    part = like.select([like.group_count - 1])
    with jax.enable_x64(True):
        assert float(part.traceable(jnp.asarray(theta), 0)) == pytest.approx(float(value), abs=1e-3)


def test_what_is_not_finite_is_outside():
    """A support: NaN or infinite values and slopes are minus infinity with slope zero."""

    def log_prob(theta, x):
        return jnp.log(theta[:, 0]) + 0 * x[:, 0]

    like = normal(1, log_prob=log_prob).given(np.zeros((2, 1)))
    with jax.enable_x64(True):
        for theta in (-1.0, 0.0):
            value, slope = jax.value_and_grad(like.traceable)(jnp.array([theta]), 0)
            assert value == -jnp.inf
            assert slope == 0
        value, slope = jax.value_and_grad(like.traceable)(jnp.array([2.0]), 0)
    assert float(value) == pytest.approx(2 * np.log(2))
    assert float(slope[0]) == pytest.approx(1.0)


@pytest.mark.slow
def test_an_exact_posterior_is_not_called_back(monkeypatch):
    """Mean and variance of 4 x 500 draws, within four standard errors of effective 500 (false
    alarm below one in a thousand); and twice with one compiled program."""

    def called(*arguments):
        raise AssertionError("called back from JAX")

    monkeypatch.setattr(nuts, "_call_back", called)
    model = normal(1, OFFSET)
    nuts._programs.cache_clear()
    for seed in (0, 1):
        xs = data(model, 8, seed)
        found = ks.posterior(model.given(xs), draws=500, seed=seed, method="nuts")
        draws = np.asarray(found.posterior["m0"]).ravel()
        assert abs(draws.mean() - xs.mean()) < 4 / np.sqrt(8 * 500)
        assert abs(draws.var() * 8 - 1) < 4 * np.sqrt(2 / 500)
    assert nuts._programs.cache_info().misses == 1


def _cholesky(theta, x):
    scale = jnp.linalg.cholesky(jnp.eye(2) * jnp.exp(theta[:, :1, None]))
    return -jnp.sum((x[:, 0] / scale[:, 0, 0]) ** 2) - jnp.log(scale[:, 0, 0])


def _solve(theta, x):
    return -jnp.linalg.solve(
        jnp.eye(2) + theta[:, :1, None] ** 2, x[:, :1, None] + jnp.ones(2)[None, :, None]
    )[:, 0, 0]


def _fft(theta, x):
    return -jnp.abs(jnp.fft.fft(theta + x)).sum(axis=1)


def _inside_a_loop(theta, x):
    return jax.lax.map(
        lambda row: _cholesky(row[None, :1], row[None, 1:])[0], jnp.hstack([theta, x])
    )


FACTOR = 1.0


def _plain(theta, x):
    return -FACTOR * (theta[:, 0] ** 2) + x[:, 0]


def test_a_changed_global_is_another_likelihood(monkeypatch):
    """What was compiled with its old value must not answer."""
    groups = np.ones((1, 3, 1))
    one = traced_rows(_plain, groups, 1).function
    assert traced_rows(_plain, groups, 1).function == one
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert traced_rows(_plain, groups, 1).function != one


def _numpy(theta, x):
    return -(np.asarray(theta)[:, 0] ** 2)


@pytest.mark.parametrize("log_prob", [_cholesky, _solve, _fft, _inside_a_loop, _numpy])
def test_factorisations_and_numpy_stay_outside(log_prob):
    groups = np.ones((1, 3, 1))
    assert traced_rows(log_prob, groups, 1) is None
    plain = traced_rows(_plain, groups, 1)
    assert plain is not None
    assert plain.double


def test_missing_values_and_simulators_alone_are_not_traced():
    assert normal(1).given(np.zeros((2, 1))).traceable is not None
    assert normal(1, missing=True).given(np.zeros((2, 1))).traceable is None
