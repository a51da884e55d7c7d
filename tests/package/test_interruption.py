"""Ctrl-C and SIGTERM at any moment: nothing is half-written, and the same call ends as if nothing
had happened, bit for bit."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from data_helpers import files
from data_models import SlowToy
from training_helpers import SHORT, Tiny, toy_data, weights_equal

import keepscore as ks
from keepscore import files as subject
from keepscore.training import EXIT_CODE, Interrupted, loop
from keepscore.training.interruption import termination

HERE = Path(__file__).parents[1] / "helpers"
N = 500


class InterruptAt:
    """os.replace, by which every file of ours gets its name, interrupted at the k-th call: before
    the file has its name, or after."""

    def __init__(self, monkeypatch, k, after=False):
        self.k, self.after, self.calls, self.real = k, after, 0, os.replace
        monkeypatch.setattr(os, "replace", self)

    def __call__(self, *arguments, **options):
        self.calls += 1
        if self.calls != self.k:
            return self.real(*arguments, **options)
        if self.after:
            self.real(*arguments, **options)
        raise KeyboardInterrupt


def leftovers(folder):
    return [f.name for f in folder.rglob("*") if f.name.startswith(subject.TEMPORARY_PREFIX)]


# --- one file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["half written", "fsync", "chmod", "replace", "_sync_folder"])
def test_a_file_is_the_old_one_or_the_new_one(tmp_path, monkeypatch, moment):
    file, old, new = tmp_path / "file", b"old" * 1000, b"new" * 2000
    subject.write_atomically(file, lambda out: out.write(old))

    def stop(*arguments):
        raise KeyboardInterrupt

    def write(out):
        out.write(new[:1000])
        if moment == "half written":
            stop()
        out.write(new[1000:])

    with monkeypatch.context() as patch:
        if moment == "_sync_folder":
            patch.setattr(subject, moment, stop)
        elif moment != "half written":
            patch.setattr(os, moment, stop)
        with pytest.raises(KeyboardInterrupt):
            subject.write_atomically(file, write)
    assert file.read_bytes() == (new if moment == "_sync_folder" else old)
    assert leftovers(tmp_path) == []


# --- simulate ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    ks.simulate(SlowToy(0.0), N, path=folder, jobs=1)
    return files(folder)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 9, 14])
def test_simulating_goes_on_after_ctrl_c_at_any_file(tmp_path, monkeypatch, whole_set, k, after):
    with monkeypatch.context() as patch:
        at = InterruptAt(patch, k, after)
        with pytest.raises(KeyboardInterrupt):
            ks.simulate(SlowToy(0.0), N, path=tmp_path, jobs=1)
        assert at.calls == k
    assert leftovers(tmp_path) == []
    there = files(tmp_path)
    assert all(whole_set[name] == content for name, content in there.items())
    ks.simulate(SlowToy(0.0), N, path=tmp_path, jobs=1)
    assert files(tmp_path) == whole_set


def test_simulating_goes_on_after_sigterm(tmp_path, whole_set):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    arguments = [str(tmp_path), "0", "1", "0.1", str(N), "4"]
    process = subprocess.Popen(
        [sys.executable, HERE / "data_kill_target.py", *arguments], env=environment
    )
    until = time.monotonic() + 120
    while len(list(tmp_path.glob("shard-*.json"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert ks.verify(tmp_path).ok
    assert not ks.verify(tmp_path).complete
    ks.simulate(SlowToy(0.0), N, path=tmp_path, jobs=1)
    assert leftovers(tmp_path) == []
    assert files(tmp_path) == whole_set


# --- train ---------------------------------------------------------------------------------------

OFTEN = replace(SHORT, checkpoint_minutes=1e-9)


@pytest.fixture(scope="module")
def trained():
    return ks.train(toy_data(200), None, Tiny, ks.BCE(), OFTEN)


def train(folder):
    return ks.train(toy_data(200), None, Tiny, ks.BCE(), OFTEN, folder)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("k", [1, 3, 4])
def test_training_goes_on_after_ctrl_c_at_any_file(tmp_path, monkeypatch, trained, k, after):
    with monkeypatch.context() as patch:
        InterruptAt(patch, k, after)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path)
    assert leftovers(tmp_path) == []
    assert weights_equal(train(tmp_path), trained)
    assert weights_equal(ks.load(tmp_path, network=trained.network.network), trained)


def test_training_goes_on_after_sigterm(tmp_path, monkeypatch, trained):
    write, before = loop.write_checkpoint, signal.getsignal(signal.SIGTERM)

    def then_terminate(*arguments):
        write(*arguments)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_checkpoint", then_terminate)
        with pytest.raises(Interrupted, match="Run the same again to go on") as stopped:
            train(tmp_path)
    assert stopped.value.code == EXIT_CODE
    assert signal.getsignal(signal.SIGTERM) is before
    assert leftovers(tmp_path) == []
    assert not (tmp_path / "surrogate.json").exists()
    assert weights_equal(train(tmp_path), trained)


# --- the signal itself ---------------------------------------------------------------------------


def test_sigterm_sets_the_event_and_the_handler_is_put_back():
    met = []

    def own(number, frame):
        met.append(number)

    before = signal.signal(signal.SIGTERM, own)
    try:
        with termination() as asked:
            assert not asked.is_set()
            os.kill(os.getpid(), signal.SIGTERM)
            assert asked.wait(5)
        assert not met
        os.kill(os.getpid(), signal.SIGTERM)
        assert met == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_leave_the_handler_alone():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def inside():
        with termination() as asked:
            seen.append((signal.getsignal(signal.SIGTERM) is before, asked.is_set()))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join(10)
    assert seen == [(True, False)]
