"""The tasks of sbibm against their own formulas; the metric against cases with a known answer."""

import importlib
import json

import numpy as np
import pytest
from scipy import integrate, stats

pytest.importorskip("sklearn")

from benchmarks import pages
from benchmarks.sbibm import ablation, sweep
from benchmarks.sbibm import c2st as c2st_module
from benchmarks.sbibm.c2st import c2st
from benchmarks.sbibm.tasks import TASKS
from keepscore.models.from_functions import central_differences

glm, moons, odes, slcp = (
    importlib.import_module(f"benchmarks.sbibm.tasks.{name}")
    for name in ("glm", "moons", "odes", "slcp")
)


@pytest.mark.parametrize("name", TASKS)
def test_likelihood_and_score_agree(name):
    """The score against central differences. At the kink of two moons, and where SLCP is sharper
    than a step, differences say so by their error."""
    task = TASKS[name]()
    rng = np.random.default_rng(1)
    theta = task.draw(40, rng)
    x = task.model.simulate(theta, rng)
    assert np.isfinite(task.model.log_prob(theta, x)).all()
    score = task.model.score(theta, x)
    with np.errstate(all="ignore"):
        values, errors = central_differences(task.model.log_prob, task.model.space, theta, x)
    size = np.abs(score) + 1
    usable = errors < 0.01 * size
    assert usable.mean() > 0.5
    assert (np.abs(values - score) < 0.03 * size)[usable].all()


def test_slcp_points_are_gaussian():
    theta = np.array([[0.7, -2.0, 1.3, -0.9, 0.4]])
    s1, s2, rho = 1.3**2, 0.9**2, np.tanh(0.4)
    covariance = [[s1**2 + 1e-6, rho * s1 * s2], [rho * s1 * s2, s2**2 + 1e-6]]
    x = np.random.default_rng(2).standard_normal((1, 4, 2))
    wanted = stats.multivariate_normal([0.7, -2.0], covariance).logpdf(x[0]).sum()
    np.testing.assert_allclose(slcp.log_prob(theta, x), wanted, rtol=1e-5)
    many = slcp.simulate(np.repeat(theta, 20_000, axis=0), np.random.default_rng(3))
    np.testing.assert_allclose(np.cov(many[:, 0].T), covariance, rtol=0.05)


def test_two_moons_density_integrates_to_one():
    theta = np.array([[0.3, -0.5]])

    def density(v, u):
        return float(np.exp(moons.log_prob(theta, np.array([[u, v]]))[0]))

    first, second = (float(s[0]) for s in moons.shift(theta))
    grid = np.linspace(-0.16, 0.16, 401)
    u, v = np.meshgrid(grid[grid > 0] + 0.25 + first, grid + second, indexing="ij")
    points = np.stack([u.ravel(), v.ravel()], axis=1)
    values = np.exp(moons.log_prob(np.repeat(theta, len(points), axis=0), points))
    total = values.sum() * (grid[1] - grid[0]) ** 2
    assert abs(total - 1) < 0.01
    assert density(second, 0.25 + first - 0.1) == 0.0


def test_the_glm_is_a_logistic_regression():
    rng = np.random.default_rng(4)
    theta = TASKS["bernoulli_glm"]().draw(3, rng)
    y = glm.spikes(theta, rng)
    rate = 1 / (1 + np.exp(-theta @ glm.design().T))
    wanted = np.log(np.where(y == 1, rate, 1 - rate)).sum(axis=1)
    np.testing.assert_allclose(glm.log_prob(theta, y @ glm.design()), wanted, rtol=1e-4)
    np.testing.assert_allclose(glm.log_prob_raw(theta, y), wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "solve"), [("sir", "infected"), ("lotka_volterra", "populations")]
)
def test_equations_are_solved_finely_enough(name, solve):
    """Against SciPy's adaptive solver at a tolerance of 1e-10, in the equations' own form."""
    theta = TASKS[name]().draw(3, np.random.default_rng(5))
    ours = odes._in_double(getattr(odes, solve), theta)
    for row, parameters in zip(ours, np.exp(theta), strict=True):
        if name == "sir":
            b, g = parameters

            def slope(t, u, b=b, g=g):
                return [-b * u[0] * u[1], b * u[0] * u[1] - g * u[1]]

            begin, times = [1 - 1e-6, 1e-6], 17.0 * np.arange(10)
        else:
            al, be, ga, de = parameters

            def slope(t, u, al=al, be=be, ga=ga, de=de):
                return [al * u[0] - be * u[0] * u[1], -ga * u[1] + de * u[0] * u[1]]

            begin, times = [30.0, 1.0], 2.1 * np.arange(10)
        exact = integrate.solve_ivp(
            slope, (0, times[-1]), begin, t_eval=times, rtol=1e-10, atol=1e-14, method="DOP853"
        ).y
        wanted = np.log(exact[1]) if name == "sir" else np.log(exact).ravel()
        np.testing.assert_allclose(row, wanted, atol=2e-3)


def test_the_metric():
    """Equal distributions: accuracy 1/2, with a standard error of .02 (600 draws), five of which
    are allowed. Distributions three standard deviations apart: the best classifier is right in 93%
    of cases."""
    rng = np.random.default_rng(6)
    one, same, other = rng.standard_normal((3, 300, 2))
    assert abs(c2st(one, same, folds=2) - 0.5) < 0.1
    assert abs(c2st(one, other + np.array([3.0, 0.0]), folds=2) - stats.norm.cdf(1.5)) < 0.05
    # The scale is the reference's: a shift of a thousandth of its width cannot be seen.
    assert abs(c2st(1e3 * one, 1e3 * same + 1.0, folds=2) - 0.5) < 0.1


def test_the_table_puts_ours_beside_the_published():
    known = sweep.published()
    assert len(known) == 180
    assert known["two_moons", 1000, "NPE"] == pytest.approx(0.7251)
    cells = [
        {"task": "slcp", "n": 1000, "method": m, "seed": 0, "c2st": {"1": v, "2": v + 0.02}}
        for m, v in (("asa", 0.8), ("bce", 0.9))
    ]
    (row,) = sweep.table(json.loads(json.dumps(cells))).splitlines()[2:]
    assert row == (
        "| slcp, 1,000 | 0.810 (2) not met | 0.771 | 0.910 (2) met | 0.972 | not run | 0.713 |"
    )
    assert sweep.table([]).startswith("No cell of ours has been run")
    held = [{**cells[0], "task": "sir", "c2st": {"1": 0.6}}]
    assert "| sir*, 1,000 | 0.600 (1) met | 0.680 |" in sweep.table(held)


def test_the_page_is_written_between_its_marks(tmp_path):
    page, image = tmp_path / "page.md", tmp_path / "sbibm.svg"
    begin, end = pages.marks("sbibm")
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    cells = [{"task": "slcp", "n": 1000, "method": "asa", "seed": 0, "c2st": {"1": 0.7}}]
    sweep.write_page(page, image, cells)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| slcp, 1,000 | 0.700 (1) met |" in text
    assert image.stat().st_size > 10_000
    sweep.write_page(page, image, cells)
    assert page.read_text() == text


def test_a_table_without_a_place_is_said(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place"):
        pages.write_between(page, "sbibm", "table")
    assert page.read_text() == "no marks"


def test_the_ablation_has_medians_over_seeds():
    records = [
        {"task": "sir", "row": "without scores", "seed": s, "criterion": c, "seconds": 9.0}
        for s, c in enumerate((0.5, 0.1, 0.2))
    ]
    assert ablation.table(records).splitlines() == [
        "| | sir* | seconds |",
        "|---|--:|--:|",
        "| without scores | 0.200 (3) | 9 |",
    ]


@pytest.mark.parametrize(("n", "d"), [(600, 1), (1130, 3)])
def test_the_classifier_is_that_of_scikit_learn(n, d):
    """The first epochs' losses, where rounding has not grown yet; with batches that fill and one
    that does not."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, d)).astype(np.float32)
    label = (rng.random(n) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(np.float32)
    theirs = MLPClassifier((10 * d, 10 * d), max_iter=6, random_state=1)
    with pytest.warns(ConvergenceWarning):
        theirs.fit(x, label)
    _, losses = c2st_module.fit(x, label, (10 * d, 10 * d), 1)
    np.testing.assert_allclose(losses[:6], theirs.loss_curve_, rtol=1e-4)
    assert not np.allclose(losses[:6], c2st_module.fit(x, label, (10 * d, 10 * d), 2)[1][:6], 1e-3)


def test_c2st_is_that_of_scikit_learn():
    """To a few rows in 300: both classifiers see the same rows in the same order."""
    rng = np.random.default_rng(5)
    one, two = rng.standard_normal((2, 150, 1))
    ours, theirs = (way(one, two + 1.0, folds=2) for way in (c2st, c2st_module.by_sklearn))
    assert abs(ours - theirs) < 0.03
