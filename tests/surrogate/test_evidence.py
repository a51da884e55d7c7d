"""log_ratio of density networks: less the log of the mean of q over the design, nothing learned."""

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.special import logsumexp

import keepscore as ks
from keepscore import networks
from keepscore.networks.mixture import MixtureSetNetwork
from keepscore.networks.series import SeriesNetwork

FLAT = ks.Space([ks.Parameter(name, -1, 1, "identity") for name in "ab"])
WITH_PRIOR = ks.Space(
    [
        ks.Parameter("a", -1, 1, "identity", prior=ks.priors.Normal(0.3, 0.5)),
        ks.Parameter("b", -1, 1, "identity"),
    ]
)


def steep(network, seed=0, by=0.5):
    """Weights far from where they begin, so that q is peaked in theta."""
    rng = np.random.default_rng(seed)
    weights, rest = networks.split(network)
    moved = jax.tree.map(lambda w: w + by * rng.standard_normal(w.shape).astype("f4"), weights)
    return eqx.combine(moved, rest)


def surrogate(name="mixture-set-10k", space=FLAT, members=1, holes="none", shape=(12, 2)):
    def one(seed):
        structure = "iid" if "set" in name else "field"
        network = networks.resolve(name, shape, 2, structure, jax.random.key(0), holes=holes)
        return steep(network, seed, 0.3)

    if members == 1:
        return ks.Surrogate(one(0), space, shape)
    arrays, rest = zip(*(networks.split(one(seed)) for seed in range(members)), strict=True)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *arrays)
    stacked = jax.tree.map(jax.numpy.asarray, stacked)
    return ks.Surrogate(eqx.combine(stacked, rest[0]), space, shape, members=members)


def design(space, side=160):
    """An even grid over the train box, and log weights that sum to one."""
    low, high = space.box("train")
    unit = (np.arange(side) + 0.5) / side
    grid = low + (high - low) * np.stack(np.meshgrid(unit, unit, indexing="ij"), -1).reshape(-1, 2)
    log_w = space.log_prior(grid, "train") if space.has_prior else np.zeros(len(grid))
    return grid, log_w - logsumexp(log_w)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"space": WITH_PRIOR},
        pytest.param({"members": 3}, marks=pytest.mark.slow),
        pytest.param({"holes": "rows"}, marks=pytest.mark.slow),
        {"name": "local-5k", "holes": "entries", "shape": (5, 6)},
    ],
    ids=["uniform", "prior", "ensemble", "missing rows", "local"],
)
def test_the_ratio_has_mean_one_over_the_design(given):
    """Against a brute-force mean over 25,600 theta: root mean square error below .05, of no x above
    .12. (Of these untrained networks much of the mass is in corners of the box.)"""
    made = surrogate(**given)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6, *made.x_shape))
    if given.get("holes") == "rows":
        x[1, 4:] = np.nan
    if given.get("holes") == "entries":
        x[rng.random(x.shape) < 0.2] = np.nan
    grid, log_w = design(made.space)
    surface = made.given(x, each=True, interpolate=False).surface(grid)
    assert np.ptp(surface, axis=1).max() > 10  # peaked
    brute = logsumexp(surface + log_w, axis=1)
    found = made.log_evidence(x)
    assert np.sqrt(np.mean((found - brute) ** 2)) < 0.05
    assert np.abs(found - brute).max() < 0.12
    ratio = made.log_ratio(np.tile(grid[777], (6, 1)), x)
    np.testing.assert_allclose(ratio, surface[:, 777] - brute, atol=0.12)
    assert np.abs(brute).max() > 1


def test_members_of_an_ensemble_have_their_own():
    made, x = surrogate(members=2), np.random.default_rng(1).standard_normal((4, 12, 2))
    theta = FLAT.uniform(4, np.random.default_rng(2))
    each = [surrogate().log_ratio(theta, x)]
    other = ks.Surrogate(
        jax.tree.map(lambda leaf: leaf[1] if networks.is_weight(leaf) else leaf, made.network),
        FLAT, (12, 2),
    )  # fmt: skip
    each.append(other.log_ratio(theta, x))
    wanted = np.std(each, axis=0, ddof=1)
    np.testing.assert_allclose(made.spread(theta, x), wanted, rtol=0.02, atol=0.1)


def test_a_network_that_is_no_density_has_no_evidence_to_compute():
    network = networks.resolve("mlp-1k", (3,), 2, None, jax.random.key(0))
    made, x = ks.Surrogate(network, FLAT, (3,)), np.ones((2, 3))
    np.testing.assert_array_equal(made.log_evidence(x), 0.0)
    theta = np.zeros((2, 2))
    np.testing.assert_array_equal(made.log_ratio(theta, x), made.relative(theta, x))


@pytest.mark.parametrize("kind", ["mixture", "series"])
def test_files_with_a_learned_evidence_still_load(kind, tmp_path):
    """As earlier versions wrote them; the weights of that evidence are there and not used."""
    rng = np.random.default_rng(0)
    if kind == "mixture":
        old = MixtureSetNetwork((5, 2), 2, rng, 2, (8,), evidence=(6, 6))
        assert "evidence" in networks.describe(old, (5, 2), 2)["widths"]
    else:
        old = SeriesNetwork((5, 2), 2, rng, 2, 1, 3, (4, 4), nodes=4)
        assert "nodes" in networks.describe(old, (5, 2), 2)["widths"]
    made = ks.Surrogate(old, FLAT, (5, 2))
    made.save(tmp_path)
    again = ks.load(tmp_path)
    x, theta = rng.standard_normal((3, 5, 2)), np.zeros((3, 2))
    np.testing.assert_array_equal(again.log_ratio(theta, x), made.log_ratio(theta, x))
    assert networks.count_weights(again.network) == networks.count_weights(old)
