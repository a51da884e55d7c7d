"""`keepscore demo` from end to end, small, and its own report in a real browser."""

import json

import pytest
from browsing import CUT, PAPER, PHONE, Opened
from typer.testing import CliRunner

from keepscore.cli.app import app
from keepscore.evaluation.scorecard import SIZES, Size


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Two thousand simulations, the smallest network and a scorecard of a few groups."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "small", Size(200, 50, 20, 2, 3))
        words = ["demo", "--out", str(folder), "-n", "2000", "--network", "3k", "--json"]
        done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder, json.loads(done.stdout)


def test_demo_answers_and_leaves_what_it_made(demo):
    folder, result = demo
    assert result["laws_hold"]
    assert set(result["scorecards"]) == {"BCE", "ASA"}
    for name in ("report.html", "report.json", "surfaces.png", "demo.command.json"):
        assert (folder / name).stat().st_size > 100, name


def test_the_demos_report_opens_quietly_and_its_surface_switches(demo, browser):
    address = (demo[0] / "report.html").as_uri()
    with Opened(browser, address) as opened:
        seen = []
        for label in ("BCE", "ASA", "Exact"):
            opened.page.get_by_role("radio", name=label).check()
            seen.append(opened.picture())
        assert [s["method"] for s in seen] == ["BCE", "ASA", "exact"]
        assert len({s["map"] for s in seen}) == 3
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
