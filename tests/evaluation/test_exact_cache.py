"""Exact results on disk: computed once, the same bits ever after, refused to anybody else."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from keepscore.errors import FormatError, MismatchError, StorageError
from keepscore.evaluation.exact_cache import cached
from keepscore.npy import read_npz

IDENTITY = {"model": {"name": "toy", "settings": {"m": 4}}, "seed": 3, "n": 5}


def exact():
    rng = np.random.default_rng(0)
    return {"value": rng.standard_normal(5), "score": rng.standard_normal((5, 2)), "n": np.array(5)}


class Counted:
    def __init__(self, compute=exact):
        self.compute, self.calls = compute, 0

    def __call__(self):
        self.calls += 1
        return self.compute()


def assert_same(arrays, expected):
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_the_second_call_reads_what_the_first_computed(tmp_path):
    compute, file = Counted(), tmp_path / "new" / "folder" / "exact.npz"
    assert_same(cached(file, IDENTITY, compute), exact())
    assert_same(cached(file, IDENTITY, compute), exact())
    assert compute.calls == 1
    assert [f.name for f in file.parent.iterdir()] == ["exact.npz"]


def test_without_a_folder_nothing_is_kept():
    compute = Counted()
    for _ in range(2):
        assert_same(cached(None, IDENTITY, compute), exact())
    assert compute.calls == 2


@pytest.mark.parametrize("path", [False, True])
def test_it_computes_on_one_thread(tmp_path, path):
    def threads():
        return {"most": np.array([max((i["num_threads"] for i in threadpool_info()), default=1)])}

    assert cached(tmp_path / "t.npz" if path else None, IDENTITY, threads)["most"] == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({**IDENTITY, "seed": 4}, "seed"),
        ({**IDENTITY, "model": {"name": "toy", "settings": {"m": 5}}}, "m"),
        ({"seed": 3}, "model"),
    ],
)
def test_another_identity_is_refused_and_the_file_stays(tmp_path, other, said):
    file = tmp_path / "exact.npz"
    cached(file, IDENTITY, exact)
    before, compute = file.read_bytes(), Counted()
    with pytest.raises(MismatchError, match=said):
        cached(file, other, compute)
    assert compute.calls == 0
    assert file.read_bytes() == before
    assert_same(cached(file, IDENTITY, compute), exact())


def test_a_computation_that_fails_or_is_stopped_leaves_nothing(tmp_path):
    for error in (ValueError, KeyboardInterrupt, MemoryError):

        def failing(error=error):
            raise error

        with pytest.raises(error):
            cached(tmp_path / "exact.npz", IDENTITY, failing)
        assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_nothing_and_the_next_call_computes(tmp_path, monkeypatch):
    file = tmp_path / "exact.npz"

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        with pytest.raises(StorageError, match="No space left"):
            cached(file, IDENTITY, exact)
    assert not list(tmp_path.iterdir())
    assert_same(cached(file, IDENTITY, exact), exact())


def damaged(content):
    yield "cut short", content[: len(content) // 2]
    yield "empty", b""
    yield "another kind", b"not a zip file at all"
    middle = len(content) // 2
    yield "flipped", content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


def test_a_damaged_file_is_named_not_used(tmp_path):
    file = tmp_path / "exact.npz"
    cached(file, IDENTITY, exact)
    content = file.read_bytes()
    for _, wrong in damaged(content):
        file.write_bytes(wrong)
        with pytest.raises(FormatError, match=r"exact\.npz.*delete it"):
            cached(file, IDENTITY, exact)
    file.write_bytes(content)  # and the whole one is used again
    assert_same(cached(file, IDENTITY, Counted(None)), exact())


def test_a_file_without_an_identity_or_with_text_is_refused(tmp_path):
    file = tmp_path / "exact.npz"
    np.savez(file, value=np.zeros(3))
    with pytest.raises(FormatError, match="damaged or foreign"):
        cached(file, IDENTITY, exact)
    cached(tmp_path / "whole.npz", IDENTITY, exact)
    text = read_npz(tmp_path / "whole.npz")["identity"]
    np.savez(file, identity=text, value=np.array(["text"]))
    with pytest.raises(FormatError, match="must hold numbers"):
        cached(file, IDENTITY, exact)
