"""Checkpoints: kill a run anywhere, and the finished weights are the same to the last bit."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import training_kill_target as target
from training_helpers import CACHE, SHORT, Tiny, toy_data, weights_equal

import keepscore as ks
from keepscore.errors import FormatError, MismatchError
from keepscore.losses import ASA, BCE
from keepscore.training import EXIT_CODE, Interrupted, loop
from keepscore.training.checkpoint import Position, read_checkpoint, write_checkpoint

HERE = Path(__file__).parent
FAST = ASA(update_every=4)


def settled(path):
    """History without what a clock says."""
    lines = [json.loads(line) for line in (path / "history.jsonl").open()]
    clocks = ("seconds", "ms_per_step", "compile_seconds", "versions")
    return [{k: v for k, v in line.items() if k not in clocks} for line in lines]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRST_CALL", "SECONDS_A_CALL", "write_checkpoint"):
            patch.setattr(loop, name, getattr(loop, name))  # put back afterwards
        return path, target.go(path)


def run_target(path):
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": CACHE,
        "PYTHONPATH": str(HERE),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, HERE / "training_kill_target.py", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_kill_9_within_an_epoch_costs_no_bit(tmp_path, uninterrupted):
    whole, expected = uninterrupted
    first = run_target(tmp_path)
    seen = 0
    for line in first.stdout:
        seen += line.startswith("checkpoint")
        if seen == 13:  # nine steps an epoch: the middle of the second
            first.send_signal(signal.SIGKILL)
            break
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    content = json.loads((tmp_path / "checkpoint.json").read_text())
    assert content["position"]["epoch"] == 1
    assert content["position"]["step"] > 0
    resumed = target_in_process(tmp_path)
    assert weights_equal(resumed, expected)
    assert settled(tmp_path) == settled(whole)


def target_in_process(path):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRST_CALL", "SECONDS_A_CALL", "write_checkpoint"):
            patch.setattr(loop, name, getattr(loop, name))
        return target.go(path)


def test_sigterm_writes_a_checkpoint_and_exits_with_its_own_code(tmp_path, uninterrupted):
    _, expected = uninterrupted
    first = run_target(tmp_path)
    for line in first.stdout:
        if line.startswith("checkpoint 0 4"):
            first.send_signal(signal.SIGTERM)
            break
    _, said = first.communicate(timeout=120)
    assert first.returncode == EXIT_CODE == 75
    assert "Run the same again to go on" in said
    assert weights_equal(target_in_process(tmp_path), expected)


@pytest.mark.parametrize("loss", [FAST, pytest.param(BCE(), marks=pytest.mark.slow)])
def test_an_interruption_at_any_call_costs_no_bit(tmp_path, monkeypatch, loss):
    """Raise out of the loop at the k-th checkpoint, resume, and go on so until it is finished."""
    config = replace(SHORT, checkpoint_minutes=1e-9, members=2)
    data, held = toy_data(300), toy_data(100, 1)
    whole = ks.train(data, held, Tiny, loss, config)
    write, count = loop.write_checkpoint, [0]

    def failing(*arguments):
        write(*arguments)
        count[0] += 1
        if count[0] % 3 == 0 and not arguments[3].finished:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "write_checkpoint", failing)
    monkeypatch.setattr(loop, "FIRST_CALL", 2)
    monkeypatch.setattr(loop, "SECONDS_A_CALL", 1e-9)
    for _ in range(20):
        try:
            pieces = ks.train(data, held, Tiny, loss, config, tmp_path)
            break
        except KeyboardInterrupt:
            continue
    assert count[0] > 6
    assert weights_equal(whole, pieces)


def test_a_finished_run_is_returned_and_a_fresh_start_is_possible(tmp_path, monkeypatch):
    data = toy_data(200)
    first = ks.train(data, None, "1k", FAST, SHORT, tmp_path)
    before = (tmp_path / "history.jsonl").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_one_epoch", None)  # any further epoch would fail
        again = ks.train(data, None, "1k", FAST, SHORT, tmp_path)
    assert weights_equal(first, again)
    assert (tmp_path / "history.jsonl").read_text() == before
    assert weights_equal(ks.train(data, None, "1k", FAST, SHORT, tmp_path, resume=False), first)
    assert weights_equal(ks.load(tmp_path), first)
    first.with_calibration({"kept": True}).save(tmp_path)
    assert ks.train(data, None, "1k", FAST, SHORT, tmp_path).calibration == {"kept": True}


def test_resuming_with_other_settings_says_which_differ(tmp_path):
    data = toy_data(200)
    ks.train(data, None, "1k", BCE(), SHORT, tmp_path)
    with pytest.raises(MismatchError, match=r"config\.learning_rate: 0\.001 then, 0\.01 now"):
        ks.train(data, None, "1k", BCE(), replace(SHORT, learning_rate=0.01), tmp_path)
    with pytest.raises(MismatchError, match=r"data\.rows: 180 then, 189 now"):
        ks.train(toy_data(210), None, "1k", BCE(), SHORT, tmp_path)
    with pytest.raises(MismatchError, match=r"loss\.name: 'BCE' then, 'ASA' now"):
        ks.train(data, None, "1k", FAST, SHORT, tmp_path)
    with pytest.raises(MismatchError, match=r"network.widths.hidden: \[16, 16\] then, \[30, 30\]"):
        ks.train(data, None, "3k", BCE(), SHORT, tmp_path)


@pytest.fixture
def checkpoint(tmp_path):
    state = {"w": np.arange(3, dtype=np.float32), "n": np.int32(2)}
    write_checkpoint(tmp_path, state, {"w": state["w"]}, Position(epoch=2), {"seed": 1})
    return tmp_path, state


def read(path, state, settings=None):
    return read_checkpoint(path, state, {"w": state["w"]}, settings or {"seed": 1})


def test_a_checkpoint_comes_back_whole_and_only_one_is_kept(checkpoint):
    path, state = checkpoint
    found, best, position = read(path, state)
    np.testing.assert_array_equal(found["w"], state["w"])
    np.testing.assert_array_equal(best["w"], state["w"])
    assert int(found["n"]) == 2
    assert position.epoch == 2
    write_checkpoint(path, state, {"w": state["w"]}, Position(epoch=3), {"seed": 1})
    assert [p.name for p in path.glob("*.safetensors")] == ["checkpoint-3-0.safetensors"]
    assert read(path / "nothing", state) is None


@pytest.mark.parametrize("damage", ["flip", "cut", "foreign", "newer", "escape", "position"])
def test_a_damaged_checkpoint_is_refused(checkpoint, damage):
    path, state = checkpoint
    arrays, description = path / "checkpoint-2-0.safetensors", path / "checkpoint.json"
    content = json.loads(description.read_text())
    if damage == "flip":
        raw = bytearray(arrays.read_bytes())
        raw[-1] ^= 1
        arrays.write_bytes(raw)
    elif damage == "cut":
        arrays.write_bytes(arrays.read_bytes()[:-4])
    elif damage == "foreign":
        content["format"] = "something else"
    elif damage == "newer":
        content["version"] = 99
    elif damage == "escape":
        content["arrays"] = "../checkpoint-2-0.safetensors"
    else:
        content["position"] = {"epoch": 2, "surprise": 1}
    description.write_text(json.dumps(content))
    with pytest.raises(FormatError):
        read(path, state)


def test_interrupted_is_an_exit():
    assert issubclass(Interrupted, SystemExit)
    assert Interrupted("why").code == 75
    assert str(Interrupted("why")) == "why"


@pytest.mark.parametrize("members", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_batch_split_over_four_devices_gives_the_same_losses(members):
    """In a process that sees four host devices; equal to one device but for the order of sums."""
    code = """
import sys, jax, numpy as np, keepscore as ks
from dataclasses import replace
from training_helpers import SHORT, Tiny, toy_data
from keepscore.losses import ASA
assert len(jax.devices()) == 4
data, held = toy_data(300), toy_data(100, 1)
config = replace(SHORT, members=int(sys.argv[1]))
one, four = (
    ks.train(data, held, Tiny, ASA(update_every=4), replace(config, devices=n)) for n in (1, None)
)
for a, b in zip(one.history[1:3], four.history[1:3]):
    for key in ("train_bce", "validation_bce", "score_loss", "alpha"):
        assert abs(a[key] / b[key] - 1) < 1e-4, (key, a[key], b[key])
theta, x = data.theta[:50], data.x[:50]
assert np.allclose(one.log_ratio(theta, x), four.log_ratio(theta, x), atol=1e-3)
try:
    ks.train(data, held, "1k", config=replace(SHORT, batch_size=30))
except ks.KeepscoreError as error:
    assert "multiple of the 4 devices" in str(error)
print("equal")
"""
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": str(HERE),
        "JAX_COMPILATION_CACHE_DIR": CACHE,
    }
    done = subprocess.run(
        [sys.executable, "-c", code, str(members)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.stdout.strip() == "equal", done.stderr[-2000:]
