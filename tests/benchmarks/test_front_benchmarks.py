"""Benchmarks of the quality line and of fits: cells are kept, wrong models refused, words right."""

import numpy as np
import pytest

import keepscore as ks
from benchmarks import fits, front_models, quality_line
from benchmarks.__main__ import BY_NAME_ONLY, PARTS


def planted(r2, error):
    return {
        "r2": [r2, 0.999],
        "lrt_error": [error, 0.01],
        "warned": r2 < 0.5,
        "n": 1,
        "epochs": 1,
        "loss": "ASA",
    }


RESULTS = {
    f"{model.lower()}-{k}": planted(1 - 10.0 ** -(k / 2), 10.0 ** (1 - k))
    for model in quality_line.MODELS
    for k in range(1, 7)
}


def test_they_are_parts_that_are_asked_for_by_name():
    assert {"quality-line", "fits"} <= set(PARTS)
    assert {"quality-line", "fits"} <= set(BY_NAME_ONLY)


def test_errors_are_told_by_band_of_r2():
    """Errors that fall as R^2 rises have rank correlation 1; shuffled ones do not."""
    told = quality_line.summary(RESULTS)
    assert told["rank"] == pytest.approx(1.0)
    counts = [band[0] for band in told["bands"].values()]
    assert sum(counts) == len(RESULTS) == 24
    text = quality_line.table(RESULTS)
    assert text.count("\n| ") == 4
    assert "1.00" in text
    turned = {
        name: {**one, "lrt_error": [1 / one["lrt_error"][0], 0.0]} for name, one in RESULTS.items()
    }
    assert quality_line.summary(turned)["rank"] == pytest.approx(-1.0)


def test_an_empty_band_is_said():
    few = dict(list(RESULTS.items())[:3])
    assert "| 0 |" in quality_line.table(few)


def test_the_figure_has_every_surrogate(tmp_path):
    chart = quality_line.figure(RESULTS)
    drawn = sum(len(c.get_offsets()) for c in chart.axes[0].collections)
    assert drawn == len(RESULTS)
    assert ks.figures.save_figure(chart, tmp_path / "line.svg").stat().st_size > 5_000


def test_what_is_there_is_not_run_again(tmp_path, monkeypatch):
    done = []

    def once(model, one, by):
        done.append((model.name, one))
        return planted(0.9, 0.1)

    monkeypatch.setattr(quality_line, "surrogate_of", once)
    monkeypatch.setattr(quality_line, "yardstick", lambda *given: object())
    first = quality_line.run(quick=True, folder=tmp_path)
    assert len(done) == len(first) == 2
    assert quality_line.run(quick=True, folder=tmp_path) == first
    assert len(done) == 2


@pytest.mark.parametrize("name", ["tutorial", "regression, d = 6"])
def test_scores_of_the_models_are_the_slopes(name):
    """Central differences of the likelihood, to 1e-5 of the largest score."""
    model = front_models.FITTED[name]()
    rng = np.random.default_rng(0)
    theta = model.space.uniform(5, rng, region="test")
    x = model.simulate(theta, rng)
    step = 1e-5
    slope = np.stack(
        [
            (model.log_prob(theta + step * e, x) - model.log_prob(theta - step * e, x)) / (2 * step)
            for e in np.eye(model.space.d)
        ],
        axis=1,
    )
    found = model.score(theta, x)
    np.testing.assert_allclose(found, slope, atol=1e-5 * np.abs(found).max())


def test_the_wrong_model_is_refused_at_the_first_stage(tmp_path):
    found = fits.fitted(front_models.FITTED[front_models.WRONG](), 5.0, tmp_path / "run")
    assert found["grade"] == "refused"
    assert "breaks its own laws" in found["reasons"]
    assert found["stages"] == 1
    assert not list((tmp_path / "run").glob("round-*"))
    assert "**refused** | 0 |" in fits.table({"wrong": found})


def test_a_fit_is_a_row_and_is_kept(tmp_path, monkeypatch):
    row = {
        "grade": "good",
        "n": 10_000,
        "network": "mlp-1k",
        "minutes": 1.5,
        "measured": {
            "lrt_error": [0.05, 0.01],
            "coverage": [0.94, 0.01],
            "coverage_exact": [0.95, 0.01],
        },
    }
    asked = []
    monkeypatch.setattr(fits, "fitted", lambda *given: asked.append(given) or row)
    found = fits.run(quick=True, folder=tmp_path, runs=tmp_path)
    assert len(asked) == len(found) == 2
    assert fits.run(quick=True, folder=tmp_path, runs=tmp_path) == found
    assert len(asked) == 2
    text = fits.table(found)
    assert "| tutorial | **good** | 10,000 | mlp-1k | 0.05 ± 0.01 | 0.940 (0.950) | 1.5 |" in text
