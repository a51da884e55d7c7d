"""A likelihood that knows itself: groups of it, and a maximum that is searched for once."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from likelihoods import FastToy, from_function, toy_groups

import keepscore as ks
from keepscore.errors import DtypeError, MismatchError
from keepscore.inference import profile_curve
from keepscore.likelihood import Maximum

maximise = __import__("keepscore.inference.maximise", fromlist=["maximise"])


def counted(like):
    """The same likelihood, and a dictionary of how many theta each function was asked for."""
    calls = {"pairs": 0, "pairs_gradient": 0, "surface": 0, "surface calls": 0}

    def pairs(theta, group):
        calls["pairs"] += len(theta)
        return like.pairs(theta, group)

    def pairs_gradient(theta, group):
        calls["pairs_gradient"] += len(theta)
        return like.pairs_gradient(theta, group)

    def surface(theta):
        calls["surface"] += len(theta)
        calls["surface calls"] += 1
        return like.surface(theta)

    return replace(like, pairs=pairs, pairs_gradient=pairs_gradient, surface=surface), calls


@pytest.fixture
def many():
    return FastToy().given(toy_groups(6, seed=1, theta=[0.1, 0.0])[2])


@pytest.mark.parametrize("groups", [1, 6])
def test_everything_on_one_object_searches_once(groups, monkeypatch):
    xs = toy_groups(groups, seed=1, theta=[0.1, 0.0])[2]
    like, calls = counted(FastToy().given(xs if groups > 1 else xs[0]))
    searches = []
    real = maximise.maximise
    monkeypatch.setattr(maximise, "maximise", lambda *a: searches.append(a) or real(*a))
    ks.mle(like)
    searched = calls["surface"]
    assert searched == 121  # the grid
    ks.lrt(like, [0.0, 0.0])
    ks.lrt(like, {"sd": 0.1}, parameters=["sd"])
    chosen = ks.confidence_set(like)
    assert chosen.contains([0.1, 0.0]) is not None
    profile_curve(like, "mean", [0.0])
    assert len(searches) == 1
    assert calls["surface"] == searched + 1  # what `contains` asked for
    one = like[0] if groups > 1 else like
    ks.mle(one)
    assert len(searches) == 1
    # Another region is another search, once.
    ks.mle(like, region="train")
    ks.mle(like, region="train")
    assert len(searches) == 2


def test_the_posterior_does_not_search_again(monkeypatch):
    from importlib import import_module

    like = FastToy().given(toy_groups(1, seed=1, theta=[0.1, 0.0])[2][0])
    known = ks.mle(like).maximum

    class Began(Exception):
        pass

    def sample(like, prior, found, *rest):
        assert found is known
        raise Began

    monkeypatch.setattr(import_module("keepscore.inference.posterior"), "sample", sample)
    with pytest.raises(Began):
        ks.posterior(like)


def test_other_functions_have_another_maximum(many):
    ks.mle(many)
    tilted = replace(many, pairs=lambda t, g: many.pairs(t, g) + t[:, 0])
    assert many.known_maximum() is not None
    assert tilted.known_maximum() is None
    assert replace(many).known_maximum() is None


def test_a_selection_takes_its_part_and_keeps_to_itself(many):
    before = many[[4, 2]]
    assert before.known_maximum() is None
    found = ks.mle(many)
    for part in (before, many[[4, 2]]):
        known = part.known_maximum()
        np.testing.assert_array_equal(known.theta, found.estimate[[4, 2]])
        np.testing.assert_array_equal(known.modes.group, np.sort(known.modes.group))
        for i, j in enumerate((4, 2)):
            ours = known.modes.theta[known.modes.group == i]
            modes = many.known_maximum().modes
            np.testing.assert_array_equal(ours, modes.theta[modes.group == j])
    # What a selection finds is its own: the whole has not searched.
    fresh = replace(many)
    ks.mle(fresh[1])
    assert fresh.known_maximum() is None
    assert many[3][0].known_maximum().theta.shape == (1, 2)


def test_a_finer_search_replaces_a_lower_maximum_and_never_a_higher_one():
    needle = np.array([0.517, -0.483])

    def parts(theta):
        hill = -0.5 * ((theta + 0.5) ** 2).sum(1) / 0.2**2
        return hill, 20 - 0.5 * ((theta - needle) ** 2).sum(1) / 0.004**2

    def gradient(theta, group):
        hill, tip = parts(theta)
        share = np.exp(tip - np.logaddexp(hill, tip))[:, None]
        return -(1 - share) * (theta + 0.5) / 0.2**2 - share * (theta - needle) / 0.004**2

    like = from_function(lambda t, g: np.logaddexp(*parts(t)), gradient)
    coarse = ks.mle(like)
    assert np.abs(coarse.estimate - needle).max() > 0.5
    fine = ks.mle(like, grid=201)
    np.testing.assert_allclose(fine.estimate, needle, atol=1e-3)
    np.testing.assert_array_equal(ks.mle(like).estimate, fine.estimate)
    np.testing.assert_array_equal(ks.mle(like, grid=5).estimate, fine.estimate)
    assert ks.confidence_set(like).contains(needle)


def test_what_is_remembered_cannot_be_changed(many):
    found = ks.mle(many)
    for array in (found.maximum.theta, found.maximum.value, many.known_maximum().modes.theta):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    found.estimate[:] = 5.0  # a result's own arrays are its own
    assert np.abs(ks.mle(many).estimate).max() < 1
    with pytest.raises(DtypeError, match="Maximum"):
        many.remember(found)
    with pytest.raises(MismatchError, match="shape"):
        many.remember(found.maximum.of(np.array([0, 1])))


def test_the_higher_of_two_maxima_by_group():
    def made(value, converged):
        g = len(value)
        theta = np.arange(g)[:, None] + np.asarray(value, float)[:, None]
        return Maximum(
            theta, np.array(value, float), np.ones((g, 1, 1)), np.array(converged), 3, "base"
        )

    best = made([1, 5, 2], [True, True, False]).higher_of(made([4, 3, 2], [True, True, True]))
    np.testing.assert_array_equal(best.value, [4, 5, 2])
    np.testing.assert_array_equal(best.theta[:, 0], [4, 6, 4])
    assert best.converged.all()
    assert best.evaluations == 6


def test_threads_agree(many):
    """Eight threads on one likelihood: all get the same answer, and one record remains."""
    answers = []

    def work():
        answers.append(ks.mle(many).estimate)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    for answer in answers:
        np.testing.assert_array_equal(answer, many.known_maximum().theta)


def test_iteration_and_indices(many):
    theta = np.array([0.2, -0.1])
    values = many(theta)
    np.testing.assert_array_equal([one(theta) for one in many], values)
    np.testing.assert_array_equal(many[-2:](theta), values[-2:])
    np.testing.assert_array_equal(many[np.arange(6) % 2 == 0](theta), values[::2])
    assert many[np.int64(3)].single
    assert not many[[3]].single


def test_evaluation_in_blocks_is_the_same(many, monkeypatch):
    import keepscore.likelihood as home

    theta = many.space.grid(9)
    whole = many(theta)
    monkeypatch.setattr(home, "BLOCK_ENTRIES", 700)  # 11 theta at a time
    like, calls = counted(many)
    np.testing.assert_array_equal(like(theta), whole)
    assert calls["surface calls"] == 8


def test_every_result_says_what_it_stands_on(many):
    surrogate = replace(many, kind="surrogate")
    for like, basis in ((many, "exact"), (surrogate, "surrogate")):
        test, chosen = ks.lrt(like, [0, 0]), ks.confidence_set(like)
        for result in (ks.mle(like), test, chosen, chosen.intervals):
            assert result.basis == basis
            assert basis in str(result)
            assert result.to_dict()["basis"] == basis
        one = ks.mle(like[0])
        assert basis in str(one)
        assert basis in str(ks.confidence_set(like[0]).intervals)
