"""Exact evaluations: the same over processes, kept on disk, never asked for twice."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from likelihoods import FastToy, bent, toy_groups

import keepscore as ks
from keepscore.errors import (
    DtypeError,
    FormatError,
    MismatchError,
    MissingError,
    NonFiniteError,
    SimulationError,
)
from keepscore.inference import exact_work
from keepscore.inference.exact_work import ExactWork, _between_thetas


def counted(exact):
    rows = []

    def pairs_gradient(theta, group):
        rows.extend(zip(group.tolist(), map(tuple, theta.tolist()), strict=True))
        return exact.pairs_gradient(theta, group)

    return replace(exact, pairs_gradient=pairs_gradient), rows


def exact_groups(g=5, seed=0):
    return FastToy().given(toy_groups(g, seed=seed)[2])


def some_rows(m=40, g=5, seed=1):
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.5, 0.5, (m, 2)), rng.integers(g, size=m)


def test_values_are_the_likelihoods_own_and_each_is_computed_once():
    exact, rows = counted(exact_groups())
    theta, group = some_rows()
    theta[7], group[7] = theta[3], group[3]  # the same row twice in one call
    with ExactWork(exact) as work:
        value, gradient = work(theta, group)
        again = work(theta[::-1], group[::-1])
    expected = exact_groups().pairs_gradient(theta, group)
    np.testing.assert_array_equal(value, expected[0])
    np.testing.assert_array_equal(gradient, expected[1])
    np.testing.assert_array_equal(again[0], value[::-1])
    assert len(rows) == len(set(rows)) == 39


def test_groups_that_ask_for_the_same_theta_are_asked_together():
    """Rows reach the model sorted by theta: one factorisation serves neighbours."""
    exact, rows = counted(exact_groups())
    theta = np.tile(some_rows(8)[0], (5, 1))
    with ExactWork(exact) as work:
        work(theta, np.repeat(np.arange(5), 8))
    order = [t for _, t in rows]
    assert sum(a != b for a, b in pairwise(order)) == 7


def test_processes_give_the_same_numbers():
    exact = exact_groups()
    theta, group = some_rows(60)
    with ExactWork(exact, jobs=2) as work:
        value, gradient = work(theta, group)
        assert work._workers is not None
    expected = exact.pairs_gradient(theta, group)
    np.testing.assert_array_equal(value, expected[0])
    np.testing.assert_array_equal(gradient, expected[1])


@pytest.mark.filterwarnings("ignore:The tolerance")
def test_a_killed_run_goes_on_where_it_was(tmp_path):
    exact = exact_groups()
    surrogate = bent(exact)
    straight = ks.refine(surrogate, exact, evaluations=20, tolerance=1e-7)
    calls = 0

    def dies(theta, group):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return exact.pairs_gradient(theta, group)

    with pytest.raises(KeyboardInterrupt):
        ks.refine(surrogate, replace(exact, pairs_gradient=dies), 20, 1e-7, path=tmp_path)
    kept = len(list(tmp_path.glob("part-*.npz")))
    assert kept == 2
    again, rows = counted(exact)
    resumed = ks.refine(surrogate, again, 20, 1e-7, path=tmp_path)
    assert 0 < len(rows) < straight.refinement.evaluations.sum()
    theta = exact.space.grid(5)
    np.testing.assert_array_equal(resumed(theta), straight(theta))
    once_more, rows = counted(exact)
    ks.refine(surrogate, once_more, 20, 1e-7, path=tmp_path)
    assert rows == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError, NonFiniteError])
def test_killed_in_the_middle_of_a_call_only_the_last_part_is_lost(tmp_path, monkeypatch, kind):
    """Slow evaluations are kept one theta after the other, whoever ends the run."""
    monkeypatch.setattr(exact_work, "PART_SECONDS", 0.0)
    exact = exact_groups()
    theta = np.repeat(some_rows(30)[0], 2, axis=0)
    group = np.tile([0, 3], 30)
    asked = []

    def dies(at, of_group):
        if len(asked) >= 40:
            raise kind("enough")
        asked.extend(zip(of_group.tolist(), map(tuple, at.tolist()), strict=True))
        return exact.pairs_gradient(at, of_group)

    with (
        pytest.raises(kind) as caught,
        ExactWork(replace(exact, pairs_gradient=dies), path=tmp_path) as work,
    ):
        work(theta, group)
    assert 40 <= len(asked) < 60
    if kind is NonFiniteError:
        assert len(caught.value.computed.value) == len(asked)
    again, rows = counted(exact)
    with ExactWork(again, path=tmp_path) as work:
        value, _ = work(theta, group)
    assert len(rows) == 60 - len(asked)
    assert not set(rows) & set(asked)
    np.testing.assert_array_equal(value, exact.pairs(theta, group))


def test_parts_grow_where_evaluations_are_fast(tmp_path):
    exact = exact_groups()
    with ExactWork(exact, path=tmp_path) as work:
        work(*some_rows(1000))
        work(*some_rows(1000, seed=2))
    assert len(list(tmp_path.glob("part-*.npz"))) <= 5


def test_a_folder_of_something_else_is_refused(tmp_path):
    exact = exact_groups()
    theta, group = some_rows()
    with ExactWork(exact, path=tmp_path) as work:
        work(theta, group)
    with pytest.raises(MismatchError, match="other data or of another model"):
        ExactWork(exact_groups(seed=3), path=tmp_path)
    with pytest.raises(MismatchError, match="another groups"):
        ExactWork(exact[:3], path=tmp_path)
    part = next(tmp_path.glob("part-*.npz"))
    sound = part.read_bytes()
    part.write_bytes(sound[:200])
    with pytest.raises(FormatError):
        ExactWork(exact, path=tmp_path)
    np.savez(part, theta=theta, group=group + 90, value=theta[:, 0], gradient=theta,
             with_gradient=np.array(True))  # fmt: skip
    with pytest.raises(FormatError, match="do not fit together"):
        ExactWork(exact, path=tmp_path)
    part.write_bytes(sound)
    identity = json.loads((tmp_path / "identity.json").read_text())
    identity["groups"] = 7
    (tmp_path / "identity.json").write_text(json.dumps(identity))
    with pytest.raises(FormatError):
        ExactWork(exact, path=tmp_path)


def test_what_was_computed_before_an_error_is_kept(tmp_path):
    exact = exact_groups()

    def broken(theta, group):
        value, gradient = exact.pairs_gradient(theta, group)
        return np.where(group == 4, np.nan, value), gradient

    with pytest.raises(NonFiniteError, match=r"group 4.*computed") as caught:
        ks.refine(bent(exact), replace(exact, pairs_gradient=broken), path=tmp_path)
    known = caught.value.computed
    sound = known.group != 4
    assert sound.sum() >= 4 * 6
    np.testing.assert_array_equal(
        known.value[sound], exact.pairs(known.theta[sound], known.group[sound])
    )
    repaired, rows = counted(exact)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refined = ks.refine(bent(exact), repaired, path=tmp_path)
    first = set(zip(known.group.tolist(), map(tuple, known.theta.tolist()), strict=True))
    assert {g for g, _ in first & set(rows)} == {4}  # asked again; all others are kept
    assert np.isfinite(refined.refinement.error).all()


def test_without_a_score_values_alone(tmp_path):
    exact = exact_groups()

    def no_gradient(theta, group):
        raise MissingError("no score")

    theta, group = some_rows()
    for _ in range(2):
        with ExactWork(replace(exact, pairs_gradient=no_gradient), path=tmp_path) as work:
            value, gradient = work(theta, group)
            assert not work.with_gradient
        np.testing.assert_array_equal(value, exact.pairs(theta, group))
        assert not gradient.any()


def test_no_task_begins_in_the_middle_of_a_theta():
    theta = np.tile(some_rows(7)[0], (6, 1))
    order = np.lexsort(theta.T)
    for count in (1, 2, 5, 7, 40):
        tasks = _between_thetas(theta, order, count)
        assert 1 <= len(tasks) <= min(count, 7)
        np.testing.assert_array_equal(np.concatenate(tasks), order)
        homes = [{tuple(t) for t in theta[part]} for part in tasks]
        assert sum(map(len, homes)) == 7  # every theta in one task
    assert len(_between_thetas(theta[:1].repeat(9, axis=0), np.arange(9), 4)) == 1


def test_a_dask_cluster_gives_the_same_numbers(tmp_path):
    distributed = pytest.importorskip("distributed")
    exact = exact_groups()
    theta, group = some_rows(60)
    expected = exact.pairs_gradient(theta, group)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        for where in (client, cluster.scheduler_address):
            with ExactWork(exact, cluster=where) as work:
                value, gradient = work(theta, group)
                again = work(theta + 0.01, group)  # the likelihood is there already
            np.testing.assert_array_equal(value, expected[0])
            np.testing.assert_array_equal(gradient, expected[1])
            assert again[0].shape == value.shape
        assert client.status == "running"  # somebody else's: left open
        refined = ks.refine(bent(exact), exact, 20, path=tmp_path, cluster=client)
    here = ks.refine(bent(exact), exact, 20)
    at = exact.space.grid(5)
    np.testing.assert_array_equal(refined(at), here(at))


def test_a_cluster_that_fails_is_said_and_what_was_computed_is_kept(tmp_path):
    distributed = pytest.importorskip("distributed")
    exact = exact_groups()
    theta, group = some_rows(40)

    def fails(theta, group):
        raise OSError("the worker lost its disk")

    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        with ExactWork(exact, path=tmp_path, cluster=client) as work:
            work(theta, group)
        broken = replace(exact, pairs_gradient=fails)
        with pytest.raises(SimulationError, match="lost its disk") as caught:  # noqa: SIM117
            with ExactWork(broken, path=tmp_path, cluster=client) as work:
                work(theta + 0.01, group)
        assert len(caught.value.computed.value) == 40
    with pytest.raises(DtypeError, match="cluster must be"):
        ExactWork(exact, cluster=7)
