"""NUTS against grid integration, for likelihoods traced by JAX and called from it; warnings."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from likelihoods import FastToy, toy_groups

import keepscore as ks
from keepscore.errors import DomainError, DtypeError, KeepscoreWarning
from keepscore.inference import draws as draws_file
from keepscore.inference.draws import as_arviz, chain_quality, effective_sizes
from keepscore.inference.maximise import maximise
from keepscore.inference.nuts import LARGEST_DEPTH, Settings, _programs, sample
from keepscore.inference.posterior import _Asked, _Sampled, _to_arviz, _values
from keepscore.likelihood import Traced


def by_grid(like, log_prior=None, side=400):
    """Posterior mean and sd of the working parameters on a fine grid of the box."""
    low, high = like.space.box()
    axes = [low[k] + (high[k] - low[k]) * (np.arange(side) + 0.5) / side for k in range(2)]
    grid = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    value = like(grid) + (0.0 if log_prior is None else log_prior(grid))
    weight = np.exp(value - value.max())
    weight /= weight.sum()
    mean = weight @ grid
    return mean, np.sqrt(weight @ (grid - mean) ** 2)


def check_against_grid(result, like, log_prior=None):
    mean, sd = by_grid(like, log_prior)
    for k, name in enumerate(like.space.working_names):
        draws = np.asarray(result.posterior[name])
        ess = result.posterior.attrs["smallest_ess"]
        # 5 Monte Carlo standard errors: false alarm 6e-7; with 1000 effective draws sees 0.16 sd.
        assert abs(draws.mean() - mean[k]) < 5 * sd[k] / np.sqrt(ess)
        assert abs(draws.std() / sd[k] - 1) < 5 / np.sqrt(ess)


@pytest.mark.slow
def test_agrees_with_grid_integration_through_callbacks():
    _, _, x = toy_groups(1, n=3, seed=31, theta=[0.8, 0.3])  # wide, and cut by the box
    like = FastToy().given(x[0])
    result = ks.posterior(like, seed=1, draws=600, warmup=250)
    check_against_grid(result, like)
    assert set(result.posterior.data_vars) == {"mean", "sd", "log sd"}
    np.testing.assert_allclose(result.posterior["sd"], np.exp(result.posterior["log sd"]))
    stored = np.asarray(result.log_likelihood["group"])
    theta = np.stack([result.posterior["mean"], result.posterior["log sd"]], axis=-1)
    np.testing.assert_allclose(stored[1, :5], like(theta[1, :5]), rtol=1e-9)
    low, high = like.space.box()
    assert ((theta >= low) & (theta <= high)).all()
    assert result.posterior.sizes == {"chain": 4, "draw": 600}
    assert "diverging" in result.sample_stats


def test_traced_likelihood_with_a_prior():
    import jax.numpy as jnp

    _, _, x = toy_groups(1, n=3, seed=32, theta=[0.1, 0.0])
    plain = FastToy().given(x[0])
    data = np.asarray(x[0], dtype=np.float32)

    def traced(theta, group):
        z = (data - theta[0]) * jnp.exp(-theta[1])
        return -0.5 * (z**2).sum() - data.size * theta[1]

    like = replace(plain, traceable=Traced(lambda data, theta, group: traced(theta, group), ()))
    result = ks.posterior(
        like, prior=lambda t: -0.5 * ((t[0] + 0.2) / 0.15) ** 2, seed=2, draws=600, warmup=250
    )
    check_against_grid(result, plain, lambda t: -0.5 * ((t[:, 0] + 0.2) / 0.15) ** 2)
    assert result.posterior.attrs["prior"] == "given"
    with pytest.raises(AssertionError):  # negative control: another prior's grid disagrees
        check_against_grid(result, plain)


def handed_over(like, theta, stats):
    """What `posterior` makes of such draws of its sampler."""
    asked = _Asked(None, 0, len(theta), Settings(theta.shape[1], 20), "base", "nuts")
    value = _values(like, theta)
    return _to_arviz(like, _Sampled(theta, stats, 1), theta, stats, value, asked, like.basis, {})


def test_poor_draws_are_shouted_about():
    toy, _, x = toy_groups(1, seed=33, theta=[0.1, 0.0])
    like, rng = toy.given(x[0]), np.random.default_rng(0)
    fine = 0.1 * rng.standard_normal((4, 500, 2))
    calm = {
        "diverging": np.zeros((4, 500), dtype=bool),
        "tree_depth": np.full((4, 500), 2),
    }
    quiet = handed_over(like, fine, dict(calm))  # a warning here would be an error
    assert quiet.posterior.sizes["draw"] == 500
    apart = fine + np.array([0.0, 0.0, 0.0, 0.3])[:, None, None]
    with pytest.warns(KeepscoreWarning, match="DO NOT TRUST.*R-hat"):
        handed_over(like, apart, dict(calm))
    with pytest.warns(KeepscoreWarning, match="^These draws are few: .*[0-9]{3}, so .* [678]% of"):
        handed_over(like, fine[:, :60], {name: a[:, :60] for name, a in calm.items()})
    with pytest.warns(KeepscoreWarning, match="DO NOT TRUST.*R-hat.*effective sample size"):
        handed_over(like, np.repeat(apart[:, ::10], 10, axis=1), dict(calm))
    with pytest.warns(KeepscoreWarning, match="2000 transition"):
        handed_over(like, fine, calm | {"diverging": ~calm["diverging"]})
    with pytest.warns(KeepscoreWarning, match="100% of the trajectories were cut"):
        handed_over(like, fine, calm | {"tree_depth": np.full((4, 500), LARGEST_DEPTH)})


def test_both_generations_of_arviz_are_asked_in_their_own_way(monkeypatch):
    """0.x: groups as keywords. 1.x: one mapping, and still a name InferenceData."""
    groups = {"posterior": {"a": np.zeros((2, 5))}, "sample_stats": {"b": np.ones((2, 5))}}

    def old(posterior=None, *, sample_stats=None, **kwargs):
        return {"posterior": posterior, "sample_stats": sample_stats}

    def new(data, *, name=None, **kwargs):
        return data

    for from_dict in (old, new):
        stand_in = SimpleNamespace(from_dict=from_dict, InferenceData=object)
        monkeypatch.setattr(draws_file, "_arviz", lambda stand_in=stand_in: stand_in)
        assert as_arviz(groups) == groups


def test_what_arviz_finds_of_known_draws():
    rng = np.random.default_rng(0)
    good, apart = rng.standard_normal((2, 4, 500))
    apart = apart + np.arange(4)[:, None]
    draws = as_arviz({"posterior": {"good": good, "apart": apart}})
    found = chain_quality(draws, ["good", "apart"])
    assert abs(found["good"].rhat - 1) < 0.01
    assert found["good"].ess > 1000
    assert found["apart"].rhat > 1.5
    assert found["apart"].ess < 50
    np.testing.assert_array_equal(draws["posterior"]["good"], good)
    # Two data sets, four chains, 500 draws, two parameters.
    chains = np.stack([np.stack([good, apart], -1), np.stack([apart, good], -1)])
    sizes = effective_sizes(chains)
    assert sizes.shape == (2, 2)
    np.testing.assert_allclose(sizes[0], sizes[1, ::-1])
    np.testing.assert_allclose(sizes[0], [found["good"].ess, found["apart"].ess])


def test_trajectories_end_on_a_ridge_too_narrow_for_them():
    """Crossing a ridge a thousand times longer than wide takes more steps than are allowed."""
    _, _, x = toy_groups(1, n=3, seed=35, theta=[0.1, 0.0])
    flat = replace(
        FastToy().given(x[0]), traceable=Traced(lambda data, theta, group: 0.0 * theta[0], ())
    )
    with pytest.warns(KeepscoreWarning, match="DO NOT TRUST.*cut at 128 steps"):
        result = ks.posterior(
            flat,
            prior=lambda t: -0.5 * ((t[0] - t[1]) / 1e-3) ** 2,
            draws=20, warmup=30, chains=2,
        )  # fmt: skip
    assert int(result.sample_stats["n_steps"].max()) < 2**LARGEST_DEPTH


@pytest.mark.slow
def test_chains_of_many_groups_are_those_groups_posteriors():
    """Chain i belongs to group[i], by tracing and by callback alike."""
    import jax.numpy as jnp

    _, _, x = toy_groups(3, n=6, seed=36)
    plain = FastToy().given(x)
    data = np.asarray(x, dtype=np.float32).reshape(3, -1)

    def traced(theta, group):
        z = (jnp.asarray(data)[group] - theta[0]) * jnp.exp(-theta[1])
        return -0.5 * (z**2).sum() - data.shape[1] * (theta[1] + 0.5 * np.log(2 * np.pi))

    found = maximise(plain)
    group = np.array([2, 0, 2, 0])
    for like in (
        plain,
        replace(plain, traceable=Traced(lambda data, theta, group: traced(theta, group), ())),
    ):
        theta, _ = sample(like, None, found, group, 1, Settings(draws=400, warmup=200))
        for i in (0, 2):
            mean, sd = by_grid(plain.select(i))
            own = theta[group == i].reshape(-1, 2)
            other = theta[group != i].reshape(-1, 2)
            # 800 draws, worth at least 200: five standard errors are 0.35 sd.
            assert (abs(own.mean(axis=0) - mean) < 0.35 * sd).all()
            assert (abs(other.mean(axis=0) - mean) > 0.35 * sd).any()


def test_bad_input():
    toy, _, x = toy_groups(2, seed=34)
    with pytest.raises(DomainError, match="Take one"):
        ks.posterior(toy.given(x))
    one = toy.given(x[0])
    with pytest.raises(DtypeError, match="prior"):
        ks.posterior(one, prior=3)
    with pytest.raises(DtypeError, match="one number"):
        ks.posterior(one, prior=lambda theta: theta)
    with pytest.raises(DomainError, match="not finite"):
        ks.posterior(one, prior=lambda theta: -np.inf * (theta[0] ** 2 + 1))
    with pytest.raises(DomainError):
        ks.posterior(one, chains=0)


@pytest.mark.parametrize(
    "kind",
    ["exact", "surrogate", pytest.param("one of several groups", marks=pytest.mark.slow)],
)
def test_a_second_data_set_is_not_compiled_anew(kind):
    """Programs are kept by likelihood function and settings, and data are their arguments."""
    import jax
    from training_helpers import Tiny

    from keepscore.surrogate import Surrogate

    _, _, x = toy_groups(3, n=4, seed=40)
    source = FastToy()
    if kind != "exact":
        source = Surrogate(Tiny(jax.random.key(0)), source.space, (4,))
    whole = source.given(x)
    drawn = []
    for i in range(3):
        like = whole.select(i) if kind == "one of several groups" else source.given(x[i])
        found = maximise(like)
        settings = Settings(draws=20, warmup=30)
        before = _programs.cache_info().misses
        theta, _ = sample(like, None, found, np.zeros(2, dtype=np.int64), 0, settings)
        drawn.append(theta.mean(axis=(0, 1)))
        if i:
            assert _programs.cache_info().misses == before
    function = whole.traceable.function if kind == "surrogate" else None
    if function is not None:
        assert _programs(function, None, settings)[1]._cache_size() == 1
    assert len({tuple(mean) for mean in drawn}) == 3  # each data set has draws of its own
