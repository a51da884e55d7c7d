"""The SIS model against dense exponentials, autodiff, and the laws its simulator must obey.

Statistical tests use fixed seeds and alarm falsely once in 1e6; each says what it can detect.
"""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from keepscore.errors import (
    DomainError,
    DtypeError,
    NonFiniteError,
    ShapeError,
    TooLargeError,
    UnknownNameError,
)
from keepscore.models.base import Model, build, describe
from keepscore.models.sis import SIS
from keepscore.numerics import gillespie, uniformisation
from keepscore.space import Parameter, Space

FALSE_ALARM = 1e-6
TRIANGLE = np.array([[0.0, 0.5, 1.2], [0.3, 0.0, 0.8], [0.9, 0.1, 0.0]])


def states_of(x):
    return x.astype(np.int64) @ (1 << np.arange(x.shape[-1]))


def dense_generator(model, lam, mu):
    """Q entry by entry from the definition, independent of the package's tables."""
    nodes = model.node_count
    q = np.zeros((2**nodes, 2**nodes))
    for s in range(2**nodes):
        v = [(s >> k) & 1 for k in range(nodes)]
        for k in range(nodes):
            exposure = sum(model.weights[k, j] * v[j] for j in range(nodes) if j != k)
            rate = mu if v[k] else model.self_infection + lam * exposure
            q[s, s ^ (1 << k)] = rate
            q[s, s] -= rate
    return q


def dense_log_prob(model, theta, x, log_initial=None):
    q = dense_generator(model, *np.exp(theta))
    states = states_of(x)
    value = -model.node_count * np.log(2) if log_initial is None else log_initial
    for i, gap in enumerate(np.diff(model.times)):
        value += np.log(scipy.linalg.expm(q * gap)[states[i], states[i + 1]])
    return value


def random_model(nodes, rng, times=(0.0, 0.4, 1.0, 2.5), **options):
    weights = rng.random((nodes, nodes)) * (rng.random((nodes, nodes)) < 0.8)
    return SIS(weights=weights, times=times, **options)


def test_paper_defaults():
    model = SIS()
    assert isinstance(model, Model)
    assert model.x_shape == (13, 8)
    assert model.x_dtype == np.uint8
    assert model.space.working_names == ("log lambda", "log mu")
    assert model.space.fixed == {"eta": 0.135}
    np.testing.assert_allclose(model.space.box("train"), [[-1.1, -1.1], [1.1, 1.1]])
    np.testing.assert_allclose(model.space.box("test"), [[-0.8, -0.8], [0.8, 0.8]])
    assert model.weights[0, 1] == pytest.approx(np.exp(-1))
    assert model.weights[0, 7] == pytest.approx(np.exp(-np.sqrt(18)))
    assert model.structure == "markov"
    assert SIS(times=[0, 1, 3]).structure is None
    assert SIS(times=np.arange(5) * 0.1).structure == "markov"


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 6])
def test_log_prob_and_score_against_dense_exponentials(nodes):
    rng = np.random.default_rng(nodes)
    model = random_model(nodes, rng, self_infection=0.2)
    theta = np.vstack([rng.uniform(-1, 1, (4, 2)), [[-4, 2], [3, -4], [3, 3]]])
    x = rng.integers(0, 2, (len(theta), 4, nodes))
    value, score = model.log_prob_and_score(theta, x)
    expected = [dense_log_prob(model, t, row) for t, row in zip(theta, x, strict=True)]
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_array_equal(value, model.log_prob(theta, x))
    np.testing.assert_array_equal(score, model.score(theta, x))
    step = 1e-4
    for k in range(2):
        move = step * np.eye(2)[k]
        near = model.log_prob(theta + move, x) - model.log_prob(theta - move, x)
        far = model.log_prob(theta + 2 * move, x) - model.log_prob(theta - 2 * move, x)
        slope = (8 * near - far) / (12 * step)  # fourth order
        np.testing.assert_allclose(score[:, k], slope, rtol=1e-7, atol=1e-8)


def test_score_against_autodiff_of_a_dense_form():
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import expm

    rng = np.random.default_rng(3)
    model = random_model(3, rng, times=(0.0, 0.4, 1.5))
    theta, x = rng.uniform(-1, 1, (2, 2)), rng.integers(0, 2, (2, 3, 3))
    with jax.enable_x64(True):
        parts = [dense_generator(model, lam, mu) for lam, mu in ((0, 0), (1, 0), (0, 1))]
        fixed, first, second = parts[0], parts[1] - parts[0], parts[2] - parts[0]

        def log_prob(t, states):
            q = fixed + jnp.exp(t[0]) * first + jnp.exp(t[1]) * second
            steps = [
                jnp.log(expm(q * gap)[states[i], states[i + 1]])
                for i, gap in enumerate(np.diff(model.times))
            ]
            return sum(steps) - 3 * jnp.log(2.0)

        for t, row, value, score in zip(
            theta, states_of(x), *model.log_prob_and_score(theta, x), strict=True
        ):
            expected, slope = jax.value_and_grad(log_prob)(jnp.asarray(t), row)
            assert value == pytest.approx(float(expected), rel=1e-10)
            np.testing.assert_allclose(score, slope, rtol=1e-9)


def test_paper_model_against_one_dense_exponential():
    rng = np.random.default_rng(0)
    model = SIS()
    theta = np.array([[0.3, -0.6]])
    x = model.simulate(theta, rng)
    q = dense_generator(model, *np.exp(theta[0]))
    p, states = scipy.linalg.expm(q), states_of(x[0])
    expected = np.log(p[states[:-1], states[1:]]).sum() - 8 * np.log(2)
    assert model.log_prob(theta, x)[0] == pytest.approx(expected, rel=1e-11)


def test_initial_distributions():
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2, (5, 2, 3))
    theta = rng.uniform(-1, 1, (5, 2))
    base = SIS(weights=TRIANGLE, times=[0, 1])
    chance = np.array([0.1, 0.5, 0.9])
    each = np.where(x[:, 0] == 1, chance, 1 - chance).prod(axis=1)
    full = rng.dirichlet(np.ones(8))
    for initial, first in ((chance, each), (full, full[states_of(x[:, 0])])):
        model = SIS(weights=TRIANGLE, times=[0, 1], initial=initial)
        expected = base.log_prob(theta, x) + 3 * np.log(2) + np.log(first)
        np.testing.assert_allclose(model.log_prob(theta, x), expected, rtol=1e-12)
        np.testing.assert_array_equal(model.score(theta, x), base.score(theta, x))
        draws = states_of(model.simulate(np.zeros((50_000, 2)), rng)[:, 0])
        law = np.array([np.exp(model._log_initial(np.array([[s & 1, s >> 1 & 1, s >> 2]]))[0])
                        for s in range(8)])  # fmt: skip
        assert law.sum() == pytest.approx(1.0)
        assert chi_square(draws, law) > FALSE_ALARM


def chi_square(draws, law):
    seen = np.bincount(draws, minlength=len(law))
    return scipy.stats.chisquare(seen, law * len(draws)).pvalue


def end_states(model, theta, start, n, seed):
    full = np.zeros(2**model.node_count)
    full[start] = 1.0
    from_start = SIS(weights=model.weights, times=model.times, initial=full)
    return states_of(from_start.simulate(np.tile(theta, (n, 1)), np.random.default_rng(seed)))


def test_simulated_states_follow_the_matrix_exponential():
    """200,000 paths, three observations, K = 3: detects one rate off by 5% (the control)."""
    model, theta = SIS(weights=TRIANGLE, times=[0, 0.7, 2.0]), np.array([0.4, -0.2])
    x = end_states(model, theta, 2, 200_000, seed=11)
    assert (x[:, 0] == 2).all()

    def law(t):
        q = dense_generator(model, *np.exp(t))
        first, second = scipy.linalg.expm(0.7 * q), scipy.linalg.expm(1.3 * q)
        return (first[2][:, None] * second).ravel()

    pair = x[:, 1] * 8 + x[:, 2]
    assert chi_square(pair, law(theta)) > FALSE_ALARM
    for k in range(2):
        off = theta + np.log(1.05) * np.eye(2)[k]
        assert chi_square(pair, law(off)) < FALSE_ALARM


def test_simulation_depends_on_the_seed_alone_and_not_on_the_batch():
    model = SIS()
    theta = model.space.uniform(40, np.random.default_rng(0))
    x = model.simulate(theta, np.random.default_rng(1))
    assert x.shape == (40, 13, 8)
    assert x.dtype == np.uint8
    assert set(np.unique(x)) == {0, 1}
    rng = np.random.default_rng(1)
    parts = [model.simulate(theta[:15], rng), model.simulate(theta[15:], rng)]
    np.testing.assert_array_equal(np.concatenate(parts), x)
    assert (model.simulate(theta, np.random.default_rng(2)) != x).any()
    again, score = model.simulate_with_score(theta, np.random.default_rng(1))
    np.testing.assert_array_equal(again, x)
    np.testing.assert_array_equal(score, model.score(theta, x))


def test_score_has_mean_zero_under_the_simulator():
    """4,000 paths of the paper's model: detects a mean off by 0.12 standard deviations."""
    model, theta = SIS(), np.tile([0.2, -0.3], (4000, 1))
    x, score = model.simulate_with_score(theta, np.random.default_rng(4))
    limit = scipy.stats.norm.isf(FALSE_ALARM / 4) / np.sqrt(len(theta))
    assert (np.abs(score.mean(axis=0)) < limit * score.std(axis=0)).all()
    off = model.score(theta + np.array([0.3, 0.0]), x)  # control: evaluated at the wrong theta
    assert (np.abs(off.mean(axis=0)) > limit * off.std(axis=0)).any()


def test_joint_score_has_the_score_as_its_mean_given_the_data():
    """K = 2, T = 2: all 16 data sets, a z-test in each for each parameter, 300,000 paths.
    Detects a conditional mean off by 5% of the score's largest value (the control)."""
    weights = np.array([[0.0, 0.9], [0.4, 0.0]])
    model = SIS(weights=weights, times=[0, 1.5], score="joint")
    assert model.score_kind == "joint"
    theta = np.array([0.5, 0.1])
    n = 300_000
    x, joint = model.simulate_with_score(np.tile(theta, (n, 1)), np.random.default_rng(6))
    limit = scipy.stats.norm.isf(FALSE_ALARM / 2 / 34)
    total = np.abs(joint.mean(axis=0)) / (joint.std(axis=0) / np.sqrt(n))
    assert (total < limit).all()
    cell = states_of(x) @ [1, 4]
    table = ((np.arange(16)[:, None] >> np.arange(4)) & 1).reshape(16, 2, 2)
    exact = model.score(np.tile(theta, (16, 1)), table)

    def worst(expected):
        z = []
        for c in range(16):
            rows = joint[cell == c]
            assert len(rows) > 1000
            error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
            z.append(np.abs(rows.mean(axis=0) - expected[c]) / error)
        return np.max(z, axis=0)

    assert (worst(exact) < limit).all()
    assert (worst(exact + 0.05 * np.abs(exact).max(axis=0)) > limit).all()


def test_joint_score_in_other_working_parameters():
    space = Space([Parameter("lambda", 0.3, 3, "identity"), Parameter("mu", -1, 1, shift=0.2)])
    model = SIS(weights=TRIANGLE, times=[0, 1, 2], space=space)
    plain = SIS(weights=TRIANGLE, times=[0, 1, 2])
    theta = np.array([[1.3, -0.4], [0.5, 0.9]])
    raw = space.to_raw(theta)
    x = model.simulate(theta, np.random.default_rng(0))
    np.testing.assert_array_equal(x, plain.simulate(np.log(raw), np.random.default_rng(0)))
    np.testing.assert_allclose(model.log_prob(theta, x), plain.log_prob(np.log(raw), x), rtol=1e-13)
    chain = np.column_stack([1 / raw[:, 0], np.exp(theta[:, 1]) / raw[:, 1]])
    np.testing.assert_allclose(
        model.score(theta, x), plain.score(np.log(raw), x) * chain, rtol=1e-12
    )
    joint = [
        SIS(weights=TRIANGLE, times=[0, 1, 2], score="joint", space=s).simulate_with_score(
            t, np.random.default_rng(0)
        )[1]
        for s, t in ((space, theta), (None, np.log(raw)))
    ]
    np.testing.assert_allclose(joint[0], joint[1] * chain, rtol=1e-12)
    with pytest.raises(DomainError, match="positive"):
        model.log_prob([[-0.1, 0.0]], x[:1])


@pytest.mark.parametrize("times", [[0, 1, 2, 3], [0, 0.5, 2.0, 2.5]])
def test_given_is_the_sum_of_log_prob_and_score(times):
    model = SIS(times=times)
    rng = np.random.default_rng(8)
    xs = model.simulate(model.space.uniform(5 * 7, rng), rng).reshape(5, 7, 4, 8)
    theta = model.space.uniform(3, rng)
    like = model.given(xs)

    def repeated(t, group):
        return model.log_prob_and_score(np.tile(t, (7, 1)), xs[group])

    sums = [[repeated(t, g) for t in theta] for g in range(5)]
    value = np.array([[s[0].sum() for s in row] for row in sums])
    slope = np.array([[s[1].sum(axis=0) for s in row] for row in sums])
    np.testing.assert_allclose(like(theta), value, rtol=1e-12)
    np.testing.assert_allclose(like.gradient(theta), slope, rtol=1e-9, atol=1e-9)
    group = np.array([4, 0, 2])
    np.testing.assert_allclose(like.pairs(theta, group), value[group, [0, 1, 2]], rtol=1e-12)
    one = model.given(xs[3])
    assert one(theta[1]) == pytest.approx(value[3, 1], rel=1e-12)
    np.testing.assert_allclose(one.gradient(theta[1]), slope[3, 1], rtol=1e-9)


def test_symmetries_are_the_four_of_the_papers_graph_and_keep_the_likelihood():
    model = SIS()
    symmetries = model.symmetries
    assert len(symmetries) == 4
    assert {s.name for s in symmetries} >= {"identity"}
    rng = np.random.default_rng(1)
    theta = model.space.uniform(6, rng)
    x = model.simulate(theta, rng)
    value, score = model.log_prob_and_score(theta, x)
    moved = {x.tobytes()}
    for symmetry in symmetries:
        other = symmetry.of_x(x)
        moved.add(other.tobytes())
        plain = SIS()
        plain.__dict__["_automorphisms"] = np.arange(8)[None]  # no use of symmetry inside
        np.testing.assert_allclose(plain.log_prob(theta, other), value, rtol=1e-12)
        np.testing.assert_allclose(plain.score(theta, other), score, rtol=1e-9, atol=1e-10)
    assert len(moved) == 4


def test_symmetries_respect_the_initial_distribution():
    assert len(SIS(initial=np.full(8, 0.3)).symmetries) == 4
    assert SIS(initial=np.linspace(0.1, 0.8, 8)).symmetries == ()
    mirrored = np.array([0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.5, 0.6])  # only the diagonal mirror
    assert [s.name for s in SIS(initial=mirrored).symmetries] == ["identity", "nodes (1 2)(5 6)"]
    full = np.ones(256)
    full[1] = 3.0  # node 0 alone
    assert len(SIS(initial=full / full.sum()).symmetries) == 2
    assert SIS(weights=TRIANGLE).symmetries == ()


def test_twelve_nodes_have_an_exact_likelihood():
    places = np.random.default_rng(0).random((12, 2))
    model = SIS(positions=places, times=[0, 1, 2])
    theta = np.array([[0.1, 0.2]])
    x = model.simulate(theta, np.random.default_rng(0))
    value, score = model.log_prob_and_score(theta, x)
    assert value[0] == pytest.approx(model.log_prob(theta, x)[0], rel=1e-13)
    step = 1e-4 * np.eye(2)
    slope = [(model.log_prob(theta + s, x) - model.log_prob(theta - s, x))[0] / 2e-4 for s in step]
    np.testing.assert_allclose(score[0], slope, rtol=1e-6)


def test_many_nodes_simulate_but_have_no_exact_likelihood():
    places = np.random.default_rng(0).random((64, 2)) * 6
    model = SIS(positions=places, times=[0, 1, 2], score="joint")
    theta = np.zeros((50, 2))
    x, score = model.simulate_with_score(theta, np.random.default_rng(0))
    assert x.shape == (50, 3, 64)
    assert np.isfinite(score).all()
    for call in (model.log_prob, model.score, model.log_prob_and_score):
        with pytest.raises(TooLargeError, match=r"2\^64 states.*GiB.*joint"):
            call(theta, x)
    with pytest.raises(TooLargeError):
        model.given(x)
    with pytest.raises(TooLargeError):
        SIS(positions=places, times=[0, 1, 2]).simulate_with_score(theta, np.random.default_rng(0))
    assert model.symmetries == ()


def test_exposures_follow_the_flips_and_return_to_exactly_zero():
    rng = np.random.default_rng(0)
    weights = rng.random((20, 20)) * (rng.random((20, 20)) < 0.3)
    coupling = gillespie.coupling(weights)
    bits = np.zeros(20, dtype=np.int64)
    exposure, sources = np.zeros(20), np.zeros(20, dtype=np.int64)
    for k in rng.integers(0, 20, 5000):
        gillespie._flip(k, bits, coupling, exposure, sources)
        expected = (weights - np.diag(np.diag(weights))) @ bits
        np.testing.assert_allclose(exposure, expected, atol=1e-12)
        assert (exposure[expected == 0] == 0).all()
    assert len(coupling.weight) == (weights * (1 - np.eye(20)) > 0).sum()


def test_infection_follows_the_edges_and_extinction_is_final():
    """eta = 0 on a directed line from node 10 of 30: nobody before it is ever infected."""
    start = np.zeros(30)
    start[10] = 1.0
    model = SIS(
        weights=np.diag(np.full(29, 0.37), k=-1),  # row k, column k - 1: k catches it from k - 1
        self_infection=0.0,
        times=np.arange(6),
        initial=start,
    )
    x = model.simulate(np.tile([2.0, -0.5], (300, 1)), np.random.default_rng(0))
    assert not x[:, :, :10].any()
    assert x[:, :, 14].any()
    dead = ~x.any(axis=2)
    assert 0.05 < dead[:, -1].mean() < 0.95
    assert not (dead[:, :-1] & ~dead[:, 1:]).any()


def test_without_self_infection_impossible_paths_have_no_probability():
    model = SIS(weights=TRIANGLE, self_infection=0.0, times=[0, 1, 2])
    x = np.zeros((2, 3, 3), dtype=np.uint8)
    x[1, 2, 0] = 1  # an infection out of nowhere
    theta = np.zeros((2, 2))
    value = model.log_prob(theta, x)
    assert value[0] == pytest.approx(-3 * np.log(2), rel=1e-12)
    assert value[1] == -np.inf
    np.testing.assert_allclose(model.score(theta[:1], x[:1]), 0.0, atol=1e-12)
    with pytest.raises(NonFiniteError, match="Row 1 has probability zero"):
        model.score(theta, x)
    like = model.given(x)
    assert like(theta[0]) == -np.inf


def test_any_kind_of_number_will_do_and_empty_batches_are_empty():
    model, theta = SIS(), np.array([[0.1, -0.2], [0.5, 0.3]])
    x = model.simulate(theta, np.random.default_rng(0))
    value, score = model.log_prob_and_score(theta, x)
    for kind in (np.float32, np.float64, np.int32, bool):
        again = model.log_prob_and_score(theta, x.astype(kind))
        np.testing.assert_array_equal(again[0], value)
        np.testing.assert_array_equal(again[1], score)
    none = np.empty((0, 2))
    empty = model.simulate(none, np.random.default_rng(0))
    assert empty.shape == (0, 13, 8)
    assert model.log_prob(none, empty).shape == (0,)
    assert model.score(none, empty).shape == (0, 2)
    assert model.simulate_with_score(none, np.random.default_rng(0))[1].shape == (0, 2)


def test_a_model_is_rebuilt_from_its_description():
    space = Space([Parameter("lambda", -2, 2), Parameter("mu", -1, 1)])
    rng = np.random.default_rng(0)
    for model in (
        SIS(),
        SIS(positions=[[0, 0], [1, 2], [3, 3]], times=[0, 1, 4], score="joint"),
        SIS(weights=TRIANGLE, self_infection=0.3, initial=[0.1, 0.2, 0.3], space=space),
    ):
        again = build(json.loads(json.dumps(describe(model))))
        assert describe(again) == describe(model)
        theta = model.space.uniform(3, rng)
        x = model.simulate(theta, rng)
        np.testing.assert_array_equal(again.log_prob(theta, x), model.log_prob(theta, x))
        copy = pickle.loads(pickle.dumps(model))  # noqa: S301  workers get models this way
        np.testing.assert_array_equal(copy.log_prob(theta, x), model.log_prob(theta, x))
        assert len(pickle.dumps(model)) < 5000


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"weights": np.ones((2, 3))}, ShapeError, "square"),
        ({"weights": -np.ones((2, 2))}, DomainError, "negative"),
        ({"weights": [[0, np.nan], [1, 0]]}, NonFiniteError, "weights"),
        ({"weights": [["a", "b"], ["c", "d"]]}, DtypeError, "weights"),
        ({"positions": [1.0, 2.0]}, ShapeError, "positions"),
        ({"positions": [[np.inf, 0]]}, NonFiniteError, "positions"),
        ({"positions": [[0, 0]], "weights": [[0]]}, DomainError, "not both"),
        ({"self_infection": -0.1}, DomainError, "self_infection"),
        ({"self_infection": np.nan}, DomainError, "self_infection"),
        ({"times": [0, 1, 1]}, DomainError, "increasing"),
        ({"times": [0]}, ShapeError, "at least 2"),
        ({"times": [0, np.nan]}, NonFiniteError, "times"),
        ({"initial": np.ones(5) / 5}, ShapeError, r"\(8,\)"),
        ({"initial": np.full(8, 1.5)}, DomainError, "between 0 and 1"),
        ({"initial": np.full(256, 0.1)}, DomainError, "sum to 1"),
        ({"score": "both"}, UnknownNameError, "score"),
        ({"space": Space([Parameter("beta", 0, 1)])}, DomainError, "lambda and mu"),
        (
            {"space": Space([Parameter("lambda", 0, 1), Parameter("mu", 0, 1)], {"eta": 0.5})},
            DomainError,
            "eta",
        ),
    ],
)
def test_bad_options_are_typed_errors(options, error, words):
    with pytest.raises(error, match=words):
        SIS(**options)


def test_bad_data_are_typed_errors():
    model, theta = SIS(), np.zeros((2, 2))
    x = model.simulate(theta, np.random.default_rng(0))
    with pytest.raises(ShapeError, match=r"\(n, 2\)"):
        model.simulate(np.zeros((2, 3)), np.random.default_rng(0))
    with pytest.raises(ShapeError, match=r"\(n, 13, 8\)"):
        model.log_prob(theta, x[:, :12])
    with pytest.raises(ShapeError, match="row by row"):
        model.score(theta[:1], x)
    with pytest.raises(DtypeError, match=r"0 .* and 1 .* only"):
        model.log_prob(theta, x + np.uint8(1))
    with pytest.raises(DtypeError, match=r"0\.5"):
        model.given(np.full((1, 13, 8), 0.5))
    with pytest.raises(NonFiniteError, match="x must be finite"):
        model.log_prob(theta, np.where(x == 1, np.nan, 0.0))
    with pytest.raises(NonFiniteError, match="theta"):
        model.log_prob([[0, np.nan], [0, 0]], x)
    with pytest.raises(DomainError, match="row 0 of theta"):
        model.log_prob([[800.0, 0.0]], x[:1])
    with pytest.raises(DomainError, match="Row 0 of theta"):
        model.score([[25.0, 0.0]], x[:1])
    with pytest.raises(DomainError, match="row 1 of theta"):
        model.simulate([[0.0, 0.0], [30.0, 30.0]], np.random.default_rng(0))


def test_random_streams_are_uniform_and_distinct():
    streams = gillespie.streams(2000, np.random.default_rng(0))
    draws = gillespie.uniforms(streams, 50)
    assert ((draws >= 0) & (draws < 1)).all()
    assert len(np.unique(draws)) == draws.size
    assert scipy.stats.kstest(draws.ravel(), "uniform").pvalue > FALSE_ALARM
    assert scipy.stats.kstest(draws.ravel() ** 1.05, "uniform").pvalue < FALSE_ALARM
    lag = np.corrcoef(draws[:, :-1].ravel(), draws[:, 1:].ravel())[0, 1]
    assert abs(lag) < 5 / np.sqrt(draws.size)


def test_memory_limit_is_a_plain_number_when_the_machine_does_not_say(monkeypatch):
    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(uniformisation.os, "sysconf", unknown)
    assert uniformisation.memory_limit() == 4 * 2**30
