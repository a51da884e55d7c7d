"""The code in the documentation runs, and the tutorial's sets cover."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from toys import GaussianToy
from training_helpers import Tiny

import keepscore as ks
from keepscore.evaluation.scorecard import SIZES, Size
from keepscore.training import length

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("run_page", ROOT / "docs" / "run_page.py")
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)


def code_of(name):
    return pages.BLOCK.findall((ROOT / name).read_text())


def test_the_code_of_adding_a_model_runs():
    blocks = code_of("docs/adding_a_model.md")
    assert len(blocks) == 3
    names = {"__name__": "__page__"}
    for block in blocks:  # one after the other, as a reader would
        exec(block, names)
    assert names["rows"].structure == "iid"


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, recwarn):
    """As it stands but for its length: 1,000 simulations and some 200 updates. What comes of it is
    poor, and says so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(length, "LEAST_UPDATES", 200)
    monkeypatch.setattr(length, "UPDATES_PER_PARAMETER", 0)
    monkeypatch.setattr(length, "PAPER_EPOCHS", ((1_000, 4), (10_000, 2)))
    (block,) = code_of("README.md")
    assert "ks.simulate(model, 30_000" in block
    names = {}
    exec(block.replace("30_000", "1_000"), names)  # the same ten lines, on fewer simulations
    assert names["surrogate"].space == names["model"].space
    assert ks.load(tmp_path / "runs/sis/asa").x_shape == (13, 8)


# How-to pages: what a block needs to be there already, and what is made smaller for the test.
SMALLER = {
    "networks": {"network=MyNetwork": "network=MyNetwork, config=config"},
    "resume": {},
    "scorecard": {},
    "worth": {"8_000": "400"},
    "large_graphs": {
        "64, seed": "12, seed",
        "30_000": "400",
        "TrainConfig(": "TrainConfig(min_epochs=2, ",
    },
}


@pytest.mark.parametrize(
    "page",
    [
        "networks",
        "resume",
        "scorecard",
        pytest.param("worth", marks=pytest.mark.slow),
        pytest.param("large_graphs", marks=pytest.mark.slow),
    ],
)
def test_the_code_of_the_how_tos_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SIZES, "small", Size(60, 20, 4, 2, 2))
    model, config = GaussianToy(4), ks.TrainConfig(batch_size=32, min_epochs=1, max_epochs=1)
    data = ks.simulate(model, 400, path="runs/sis/train", jobs=1)
    names = {"ks": ks, "model": model, "data": data, "config": config}
    if page != "networks":
        names["surrogate"] = ks.train(data, None, Tiny, None, config)
    (block,) = code_of(f"docs/howto/{page}.md")
    for large, small in SMALLER[page].items():
        assert large in block
        block = block.replace(large, small)
    exec(block, names)
    assert capsys.readouterr().out.strip()
    if page == "networks":
        the_declared_head_is_linear(names["surrogate"], model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "network", "parameter"),
    [("maps", "map-30k", "spread"), ("paths", "path-30k", "reported")],
)
def test_the_pages_without_a_likelihood_run(
    page, network, parameter, tmp_path, monkeypatch, capsys, recwarn
):
    """As they stand but for their length; what is kept after so few updates is anybody's guess."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(length, "LEAST_UPDATES", 100)
    monkeypatch.setattr(length, "UPDATES_PER_PARAMETER", 0)
    names = {}
    for block in code_of(f"docs/howto/{page}.md"):
        exec(block.replace("5_000", "300"), names)
    assert network in names["surrogate"].provenance["candidates"]
    assert parameter in capsys.readouterr().out


def test_the_page_on_refining_runs_and_says_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/howto/refine.md").read_text()
    smaller = {"3_000": "1_000", "=20": "=3", "side = 41": "side = 9"}
    for large, small in smaller.items():
        assert large in page
        page = page.replace(large, small)
    text, names = pages.run_page(page)
    assert "refined: error" in text
    ours, truth = (ks.mle(names[k]).estimate for k in ("refined", "exact"))
    np.testing.assert_allclose(ours, truth, atol=0.01)
    assert (tmp_path / "refine.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_page_on_imperfect_tests_runs(recwarn):
    page = (ROOT / "docs/gallery/epidemic.md").read_text()
    training = "config=ks.TrainConfig(batch_size=32, min_epochs=1, max_epochs=1)"
    smaller = {
        "draws=400": "draws=50",
        "5_000": "300",
        "progress=False": training,
        "(30, 1)": "(3, 1)",
        "repeats, size = 20, 10": "repeats, size = 2, 2",
        "many[:60]": "many",
    }
    for large, small in smaller.items():
        assert large in page
        page = page.replace(large, small)
    text, names = pages.run_page(page)
    assert names["report"].passed
    assert names["unknown"].space.names[2:] == ("sensitivity", "specificity")
    assert text.count("bias of log mu") == 2


SHORTER = {
    "1_000": "200",
    "3_000": "200",
    "epochs=20": "epochs=1",
    "epochs=25": "epochs=1",
    "draws=300": "draws=60",
}


@pytest.mark.parametrize("page", ["howto/missing", "gallery/regression"])
def test_the_pages_on_missing_values_run(page):
    """The same code on fewer simulations; what it prints is not compared."""
    text = (ROOT / f"docs/{page}.md").read_text()
    for large, small in SHORTER.items():
        text = text.replace(large, small)
    found, names = pages.run_page(text)
    assert names["surrogate"].missing
    assert names["data"].missing
    assert "BROKEN" not in found


def test_the_page_on_designs_runs():
    """The same code on fewer simulations; what it prints is not compared."""
    page = (ROOT / "docs/howto/designs.md").read_text()
    smaller = {"3_000": "200", "epochs=25": "epochs=1", "(20, 1)": "(3, 1)"}
    for large, small in smaller.items():
        assert large in page
        page = page.replace(large, small)
    text, names = pages.run_page(page)
    assert names["surrogate"].missing
    assert text.count(" visits   exact [") == 3
    assert names["xs"].shape == (3, 15, 8)


def the_declared_head_is_linear(surrogate, model):
    """A group by its summed features is the sum over its observations."""
    theta = model.space.uniform(5, np.random.default_rng(0))
    xs = model.simulate(np.zeros((7, 2)), np.random.default_rng(1))
    one_by_one = [surrogate.log_ratio(np.tile(t, (7, 1)), xs).sum() for t in theta]
    np.testing.assert_allclose(surrogate.given(xs)(theta), one_by_one, atol=1e-4)


@pytest.mark.slow
def test_the_tutorials_sets_cover(recwarn):
    """40 groups at each of 100 theta: standard error .003 around .95, and .011 from the 1,000
    held-out groups of the calibration itself; three of them together is a false alarm of 0.3%."""
    text, names = pages.run_page((ROOT / "docs/tutorial.md").read_text())
    assert names["report"].passed
    value, error = names["coverage"].overall("calibrated")
    assert abs(value - 0.95) < 3 * (error**2 + 0.95 * 0.05 / 1000) ** 0.5
    assert "calibrated" in text


def test_files_the_pages_link_to_are_there():
    pages_ = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks/README.md"]
    links = [(p, link) for p in pages_ for link in re.findall(r"\]\(([^)#]+)", p.read_text())]
    local = [(p, link) for p, link in links if "://" not in link]
    assert len(local) > 60
    assert [(str(p), link) for p, link in local if not (p.parent / link).exists()] == []


@pytest.mark.slow
def test_the_page_on_volatility_runs(recwarn):
    pytest.importorskip("numpyro")
    page = (ROOT / "docs/gallery/volatility.md").read_text()
    smaller = {
        "10_000": "300",
        "guard=False": "guard=False, min_epochs=1, max_epochs=1",
        "sequence-30k": "mlp-1k",
        "n=1_000": "n=100",
        "groups=10": "groups=2",
        "draws=200": "draws=100",
    }
    for large, small in smaller.items():
        assert large in page
        page = page.replace(large, small)
    text, names = pages.run_page(page)
    assert names["model"].score_kind == "joint"
    assert names["xs"].shape == (10, 104, 1)
    assert "calibrated" in text


def test_the_page_on_real_fields_runs():
    page = (ROOT / "docs/howto/real_fields.md").read_text()
    smaller = {"draws=200": "draws=50", "(40, 1)": "(4, 1)"}
    for large, small in smaller.items():
        assert large in page
        page = page.replace(large, small)
    text, names = pages.run_page(page)
    assert "no law broken" in text
    assert text.count("True") == 2
    assert names["fields"].x.shape == (1, 12, 10)


@pytest.mark.slow
def test_the_page_on_terrain_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/gallery/terrain.md").read_text()
    training = "config=ks.TrainConfig(batch_size=32, min_epochs=1, max_epochs=1, guard=False)"
    smaller = {
        "draws=200": "draws=50",
        "len(patches), 21)": "len(patches), 262)",
        "len(patches), 5)": "len(patches), 262)",
        "8_000": "200",
        "train(data, progress=False)": f"train(data, progress=False, {training})",
        "ks.TrainConfig(guard=False)": training.removeprefix("config="),
        "2_000": "100",
    }
    for large, small in smaller.items():
        assert large in page
        page = page.replace(large, small)
    text, names = pages.run_page(page)
    assert names["report"].passed
    assert names["surrogate"].trend is not None
    assert names["second"].missing
    assert names["ratio"].shape == (21, 25)
    assert (tmp_path / "terrain.png").stat().st_size > 10_000
    assert "BROKEN" not in text


FILLED = ["gallery/terrain", "howto/real_fields"]
FILLED += ["tutorial", "gallery/epidemic", "gallery/volatility", "gallery/regression"]
FILLED += ["howto/missing", "tutorials/joint_scores", "tutorials/one_data_set"]


@pytest.mark.parametrize("page", [f"{name}.md" for name in FILLED])
def test_outputs_in_pages_were_filled_in(page):
    text = (ROOT / "docs" / page).read_text()
    marks = pages.MARK.findall(text)
    assert marks == [str(k) for k in range(1, len(marks) + 1)]
    assert text.count("```text") == len(marks)


def test_the_walk_of_one_batch_names_files_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    walk = text[text.index("The walk of one batch") : text.index("Mathematics first")]
    files = re.findall(r"`((?:[a-z_]+/)*(?:[a-z_]+\.py)?)`", walk)
    assert len(files) > 15
    assert [f for f in files if not (ROOT / "src/keepscore" / f).exists()] == []
