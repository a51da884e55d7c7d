"""simulate: one set of bytes for any way of making it; clear words when it cannot."""

from __future__ import annotations

import io
import os
import shutil
import sys
import time

import numpy as np
import pytest
from data_helpers import files
from data_models import BrokenToy, CountsToy, DeadlyToy, JointToy, NoScoreToy, SlowToy
from numpy.testing import assert_array_equal
from toys import GaussianToy

import keepscore as ks
from keepscore.data import finish, simulate_share, status
from keepscore.data import simulate as simulate_module
from keepscore.data.dataset import Dataset
from keepscore.data.plan import make_plan
from keepscore.errors import (
    DomainError,
    DtypeError,
    MismatchError,
    MissingError,
    ShapeError,
    SimulationError,
    StorageError,
    UnknownNameError,
)

simulate_file = sys.modules["keepscore.data.simulate"]


def raw_bytes(data):
    arrays = (data.theta, data.x, *(() if data.score is None else (data.score,)))
    return [np.asarray(a).tobytes() for a in arrays]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """1500 rows made plainly, in this process."""
    folder = tmp_path_factory.mktemp("reference") / "set"
    return ks.simulate(GaussianToy(), 1500, seed=5, path=folder, jobs=1), folder


def test_disk_and_memory_and_processes_agree_to_the_byte(reference, tmp_path):
    on_disk, folder = reference
    memory = ks.simulate(GaussianToy(), 1500, seed=5, jobs=1)
    spread = ks.simulate(GaussianToy(), 1500, seed=5, jobs=2, path=tmp_path / "b")
    assert raw_bytes(memory) == raw_bytes(on_disk) == raw_bytes(spread)
    assert files(folder) == files(tmp_path / "b")
    assert memory.provenance == on_disk.provenance
    assert raw_bytes(ks.simulate(GaussianToy(), 1500, seed=6, jobs=1)) != raw_bytes(memory)


@pytest.mark.parametrize(
    "name",
    [
        "SIS",
        pytest.param("GaussianField", marks=pytest.mark.slow),
        pytest.param("StudentTField", marks=pytest.mark.slow),
    ],
)
def test_built_in_models_give_the_same_bytes_in_processes(name):
    model = getattr(ks.models, name)()
    here, there = (ks.simulate(model, 100, seed=3, jobs=jobs) for jobs in (1, 2))
    assert raw_bytes(here) == raw_bytes(there)
    assert here.x.dtype == model.x_dtype


def test_rows_are_what_they_say(reference):
    data, _ = reference
    model = GaussianToy()
    assert data.theta.shape == (1500, 2)
    assert data.x.shape == (1500, 4)
    assert data.x.dtype == model.x_dtype
    assert_array_equal(model.score(np.asarray(data.theta), np.asarray(data.x)), data.score)
    assert data.score_kind == "exact"
    assert data.space == model.space
    assert data.provenance["model"]["name"] == "gaussian-toy"
    assert data.provenance["keepscore"] == ks.__version__
    assert data.provenance["seed"] == 5
    assert "commit" in data.provenance


def test_gathering_rows_equals_plain_indexing(reference):
    data, _ = reference
    whole = data.in_memory()
    index = np.random.default_rng(0).integers(-1500, 1500, 700)
    for rows, plain in zip(data.rows(index), whole.rows(index), strict=True):
        assert_array_equal(rows, plain)
    for key in (
        3,
        -1,
        slice(60, 70),
        slice(None, None, -7),
        [5, 5, 1499],
        np.arange(1500) % 2 == 0,
    ):
        assert_array_equal(data.x[key], whole.x[key])
    assert_array_equal(data.x[10:200, 1], whole.x[10:200, 1])
    assert_array_equal(data.x[..., 1], whole.x[..., 1])
    assert_array_equal(data.theta * 2 + whole.theta, whole.theta * 3)
    assert_array_equal(np.mean(data.theta, axis=0), whole.theta.mean(axis=0))
    for blocks, plain in zip(data.blocks(400), whole.blocks(400), strict=True):
        for a, b in zip(blocks, plain, strict=True):
            assert_array_equal(a, b)
    with pytest.raises(DomainError):
        data.rows([1500])
    with pytest.raises(DtypeError):
        data.x.gather([0.5])


def test_take_gives_the_first_rows(reference):
    data, _ = reference
    part = data.take(130)
    assert len(part) == 130
    assert raw_bytes(part) == raw_bytes(data.in_memory().take(130))
    assert_array_equal(part.x[-1], data.x[129])
    with pytest.raises(DomainError):
        part.rows([130])
    with pytest.raises(ShapeError):
        data.take(1501)


def test_purposes_of_one_seed_never_overlap():
    sets = [
        ks.simulate(GaussianToy(), 500, seed=1, purpose=p, jobs=1)
        for p in ("train", "validation", "test")
    ]
    for array in ("theta", "x"):
        rows = np.concatenate([getattr(s, array) for s in sets])
        assert len(np.unique(rows, axis=0)) == 1500
        assert len(np.unique(rows[:, 0])) == 1500
    assert sets[2].space.contains(sets[2].theta, "base").all()
    assert not sets[0].space.contains(sets[0].theta, "base").all()


def test_models_without_scores_and_with_joint_scores(tmp_path):
    plain = ks.simulate(NoScoreToy(), 100, path=tmp_path / "a", jobs=1)
    assert plain.score is None
    assert plain.score_kind is None
    assert not list((tmp_path / "a").glob("*score*"))
    joint = ks.simulate(JointToy(), 100, path=tmp_path / "b", jobs=1)
    assert joint.score_kind == ks.open_dataset(tmp_path / "b").score_kind == "joint"
    without = ks.simulate(GaussianToy(), 100, scores=False, jobs=1)
    assert without.score is None
    assert without.rows([1])[2] is None
    assert_array_equal(without.theta, ks.simulate(GaussianToy(), 100, jobs=1).theta)


def test_resuming_makes_only_what_is_missing(reference, tmp_path, monkeypatch):
    _, folder = reference
    shutil.copytree(folder, tmp_path / "set")
    for name in ("manifest.json", "shard-00003.json", "shard-00007.json", "shard-00007.x.npy"):
        (tmp_path / "set" / name).unlink()
    state = status(tmp_path / "set")
    assert state.missing == (3, 7)
    with pytest.raises(MissingError, match="missing: 3, 7"):
        ks.open_dataset(tmp_path / "set")
    made = []
    make = simulate_file.make_shard
    monkeypatch.setattr(
        simulate_file, "make_shard", lambda m, p, k: (made.append(k), make(m, p, k))[1]
    )
    ks.simulate(GaussianToy(), 1500, seed=5, path=tmp_path / "set", jobs=1)
    assert made == [3, 7]
    assert files(tmp_path / "set") == files(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": GaussianToy(5)}, "model.settings.m: 4 there, 5 here"),
        ({"seed": 6}, "seed: 5 there, 6 here"),
        ({"n": 1501}, "n: 1500 there, 1501 here"),
        ({"purpose": "test"}, "purpose: 'train' there, 'test' here"),
        ({"scores": False}, "score_kind: 'exact' there, None here"),
        ({"on_invalid": "drop"}, "on_invalid: 'raise' there, 'drop' here"),
    ],
)
def test_another_set_into_the_same_folder_is_refused(reference, change, words):
    _, folder = reference
    before = files(folder)
    with pytest.raises(MismatchError) as caught:
        ks.simulate(**{"model": GaussianToy(), "n": 1500, "seed": 5, "path": folder, **change})
    assert words in str(caught.value)
    assert files(folder) == before


def test_another_space_into_the_same_folder_is_refused(reference):
    model = GaussianToy()
    model.space = ks.Space([ks.Parameter("mean", -1, 1, "identity"), ks.Parameter("sd", -0.7, 0.8)])
    with pytest.raises(MismatchError, match=r"upper: 0\.7 there, 0\.8 here"):
        ks.simulate(model, 1500, seed=5, path=reference[1])


def test_invalid_simulations_stop_with_count_and_theta():
    with pytest.raises(SimulationError) as caught:
        ks.simulate(BrokenToy("nan"), 200, jobs=1)
    theta = make_plan(BrokenToy(), 200, 0, "train", True, "raise").thetas(0)
    bad = np.flatnonzero(theta[:, 0] > 0.5)
    assert f"{len(bad)} of 64" in str(caught.value)
    assert str(theta[bad[0], 0]) in str(caught.value)
    with pytest.raises(SimulationError, match="NaN or infinity"):
        ks.simulate(BrokenToy("inf score"), 200, jobs=2)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("shape", r"shape \(64, 4\); got \(64, 3\)"),
        ("rows", r"shape \(64, 4\); got \(63, 4\)"),
        ("dtype", "dtype <U8"),
        ("raise", "shard 0.*ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("on_invalid", ["raise", "drop"])
def test_wrong_results_are_never_dropped(how, words, on_invalid):
    with pytest.raises(SimulationError, match=words):
        ks.simulate(BrokenToy(how), 200, jobs=1, on_invalid=on_invalid)


def test_dropped_rows_are_counted_and_located(tmp_path):
    model = BrokenToy("nan")
    data = ks.simulate(model, 1000, path=tmp_path, jobs=1, on_invalid="drop")
    memory = ks.simulate(model, 1000, jobs=1, on_invalid="drop")
    plan = make_plan(model, 1000, 0, "train", True, "drop")
    theta = np.concatenate([plan.thetas(k) for k in range(plan.shards)])
    dropped = data.provenance["dropped"]
    assert dropped["rows"] == np.flatnonzero(theta[:, 0] > 0.5).tolist()
    assert dropped["count"] == len(dropped["rows"]) == 1000 - len(data) > 0
    assert_array_equal(data.theta, theta[theta[:, 0] <= 0.5])
    assert raw_bytes(memory) == raw_bytes(data)
    assert memory.provenance == data.provenance
    assert np.isfinite(np.asarray(data.x)).all()


def test_whole_numbers_may_come_as_floats_but_must_fit():
    assert ks.simulate(CountsToy(), 100, jobs=1).x.dtype == np.uint8
    with pytest.raises(SimulationError, match="cannot hold"):
        ks.simulate(CountsToy(top=1000.0), 100, jobs=1)


def deadly(tmp_path, times):
    theta0 = make_plan(GaussianToy(), 500, 0, "train", True, "raise").thetas(2)[5, 0]
    return DeadlyToy(str(tmp_path), float(theta0), times)


def test_a_worker_that_dies_costs_only_its_shard(tmp_path):
    data = ks.simulate(deadly(tmp_path, 2), 500, jobs=2, path=tmp_path / "set")
    assert raw_bytes(data) == raw_bytes(ks.simulate(GaussianToy(), 500, jobs=1))


def test_after_three_deaths_the_shard_is_named_and_the_rest_is_kept(tmp_path):
    model = deadly(tmp_path, 3)
    with pytest.raises(SimulationError, match="shard 2 died 3 times"):
        ks.simulate(model, 500, jobs=2, path=tmp_path / "set")
    assert status(tmp_path / "set").missing == (2,)
    assert ks.verify(tmp_path / "set").ok
    data = ks.simulate(model, 500, jobs=2, path=tmp_path / "set")  # the fourth try lives
    assert raw_bytes(data) == raw_bytes(ks.simulate(GaussianToy(), 500, jobs=1))


def test_shares_fill_one_folder_and_the_last_finishes_it(reference, tmp_path):
    _, folder = reference
    settings = {"model": GaussianToy(), "n": 1500, "seed": 5, "path": tmp_path / "set", "jobs": 1}
    for i in (3, 1):
        state = simulate_share(**settings, share=(i, 3))
        assert not state.complete
    with pytest.raises(MissingError, match="missing: 1, 4, 7"):
        finish(tmp_path / "set")
    assert simulate_share(**settings, share=(2, 3)).complete
    assert files(tmp_path / "set") == files(folder)
    assert len(finish(tmp_path / "set")) == 1500
    with pytest.raises(MismatchError):
        simulate_share(**{**settings, "n": 1400}, share=(1, 3))


def test_too_little_disk_gives_both_figures_and_writes_nothing(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(StorageError, match=r"9\.8 KiB free.*need [\d.]+ MiB"):
        ks.simulate(GaussianToy(), 20_000, path=tmp_path / "set", jobs=1)
    assert not list((tmp_path / "set").glob("shard*"))


def test_ctrl_c_leaves_a_resumable_folder_and_says_so(tmp_path, monkeypatch, capsys):
    make, made = simulate_file.make_shard, []

    def interrupted(model, plan, index):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(index)
        return make(model, plan, index)

    with monkeypatch.context() as patch:
        patch.setattr(simulate_file, "make_shard", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ks.simulate(GaussianToy(), 500, path=tmp_path, jobs=1)
    assert "Stopped: 4 of 8 shards" in (said := capsys.readouterr().err)
    assert "goes on" in said
    data = ks.simulate(GaussianToy(), 500, path=tmp_path, jobs=1)
    assert raw_bytes(data) == raw_bytes(ks.simulate(GaussianToy(), 500, jobs=1))


def test_progress_is_quiet_unless_on_a_terminal(monkeypatch, capsys):
    ks.simulate(GaussianToy(), 200, jobs=1)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    ks.simulate(SlowToy(0.06), 200, jobs=1)
    shown = terminal.getvalue()
    assert "gaussian-toy" not in shown
    assert "slow-toy" in shown
    assert "rows/s" in shown


def test_short_runs_start_no_processes(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("processes were started for a short run")

    monkeypatch.setattr(simulate_file.workers, "in_processes", refuse)
    assert len(ks.simulate(GaussianToy(), 1000)) == 1000
    # A call that takes long, whatever its rows, as one of compiled code may: 16 calls, not 1000.
    assert len(ks.simulate(SlowToy(0.02), 1000)) == 1000


@pytest.mark.parametrize("guess", [0.0, 100.0])
def test_long_runs_go_over_to_processes(monkeypatch, guess):
    """By what a pilot says or, where that was wrong, by what the first shards took."""
    calls = []

    def noted(task, shards, jobs):
        calls.append(list(shards))
        return simulate_file.workers.in_process(task, shards)

    monkeypatch.setattr(simulate_file.workers, "in_processes", noted)
    monkeypatch.setattr(simulate_file, "START_SECONDS", 0.0)
    monkeypatch.setattr(simulate_file, "_seconds", lambda job, todo: guess)
    monkeypatch.setattr(simulate_file, "cores", lambda jobs: 2)
    data = ks.simulate(GaussianToy(), 500)
    assert calls == [[0, 1, 2, 3, 4, 5, 6, 7] if guess else [2, 3, 4, 5, 6, 7]]
    assert raw_bytes(data) == raw_bytes(ks.simulate(GaussianToy(), 500, jobs=1))


def test_workers_stay_on_one_thread_and_without_jax():
    results = dict(simulate_file.workers.in_processes(worker_state, [0, 1], 2))
    for index, (pid, threads, jax) in results.items():
        assert pid != os.getpid(), index
        assert all(t == 1 for t in threads)
        assert not jax


def worker_state(index):
    import threadpoolctl

    import keepscore.data  # noqa: F401

    time.sleep(0.1)
    threads = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
    return os.getpid(), [*threads, int(os.environ["NUMBA_NUM_THREADS"])], "jax" in sys.modules


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"n": 0}, DomainError),
        ({"n": 2.5}, DtypeError),
        ({"seed": -1}, DomainError),
        ({"purpose": "trian"}, UnknownNameError),
        ({"on_invalid": "ignore"}, UnknownNameError),
        ({"jobs": 0}, DomainError),
        ({"cluster": "tcp://127.0.0.1:9"}, MissingError),
    ],
)
def test_wrong_arguments_are_typed_errors(change, error, monkeypatch):
    monkeypatch.setattr("keepscore.cluster.CONNECT_SECONDS", 0.5)
    with pytest.raises(error):
        ks.simulate(**{"model": GaussianToy(), "n": 100, **change})


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        ks.simulate(GaussianToy(), 100, path=tmp_path / "file")


def test_settings_that_json_cannot_hold_are_refused():
    model = GaussianToy()
    model.settings = lambda: {"f": print}
    with pytest.raises(DtypeError, match="plain data"):
        ks.simulate(model, 100)


def test_a_model_of_a_notebook_works_in_processes():
    class Local(GaussianToy):
        name = "local"

    data = ks.simulate(Local(), 200, jobs=2)
    assert raw_bytes(data) == raw_bytes(ks.simulate(Local(), 200, jobs=1))


def test_a_dataset_checks_its_parts():
    space, theta, x = GaussianToy().space, np.zeros((5, 2)), np.zeros((5, 4))
    assert len(Dataset(theta, x, None, space)) == 5
    with pytest.raises(ShapeError):
        Dataset(theta[:, :1], x, None, space)
    with pytest.raises(ShapeError):
        Dataset(theta, x[:4], None, space)
    with pytest.raises(ShapeError):
        Dataset(theta, x, theta[:3], space, "exact")
    with pytest.raises(MissingError):
        Dataset(theta, x, theta, space)
    assert "n=5" in repr(Dataset(theta, x, None, space))
    assert simulate_module is ks.simulate
