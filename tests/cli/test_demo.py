"""`keepscore demo` from end to end, small, and its own report in a real browser."""

import json
from types import SimpleNamespace

import pytest
from browsing import CUT, PAPER, PHONE, Opened
from typer.testing import CliRunner

import keepscore as ks
from keepscore.cli.app import app
from keepscore.cli.demo import ADVISED
from keepscore.evaluation.estimate import Estimate
from keepscore.evaluation.scorecard import SIZES, Row, Size
from keepscore.reports import EXACT, ReportContent, comparison
from keepscore.training import length

METHODS = ["BCE", "ASA", ADVISED]
REFINED = "ASA + 20 exact evaluations"
SHOWN = ["BCE", "ASA", REFINED, ADVISED]
pytestmark = pytest.mark.timeout(900)  # one fixture holds the whole demo; machines may be busy


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A thousand simulations, the smallest network, a thousand updates of the advised one and not
    seven thousand, and a scorecard of a few groups."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length, "LEAST_UPDATES", 1_000)
        patch.setattr(length, "UPDATES_PER_PARAMETER", 0)
        patch.setitem(SIZES, "small", Size(200, 50, 20, 2, 3))
        words = ["demo", "--out", str(folder), "-n", "1000", "--network", "3k", "--json"]
        done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder, json.loads(done.stdout)


def test_demo_answers_and_leaves_what_it_made(demo):
    folder, result = demo
    assert result["laws_hold"]
    assert list(result["scorecards"]) == METHODS
    for name in ("report.html", "report.json", "surfaces.png", "demo.command.json"):
        assert (folder / name).stat().st_size > 100, name


def test_every_part_of_the_report_knows_all_three(demo):
    content = ReportContent.from_dict(json.loads((demo[0] / "report.json").read_text()))
    assert [run.name for run in content.runs] == METHODS
    assert all(len(run.history) > 1 and run.seconds for run in content.runs)
    in_etest = [row for row in content.scorecard if REFINED in row.values]
    assert len(in_etest) == 4  # statistic, volume, two estimates; coverage has its own section
    assert all(list(row.values) == SHOWN for row in in_etest)
    assert all(list(r.values) == METHODS for r in content.scorecard if r not in in_etest)
    for row in in_etest[:1] + in_etest[2:]:  # errors against the exact likelihood
        assert row.values[REFINED].value < 0.1 * row.values["ASA"].value
    assert any("refined: error" in sentence for sentence in content.findings)
    with_exact = [*SHOWN, EXACT]
    assert list(content.coverage[0].values) == with_exact
    assert list(dict.fromkeys(i.method for i in content.intervals)) == with_exact
    assert all([s.method for s in g.surfaces] == with_exact for g in content.surfaces.groups)
    assert all(f"({name})" in content.findings[0] for name in METHODS)
    drawn = [row for row in content.posterior if row.method == ADVISED]
    assert [row.parameter for row in drawn] == ["lambda", "mu"]
    assert all(row.ess and row.r_hat for row in drawn)


def test_the_advised_surrogate_is_what_train_gives_by_default(demo):
    """The paper's two share network and settings; the third is `ks.train`'s default with the
    recipe."""
    bce, asa, advised = (ks.load(demo[0] / name).provenance for name in ("bce", "asa", "structure"))
    assert bce["training"]["network"] == asa["training"]["network"]
    assert bce["training"]["config"] == asa["training"]["config"]
    assert advised["training"]["network"]["family"] == "graph"  # what "auto" is for SIS
    recipe = ks.TrainConfig().to_dict()
    assert {k: recipe[k] for k in advised["training"]["config"]} == advised["training"]["config"]


def test_the_terminals_table_is_in_words_and_in_columns():
    three = {name: card(value) for name, value in zip(METHODS, (0.6, 0.4, 0.1), strict=True)}
    lines = comparison(three, {"BCE": 12.3, "ASA": None}).splitlines()
    assert lines[0].split("  ")[-1] == EXACT
    assert all(name in lines[0] for name in METHODS)
    words = [" ".join(line.split()) for line in lines[1:]]
    assert words[0] == "Score error, squared, mu 0.60 ± 0.10 0.40 ± 0.10 0.10 ± 0.10 0"
    assert words[1] == "Training time, seconds 12"
    assert max(map(len, lines)) <= 120


def card(value):
    """A scorecard of one line."""
    row = Row("L-test", "score_mse[mu]", Estimate(value, 0.1), Estimate(0.0, 0.0))
    return SimpleNamespace(rows=lambda: [row])


def test_the_demos_report_opens_quietly_and_its_surface_switches(demo, browser):
    address = (demo[0] / "report.html").as_uri()
    with Opened(browser, address) as opened:
        seen = []
        for label in (*SHOWN, "Exact"):
            opened.page.get_by_role("radio", name=label, exact=True).check()
            seen.append(opened.picture())
        assert [s["method"] for s in seen] == [*SHOWN, EXACT]
        assert len({s["map"] for s in seen}) >= 4  # the refined one looks like the exact one
        assert opened.complaints == []
        assert [u for u in opened.requests if not u.startswith("data:")] == [address]


@pytest.mark.parametrize("media", ["phone", "print"])
def test_the_demos_report_is_not_cut(demo, browser, media, tmp_path):
    viewport = PHONE if media == "phone" else PAPER
    with Opened(browser, (demo[0] / "report.html").as_uri(), viewport) as opened:
        if media == "print":
            opened.page.emulate_media(media="print")
        assert opened.page.evaluate(CUT) == []
        assert len(opened.page.screenshot(full_page=True, path=tmp_path / "page.png")) > 10_000
