"""The benchmark of `check_data`: its data are what it says, and its cells resume."""

import math

import numpy as np

from benchmarks import data_check as study


def cheap():
    return {
        "right-iid": lambda: study.Cell(study.numbers(), study.from_model(study.numbers(), 8)),
        "tails-iid": lambda: study.Cell(
            study.numbers(), lambda rng: rng.standard_cauchy((8, 1)), "Cauchy"
        ),
    }


def test_cells_are_kept_and_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "cells", cheap)
    monkeypatch.setattr(study, "DRAWS", 39)
    first = study.run(quick=True, folder=tmp_path)
    assert first["right-iid"]["data_sets"] == 3
    assert "Cauchy" in study.table(first)

    def again(*given):
        raise AssertionError("a finished cell is not run again")

    monkeypatch.setattr(study, "p_values", again)
    assert study.run(quick=True, folder=tmp_path) == first


def test_a_summary_counts_alarms():
    rows = [{"p": p, "worst": w} for p, w in [(0.01, "a"), (0.02, "b"), (0.03, "b"), (0.5, "c")]]
    found = study.summary({"rows": rows, "seconds": 1.0}, "none")
    assert (found["alarms"], found["share"], found["accused"]) == (3, 0.75, "b")
    assert found["standard_error"] == math.sqrt(0.75 * 0.25 / 4)


def test_the_graphs_have_equally_many_contacts():
    np.testing.assert_allclose(study.ring().sum(axis=1), 2)
    np.testing.assert_allclose(study.everybody().sum(axis=1), 2)
    assert not np.allclose(study.ring(), study.everybody())


def test_epidemics_go_on_from_their_own_state(monkeypatch):
    """With no change of the rate, halves put together are whole epidemics: by their likelihood's
    score at the truth, whose mean is zero (400 epidemics; false alarm below 1e-4)."""
    model = study.epidemic(study.ring())
    rng, theta = np.random.default_rng(0), np.zeros((1, 2))
    monkeypatch.setattr(study, "theta_of", lambda *given: theta)
    for factor, holds in ((1.0, True), (3.0, False)):
        draw = study.with_changing_rate(factor)
        x = np.concatenate([draw(rng) for _ in range(40)])
        assert x.shape == (400, *model.x_shape)
        scores = model.score(np.repeat(theta, len(x), axis=0), x)
        z = scores.mean(axis=0) / (scores.std(axis=0) / math.sqrt(len(x)))
        assert bool(np.abs(z).max() < 4.5) is holds


def test_every_misfit_has_the_shape_of_its_model():
    rng = np.random.default_rng(1)
    for name, build in study.cells().items():
        cell = build()
        x = cell.data(rng)
        assert x.shape[1:] == cell.model.x_shape, name
        assert (cell.misfit == "none") == name.startswith("right")
