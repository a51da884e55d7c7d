"""SIGKILL at any moment, of the parent or its workers: resumes, and ends with the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from data_helpers import files
from data_models import SlowToy

import keepscore as ks
from keepscore.data import status
from keepscore.files import _machine
from keepscore.locks import lock_file

HELPERS = Path(__file__).parents[1] / "helpers"
N = 2100


def start(folder, seed=0, jobs=2, seconds=0.1, n=N, m=4):
    command = [sys.executable, str(HELPERS / "data_kill_target.py")]
    arguments = [str(v) for v in (folder, seed, jobs, seconds, n, m)]
    environment = {**os.environ, "PYTHONPATH": str(HELPERS)}
    return subprocess.Popen(
        command + arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def workers_of(process):
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return [c for c in children if "popen_loky" in " ".join(c.cmdline())]
    except psutil.Error:
        return []


def shards_in(folder):
    return len(list(folder.glob("shard-*.json")))


def kill_at_random(folder, process, rng):
    """Kill workers (at most two: a shard may die twice and live), perhaps the parent; how many."""
    kills = 0
    if rng.random() < 0.3:
        time.sleep(rng.uniform(0.0, 1.5))  # perhaps during start-up
    else:
        before, deadline = shards_in(folder), time.time() + 30
        while shards_in(folder) == before and process.poll() is None and time.time() < deadline:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.15))
    for _ in range(rng.integers(0, 3)):
        victims = workers_of(process)
        if victims:
            os.kill(victims[rng.integers(len(victims))].pid, signal.SIGKILL)
            kills += 1
            time.sleep(rng.uniform(0.0, 0.3))
    if process.poll() is None and (kills == 0 or rng.random() < 0.7):
        process.kill()
        kills += 1
    return kills


def survive(kills_wanted, tmp_path):
    rng = np.random.default_rng(2024)
    kills = runs = seed = 0
    while kills < kills_wanted:
        folder = tmp_path / f"set-{seed}"
        while kills < kills_wanted:
            process = start(folder, seed)
            kills += kill_at_random(folder, process, rng)
            _, errors = process.communicate(timeout=120)
            runs += 1
            if process.returncode == 0:
                break
            assert process.returncode == -signal.SIGKILL, errors.decode()
            if (folder / "plan.json").exists():
                assert ks.verify(folder).ok
        resumed = ks.simulate(SlowToy(0.0), N, seed=seed, path=folder, jobs=1)
        ks.simulate(SlowToy(0.0), N, seed=seed, path=tmp_path / f"plain-{seed}", jobs=1)
        assert len(resumed) == N
        wait_until(lambda folder=folder: not list(folder.glob(".tmp-*")))
        assert files(folder) == files(tmp_path / f"plain-{seed}")
        seed += 1
    return kills, runs


def wait_until(condition, seconds=20.0):
    deadline = time.time() + seconds
    while not condition():
        assert time.time() < deadline, "waited too long"
        time.sleep(0.02)


def test_a_few_kills(tmp_path):
    kills, _ = survive(4, tmp_path)
    assert kills >= 4


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_thirty_kills(tmp_path):
    kills, runs = survive(30, tmp_path)
    print(f"{kills} kills in {runs} runs")
    assert kills >= 30


def test_workers_do_not_outlive_their_parent_and_leftovers_go(tmp_path):
    process = start(tmp_path / "set", seconds=0.3)
    wait_until(lambda: shards_in(tmp_path / "set") > 0, 60)
    workers = workers_of(process)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    wait_until(lambda: not any(w.is_running() and w.status() != "zombie" for w in workers))
    (tmp_path / "set" / f".tmp-{_machine()}-abandoned").write_bytes(b"half")
    living = tmp_path / "set" / f".tmp-{_machine()}-living"
    foreign = tmp_path / "set" / ".tmp-elsewhere-abcd"
    foreign.write_bytes(b"half")
    with living.open("wb") as file:
        lock_file(file.fileno())  # as a writer does
        ks.simulate(SlowToy(0.0), N, path=tmp_path / "set", jobs=1)
        assert sorted((tmp_path / "set").glob(".tmp-*")) == sorted([living, foreign])
        os.utime(foreign, (0, 0))  # a day later it is abandoned for sure
        ks.simulate(SlowToy(0.0), N, path=tmp_path / "set", jobs=1)
        assert list((tmp_path / "set").glob(".tmp-*")) == [living]
    ks.simulate(SlowToy(0.0), N, path=tmp_path / "set", jobs=1)
    assert list((tmp_path / "set").glob(".tmp-*")) == []


def test_ctrl_c_on_a_real_run_with_processes(tmp_path):
    process = start(tmp_path / "set", seconds=0.2)
    wait_until(lambda: shards_in(tmp_path / "set") > 1, 60)
    workers = workers_of(process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert b"The same call goes on from there" in said
    wait_until(lambda: not any(w.is_running() and w.status() != "zombie" for w in workers))
    assert ks.verify(tmp_path / "set").ok
    assert not list((tmp_path / "set").glob(".tmp-*"))
    assert not status(tmp_path / "set").complete
    assert len(ks.simulate(SlowToy(0.0), N, path=tmp_path / "set", jobs=1)) == N


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_memory_of_the_parent_does_not_grow_with_the_set(tmp_path, jobs):
    """x of 6 MB against 64 MB, where the interpreter itself takes about 100 MB."""
    peak = {}
    for n in (4000, 40_000):
        process = start(tmp_path / f"{n}", jobs=jobs, seconds=0.0, n=n, m=200)
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
        peak[n] = int(out)
    assert peak[40_000] < 1.10 * peak[4000], peak


def test_concurrent_writers_of_one_folder_agree(tmp_path):
    """Two processes with the same call at once: one plan, no clash, the same bytes."""
    processes = [start(tmp_path / "set", jobs=1, seconds=0.01) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    ks.simulate(SlowToy(0.0), N, path=tmp_path / "plain", jobs=1)
    assert files(tmp_path / "set") == files(tmp_path / "plain")


@pytest.mark.slow
def test_a_dask_cluster_with_a_worker_killed_midway(tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        killed = []

        def kill():
            wait_until(lambda: shards_in(tmp_path / "set") > 2, 60)
            os.kill(victim, signal.SIGKILL)
            killed.append(shards_in(tmp_path / "set"))

        killer = threading.Thread(target=kill)
        killer.start()
        data = ks.simulate(
            SlowToy(0.1), N, path=tmp_path / "set", cluster=cluster.scheduler_address
        )
        killer.join()
        assert killed[0] < data.provenance["n"] // 64
        memory = ks.simulate(SlowToy(0.0), N, cluster=client)
    ks.simulate(SlowToy(0.0), N, path=tmp_path / "plain", jobs=1)
    assert files(tmp_path / "set") == files(tmp_path / "plain")
    assert memory.x.tobytes() == np.asarray(data.x).tobytes()
