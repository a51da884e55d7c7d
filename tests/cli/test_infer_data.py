"""`keepscore infer` and the data: those the model could not have made are called out loudly."""

import json
from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy
from training_helpers import SHORT, Tiny
from typer.testing import CliRunner

import keepscore as ks
from keepscore.cli.app import app
from keepscore.cli.data_answer import DataAnswer
from keepscore.evaluation import data_check_within
from keepscore.evaluation.data_check import _novelty
from keepscore.evaluation.data_check_within import check_data_within
from keepscore.reports.content import ReportContent
from keepscore.reports.data_fits import data_fits
from keepscore.reports.page import build

FIELD = ks.models.GaussianField(shape=(4, 4))
LOUD = "DO NOT TRUST"


@pytest.fixture(scope="module")
def surrogate():
    data = ks.simulate(FIELD, 300, seed=0, jobs=1)
    return ks.train(data, None, lambda key: Tiny(key, 16, 3), ks.BCE(), SHORT, progress=False)


@pytest.fixture(scope="module")
def elevation():
    """Twelve fields as the model makes them: standard deviation about 1."""
    return FIELD.simulate(np.tile([0.3, 0.3, -1.0], (12, 1)), np.random.default_rng(0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, elevation):
    made = tmp_path_factory.mktemp("data")
    data = ks.simulate(FIELD, 300, seed=0, jobs=1)
    ks.train(
        data, None, "mlp-1k", ks.BCE(), ks.TrainConfig(max_epochs=2, min_epochs=2, guard=False),
        made / "run", progress=False,
    )  # fmt: skip
    np.save(made / "scaled.npy", elevation)
    np.save(made / "raw.npy", 55 * elevation)
    return made


def infer(folder, name, *words):
    done = CliRunner().invoke(
        app, ["infer", str(folder / "run"), str(folder / name), *words], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done


def test_raw_elevation_is_called_out_before_any_answer(folder):
    """Standard deviation 55 where training had 1."""
    done = infer(folder, "raw.npy", "--out", str(folder / "answer"))
    assert done.stdout.startswith(LOUD)
    assert "unlike anything the surrogate was trained on" in done.stdout.splitlines()[0]
    assert LOUD in done.stderr
    assert "sd " in done.stdout.partition("observation(s)")[0]
    result = json.loads((folder / "answer" / "inference.json").read_text())
    assert result["data_check"]["fits"] is False
    assert result["data_check"]["novelty"] < 0.01
    assert result["data_check_left_out"] is None


def test_data_of_the_model_pass_and_the_table_comes_if_asked_for(folder):
    done = infer(folder, "scaled.npy", "--check-data")
    assert done.stdout.startswith("Data: Nothing here speaks against gaussian-field (p = ")
    assert LOUD not in done.output
    assert "maximised log-likelihood" in done.stdout
    found = check_data_within(ks.load(folder / "run"), np.load(folder / "scaled.npy"), FIELD)
    assert DataAnswer(found).lines() == [f"Data: {found.sentence}", ""]


def test_what_was_left_out_is_said_with_how_to_ask(folder, monkeypatch):
    monkeypatch.setattr(data_check_within, "seconds_per_row", lambda *given: 1.0)
    said = infer(folder, "raw.npy", "--json").stdout
    result = json.loads(said)
    assert result["data_check"] is None
    # 200 groups of 12, 1,000 for the centre, 2 * 12 / .01 to compare with: 5,800 seconds
    assert "5,800 simulations take about 97 min" in result["data_check_left_out"]
    assert any("--check-data asks for it" in note for note in result["notes"])
    refused = json.loads(infer(folder, "raw.npy", "--json", "--no-check-data").stdout)
    assert refused["data_check"] is None


@pytest.mark.slow
def test_the_page_has_a_box_with_the_figure(surrogate, elevation):
    found, notes = data_fits({"ASA": surrogate}, FIELD, elevation, True)
    assert notes == ()
    assert found[0].fits is True
    for fine in (True, False):
        content = ReportContent("T", data_fit=(replace(found[0], fits=fine),))
        page = build(content)
        assert 'id="data-fit"' in page
        assert "data:image/svg+xml;base64" in page
        assert ("Serious" in page) is not fine
        assert build(ReportContent.from_dict(content.to_dict())) == page


def test_a_page_says_that_it_did_not_look(surrogate, elevation, monkeypatch):
    monkeypatch.setattr(data_check_within, "seconds_per_row", lambda *given: 1.0)
    found, (note,) = data_fits({"ASA": surrogate}, FIELD, elevation)
    assert found == ()
    assert note.severity == "note"
    assert "was not checked" in note.text
    assert data_fits({"ASA": surrogate}, FIELD, elevation, False) == ((), ())


@pytest.mark.parametrize("n", [1, 10, 11, 40])
def test_many_observations_can_still_be_called_unlike(n):
    """n p-values in one: without more simulations none of 11 observations could be below .01."""
    model, rng = FastToy(), np.random.default_rng(n)
    network = ks.networks.MLP((4,), 2, rng, embedding=(8,), hidden=(8,))  # not trained
    surrogate = ks.Surrogate(network, model.space, model.x_shape)
    xs = model.simulate(np.tile([0.2, 0.1], (n, 1)), rng)
    assert _novelty(surrogate, model, 55 * xs, 0.01, rng) < 0.01
    assert _novelty(surrogate, model, xs, 0.01, rng) > 0.01


def test_seconds_per_row_is_a_time(monkeypatch):
    """A simulator that takes 10 ms per observation is found to take 10 ms (at least, on a busy
    machine)."""
    import time

    class Slow(ks.models.GaussianField):
        def simulate(self, theta, rng):
            time.sleep(0.01 * len(theta))
            return super().simulate(theta, rng)

    for same in (True, False):
        assert 0.01 <= data_check_within.seconds_per_row(Slow(shape=(3, 3)), same) < 0.1
