"""The benchmark of refining: its measures are right, and its controls are controls."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy, bent, toy_groups
from scipy import stats

import keepscore as ks
from benchmarks import refinement, refinement_accuracy, refinement_controls, refinement_cost
from benchmarks.pages import marks
from keepscore.space import Parameter, Space


def groups(g=4, seed=0):
    _, theta, x = toy_groups(g, seed=seed)
    return FastToy().given(x), theta


def test_places_lie_all_over_the_exact_set_and_a_false_error_is_seen():
    exact, _ = groups()
    refined = ks.refine(bent(exact), exact, evaluations=16)
    truth = refinement_accuracy.Inferences(
        ks.mle(exact).estimate[:, None], np.zeros((4, 1)), np.zeros((1, 1))
    )
    at, value = refinement_accuracy.places(refined, exact, truth)
    best = exact.pairs(truth.estimate[:, 0], np.arange(4))
    drops = 2 * (best[:, None] - value)
    assert (drops <= stats.chi2.ppf(0.99, 2) + 1e-9).all()
    assert (drops.max(axis=1) > 4).all()  # the outer parts too
    found = refinement_accuracy.honesty(refined, at, value)
    assert found["within"] == 1.0
    record = refined.refinement
    boastful = replace(refined, refinement=replace(record, error=record.error / 1e4))
    assert refinement_accuracy.honesty(boastful, at, value)["within"] < 1.0


def test_what_exact_inference_takes_is_counted():
    exact, theta = groups(1)
    asked, count = refinement_cost.counted(exact)
    asked.pairs(theta[:1], np.zeros(1, dtype=int))
    asked.surface(np.zeros((7, 2)))
    assert count["evaluations"] == 8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refinement_cost.answers(asked, theta[0])
    assert count["evaluations"] > 100


def test_a_likelihood_in_another_space_is_the_same_one():
    exact, _ = groups()
    low, high = exact.space.box()
    other = Space([Parameter("a", -3, 5, "identity"), Parameter("b", 0, 1, "identity")])
    moved = refinement_controls.in_space(exact, other)
    ends = np.stack(other.box())
    np.testing.assert_allclose(
        moved.pairs(ends, np.array([0, 1])), exact.pairs(np.stack([low, high]), np.array([0, 1]))
    )
    point, h = np.array([[1.0, 0.4]]), 1e-6
    for j, step in enumerate(np.eye(2) * h):
        rise = moved.pairs(point + step, [2]) - moved.pairs(point - step, [2])
        slope = moved.pairs_gradient(point, [2])[1][:, j]
        np.testing.assert_allclose(rise / (2 * h), slope, rtol=1e-5)


@pytest.mark.parametrize("fault", [refinement_controls.wrong_score, refinement_controls.kinked])
def test_controls_are_warned_of(fault):
    exact, _ = groups(6, seed=3)
    with pytest.warns(ks.KeepscoreWarning, match="not reached"):
        refined = ks.refine(bent(exact), fault(exact), evaluations=20)
    assert not refined.refinement.reached.any()


def test_the_tables_say_what_the_cells_say():
    row = {
        "lrt_mse": {"value": 0.004, "se": 0.001},
        "coverage": {"value": 0.95, "se": 0.01},
        "volume": {"value": 0.25, "se": 0.01},
        "mle_mse": [1e-4, 2e-5],
        "decided_otherwise": 0.0,
    }
    honesty = {
        "groups": 600, "beyond": 3, "within": 0.995, "median_true": 1e-4, "largest_true": 2e-3,
        "median_estimated": 2e-4, "largest_estimated": 9e-3,
    }  # fmt: skip
    cell = {
        "case": "sis", "evaluations": 20, "groups": 600, "surrogate": row, "refined": row,
        "exact": row, "honesty": honesty, "reached": 1.0, "evaluations_spent": {"mean": 9.2},
    }  # fmt: skip
    bad = {**cell, "refined": {**row, "lrt_mse": {"value": 0.2, "se": 0.1}}}
    control = {
        "case": "gaussian", "groups": 60, "refused": True,
        "controls": {"other data": {"warned_of": 58, "wrong": 57, "wrong_unsaid": 1,
                                    "median_stated": 0.1, "median_real": 9.0}},
    }  # fmt: skip
    cost = {
        "side": 75, "exact_evaluation": 0.5, "first_refine": 20.0,
        "data_sets": [{"refined": 30, "error": 0.004, "answers_proxy": 2400,
                       "posterior_proxy": 60_000.0, "refine_seconds": 14.0,
                       "refined_answers_seconds": 1.0, "refined_posterior_seconds": 2.0,
                       "posterior_effective": 1500.0}],
    }  # fmt: skip
    text = refinement.table(
        {"cells": {"accuracy-sis-20": cell, "control-gaussian": control, "cost-75": cost}}
    )
    assert "0.005, met" in text
    assert "597 of 600 (99.5%)" in text
    assert "marked data refused | 60 | 58 | 57 | 1 |" in text
    assert "| 2,400 (proxy, too high) | 80 | 60,000 (proxy, too high) | 2,000 |" in text
    assert "| 500 ms | 14 s (20 s) | 1 s | 1.2e+03 s (proxy) | 80 |" in text
    assert "0.005, NOT met" in refinement.table({"cells": {"accuracy-sis-20": bad}})


def test_the_page_keeps_everything_but_its_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n" + "\nold\n".join(marks("refinement")) + "\nafter\n")
    refinement.write_page(page, {"cells": {}})
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text


@pytest.mark.slow
def test_the_whole_benchmark_runs_on_tiny_sizes(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = refinement.run(quick=True, folder=tmp_path)
    assert set(result["cells"]) == {"accuracy-sis-20", "control-sis", "cost-5"}
    assert "| SIS" in refinement.table(result)
