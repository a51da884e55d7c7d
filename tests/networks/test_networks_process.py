"""Networks that know the process obey its laws with any weights, trained or not."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln
from training_helpers import SHORT, noise_data, weights_equal

import keepscore as ks
from keepscore import networks
from keepscore.errors import FormatError, ShapeError
from keepscore.losses.score import network_score
from keepscore.networks.base import every_pair
from keepscore.networks.catalogue import FAMILIES
from keepscore.networks.exponential_family import even_cover
from keepscore.networks.quadratic import cosine_rows, fold
from keepscore.networks.spectral import LOG_NU

KEY = jax.random.key(3)
CASES = {
    "markov": ((6, 3), "markov-10k"),
    "quadratic": ((9, 8), "quadratic-20k"),
    "spectral": ((9, 8), "spectral-5k"),
    "tailed": ((9, 8), "tailed-5k"),
}
FIELDS = ("quadratic", "spectral", "tailed")
FAMILY_OF_EXPONENTIALS = ("markov", "quadratic")


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def moved(family, d=2, noise=0.3):
    """A network with every weight moved, so that none is at a special value."""
    shape, name = CASES[family]
    network = networks.resolve(name, shape, d, None, KEY)
    weights, rest = networks.split(network)
    leaves, tree = jax.tree.flatten(weights)
    other = [leaf + noise * normal(*leaf.shape, seed=i) for i, leaf in enumerate(leaves)]
    return eqx.combine(jax.tree.unflatten(tree, other), rest)


@pytest.fixture(params=CASES)
def family(request):
    return request.param


h = eqx.filter_jit(networks.log_ratio)


def test_auto_takes_the_network_that_knows_the_process():
    of_chain = networks.resolve("auto", (6, 3), 2, "markov", KEY)
    gaussian = networks.resolve("auto", (9, 8), 2, "gaussian-field", KEY)
    field = networks.resolve("auto", (9, 8), 2, "stationary-field", KEY)
    assert type(of_chain) is networks.MarkovNetwork
    assert type(gaussian) is networks.SpectralNetwork
    assert type(field) is networks.TailedSpectralNetwork
    assert type(networks.resolve("auto", (500,), 2, None, KEY)) is networks.MLP
    # A size alone stays the paper's network.
    assert type(networks.resolve("30k", (13, 8), 2, "markov", KEY)) is networks.SequenceNetwork


def test_a_path_is_judged_by_its_start_and_its_transitions():
    """A A B A A A and A A A A B A: same start, same transitions, same h; a path that differs in
    one transition is judged by that one. The paper's network keeps neither."""
    network, theta = moved("markov"), normal(2, 2, seed=1)
    a, b = normal(3, seed=2), normal(3, seed=3)
    paths = jnp.stack([jnp.stack([a, a, b, a, a, a]), jnp.stack([a, a, a, a, b, a])])
    here, there = (h(network, jnp.tile(theta[i], (2, 1)), paths) for i in range(2))
    np.testing.assert_allclose(here[0], here[1], rtol=1e-5)
    np.testing.assert_allclose(there[0], there[1], rtol=1e-5)
    paper = networks.resolve("3k", (13, 3), 2, "markov", KEY)
    longer = jnp.concatenate([paths, jnp.tile(a, (2, 7, 1))], axis=1)
    values = h(paper, jnp.tile(theta[0], (2, 1)), longer)
    assert abs(float(values[0] - values[1])) > 1e-5


def test_the_statistics_of_a_path_add_up_wherever_it_is_cut():
    network, x = moved("markov"), normal(4, 6, 3)
    start = eqx.filter_jit(lambda z: network.start(z))
    S = eqx.filter_jit(network.statistics)
    for cut in range(1, 5):
        parts = S(x[:, : cut + 1]) + S(x[:, cut:]) - start(x[:, cut])
        np.testing.assert_allclose(parts, S(x), rtol=1e-4, atol=1e-4)
    alone = start(x[:, 0])
    for t in range(5):
        alone += network.transition(jnp.concatenate([x[:, t], x[:, t + 1]], axis=1))
    np.testing.assert_allclose(S(x), alone, rtol=1e-4, atol=1e-4)
    # Not a function of the set of states alone: order within a transition counts.
    assert np.abs(S(x) - S(x[:, ::-1])).max() > 1e-2


def test_states_of_any_shape_are_scaled_alike_at_all_times():
    data = np.random.default_rng(0).normal(3.0, 2.0, (200, 5)) + 10 * np.arange(5)
    network = networks.resolve("auto", (5,), 2, "markov", KEY)
    scaled = networks.standardise(network, data, -np.ones(2), np.ones(2))
    assert scaled.x_mean.shape == ()
    assert scaled.x_mean == pytest.approx(data.mean(), rel=1e-5)
    grid = networks.resolve("auto", (5, 2, 3), 2, "markov", KEY)
    assert h(grid, normal(4, 2), normal(4, 5, 2, 3)).shape == (4,)


@pytest.mark.parametrize("family", FIELDS)
def test_a_field_its_mirror_images_and_its_negative_are_one(family):
    network, theta, x = moved(family), normal(4, 2, seed=1), normal(4, 9, 8)
    value = h(network, theta, x)
    np.testing.assert_array_equal(h(network, theta, -x), value)
    for axes in ((1,), (2,), (1, 2)):
        np.testing.assert_allclose(h(network, theta, jnp.flip(x, axes)), value, rtol=1e-4)
    assert np.abs(h(network, theta, jnp.roll(x, 1, axis=1)) - value).max() > 1e-3
    scaled = networks.standardise(network, np.asarray(x) + 1, -np.ones(2), np.ones(2))
    np.testing.assert_array_equal(h(scaled, theta, -x), h(scaled, theta, x))
    # The paper's network is not of this kind.
    paper = networks.resolve("30k", (22, 22), 2, "stationary-field", KEY)
    field = normal(4, 22, 22)
    assert np.abs(h(paper, theta, -field) - h(paper, theta, field)).max() > 1e-4


def test_transforms_start_as_orthogonal_cosines():
    for n in (2, 7, 8):
        for matrix in (fold(n), cosine_rows(n)):
            np.testing.assert_allclose(matrix @ matrix.T, np.eye(n), atol=1e-12)
    network = networks.resolve("auto", (9, 8), 2, "stationary-field", KEY)
    for cosines, n in ((network.first, 9), (network.second, 8)):
        ordered = np.concatenate([cosine_rows(n)[0::2], cosine_rows(n)[1::2]])
        np.testing.assert_allclose(cosines.matrix(), ordered, atol=1e-6)


@pytest.mark.parametrize("family", FIELDS)
@pytest.mark.parametrize("size", [0.0, 1e-9, 1e15])
def test_fields_of_any_size_have_finite_values_and_gradients(size, family):
    """A factor of the field shifts all log powers alike; a field of zeros has them too."""
    network, x = moved(family), size * normal(3, 9, 8)

    @eqx.filter_jit
    def value_and_gradient(network):
        def total(n):
            value = networks.log_ratio(n, normal(3, 2), x)
            return value.sum()

        return eqx.filter_value_and_grad(total)(network)

    value, gradient = value_and_gradient(network)
    for leaf in jax.tree.leaves((value, gradient)):
        assert np.isfinite(leaf).all()
    if size and family == "quadratic":
        shift = np.asarray(network.log_powers(x) - network.log_powers(normal(3, 9, 8)))
        np.testing.assert_allclose(shift, 2 * np.log(size), rtol=1e-3)


def test_the_evidence_is_the_mean_over_the_nodes(family):
    """sum_m w_m exp h(x, theta_m) = 1 for every x: p(x) is not learned beside p(x | theta)."""
    network, x = moved(family), normal(4, *CASES[family][0])
    part = getattr(network, "family", network)
    nodes, log_weights = part.nodes, part.log_weights
    surface = np.stack([h(network, jnp.tile(node, (4, 1)), x) for node in nodes])
    total = jax.nn.logsumexp(surface + np.asarray(log_weights)[:, None], axis=0)
    np.testing.assert_allclose(total, 0.0, atol=2e-4)


@pytest.mark.parametrize("family", FAMILY_OF_EXPONENTIALS)
def test_h_is_an_inner_product_of_x_and_theta(family):
    """(h(x_i, theta_j)) has no larger rank than statistics + 1: what is summed in S is all."""
    network, n = moved(family), 60
    r = network.family.settings()["statistics"]
    x, theta = normal(n, *CASES[family][0]), normal(n, 2, seed=1)
    table = np.stack([h(network, jnp.tile(t, (n, 1)), x) for t in theta]).astype(np.float64)
    singular = np.linalg.svd(table, compute_uv=False)
    assert singular[r + 1] < 1e-4 * singular[0]


def test_every_pair_at_once_is_every_pair(family):
    """Six theta with five x in one table, and one by one."""
    network, theta = moved(family), normal(6, 2, seed=1)
    features = network.features(normal(5, *CASES[family][0]))
    scaled = networks.Scaled(network, *(np.asarray(v, np.float32) for v in (0, 1, 0.3, 0.7)))
    for one in (network, scaled):
        table = every_pair(one, features, theta)
        assert table.shape == (6, 5)
        each = [one.head(features, jnp.tile(t, (5, 1))) for t in theta]
        np.testing.assert_allclose(table, np.stack(each), rtol=1e-4, atol=1e-3)


def test_likelihoods_of_groups_are_sums_of_heads(family):
    """Values and gradients by tables and by sums of features, against one head at a time."""
    shape, _ = CASES[family]
    network, box = moved(family), ks.Space([ks.Parameter(n, -1.0, 1.0) for n in ("a", "b")])
    surrogate = ks.Surrogate(network, box, shape)
    x, theta = np.asarray(normal(2, 3, *shape)), np.array([[0.2, -0.4], [0.9, 0.1], [-0.5, 0.5]])

    @jax.jit
    def total(t, of_group):
        rows = jnp.tile(t.astype(jnp.float32), (3, 1))
        return networks.log_ratio(network, rows, of_group).sum()

    value = [[total(t, of) for t in theta] for of in x]
    slope = [[jax.grad(total)(t, of) for t in theta] for of in x]
    like = surrogate.given(x)
    np.testing.assert_allclose(like(theta), value, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(like.gradient(theta), slope, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(like.paired(theta[:2]), np.diag(value), rtol=1e-4, atol=1e-3)


def test_spectral_networks_hold_the_densities_of_independent_coefficients():
    """Without the evidence, and c set to the normaliser, they are SciPy's multivariate normal and t
    with covariance M' diag(exp l) M, M the transform: in x, and in theta."""
    theta, x = normal(2, 2, seed=1), np.asarray(normal(3, 4, 5))
    flat = x.reshape(3, -1)
    for name in ("spectral-5k", "tailed-5k"):
        network = networks.resolve(name, (4, 5), 2, None, KEY)
        features = network.features(jnp.asarray(x))
        M = np.kron(network.first.matrix(), network.second.matrix()).astype(np.float64)
        precision, _, scalars = network.of_theta(theta)
        ours = np.asarray(network.table(features, theta)) - np.asarray(features[:, -1])
        exact = []
        for k in range(2):
            sigma = M.T @ np.diag(1 / np.asarray(precision[k], np.float64)) @ M
            c = float(network.natural(theta)[k, len(network.along_first)])
            if name == "spectral-5k":
                density = stats.multivariate_normal(np.zeros(20), sigma).logpdf(flat)
                normaliser = -10 * np.log(2 * np.pi)
            else:
                nu = float(np.exp(LOG_NU + scalars[k, 0]))
                density = stats.multivariate_t(np.zeros(20), sigma, df=nu).logpdf(flat)
                normaliser = gammaln((nu + 20) / 2) - gammaln(nu / 2) - 10 * np.log(nu * np.pi)
                normaliser -= (20 + nu) / 2 * np.log1p(20 / nu)
            exact.append(density - normaliser + c)
        np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-3)


def test_nodes_cover_the_box_evenly():
    for d in (1, 2, 3):
        points = even_cover(64, d)
        assert points.shape == (64, d)
        # Every half of every axis has its share of the nodes, and no two are the same.
        assert (abs((points < 0.5).sum(axis=0) - 32) <= 2).all()
        gaps = np.abs(points[:, None] - points[None]).max(axis=2) + np.eye(64)
        assert gaps.min() > 1e-3


def test_network_scores_agree(family):
    network, x, theta = moved(family), normal(5, *CASES[family][0]), normal(5, 2, seed=1)

    @eqx.filter_jit
    def scores(network):
        features = network.features(x)
        ways = ("autodiff", "forward", "finite-difference")
        return [network_score(network.head, features, theta, w, jnp.full(2, 1e-3)) for w in ways]

    exact, forward, differences = scores(network)
    np.testing.assert_allclose(forward[1], exact[1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(differences[1], exact[1], rtol=0.05, atol=0.1)


def test_rows_do_not_mix(family):
    network, x, theta = moved(family), normal(5, *CASES[family][0]), normal(5, 2, seed=1)
    whole = h(network, theta, x)
    alone = [h(network, theta[i : i + 1], x[i : i + 1])[0] for i in range(5)]
    np.testing.assert_allclose(whole, alone, rtol=1e-4, atol=1e-4)


def test_wrong_shapes_are_refused():
    with pytest.raises(ShapeError, match=r"T of at least 2; got \(1, 3\)"):
        networks.resolve("auto", (1, 3), 2, "markov", KEY)
    with pytest.raises(ShapeError, match=r"shape \(H, W\), at least 2 x 2; got \(9,\)"):
        networks.resolve("auto", (9,), 2, "stationary-field", KEY)


def test_every_size_is_rebuilt_from_its_description(family):
    shape, _ = CASES[family]
    for size in FAMILIES[family].sizes:
        network = networks.resolve(f"{family}-{size}", shape, 2, None, KEY)
        description = networks.describe(network, shape, 2)
        again = networks.rebuild(description)
        assert jax.tree.structure(again) == jax.tree.structure(network)
        assert networks.describe(again, shape, 2) == description
        with pytest.raises(FormatError):
            networks.rebuild({**description, "widths": {**description["widths"], "nodes": 0}})


@pytest.mark.parametrize(
    ("family", "structure"),
    [
        ("markov", "markov"),
        pytest.param("spectral", "gaussian-field", marks=pytest.mark.slow),
        pytest.param("tailed", "stationary-field", marks=pytest.mark.slow),
    ],
)
def test_training_takes_auto_and_its_surrogate_is_saved_and_loaded(family, structure, tmp_path):
    shape, _ = CASES[family]
    data = noise_data(128, shape, 2, structure)
    surrogate = ks.train(data, config=replace(SHORT, min_epochs=1, max_epochs=1), path=tmp_path)
    inner = surrogate.network.network
    assert type(inner) is FAMILIES[family].build
    again = ks.load(tmp_path)
    assert weights_equal(again, surrogate)
    np.testing.assert_array_equal(
        again.log_ratio(data.theta[:5], data.x[:5]), surrogate.log_ratio(data.theta[:5], data.x[:5])
    )
