"""The tutorials' code runs, made smaller, and what it finds is right."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import keepscore as ks

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("run_page", ROOT / "docs" / "run_page.py")
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)
QUIET = pytest.mark.filterwarnings("ignore::keepscore.errors.KeepscoreWarning")  # few draws are few


def run(name, smaller):
    text = (ROOT / "docs" / name).read_text()
    for large, small in smaller.items():
        assert large in text, large
        text = text.replace(large, small)
    return pages.run_page(text)


@QUIET
def test_one_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = "rounds=2, config=ks.TrainConfig(max_epochs=15, guard=False), jobs=1"
    smaller = {"n=3_000, rounds=3": f"n=600, {short}", "draws=99": "draws=99, level=0.02"}
    text, names = run("tutorials/one_data_set.md", smaller)
    surrogate, xs = names["surrogate"], names["xs"]
    assert surrogate.focused
    assert surrogate.space.contains(names["truth"][None])[0]
    assert (tmp_path / "runs/household/surrogate/surrogate.json").exists()
    assert "simulations;" in text
    ours, exact = (ks.mle(one).estimate for one in (surrogate.given(xs), names["exact"]))
    np.testing.assert_allclose(ours, exact, atol=0.5)


@pytest.mark.slow
@QUIET
def test_joint_scores():
    pytest.importorskip("numpyro")
    smaller = {
        "8_000, seed": "2_000, seed",
        "max_epochs=60": "max_epochs=15, guard=False",
        "n=1_000": "n=200",
        "draws=500": "draws=200",
    }
    text, names = run("tutorials/joint_scores.md", smaller)
    assert names["report"].passed
    assert names["data"].score_kind == names["birds"].score_kind == "joint"
    assert float(names["right"].calibrated_p_value) > 0.01
    assert "calibrated p" in text
    the_joint_score_averages_to_the_score(names)


def the_joint_score_averages_to_the_score(names):
    """E[joint score - score of x] = 0 and uncorrelated with x: 4,000 draws, |z| below 4.5 each;
    the quadrature is the oracle. With a sign flipped z is above 20."""
    theta = np.tile([1.2, -0.6], (4_000, 1))
    x, joint = names["simulate_with_joint_score"](theta, np.random.default_rng(0))
    score = names["exact"].score(theta, x)

    def largest(off):
        moments = np.stack([off[:, k] * w for k in (0, 1) for w in (1.0, x.mean(1) - x.mean())])
        return np.abs(moments.mean(1) / (moments.std(1) / np.sqrt(len(x)))).max()

    assert largest(joint - score) < 4.5
    assert largest(joint + score) > 20


@pytest.mark.parametrize("package", ["torch", "pytensor"])
def test_recipes_of_other_frameworks(package):
    pytest.importorskip(package)
    blocks = pages.BLOCK.findall((ROOT / "docs/howto/torch_pytensor.md").read_text())
    (block,) = (b for b in blocks if f"import {package}\n" in b)
    names = {"__name__": "__page__"}
    exec(block, names)
    model = names["model"]
    theta, x = np.array([[0.2, -0.3]]), np.array([[0.1, 0.5, -1.0, 0.3, 2.0]])
    z = (x - 0.2) / np.exp(-0.3)
    expected = -0.5 * (z**2).sum() - 5 * (-0.3) - 2.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(model.log_prob(theta, x), expected, rtol=1e-12)
    by_hand = [[z.sum() / np.exp(-0.3), (z**2).sum() - 5]]
    np.testing.assert_allclose(model.score(theta, x), by_hand, rtol=1e-10)


def hawkes():
    """What the page on the Hawkes process makes: its names, and its second block."""
    first, second = pages.BLOCK.findall((ROOT / "docs/tutorials/strangers_hour.md").read_text())
    names = {"__name__": "hawkes_page"}
    exec(first, names)
    return names, second


def test_the_hawkes_process_is_the_textbooks():
    """log p by its double sum and integral, at event times of the page's simulator; and scores."""
    names, _ = hawkes()
    model, end = names["model"], names["END"]
    rng = np.random.default_rng(0)
    theta = model.space.uniform(4, rng, region="test")
    x = model.simulate(theta, rng)
    expected = []
    for (log_mu, alpha, log_beta), row in zip(theta, x, strict=True):
        mu, beta, times = np.exp(log_mu), np.exp(log_beta), row[~np.isnan(row)]
        gaps = times[:, None] - times[None, :]
        kernel = np.where(gaps > 0, alpha * beta * np.exp(-beta * np.where(gaps > 0, gaps, 0)), 0)
        stop = end if len(times) < len(row) else times[-1]
        integral = mu * stop + (alpha * (1 - np.exp(-beta * (stop - times)))).sum()
        expected.append(np.log(mu + kernel.sum(axis=1)).sum() - integral)
    np.testing.assert_allclose(model.log_prob(theta, x), expected, rtol=1e-9)
    assert np.isfinite(model.score(theta, x)).all()
    assert model.structure == "events"


@pytest.mark.slow
@QUIET
def test_the_surrogate_of_the_hawkes_page_learns():
    """Fewer simulations: the error is below the statistic's own variance of 6."""
    names, block = hawkes()
    for large, small in {"3_000": "1_000", "=40": "=60", "size=(40": "size=(10"}.items():
        assert large in block
        block = block.replace(large, small)
    exec(block, names)
    assert np.mean((names["ours"] - names["exact"]) ** 2) < 6
