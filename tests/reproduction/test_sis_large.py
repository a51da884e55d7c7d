"""SIS where 2^K states are out of reach: graphs as given, contact networks, joint scores, the case
study.

Statistical tests: fixed seeds, false-alarm rate 1e-6 (|z| < 4.9).
"""

import json
import time

import numpy as np
import pytest
import scipy.sparse

import keepscore as ks
from benchmarks.joint_scores_figure import Curve, joint_scores
from keepscore.errors import (
    DomainError,
    FormatError,
    MismatchError,
    ShapeError,
    TooLargeError,
    UnknownNameError,
)
from keepscore.evaluation.estimate import Estimate
from keepscore.models import SIS, build, contact_network, describe, edge_weights
from keepscore.numerics.automorphisms import automorphisms
from reproduction import sis_large
from reproduction.figures.sis_large import sis_large as sis_large_figure
from reproduction.sis_large import large_model, reproduce_large, summary

Z = 4.9


# --- graphs ---------------------------------------------------------------------------------------


def test_edges_and_matrices_tell_the_same_graph():
    edges = [(0, 1), (1, 2), (3, 0)]
    dense = np.zeros((4, 4))
    for k, j in edges:
        dense[k, j] = dense[j, k] = 1.0
    assert np.array_equal(edge_weights(4, edges), dense)
    one_way = edge_weights(4, [(0, 1, 0.5)], directed=True)
    assert one_way[0, 1] == 0.5
    assert one_way[1, 0] == 0.0
    for given in (dense, scipy.sparse.csr_matrix(dense), dense.tolist()):
        assert np.array_equal(SIS(weights=given).weights, dense)
    assert np.array_equal(edge_weights(2, [(0, 1, 1.0), (0, 1, 2.0)])[0], [0, 3])


def test_wrong_graphs_are_refused():
    with pytest.raises(DomainError, match="0 to 3"):
        edge_weights(4, [(0, 4)])
    with pytest.raises(DomainError, match="0 to 3"):
        edge_weights(4, [(0, 1.5)])
    with pytest.raises(ShapeError, match="rows"):
        edge_weights(4, [0, 1])
    with pytest.raises(DomainError, match="negative"):
        edge_weights(4, [(0, 1, -1.0)])
    with pytest.raises(DomainError, match="at most"):
        edge_weights(10**6, [(0, 1)])
    with pytest.raises(FormatError, match="nodes"):
        SIS(weights={"edges": []})
    with pytest.raises(ShapeError, match="square"):
        SIS(weights=np.zeros((3, 4)))


@pytest.mark.parametrize("nodes", [4, 64])
def test_a_model_comes_back_from_its_description(nodes):
    model = SIS(weights=contact_network(nodes, seed=3).weights, initial=0.1, score="joint")
    content = json.loads(json.dumps(describe(model)))
    again = build(content)
    assert np.array_equal(again.weights, model.weights)
    assert np.array_equal(again.initial, model.initial)
    if nodes == 64:
        assert len(json.dumps(content)) < 40_000  # edges, not 4096 numbers


# --- contact networks -------------------------------------------------------------------------


def test_contact_networks_are_what_they_say():
    found = contact_network(64, seed=1)
    w = found.weights
    assert np.array_equal(w, w.T)
    assert np.all(np.diag(w) == 0)
    assert np.linalg.eigvalsh(w)[-1] == pytest.approx(1.0)
    assert np.array_equal(w, contact_network(64, seed=1).weights)
    assert not np.array_equal(w, contact_network(64, seed=2).weights)
    together = (found.household[:, None] == found.household) & ~np.eye(64, dtype=bool)
    assert together.any()
    assert w[together].min() > w[~together].max()  # a household outweighs work and chance
    assert np.bincount(found.household).max() <= 6
    sizes = np.bincount(found.workplace)
    assert len(sizes) == 8
    assert sizes.min() == sizes.max() == 8


def test_contact_networks_follow_their_arguments():
    alone = contact_network(30, households=[1.0], workplace=1, community=29, strengths=(1, 1, 0.5))
    off = alone.weights[~np.eye(30, dtype=bool)]
    assert np.all(off == off[0])  # everyone has met everyone by chance
    with pytest.raises(DomainError, match="Nobody"):
        contact_network(30, households=[1.0], workplace=1, community=0)
    for wrong in ({"households": [-1, 2]}, {"strengths": (1, 2)}, {"community": -1.0}):
        with pytest.raises(DomainError, match=next(iter(wrong))):
            contact_network(30, **wrong)


def test_epidemics_neither_die_nor_take_everyone_over_the_box():
    model, rng = large_model(), np.random.default_rng(0)
    theta = model.space.uniform(400, rng, "train")
    x = model.simulate(theta, rng)
    assert x.shape == (400, 13, 64)
    ill = x[:, 1:].mean(axis=(1, 2))
    assert np.quantile(ill, 0.05) > 0.03
    assert np.quantile(ill, 0.95) < 0.8
    assert x[:, 0].mean() == pytest.approx(0.1, abs=5 * np.sqrt(0.09 / (400 * 64)))


# --- no likelihood, but scores ------------------------------------------------------------------


def test_the_exact_likelihood_is_refused_and_joint_scores_are_named():
    model, rng = large_model(), np.random.default_rng(0)
    x = model.simulate(np.zeros((1, 2)), rng)
    for call in (
        lambda: model.log_prob(np.zeros((1, 2)), x),
        lambda: model.score(np.zeros((1, 2)), x),
        lambda: model.given(x),
        lambda: SIS(weights=model.weights).simulate_with_score(np.zeros((1, 2)), rng),
    ):
        with pytest.raises(TooLargeError, match='score="joint"'):
            call()


def test_a_small_contact_network_obeys_the_laws_of_joint_scores():
    """E[joint score | x] = score, against the exact score of 2^5 states."""
    model = SIS(weights=contact_network(5).weights, initial=0.1, score="joint")
    report = ks.check_model(model, draws=400, show=False)
    assert report.passed, str(report)
    assert any("joint" in f.law and f.verdict == "holds" for f in report.findings)


def derivative_z(model, theta, factors, n=2_000):
    """z of  E[f(x) s] - d E[f(x)] / d theta = 0,  f the number of ill at the last time, for each
    parameter; the derivative by central differences of simulated means. One row for each factor
    by which the score is spoilt."""
    rng, step = np.random.default_rng(5), 0.15
    x, s = model.simulate_with_score(np.tile(theta, (n, 1)), rng)
    f = x[:, -1].sum(axis=1).astype(float)
    found = np.empty((len(factors), 2))
    for k in range(2):
        moved = [np.array(theta) + h * np.eye(2)[k] for h in (step, -step)]
        ends = [model.simulate(np.tile(m, (n, 1)), rng)[:, -1].sum(axis=1) for m in moved]
        slope = (ends[0].mean() - ends[1].mean()) / (2 * step)
        slope_var = (ends[0].var() + ends[1].var()) / n / (2 * step) ** 2
        for i, factor in enumerate(factors):
            products = (f - f.mean()) * factor * s[:, k]
            error = np.sqrt(products.var() / n + slope_var)
            found[i, k] = (products.mean() - slope) / error
    return found


def test_joint_scores_of_64_people_differentiate_expectations():
    """A law without a likelihood: d E[f(x)] / d theta = E[f(x) joint score]. The controls: half the
    score, and its negative."""
    right, *wrong = np.abs(derivative_z(large_model(), (0.2, -0.2), (1.0, 0.5, -1.0)))
    assert np.all(right < Z)
    assert np.all(np.array(wrong) > Z)


def test_joint_scores_of_64_people_have_mean_zero():
    model, n = large_model(), 4_000
    _, s = model.simulate_with_score(np.tile([0.3, 0.3], (n, 1)), np.random.default_rng(6))
    z = s.mean(axis=0) / (s.std(axis=0) / np.sqrt(n))
    assert np.all(np.abs(z) < Z)
    biased = s + 0.15 * s.std(axis=0)  # detected: 0.15 sd is 9 standard errors
    assert np.all(biased.mean(axis=0) / (s.std(axis=0) / np.sqrt(n)) > Z)


@pytest.mark.parametrize("kind", ["ring", "grid", "complete", "regular"])
def test_automorphisms_of_64_nodes_end_soon(kind):
    """Bounded work on graphs with very many symmetries and on one where colours tell nothing."""
    w = np.zeros((64, 64))
    i, j = np.divmod(np.arange(64), 8)
    if kind == "ring":
        w[np.arange(64), np.arange(1, 65) % 64] = 1.0
        w += w.T
    elif kind == "grid":
        w = ((i[:, None] == i) | (j[:, None] == j)) * 1.0
    elif kind == "complete":
        w[:] = 1.0
    else:
        rng = np.random.default_rng(0)
        for _ in range(4):
            w[np.arange(64), rng.permutation(64)] = 1.0
        w = np.maximum(w, w.T)
    np.fill_diagonal(w, 0.0)
    start = time.process_time()
    found = automorphisms(w)
    assert time.process_time() - start < 10.0
    for perm in found:
        assert np.array_equal(w[np.ix_(perm, perm)], w)


# --- the case study ----------------------------------------------------------------------------


def test_settings_and_profiles_of_the_case_study_are_checked(tmp_path):
    with pytest.raises(UnknownNameError, match="laptop"):
        reproduce_large("paper", tmp_path)
    file = tmp_path / sis_large.CASE / "bce.json"
    file.parent.mkdir()
    file.write_text('{"settings": {}}')
    with pytest.raises(MismatchError, match="other settings"):
        reproduce_large("smoke", tmp_path, report=lambda line: None)


def test_the_figures_show_every_training_and_seed():
    found = {
        training: {name: Estimate(1.0 + k, 0.1) for name in sis_large.METRICS}
        for k, training in enumerate(sis_large.TRAININGS)
    }
    figure = sis_large_figure(found)
    assert len(figure.axes) == 6
    assert len(figure.legends[0].get_texts()) == 3
    sizes, values = [3_000, 10_000], [[0.4, 0.5], [0.1]]
    curves = [Curve(loss, sizes, values) for loss in ("bce", "joint", "exact")]
    drawn = joint_scores({"far RMSE": curves, "test BCE": [Curve("bce", [10], [[0.4]])]})
    wide, narrow = drawn.axes
    assert wide.get_yscale() == "log"
    assert narrow.get_yscale() == "linear"
    means = [line.get_ydata() for line in wide.get_lines() if len(line.get_xdata()) == 2]
    assert any(np.allclose(line, [0.45, 0.1]) for line in means)


@pytest.mark.slow
def test_the_case_study_runs_and_resumes(tmp_path):
    lines = []
    results = reproduce_large("smoke", tmp_path, report=lines.append)
    assert list(results) == ["bce", "joint", "bce-more"]
    again = reproduce_large("smoke", tmp_path, report=lines.append)
    assert again == results
    text = summary(results)
    assert lines[-4].strip() == text.strip()
    for training, line in zip(("bce", "bce-more"), lines[-2:], strict=True):
        assert line.startswith(f"{training}: test BCE ")
    file = tmp_path / sis_large.CASE / sis_large.DIFFERENCES
    found = json.loads(file.read_text())["differences"]["bce"]["test BCE"]["value"]
    means = [results[t]["metrics"]["test BCE"]["value"] for t in ("bce", "joint")]
    assert found == pytest.approx(means[0] - means[1], abs=1e-12)
    for name in sis_large.METRICS:
        assert name in text
    assert results["joint"]["course"]["alpha"][-1] > 0
    assert results["bce-more"]["n"] == 1.5 * results["bce"]["n"]
