"""Focused surrogates: regions of any shape survive, killed runs go on, the outside is refused."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import keepscore as ks
from keepscore.errors import DomainError, KeepscoreWarning, MismatchError, ShapeError
from keepscore.fitting import focus as focus_module
from keepscore.fitting import truncation
from keepscore.fitting.focus import _as_before, focus
from keepscore.fitting.truncation import find_region
from keepscore.models.base import Symmetry
from keepscore.training.guard import TOO_SURE

RADIUS = 0.6
CONFIG = ks.TrainConfig(max_epochs=3, guard=False)


def ring(d=2, noise=0.1, declares=()):
    """x ~ N(|theta|, noise^2), five times: theta lies on a sphere, no direction is told."""
    space = ks.Space([ks.Parameter(f"t{k}", -1, 1, "identity", train_margin=0.0) for k in range(d)])

    def simulate(theta, rng):
        radius = np.linalg.norm(theta, axis=1, keepdims=True)
        return radius + noise * rng.standard_normal((len(theta), 5))

    def log_prob(theta, x):
        radius = (theta**2).sum(axis=1, keepdims=True) ** 0.5
        return (-0.5 * ((x - radius) / noise) ** 2).sum(axis=1)

    def score(theta, x):
        radius = np.linalg.norm(theta, axis=1, keepdims=True)
        return ((x - radius) / noise**2).sum(axis=1, keepdims=True) * theta / radius

    return ks.models.from_functions(
        space, (5,), simulate=simulate, log_prob=log_prob, score=score, name="ring",
        declares=list(declares),
    )  # fmt: skip


def two_modes(theta, x):
    """Equal peaks at +-(1/2, 1/2), widths .02."""
    gap = np.minimum(((theta - 0.5) ** 2).sum(axis=1), ((theta + 0.5) ** 2).sum(axis=1))
    return -0.5 * gap / 0.02**2


def likelihood(function, space):
    from keepscore.likelihood import Likelihood

    def pairs(theta, group):
        return function(theta, None)

    def gradient(theta, group):
        step = 1e-6
        moved = [
            (function(theta + step * e, None) - function(theta - step * e, None)) / (2 * step)
            for e in np.eye(space.d)
        ]
        return pairs(theta, group), np.stack(moved, axis=1)

    return Likelihood(space, 1, 1, pairs, gradient, lambda theta: function(theta, None)[None])


def latest(model, n=400):
    return ks.simulate(model, n, jobs=1)


def test_two_modes_keep_their_share():
    """Both peaks have half of the draws (1,000 draws: .016; five of them allowed), and all draws
    lie within the drop."""
    model = ring()
    like = likelihood(two_modes, model.space)
    found = find_region(like, 12.0, 1000, latest(model), [0, 0])
    assert found.theta.shape == (1000, 2)
    assert (two_modes(found.theta, None) >= -12.0).all()
    assert abs((found.theta[:, 0] > 0).mean() - 0.5) < 0.08
    # Uniform inside: a disc of radius r holds the share (r / radius)^2.
    radius = 0.02 * np.sqrt(24)
    gap = np.minimum(*(np.linalg.norm(found.theta - m, axis=1) for m in (0.5, -0.5)))
    share = (gap < radius / 2).mean()
    assert abs(share - 0.25) < 0.07
    assert found.share < 0.05


def test_a_ring_survives():
    """Draws lie all around it: each of eight sectors has an eighth (.010; five allowed)."""
    model = ring()
    x = np.full((1, 5), RADIUS)

    def value(theta, _):
        return np.asarray(model.log_prob(theta, np.repeat(x, len(theta), axis=0)))

    found = find_region(likelihood(value, model.space), 12.0, 1000, latest(model), [0, 0])
    angle = np.arctan2(found.theta[:, 1], found.theta[:, 0])
    shares = np.histogram(angle, 8, (-np.pi, np.pi))[0] / 1000
    assert (np.abs(shares - 1 / 8) < 0.055).all()


def test_draws_follow_the_prior():
    """Where the likelihood is flat the region is the box and its draws are the prior's."""
    space = ks.Space([ks.Parameter("m", transform="identity", prior=ks.priors.Normal(1, 2))])
    like = likelihood(lambda theta, _: np.zeros(len(theta)), space)
    model = ks.models.from_functions(
        space, (1,), simulate=lambda t, rng: t + rng.standard_normal(t.shape), name="shift"
    )
    found = find_region(like, 12.0, 2000, ks.simulate(model, 200, jobs=1), [0, 0])
    assert found.share == 1.0
    assert abs(found.theta.mean() - 1) < 0.25
    assert abs(found.theta.std() - 2) < 0.2


def run(model, xs, path=None, **changes):
    settings = {"n": 400, "rounds": 2, "network": "residual-5k", "config": CONFIG, "jobs": 1}
    return focus(model, xs, path=path, **{**settings, **changes})


def test_a_focused_surrogate_knows_its_box_and_no_more(tmp_path):
    model = ring()
    xs = model.simulate(np.array([[RADIUS, 0.0]]), np.random.default_rng(0))
    found = run(model, xs, tmp_path / "runs")
    assert found.focused
    rounds = found.provenance["focus"]["rounds"]
    assert [r["simulations"] for r in rounds] == [200, 200]
    assert rounds[1]["used"] >= 200
    inside = found.space.draw(20, np.random.default_rng(1))
    like = found.given(xs)
    assert np.isfinite(like(inside)).all()
    assert np.isfinite(ks.mle(like).estimate).all()
    outside = found.space.upper + 0.5
    for ask in (
        lambda: like(outside),
        lambda: like.gradient(outside),
        lambda: found.log_ratio(outside[None], xs),
        lambda: found.score(outside[None], xs),
    ):
        with pytest.raises(DomainError, match="focused on one data set"):
            ask()
    again = ks.load(tmp_path / "runs" / "surrogate")
    assert again.focused
    np.testing.assert_array_equal(again.given(xs)(inside), like(inside))
    with pytest.raises(DomainError, match="focused"):
        again.given(xs)(outside)


def test_a_killed_run_goes_on_to_the_same_surrogate(tmp_path, monkeypatch):
    model = ring()
    xs = model.simulate(np.array([[RADIUS, 0.0]]), np.random.default_rng(0))
    whole = run(model, xs, tmp_path / "whole")
    real, calls = focus_module.train, []

    def dies_in_round_two(*arguments, **named):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    monkeypatch.setattr(focus_module, "train", dies_in_round_two)
    with pytest.raises(KeyboardInterrupt):
        run(model, xs, tmp_path / "killed")
    monkeypatch.setattr(focus_module, "train", real)
    (tmp_path / "killed" / "round-2" / "data" / "shard-00000.json").unlink()
    found = run(model, xs, tmp_path / "killed")
    theta = found.space.draw(20, np.random.default_rng(1))
    assert found.space == whole.space
    np.testing.assert_array_equal(found.given(xs)(theta), whole.given(xs)(theta))
    with pytest.raises(MismatchError, match="data differ"):
        run(model, xs + 0.01, tmp_path / "killed")


def test_symmetries_that_move_theta_alone_are_kept():
    mirrored = Symmetry("mirrored", np.arange(5), (0, 1), 1, (-1, 1))
    swapped = Symmetry("swapped", np.arange(5), (1, 0))
    model = ring(declares=(mirrored, swapped))
    space = truncation.shrunken(model, model.space, np.array([[0.2, -0.3], [0.5, 0.6]]))
    np.testing.assert_allclose(space.lower, -space.upper)
    data = latest(model)
    assert len(focus_module._still_there(data, space)) == 2
    lopsided = ks.Space([ks.Parameter(n, 0, 1, "identity") for n in "ab"])
    assert [s.name for s in focus_module._still_there(data, lopsided)] == ["swapped"]


def test_what_cannot_be_focused_is_refused():
    model = ring()
    xs = np.full((1, 5), RADIUS)
    with pytest.raises(DomainError, match="too few"):
        focus(model, xs, n=100, rounds=4)
    with pytest.raises(DomainError, match="one data set"):
        focus(model, xs[None])
    with pytest.raises(DomainError, match="drop"):
        focus(model, xs, drop=-1.0)


def test_simulations_at_given_theta(tmp_path):
    model = ring()
    theta = model.space.draw(150, np.random.default_rng(2))
    data = ks.simulate(model, 150, seed=4, path=tmp_path / "a", theta=theta, jobs=1)
    np.testing.assert_array_equal(np.asarray(data.theta), theta)
    same = ks.simulate(model, 150, seed=4, theta=theta.tolist(), jobs=1)
    assert same.fingerprint() == data.fingerprint() == ks.open_dataset(tmp_path / "a").fingerprint()
    with pytest.raises(MismatchError):
        ks.simulate(model, 150, seed=4, path=tmp_path / "a", theta=theta / 2, jobs=1)
    with pytest.raises(ShapeError, match="150 row"):
        ks.simulate(model, 100, theta=theta)
    with pytest.raises(DomainError, match="train box"):
        ks.simulate(model, 150, theta=theta + 2)
    with pytest.raises(DomainError, match="numbers"):
        ks.simulate(model, 600_000, theta=np.zeros((600_000, 2)))


def test_rounds_between_the_first_and_the_last_keep_the_network():
    def before(kept):
        return SimpleNamespace(provenance={"kept": kept} if kept else {})

    assert _as_before("auto", before("mixture-3k")) == "mixture-3k"
    assert _as_before("auto", before("mixture-3k of 2 entries")) == "auto"
    assert _as_before("auto", before(None)) == "auto"
    assert _as_before("mlp-1k", before("mixture-3k")) == "mlp-1k"
    assert _as_before("auto", None) == "auto"


def test_a_simulator_alone_is_enough():
    """Without a likelihood there are no scores, and nobody has to say so. The centre of ten normal
    numbers is found: its standard error is .06, five of them allowed."""
    space = ks.Space([ks.Parameter("centre", -2.0, 2.0, transform="identity")])

    def simulate(theta, rng):
        return theta + 0.2 * rng.standard_normal((len(theta), 1))

    model = ks.models.from_functions(space, (1,), simulate=simulate, name="simulator alone")
    xs = model.simulate(np.full((10, 1), 0.7), np.random.default_rng(0))
    config = ks.TrainConfig(batch_size=32, min_epochs=30, max_epochs=30)
    found = run(model, xs, n=800, config=config)
    assert found.quality.loss == "BCE"
    assert abs(ks.mle(found.given(xs)).estimate[0] - xs.mean()) < 0.3


def test_only_the_last_surrogate_is_spoken_of(monkeypatch):
    """Those of rounds before it are used for nothing but where to simulate next."""
    sure = {"information": (9.0,), "information_error": (0.1,)}
    whole = focus_module.train

    def trained(*args, **more):
        made = whole(*args, **more)
        warnings.warn(TOO_SURE, KeepscoreWarning, stacklevel=1)  # as every training does
        return replace(made, quality=replace(made.quality, whole=True, **sure))

    monkeypatch.setattr(focus_module, "train", trained)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", KeepscoreWarning)
        focus(ring(1), np.full((1, 5), RADIUS), 300, 3, config=CONFIG, jobs=1, network="mlp-1k")
    sentences = [str(one.message) for one in told if str(one.message).startswith(TOO_SURE)]
    assert len(sentences) == 1
    assert "9.00" in sentences[0]
