"""Losses: against the equations, written out separately and slowly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training_helpers import Tiny

from keepscore import networks
from keepscore.errors import DomainError, FormatError, UnknownNameError
from keepscore.losses import (
    ASA,
    BCE,
    cross_entropy,
    empty_history,
    loss_from_dict,
    loss_to_dict,
    network_score,
    pair_losses,
    recency_weighted,
    remember,
    residual_losses,
    score_loss,
    score_scale,
    score_tail,
    search_epsilon,
)
from keepscore.losses.score import TOLERANCE
from keepscore.training.step import Batch, adam, objective, start, step

KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    b, d, k = 16, 2, 3
    return Batch(
        jnp.asarray(rng.standard_normal((b, 4)), jnp.float32),
        jnp.asarray(rng.uniform(-1, 1, (b, d)), jnp.float32),
        jnp.asarray(rng.standard_normal((b, d)), jnp.float32),
        jnp.asarray(rng.uniform(-1, 1, (k, b, d)), jnp.float32),
    )


@pytest.fixture(scope="module")
def network():
    return networks.resolve("1k", (4,), 2, None, KEY)


def sigmoid_bce(h, y):
    """-[y log sigma(h) + (1 - y) log(1 - sigma(h))], float64."""
    p = 1 / (1 + np.exp(-np.asarray(h, np.float64)))
    return -(y * np.log(p) + (1 - y) * np.log(1 - p))


def test_cross_entropy_is_the_mean_over_both_classes():
    rng = np.random.default_rng(1)
    own, other = rng.normal(size=8), rng.normal(size=(1, 8))
    expected = np.concatenate([sigmoid_bce(own, 1), sigmoid_bce(other[0], 0)]).mean()
    assert float(cross_entropy(jnp.float32(own), jnp.float32(other))) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 8])
def test_k_negatives_leave_the_optimum_where_it_is(k):
    """x and theta binary, every pair in its exact proportion: the gradient vanishes at the
    log-ratio of joint to product, for one negative and for eight."""
    counts = np.array([[3, 1], [2, 2]])  # N p(x, theta)
    x, theta = (np.repeat(i.ravel(), counts.ravel()) for i in np.indices((2, 2)))
    # Every x with every theta of the sample: in k = 8 columns, or down one column of copies.
    copies = 8 // k
    x, theta = np.repeat(x, copies), np.repeat(theta, copies)
    draws = np.tile(np.repeat(np.arange(2), counts.sum(0)), 8).reshape(8, copies, k)
    other = draws.reshape(8 * copies, k).T
    ratio = np.log(counts * 8 / np.outer(counts.sum(1), counts.sum(0)))

    @jax.jit
    @jax.grad
    def gradient(h):
        return cross_entropy(h[x, theta], h[x[None], other])

    np.testing.assert_allclose(gradient(jnp.float32(ratio)), 0, atol=1e-7)
    assert np.abs(gradient(jnp.float32(ratio + np.array([[0.1, 0], [0, 0]])))).max() > 1e-3


def test_the_three_scores_agree(network, pairs):
    features = eqx.filter_jit(network.features)(pairs.x)
    scored = eqx.filter_jit(network_score)
    h, exact = scored(network.head, features, pairs.theta, "autodiff")
    one = jax.grad(lambda t, f: network.head(f[None], t[None])[0])
    rows = jax.jit(jax.vmap(one))(pairs.theta, features)
    np.testing.assert_allclose(exact, rows, atol=1e-6)
    h_forward, forward = scored(network.head, features, pairs.theta, "forward")
    np.testing.assert_allclose(forward, exact, atol=1e-6)
    np.testing.assert_allclose(h_forward, h, atol=1e-6)
    found = search_epsilon(network.head, features, pairs.theta)
    h_moved, moved = scored(
        network.head, features, pairs.theta, "finite-difference", jnp.float32(found.epsilon)
    )
    assert found.reached
    scale = np.sqrt((np.asarray(exact) ** 2).mean(0))
    assert np.all(np.abs(moved - exact) <= TOLERANCE * np.maximum(abs(exact), scale))
    np.testing.assert_allclose(h_moved, h, atol=1e-6)


def test_epsilon_search_beats_the_paper_start_in_float32(network, pairs):
    """1e-5 drowns in rounding: the search goes up from there and says how far off it is."""
    features = eqx.filter_jit(network.features)(pairs.x)
    scored = eqx.filter_jit(network_score)
    _, exact = scored(network.head, features, pairs.theta, "autodiff")
    small = jnp.full(2, 1e-6, jnp.float32)
    _, drowned = scored(network.head, features, pairs.theta, "finite-difference", small)
    scale = np.maximum(abs(exact), np.sqrt((np.asarray(exact) ** 2).mean(0)))
    found = search_epsilon(network.head, features, pairs.theta)
    assert max(found.error) < 0.3 * float((abs(drowned - exact) / scale).max())
    assert min(found.epsilon) > 1e-5


def test_epsilon_search_reports_a_head_it_cannot_follow(pairs):
    def rough(features, theta):
        return jnp.sin(1e7 * theta).sum(axis=1)

    assert not search_epsilon(rough, pairs.x, pairs.theta).reached


def reference_losses(weights, rest, batch, alpha):
    """L_BCE + sum_k alpha_k L_k straight from the equations: every pair through the whole network
    by itself, nested autodiff for the score, sums written out."""
    network = eqx.combine(weights, rest)

    def h(x, theta):
        return networks.log_ratio(network, theta[None], x[None])[0]

    b, k = len(batch.x), len(batch.other)
    bce, score = 0.0, jnp.zeros(2)
    for i in range(b):
        bce -= jnp.log(jax.nn.sigmoid(h(batch.x[i], batch.theta[i]))) / (2 * b)
        for j in range(k):
            logit = h(batch.x[i], batch.other[j, i])
            bce -= jnp.log(1 - jax.nn.sigmoid(logit)) / (2 * b * k)
        s = jax.grad(lambda t, i=i: h(batch.x[i], t))(batch.theta[i])
        score = score + (s - batch.score[i]) ** 2 / b
    return bce + jnp.sum(alpha * score), (bce, score)


@pytest.mark.parametrize("method", ["autodiff", "forward", "finite-difference"])
def test_gradient_of_the_full_loss_equals_an_unfused_reference(method, pairs):
    small = Batch(pairs.x[:3], pairs.theta[:3], pairs.score[:3], pairs.other[:2, :3])
    weights, rest = networks.split(Tiny(KEY))
    alpha = jnp.float32([0.7, 0.2])
    epsilon = jnp.full(2, 1e-2, jnp.float32)
    losses = objective(rest, ASA.paper(network_score=method), epsilon)

    def total(w):
        bce, score = losses(w, small)
        return bce + jnp.sum(alpha * score), (bce, score)

    (value, parts), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(weights)
    slowly = jax.value_and_grad(lambda w: reference_losses(w, rest, small, alpha), has_aux=True)
    (expected, expected_parts), reference = jax.jit(slowly)(weights)
    tolerance = {"rtol": 0.03, "atol": 0.01} if "finite" in method else {"rtol": 1e-4, "atol": 1e-6}
    assert float(value) == pytest.approx(float(expected), rel=tolerance["rtol"])
    np.testing.assert_allclose(parts[0], expected_parts[0], rtol=1e-5)
    np.testing.assert_allclose(parts[1], expected_parts[1], **tolerance)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(reference), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def numpy_alpha(values, times, now, decay, length):
    """f_H as the paper writes it, t_0 included."""
    values, times = np.array(values[-length:]), np.array(times[-length:])
    weights = np.exp(-(now - times) / decay)
    return (values * weights[:, None]).sum(0) / weights.sum()


def test_history_equals_the_papers_formula_and_forgets_beyond_its_length():
    rng = np.random.default_rng(0)
    history, values, times = empty_history(5, 2), [], []
    np.testing.assert_array_equal(recency_weighted(history, 64.0), 0)
    for i in range(13):
        value, t = rng.uniform(0.1, 2, 2), 64 * (i + 1)
        values.append(value)
        times.append(t)
        history = remember(history, jnp.float32(value), jnp.int32(t))
        for now in (t, t + 40):
            expected = numpy_alpha(values, times, now, 64.0, 5)
            np.testing.assert_allclose(recency_weighted(history, 64.0), expected, rtol=1e-5)


def test_a_value_that_is_not_finite_is_left_out():
    history = remember(empty_history(4, 1), jnp.float32([2.0]), jnp.int32(1))
    after = remember(history, jnp.float32([jnp.inf]), jnp.int32(2))
    assert float(recency_weighted(after, 1.0)[0]) == 2.0
    assert int(after.taken) == 1


@pytest.mark.parametrize("per_parameter", [False, True])
def test_alpha_of_a_run_equals_numpy_on_recorded_gradient_norms(per_parameter, pairs):
    """Seven steps with an update every second: weights and alpha as plain code gets them."""
    loss = ASA.paper(update_every=2, history=2, decay=3.0, per_parameter=per_parameter)
    weights, rest = networks.split(Tiny(KEY))
    optimizer = adam(1e-2, 1e-3)
    member = start(weights, optimizer, loss, 2)
    losses = objective(rest, loss)
    jitted = jax.jit(lambda m, t: step(m, pairs, t, losses, loss, optimizer.update))
    plain_weights = jax.tree.map(np.asarray, weights)
    m, v = (jax.tree.map(np.zeros_like, plain_weights) for _ in range(2))
    alpha, values, times = np.zeros(2), [], []

    @jax.jit
    def gradients(w):
        parts = [lambda bce, score: bce, lambda bce, score: score[0], lambda bce, score: score[1]]
        return [jax.grad(lambda w, part=part: part(*losses(w, pairs)))(w) for part in parts]

    for t in range(1, 8):
        assert np.allclose(np.broadcast_to(member.alpha, 2), alpha, rtol=1e-4)
        g_bce, *g_each = jax.tree.map(np.asarray, gradients(plain_weights))
        total = jax.tree.map(lambda b, s0, s1: b + alpha[0] * s0 + alpha[1] * s1, g_bce, *g_each)  # noqa: B023
        if t % 2 == 0:
            together = jax.tree.map(lambda a, b: a + b, *g_each)
            scores = g_each if per_parameter else [together, together]
            values.append(np.array([flat_norm(g_bce) / flat_norm(g) for g in scores]))
            times.append(t)
            alpha = numpy_alpha(values, times, t, 3.0, 2)
        # Adam with L2 in the gradient, written out.
        total = jax.tree.map(lambda g, w: g + 1e-3 * w, total, plain_weights)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, total)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, total)
        plain_weights = jax.tree.map(
            lambda w, m, v, t=t: w
            - 1e-2 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8),
            plain_weights, m, v,
        )  # fmt: skip
        member, _ = jitted(member, jnp.int32(t))
        for a, b in zip(
            jax.tree.leaves(member.weights), jax.tree.leaves(plain_weights), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    assert len(values) == 3
    if per_parameter:
        assert abs(alpha[0] / alpha[1] - 1) > 0.05


def flat_norm(tree):
    return float(
        np.sqrt(sum((np.asarray(a, np.float64) ** 2).sum() for a in jax.tree.leaves(tree)))
    )


def test_settings_of_losses_are_checked():
    with pytest.raises(UnknownNameError, match="Did you mean 'forward'"):
        ASA(network_score="foward")
    with pytest.raises(DomainError, match="negatives"):
        BCE(negatives=0)
    with pytest.raises(DomainError, match="decay"):
        ASA(decay=0.0)
    with pytest.raises(DomainError, match="update_every"):
        ASA(update_every=0)


def test_losses_survive_a_record():
    for loss in (BCE(negatives=3), ASA(decay=5.0), ASA.paper()):
        assert loss_from_dict(loss_to_dict(loss)) == loss
    with pytest.raises(FormatError):
        loss_from_dict({"name": "MSE"})
    with pytest.raises(FormatError):
        loss_from_dict({"name": "BCE", "beta": 1})


# --- robust residuals -----------------------------------------------------------------------------


RHO = {  # as written at the top of losses/score.py, in NumPy
    "squared": lambda e, m: e**2,
    "huber": lambda e, m: 2 * (np.sqrt(1 + (e / m) ** 2) - 1),
    "cauchy": lambda e, m: np.log(1 + (e / m) ** 2),
}


@pytest.mark.parametrize("residual", sorted(RHO))
@pytest.mark.parametrize("d", [1, 2, 6])
def test_residuals_equal_numpy_and_are_least_at_equality(residual, d):
    rng = np.random.default_rng(d)
    exact, network = (rng.standard_cauchy((50, d)) for _ in range(2))
    m = score_scale(exact)
    found = score_loss(jnp.float32(network), jnp.float32(exact), residual, jnp.float32(m))
    expected = RHO[residual](network - exact, m).mean(axis=0)
    np.testing.assert_allclose(found, expected, rtol=2e-5)
    scale = jnp.float32(m)
    assert np.all(
        np.asarray(score_loss(jnp.float32(exact), jnp.float32(exact), residual, scale)) == 0
    )
    error = jnp.float32(np.linspace(-3, 3, 61))[:, None] * jnp.ones(d)
    values = np.asarray(residual_losses(error, residual, scale))
    assert np.all(values.argmin(axis=0) == 30)
    assert np.all(np.diff(values[30:], axis=0) > 0)


@pytest.mark.parametrize(("residual", "bound"), [("huber", 2.0), ("cauchy", 1.0)])
def test_gradients_of_robust_residuals_are_bounded(residual, bound):
    """By 2/m and 1/m, however large the error; that of the squared loss is not."""
    m = jnp.float32([0.5])
    errors = jnp.float32(np.concatenate([-np.logspace(-4, 8, 200), [0], np.logspace(-4, 8, 200)]))

    def slope(kind):
        one = jax.grad(lambda e: residual_losses(e[None, None], kind, m)[0, 0])
        return np.abs(np.asarray(jax.vmap(one)(errors)))

    assert slope(residual).max() <= bound / 0.5 * (1 + 1e-5)
    assert slope(residual)[200] == 0
    assert slope("squared").max() > 1e8


def test_the_scale_is_the_median_and_never_zero():
    score = np.array([[1.0, 0.0, 0.0], [-3.0, 0.0, 0.0], [1e9, 6.0, 0.0]])
    np.testing.assert_array_equal(score_scale(score), [3.0, 2.0, 1.0])
    np.testing.assert_array_equal(score_scale(score.astype(np.float32)), [3.0, 2.0, 1.0])


def test_tails():
    """Of a normal distribution 2.576 / 0.674 = 3.82; one wild one of three does not decide."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((100_000, 3)) * [1.0, 20.0, 0.1]
    assert score_tail(normal) == pytest.approx(3.82, rel=0.02)
    wild = rng.standard_cauchy((100_000, 3))  # tan(.99 pi / 2) = 63.7, over 1
    assert score_tail(wild) == pytest.approx(63.7, rel=0.1)
    one = np.column_stack([normal[:, :2], wild[:, 0]])
    assert score_tail(one) == pytest.approx(3.82, rel=0.02)
    assert score_tail(np.zeros((10, 2))) == 0.0


def test_auto_depends_on_the_kind_of_score_and_robust_ones_refuse_joint_scores():
    for tail in (3.8, 100.0):
        assert ASA().for_scores("joint", tail, False).residual == "squared"
        assert ASA.paper().for_scores("exact", tail, False).residual == "squared"
    assert ASA().for_scores("exact", 3.8, False).residual == "squared"
    assert ASA().for_scores("exact", 6.0, False).residual == "cauchy"
    for residual in ("cauchy", "huber"):
        assert ASA(residual=residual).for_scores("exact", 3.8, False).residual == residual
        with pytest.raises(DomainError, match="joint scores"):
            ASA(residual=residual).for_scores("joint", 3.8, False)


def test_one_alpha_for_all_where_a_density_has_scores_with_heavy_tails():
    for kind, tail, density, each in [
        ("exact", 9.0, True, False),
        ("exact", 9.0, False, True),
        ("exact", 3.8, True, True),
        ("joint", 9.0, True, True),
    ]:
        assert ASA().for_scores(kind, tail, density).per_parameter is each
        for stated in (True, False):
            settled = ASA(per_parameter=stated).for_scores(kind, tail, density)
            assert settled.per_parameter is stated
    with pytest.raises(UnknownNameError, match="Did you mean 'cauchy'"):
        ASA(residual="couchy")
    old = {k: v for k, v in loss_to_dict(ASA.paper()).items() if k != "residual"}
    assert loss_from_dict(old) == ASA.paper()  # a record from before there was a choice


def test_pair_losses_are_the_same_in_numpy_and_jax():
    own, other = np.random.default_rng(0).normal(size=(2, 9)) * 5
    expected = (sigmoid_bce(own, 1) + sigmoid_bce(other, 0)) / 2
    np.testing.assert_allclose(pair_losses(own, other), expected, rtol=1e-9)
    np.testing.assert_allclose(pair_losses(jnp.float32(own), jnp.float32(other)), expected, 1e-5)
    assert pair_losses(own, other).dtype == np.float64


def test_a_heavy_tail_ruins_the_squared_fit_and_not_the_cauchy_fit():
    """A slope fitted to scores of which 2% are off by a factor of 10^4, as far tails of a score
    that the network cannot follow are: squares follow those few, the logarithm the many."""
    rng = np.random.default_rng(3)
    theta = rng.uniform(-1, 1, 2000)
    score = -2.0 * theta
    wild = rng.random(2000) < 0.02
    score[wild] = 1e4 * theta[wild]
    m = jnp.float32(score_scale(score[:, None]))

    def fitted(residual):
        def total(slope):
            error = (slope * jnp.float32(theta) - jnp.float32(score))[:, None]
            return residual_losses(error, residual, m).mean()

        slopes = jnp.linspace(-10, 300, 3101)
        return float(slopes[jax.vmap(total)(slopes).argmin()])

    assert abs(fitted("cauchy") - -2.0) < 0.1
    assert abs(fitted("huber") - -2.0) < 1.0
    assert fitted("squared") > 50
