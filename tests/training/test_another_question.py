"""A call never gets the answer to another one: other data, other settings, another writer."""

import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest
from toys import GaussianToy
from training_helpers import SHORT, Tiny, toy_data, weights_equal

import keepscore as ks
from keepscore.errors import (
    BusyError,
    FormatError,
    KeepscoreWarning,
    MismatchError,
    StorageError,
)
from keepscore.files import _machine
from keepscore.locks import only_writer
from keepscore.losses import BCE
from keepscore.surrogate import Surrogate
from keepscore.training import loop

OTHER = replace(SHORT, seed=5)


def go(path, config=SHORT, **more):
    return ks.train(toy_data(200), None, Tiny, BCE(), config, path, **more)


def loaded(path):
    return ks.load(path, network=Tiny(jax.random.key(0)))


def test_a_result_that_could_not_be_saved_is_not_replaced_by_an_older_one(tmp_path, monkeypatch):
    """A finished run; anew with another seed; the disk is full when the result is saved."""
    old, wanted = go(tmp_path), go(None, config=OTHER)
    assert not weights_equal(old, wanted)

    def full(self, folder):
        raise StorageError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Surrogate, "save", full)
        with pytest.raises(StorageError, match="no space left"):
            go(tmp_path, config=OTHER, resume=False)
    with pytest.raises(FormatError, match="no surrogate"):
        loaded(tmp_path)  # the older one is gone: it could be taken for this one
    assert weights_equal(go(tmp_path, config=OTHER), wanted)
    assert weights_equal(loaded(tmp_path), wanted)


def test_a_surrogate_of_another_run_in_the_folder_is_not_the_answer(tmp_path):
    mine, other = go(tmp_path / "mine"), go(tmp_path / "other", config=OTHER)
    for file in (tmp_path / "other").glob("[sw]*"):
        shutil.copy(file, tmp_path / "mine")
    assert weights_equal(loaded(tmp_path / "mine"), other)
    assert weights_equal(go(tmp_path / "mine"), mine)
    assert weights_equal(loaded(tmp_path / "mine"), mine)


def with_one_more(array, row=-1):
    changed = np.array(array)
    changed[row, 0] += 1
    return changed


CHANGES = {
    "scores": lambda data: replace(data, score=100 * np.asarray(data.score)),
    "one score": lambda data: replace(data, score=with_one_more(data.score)),
    "one x": lambda data: replace(data, x=with_one_more(data.x)),
    "theta": lambda data: replace(data, theta=np.asarray(data.theta)[::-1].copy()),
    "space": lambda data: replace(data, space=wider(data.space)),
}


def wider(space):
    first, *rest = space.parameters
    return ks.Space([replace(first, upper=first.upper + 0.5), *rest])


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("finished", [True, False])
def test_a_run_does_not_go_on_with_other_data(change, finished, tmp_path, monkeypatch):
    data = toy_data(200)
    run = {"loss": ks.ASA(residual="squared"), "config": SHORT, "path": tmp_path}
    if finished:
        ks.train(data, network=Tiny, **run)
    else:
        stop_after_one_epoch(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            ks.train(data, network=Tiny, **run)
        monkeypatch.undo()
    with pytest.raises(MismatchError, match="then"):
        ks.train(CHANGES[change](data), network=Tiny, **run)
    assert ks.train(data, network=Tiny, **run) is not None  # the same data still do


def stop_after_one_epoch(monkeypatch):
    write = loop.write_checkpoint

    def stopping(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "write_checkpoint", stopping)


def test_one_training_at_a_time_in_a_folder(tmp_path):
    with only_writer(tmp_path, "training"), pytest.raises(BusyError, match="in use"):
        go(tmp_path)
    assert not list(tmp_path.glob("checkpoint*"))
    assert go(tmp_path) is not None


@pytest.mark.parametrize("threads", [None, "77"])
def test_another_number_of_threads_is_said(threads, tmp_path, monkeypatch, recwarn):
    with monkeypatch.context() as patch:
        stop_after_one_epoch(patch)
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path)
    if threads is None:  # the control: nothing changed, nothing said
        events = [record["event"] for record in go(tmp_path).history]
        assert "resume" not in events
        said = [str(w.message) for w in recwarn if issubclass(w.category, KeepscoreWarning)]
        assert all("follows the score badly" in text for text in said)  # a run of moments
        return
    monkeypatch.setenv("NPROC", threads)
    with pytest.warns(KeepscoreWarning, match=r"threads: \d+ then, 77 now"):
        result = go(tmp_path)
    (resumed,) = [record for record in result.history if record["event"] == "resume"]
    assert resumed["machine"]["threads"] == 77


@pytest.mark.parametrize("array", ["x", "theta", "score"])
def test_a_flipped_bit_of_the_data_stops_a_training(array, tmp_path):
    ks.simulate(GaussianToy(4), 200, path=tmp_path / "set", jobs=1)
    file = sorted((tmp_path / "set").glob(f"*{array}*.npy"))[-1]
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    data = ks.open_dataset(tmp_path / "set")
    with pytest.raises(FormatError, match="checksum"):
        ks.train(data, None, Tiny, ks.ASA(), SHORT)


def test_what_a_killed_training_left_is_removed(tmp_path, monkeypatch):
    """Before the first step: a run may be killed many times before it saves anything."""
    left = tmp_path / f".tmp-{_machine()}-dead"
    left.write_bytes(b"half")
    stop_after_one_epoch(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path)
    assert not left.exists()
