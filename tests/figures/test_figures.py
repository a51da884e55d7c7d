"""ks.figures: they say what the results say, draw where they are told, and leave pyplot alone."""

import matplotlib as mpl
import numpy as np
import pytest
from likelihoods import FastToy, toy_groups
from matplotlib.figure import Figure
from scipy import stats

import keepscore as ks
from keepscore.errors import (
    DomainError,
    MismatchError,
    MissingError,
    ShapeError,
    UnknownNameError,
)
from keepscore.evaluation import Epoch, Equivalence, Run
from keepscore.evaluation.pilot import Affordable, Costs, Pilot
from keepscore.figures import surfaces
from keepscore.figures.profile_curves import profile_statistics
from keepscore.figures.style import method_styles
from keepscore.figures.surface_panels import SurfacePanel, draw_statistic
from keepscore.likelihood import Likelihood


def bowl(d=2, at=0.1, sharp=40.0, groups=1):
    """l(theta) = -sharp |theta - at|^2 / 2: the profile of each parameter is the same parabola."""
    space = ks.Space(
        [ks.Parameter("rate", -1, 1, "log"), ks.Parameter("mean", -1, 1, "identity")][:d]
        + [ks.Parameter(f"b{k}", -1, 1, "identity") for k in range(2, d)]
    )
    centre = np.full(d, at)

    def pairs(theta, group):
        return -0.5 * sharp * ((theta - centre) ** 2).sum(axis=1)

    def pairs_gradient(theta, group):
        return pairs(theta, group), -sharp * (theta - centre)

    def surface(theta):
        return np.tile(pairs(theta, None), (groups, 1))

    return Likelihood(space, groups, 5, pairs, pairs_gradient, surface, single=groups == 1)


def run(name="ASA", scores=True):
    epochs = tuple(
        Epoch(k, 0.7 - 0.1 * k, 0.72 - 0.1 * k + 0.05 * (k > 2),
              (1.0 / k, 2.0 / k) if scores else None, (0.1 * k, 0.2 * k) if scores else None)
        for k in range(1, 5)
    )  # fmt: skip
    return Run(name, history=epochs, best_epoch=2, components=("log rate", "mean"))


def pilot():
    curve = {"BCE": {100: (0.9, 1.0), 200: (0.6, 0.7), 400: (0.4, 0.5)}, "ASA": {100: (0.6, 0.65)}}
    found = ks.equivalence(curve["BCE"], 100, curve["ASA"][100])
    assert isinstance(found, Equivalence)
    plans = (Affordable("BCE", 1000, 1000.0, 60.0), Affordable("ASA", 800, 1700.0, 60.0))
    return Pilot(
        "toy", "auto", "rmse_far", curve, found, Costs(1e-3, 1e-3, 1e-3, 1e-3), 60.0, plans, 9.0
    )


# Every picture with one argument, as the namespace promises: a result, and where to draw it.
EVERY = {
    "surface": lambda ax=None: ks.figures.surface(bowl(), points=15, ax=ax),
    "surface of a set": lambda ax=None: ks.figures.surface(
        ks.confidence_set(bowl()), points=15, ax=ax
    ),
    "surfaces": lambda ax=None: ks.figures.surface(
        {"ASA": bowl(at=0.2), "exact": bowl()}, points=15, ax=ax
    ),
    "profile": lambda ax=None: ks.figures.profile(bowl(), points=5, ax=ax),
    "pairs": lambda ax=None: ks.figures.pairs(
        {"a": np.arange(50.0), "b": np.arange(50.0) ** 2}, ax=ax
    ),
    "training": lambda ax=None: ks.figures.training({"ASA": run(), "BCE": run("BCE", False)}, ax),
    "pilot": lambda ax=None: ks.figures.pilot(pilot(), ax),
}


@pytest.mark.parametrize("name", EVERY)
def test_pictures_touch_no_global_state(name):
    import matplotlib.pyplot as plt

    before, opened = dict(mpl.rcParams), plt.get_fignums()
    figure = EVERY[name]()
    assert isinstance(figure, Figure)
    figure.canvas.draw()
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == opened


@pytest.mark.parametrize("name", EVERY)
def test_pictures_go_where_they_are_told(name):
    mine = Figure(figsize=(9, 4), layout="constrained")
    left, right = mine.subplots(1, 2)
    left.plot([0, 1], [0, 1])
    assert EVERY[name](right) is mine
    assert left.lines  # what was there stays
    drawn = [ax for ax in mine.axes if ax is not left and (ax.has_data() or ax.images)]
    assert drawn
    mine.canvas.draw()
    middle = mine.bbox.width / 2
    assert all(ax.get_window_extent().x0 > 0.8 * middle for ax in drawn)


def test_an_axes_placed_by_hand_is_divided():
    mine = Figure()
    ax = mine.add_axes((0.5, 0.5, 0.4, 0.4))
    ks.figures.training({"ASA": run()}, ax)
    inner = [child for child in ax.child_axes if child.lines]
    assert len(inner) == 3
    mine.canvas.draw()
    assert all(child.get_window_extent().x0 >= mine.bbox.width / 2 - 1 for child in inner)


def test_surface_has_contours_where_wilks_says():
    figure = ks.figures.surface(bowl(at=0.125), truth=[0.2, -0.1], points=81)
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("log rate", "mean")
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert labels == ["estimate: rate = 1.13, mean = 0.125", "truth"]
    contour = next(c for c in ax.collections if len(getattr(c, "levels", [])) == 3)
    # The outermost contour is the 95% circle.
    outer = contour.get_paths()[2].vertices
    radius = np.sqrt(stats.chi2.ppf(0.95, 2) / 40)
    assert outer[:, 0].max() == pytest.approx(0.125 + radius, rel=0.02)
    assert outer[:, 1].min() == pytest.approx(0.125 - radius, rel=0.02)
    truth = next(line for line in ax.lines if line.get_label() == "truth")
    assert truth.get_xydata()[0] == pytest.approx([0.2, -0.1])


def test_the_hatched_set_is_the_set():
    chosen = ks.confidence_set(bowl(at=0.0), 0.5)
    ax = ks.figures.surface(chosen, points=81).axes[0]
    assert "Hatched: the 50% set (wilks)" in ax.get_title()
    (hatched,) = [c for c in ax.collections if getattr(c, "hatches", None) == ["////"]]
    edge = hatched.get_paths()[0].vertices
    assert np.abs(edge[:, 0]).max() == pytest.approx(np.sqrt(stats.chi2.ppf(0.5, 2) / 40), abs=0.03)


def test_other_parameters_are_held_at_their_estimates():
    figure = ks.figures.surface(bowl(4), parameters=["b3", "rate"], points=15)
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("b3", "log rate")
    assert "other parameters at their estimates" in ax.get_title()
    drawn = ax.collections[0].get_array()
    assert float(drawn.min()) < 0.5  # the minimum of 2 (max - l) is near zero: nothing else moved


@pytest.mark.parametrize("d", [1, 2, 6])
def test_profiles_are_the_parabolas_they_should_be(d):
    like = bowl(d)
    values = np.linspace(-0.3, 0.5, 5)
    for name in like.space.names:
        statistic = profile_statistics(like, name, values)
        np.testing.assert_allclose(statistic, 40 * (values - 0.1) ** 2, atol=1e-6)
    figure = ks.figures.profile(like, level=0.9, truth=np.zeros(d), points=5)
    drawn = [ax for ax in figure.axes if ax.lines]
    assert [ax.get_xlabel() for ax in drawn] == list(like.space.working_names)
    half = np.sqrt(stats.chi2.ppf(0.9, 1) / 40)
    for ax in drawn:
        box = ax.patches[0].get_extents().transformed(ax.transData.inverted())
        assert (box.x0, box.x1) == pytest.approx((0.1 - half, 0.1 + half), abs=2e-3)


def test_a_calibrated_set_draws_its_own_intervals():
    _, _, x = toy_groups(1, n=5, seed=41, theta=[0.1, 0.2])
    calibration = ks.calibrate(FastToy(), FastToy(), group_size=5, n=300, seed=1)
    chosen = ks.confidence_set(
        FastToy().given(x[0]), 0.8, method="calibrated", calibration=calibration
    )
    ax = ks.figures.profile(chosen, points=5).axes[0]
    assert "profile interval, calibrated" in ax.get_title()
    box = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    assert (box.x0, box.x1) == pytest.approx(tuple(chosen.intervals.working[0]), abs=1e-6)


def test_surface_survives_impossible_theta():
    a, b = np.linspace(-1, 1, 41), np.linspace(-0.5, 0.5, 31)
    statistic = 40 * a[:, None] ** 2 + 120 * (b[None] - 0.1) ** 2
    statistic[:3] = np.inf
    statistic[3] = np.nan
    ax = Figure().subplots()
    drawn = draw_statistic(ax, a, b, statistic, (0.5, 0.95), 24.0).get_array().reshape(31, 41)
    assert np.isfinite(drawn).all()
    assert (drawn[:, :4] == 24.0).all()  # as far from the maximum as the colours go


def test_side_by_side_share_scale_and_mark_the_exact_maximum():
    figure = ks.figures.surface({"ASA": bowl(at=0.3), "exact": bowl(at=0.0)}, points=31)
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["ASA", "exact"]
    assert panels[0].collections[0].get_clim() == panels[1].collections[0].get_clim()
    for ax in panels:
        star = next(line for line in ax.lines if line.get_marker() == "*")
        assert star.get_xydata()[0] == pytest.approx([0.0, 0.0], abs=1e-4)
    one = surfaces([SurfacePanel("p", -np.ones((3, 3)) * 99, [0, 0])], [[0, 1, 2]] * 2, ["a", "b"])
    one.canvas.draw()  # a surface without a contour is drawn all the same


@pytest.mark.slow
def test_pairs_take_what_posterior_returns():
    xs = FastToy().simulate(np.zeros((5, 2)), np.random.default_rng(0))
    draws = ks.posterior(FastToy().given(xs), draws=400, chains=4, warmup=200)
    figure = ks.figures.pairs(draws, truth={"mean": 0.0})
    visible = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_xlabel() for ax in visible[-2:]] == ["mean", "sd"]  # not "log sd"
    assert len(visible) == 3
    working = ks.figures.pairs(draws, names=["log sd"])
    assert working.axes[0].get_xlabel() == "log sd"


def test_pairs_regions_hold_their_share():
    rng = np.random.default_rng(0)
    sample = rng.multivariate_normal([0, 1], [[1, 0.5], [0.5, 4]], size=20_000)
    figure = ks.figures.pairs({"a": sample[:, 0], "b": sample[:, 1]}, bins=60)
    ax = figure.axes[2]
    (filled,) = [c for c in ax.collections if len(getattr(c, "levels", [])) == 3]
    for k, share in ((0, 0.9),):
        path = filled.get_paths()[k]
        inside = path.contains_points(sample)
        # The outer ring and the inner region together hold 90%; smoothing moves that by a little.
        both = inside | filled.get_paths()[1].contains_points(sample)
        assert both.mean() == pytest.approx(share, abs=0.03)


def test_training_shows_each_run_on_one_scale_and_the_kept_epoch():
    figure = ks.figures.training({"ASA": run(), "BCE": run("BCE", False)})
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["ASA", "BCE", "Score loss", "Weight α of the score loss", "", ""]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    validation = figure.axes[0].lines[1]
    assert validation.get_label() == "validation; kept: epoch 2"
    assert validation.get_markevery() == [1]
    with pytest.raises(MissingError, match="no history"):
        ks.figures.training(Run("empty"))


def test_no_legend_of_a_log_scale_hides_a_curve():
    """Weights that jump up and down by tens leave no corner free."""
    jumps = tuple(
        Epoch(k, 0.5, 0.5, (1.0, 1.0), tuple(10.0 ** ((-1) ** k * j) for j in (1, 2)))
        for k in range(1, 60)
    )
    runs = {name: Run(name, history=jumps, best_epoch=2) for name in ("ASA", "ASA + structure")}
    figure = ks.figures.training(runs)
    figure.canvas.draw()
    (ax,) = (a for a in figure.axes if a.get_title().startswith("Weight"))
    box = ax.get_legend().get_window_extent()
    seen = [ax.transData.transform(line.get_xydata()) for line in ax.lines]
    assert len(seen) == 4
    assert not any(box.count_contains(points) for points in seen)


def test_pilot_says_what_a_score_is_worth():
    ax = ks.figures.pilot(pilot()).axes[0]
    assert ax.get_title().startswith("toy: a score is worth 2.")
    assert ax.get_ylabel() == "Log-ratio differences, far (nats)"


def test_methods_keep_their_looks():
    styles = method_styles(["exact", *map(str, range(12))])
    assert all(styles[str(k)] != styles["exact"] for k in range(12))
    assert len({styles[str(k)] for k in range(6)}) == 6


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: ks.figures.surface(bowl(1)), DomainError, "ks.figures.profile"),
        (lambda: ks.figures.surface(bowl(groups=3)), DomainError, "has 3"),
        (lambda: ks.figures.surface(np.zeros(3)), DomainError, "got ndarray"),
        (lambda: ks.figures.surface(bowl(), parameters=["rate"]), ShapeError, "two parameters"),
        (lambda: ks.figures.surface(bowl(), parameters=["rate", "men"]), UnknownNameError, "mean"),
        (lambda: ks.figures.surface(bowl(), truth=[1.0]), ShapeError, r"\(2,\)"),
        (lambda: ks.figures.surface({}), MissingError, "at least one|At least one"),
        (lambda: ks.figures.surface({"a": bowl(2), "b": bowl(3)}), MismatchError, "'b'"),
        (lambda: ks.figures.profile(bowl(groups=2)), DomainError, "2 groups"),
        (lambda: ks.figures.pairs(3), ShapeError, "got int"),
        (lambda: ks.figures.pairs({"a": [1.0, 2.0], "b": [1.0]}), ShapeError, "equally many"),
        (lambda: ks.figures.pairs({"a": [1.0, 2.0]}, names=["b"]), UnknownNameError, "'b'"),
        (lambda: ks.figures.pairs({"a": [1.0, 2.0]}, truth=[1, 2]), ShapeError, "truth"),
    ],
)
def test_wrong_arguments_are_named(call, error, said):
    with pytest.raises(error, match=said):
        call()
