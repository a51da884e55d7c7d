"""The report without a browser: content goes to JSON and back, warnings follow from the numbers,
the page holds everything it shows, and nothing a user wrote becomes markup."""

from __future__ import annotations

import base64
import dataclasses
import io
import itertools
import json
import math
import re
import types
import typing
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from numpy.typing import NDArray
from report_sample import HOSTILE, curve, hostile, sample, three_parameters
from toys import GaussianToy

import keepscore as ks
from keepscore.errors import DomainError, FormatError, MismatchError, ShapeError, StorageError
from keepscore.evaluation import Epoch, Estimate, Run
from keepscore.evaluation.etest import ETest, Inferences
from keepscore.evaluation.ltest import LTest
from keepscore.evaluation.scorecard import Scorecard
from keepscore.reports import (
    Axis,
    Coverage,
    Example,
    Group,
    Interval,
    Notice,
    PosteriorRow,
    ReportContent,
    ScoreRow,
    Surface,
    Surfaces,
    build,
    example_from,
    intervals_from,
    picture_from,
    scorecard_from,
    surfaces_from,
    warnings_for,
    write,
)
from keepscore.reports.codec import decode
from keepscore.reports.notices import wilks_cut
from keepscore.reports.page import best_methods, json_for_script
from keepscore.reports.svg import log_ticks, png, ticks
from keepscore.reports.words import duration, fixed, measured, number, percent, span


@pytest.fixture(scope="module")
def content() -> ReportContent:
    return sample()


def texts(content: ReportContent, severity: str | None = None) -> str:
    return " ".join(n.text for n in warnings_for(content) if severity in (None, n.severity))


# --- content ------------------------------------------------------------------------------------


def test_content_survives_json(content):
    text = json.dumps(content.to_dict(), allow_nan=False)
    back = ReportContent.from_dict(json.loads(text))
    assert back.to_dict() == content.to_dict()
    assert build(back) == build(content)


def test_arrays_are_known_by_their_hint_in_every_numpy():
    """Up to NumPy 2.4 NDArray[...] is np.ndarray[...]; from 2.5 on a lazy alias that holds it."""

    class Alias:
        __value__ = np.ndarray[typing.Any, np.dtype[typing.Any]]

    for kind in (NDArray[np.float64], types.GenericAlias(Alias(), (np.float64,))):
        for hint in (kind, types.GenericAlias(tuple, (kind, ...)), typing.Optional[kind]):  # noqa: UP045
            value = [[1.0, 2.0]] if typing.get_origin(hint) is tuple else [1.0, 2.0]
            found = decode(hint, value, "place")
            found = found[0] if isinstance(found, tuple) else found
            np.testing.assert_array_equal(found, [1.0, 2.0])
        with pytest.raises(FormatError, match="place must be a list of numbers"):
            decode(kind, "text", "place")


def test_values_that_json_lacks_survive():
    values = np.array([[0.0, -np.inf], [-1.0, -2.0]])
    axes = (Axis("a", np.array([0.0, 1.0])), Axis("b", np.array([0.0, 1.0])))
    surfaces = Surfaces(axes, (Group("g", (Surface("exact", values),)),))
    runs = (Run("r", history=(Epoch(1, math.nan),)),)
    content = ReportContent("t", surfaces=surfaces, runs=runs)
    back = ReportContent.from_dict(json.loads(json.dumps(content.to_dict(), allow_nan=False)))
    assert back.surfaces.groups[0].surfaces[0].values[0, 1] == -np.inf
    assert math.isnan(back.runs[0].history[0].train_bce)
    assert "null" in build(back)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 99}, "format 99"),
        ({"titel": "x"}, "Did you mean 'title'"),
        ({"title": 3}, "report.title must be str"),
        ({"runs": 5}, "report.runs must be a list"),
        ({"runs": [{"name": "a", "parameters": "many"}]}, r"runs\[0\].parameters"),
        ({"runs": [{}]}, r"runs\[0\] lacks something"),
        ({"warnings": [{"severity": "loud", "text": ""}]}, "Unknown severity"),
        ({"examples": [{"title": "e", "values": [[1], [1, 2]]}]}, "rectangular"),
        ({"scorecard": [{"metric": "m", "meaning": "", "values": {"a": 1}}]}, "values.a"),
    ],
)
def test_foreign_content_is_refused_with_the_place(change, said):
    with pytest.raises(FormatError, match=said):
        ReportContent.from_dict({"format": 1, "title": "t", **change})


def test_surfaces_must_fit_their_grid():
    axis = Axis("a", np.array([0.0, 1.0, 2.0]))
    with pytest.raises(ShapeError, match="grid's shape"):
        Surfaces((axis,), (Group("g", (Surface("exact", np.zeros(2)),)),))
    with pytest.raises(DomainError, match="relative to its maximum"):
        Surface("exact", np.array([0.0, 3.0]))
    with pytest.raises(DomainError, match="increasing"):
        Axis("a", np.array([1.0, 0.0]))
    with pytest.raises(DomainError, match="1 to 3"):
        Surfaces((axis,) * 4, ())


# --- surfaces from likelihoods --------------------------------------------------------------------


def test_surfaces_are_the_likelihood_below_its_maximum():
    like, centre = three_parameters(2)
    made = surfaces_from({"exact": like}, {"exact": centre}, points=9)
    for g, group in enumerate(made.groups):
        values = group.surfaces[0].values
        index = (2, 7, 4)
        theta = np.array([axis.values[k] for axis, k in zip(made.axes, index, strict=True)])
        below = like.pairs(theta[None], np.array([g])) - like.pairs(centre[[g]], np.array([g]))
        np.testing.assert_allclose(values[index], below[0], rtol=1e-12)
        # The maximum lies between grid points: the grid alone would have said 0.
        assert values.max() < 0
    np.testing.assert_allclose(made.axes[2].raw_values, np.exp(made.axes[2].values))
    with pytest.raises(MismatchError, match="other groups"):
        surfaces_from({"exact": like, "other": three_parameters(3)[0]})


def test_wilks_cut_is_half_the_quantile():
    assert wilks_cut(0.95, 2) == pytest.approx(-math.log(0.05))  # chi2 with 2 df is exponential


def test_results_of_the_package_become_records():
    toy = GaussianToy(6)
    rng = np.random.default_rng(3)
    truth = np.array([0.2, 0.1])
    like = toy.given(toy.simulate(np.tile(truth, (10, 1)), rng))
    found, sets = ks.mle(like), ks.confidence_set(like)
    rows = intervals_from("exact", found, sets.intervals, truth=truth)
    assert [row.parameter for row in rows] == ["mean", "sd"]
    for k, row in enumerate(rows):
        assert row.lower < row.estimate < row.upper
        assert row.estimate == found.raw[k]
        assert row.truth == pytest.approx(toy.space.to_raw(truth)[k])
    many = ks.mle(toy.given(np.stack([toy.simulate(np.tile(truth, (10, 1)), rng)] * 2)))
    with pytest.raises(ShapeError, match="one data set"):
        intervals_from("exact", many, sets.intervals)


def test_scorecards_become_rows_and_coverage():
    def inferences(covered):
        empty = np.zeros((4, 5))
        return Inferences(np.zeros((4, 5, 2)), empty, empty, np.full((4, 5), covered), 3, 0)

    def card(bce, coverage):
        one = Estimate(bce, 0.01)
        loss = LTest(("mean", "sd"), 100, 50, 20, one, (one, one), (1.0, 1.0), one, one,
                     Estimate(0.3, 0.01), Estimate(bce - 0.3, 0.01), 0.0)  # fmt: skip
        test = ETest(GaussianToy().space, np.zeros((4, 2)), 10, 0.95, inferences(True),
                     inferences(True), one, Estimate(coverage, 0.01), Estimate(0.94, 0.01),
                     one, one, (one, one), 0.1)  # fmt: skip
        return Scorecard("toy", "small", 0, loss, test)

    rows, coverage = scorecard_from({"ASA": card(0.4, 0.95), "BCE": card(0.5, 0.8)})
    assert rows[0].metric == "Cross-entropy"
    assert rows[0].values == {"ASA": Estimate(0.4, 0.01), "BCE": Estimate(0.5, 0.01)}
    assert rows[0].exact.value == pytest.approx(0.3)  # the surrogate's, less its excess
    assert {"Score error, squared, mean", "Score error, squared, sd"} <= {r.metric for r in rows}
    assert not any("overage" in row.metric for row in rows)
    assert not any(row.metric.islower() for row in rows)  # every metric has its words
    assert coverage[0].groups == 20
    assert coverage[0].cut == {"ASA": 3, "BCE": 3, "exact": 3}
    assert list(coverage[0].values) == ["ASA", "BCE", "exact"]
    content = ReportContent("t", scorecard=rows, coverage=coverage)
    assert "80.0% ± 1.0 of the time with BCE" in texts(content, "serious")


def test_alpha_of_every_parameter_is_drawn(content):
    page = build(content)
    assert "ASA, log λ" in page
    assert "ASA, log μ" in page
    single = run([0.5, 0.4, 0.45]).runs[0]
    scored = [dataclasses.replace(e, alpha=0.1 * e.epoch, score_loss=1.0) for e in single.history]
    made = ReportContent("t", runs=(dataclasses.replace(single, history=tuple(scored)),))
    assert made.runs[0].history[0].alpha == (0.1,)
    assert "Weight α" in build(made)
    assert "Weight α" not in build(run([0.5, 0.4, 0.45]))


# --- warnings -------------------------------------------------------------------------------------


def covering(**values: Estimate) -> ReportContent:
    return ReportContent("t", coverage=(Coverage(0.95, values),))


def test_under_coverage_is_said_beyond_two_standard_errors_only():
    assert "86.0% ± 0.6 of the time with BCE" in texts(covering(BCE=Estimate(0.86, 0.006)))
    assert texts(covering(BCE=Estimate(0.94, 0.006))) == ""
    assert "hold the truth" in texts(covering(BCE=Estimate(0.937, 0.006)), "caution")
    assert "chi-squared" in texts(covering(exact=Estimate(0.9, 0.006)))
    assert "known only to" in texts(covering(ASA=Estimate(0.93, 0.05)))
    assert "larger than they need" in texts(covering(ASA=Estimate(0.999, 0.001)), "note")


def run(validation: list[float | None], **more) -> ReportContent:
    history = tuple(Epoch(k + 1, 0.5, v) for k, v in enumerate(validation))
    return ReportContent("t", runs=(Run("BCE", history=history, **more),))


def test_poor_convergence_is_said():
    good = [0.6, 0.5, 0.45, 0.42, 0.41, 0.415, 0.42]
    assert texts(run(good)) == ""
    assert "still improving" in texts(run(good[:5]), "caution")
    assert "3 epochs only" in texts(run([0.6, 0.4, 0.5]), "caution")
    assert "hardly learned" in texts(run([0.7, 0.693, 0.70]), "serious")
    assert "without validation" in texts(run([None] * 6), "note")
    # A rate that falls to zero makes the last epochs the best: nothing was cut short.
    assert texts(run(good[:5], settings={"training": {"schedule": "cosine"}})) == ""
    assert "still improving" in texts(
        run(good[:5], settings={"training": {"schedule": "constant"}})
    )
    # The epoch that was kept is the one named, not the one of lowest loss.
    assert "still improving" in texts(run(good, best_epoch=7), "caution")
    broken = ReportContent("t", runs=(Run("BCE", history=(Epoch(1, math.nan, math.nan),)),))
    assert "not a number" in texts(broken, "serious")


def test_boundary_and_chains_are_said():
    edge = Interval("λ", "ASA", 2.7, on_boundary=True)
    cut = Interval("μ", "ASA", 2.7, cut=True, group="site 4")
    content = ReportContent("t", intervals=(cut, edge))
    assert "λ (ASA) lies on the edge" in texts(content, "serious")
    assert "μ (ASA, site 4) ends at the edge" in texts(content, "caution")

    def row(**more):
        return ReportContent("t", posterior=(PosteriorRow("λ", "ASA", 1, 1, 0, 2, **more),))

    assert texts(row(r_hat=1.005, ess=900.0, divergences=0)) == ""
    assert "have not mixed" in texts(row(r_hat=1.02), "caution")
    assert "have not mixed" in texts(row(r_hat=1.2), "serious")
    assert "effective draws" in texts(row(r_hat=1.0, ess=50.0), "caution")
    assert "divergent" in texts(row(divergences=3), "caution")


def ridges(peaks: dict[str, dict[str, float]], **more) -> ReportContent:
    """Quadratic surfaces over [-1, 1]: by group and method, where the maximum is."""
    axis = Axis("a", np.linspace(-1, 1, 201))

    def surface(method: str, at: float) -> Surface:
        values = -100 * (axis.values - at) ** 2
        return Surface(method, values - values.max(), (min(at, 1.0),))

    groups = tuple(
        Group(name, tuple(surface(m, at) for m, at in places.items()))
        for name, places in peaks.items()
    )
    return ReportContent("t", surfaces=Surfaces((axis,), groups), **more)


def first_box(content: ReportContent) -> str:
    """The text of the page up to its findings: notices, or that there are none."""
    page = build(content)
    return page[page.index('<main id="main"') : page.index("<nav", page.index('<main id="main"'))]


def test_sets_cut_off_and_maxima_on_the_edge_stand_in_the_first_box():
    everywhere = {"ASA": 1.2, "exact": 1.1}
    content = ridges(
        {"site 1": {"ASA": 0.0, "exact": 0.1}, "site 2": {"ASA": 0.9, "exact": 0.0},
         "site 3": everywhere},
    )  # fmt: skip
    box = first_box(content)
    assert "Nothing to warn about" not in box
    assert "largest on the edge of the parameter box in site 3 (every method)" in box
    assert "95% set reaches the edge of the parameter box in site 2 (ASA) and site 3" in box
    assert "site 1" not in box
    # Without an estimate the grid's own largest value speaks.
    bare = content.surfaces.groups[2].surfaces[0]
    group = Group("site 3", (dataclasses.replace(bare, mle=None),))
    alone = dataclasses.replace(
        content, surfaces=dataclasses.replace(content.surfaces, groups=(group,))
    )
    assert "largest on the edge of the parameter box in site 3 (ASA)" in first_box(alone)
    # What the table of estimates says already is not said again.
    told = Interval("a", "ASA", 1.0, on_boundary=True, group="site 3")
    again = ridges({"site 3": {"ASA": 1.2, "exact": 0.0}}, intervals=(told,))
    assert "largest on the edge" not in texts(again)
    assert "lies on the edge" in texts(again, "serious")


def test_of_many_groups_some_are_named_and_the_rest_counted():
    content = ridges({f"site {k}": {"ASA": 0.95} for k in range(9)})
    assert "site 5 (ASA) and 3 more: the set shown there is cut off" in texts(content, "caution")


def test_nothing_to_warn_about_lists_only_what_was_looked_at():
    calm = {"site 1": {"ASA": 0.0}}
    box = first_box(ridges(calm))
    assert "Nothing to warn about" in box
    assert "maximum lies on that edge, or whose set is cut off" in box
    assert "estimates" not in box  # there is no table of estimates
    by_grid = PosteriorRow("a", "exact", 0, 1, -1, 1)  # drawn by no chain
    assert "chains" not in first_box(ridges(calm, posterior=(by_grid,)))
    sampled = dataclasses.replace(by_grid, r_hat=1.0, ess=900.0)
    box = first_box(ridges(calm, posterior=(by_grid, sampled)))
    assert "chains that have not mixed" in box
    assert "divergent" not in box
    counted = dataclasses.replace(sampled, divergences=0)
    assert "divergent transitions" in first_box(ridges(calm, posterior=(counted,)))


def test_cut_test_sets_are_counted_in_the_first_box():
    def covered(cut, groups=1000):
        return ReportContent(
            "t", coverage=(Coverage(0.95, {"ASA": Estimate(0.95, 0.006)}, "Wilks", groups, cut),)
        )

    assert "cut off there: 12% with ASA" in texts(covered({"ASA": 120, "exact": 0}), "caution")
    assert "0.5% with ASA and 1% with Exact" in texts(covered({"ASA": 5, "exact": 10}), "note")
    assert texts(covered({"ASA": 0})) == ""
    assert "test sets cut off by the box" in build(covered({"ASA": 0}))
    assert "test sets cut off by the box" not in build(covered({}))


def test_serious_comes_first_and_the_page_says_when_there_is_nothing(content):
    order = [n.severity for n in warnings_for(content)]
    assert order == sorted(order, key=("serious", "caution", "note").index)
    page = build(content)
    assert (
        page.index("Serious</strong>")
        < page.index("Caution</strong>")
        < page.index("What was found")
    )
    calm = build(covering(ASA=Estimate(0.95, 0.004)))
    assert "Nothing to warn about" in calm
    assert "coverage below its nominal level" in calm


# --- the page -------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """What a browser would see: tags with attributes, and the text of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_everything_a_user_wrote_stays_text():
    page = build(hostile())
    seen = Tags(page)
    assert [t for t, _ in seen.tags].count("script") == 2
    images = [a for t, a in seen.tags if t == "img"]
    assert [a["src"][:5] for a in images] == ["data:"]
    assert not any(name.startswith("on") for _, a in seen.tags for name in a)
    assert "<script>document" not in page
    assert HOSTILE in "".join(seen.text)
    # Without escaping the test above would have found it.
    broken = page.replace(f"<h1>{escape(HOSTILE)}", f"<h1>{HOSTILE}")
    assert [t for t, _ in Tags(broken).tags].count("script") == 3


def test_data_cannot_close_its_script():
    value = {"a": "</script><!-- & \u2028\u2029"}
    text = json_for_script(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


@pytest.mark.parametrize("made", [sample, lambda: sample(3), curve, lambda: ReportContent("Empty")])
def test_page_needs_nothing_but_itself(made):
    page = build(made())
    for tag, attributes in Tags(page).tags:
        for name in ("src", "href", "action", "data"):
            address = attributes.get(name) or "#"
            assert address.startswith(("#", "data:")), (tag, address)
    assert "url(http" not in page
    assert "@import" not in page
    assert "style=" not in page  # the policy would refuse it


def test_page_is_small_and_the_same_every_time(content):
    assert len(build(content).encode()) < 300_000
    assert build(content) == build(sample())


def test_every_heading_and_table_has_its_place(content):
    seen = Tags(build(content)).tags
    levels = [int(t[1]) for t, _ in seen if re.fullmatch("h[1-6]", t)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    names = [t for t, _ in seen]
    assert names.count("caption") == names.count("table")
    ids = [a["id"] for _, a in seen if "id" in a]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for t, a in seen if t == "a"}
    assert targets <= set(ids)
    assert all(a.get("aria-label") for t, a in seen if t == "svg" and a.get("role") == "img")


def test_methods_differ_without_colour():
    from keepscore.reports.plots import styles_for

    rows = (ScoreRow("m", "", {f"run {k}": Estimate(1.0) for k in range(5)}),)
    styles = styles_for(ReportContent("t", scorecard=rows))
    assert len({(s.dash, s.marker) for s in styles.values()}) == len(styles) == 6


def test_many_methods_go_down_the_page_not_across():
    rows = (ScoreRow("loss", "", {f"run {k}": Estimate(1.0 + k, 0.1) for k in range(12)}),)
    page = build(ReportContent("Sweep", scorecard=rows))
    heads = max(row.count("<th") for row in re.findall(r"<tr.*?</tr>", page, re.S))
    assert heads <= 2
    assert "run 11" in page


def test_best_is_marked_with_what_cannot_be_told_from_it():
    values = {"a": Estimate(1.0, 0.1), "b": Estimate(1.2, 0.1), "c": Estimate(2.0, 0.1)}
    row = ScoreRow("loss", "", {**values, "exact": Estimate(0.1)})
    assert best_methods(row) == {"a", "b"}
    assert best_methods(dataclasses.replace(row, better="higher")) == {"c"}
    assert best_methods(dataclasses.replace(row, better="")) == set()


def test_write_is_whole_or_absent(tmp_path, content, monkeypatch):
    target = write(content, tmp_path / "new" / "report.html")
    assert target.read_text().endswith("</html>")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        write(content, tmp_path / "file" / "report.html")
    before = target.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
    with pytest.raises(StorageError, match="No space"):
        write(content, target)
    assert target.read_bytes() == before
    assert [p.name for p in target.parent.iterdir()] == ["report.html"]


# --- pictures -------------------------------------------------------------------------------------


def test_png_holds_the_array():
    from PIL import Image

    values = np.arange(12.0).reshape(3, 4)
    raw = base64.b64decode(png(values).removeprefix("data:image/png;base64,"))
    grey = np.asarray(Image.open(io.BytesIO(raw)).convert("L"), dtype=float)
    assert grey.shape == (3, 4)
    assert (np.diff(grey.ravel()) < 0).all()  # higher is darker


def test_examples_stand_upright():
    field = np.zeros((3, 3))
    field[2, 0] = 1.0  # greatest s1, smallest s2: bottom right of the picture
    assert example_from(field, "stationary-field", "f").values[-1, -1] == 1.0
    chain = np.zeros((13, 8))
    chain[12, 0] = 1.0  # first node, last time: top right
    assert example_from(chain, "markov", "c").values[0, -1] == 1.0
    with pytest.raises(ShapeError):
        Example("e", np.zeros((2, 2, 2)))


def test_figures_come_in_as_pictures():
    from matplotlib.figure import Figure

    def figure():
        made = Figure(figsize=(2, 1))
        made.subplots().plot([0, 1])
        return made

    svg = picture_from(figure(), "Line", "a line")
    dots = picture_from(figure(), "Dots", "a line", dpi=50)
    page = build(ReportContent("t", pictures=(svg, dots)))
    sources = [a["src"] for t, a in Tags(page).tags if t == "img"]
    assert base64.b64decode(sources[0].split(",")[1]).lstrip().startswith(b"<?xml")
    assert base64.b64decode(sources[1].split(",")[1])[:4] == b"\x89PNG"


# --- words ----------------------------------------------------------------------------------------


def test_numbers_read_well():
    assert measured(Estimate(0.41150, 0.00074)) == "0.41150 ± 0.00074"
    assert measured(Estimate(1234.5, 12.3)) == "1,234 ± 12"
    assert measured(Estimate(0.5)) == "0.5"
    assert measured(None) == number(math.nan) == "–"
    assert number(-0.25) == "−0.25"
    assert number(30225) == "30,225"
    assert number(5.1e-7) == "5.1 × 10⁻⁷"
    assert number(-math.inf) == "−∞"
    assert fixed(1.30561, 0.11, 3) == "1.306"
    assert span(-0.3891, 0.02247) == "[−0.39, 0.02]"
    assert span(None, None) == "–"
    assert percent(Estimate(0.861, 0.0063)) == "86.1% ± 0.6"
    assert percent(0.95) == "95%"
    assert [duration(s) for s in (0.02, 5.0, 63.4, 600, 9000)] == [
        "20 ms",
        "5.0 s",
        "63 s",
        "10.0 min",
        "2.5 h",
    ]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_lie_inside_and_are_few(low, width):
    found = ticks(low, low + width)
    assert 1 <= len(found) <= 12
    slack = 1e-6 * width + 1e-9 * abs(low)
    assert low - slack <= min(found) <= max(found) <= low + width + slack


@given(st.floats(1e-8, 1e8), st.floats(1.4, 1e9))
def test_log_ticks_lie_inside_and_are_few(low, ratio):
    found = log_ticks(low, low * ratio)
    assert len(found) <= 8
    assert all(low <= t <= low * ratio for t in found)


def test_severity_is_checked():
    with pytest.raises(ValueError, match="Did you mean 'serious'"):
        Notice("seriuos", "text")
