"""Figures: they show the numbers they are given, and redraw from JSON alone, to the same bytes."""

import shutil

import numpy as np
import pytest
from invented import NAMES, invent
from matplotlib.figure import Figure

from keepscore.errors import MissingError, UnknownNameError
from keepscore.evaluation.equivalence import equivalence
from keepscore.evaluation.estimate import Estimate
from keepscore.figures.saving import save_figure
from keepscore.figures.style import colour_of, decimal_log, marker_of, short
from keepscore.figures.surface_panels import SurfacePanel, surfaces
from reproduction.examples import example_data
from reproduction.figures.arrows import Arrow, ArrowPanel, arrow_plot
from reproduction.figures.by_case import figures_from
from reproduction.figures.equivalence import EquivalenceRow, equivalence_plot
from reproduction.figures.examples import epidemic, fields
from reproduction.figures.null_cdf import NullSample, null_cdf
from reproduction.figures.training_time import TrainingCurve, training_time

ALL = [
    "examples",
    "losses",
    "differences",
    "inference",
    "estimates",
    "timing",
    "training_time",
    "null_cdf",
    "surfaces",
    "equivalence",
]


@pytest.fixture(scope="module")
def invented(tmp_path_factory):
    path = tmp_path_factory.mktemp("results")
    invent(path, cases=("sis", "gaussian"))
    return path


@pytest.fixture(scope="module")
def drawn(invented, tmp_path_factory):
    return figures_from(invented, tmp_path_factory.mktemp("drawn"))


@pytest.mark.slow
def test_everything_is_redrawn_from_json_alone(drawn):
    names = [f"{file.parent.name}/{file.stem}" for file in drawn]
    assert names == [f"{case}/{name}" for case in ("sis", "gaussian") for name in ALL]
    assert all(file.read_bytes().startswith(b"<?xml") for file in drawn)


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(invented, drawn, tmp_path):
    import matplotlib.pyplot as plt

    open_before = plt.get_fignums()
    shutil.copytree(invented / "gaussian", tmp_path / "gaussian")
    again = figures_from(tmp_path)
    for a, b in zip([f for f in drawn if f.match("gaussian/*")], again, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name
    assert plt.get_fignums() == open_before  # nothing is left behind


def test_parameters_keep_the_order_of_the_model(drawn):
    text = next(f for f in drawn if f.match("gaussian/estimates.svg")).read_text()
    places = [text.index(f"(median), {name}") for name in NAMES["gaussian"]]
    assert places == sorted(places)


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(MissingError, match="python -m reproduction"):
        figures_from(tmp_path)
    with pytest.raises(UnknownNameError, match="svg"):
        figures_from(tmp_path, form="jpeg2000")


def test_an_arrow_goes_from_bce_to_asa():
    arrows = [
        Arrow("3k", 100, Estimate(2.0, 0.1), Estimate(1.0, 0.1)),
        Arrow("3k", 300, Estimate(0.9, 0.1)),
        Arrow("10k", 100, Estimate(1.5, 0.1), Estimate(1.7, 0.1)),
    ]
    figure = arrow_plot([ArrowPanel("metric", arrows, log=True)], ["3k", "10k"])
    (ax,) = figure.axes
    shafts = [
        line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_xdata()[0] != 0.5
    ]
    assert [tuple(line.get_ydata()) for line in shafts] == [(2.0, 1.0), (1.5, 1.7)]
    heads = [line for line in ax.lines if line.get_marker() in ("v", "^")]
    found = [(line.get_marker(), float(line.get_ydata()[0])) for line in heads]
    assert found == [("v", 1.0), ("^", 1.7)]
    assert heads[0].get_xdata()[0] < 0.5 < heads[1].get_xdata()[0]  # each in its lane
    assert [t.get_text() for t in ax.get_xticklabels()] == ["3K", "10K"]
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert labels == ["N = 100", "N = 300 (BCE only)", "marker: BCE, arrow head: ASA"]


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_legend_of_an_arrow_plot_stays_inside(columns):
    arrows = [Arrow("30K", n, Estimate(2.0, 0.1), Estimate(1.0, 0.1)) for n in (30_000, 100_000)]
    arrows += [Arrow("30K", n, Estimate(2.0, 0.1), None) for n in (300_000, 1_000_000)]
    figure = arrow_plot([ArrowPanel("a", arrows)] * columns, ["30K"])
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width


def test_sizes_are_told_apart_without_colour():
    sizes = [30_000, 100_000, 300_000, 1_000_000]
    assert len({colour_of(n, sizes) for n in sizes}) == 4
    assert len({marker_of(n, sizes) for n in sizes}) == 4
    assert [short(n) for n in sizes] == ["30K", "100K", "300K", "1M"]


def test_the_null_cdf_crosses_the_critical_value_at_the_coverage():
    statistics = np.random.default_rng(0).chisquare(2, 500) * 1.4
    figure = null_cdf([NullSample("bce", statistics, 30_000)], d=2)
    (ax,) = figure.axes
    line = next(artist for artist in ax.lines if artist.get_label() == "BCE, N = 30K")
    x, y = line.get_data()
    at_critical = y[np.searchsorted(x, 5.991, side="right") - 1]
    assert at_critical == pytest.approx(np.mean(statistics <= 5.991))


def test_a_training_curve_marks_the_epoch_kept():
    curve = TrainingCurve("asa", 100, [1.0, 2.0, 3.0], [0.6, 0.5, 0.55], best=1)
    figure = training_time([curve], of="validation")
    (ax,) = figure.axes
    kept = next(artist for artist in ax.lines if artist.get_marker() == "o")
    assert (float(kept.get_xdata()[0]), float(kept.get_ydata()[0])) == (2.0, 0.5)
    assert ax.get_ylabel() == "validation BCE"


def test_surfaces_put_the_first_parameter_along_x():
    a, b = np.linspace(-1, 1, 5), np.linspace(2, 3, 7)
    values = -np.abs(a)[:, None] - np.zeros(7)  # varies with the first parameter only
    figure = surfaces([SurfacePanel("exact", values, (0.0, 2.5))], (a, b), ("a", "b"), (0.5, 2.5))
    ax = figure.axes[0]
    image = ax.collections[0].get_array().reshape(7, 5)
    assert (np.ptp(image, axis=0) == 0).all()
    assert ax.get_xlabel() == "a"
    assert ax.get_ylabel() == "b"


def test_surfaces_show_the_part_where_something_is_to_be_seen():
    a, b = np.linspace(-1, 1, 41), np.linspace(0, 4, 41)
    values = -200.0 * (a[:, None] - 0.5) ** 2 - np.zeros(41)  # 2 x 13.8 x 3 / 400 = 0.1 = 0.32^2
    figure = surfaces([SurfacePanel("exact", values, (0.5, 2.0))], (a, b), ("a", "b"))
    low, high = figure.axes[0].get_xlim()
    assert 0.0 < low < 0.5 < high < 1.0
    assert figure.axes[0].get_ylim() == pytest.approx((-0.05, 4.05))


def test_a_short_logarithmic_axis_has_more_than_one_label():
    figure = Figure()
    ax = figure.subplots()
    ax.set_ylim(0.09, 0.15)
    decimal_log(ax)
    ticks = [tick for tick in ax.get_yticks() if 0.09 <= tick <= 0.15]
    assert len(ticks) >= 3


def test_a_figure_is_saved_in_the_format_its_name_says(tmp_path):
    figure = Figure()
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
    for form, first in begins.items():
        assert save_figure(figure, tmp_path / f"a.{form}").read_bytes().startswith(first)
    with pytest.raises(UnknownNameError, match="figure format"):
        save_figure(figure, tmp_path / "a.jpg")
    assert len(list(tmp_path.iterdir())) == 3


def test_equivalence_beyond_the_runs_points_outward():
    curve = {100: [4.0], 1000: [2.0]}
    more, inside = equivalence(curve, 100, [1.0]), equivalence(curve, 100, [3.0])
    rows = [EquivalenceRow("BCE", "3k", more), EquivalenceRow("RMSE", "3k", inside)]
    ax = equivalence_plot(rows).axes[0]
    markers = [line.get_marker() for line in ax.lines if line.get_marker() not in ("None", None)]
    assert markers == [">", "o"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["BCE", "RMSE"]
    rows += [EquivalenceRow("BCE", lane, inside) for lane in ("10k", "30k")]
    three = equivalence_plot(rows).axes
    assert [ax.get_title() for ax in three] == ["network 3K", "network 10K", "network 30K", ""]
    named = [any(t.get_text() for t in ax.get_yticklabels()) for ax in three[:3]]
    assert named == [True, False, True]
    assert not three[3].axison


def test_example_data_of_every_model():
    epidemic_data = example_data("sis")
    observed, nodes = np.array(epidemic_data["observed"]), epidemic_data["nodes"]
    assert observed.shape == (13, 8)
    for k, node in enumerate(nodes):
        # The path between observations leads from each observed state to the next.
        changes = np.searchsorted(node["times"], epidemic_data["times"], side="right")
        np.testing.assert_array_equal((node["start"] + changes) % 2, observed[:, k])
    assert len(epidemic(epidemic_data).axes) == 5
    for case in ("gaussian", "student-t"):
        panels = example_data(case)["panels"]
        images = [np.array(p["x"]) for p in panels]
        assert [i.shape for i in images] == [(25, 25)] * 3
        # The longer the scale along y, the smoother along the second index.
        rough = [np.mean(np.diff(i, axis=1) ** 2) / i.var() for i in images]
        assert rough == sorted(rough, reverse=True)
        assert len(fields(images, ["a", "b", "c"]).axes) == 4
