"""The documentation as a site: built strictly, opened from disk in a real browser, no network.

Formulas are MathML. A formula counts as set if the browser gave it a size, and no TeX is left.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browsing import Opened

import keepscore as ks

ROOT = Path(__file__).parents[2]
WITH_FORMULAS = {
    "tutorial": 8,
    "method": 20,
    "notation": 20,
    "howto/large_graphs": 1,
    "howto/real_fields": 10,
    "tutorials/joint_scores": 10,
    "gallery/epidemic": 1,
    "gallery/volatility": 10,
}
PHONE = {"width": 390, "height": 800}


def required(name):
    """A part of the docs extra: skipped where it is not installed, never in CI."""
    if importlib.util.find_spec(name) is None:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(f"{name} is not installed; it is in the docs extra.")
        pytest.skip(f"{name} is not installed; it is in the docs extra.")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    required("latex2mathml")
    required("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    words = ["build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words], cwd=ROOT, capture_output=True, text=True,
        timeout=240, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


MATH = """() => [...document.querySelectorAll("math")].map((m) => {
  const box = m.getBoundingClientRect();
  return [box.width, box.height, m.getAttribute("alttext")];
})"""
TEX = re.compile(r"\\[(\[a-zA-Z]|\$[^$\n]+\$")


@pytest.mark.parametrize("name", WITH_FORMULAS)
def test_formulas_are_set_offline(site, browser, name):
    with Opened(browser, (site / f"{name}.html").as_uri()) as opened:
        found = opened.page.evaluate(MATH)
        assert len(found) >= WITH_FORMULAS[name]
        assert all(width > 3 and height > 5 for width, height, _ in found), found
        # Code may hold a dollar or a backslash; text may not.
        opened.page.evaluate("document.querySelectorAll('pre, code').forEach((n) => n.remove())")
        text = opened.page.locator("article").inner_text()
        assert TEX.findall(text) == []
        assert [u for u in opened.requests if not u.startswith(("file:", "data:"))] == []


def test_tex_that_was_left_would_be_found():
    assert TEX.findall(r"pulled back at rate \(\kappa\)")
    assert TEX.findall("at rate $x + 1$ and")
    assert not TEX.findall("a cost of 3 to 10 per row")


# A page scrolls sideways, or hides what is wider than the screen in a box that does not scroll.
HIDDEN = """() => {
  const wide = document.documentElement.clientWidth + 1;
  const scrolls = (e) => {
    for (let p = e; p && p !== document.body; p = p.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(p).overflowX)) return true;
    return false;
  };
  const cut = [...document.querySelectorAll("article *")]
    .filter((e) => e.getBoundingClientRect().right > wide && !scrolls(e))
    .map((e) => `${e.tagName}: ${e.textContent.slice(0, 40)}`);
  const blank = [...document.images].filter((i) => i.naturalWidth === 0).map((i) => i.src);
  return [...cut, ...blank, ...(document.documentElement.scrollWidth > wide ? ["page"] : [])];
}"""


def test_a_phone_shows_every_page_whole(site, browser):
    """Wide tables, code, formulas and pictures scroll within themselves; no picture is missing."""
    pages = sorted(p for p in site.rglob("*.html") if p.name != "404.html")
    assert len(pages) > 25
    faults = {}
    with Opened(browser, pages[0].as_uri(), PHONE) as opened:
        opened.page.route("**/*.js", lambda route: route.abort())  # twice as fast
        for path in pages:
            opened.page.goto(path.as_uri())
            faults[str(path)] = opened.page.evaluate(HIDDEN)
        assert {name: found for name, found in faults.items() if found} == {}
        # A control: what sticks out is found.
        opened.page.evaluate(
            "document.querySelector('article').insertAdjacentHTML('beforeend', "
            "'<div style=\"width: 900px\">wide</div>')"
        )
        assert any("wide" in fault for fault in opened.page.evaluate(HIDDEN))


def test_the_site_has_every_page(site):
    pages = {p.relative_to(ROOT / "docs").with_suffix("") for p in (ROOT / "docs").rglob("*.md")}
    assert all((site / f"{page}.html").exists() for page in pages)
    nav = (ROOT / "mkdocs.yml").read_text()
    assert [str(p) for p in pages if f"{p}.md" not in nav] == []


def test_constructors_and_functions_show_their_signatures(site):
    text = re.sub(r"<[^>]+>", "", (site / "api.html").read_text())
    for signature in (
        r"Parameter\(\s*name: str,\s*lower: float",
        r"SIS\(\s*\w+",
        r"GaussianField\(\s*side: int",
        r"report\(\s*surrogates: Mapping",
        r"surface\(\s*found: Likelihood",
    ):
        assert re.search(signature, text), signature


def test_the_reference_shows_examples_as_code_and_no_internals(site):
    page = (site / "api.html").read_text()
    assert "<blockquote" not in page  # what becomes of >>> in prose
    assert page.count("&gt;&gt;&gt;") > 100
    text = re.sub(r"<[^>]+>", "", page)
    inside = ("require_", "ModuleType", "unnormalised", "from_unit", "plain_numbers", "_name(")
    assert [word for word in inside if word in text] == []
    assert "top of this file" not in text
    assert re.findall(r"the top of \S+\.py", text) == []


def test_units_of_the_fields_are_said_where_a_reader_looks(site):
    """eps is a standard deviation and sigma2 a variance: the reference, concepts and notation."""
    for name in ("api", "concepts", "notation"):
        text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", (site / f"{name}.html").read_text()))
        assert re.search(r"eps.{0,40}standard deviation|standard deviation of the nugget", text)
        assert re.search(r"sigma2.{0,20}variance|variance of the smooth part", text)
    for field in (ks.models.GaussianField, ks.models.StudentTField):
        assert "standard deviation" in " ".join(field.__doc__.replace("*", "").split())


def test_every_public_name_is_on_the_reference_page():
    page = (ROOT / "docs/api.md").read_text()
    named = {line.rsplit(".", 1)[-1].strip() for line in page.splitlines() if line[:3] == ":::"}
    packages = {"models", "networks", "errors", "figures", "priors", "__version__"}
    assert set(ks.__all__) - packages <= named
    drawn = {"surface", "profile", "pairs", "training", "scorecard", "pilot", "save_figure"}
    assert drawn <= named
    assert set(ks.priors.__all__) <= named
    # Of the models all but what serves files and registries; and what functions return.
    assert set(ks.models.__all__) - {"Symmetry", "build", "describe", "registered"} <= named
    assert {"MLE", "LRT", "ConfidenceSet", "Intervals", "Calibration", "Fit", "Quality"} <= named


def test_the_readme_is_short_and_its_links_are_few():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert "pip install keepscore" in text
    assert len(re.findall(r"\]\((?!https?:)", text)) <= 15
    assert text.count("\n|---") <= 1  # benchmark tables have a page of their own


def test_concepts_say_what_they_print():
    required("mkdocs")
    spec = importlib.util.spec_from_file_location("run_page", ROOT / "docs" / "run_page.py")
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    text = (ROOT / "docs/concepts.md").read_text()
    assert pages.run_page(text)[0] == text
