"""Figures of inference: they say what the arrays say; wrong shapes are refused."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from keepscore.errors import ShapeError
from keepscore.figures.inference import likelihood_surface, pair_plot, profile_curves


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def surface():
    a, b = np.linspace(-1, 1, 41), np.linspace(-0.5, 0.5, 31)
    return a, b, -20 * a[:, None] ** 2 - 60 * (b[None, :] - 0.1) ** 2


def test_surface_has_contours_where_wilks_says():
    a, b, values = surface()
    statistic = 2 * (values.max() - values)
    figure = likelihood_surface(
        [a, b],
        values,
        ["log lambda", "log mu"],
        points={"MLE": [0.0, 0.1], "truth": [0.2, 0.0]},
        inside=statistic <= stats.chi2.ppf(0.95, 2),
    )
    ax = figure.axes[0]
    assert ax.get_xlabel() == "log lambda"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["MLE", "truth"]
    contour = next(c for c in ax.collections if len(getattr(c, "levels", [])) == 3)
    # The outermost contour is the 95% ellipse: half-width sqrt(c / 40) along the first axis.
    outer = contour.get_paths()[2].vertices
    assert outer[:, 0].max() == pytest.approx(np.sqrt(stats.chi2.ppf(0.95, 2) / 40), rel=0.02)
    figure.canvas.draw()


def test_surface_survives_impossible_theta():
    a, b, values = surface()
    values[:3] = -np.inf
    figure = likelihood_surface([a, b], values, ["x", "y"])
    drawn = figure.axes[0].collections[0].get_array().reshape(len(b), len(a))
    assert np.isfinite(drawn).all()
    assert (drawn[:, :3] == drawn.max()).all()  # as far from the maximum as the colours go
    figure.canvas.draw()


def test_profiles():
    t = np.linspace(-1, 1, 50)
    figure = profile_curves(
        [t, t], [20 * t**2, np.stack([5 * t**2, 7 * t**2])], ["a", "b"], [[-0.4, 0.4], [-0.8, 0.8]]
    )
    assert len(figure.axes) == 2
    assert len([line for line in figure.axes[1].lines if len(line.get_xdata()) == 50]) == 2
    figure.canvas.draw()


def test_pairs():
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal([0, 1, 2], np.diag([1, 4, 9]), size=2000)
    figure = pair_plot(draws, ["a", "b", "c"], truth=[0, 1, 2])
    visible = [ax for ax in figure.axes if ax.get_visible()]
    assert len(visible) == 6
    figure.canvas.draw()
    pair_plot(draws[:, :1], ["a"]).canvas.draw()
    pair_plot(draws[:5, :2], ["a", "b"]).canvas.draw()


def test_wrong_shapes():
    a, b, values = surface()
    with pytest.raises(ShapeError):
        likelihood_surface([a, b], values.T, ["x", "y"])
    with pytest.raises(ShapeError):
        likelihood_surface([a, b], values, ["x", "y"], inside=np.zeros((3, 3)))
    with pytest.raises(ShapeError):
        profile_curves([a], [a, a], ["x"])
    with pytest.raises(ShapeError):
        pair_plot(np.zeros((10, 2)), ["a", "b", "c"])
