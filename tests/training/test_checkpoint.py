"""Checkpoints: kill a run anywhere, and the finished weights are the same to the last bit."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import training_kill_target as target
from training_helpers import SHORT, Tiny, toy_data, weights_equal

import keepscore as ks
from keepscore.errors import FormatError, KeepscoreWarning, MismatchError, StorageError
from keepscore.files import read_sealed, write_json, write_sealed
from keepscore.losses import ASA, BCE
from keepscore.training import EXIT_CODE, Interrupted, loop
from keepscore.training.checkpoint import (
    FORMAT,
    VERSION,
    read_checkpoint,
    write_checkpoint,
)
from keepscore.training.progress_record import Position, RunBounds

HERE = Path(__file__).parents[1] / "helpers"
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
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
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
    replace(first, calibration={"kept": True}).save(tmp_path)
    assert ks.train(data, None, "1k", FAST, SHORT, tmp_path).calibration == {"kept": True}


def test_resuming_with_other_settings_says_which_differ(tmp_path):
    data = toy_data(200)
    ks.train(data, None, "1k", BCE(), SHORT, tmp_path)
    with pytest.raises(MismatchError, match=r"config\.learning_rate: 0\.002 then, 0\.01 now"):
        ks.train(data, None, "1k", BCE(), replace(SHORT, learning_rate=0.01), tmp_path)
    with pytest.raises(MismatchError, match=r"data\.rows: 180 then, 189 now"):
        ks.train(toy_data(210), None, "1k", BCE(), SHORT, tmp_path)
    with pytest.raises(MismatchError, match=r"loss\.name: 'BCE' then, 'ASA' now"):
        ks.train(data, None, "1k", FAST, SHORT, tmp_path)
    with pytest.raises(MismatchError, match=r"network.widths.hidden: \[16, 16\] then, \[30, 30\]"):
        ks.train(data, None, "3k", BCE(), SHORT, tmp_path)


EXTENT = RunBounds(members=1, d=2, steps=5, expected_epochs=lambda position: 4)


def position_after(epoch, step=0):
    """Where a run of `EXTENT` is, as the loop would have it."""
    bce = [0.6 - 0.1 * (k % 2) for k in range(epoch)]
    records = [{"event": "epoch", "epoch": k + 1, "validation_bce": v} for k, v in enumerate(bce)]
    end = [{"event": "end"}] if epoch == 4 else []
    return Position(
        epoch=epoch,
        step=step,
        batches=5 * epoch + step,
        bce_sum=[2.5],
        score_sum=[[0.5, 1.0]],
        epoch_seconds=1.5,
        best=[min(bce)] if bce else [],
        best_epoch=[bce.index(min(bce)) + 1] if bce else [],
        records=[{"event": "start"}, *records, *end],
        finished=epoch == 4,
    )


@pytest.fixture
def checkpoint(tmp_path):
    state = {"w": np.arange(3, dtype=np.float32), "n": np.int32(2)}
    write_checkpoint(tmp_path, state, {"w": state["w"]}, position_after(2), {"seed": 1})
    return tmp_path, state


def read(path, state, settings=None):
    return read_checkpoint(path, state, {"w": state["w"]}, settings or {"seed": 1}, EXTENT)


def reseal(path, change):
    """Edit a sealed file and adjust its checksum: the checks behind it must hold too."""
    content = read_sealed(path, FORMAT, VERSION)
    change(content)
    write_sealed(path, FORMAT, VERSION, content)


def test_a_checkpoint_comes_back_whole_and_the_one_before_is_kept(checkpoint):
    path, state = checkpoint
    found, best, position, _ = read(path, state)
    np.testing.assert_array_equal(found["w"], state["w"])
    np.testing.assert_array_equal(best["w"], state["w"])
    assert int(found["n"]) == 2
    assert position == position_after(2)
    for epoch in (3, 4):
        write_checkpoint(path, state, {"w": state["w"]}, position_after(epoch), {"seed": 1})
    kept = sorted(p.name for p in path.glob("*.safetensors"))
    assert kept == ["checkpoint-3-0.safetensors", "checkpoint-4-0.safetensors"]
    assert read(path, state).position.epoch == 4
    assert read(path / "nothing", state) is None


def damage(path, kind):
    if kind == "flip":
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[:-4])
    elif kind == "gone":
        path.unlink()
    elif kind == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("r+b") as file:
            file.truncate(1 << 40)


@pytest.mark.parametrize("kind", ["flip", "cut", "gone", "pipe", "huge"])
@pytest.mark.parametrize("which", ["arrays", "description"])
def test_a_damaged_checkpoint_is_refused_or_the_one_before_used(checkpoint, kind, which):
    path, state = checkpoint
    files = {"arrays": "checkpoint-2-0.safetensors", "description": "checkpoint.json"}
    damage(path / files[which], kind)
    if which == "description" and kind == "gone":
        assert read(path, state) is None  # there is none: a fresh start
    else:
        with pytest.raises((FormatError, StorageError)):
            read(path, state)
    # With an earlier one beside it, that is used, and stays.
    shutil.rmtree(path)
    path.mkdir()
    for epoch in (1, 2):
        write_checkpoint(path, state, {"w": state["w"]}, position_after(epoch), {"seed": 1})
    damage(path / files[which], kind)
    with pytest.warns(KeepscoreWarning, match="the one before, after epoch 1"):
        assert read(path, state).position.epoch == 1
    assert read(path, state).position.epoch == 1
    write_checkpoint(path, state, {"w": state["w"]}, position_after(2), {"seed": 1})
    assert read(path, state).position.epoch == 2
    with pytest.raises(MismatchError, match="seed: 1 then, 2 now"):
        read(path, state, {"seed": 2})


def test_every_flipped_bit_of_a_checkpoint_is_found(checkpoint):
    path, state = checkpoint
    file = path / "checkpoint.json"
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(whole), 300):
        broken = bytearray(whole)
        broken[position] ^= 1 << int(rng.integers(8))
        file.write_bytes(broken)
        with pytest.raises(FormatError):
            read(path, state)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.update(epoch=1),
        lambda p: p.update(epoch=2**62),
        lambda p: p.update(epoch=-1),
        lambda p: p.update(epoch=2.0),
        lambda p: p.update(epoch=True),
        lambda p: p.update(step=1),
        lambda p: p.update(step=5, batches=15),
        lambda p: p.update(step=-1, batches=9),
        lambda p: p.update(step="0"),
        lambda p: p.update(batches=11),
        lambda p: p.update(finished=True),
        lambda p: p.update(finished=0),
        lambda p: p.update(best=[0.1]),
        lambda p: p.update(best=[]),
        lambda p: p.update(best=None),
        lambda p: p.update(best=["0.5"]),
        lambda p: p.update(best_epoch=[1]),
        lambda p: p.update(best_epoch=[2, 2]),
        lambda p: p.update(bce_sum=[]),
        lambda p: p.update(bce_sum=["1"]),
        lambda p: p.update(score_sum=[[1.0]]),
        lambda p: p.update(score_sum=[1.0]),
        lambda p: p.update(epoch_seconds=-1.0),
        lambda p: p.update(epoch_seconds=[]),
        lambda p: p.update(records=[]),
        lambda p: p.update(records=[1]),
        lambda p: p["records"].pop(),
        lambda p: p["records"].append({"event": "end"}),
        lambda p: p["records"][1].update(epoch=2),
        lambda p: p["records"][1].update(validation_bce=0.01),
        lambda p: p["records"][1].update(validation_bce=None),
        lambda p: p["records"].__delitem__(0),
        lambda p: p.update(surprise=1),
        lambda p: p.pop("records"),
    ],
)
def test_an_edited_position_is_not_believed(checkpoint, change):
    """With the checksum adjusted, as an attacker would."""
    path, state = checkpoint
    reseal(path / "checkpoint.json", lambda content: change(content["position"]))
    with pytest.raises(FormatError, match="position of the run cannot be true"):
        read(path, state)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(arrays="../checkpoint-2-0.safetensors"),
        lambda c: c.update(arrays=["checkpoint-2-0.safetensors"]),
        lambda c: c.pop("arrays"),
        lambda c: c.update(sha256="0" * 64),
        lambda c: c.update(sha256=[]),
        lambda c: c.pop("machine"),
        lambda c: c.update(position=[]),
        lambda c: c.pop("position"),
    ],
)
def test_an_edited_checkpoint_is_refused(checkpoint, change):
    path, state = checkpoint
    reseal(path / "checkpoint.json", change)
    with pytest.raises(FormatError):
        read(path, state)


def test_a_checkpoint_of_another_format_is_refused(checkpoint):
    path, state = checkpoint
    content = json.loads((path / "checkpoint.json").read_text())
    for change, said in (
        ({"format": "other"}, "not a keepscore checkpoint"),
        ({"version": 1}, "1"),
    ):
        write_json(path / "checkpoint.json", {**content, **change})
        with pytest.raises(FormatError, match=said):
            read(path, state)


def test_interrupted_is_an_exit():
    assert issubclass(Interrupted, SystemExit)
    assert Interrupted("why").code == 75
    assert str(Interrupted("why")) == "why"


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 2])
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
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code, str(members)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.stdout.strip() == "equal", done.stderr[-2000:]
