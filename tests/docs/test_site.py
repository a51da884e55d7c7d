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
PAGES = ("index", "tutorial", "method", "notation", "concepts", "benchmarks", "api")
WITH_FORMULAS = {
    "tutorial": 8,
    "method": 20,
    "notation": 20,
    "howto/large_graphs": 1,
    "gallery/epidemic": 1,
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


@pytest.mark.parametrize("name", PAGES)
def test_no_page_scrolls_sideways_on_a_phone(site, browser, name):
    with Opened(browser, (site / f"{name}.html").as_uri(), PHONE) as opened:
        width = "document.documentElement.scrollWidth"
        assert opened.page.evaluate(width) <= PHONE["width"]


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


def test_every_public_name_is_on_the_reference_page():
    page = (ROOT / "docs/api.md").read_text()
    named = {line.rsplit(".", 1)[-1].strip() for line in page.splitlines() if line[:3] == ":::"}
    packages = {"models", "networks", "errors", "figures", "priors", "__version__"}
    assert set(ks.__all__) - packages <= named
    drawn = {"surface", "profile", "pairs", "training", "scorecard", "pilot", "save_figure"}
    assert drawn <= named
    assert set(ks.priors.__all__) <= named


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
