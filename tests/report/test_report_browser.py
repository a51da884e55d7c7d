"""The report in a real browser: headless Chromium, driven by Playwright (tests/browsing.py)."""

from __future__ import annotations

import re

import numpy as np
import pytest
from browsing import CUT, PAPER, PHONE, Opened
from report_sample import HOSTILE, curve, hostile, sample

from keepscore.reports import ReportContent, build, write


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, tuple[ReportContent, str]]:
    folder = tmp_path_factory.mktemp("reports")
    made = {"two": sample(2), "three": sample(3, 2), "one": curve(), "hostile": hostile()}
    return {
        name: (content, write(content, folder / f"{name}.html").as_uri())
        for name, content in made.items()
    }


# What has the focus, and whether a ring (around it, or around its label) shows that.
FOCUSED = """() => {
  const node = document.activeElement, around = node.closest("label") || node;
  const ring = [node, around].some((n) => getComputedStyle(n).outlineStyle !== "none");
  return [node.id || node.name || node.className || node.tagName, ring];
}"""


@pytest.mark.parametrize("name", ["two", "three", "one", "hostile"])
def test_opens_quietly_and_asks_for_nothing(browser, reports, name):
    _, address = reports[name]
    with Opened(browser, address) as opened:
        assert opened.page.locator("#surface svg").is_visible()
        assert opened.complaints == []
        assert [u for u in opened.requests if not u.startswith("data:")] == [address]


def test_surface_switches_with_its_control(browser, reports):
    content, address = reports["two"]
    with Opened(browser, address) as opened:
        page = opened.page
        seen = [opened.picture()]
        pixels = [page.locator("#surface").screenshot()]
        for label in ("BCE", "Exact"):
            page.get_by_role("radio", name=label).check()
            seen.append(opened.picture())
            pixels.append(page.locator("#surface").screenshot())
        assert [s["method"] for s in seen] == ["ASA", "BCE", "exact"]
        for part in ("map", "set"):
            assert len({s[part] for s in seen}) == 3, part
        assert len(set(pixels)) == 3
        # Back again gives the first picture again, and other data give another.
        page.get_by_role("radio", name="ASA").check()
        assert opened.picture() == seen[0]
        page.get_by_label("Data set").select_option(label=content.surfaces.groups[1].name)
        assert opened.picture()["set"] != seen[0]["set"]
        assert opened.complaints == []


def test_overlay_is_dashed_and_can_be_turned_off(browser, reports):
    with Opened(browser, reports["two"][1]) as opened:
        overlay = opened.page.locator("#surface .exact-set")
        assert overlay.get_attribute("stroke-dasharray")
        opened.page.get_by_label("outline of the exact set").uncheck()
        assert overlay.count() == 0


@pytest.mark.parametrize("name", ["two", "three"])
def test_outline_is_where_the_numbers_say(browser, reports, name):
    """The outline's extent against the grid's values: catches swapped or flipped axes."""
    content, address = reports[name]
    surfaces = content.surfaces
    with Opened(browser, address) as opened:
        page = opened.page
        page.get_by_role("radio", name="Exact").check()
        shown = page.evaluate(
            """() => {
              const set = document.querySelector("#surface .set").getBBox();
              const box = document.querySelector("#surface rect.frame").getBBox();
              return [(set.x - box.x) / box.width, (set.x + set.width - box.x) / box.width,
                1 - (set.y + set.height - box.y) / box.height, 1 - (set.y - box.y) / box.height];
            }"""
        )
        surface = next(s for s in surfaces.groups[0].surfaces if s.method == "exact")
        values = surface.values
        if values.ndim == 3:
            axis = surfaces.axes[2].values
            values = values[:, :, np.abs(axis - surface.mle[2]).argmin()]
        cut = {2: 2.9957, 3: 3.9074}[len(surfaces.axes)]
        inside = values >= -cut
        for k, (low, high) in enumerate((shown[:2], shown[2:])):
            where = np.flatnonzero(inside.any(axis=1 - k)) / (inside.shape[k] - 1)
            step = 1 / (inside.shape[k] - 1)
            assert where.min() - step <= low <= where.min() + 0.01
            assert where.max() - 0.01 <= high <= where.max() + step


def test_keyboard_reads_the_grid(browser, reports):
    content, address = reports["two"]
    surfaces = content.surfaces
    group = surfaces.groups[0]
    start = [np.abs(a.values - t).argmin() for a, t in zip(surfaces.axes, group.truth, strict=True)]
    with Opened(browser, address) as opened:
        page = opened.page
        page.locator("#surface").focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
        i, j = start[0] + 3, start[1] - 1
        read = opened.picture()["read"].replace("−", "-")
        for surface in group.surfaces:
            label = "Exact" if surface.method == "exact" else surface.method
            value = float(re.search(rf"{label}\s+(-?[\d.]+)", read)[1])
            assert value == pytest.approx(surface.values[i, j], abs=0.006 + 0.05 * (value < -10))
        raw = float(re.search(r"sd = ([\d.]+)", read)[1])
        assert raw == pytest.approx(np.exp(surfaces.axes[1].values[j]), rel=1e-3)
        assert page.locator("#surface .cursor").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("#surface .cursor").count() == 0


def test_hovering_the_maximum_reads_zero(browser, reports):
    with Opened(browser, reports["two"][1]) as opened:
        page = opened.page
        page.locator("#surface").scroll_into_view_if_needed()
        box = page.locator("#surface .mark.mle").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        value = re.search(r"ASA\s+−?([\d.]+)\s+inside", opened.picture()["read"])
        assert float(value[1]) < 0.1
        page.mouse.move(2, 2)
        assert page.locator("#surface .cursor").count() == 0


def test_three_parameters_choose_slice_and_axis(browser, reports):
    _, address = reports["three"]
    with Opened(browser, address) as opened:
        page = opened.page
        first = opened.picture()
        page.locator("#pick-slice").focus()
        for _ in range(4):
            page.keyboard.press("ArrowRight")
        moved = opened.picture()
        assert moved["map"] != first["map"]
        text = page.locator("#slice-text").inner_text()
        assert page.locator("#pick-slice").get_attribute("aria-valuetext") == text
        assert text.startswith("log eps = ")
        page.get_by_label("Held fixed").select_option(label="log l_x")
        labels = page.locator("#surface text.t").all_text_contents()
        assert labels[:2] == ["log l_y", "log eps"]
        assert page.locator("#slice-text").inner_text().startswith("log l_x = ")
        assert opened.picture()["map"] != moved["map"]
        assert opened.complaints == []


def test_everything_is_reached_by_keyboard(browser, reports):
    with Opened(browser, reports["three"][1]) as opened:
        page = opened.page
        reached = []
        for _ in range(24):
            page.keyboard.press("Tab")
            reached.append(page.evaluate(FOCUSED))
        names = [name for name, _ in reached]
        assert names[0] == "skip"
        for wanted in (
            "pick-group",
            "method",
            "pick-overlay",
            "pick-axis",
            "pick-slice",
            "surface",
        ):
            assert wanted in names, (wanted, names)
        assert all(ring for name, ring in reached if name != "BODY"), reached
        page.get_by_role("radio", name="ASA").focus()
        page.keyboard.press("ArrowRight")
        assert opened.picture()["method"] == "BCE"


def test_a_name_with_a_script_stays_text(browser, reports):
    with Opened(browser, reports["hostile"][1]) as opened:
        page = opened.page
        assert page.title() == HOSTILE
        assert page.locator("h1").inner_text().replace("\n", "") == HOSTILE
        assert page.locator("#pick-group option").first.inner_text() == HOSTILE
        page.locator("#pick-method label", has_text=HOSTILE).click()
        page.locator("#surface").focus()
        page.keyboard.press("ArrowRight")
        assert HOSTILE in page.locator("#readout").inner_text()
        assert HOSTILE in page.locator("#keys").inner_text()
        assert page.locator("script").count() == 2
        assert page.locator("img:not([src^='data:'])").count() == 0
        assert opened.complaints == []
        assert [u for u in opened.requests if not u.startswith("data:")] == [reports["hostile"][1]]


def test_policy_stops_what_escaping_would_miss(browser, reports, tmp_path):
    inject = """() => {
      const script = document.createElement("script");
      script.textContent = "window.taken = 1";
      document.body.append(script);
      return window.taken === 1;
    }"""
    with Opened(browser, reports["two"][1]) as opened:
        assert opened.page.evaluate(inject) is False
        assert any("Content Security Policy" in c for c in opened.complaints)
    # Without the policy the same script runs: the check above is not empty.
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", build(sample(2, 1)))
    (tmp_path / "bare.html").write_text(bare)
    with Opened(browser, (tmp_path / "bare.html").as_uri()) as opened:
        assert opened.page.evaluate(inject) is True


@pytest.mark.parametrize(
    ("name", "width"),
    [(name, width) for name in ("two", "hostile") for width in (320, 360, 768, 1280)]
    + [("three", 360), ("one", 360)],
)
def test_nothing_is_cut_at_any_width(browser, reports, name, width, tmp_path):
    with Opened(browser, reports[name][1], {"width": width, "height": 740}) as opened:
        page = opened.page
        assert page.evaluate(CUT) == []
        page.locator("details").evaluate("node => { node.open = true; }")
        assert page.evaluate(CUT) == []
        assert len(page.screenshot(full_page=True, path=tmp_path / "page.png")) > 10_000


def test_a_cut_page_would_be_noticed(browser, reports):
    with Opened(browser, reports["two"][1], PHONE) as opened:
        page = opened.page
        page.locator("h1").evaluate("node => { node.style.whiteSpace = 'nowrap'; }")
        assert any("scrolls sideways" in found for found in page.evaluate(CUT))
        page.locator("h1").evaluate("node => { node.style.overflow = 'hidden'; }")
        assert any("clipped" in found for found in page.evaluate(CUT))


def test_turning_the_phone_draws_anew(browser, reports):
    with Opened(browser, reports["two"][1], PHONE) as opened:
        page = opened.page
        width = "() => document.querySelector('#surface svg').viewBox.baseVal.width"
        narrow = page.evaluate(width)
        page.set_viewport_size({"width": 740, "height": 360})
        for _ in range(100):  # the page's policy forbids wait_for_function, which evaluates text
            if page.evaluate(width) > narrow + 30:
                break
            page.wait_for_timeout(50)
        assert page.evaluate(width) > narrow + 30
        assert page.evaluate(CUT) == []


@pytest.mark.parametrize("name", ["two", "three", "one", "hostile"])
def test_print_shows_every_method_and_cuts_nothing(browser, reports, name, tmp_path):
    content, address = reports[name]
    with Opened(browser, address, PAPER) as opened:
        page = opened.page
        page.emulate_media(media="print")
        assert page.evaluate(CUT) == []
        for hidden in ("#controls", "#surface", "nav"):
            assert not page.locator(hidden).is_visible()
        multiples = page.locator("#multiples svg")
        assert multiples.count() == len(content.surfaces.groups[0].surfaces)
        for k in range(multiples.count()):
            assert multiples.nth(k).bounding_box()["width"] > 150
        assert page.locator("details table").is_visible()
        assert content.surfaces.groups[0].name in page.locator("#multiples-caption").inner_text()
        assert len(page.screenshot(full_page=True, path=tmp_path / "print.png")) > 10_000
        paper = page.pdf(format="A4")
        assert paper.startswith(b"%PDF")
        assert len(re.findall(rb"/Type\s*/Page\b", paper)) >= 1


def test_without_scripts_the_numbers_are_still_there(browser, reports):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(reports["two"][1])
    assert "needs JavaScript" in page.locator("#surfaces noscript").inner_text()
    assert not page.locator("#viewer").is_visible()
    page.locator("summary").click()
    assert page.locator("details table").is_visible()
    context.close()
