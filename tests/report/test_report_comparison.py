"""Several methods beside each other on a page, and the page of a reproduction."""

import json
import re
from types import SimpleNamespace

import pytest
from invented import invent
from report_sample import sample

from keepscore.errors import MissingError
from keepscore.evaluation.estimate import Estimate
from keepscore.evaluation.scorecard import Row
from keepscore.figures import coverage
from keepscore.figures.style import method_styles
from keepscore.figures.training_curves import component_lines
from keepscore.reports import (
    EXACT,
    ReportContent,
    build,
    ideals,
    scorecard_from,
    words,
)
from keepscore.reports.pictures import coverage_picture
from reproduction.claims import CLAIMS
from reproduction.page import VERDICTS, cases_in, reproduction_content


@pytest.fixture(scope="module")
def content():
    return sample()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep")
    invent(path, cases=("sis",))
    return path


@pytest.fixture(scope="module")
def page(folder):
    return reproduction_content(folder, "sis", "today")


def test_the_surest_answer_about_the_exact_likelihood_is_shown():
    """The nearer a surrogate comes, the better the least cross-entropy is known from it."""

    def card(excess, se):
        rows = [Row("L-test", "bce", Estimate(0.3 + excess, 0.01), Estimate(0.3 + se, se))]
        return SimpleNamespace(rows=lambda: rows, etest=None, etests=lambda method: {})

    cards = {"BCE": card(0.05, 0.02), "ASA": card(0.01, 0.005), "none": card(0.02, 0.03)}
    assert ideals(cards) == {"bce": Estimate(0.305, 0.005)}
    rows, _ = scorecard_from(cards)
    assert rows[0].exact == Estimate(0.305, 0.005)


def test_methods_keep_their_order_whatever_a_file_did(page):
    """JSON files are written with sorted keys."""
    text = json.dumps(page.to_dict(), allow_nan=False, sort_keys=True)
    back = ReportContent.from_dict(json.loads(text))
    assert [list(c.values) for c in back.coverage] == [list(c.values) for c in page.coverage]
    assert [list(r.values) for r in back.scorecard] == [list(r.values) for r in page.scorecard]
    assert list(page.coverage[0].values) != sorted(page.coverage[0].values)  # it matters


def test_nobody_looks_like_the_exact_likelihood():
    names = [f"run {k}" for k in range(15)]
    styles = method_styles([*names, "exact"])
    assert all(styles[name] != styles["exact"] for name in names)
    assert len({styles[name] for name in names[:6]}) == 6


def test_runs_differ_without_colour_where_dashes_mean_parameters(content):
    runs = [r for r in content.runs if any(e.score_loss for e in r.history)]
    mine = method_styles(["BCE", "ASA"])["ASA"]
    lines = component_lines(runs[0], "score_loss", mine)
    assert len(lines) == 2
    assert len({str(line.style.dash) for line in lines}) == 2
    assert all(line.mark == len(line.xs) - 1 for line in lines)
    assert {line.style.marker for line in lines} == {mine.marker}


def test_very_small_numbers_share_one_power_of_ten():
    assert words.measured(Estimate(1.52e-5, 2.7e-6)) == "(1.52 ± 0.27) × 10⁻⁵"
    assert words.measured(Estimate(-2e-7, 3e-6)) == "(−0.2 ± 3.0) × 10⁻⁶"
    assert words.measured(Estimate(0.000361, 0.000078)) == "0.000361 ± 0.000078"


# --- a reproduction -------------------------------------------------------------------------------


def test_a_reproduction_shows_the_papers_network_and_what_we_advise(folder, page):
    assert cases_in(folder) == ["sis"]
    assert page.methods[:2] == ("BCE, N = 30,000", "ASA, N = 30,000")  # as everywhere: BCE first
    assert page.methods[-2:] == ("ASA + structure, N = 30,000", EXACT)
    shown = [s.method for s in page.surfaces.groups[0].surfaces]
    largest = max(int(m.split("= ")[1].replace(",", "")) for m in page.methods if m[:4] == "ASA,")
    assert shown == [
        f"BCE, N = {largest:,}", f"ASA, N = {largest:,}", "ASA + structure, N = 30,000", EXACT,
    ]  # fmt: skip
    assert list(page.coverage[0].values) == list(page.methods)


def test_a_reproduction_says_what_the_exact_likelihood_scores(page):
    exact = {row.metric: row.exact for row in page.scorecard}
    assert exact["Volume of the confidence sets"] == Estimate(0.24, 0.002)
    assert exact["Cross-entropy"].value == pytest.approx(0.376)
    assert exact["Excess cross-entropy"] == Estimate(0.0)
    assert all(estimate is not None for estimate in exact.values())


def test_claims_read_as_sentences(page):
    assert 0 < len(page.findings) <= len(CLAIMS)
    for sentence in page.findings:
        assert re.fullmatch(r"[A-Z][^.]*(\d\.\d[^.]*)*: [a-z ]+\. Measured: .*[^.]\.", sentence), (
            sentence
        )
        assert any(f": {verdict}. " in sentence for verdict in VERDICTS.values())
    assert '<ul class="findings">' in build(page)


def test_names_of_cells_are_not_cut_in_the_picture_of_coverage(page):
    rows = [("95% sets", c.nominal, c.values) for c in page.coverage]
    names = [label.get_text() for label in coverage(rows).axes[0].get_yticklabels()]
    assert "ASA + structure, N = 30,000" in names
    assert "ASA + structure, N = 30,000 91.1%" in coverage_picture(page).alt


def test_a_folder_without_results_is_named(tmp_path):
    with pytest.raises(MissingError, match="python -m reproduction sis"):
        reproduction_content(tmp_path, "sis")
